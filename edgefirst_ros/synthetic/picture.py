# SPDX-License-Identifier: Apache-2.0
"""The camera's pictures, drawn: a background, the objects as silhouettes, and the picture's index as a bar code."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.synthetic.recipe import Recipe
from edgefirst_ros.synthetic.scene import CAMERA, COLOURS, Scene, Thing
from edgefirst_ros.synthetic.street import Street

CELLS, INDEX_BITS, CHECK_BITS = 32, 24, 6
"""Of the bar code, left to right: white, 24 bits of index, 6 of checksum (highest first), black."""
LIGHT, DARK = 215, 40
"""Values of the bar code, which survives video and JPEG coding."""
MASK_SIZE = (40, 30)
"""Columns and rows of an object's mask over its box."""
CABIN = (0.25, 0.65, 0.5)
"""Silhouette: above this part of the height (last) only between these parts of the width, no side like another."""
SLACK = 64
"""Pixels by which the noise is larger than the picture, to be shifted from frame to frame."""
SKY, HAZE, HILL = (np.array(rgb, np.float32) for rgb in ((95, 140, 205), (195, 205, 212), (95, 120, 105)))
GROUND = np.array(
    [[max(60, value + grain) for value in rgb]
     for rgb in ((88, 89, 92), (140, 137, 130), (88, 122, 62), (205, 205, 198)) for grain in (-5, 0, 3, 7)], np.uint8,
)  # fmt: skip
"""Road, pavement, grass and lines, each in four shades."""
HOUSES = np.array(
    [[value * light for value in rgb] for rgb in ((150, 96, 78), (188, 176, 152), (172, 128, 98), (160, 160, 158))
     for light in (0.72, 1.0)] + [[70, 88, 108]], np.uint8,
)  # fmt: skip
"""Walls of four kinds, each the side and the front, and windows."""
COATS = {
    "car": np.array(((60, 95, 170), (172, 60, 52), (185, 188, 192))),
    "person": np.array(((190, 120, 50), (60, 120, 90), (120, 80, 140))),
}
"""Colours of cars and coats in a street."""
MOST_DISTANT = 500.0
"""m up to which houses are seen."""
NOISE_LIMIT = 24
"""Largest noise: no sum of it and the scene's values (40 to 215) leaves 8 bits."""


class Painter:
    """Draws the pictures of a recipe; a picture depends on only its index."""

    def __init__(self, recipe: Recipe, scene: Scene) -> None:
        self._recipe = recipe
        self._scene = scene
        width, height = recipe.size
        down = np.linspace(0, 1, height)[:, None, None]
        across = np.linspace(-12, 12, width)[None, :, None]
        sky, road = np.array([150, 170, 195]), np.array([90, 95, 85])
        self._background = (sky * (1 - down) + road * down + across).astype(np.uint8)
        self._noise: NDArray[np.uint8] | None = None
        if recipe.noise > 0:
            rng = np.random.default_rng([recipe.seed, 1])
            field = rng.standard_normal((height + SLACK, width + SLACK, 3), dtype=np.float32) * recipe.noise
            self._noise = np.rint(field).clip(-NOISE_LIMIT, NOISE_LIMIT).astype(np.int8).view(np.uint8)

    def picture(self, index: int) -> NDArray[np.uint8]:
        """Picture `index` as (H, W, 3) uint8 RGB."""
        time, street = self._recipe.stamp("camera", index), self._scene.street
        rgb = self._background.copy() if street is None else self._paint_street(street, self._scene.seconds(time))
        height, width, _ = rgb.shape
        for thing in self._scene.things(time):
            left, top, right, bottom = find_pixels(thing, width, height) or (0, 0, 0, 0)
            drawn = make_outline(thing, width, height)
            colours = COLOURS[thing.label] if street is None else _dress(thing, *drawn.shape)[drawn]
            rgb[top:bottom, left:right][drawn] = colours
        draw_bar_code(rgb, index)
        if self._noise is not None:
            y, x = index * 29 % SLACK, index * 17 % SLACK
            rgb += self._noise[y : y + height, x : x + width]  # modulo 256, which the limits above keep exact
        return rgb

    def _paint_street(self, street: Street, seconds: float) -> NDArray[np.uint8]:
        """Return sky, hills, road and houses as the camera sees them."""
        width, height = self._recipe.size
        fx, fy, cx, cy = self._scene.intrinsics
        left = ((cx - 0.5 - np.arange(width)) / fx).astype(np.float32)
        down = ((np.arange(height) + 0.5 - cy) / fy).astype(np.float32)[:, None]
        sky = int((down < 0).sum())
        rgb = np.empty((height, width, 3), np.uint8)
        rgb[:sky] = (HAZE + (SKY - HAZE) * np.minimum(1, -2.5 * down[:sky]))[:, None]
        x, y, cosine, sine = street.view(seconds, CAMERA)
        around = math.atan2(sine, cosine) + np.arctan(left)
        hills = 0.03 + 0.012 * np.sin(13 * around) + 0.008 * np.sin(31 * around + 1) + 0.006 * np.sin(67 * around)
        rgb[:sky][-down[:sky] < hills] = HILL
        ahead = CAMERA[2] / down[sky:]
        along, across = x + ahead * (cosine - left * sine), np.abs(y + ahead * (sine + left * cosine))
        ground = (across > 8.5).astype(np.uint8) + (across > 10.5)
        ground[np.abs(across - 8.4) < 0.08] = 3
        dashes = np.nonzero(np.abs(across - 1.75) < 0.08)
        ground[dashes] = np.where(along[dashes] % 9 < 4, 3, 0)
        grain = (along.astype(np.int32) * 7 ^ (2 * across).astype(np.int32) * 5) & 3
        np.take(GROUND, 4 * ground + grain, axis=0, out=rgb[sky:], mode="clip")
        distance, houses = (part.astype(np.float32) for part in street.cast(seconds, CAMERA, left.astype(np.float64)))
        seen = np.flatnonzero(distance < MOST_DISTANT)
        distance, houses, left = distance[seen], houses[seen], left[seen]
        high, hit = CAMERA[2] - down * distance, x + distance * (cosine - left * sine)
        front = (houses[:, 0] + 0.02 < hit) & (hit < houses[:, 1] - 0.02)
        kind = 2 * (houses[:, 5] * 4).astype(np.uint8) + front
        panes = front & (hit % 2.4 > 0.6) & (hit % 2.4 < 1.8)
        rows, columns = np.nonzero((high > 0) & (high < houses[:, 4]))
        storey = high[rows, columns] % 3
        rgb[rows, seen[columns]] = HOUSES[np.where(panes[columns] & (storey > 1) & (storey < 2.2), 8, kind[columns])]
        return rgb


def draw_bar_code(rgb: NDArray[np.uint8], index: int) -> None:
    """Draw `index` (modulo 2^24) into an (H, W, 3) uint8 picture, at its lower edge."""
    height, width, _ = rgb.shape
    index %= 1 << INDEX_BITS
    checksum = zlib.crc32(index.to_bytes(3, "big")) & ((1 << CHECK_BITS) - 1)
    word = 1 << (CELLS - 1) | index << (CHECK_BITS + 1) | checksum << 1
    edges = np.arange(CELLS + 1) * width // CELLS
    bits = np.array([word >> (CELLS - 1 - cell) & 1 for cell in range(CELLS)], dtype=bool)
    line = np.repeat(np.where(bits, LIGHT, DARK).astype(np.uint8), np.diff(edges))
    rgb[height - height // 12 :] = line[None, :, None]


def find_pixels(thing: Thing, width: int, height: int) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom (the latter two exclusive) of an object's box in pixels; None outside the picture."""
    if thing.box2d is None:
        return None
    cx, cy, w, h = thing.box2d
    return (
        round((cx - w / 2) * width), round((cy - h / 2) * height),
        round((cx + w / 2) * width), round((cy + h / 2) * height),
    )  # fmt: skip


def make_silhouette() -> NDArray[np.uint8]:
    """Return the mask of any object over its box, (rows, columns) uint8, 255 where the object is."""
    return np.where(_make_shape(*MASK_SIZE), np.uint8(255), np.uint8(0))


def make_outline(thing: Thing, width: int, height: int) -> NDArray[np.bool_]:
    """Return the pixels of an object in its box as they are painted, (rows, columns); empty outside the picture."""
    left, top, right, bottom = find_pixels(thing, width, height) or (0, 0, 0, 0)
    return _make_shape(right - left, bottom - top)


def _make_shape(columns: int, rows: int) -> NDArray[np.bool_]:
    """Return where an object is in its box, (rows, columns)."""
    drawn = np.ones((rows, columns), dtype=np.bool_)
    top = round(CABIN[2] * rows)
    drawn[:top, : round(CABIN[0] * columns)] = drawn[:top, round(CABIN[1] * columns) :] = False
    return drawn


def make_class_picture(things: Iterable[Thing], width: int, height: int) -> NDArray[np.uint8]:
    """Return the class of every pixel, (height, width) uint8: the `label_index` of the object painted there, else 0."""
    classes = np.zeros((height, width), dtype=np.uint8)
    for thing in things:
        left, top, right, bottom = find_pixels(thing, width, height) or (0, 0, 0, 0)
        classes[top:bottom, left:right][make_outline(thing, width, height)] = thing.label_index
    return classes


def _dress(thing: Thing, height: int, width: int) -> NDArray[np.uint8]:
    """Return the rear of a car, or a person, as it fills its box, (height, width, 3)."""
    down, across = (np.arange(height)[:, None] + 0.5) / height, (np.arange(width) + 0.5) / width
    coat, dark, skin = COATS[thing.label][thing.number // 2 % 3], np.array((45, 46, 50)), np.array((196, 150, 125))
    rgb = np.broadcast_to(coat * (1.1 - 0.3 * down)[..., None], (height, width, 3)).copy()
    if thing.label == "person":
        rgb[(down < 0.2) & (across > 0)] = skin
        rgb[(down < 0.07) & (across > 0)] = dark
        rgb[(down > 0.68) & (across > 0)] = np.array((58, 62, 82))
        rgb[(down > 0.72) & (np.abs(across - 0.5) < 0.06)] = dark
    else:
        side = np.abs(across - 0.5)
        rgb[(down > 0.08) & (down < 0.44) & (across > 0.29) & (across < 0.61)] = np.array((78, 98, 118))
        rgb[(down > 0.55) & (down < 0.66) & (side > 0.38) & (side < 0.47)] = np.array((200, 45, 45))
        rgb[(down > 0.6) & (down < 0.7) & (side < 0.12)] = np.array((205, 205, 198))
        rgb[(down > 0.8) & (side < 0.5)] = dark * 1.3
        rgb[(down > 0.86) & (side > 0.3)] = dark
    return rgb.clip(42, 213).astype(np.uint8)
