# SPDX-License-Identifier: Apache-2.0
"""Makes picture.png: one sample of a synthetic drive, read back from the dataset it was converted to.

python docs/tools/picture.py [PICTURE.png]
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from edgefirst_ros import Dataset, convert
from edgefirst_ros.synthetic import Recipe, write_recording

FRAME = 75
WIDTH, HEIGHT, BAR = 640, 360, 24
AHEAD, ASIDE = 36.0, 16.0
"""Metres of the bird's eye view, forward and to either side."""
INK, PAPER, LIDAR, RADAR = (225, 228, 232), (22, 26, 32), (90, 150, 175), (255, 176, 40)
OUTLINE = {"car": (120, 170, 255), "person": (255, 150, 110)}
LADDER = np.array([(12, 12, 40), (50, 30, 120), (150, 50, 120), (235, 110, 60), (250, 230, 140)], np.float64)
"""Colours from quiet to loud."""


def camera(sample) -> Image.Image:
    """The picture with boxes, and masks laid over."""
    picture = Image.fromarray(sample.image())
    draw = ImageDraw.Draw(picture)
    for row in sample.annotations.iter_rows(named=True):
        colour = OUTLINE[row["label"]]
        mask = np.asarray(Image.open(io.BytesIO(row["mask"])).convert("L"))
        picture.paste(colour, mask=Image.fromarray(mask // 4))
        x, y, w, h = row["box2d"]
        left, top = (x - w / 2) * WIDTH, (y - h / 2) * HEIGHT
        draw.rectangle((left, top, left + w * WIDTH - 1, top + h * HEIGHT - 1), outline=colour, width=2)
        draw.text((left, top - 13), f"{row['label']} {row['box2d_score']:.2f}", fill=colour, font=font(11))
    return picture


def cube(sample, size: tuple[int, int]) -> Image.Image:
    """Range (upwards) by doppler of the loudest antenna and sequence, log-normalised."""
    loud = np.log1p(np.abs(sample.cube().complex())).max((0, 1))[::-1]
    level = (loud - loud.min()) / np.ptp(loud) * (len(LADDER) - 1)
    steps = np.arange(len(LADDER))
    rgb = np.stack([np.interp(level, steps, LADDER[:, channel]) for channel in range(3)], -1)
    return Image.fromarray(rgb.astype(np.uint8)).resize(size, Image.Resampling.NEAREST)


def birds_eye(sample, size: tuple[int, int]) -> Image.Image:
    """Lidar points, and radar targets with their speed, from above; forward is up, a line every 10 m."""
    view = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(view)
    scale = size[1] / AHEAD

    def place(point) -> tuple[float, float]:
        return size[0] / 2 - float(point["y"]) * scale, size[1] - float(point["x"]) * scale

    for metres in range(10, int(AHEAD), 10):
        draw.line((0, size[1] - metres * scale, size[0], size[1] - metres * scale), fill=(48, 54, 62))
        draw.text((4, size[1] - metres * scale - 13), f"{metres} m", fill=(110, 118, 128), font=font(10))
    for point in sample.lidar():
        x, y = place(point)
        draw.rectangle((x, y, x + 1, y + 1), fill=LIDAR)
    labels = []
    for point in sample.radar():
        x, y = place(point)
        draw.ellipse((x - 4, y - 4, x + 4, y + 4), outline=RADAR, width=2)
        label = x + 8 if x < size[0] - 60 else x - 56, y - 6
        if all(abs(label[0] - x) > 60 or abs(label[1] - y) > 12 for x, y in labels) and label[1] > 0:
            draw.text(label, f"{point['speed']:+.1f} m/s", fill=RADAR, font=font(10))
            labels.append(label)
    return view


def font(size: int):
    """Pillow's own font."""
    return ImageFont.load_default(size)


def compose(sample) -> Image.Image:
    """All three side by side, each with its member's name above, and a line about place and time below."""
    side = HEIGHT * 2 // 3
    names = [sample.member(kind).rpartition("_")[2] for kind in ("camera", "radar.cube", "lidar", "radar")]
    panels = (
        (names[0], camera(sample)),
        (f"{names[1]}  range, doppler", cube(sample, (side, HEIGHT))),
        (f"{names[2]}, {names[3]}", birds_eye(sample, (round(HEIGHT * 2 * ASIDE / AHEAD), HEIGHT))),
    )
    gap = 8
    width = sum(panel.width for _, panel in panels) + gap * (len(panels) + 1)
    sheet = Image.new("RGB", (width, HEIGHT + 2 * BAR + gap), (40, 46, 54))
    draw = ImageDraw.Draw(sheet)
    left = gap
    for title, panel in panels:
        draw.text((left, 5), title, fill=INK, font=font(13))
        sheet.paste(panel, (left, BAR))
        left += panel.width + gap
    place, skew = sample.position, sample.skew
    skews = ", ".join(f"{sensor} {value / 1e6:+.0f} ms" for sensor, value in skew.items())
    where = f"{place.latitude:.6f}, {place.longitude:.6f}, {place.altitude:.1f} m"
    text = f"{sample.name} frame {sample.frame}   {where}   {skews}"
    draw.text((gap, BAR + HEIGHT + 8), text, fill=INK, font=font(13))
    return sheet


def main() -> None:
    """Write the picture."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "img" / "picture.png"
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder, "maivin-demo_2026_01_15_12_00_00.mcap")
        write_recording(recording, Recipe(seconds=3, size=(WIDTH, HEIGHT), scene="street"))
        outcome = convert(recording, folder)
        sheet = compose(Dataset(outcome.paths.container).sample(recording.stem, FRAME))
    sheet.save(out, optimize=True)


if __name__ == "__main__":
    main()
