# SPDX-License-Identifier: Apache-2.0
"""Batches of equal size whose bytes depend on their values alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset.tables.rings import is_valid, lengths, lists, offsets, validity

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


def rebuilt(array: pa.Array) -> pa.Array:
    """Return an equal array in new buffers.

    Copies and slices carry along what lies in memory under null values and beside the ends of a slice, and with it the
    bytes of the file would depend on chance and on how the rows were cut. Types that no schema has are passed on.
    """
    kind, types = array.type, pa.types
    valid = is_valid(array)
    if types.is_boolean(kind):
        bits = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
        data = pa.py_buffer(np.packbits(bits, bitorder="little"))
        return pa.Array.from_buffers(kind, len(array), [validity(valid), data])
    if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        numbers = np.ascontiguousarray(pc.fill_null(array, 0).to_numpy(zero_copy_only=False))
        return pa.Array.from_buffers(kind, len(array), [validity(valid), pa.py_buffer(numbers)])
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _bytes(array, valid)
    if types.is_large_list(kind):
        return lists(lengths(array), rebuilt(pc.list_flatten(array)), valid, kind)
    if types.is_fixed_size_list(kind):
        return _arrays(array, valid)
    if types.is_struct(kind):
        children = [rebuilt(child) for child in array.flatten()]
        return pa.Array.from_buffers(kind, len(array), [validity(valid)], children=children)
    return array


def _bytes(array: pa.Array, valid: np.ndarray) -> pa.Array:
    sizes = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    there = array.drop_null() if array.null_count else array
    _, ends, data = there.buffers()
    bounds = np.frombuffer(ends, np.int64, len(there) + 1, there.offset * 8) if len(there) else [0, 0]
    data = pa.py_buffer(b"") if data is None else data.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    return pa.Array.from_buffers(array.type, len(array), [validity(valid), pa.py_buffer(offsets(sizes)), data])


def _arrays(array: pa.Array, valid: np.ndarray) -> pa.Array:
    size = array.type.list_size
    flat = pc.list_flatten(array)
    if not valid.all():
        there = np.repeat(valid, size)
        places = pa.py_buffer(np.cumsum(there, dtype=np.int64) - 1)  # pa.array of numpy would load numpy.ma
        flat = flat.take(pa.Array.from_buffers(pa.int64(), len(there), [validity(there), places]))
    return pa.Array.from_buffers(array.type, len(array), [validity(valid)], children=[rebuilt(flat)])
