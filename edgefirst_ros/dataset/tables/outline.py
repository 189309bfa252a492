# SPDX-License-Identifier: Apache-2.0
"""The outline of a raster mask as polygons, for schema versions whose masks are polygons."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError, text_of

_Corner = tuple[int, int]


def outline_of_png(png: bytes) -> list[list[float]]:
    """Return the rings around the object pixels (more than half of the range) of a grayscale PNG.

    Each ring is [x1, y1, x2, y2, ...], normalised to the picture. Raises DatasetError when it is not a picture.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            pixels = np.asarray(image.convert("I"))
            full = {"1": 255, "L": 255}.get(image.mode, 65535)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"a mask cannot be read as PNG: {text_of(error)}") from error
    height, width = pixels.shape
    rings = outline(pixels > full // 2)
    return [[value for x, y in ring for value in (x / width, y / height)] for ring in rings]


def scores_lost(png: bytes) -> str:
    """Describe the scores that an outline of a PNG of 8 or 16 bits does not have; empty where all are none or full."""
    from edgefirst_ros.sensors.png import decode_gray

    values = decode_gray(png)
    if values is None or values.dtype == bool:
        return ""
    full = int(np.iinfo(values.dtype).max)
    lost = not np.isin(values, (0, full)).all()
    return f"mask: scores of its pixels, object is above {full // 2}, half of the range" if lost else ""


def outline(mask: NDArray[np.bool_]) -> list[list[_Corner]]:
    """Return the borders of `mask` (H, W) as rings of corners (x, y) on the grid of pixel edges, exactly.

    Outer borders run clockwise as seen, holes the other way; pixels that touch at a corner only are apart.
    """
    right, left = _runs(mask)
    ahead, back = _runs(mask.T)  # x and y exchanged, and with them the sense of turning
    up, down = ({(u, v): (x, y) for (y, x), (v, u) in runs.items()} for runs in (ahead, back))
    # Where two pixels touch at a corner both ways lead on; the turn to the right stays with the same pixel.
    turns = {id(right): (down, up), id(down): (left, right), id(left): (up, down), id(up): (right, left)}
    begins = dict.fromkeys(right)
    rings = []
    while begins:
        here = next(iter(begins))
        runs, ring = right, []
        while runs is not right or here in begins:
            if runs is right:
                del begins[here]
            ring.append(here)
            here = runs[here]
            first, second = turns[id(runs)]
            runs = first if here in first else second
        rings.append(ring)
    return rings


def _runs(mask: NDArray[np.bool_]) -> tuple[dict[_Corner, _Corner], dict[_Corner, _Corner]]:
    """Return {start: end} of the straight horizontal borders: with the object below, and with the object above."""
    padded = np.pad(mask.astype(np.int8), 1)
    step = padded[1:, :] - padded[:-1, :]
    found = []
    for sign in (1, -1):
        edge = np.pad((step == sign).astype(np.int8), ((0, 0), (1, 1)))
        change = edge[:, 1:] - edge[:, :-1]
        rows, begins = np.nonzero(change == 1)
        ends = np.nonzero(change == -1)[1]
        # `padded` began one column earlier
        pairs = zip(rows.tolist(), (begins - 1).tolist(), (ends - 1).tolist(), strict=True)
        if sign == 1:
            found.append({(begin, row): (end, row) for row, begin, end in pairs})
        else:
            found.append({(end, row): (begin, row) for row, begin, end in pairs})
    return found[0], found[1]
