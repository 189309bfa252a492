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
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema

SHORTEST = 6
"""Values of the shortest ring: three points."""

Numbers = NDArray[Any]


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of the values of an Arrow type; of times, the integer that holds them."""
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def validity(valid: Numbers) -> pa.Buffer | None:
    """Return the validity bitmap; None if nothing is null."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def is_valid(array: pa.Array) -> Numbers:
    """Return a Boolean array, True where a value is not null; without `pyarrow.compute`, which takes 20 ms to load."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.full(len(array), not pa.types.is_null(array.type))
    return bits(bitmap, array.offset, len(array))


def bits(bitmap: pa.Buffer, offset: int, count: int) -> Numbers:
    """Return `count` bits of a bitmap from `offset` on as a Boolean array."""
    first, skipped = divmod(offset, 8)
    found = np.unpackbits(np.frombuffer(bitmap, np.uint8, offset=first), bitorder="little", count=skipped + count)
    return found[skipped:].view(bool)


def lengths(array: pa.Array) -> Numbers:
    """Return the length of each list; 0 for null."""
    kind = array.type
    sizes = kind.list_size if pa.types.is_fixed_size_list(kind) else np.diff(bounds(array))
    return np.where(is_valid(array), sizes, 0).astype(np.int64)


def bounds(array: pa.Array) -> Numbers:
    """Return where each list, text or binary value begins in what holds all of them, and the last one ends."""
    kind, types = array.type, pa.types
    wide = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    number = np.dtype(np.int64 if wide else np.int32)
    if not len(array):
        return np.zeros(1, number)
    return np.frombuffer(array.buffers()[1], number, len(array) + 1, array.offset * number.itemsize)


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
    values = masks.flatten().fill_null(np.nan).to_numpy(zero_copy_only=False)
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
    rings = polygons.flatten()
    sizes = lengths(rings)
    leads = np.ones(len(sizes), np.int64)  # a NaN goes before every ring but the first of a row
    leads[offsets(counts)[:-1][counts > 0]] = 0
    ends = np.cumsum(sizes + leads)
    joined = np.full(int(ends[-1]) if len(ends) else 0, np.nan, np.float32)
    values = rings.flatten().to_numpy(zero_copy_only=False)
    joined[np.repeat(ends - sizes - offsets(sizes)[:-1], sizes) + np.arange(len(values))] = values
    row = offsets(counts)
    total = offsets(sizes + leads)
    return lists(np.diff(total[row]), pa.array(joined), is_valid(polygons), schema.MASK_AS_POLYGON)


def strip_broken_rings(polygons: pa.Array) -> tuple[pa.Array, int]:
    """Return polygons without broken rings (odd, under three points, not finite), and how many those were.

    A polygon that loses all its rings becomes null.
    """
    counts = lengths(polygons)
    rings = polygons.flatten()
    sizes = lengths(rings)
    values = rings.flatten().fill_null(np.nan).to_numpy(zero_copy_only=False)
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
