# SPDX-License-Identifier: Apache-2.0
"""The contact sheet: the samples it shows, each drawn in the picture and from above."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.dataset.verdict import MODEL
from edgefirst_ros.errors import DatasetError, EdgeFirstError, escape_text, quote_error
from edgefirst_ros.report.content import (
    Unreadable,
    Ways,
    find_ways,
    list_all_sensors,
    list_sensors,
    make_projectors,
    read_speeds,
    spread_evenly,
)
from edgefirst_ros.report.projection import Projector, stack_xyz
from edgefirst_ros.report.subject import Floats, PlacedSample, ReportSubject
from edgefirst_ros.sensors.calibration import find_frame
from edgefirst_ros.sensors.transforms import BASE, chain_frames
from edgefirst_ros.streams import CAMERA, find_by_key, is_radar

Frame: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""
Colour: TypeAlias = tuple[int, ...]
NOTHING = np.zeros((0, 3))


class Shown(NamedTuple):
    """One sample of the sheet."""

    sequence: str
    frame: int | None
    seconds: float
    why: str
    pictures: list[tuple[bytes, str]]
    """JPEG of each camera, and its alternative text."""
    above: bytes | None
    """PNG; None where it has no points."""
    above_alt: str
    skews: dict[str, float]
    """ms by sensor."""
    said: str
    """Description of the drawing, or why it is empty."""


def choose(subject: ReportSubject, most: int) -> list[tuple[PlacedSample, str]]:
    """Choose samples, in order of time, each with the reason: worst skews, every label, the rest spread evenly."""
    places = [p for p in subject.places if "camera" in p.sample.inputs] or subject.places
    if not places or most < 1:
        return []
    reasons: dict[int, list[str]] = {}
    by_row = {place.row: number for number, place in enumerate(places) if place.row is not None}
    shown = np.zeros(len(subject.timeline), bool)
    shown[list(by_row)] = True
    for sensor, one in subject.timeline.companions.items():
        far = np.where(one.has & shown, np.abs(one.skew), 0)
        if sensor != MODEL and far.any() and len(reasons) < max(1, most // 4):
            row = int(far.argmax())
            reasons.setdefault(by_row[row], []).append(f"largest skew of {sensor}: {one.skew[row] / 1e6:+.1f} ms")
    by_key = {place.sample.key: number for number, place in enumerate(places)}
    best: dict[str, tuple[Key, int]] = {}
    rows = subject.dataset.annotations.drop_nulls("label")
    for name, frame, label, number in rows.group_by("name", "frame", "label", maintain_order=True).len().iter_rows():
        if (key := Key(name, frame)) in by_key and number > best.get(str(label), (key, 0))[1]:
            best[str(label)] = key, int(number)
    for label, (key, number) in best.items():
        if len(reasons) < max(2, most * 2 // 3) or by_key[key] in reasons:
            reasons.setdefault(by_key[key], []).append(f"most annotations of {label}: {number}")
    looked = [place for place in places if place.sample.key in subject.dataset.annotation_rows[1]]
    for source in (looked if len(looked) >= most else [], places):
        left = [place for place in source if by_key[place.sample.key] not in reasons]
        for place in spread_evenly(left, max(most - len(reasons), 0)):
            reasons[by_key[place.sample.key]] = ["evenly spread sample"]
    return [(places[number], ", ".join(why)) for number, why in sorted(reasons.items())][:most]


def draw_sheet(subject: ReportSubject, most: int, unreadable: Unreadable) -> list[Shown]:
    """Draw the samples that are chosen; what cannot be read is dropped and noted."""
    ways, poses = make_projectors(subject), _list_poses(subject.calibrations, list_all_sensors(subject, "cloud"))
    colours: dict[str, Colour] = {}
    return [_draw_place(*one, ways, poses, colours, unreadable) for one in choose(subject, most)]


def draw_card(sample: Sample) -> Image.Image:
    """Return the picture of a sample with its labels, and its points from above beside it."""
    parts = [Image.open(io.BytesIO(data)) for _, data, _ in _draw_all(_draw_card(sample))]
    if not parts:
        return Image.new("RGB", ABOVE, PAPER)
    card = Image.new("RGB", (sum(part.width for part in parts), max(part.height for part in parts)), PAPER)
    for n, part in enumerate(parts):
        card.paste(part, (sum(one.width for one in parts[:n]), 0))
    return card


def render_card(sample: Sample) -> str:
    """Return the same as HTML, with a caption."""
    shown = _draw_card(sample)
    images = "".join(
        f'<img alt="{html.escape(escape_text(alt))}" style="max-width:100%;vertical-align:top" '
        f'src="data:image/{kind};base64,{base64.b64encode(data).decode()}">'
        for kind, data, alt in _draw_all(shown)
    )
    skews = ", ".join(f"{sensor} {ms:+.1f} ms" for sensor, ms in shown.skews.items())
    words = [f"frame {sample.frame} of {sample.name}", sample.group or "", skews and f"skew {skews}", shown.said]
    caption = html.escape(escape_text("; ".join(word for word in words if word)))
    return f"<figure>{images}<figcaption>{caption}</figcaption></figure>"


def _draw_all(shown: Shown) -> list[tuple[str, bytes, str]]:
    pictures = [("jpeg", data, alt) for data, alt in shown.pictures]
    return pictures + ([("png", shown.above, shown.above_alt)] if shown.above is not None else [])


def _draw_card(sample: Sample) -> Shown:
    """Draw a sample by itself. Raises DatasetError for a member that cannot be read."""
    calibrations, unreadable = {sample.name: sample.calibration}, Unreadable()
    ways, poses = (
        find_ways(calibrations, sample.inputs),
        _list_poses(calibrations, list_sensors(sample.inputs, "cloud")),
    )
    shown = _draw_place(PlacedSample(0.0, sample, None), "", ways, poses, {}, unreadable)
    for error in unreadable.values():
        raise DatasetError(error)
    return shown


Poses: TypeAlias = "dict[tuple[str, str], Floats]"
"""By sequence and sensor (4, 4) from its frame to the vehicle's. Unknown: none of an instance, else the identity."""


def _list_poses(calibrations: Mapping[str, SequenceCalibration], sensors: Sequence[str]) -> Poses:
    found: Poses = {}
    for name, one in calibrations.items():
        frames = chain_frames(one.static_transforms or (), BASE)
        found |= {(name, sensor): np.eye(4) for sensor in sensors if find_by_key(sensor).instance is None}
        known = {sensor: find_frame(sensor, one.sensor_frames) for sensor in sensors}
        found |= {(name, sensor): frames[frame] for sensor, frame in known.items() if frame in frames}
    return found


def _draw_place(
    place: PlacedSample, why: str, ways: Ways, poses: Poses, colours: dict[str, Colour], unreadable: Unreadable
) -> Shown:
    sample, said, view = place.sample, list[str](), None
    clouds = {}
    for key in sorted(list_sensors(sample.inputs, "cloud"), key=is_radar):
        what = "radar points" if is_radar(key) else "lidar points"
        clouds[key] = _read_points(partial(sample.lidar, key), unreadable, what)
    cameras = list_sensors(sample.inputs, "camera")
    name, pictures, listed = f"frame {sample.frame} at {place.seconds:.2f} s", [], []
    for camera in cameras:
        try:
            picture = scale_picture(sample.image(camera))
        except EdgeFirstError as error:
            unreadable.setdefault("picture", str(error))
            continue
        drawn, taken = list[str](), list[Frame]()
        for key, (points, speed) in clouds.items():
            way = ways.get((sample.name, key, camera))
            if not len(points) or way is None:
                continue
            if isinstance(way, str):
                said.append(way)
                continue
            if camera == CAMERA.key and way.size[0]:
                view = math.atan2(way.size[0] / 2, way.k[0, 0])
            sensor = key if find_by_key(key).instance is not None else key.partition(".")[0]
            if is_radar(key):
                drawn.append(f"{draw_radar(picture, points, speed, way, taken)} {sensor} targets")
            else:
                drawn.append(f"{draw_lidar(picture, points, way)} {sensor} points")
        if camera == CAMERA.key:
            drawn.append(_draw_labels(picture, sample, colours, taken, unreadable))
        what = ", ".join(drawn)
        own = f" of {camera}" if len(cameras) > 1 else ""
        pictures.append((encode_jpeg(picture), f"Picture{own} of {name}, with {what or 'no points'}"))
        listed.append(f"{camera}: {what}" if own and what else what)
    with np.errstate(invalid="ignore"):
        moved = {
            key: (points @ pose[:3, :3].T + pose[:3, 3], speed)
            for key, (points, speed) in clouds.items()
            if len(points) and (pose := poses.get((sample.name, key))) is not None
        }
    lidar = np.concatenate([NOTHING, *(points for key, (points, _) in moved.items() if not is_radar(key))])
    radar = np.concatenate([NOTHING, *(points for key, (points, _) in moved.items() if is_radar(key))])
    speed = np.concatenate([np.zeros(0), *(speed for key, (_, speed) in moved.items() if is_radar(key))])
    above = encode_png(from_above(lidar, radar, speed, view)) if len(lidar) or len(radar) else None
    alt = f"{len(lidar)} lidar points and {len(radar)} radar targets of {name} from above, forward up"
    skews = {sensor: value / 1e6 for sensor, value in sample.skew.items()}
    words = "; ".join(dict.fromkeys(said)) or "; ".join(filter(None, listed))
    return Shown(sample.name, sample.frame, place.seconds, why, pictures, above, alt, skews, words)


def _draw_labels(
    picture: Image.Image, sample: Sample, colours: dict[str, Colour], taken: list[Frame], unreadable: Unreadable
) -> str:
    """Draw the annotations of a sample; returns their description."""
    annotations, metadata = sample.annotations, sample.dataset.metadata
    rows = list(annotations.iter_rows(named=True))
    boxes = {n: found[0] for n in range(len(rows)) if len(found := convert_boxes(annotations[n : n + 1], metadata))}
    try:
        draw_annotations(picture, rows, boxes, colours, taken)
    except EdgeFirstError as error:
        unreadable.setdefault("mask", f"frame {sample.frame} of {sample.name!r}: {error}")
    labels = [str(row["label"]) for row in rows if row.get("label") is not None]
    return f"boxes of {', '.join(dict.fromkeys(labels))}" if labels else "no boxes"


def _read_points(read: Any, unreadable: Unreadable, what: str) -> tuple[Floats, Floats]:
    """(N, 3) places and (N,) speeds of a cloud; empty if it cannot be read."""
    try:
        points = read().ravel()
        return stack_xyz(points), read_speeds(points)
    except EdgeFirstError as error:
        unreadable.setdefault(what, str(error))
    except ValueError as error:
        unreadable.setdefault(what, f"{what} without x, y and z: {error}")
    return NOTHING, np.zeros(0)


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
STRIP = 6
"""Pictures of the filmstrip."""
MOST_POINTS = 20_000
"""Lidar points that are drawn of one cloud."""
font = cache(ImageFont.load_default)
"""Pillow's own font of a size."""


def colour_distances(metres: Floats) -> NDArray[np.uint8]:
    """(N, 3) colours of distances, near ones warm, evenly spread over their logarithm."""
    part = np.log(np.clip(metres, NEAR, FAR) / NEAR) / math.log(FAR / NEAR)
    return _draw_ladder(part, DISTANCE)


def colour_speeds(speed: Floats) -> NDArray[np.uint8]:
    """(N, 3) colours of radial speeds: blue approaches, white rests, red recedes; unknown ones count as 0."""
    return _draw_ladder(np.clip(np.nan_to_num(speed) / FASTEST, -1, 1) / 2 + 0.5, SPEED)


def _draw_ladder(part: Floats, ladder: Floats) -> NDArray[np.uint8]:
    steps = np.linspace(0, 1, len(ladder))
    return np.stack([np.interp(part, steps, ladder[:, c]) for c in range(3)], -1).astype(np.uint8)


def scale_picture(rgb: NDArray[np.uint8]) -> Image.Image:
    """Return the picture, WIDTH across, so that drawings have the same size on all."""
    picture = Image.fromarray(rgb)
    size = WIDTH, max(1, min(round(picture.height * WIDTH / picture.width), 4 * WIDTH))
    way = Image.Resampling.BOX if picture.width > WIDTH else Image.Resampling.BILINEAR
    return picture.resize(size, way)


def draw_annotations(
    picture: Image.Image,
    rows: list[dict[str, Any]],
    boxes: Mapping[int, Floats],
    colours: dict[str, Colour],
    taken: list[Frame],
) -> None:
    """Draw masks, boxes and labels; `boxes`: by row, centre and size in parts of the picture.

    `colours`: those of labels so far; new ones are added. `taken`: frames that no label may cover.
    """
    width, height = picture.size
    tags: list[tuple[float, Frame, str, Colour]] = []
    for number, row in enumerate(rows[:MOST_DRAWN]):
        label = _make_plain(row.get("label"))
        colour = colours.setdefault(label, LABELS[len(colours) % len(LABELS)])
        mask = _make_mask(row.get("mask"), picture.size)
        if mask is not None:
            picture.paste(colour, mask=mask)
        draw = ImageDraw.Draw(picture)
        if number in boxes:
            x, y, w, h = boxes[number]
            left, top = (x - w / 2) * width, (y - h / 2) * height
            right, bottom = (x + w / 2) * width, (y + h / 2) * height
            if right > left and bottom > top and max(map(abs, (left, top, right, bottom))) < 10 * WIDTH:
                draw.rectangle((left, top, right - 1, bottom - 1), outline=colour, width=2)
                score = row.get("box2d_score")
                text = f"{label} {score:.2f}" if isinstance(score, float) else label
                if text:
                    tags.append((score if isinstance(score, float) else 1.0, (left, top, right, bottom), text, colour))
    for _, (left, top, _, bottom), text, colour in sorted(tags, key=lambda tag: -tag[0]):  # the surest first
        places = [(left, y) for y in (top - 15, bottom + 1, top + 1, top - 31)]
        _place_tag(picture, places, text, colour, taken)


def draw_lidar(picture: Image.Image, points: Floats, way: Projector) -> int:
    """Draw lidar points in the picture by their distance; returns how many are in it."""
    points = points[np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(int)]
    seen = way.project(points)
    rays = way.rays(points)[seen.mask]
    scale = picture.width / (way.size[0] or picture.width)
    order = np.argsort(-rays[:, 2])  # near ones over far ones
    pixels = (seen.pixels[seen.mask][order] + 0.5) * scale
    colours = colour_distances(np.linalg.norm(rays[order], axis=1))
    canvas = np.asarray(picture).copy()
    for corner in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = np.clip(np.floor(pixels).astype(int) + corner, 0, np.array(picture.size) - 1).T
        canvas[y, x] = colours
    picture.paste(Image.fromarray(canvas))
    return int(seen.mask.sum())


def draw_radar(picture: Image.Image, points: Floats, speed: Floats, way: Projector, taken: list[Frame]) -> int:
    """Draw radar targets in the picture with their speed, and return how many are in it.

    A speed that would cover one of the frames `taken` is not written; those written are added.
    """
    seen = way.project(points)
    scale = picture.width / (way.size[0] or picture.width)
    draw = ImageDraw.Draw(picture)
    colours = colour_speeds(speed)
    for place in np.flatnonzero(seen.mask)[:MOST_DRAWN]:
        x, y = (seen.pixels[place] + 0.5) * scale
        colour = tuple(int(c) for c in colours[place])
        draw.ellipse((x - 7, y - 7, x + 7, y + 7), outline=PAPER, width=4)
        draw.ellipse((x - 6, y - 6, x + 6, y + 6), outline=colour, width=2)
        if math.isfinite(speed[place]):
            text = f"{speed[place]:+.1f} m/s"
            _place_tag(picture, [(x + 9, y - 7), (x + 9, y + 7)], text, colour, taken)
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
        colours = colour_distances(np.linalg.norm(lidar[inside], axis=1))
        canvas[y[inside].astype(int), x[inside].astype(int)] = colours
        picture.paste(Image.fromarray(canvas))
    for place, colour in zip(radar[:MOST_DRAWN], colour_speeds(speed), strict=False):
        if np.isfinite(place).all():
            x, y = middle - place[1] * scale, base - place[0] * scale
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), outline=tuple(int(c) for c in colour), width=2)
    draw.polygon([(middle, base - 7), (middle - 5, base + 6), (middle + 5, base + 6)], fill=(225, 228, 232))
    return picture


def make_filmstrip(shown: Sequence[Shown]) -> list[tuple[bytes, str]]:
    """Return small JPEGs of up to STRIP pictures of the sheet, spread evenly, with their texts."""
    there = [one for one in shown if one.pictures]
    found = []
    for one in (there[n] for n in np.unique(np.linspace(0, len(there) - 1, min(len(there), STRIP)).astype(int))):
        data, alt = one.pictures[0]
        with Image.open(io.BytesIO(data)) as picture:
            picture.thumbnail((WIDTH // 2, WIDTH // 2))
            found.append((encode_jpeg(picture), alt))
    return found


def encode_jpeg(picture: Image.Image, quality: int = 82) -> bytes:
    """Return the JPEG of a picture; colours at full resolution, as far points differ from grey by colour only."""
    buffer = io.BytesIO()
    picture.convert("RGB").save(buffer, "JPEG", quality=quality, subsampling=0)
    return buffer.getvalue()


def encode_png(picture: Image.Image) -> bytes:
    """Return the bytes of a drawing, in 64 colours."""
    buffer = io.BytesIO()
    picture.convert("RGB").quantize(64, Image.Quantize.FASTOCTREE).save(buffer, "PNG", compress_level=6)
    return buffer.getvalue()


def _place_tag(
    picture: Image.Image, places: Sequence[tuple[float, float]], text: str, colour: Colour, taken: list[Frame]
) -> None:
    """Draw a text at the first place that is free and within the picture, if any."""
    draw = ImageDraw.Draw(picture)
    for left, y in places:
        frame = draw.textbbox((left, y), text, font=font(11))
        x = min(left, picture.width - (frame[2] - frame[0]) - 2)
        own = x - 2, y - 1, x + frame[2] - frame[0] + 2, frame[3] + 1
        free = not any(own[0] < b[2] and b[0] < own[2] and own[1] < b[3] and b[1] < own[3] for b in taken)
        if free and own[1] >= 0 and own[3] <= picture.height:
            _draw_tag(draw, (x, y), text, colour)
            taken.append(own)
            return


def _draw_tag(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, colour: Colour) -> None:
    """Text on a dark ground, so that it is read on any picture."""
    left, top, right, bottom = draw.textbbox(place, text, font=font(11))
    draw.rectangle((left - 2, top - 1, right + 2, bottom + 1), fill=PAPER)
    draw.text(place, text, fill=colour, font=font(11))


def _make_plain(text: object) -> str:
    """Return a label as one short line."""
    if not isinstance(text, str):
        return ""
    shown = escape_text(text[: LONGEST_TEXT + 1]).replace("\n", " ")
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:LONGEST_TEXT]}..."


def _make_mask(data: object, size: tuple[int, int]) -> Image.Image | None:
    """A mask of the picture's shape as transparency, in the size drawn; None for another shape or type."""
    if not isinstance(data, bytes):
        return None
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as mask:
            if mask.width * mask.height > 1 << 25 or abs(mask.width * size[1] - mask.height * size[0]) > mask.width:
                return None
            plain = mask.convert("L").resize(size, Image.Resampling.NEAREST)
    except Exception as error:  # any error of the library on bad bytes
        raise DatasetError(f"a mask cannot be read: {quote_error(error)}") from error
    return plain.point([n * 90 // 255 for n in range(256)])
