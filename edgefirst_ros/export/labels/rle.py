# SPDX-License-Identifier: Apache-2.0
"""Masks as runs, column by column, zeros first: the RLE of COCO, plain and packed as text.

Source: pycocotools, common/maskApi.c (rleEncode, rleFrString).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LARGEST = 1 << 40
"""No run is as long; numbers beyond are rejected while they are read."""


def runs_of(mask: NDArray[np.bool_]) -> list[int]:
    """Return the lengths of the runs of a mask (height, width)."""
    flat = np.ascontiguousarray(mask.T).reshape(-1)
    turns = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs: list[int] = np.diff(np.concatenate(([0], turns, [len(flat)]))).tolist()
    return [0, *runs] if len(flat) and flat[0] else runs


def mask_of(runs: Sequence[int], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask (height, width) of runs; `size` is width and height. Raises ValueError where they do not fit."""
    width, height = size
    counts = np.asarray(runs)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise ValueError("runs are not a list of lengths")
    if int(counts.sum()) != width * height or (counts > width * height).any():
        raise ValueError(f"runs of {int(counts.sum())} pixels for {width} x {height}")
    values = np.zeros(len(counts), np.bool_)
    values[1::2] = True
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)


def unpacked(text: str) -> list[int]:
    """Return the runs in the text that COCO packs them into. Raises ValueError where it is none."""
    found: list[int] = []
    number = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64:
            raise ValueError(f"{character!r} does not come in packed runs")
        number |= (code & 0x1F) << shift
        shift += 5
        if shift > 60:
            raise ValueError("a run is too long")
        if not code & 0x20:
            if code & 0x10:
                number -= 1 << shift
            if len(found) > 2:
                number += found[-2]
            if not 0 <= number < LARGEST:
                raise ValueError("a run is not a length")
            found.append(number)
            number = shift = 0
    if shift:
        raise ValueError("packed runs end within a run")
    return found
