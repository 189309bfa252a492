# SPDX-License-Identifier: Apache-2.0
"""Batches of equal size whose bytes depend on their values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from edgefirst_ros.dataset.tables.rings import (
    Numbers,
    bits,
    bounds,
    is_valid,
    lengths,
    lists,
    numpy_type,
    offsets,
    validity,
)

Batches = Callable[[], Iterable[pa.RecordBatch]]
"""Returns the batches of rows from the beginning, each time it is called."""


def even_batches(source: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows in batches of `rows`, however `source` was cut; equal rows give equal bytes."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in source:
        waiting.append(batch)
        count += batch.num_rows
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield _fresh(table.slice(0, rows))
            waiting = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield _fresh(pa.Table.from_batches(waiting))


def _fresh(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.concat_arrays(column.chunks) for column in table.columns]
    return pa.record_batch([rebuilt(array) for array in arrays], schema=table.schema)


def rebuilt(array: pa.Array, within: Numbers | None = None) -> pa.Array:
    """Return an equal array in new buffers; `within`: Boolean, what lies elsewhere becomes null.

    Copies and slices carry along what lies in memory under null values and beside the ends of a slice, and with it the
    bytes of the file would depend on chance and on how the rows were cut. Types that no schema has are passed on.
    """
    kind, types = array.type, pa.types
    valid = is_valid(array) if within is None else is_valid(array) & within
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return _numbers(array, valid)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _bytes(array, valid)
    if types.is_large_list(kind):
        return lists(lengths(array), rebuilt(_values(array)), valid, kind)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        child = array.values.slice(array.offset * size, len(array) * size)
        children = [rebuilt(child, None if valid.all() else np.repeat(valid, size))]
        return pa.Array.from_buffers(kind, len(array), [validity(valid)], children=children)
    if types.is_struct(kind):
        children = [rebuilt(child) for child in array.flatten()]
        return pa.Array.from_buffers(kind, len(array), [validity(valid)], children=children)
    return array


def _numbers(array: pa.Array, valid: Numbers) -> pa.Array:
    data = array.buffers()[1]
    if not len(array):  # there may be no data
        data = b""
    elif pa.types.is_boolean(array.type):
        data = np.packbits(bits(data, array.offset, len(array)) & valid, bitorder="little")
    else:
        kind = numpy_type(array.type)
        data = np.where(valid, np.frombuffer(data, kind, len(array), array.offset * kind.itemsize), kind.type(0))
    return pa.Array.from_buffers(array.type, len(array), [validity(valid), pa.py_buffer(data)])


def _bytes(array: pa.Array, valid: Numbers) -> pa.Array:
    there = array if _is_dense(array, valid) else array.drop_null()
    first, last = bounds(there)[[0, -1]].tolist()
    held = there.buffers()[2]
    data = pa.py_buffer(b"") if held is None else held.slice(first, last - first)
    sizes = np.where(valid, np.diff(bounds(array)), 0)
    return pa.Array.from_buffers(array.type, len(array), [validity(valid), pa.py_buffer(offsets(sizes)), data])


def _values(array: pa.Array) -> pa.Array:
    """Return the values of all lists, one after the other."""
    if not _is_dense(array, is_valid(array)):
        return array.flatten()
    first, last = bounds(array)[[0, -1]].tolist()
    return array.values.slice(first, last - first)


def _is_dense(array: pa.Array, valid: Numbers) -> bool:
    """True if nothing lies under null values: then what the others hold is one piece."""
    return bool(valid.all()) or not np.diff(bounds(array))[~valid].any()
