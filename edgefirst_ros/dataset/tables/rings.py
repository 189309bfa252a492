# SPDX-License-Identifier: Apache-2.0
"""Polygons of whole columns: rings as lists, and as one list with NaN between them; vectorised, not row by row.

Source: EdgeFirst Annotation Schema 2026.04, "Geometry: Polygon"; EdgeFirst Dataset Format, "Mask".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema

SHORTEST = 6
"""Values of the shortest ring: three points."""

Numbers = NDArray[Any]


def validity(valid: Numbers) -> pa.Buffer | None:
    """Return the validity bitmap; None if nothing is null."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def is_valid(array: pa.Array) -> Numbers:
    """Return a Boolean array, True where a value is not null."""
    valid: Numbers = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return valid


def lengths(array: pa.Array) -> Numbers:
    """Return the length of each list; 0 for null."""
    found: Numbers = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def offsets(counts: Numbers) -> Numbers:
    """Where each of consecutive stretches begins, and the last ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def lists(counts: Numbers, child: pa.Array, valid: Numbers | None = None, kind: pa.DataType | None = None) -> pa.Array:
    """Lists of `counts` values of `child` each, null where not `valid`."""
    bitmap = None if valid is None else validity(valid)
    buffers = [bitmap, pa.py_buffer(offsets(counts))]
    return pa.Array.from_buffers(kind or pa.large_list(child.type), len(counts), buffers, children=[child])


def split(masks: pa.Array) -> pa.Array:
    """Polygons (lists of rings) of masks that are lists of coordinates with NaN between rings."""
    counts = lengths(masks)
    values = pc.fill_null(pc.list_flatten(masks), np.nan).to_numpy(zero_copy_only=False)
    kept = ~np.isnan(values)
    broken = np.concatenate((np.ones(1, bool), ~kept[:-1]))[: len(values)]
    broken[offsets(counts)[:-1][counts > 0]] = True
    begins = kept & broken
    ring = np.cumsum(begins) - 1
    rings = lists(np.bincount(ring[kept], minlength=int(begins.sum())), pa.array(values[kept], pa.float32()))
    rows = np.repeat(np.arange(len(masks)), counts)
    return lists(np.bincount(rows[begins], minlength=len(masks)), rings, is_valid(masks))


def join(polygons: pa.Array) -> pa.Array:
    """Return polygons as one list of coordinates a row, with NaN between rings: the inverse of `split`."""
    counts = lengths(polygons)
    rings = pc.list_flatten(polygons)
    sizes = lengths(rings)
    leads = np.ones(len(sizes), np.int64)  # a NaN goes before every ring but the first of a row
    leads[offsets(counts)[:-1][counts > 0]] = 0
    ends = np.cumsum(sizes + leads)
    joined = np.full(int(ends[-1]) if len(ends) else 0, np.nan, np.float32)
    values = pc.list_flatten(rings).to_numpy(zero_copy_only=False)
    joined[np.repeat(ends - sizes - offsets(sizes)[:-1], sizes) + np.arange(len(values))] = values
    row = offsets(counts)
    total = offsets(sizes + leads)
    return lists(np.diff(total[row]), pa.array(joined), is_valid(polygons), schema.MASK_AS_POLYGON)


def without_broken(polygons: pa.Array) -> tuple[pa.Array, int]:
    """Polygons without the rings that are none (odd, under three points, not finite), and how many those were.

    A polygon that loses all its rings becomes null.
    """
    counts = lengths(polygons)
    rings = pc.list_flatten(polygons)
    sizes = lengths(rings)
    values = pc.fill_null(pc.list_flatten(rings), np.nan).to_numpy(zero_copy_only=False)
    of_ring = np.repeat(np.arange(len(sizes)), sizes)
    bad = np.bincount(of_ring[~np.isfinite(values)], minlength=len(sizes))
    good = (sizes % 2 == 0) & (sizes >= SHORTEST) & (bad == 0)
    if good.all():
        return polygons, 0
    left = np.bincount(np.repeat(np.arange(len(counts)), counts)[good], minlength=len(counts))
    kept = lists(sizes[good], pa.array(values[good[of_ring]], pa.float32()))
    return lists(left, kept, is_valid(polygons) & ((left > 0) | (counts == 0))), int((~good).sum())


def separated(values: Iterable[float | None]) -> list[list[float]]:
    """Rings of a polygon of 2025.10: x, y, x, y, with NaN between rings."""
    found: list[list[float]] = [[]]
    for value in values:
        if value is None or math.isnan(value):
            found.append([])
        else:
            found[-1].append(value)
    return [ring for ring in found if ring]
