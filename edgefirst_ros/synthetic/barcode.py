# SPDX-License-Identifier: Apache-2.0
"""A frame's own index, drawn into the picture as a bar code that survives video and JPEG coding."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

CELLS = 32
"""Across the lower edge, left to right: white, 24 bits of index, 6 of checksum (highest first), black."""
INDEX_BITS, CHECK_BITS = 24, 6
LIGHT, DARK = 215, 40
WEIGHTS = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def bar_height(height: int) -> int:
    """Return how many rows of a picture of `height` rows that the bar code takes, at its lower edge."""
    return height // 12


def draw_bar_code(rgb: NDArray[np.uint8], index: int) -> None:
    """Draw `index` (modulo 2^24) into an (H, W, 3) uint8 picture."""
    height, width, _ = rgb.shape
    index %= 1 << INDEX_BITS
    word = 1 << (CELLS - 1) | index << (CHECK_BITS + 1) | _checksum(index) << 1
    edges = np.arange(CELLS + 1) * width // CELLS
    bits = np.array([word >> (CELLS - 1 - cell) & 1 for cell in range(CELLS)], dtype=bool)
    line = np.repeat(np.where(bits, LIGHT, DARK).astype(np.uint8), np.diff(edges))
    rgb[height - bar_height(height) :] = line[None, :, None]


def read_bar_code(rgb: NDArray[np.uint8]) -> int | None:
    """Index drawn into an (H, W, 3) uint8 picture, or None where no whole bar code is to be read.

    The inner half of each cell is averaged; a cell that is neither clearly light nor clearly dark, or a
    checksum that does not fit (a picture put together from two), returns None.
    """
    height, width, _ = rgb.shape
    bar = bar_height(height)
    if width < CELLS or bar < 4:
        return None
    rows = rgb[height - bar + bar // 4 : height - bar // 4]
    line = rows.mean(axis=0, dtype=np.float32) @ WEIGHTS
    edges = np.arange(CELLS + 1) * width / CELLS
    inner = (edges[:-1] * 0.75 + edges[1:] * 0.25, edges[:-1] * 0.25 + edges[1:] * 0.75)
    cells = np.array([line[int(a) : max(int(b), int(a) + 1)].mean() for a, b in zip(*inner, strict=True)])
    contrast = cells[0] - cells[-1]
    above = cells - (cells[0] + cells[-1]) / 2
    if contrast < 60 or np.abs(above).min() < contrast / 4:
        return None
    word = int("".join("1" if value > 0 else "0" for value in above), 2)
    index = word >> (CHECK_BITS + 1) & ((1 << INDEX_BITS) - 1)
    return index if word >> 1 & ((1 << CHECK_BITS) - 1) == _checksum(index) else None


def _checksum(index: int) -> int:
    return zlib.crc32(index.to_bytes(3, "big")) & ((1 << CHECK_BITS) - 1)
