# SPDX-License-Identifier: Apache-2.0
"""Values of annotations that break a rule and can be put right without guessing, a column at a time.

Every function returns the column, in the type that it had, and how many of its values it changed. Values that break no
rule stay as they are, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.forms.variants import brought_to, decoded, is_list
from edgefirst_ros.dataset.rings import is_valid, join, lengths, split, without_broken
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sensors.picture_file import check_png

NOISE = 1e-6
"""How far rounding may take a score out of 0..1: eight steps of a Float32 at 1."""

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


def rings(array: pa.Array) -> tuple[pa.Array, int]:
    """Drop rings that are odd, under three points or not finite; a polygon that loses all of them becomes null."""
    separated = not is_list(array.type.value_type)
    polygons = split(brought_to(array, schema.MASK_AS_POLYGON)) if separated else brought_to(array, schema.POLYGON)
    whole, broken = without_broken(polygons)
    if not broken:
        return array, 0
    changed = lengths(polygons) != lengths(whole)
    both = pa.concat_arrays([array, (join(whole) if separated else whole).cast(array.type)])
    return both.take(pa.array(np.arange(len(array)) + len(array) * changed)), broken


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
    bad = np.array([value.is_valid and not _is_png(value.as_py()) for value in array], bool)
    return nulled(array, bad), int(bad.sum())


def label_indices(array: pa.Array, label: pa.Array, labels: list[str]) -> tuple[pa.Array, int]:
    """Give labels that are listed once the index that they have in the list; a null stays null."""
    places = {name: labels.index(name) for name in labels if labels.count(name) == 1}
    text = decoded(label) if pa.types.is_dictionary(label.type) else label
    known = pc.index_in(text.cast(schema.TEXT), value_set=pa.array(list(places), schema.TEXT))
    wanted = np.array([*places.values(), -1], np.int64)[pc.fill_null(known, -1).to_numpy(zero_copy_only=False)]
    found: NDArray[Any] = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    valid = is_valid(array)
    wrong = valid & (wanted >= 0) & (found != wanted.astype(found.dtype))
    if not wrong.any():
        return array, 0
    return pa.array(np.where(wrong, wanted.astype(found.dtype), found), array.type, mask=~valid), int(wrong.sum())


def _is_png(data: bytes) -> bool:
    try:
        check_png(data)
    except EdgeFirstError:
        return False
    return True
