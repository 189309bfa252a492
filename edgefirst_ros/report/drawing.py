# SPDX-License-Identifier: Apache-2.0
"""One sample drawn: the picture with boxes, masks, lidar and radar in it, and all points from above."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from edgefirst_ros.errors import DatasetError, printable, text_of
from edgefirst_ros.report.projection import Projector
from edgefirst_ros.report.subject import Floats

WIDTH, ABOVE = 640, (300, 360)
"""Pixels across of a picture, and the size of the view from above."""
NEAR, FAR = 2.0, 60.0
"""m between which the colours of distance run."""
FASTEST = 12.0
"""m/s at which the colours of speed end."""
PAPER, GRID, INK = (19, 23, 29), (52, 60, 70), (168, 178, 190)
DISTANCE = np.array(
    [(255, 221, 87), (245, 130, 60), (221, 60, 106), (140, 62, 170), (68, 90, 200), (60, 160, 220)], float
)
"""Near to far."""
SPEED = np.array([(80, 150, 255), (225, 228, 232), (255, 96, 72)], float)
"""Coming, standing, going."""
LABELS = ((120, 170, 255), (255, 150, 110), (120, 220, 150), (225, 160, 250), (250, 215, 100), (110, 220, 225))
MOST_DRAWN, LONGEST_TEXT = 200, 24
"""Boxes of a sample, characters of a label."""
MOST_POINTS = 20_000
"""Lidar points that are drawn of one cloud."""


def distance_colours(metres: Floats) -> NDArray[np.uint8]:
    """(N, 3) colours of distances, near ones warm, evenly spread over their logarithm."""
    part = np.log(np.clip(metres, NEAR, FAR) / NEAR) / math.log(FAR / NEAR)
    return _ladder(part, DISTANCE)


def speed_colours(speed: Floats) -> NDArray[np.uint8]:
    """(N, 3) colours of radial speeds: blue comes, white stands, red goes; unknown ones stand."""
    return _ladder(np.clip(np.nan_to_num(speed) / FASTEST, -1, 1) / 2 + 0.5, SPEED)


def _ladder(part: Floats, ladder: Floats) -> NDArray[np.uint8]:
    steps = np.linspace(0, 1, len(ladder))
    return np.stack([np.interp(part, steps, ladder[:, c]) for c in range(3)], -1).astype(np.uint8)


@cache
def font(size: int) -> Any:
    """Pillow's own font."""
    return ImageFont.load_default(size)


def scaled(rgb: NDArray[np.uint8]) -> Image.Image:
    """Return the picture, WIDTH across: what is drawn into it has one size on all."""
    picture = Image.fromarray(rgb)
    size = WIDTH, max(1, min(round(picture.height * WIDTH / picture.width), 4 * WIDTH))
    way = Image.Resampling.BOX if picture.width > WIDTH else Image.Resampling.BILINEAR
    return picture.resize(size, way)


def draw_annotations(
    picture: Image.Image, rows: list[dict[str, Any]], boxes: Mapping[int, Floats], colours: dict[str, tuple[int, ...]]
) -> None:
    """Draw masks, boxes and labels; `boxes`: by row, centre and size in parts of the picture.

    `colours`: those of labels so far; new ones are added.
    """
    width, height = picture.size
    for number, row in enumerate(rows[:MOST_DRAWN]):
        label = _plain(row.get("label"))
        colour = colours.setdefault(label, LABELS[len(colours) % len(LABELS)])
        mask = _mask(row.get("mask"), picture.size)
        if mask is not None:
            picture.paste(colour, mask=mask)
        draw = ImageDraw.Draw(picture)
        if number in boxes:
            x, y, w, h = boxes[number]
            left, top, right, bottom = (
                (x - w / 2) * width,
                (y - h / 2) * height,
                (x + w / 2) * width,
                (y + h / 2) * height,
            )
            if right > left and bottom > top and max(map(abs, (left, top, right, bottom))) < 10 * WIDTH:
                draw.rectangle((left, top, right - 1, bottom - 1), outline=colour, width=2)
                score = row.get("box2d_score")
                text = f"{label} {score:.2f}" if isinstance(score, float) else label
                if text:
                    _tag(draw, (left, top - 15 if top > 15 else top + 1), text, colour)


def draw_lidar(picture: Image.Image, points: Floats, way: Projector) -> int:
    """Draw lidar points in the picture by their distance; returns how many are in it."""
    points = (
        points[np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(int)] if len(points) else points
    )
    seen = way.project(points)
    rays = way.rays(points)[seen.mask]
    scale = picture.width / (way.size[0] or picture.width)
    order = np.argsort(-rays[:, 2])  # near ones over far ones
    pixels = (seen.pixels[seen.mask][order] + 0.5) * scale
    colours = distance_colours(np.linalg.norm(rays[order], axis=1))
    canvas = np.asarray(picture).copy()
    for dx in (0, 1):
        for dy in (0, 1):
            x = np.clip(np.floor(pixels[:, 0]).astype(int) + dx, 0, picture.width - 1)
            y = np.clip(np.floor(pixels[:, 1]).astype(int) + dy, 0, picture.height - 1)
            canvas[y, x] = colours
    picture.paste(Image.fromarray(canvas))
    return int(seen.mask.sum())


def draw_radar(picture: Image.Image, points: Floats, speed: Floats, way: Projector) -> int:
    """Draw radar targets in the picture with their speed; returns how many are in it."""
    seen = way.project(points)
    scale = picture.width / (way.size[0] or picture.width)
    draw = ImageDraw.Draw(picture)
    colours = speed_colours(speed)
    for place in np.flatnonzero(seen.mask)[:MOST_DRAWN]:
        x, y = (seen.pixels[place] + 0.5) * scale
        colour = tuple(int(c) for c in colours[place])
        draw.ellipse((x - 7, y - 7, x + 7, y + 7), outline=PAPER, width=4)
        draw.ellipse((x - 6, y - 6, x + 6, y + 6), outline=colour, width=2)
        if math.isfinite(speed[place]):
            _tag(draw, (x + 9, y - 7), f"{speed[place]:+.1f} m/s", colour)
    return int(seen.mask.sum())


def from_above(lidar: Floats, radar: Floats, speed: Floats, view: float | None) -> Image.Image:
    """Return all points from above, forward up, in the vehicle's frame; `view`: half the angle of the picture, rad."""
    picture = Image.new("RGB", ABOVE, PAPER)
    draw = ImageDraw.Draw(picture)
    away = np.concatenate([np.hypot(lidar[:, 0], lidar[:, 1]), np.hypot(radar[:, 0], radar[:, 1])])
    away = away[np.isfinite(away)]
    reach = float(np.clip(np.percentile(away, 97) if len(away) else 30.0, 15.0, 100.0))
    step = next(s for s in (5, 10, 20, 50) if reach / s <= 6)
    middle, base = ABOVE[0] / 2, ABOVE[1] - 46
    scale = (base - 8) / reach
    for metres in range(step, int(reach) + step, step):
        r = metres * scale
        draw.arc((middle - r, base - r, middle + r, base + r), 0, 360, fill=GRID)
        draw.text((middle + 3, base - r - 13), f"{metres} m", fill=INK, font=font(10))
    if view is not None:
        for side in (-1, 1):
            end = middle + side * math.sin(view) * 2 * reach * scale, base - math.cos(view) * 2 * reach * scale
            draw.line((middle, base, *end), fill=GRID)
    if len(lidar):
        x, y = middle - lidar[:, 1] * scale, base - lidar[:, 0] * scale
        inside = np.isfinite(x) & np.isfinite(y) & (x >= 0) & (x < ABOVE[0]) & (y >= 0) & (y < ABOVE[1])
        canvas = np.asarray(picture).copy()
        colours = distance_colours(np.linalg.norm(lidar[inside], axis=1))
        canvas[y[inside].astype(int), x[inside].astype(int)] = colours
        picture.paste(Image.fromarray(canvas))
        draw = ImageDraw.Draw(picture)
    for place, colour in zip(radar[:MOST_DRAWN], speed_colours(speed), strict=False):
        if np.isfinite(place).all():
            x, y = middle - place[1] * scale, base - place[0] * scale
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), outline=tuple(int(c) for c in colour), width=2)
    draw.polygon([(middle, base - 7), (middle - 5, base + 6), (middle + 5, base + 6)], fill=(225, 228, 232))
    return picture


def jpeg(picture: Image.Image, quality: int = 82) -> bytes:
    """Return the JPEG of a picture; colours at full resolution, as far points differ from grey by colour only."""
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


def png(picture: Image.Image) -> bytes:
    """Return the bytes of a drawing, in 64 colours."""
    buffer = io.BytesIO()
    picture.convert("RGB").quantize(64, Image.Quantize.FASTOCTREE).save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def _tag(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, colour: tuple[int, ...]) -> None:
    """Text on a dark ground, so that it is read on any picture."""
    left, top, right, bottom = draw.textbbox(place, text, font=font(11))
    draw.rectangle((left - 2, top - 1, right + 2, bottom + 1), fill=PAPER)
    draw.text(place, text, fill=colour, font=font(11))


def _plain(text: object) -> str:
    """Return a label as one short line."""
    if not isinstance(text, str):
        return ""
    shown = printable(text[: LONGEST_TEXT + 1]).replace("\n", " ")
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}..."


def _mask(data: object, size: tuple[int, int]) -> Image.Image | None:
    """A mask of the picture's shape as transparency, in the size drawn; None where it is none that can be read."""
    if not isinstance(data, bytes):
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as mask:
            if mask.width * mask.height > 1 << 25 or abs(mask.width * size[1] - mask.height * size[0]) > mask.width:
                return None
            plain = mask.convert("L").resize(size, Image.Resampling.NEAREST)
    except Exception as error:  # whatever the library raises on bad bytes
        raise DatasetError(f"a mask cannot be read: {text_of(error)}") from error
    return plain.point([n * 90 // 255 for n in range(256)])
