# SPDX-License-Identifier: Apache-2.0
"""Converts values of every type that other tools write to the types of the schema, a column at a time.

Source: EdgeFirst Annotation Schema 2026.04, with "File-Level Metadata" (box2d_format, box2d_normalized).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.errors import DatasetError, explain_errors

SHORTEST = 6
"""Values of the shortest ring: three points."""

Numbers = NDArray[Any]
MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""Errors of Arrow for values of Python that do not fit a type."""


def find_numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy type of the values of an Arrow type; of times, the integer that holds them."""
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    return np.dtype(f"{letter}{kind.bit_width // 8}")


def make_validity(valid: Numbers) -> pa.Buffer | None:
    """Return the validity bitmap; None if all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def is_valid(array: pa.Array) -> Numbers:
    """Return a Boolean array, True where a value is not null; without `pyarrow.compute`, which takes 20 ms to load."""
    bitmap = array.buffers()[0]
    if bitmap is None or not array.null_count:
        return np.full(len(array), not pa.types.is_null(array.type))
    return read_bits(bitmap, array.offset, len(array))


def read_bits(bitmap: pa.Buffer, offset: int, count: int) -> Numbers:
    """Return `count` bits of a bitmap from `offset` on as a Boolean array."""
    first, skipped = divmod(offset, 8)
    found = np.unpackbits(np.frombuffer(bitmap, np.uint8, offset=first), bitorder="little", count=skipped + count)
    return found[skipped:].view(bool)


def read_scalars(array: pa.Array) -> Numbers:
    """Return the values of an array of Booleans, integers or floats; 0 for null."""
    kind = np.dtype(bool) if pa.types.is_boolean(array.type) else find_numpy_type(array.type)
    if not len(array):  # it may have no buffer
        return np.zeros(0, kind)
    held, size = array.buffers()[1], len(array)
    values = read_bits(held, array.offset, size) if kind.kind == "b" else np.frombuffer(held, kind, array.offset + size)
    return np.where(is_valid(array), values[-size:], kind.type(0))


def count_lengths(array: pa.Array) -> Numbers:
    """Return the length of each list; 0 for null."""
    kind = array.type
    sizes = kind.list_size if pa.types.is_fixed_size_list(kind) else np.diff(find_bounds(array))
    return np.where(is_valid(array), sizes, 0).astype(np.int64)


def find_bounds(array: pa.Array) -> Numbers:
    """Return where each list, text or binary value begins in what holds all of them, and the last one ends."""
    kind, types = array.type, pa.types
    wide = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    number = np.dtype(np.int64 if wide else np.int32)
    if not len(array):
        return np.zeros(1, number)
    return np.frombuffer(array.buffers()[1], number, len(array) + 1, array.offset * number.itemsize)


def make_offsets(counts: Numbers) -> Numbers:
    """Where each of consecutive stretches begins, and the last ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def make_lists(
    counts: Numbers, child: pa.Array, valid: Numbers | None = None, kind: pa.DataType | None = None
) -> pa.Array:
    """Lists of `counts` values of `child` each, null where not `valid`."""
    bitmap = None if valid is None else make_validity(valid)
    buffers = [bitmap, pa.py_buffer(make_offsets(counts))]
    return pa.Array.from_buffers(kind or pa.large_list(child.type), len(counts), buffers, children=[child])


def split(masks: pa.Array) -> pa.Array:
    """Polygons (lists of rings) of masks that are lists of coordinates with NaN between rings."""
    counts = count_lengths(masks)
    values = masks.flatten().fill_null(np.nan).to_numpy(zero_copy_only=False)
    kept = ~np.isnan(values)
    broken = np.concatenate((np.ones(1, bool), ~kept[:-1]))[: len(values)]
    broken[make_offsets(counts)[:-1][counts > 0]] = True
    begins = kept & broken
    ring = np.cumsum(begins) - 1
    rings = make_lists(np.bincount(ring[kept], minlength=int(begins.sum())), pa.array(values[kept], pa.float32()))
    rows = np.repeat(np.arange(len(masks)), counts)
    return make_lists(np.bincount(rows[begins], minlength=len(masks)), rings, is_valid(masks))


def join(polygons: pa.Array) -> pa.Array:
    """Return polygons as one list of coordinates a row, with NaN between rings: the inverse of `split`."""
    counts = count_lengths(polygons)
    rings = polygons.flatten()
    sizes = count_lengths(rings)
    leads = np.ones(len(sizes), np.int64)  # a NaN precedes every ring except the first of a row
    leads[make_offsets(counts)[:-1][counts > 0]] = 0
    ends = np.cumsum(sizes + leads)
    joined = np.full(int(ends[-1]) if len(ends) else 0, np.nan, np.float32)
    values = rings.flatten().to_numpy(zero_copy_only=False)
    joined[np.repeat(ends - sizes - make_offsets(sizes)[:-1], sizes) + np.arange(len(values))] = values
    row = make_offsets(counts)
    total = make_offsets(sizes + leads)
    return make_lists(np.diff(total[row]), pa.array(joined), is_valid(polygons), schema.MASK_AS_POLYGON)


def strip_broken_rings(polygons: pa.Array) -> tuple[pa.Array, int]:
    """Return polygons without broken rings (odd, under three points, not finite), and how many those were.

    A polygon that loses all its rings becomes null.
    """
    counts = count_lengths(polygons)
    rings = polygons.flatten()
    sizes = count_lengths(rings)
    values = rings.flatten().fill_null(np.nan).to_numpy(zero_copy_only=False)
    of_ring = np.repeat(np.arange(len(sizes)), sizes)
    bad = np.bincount(of_ring[~np.isfinite(values)], minlength=len(sizes))
    good = (sizes % 2 == 0) & (sizes >= SHORTEST) & (bad == 0)
    if good.all():
        return polygons, 0
    left = np.bincount(np.repeat(np.arange(len(counts)), counts)[good], minlength=len(counts))
    kept = make_lists(sizes[good], pa.array(values[good[of_ring]], pa.float32()))
    return make_lists(left, kept, is_valid(polygons) & ((left > 0) | (counts == 0))), int((~good).sum())


def cast_values(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return values as `wanted` (one of the schema's, but for arrays). Raises DatasetError for types that do not fit.

    Text of any kind, integers and floats of any width (numbers out of range are rejected), lists of any kind.
    """
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return pa.nulls(len(array), wanted)
    if kind == wanted:
        return array
    if types.is_dictionary(kind):
        return cast_values(decode_dictionary(array), wanted)
    try:
        if wanted == schema.TEXT and (types.is_string(kind) or types.is_string_view(kind)):
            return array.cast(wanted)
        binary = types.is_binary(kind) or types.is_binary_view(kind) or types.is_fixed_size_binary(kind)
        if types.is_large_binary(wanted) and binary:
            return array.cast(wanted)
        if (types.is_integer(wanted) or types.is_boolean(wanted)) and types.is_integer(kind):
            return array.cast(wanted)
        if types.is_floating(wanted) and (types.is_floating(kind) or types.is_integer(kind)):
            return array.cast(wanted, safe=False)
    except pa.ArrowException as error:
        raise DatasetError(f"{error}") from error
    if types.is_large_list(wanted) and is_list(kind):
        child = cast_values(array.flatten(), wanted.value_type)
        return make_lists(count_lengths(array), child, is_valid(array), wanted)
    if types.is_struct(wanted) and types.is_struct(kind):
        return _fit_struct(array, wanted)
    raise DatasetError(f"is {kind}, must be {wanted}")


def fix_arrays(array: pa.Array, wanted: pa.DataType) -> tuple[pa.Array, int]:
    """Return values as arrays of a fixed length, and how many were invalid and became null.

    Invalid are lists of another length, with a null within, or with a number that is not finite.
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted), 0
    if not is_list(array.type):
        raise DatasetError(f"is {array.type}, must be {wanted}")
    size, there = wanted.list_size, is_valid(array)
    fits = there & (count_lengths(array) == size)
    flat = cast_values((array if fits.all() else array.filter(pa.array(fits))).flatten(), wanted.value_type)
    good = is_valid(flat)
    numbers = flat.fill_null(0).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(wanted.value_type):
        good = good & np.isfinite(numbers)
    valid = fits.copy()
    valid[fits] = good.reshape(-1, size).all(axis=1)
    placed = np.zeros((len(array), size), numbers.dtype)
    placed[fits] = numbers.reshape(-1, size)
    placed[~valid] = 0
    return fix_lengths(placed, valid, wanted), int((there & ~valid).sum())


def fix_lengths(numbers: np.ndarray, valid: np.ndarray, wanted: pa.DataType) -> pa.Array:
    """Return rows of numbers, (rows, length), as arrays of a fixed length, null where not `valid`."""
    child = pa.array(np.ascontiguousarray(numbers).reshape(-1), wanted.value_type)
    return pa.Array.from_buffers(wanted, len(valid), [make_validity(valid)], children=[child])


def drop_broken_rings(array: pa.Array) -> tuple[pa.Array, int]:
    """Return polygons, in either form and of the same type, without broken rings, and how many those were.

    Broken are rings that are odd, under three points or not finite; a polygon that loses all of them becomes null.
    Raises DatasetError for lists of something else.
    """
    separated = not is_list(array.type.value_type)
    polygons = split(cast_values(array, schema.MASK_AS_POLYGON)) if separated else cast_values(array, schema.POLYGON)
    whole, broken = strip_broken_rings(polygons)
    if not broken:
        return array, 0
    changed = count_lengths(polygons) != count_lengths(whole)
    both = pa.concat_arrays([array, (join(whole) if separated else whole).cast(array.type)])
    return both.take(pa.array(np.arange(len(array)) + len(array) * changed)), broken


def read_numbers(array: pa.Array) -> np.ndarray:
    """Return arrays of a fixed length as (rows, length); zeros for null."""
    size, valid = array.type.list_size, is_valid(array)
    flat = array.flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
    found = np.zeros((len(array), size), flat.dtype)
    found[valid] = flat
    return found


def decode_dictionary(array: pa.Array) -> pa.Array:
    """Return the values of a dictionary (polars: Categorical, Enum), also where Arrow cannot decode it itself."""
    values = array.dictionary
    if pa.types.is_string_view(values.type) or pa.types.is_string(values.type):
        values = values.cast(schema.TEXT)
    return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()


def is_list(kind: pa.DataType) -> bool:
    """True for a list or array type of any kind."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """True for a text type of any kind."""
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _fit_struct(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    children = [
        cast_values(found[field.name], field.type) if field.name in found else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    bitmap = make_validity(is_valid(array))
    return pa.Array.from_buffers(wanted, len(array), [bitmap], children=children)


def refuse_unknown(names: Iterable[str], columns: pa.Schema) -> None:
    """Raise DatasetError for a name that is not one of the columns."""
    if unknown := {*names} - {*columns.names}:
        raise DatasetError(f"this version knows no column {min(unknown)!r}")


def cast_rows(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of `wanted`: null where they do not have one, types cast.

    Raises DatasetError for a column that `wanted` does not have, and for a type or value that it cannot hold.
    """
    if batch.schema.equals(wanted):
        return batch
    refuse_unknown(batch.schema.names, wanted)
    return pa.record_batch([_fit_column(batch, field) for field in wanted], schema=wanted)


def _fit_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    values, refused = batch[field.name], 0
    if pa.types.is_struct(field.type) and pa.types.is_struct(values.type):
        for child in values.type:
            if field.type.get_field_index(child.name) < 0:
                raise DatasetError(f"this version knows no field {child.name!r} of column {field.name!r}")
    with explain_errors(f"column {field.name!r} cannot be cast", DatasetError, pa.ArrowException, ValueError):
        if pa.types.is_fixed_size_list(field.type):
            values, refused = fix_arrays(values, field.type)
        else:
            values = cast_values(values, field.type)
    if refused:
        raise DatasetError(f"column {field.name!r} cannot be cast: {refused} values are not {field.type}")
    return values


LAYOUTS = ("cxcywh", "xyxy", "ltwh")
"""Centre and size; two corners; left, top and size."""


def convert_layout(boxes: NDArray[Any], found: str, wanted: str) -> NDArray[np.float64]:
    """Return boxes (N, 4) of layout `found` in layout `wanted`. Raises ValueError for an unknown layout."""
    first, second = np.asarray(boxes[:, :2], np.float64), np.asarray(boxes[:, 2:], np.float64)
    if found != wanted:
        left_top = {"cxcywh": first - second / 2, "xyxy": first, "ltwh": first}
        size = {"cxcywh": second, "xyxy": second - first, "ltwh": second}
        if found not in left_top:
            raise ValueError(f"{found!r} is not a box layout")
        first, second = left_top[found], size[found]
        if wanted == "cxcywh":
            first = first + second / 2
        elif wanted == "xyxy":
            second = first + second
        elif wanted != "ltwh":
            raise ValueError(f"{wanted!r} is not a box layout")
    return np.concatenate((first, second), axis=1)


class Tally:
    """`changed`: values that say the same in another way; `lost`: values that could not stay; `notes`: the rest.

    A table may be read several times: only values before `freeze` count.
    """

    def __init__(self) -> None:
        self.changed: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.notes: dict[str, None] = {}
        self._frozen = False

    def change(self, reason: str, number: int) -> None:
        """Count values that changed."""
        if number and not self._frozen:
            self.changed[reason] += number

    def lose(self, reason: str, number: int) -> None:
        """Count values that could not stay."""
        if number and not self._frozen:
            self.lost[reason] += number

    def add_note(self, text: str) -> None:
        """Add a note, once."""
        self.notes[text] = None

    def freeze(self) -> None:
        """Ignore all further counts."""
        self._frozen = True
