# SPDX-License-Identifier: Apache-2.0
"""The camera's pictures, drawn: a background, the objects as silhouettes, the bar code."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.synthetic.barcode import draw_bar_code
from edgefirst_ros.synthetic.recipe import Recipe
from edgefirst_ros.synthetic.scene import COLOURS, Scene, Thing

MASK_SIZE = (40, 30)
"""Columns and rows of an object's mask over its box."""
CABIN = (0.25, 0.65, 0.5)
"""Silhouette: above this part of the height (last) only between these parts of the width, no side like another."""
SLACK = 64
"""Pixels by which the noise is larger than the picture, to be shifted from frame to frame."""
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
        rgb = self._background.copy()
        for thing in self._scene.things(self._recipe.stamp("camera", index)):
            _paint(rgb, thing)
        draw_bar_code(rgb, index)
        if self._noise is not None:
            height, width, _ = rgb.shape
            y, x = index * 29 % SLACK, index * 17 % SLACK
            rgb += self._noise[y : y + height, x : x + width]  # modulo 256, which the limits above keep exact
        return rgb


def pixels(thing: Thing, width: int, height: int) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom (the latter two exclusive) of an object's box in pixels; None outside the picture."""
    if thing.box2d is None:
        return None
    cx, cy, w, h = thing.box2d
    return (
        round((cx - w / 2) * width), round((cy - h / 2) * height),
        round((cx + w / 2) * width), round((cy + h / 2) * height),
    )  # fmt: skip


def silhouette() -> NDArray[np.uint8]:
    """Return the mask of any object over its box, (rows, columns) uint8, 255 where the object is."""
    columns, rows = MASK_SIZE
    mask = np.full((rows, columns), 255, dtype=np.uint8)
    top = round(CABIN[2] * rows)
    mask[:top, : round(CABIN[0] * columns)] = 0
    mask[:top, round(CABIN[1] * columns) :] = 0
    return mask


def outline(thing: Thing, width: int, height: int) -> NDArray[np.bool_]:
    """Return the pixels of an object in its box as they are painted, (rows, columns); none outside the picture."""
    left, top, right, bottom = pixels(thing, width, height) or (0, 0, 0, 0)
    drawn = np.ones((bottom - top, right - left), dtype=np.bool_)
    middle = round(CABIN[2] * len(drawn))
    drawn[:middle, : round(CABIN[0] * (right - left))] = False
    drawn[:middle, round(CABIN[1] * (right - left)) :] = False
    return drawn


def class_picture(things: Iterable[Thing], width: int, height: int) -> NDArray[np.uint8]:
    """Return the class of every pixel, (height, width) uint8: the `label_index` of the object painted there, else 0."""
    classes = np.zeros((height, width), dtype=np.uint8)
    for thing in things:
        left, top, right, bottom = pixels(thing, width, height) or (0, 0, 0, 0)
        classes[top:bottom, left:right][outline(thing, width, height)] = thing.label_index
    return classes


def _paint(rgb: NDArray[np.uint8], thing: Thing) -> None:
    height, width, _ = rgb.shape
    left, top, right, bottom = pixels(thing, width, height) or (0, 0, 0, 0)
    rgb[top:bottom, left:right][outline(thing, width, height)] = COLOURS[thing.label]
