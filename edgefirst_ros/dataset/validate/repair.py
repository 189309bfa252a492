# SPDX-License-Identifier: Apache-2.0
"""Values of annotations that break a rule and can be put right without guessing, a column at a time.

Every function returns the column, in the type that it had, and how many of its values it changed. Values that break no
rule stay as they are, bit by bit.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.forms.variants import brought_to
from edgefirst_ros.dataset.tables.rings import is_valid, lengths
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sensors.picture_file import MAX_SIDE, PNG_SIGNATURE, check_png, png_chunk

NOISE = 1e-6
"""How far rounding may take a score out of 0..1: eight steps of a Float32 at 1."""
AT_ONCE = 1024
"""Masks that are copied at a time."""
HEAD = struct.Struct(">8sI4sII5sII4s")
"""Of a PNG whose data follow its header at once: up to the kind of the second chunk."""
TAIL = png_chunk(b"IEND", b"")

Flags = NDArray[np.bool_]


def nulled(array: pa.Array, bad: Flags) -> pa.Array:
    """Return the values with null in place of the bad ones."""
    return taken(array, pa.array(np.arange(len(array)), mask=bad)) if bad.any() else array


def taken(array: pa.Array, places: pa.Array) -> pa.Array:
    """Return the values at these places, null at a null; Arrow itself cannot do that with text and bytes as views."""
    kind, types = array.type, pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        plain = schema.TEXT if types.is_string_view(kind) else pa.large_binary()
        return array.cast(plain).take(places).cast(kind)
    return array.take(places)


def scores(array: pa.Array) -> tuple[pa.Array, int]:
    """Bring scores that rounding took out of 0..1 back to its end; others outside become null."""
    valid, values = is_valid(array), pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    outside = valid & ~((values >= 0) & (values <= 1))
    if not outside.any():
        return array, 0
    near = outside & (values >= -NOISE) & (values <= 1 + NOISE)
    kept = np.where(near, np.clip(values, 0, 1), values)
    return pa.array(kept, array.type, mask=~valid | (outside & ~near)), int(outside.sum())


def numbers(array: pa.Array, length: int) -> tuple[pa.Array, int]:
    """Make lists null that are not `length` finite numbers."""
    counts = lengths(array)
    flat = brought_to(pc.list_flatten(array), pa.float64()).to_numpy(zero_copy_only=False)  # a null is NaN
    rows = np.repeat(np.arange(len(array)), counts)
    broken = np.bincount(rows[~np.isfinite(flat)], minlength=len(array)) > 0
    bad = is_valid(array) & (broken | (counts != length))
    return nulled(array, bad), int(bad.sum())


def timings(array: pa.Array) -> tuple[pa.Array, int]:
    """Make durations null that are negative."""
    children, count = [], 0
    for child in array.flatten():
        if pa.types.is_signed_integer(child.type):
            bad = pc.fill_null(pc.less(child, 0), False).to_numpy(zero_copy_only=False)
            count += int(bad.sum())
            children.append(nulled(child, bad))
        else:
            children.append(child)
    if not count:
        return array, 0
    return pa.StructArray.from_arrays(children, fields=list(array.type), mask=pa.array(~is_valid(array))), count


def masks(array: pa.Array) -> tuple[pa.Array, int]:
    """Make masks null that are no whole PNG files."""
    bad = np.zeros(len(array), bool)
    for start in range(0, len(array), AT_ONCE):
        for number, mask in enumerate(array.slice(start, AT_ONCE).to_pylist(), start):
            bad[number] = mask is not None and not _is_png(mask)
    return nulled(array, bad), int(bad.sum())


def _is_png(data: bytes) -> bool:
    if _is_usual(data):
        return True
    try:
        check_png(data)
    except EdgeFirstError:
        return False
    return True


def _is_usual(png: bytes) -> bool:
    """True if it is a whole PNG of three chunks, as nearly all masks are: told at a tenth of the time."""
    end = len(png) - len(TAIL) - 4
    if end <= HEAD.size or not png.endswith(TAIL):
        return False
    signature, size, first, width, height, _, crc, length, second = HEAD.unpack_from(png)
    return bool(
        (signature, size, first, second) == (PNG_SIGNATURE, 13, b"IHDR", b"IDAT")
        and 0 < width <= MAX_SIDE
        and 0 < height <= MAX_SIDE
        and length == end - HEAD.size
        and zlib_ng.crc32(png[12:29]) == crc
        and zlib_ng.crc32(memoryview(png)[37:end]) == int.from_bytes(png[end : end + 4], "big")
    )
