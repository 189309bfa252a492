# SPDX-License-Identifier: Apache-2.0
"""Long series made short enough to be drawn, without losing what sticks out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
POINTS = 1000
"""A line has at most so many points, half of them the least and half the largest of a bin."""
CELLS = 240
"""Columns of a map over time."""
PERIODS = 3
"""Least usual intervals in a bin: in shorter ones a message more or less looks like a gap."""


def thinned(x: Floats, y: Floats, points: int = POINTS) -> tuple[Floats, Floats, bool]:
    """Return the least and the largest value of each of `points`/2 bins, in order, and whether anything was left out.

    `x` rises; NaN in `y` breaks a line and is kept where a bin has nothing else.
    """
    if len(x) <= points:
        return x, y, False
    edges = np.linspace(0, len(x), points // 2 + 1).astype(int)
    kept: list[int] = []
    for start, stop in itertools.pairwise(edges):
        own = y[start:stop]
        if np.isnan(own).all():
            kept.append(int(start))
        else:
            kept += sorted({start + int(np.nanargmin(own)), start + int(np.nanargmax(own))})
    return x[kept], y[kept], True


def with_breaks(x: Sequence[Floats], y: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Join blocks to one line that is broken between them."""
    xs: list[Any] = []
    ys: list[Any] = []
    for one, other in zip(x, y, strict=True):
        if len(one):
            xs += [one, one[-1:]]
            ys += [other, np.array([np.nan])]
    return (np.concatenate(xs), np.concatenate(ys)) if xs else (np.zeros(0), np.zeros(0))


def spread(number: int, most: int) -> NDArray[np.int64]:
    """Places spread evenly over `number` things, at most `most` of them, the first and the last among them."""
    return (
        np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(np.int64))
        if number
        else np.zeros(0, np.int64)
    )


def rate_cells(times: Floats, period: float, start: float, end: float, middles: Floats, width: float) -> Floats:
    """Return messages in percent of the usual number around `middles`, within `start` and `end`, s.

    What is counted is at least `PERIODS` wide, however narrow the cell.
    """
    width = max(width, PERIODS * period)
    low = np.clip(middles - width / 2, start, max(start, end - width))
    high = np.minimum(low + width, end)
    counted = np.searchsorted(times, high, "right") - np.searchsorted(times, low, "left")
    usual = np.maximum((high - low) / period, 1e-9)
    return 100 * np.minimum(counted / usual, 2.0)


def least_span(values: ArrayLike, span: float) -> list[float] | None:
    """Range of an axis for values that differ less than `span`, so that a steady line looks steady; else None."""
    given = np.asarray(values, float)
    given = given[np.isfinite(given)]
    if not len(given):
        return None
    low, high = float(given.min()), float(given.max())
    if high - low >= span:
        return None
    middle = (low + high) / 2
    return [middle - span / 2, middle + span / 2]


def rounded(values: ArrayLike, digits: int) -> list[float | None]:
    """Plain numbers for JSON, with None for what is none: pages stay small."""
    given = np.asarray(values, float)
    return [
        round(float(value), digits) if finite else None for value, finite in zip(given, np.isfinite(given), strict=True)
    ]
