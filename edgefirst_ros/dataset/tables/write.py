# SPDX-License-Identifier: Apache-2.0
"""Writes rows in working types as a schema version stores them: Arrow IPC, Parquet or nested JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.storage.lock import create_anew, open_synced
from edgefirst_ros.dataset.tables.values import (
    Numbers,
    count_lengths,
    find_bounds,
    fix_lengths,
    is_valid,
    join,
    make_lists,
    make_offsets,
    make_validity,
    read_numbers,
    read_scalars,
)
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.sensors.png import decode_gray

_Corner = tuple[int, int]


def read_object_pixels(png: bytes) -> NDArray[np.bool_] | None:
    """Return the pixels of a mask that are object: more than half of the range; None if it is not a grayscale PNG."""
    values = decode_gray(png)
    return values if values is None or values.dtype == bool else values > np.iinfo(values.dtype).max // 2


def outline_png(png: bytes) -> list[list[float]]:
    """Return the rings around the object pixels of a grayscale PNG.

    Each ring is [x1, y1, x2, y2, ...], normalised to the picture. Raises DatasetError when it is not a picture.
    """
    pixels = read_object_pixels(png)
    if pixels is None:
        raise DatasetError("a mask cannot be read as PNG")
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return []
    (height, width), top, left = pixels.shape, int(rows[0]), int(columns[0])
    rings = trace_outline(pixels[top : rows[-1] + 1, left : columns[-1] + 1])  # only the part that holds the object
    return [[value for x, y in ring for value in ((left + x) / width, (top + y) / height)] for ring in rings]


def describe_lost_scores(png: bytes) -> str:
    """Describe the scores that an outline of a PNG of 8 or 16 bits does not have; empty where all are 0 or full."""
    values = decode_gray(png)
    if values is None or values.dtype == bool:
        return ""
    full = int(np.iinfo(values.dtype).max)
    lost = not np.isin(values, (0, full)).all()
    return f"mask: scores of its pixels, object is above {full // 2}, half of the range" if lost else ""


def trace_outline(mask: NDArray[np.bool_]) -> list[list[_Corner]]:
    """Return the borders of `mask` (H, W) as rings of corners (x, y) on the grid of pixel edges, exactly.

    Outer borders run clockwise as seen, holes the other way; pixels that touch at a corner only are apart.
    """
    right, left = _find_runs(mask)
    ahead, back = _find_runs(mask.T)  # x and y exchanged, and with them the sense of turning
    up, down = ({(u, v): (x, y) for (y, x), (v, u) in runs.items()} for runs in (ahead, back))
    # Where two pixels touch at a corner both ways lead on; the turn to the right stays with the same pixel.
    turns = {id(right): (down, up), id(down): (left, right), id(left): (up, down), id(up): (right, left)}
    begins = dict.fromkeys(right)
    rings = []
    while begins:
        here = next(iter(begins))
        runs, ring = right, []
        while runs is not right or here in begins:
            if runs is right:
                del begins[here]
            ring.append(here)
            here = runs[here]
            first, second = turns[id(runs)]
            runs = first if here in first else second
        rings.append(ring)
    return rings


def _find_runs(mask: NDArray[np.bool_]) -> tuple[dict[_Corner, _Corner], dict[_Corner, _Corner]]:
    """Return {start: end} of the straight horizontal borders: with the object below, and with the object above."""
    padded = np.pad(mask.astype(np.int8), 1)
    step = padded[1:, :] - padded[:-1, :]
    found = []
    for sign in (1, -1):
        edge = np.pad((step == sign).astype(np.int8), ((0, 0), (1, 1)))
        change = edge[:, 1:] - edge[:, :-1]
        rows, begins = np.nonzero(change == 1)
        ends = np.nonzero(change == -1)[1]
        # `padded` began one column earlier
        pairs = zip(rows.tolist(), (begins - 1).tolist(), (ends - 1).tolist(), strict=True)
        if sign == 1:
            found.append({(begin, row): (end, row) for row, begin, end in pairs})
        else:
            found.append({(end, row): (begin, row) for row, begin, end in pairs})
    return found[0], found[1]


Batches = Callable[[], Iterable[pa.RecordBatch]]
"""Returns the batches of rows from the beginning, each time it is called."""


def iter_even_batches(source: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows in batches of `rows`, however `source` was cut; equal rows have equal bytes."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in source:
        waiting.append(batch)
        count += batch.num_rows
        while count >= rows:
            table = pa.Table.from_batches(waiting)
            yield _copy_table(table.slice(0, rows))
            waiting = table.slice(rows).to_batches()
            count -= rows
    if count:
        yield _copy_table(pa.Table.from_batches(waiting))


def _copy_table(table: pa.Table) -> pa.RecordBatch:
    arrays = [pa.concat_arrays(column.chunks) for column in table.columns]
    return pa.record_batch([rebuild_array(array) for array in arrays], schema=table.schema)


def rebuild_array(array: pa.Array, within: Numbers | None = None) -> pa.Array:
    """Return an equal array in new buffers; `within`: Boolean, values elsewhere become null.

    Copies and slices carry along the memory under null values and next to the ends of a slice. With it the bytes of
    the file would depend on chance and on how the rows were cut. Types that no schema has are passed on.
    """
    kind, types = array.type, pa.types
    valid = is_valid(array) if within is None else is_valid(array) & within
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        return _rebuild_numbers(array, valid)
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return _rebuild_bytes(array, valid)
    if types.is_large_list(kind):
        return make_lists(count_lengths(array), rebuild_array(_rebuild_values(array)), valid, kind)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        child = array.values.slice(array.offset * size, len(array) * size)
        children = [rebuild_array(child, None if valid.all() else np.repeat(valid, size))]
        return pa.Array.from_buffers(kind, len(array), [make_validity(valid)], children=children)
    if types.is_struct(kind):
        children = [rebuild_array(child) for child in array.flatten()]
        return pa.Array.from_buffers(kind, len(array), [make_validity(valid)], children=children)
    return array


def _rebuild_numbers(array: pa.Array, valid: Numbers) -> pa.Array:
    values = read_scalars(array)
    data = np.where(valid, values, values.dtype.type(0))
    if data.dtype == bool:
        data = np.packbits(data, bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [make_validity(valid), pa.py_buffer(data)])


def _rebuild_bytes(array: pa.Array, valid: Numbers) -> pa.Array:
    there = array if _is_dense(array, valid) else array.drop_null()
    first, last = find_bounds(there)[[0, -1]].tolist()
    held = there.buffers()[2]
    data = pa.py_buffer(b"") if held is None else held.slice(first, last - first)
    sizes = np.where(valid, np.diff(find_bounds(array)), 0)
    return pa.Array.from_buffers(
        array.type, len(array), [make_validity(valid), pa.py_buffer(make_offsets(sizes)), data]
    )


def _rebuild_values(array: pa.Array) -> pa.Array:
    if not _is_dense(array, is_valid(array)):
        return array.flatten()
    first, last = find_bounds(array)[[0, -1]].tolist()
    return array.values.slice(first, last - first)


def _is_dense(array: pa.Array, valid: Numbers) -> bool:
    """True if null values have no data: then the data of the others is one piece."""
    return bool(valid.all()) or not np.diff(find_bounds(array))[~valid].any()


class Categories:
    """Values of a categorical column, in order, and the index of each."""

    def __init__(self, values: list[str]) -> None:
        self._values = pa.array(values, schema.TEXT)
        self._places = {value: place for place, value in enumerate(values)}

    def encode(self, array: pa.Array) -> pa.Array:
        """Return texts as a dictionary of all values."""
        # Look up only those of this array: Arrow would sort all of them again for each.
        own = array.dictionary_encode()
        places = pa.array([self._places[value] for value in own.dictionary.to_pylist()], pa.uint32())
        return pa.DictionaryArray.from_arrays(places.take(own.indices), self._values)


def count_columns(source: Batches, columns: Mapping[str, Column]) -> tuple[Counter[str], dict[str, Categories]]:
    """Count the values of all columns, in one pass; returns also the values of categories in order of appearance.

    `columns`: those whose categories are found; of them those that identify samples are counted without rows too.
    """
    filled = Counter({name: 0 for name, column in columns.items() if column.level == "identity"})
    values: dict[str, dict[str, None]] = {column.name: {} for column in columns.values() if column.is_category}
    for batch in source():
        filled.update({name: batch.num_rows - batch[name].null_count for name in batch.schema.names})
        for name, known in values.items():
            if name in batch.schema.names and batch[name].null_count < batch.num_rows:
                known.update(dict.fromkeys(batch[name].unique().drop_null().to_pylist()))
    return filled, {name: Categories(list(known)) for name, known in values.items()}


def choose_columns(filled: Counter[str], columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return those of `columns` that are written: the filled ones, and those that identify samples."""
    outlined = "mask" in columns and columns["mask"].type == schema.MASK_AS_POLYGON and filled["polygon"]
    return {
        name: column
        for name, column in columns.items()
        if filled[name] or (column.level == "identity" and name in filled) or (name == "mask" and outlined)
    }


def store_column(batch: pa.RecordBatch, column: Column, categories: Mapping[str, Categories], version: str) -> pa.Array:
    """Return a column as the version stores it."""
    if column.name == "mask" and column.type == schema.MASK_AS_POLYGON:
        return join(_outline_batch(batch))
    values = batch[column.name]
    if column.is_category:
        return categories[column.name].encode(values)
    if column.name == "pose" and schema.get_pose_order(version)[0] == "roll":
        return fix_lengths(read_numbers(values)[:, ::-1], is_valid(values), column.type)
    return values if values.type == column.type else values.cast(column.type)


def _outline_batch(batch: pa.RecordBatch) -> pa.Array:
    """Return the polygons of a batch, and without any the outlines of the masks."""
    there = batch.schema.names
    polygons = batch["polygon"] if "polygon" in there else pa.nulls(batch.num_rows, schema.POLYGON)
    if "mask" not in there:
        return polygons
    wanted = is_valid(batch["mask"]) & ~is_valid(polygons)
    if not wanted.any():
        return polygons
    masks = batch["mask"].filter(pa.array(wanted)).to_pylist()
    outlines = pa.array([outline_png(mask) for mask in masks], schema.POLYGON)
    index = np.where(wanted, len(polygons) + np.cumsum(wanted) - 1, np.arange(len(polygons)))
    return pa.concat_arrays([polygons, outlines]).take(pa.array(index))


ROWS = {".arrow": 1024, ".parquet": 1 << 14, ".json": 1 << 13}
"""Rows of a batch; fixed, so that equal rows have equal bytes."""


def open_writer(file: BinaryIO, target: pa.Schema, *, parquet: bool) -> Any:
    """Return a writer of batches, of an Arrow IPC file or of Parquet."""
    if not parquet:
        return pa.ipc.new_file(file, target)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(file, target, compression="zstd")


def write_rows(
    rows: Batches,
    file: BinaryIO,
    form: str,
    columns: Mapping[str, Column],
    categories: Mapping[str, Categories],
    metadata: Mapping[str, str],
    version: str,
) -> int:
    """Write rows in working types to an open file; returns their number.

    `columns` are those of the version that are written, `categories` the values of each that is one. Equal rows have
    equal bytes.
    """
    target = schema.make_arrow_schema(dict(columns)).with_metadata(dict(metadata) or None)
    writer: Any
    if form == ".json":
        from edgefirst_ros.dataset.tables.json_write import NestedWriter

        writer = NestedWriter(file, columns, metadata, version)
    else:
        writer = open_writer(file, target, parquet=form == ".parquet")
    count = 0
    try:
        for batch in iter_even_batches(rows(), ROWS[form]):
            if form != ".json":
                arrays = [store_column(batch, column, categories, version) for column in columns.values()]
                writer.write_batch(pa.record_batch(arrays, schema=target))
            else:
                writer.write_batch(batch)
            count += batch.num_rows
    finally:
        writer.close()
    return count


GROUPING = "grouping"
"""Key of the description of an unfinished dataset: its group rule."""


def seal_annotations(
    journal: Batches,
    out: Path,
    version: str = schema.DEFAULT_VERSION,
    labels: Sequence[str] | None = None,
    category_metadata: Mapping[str, object] | None = None,
    stated: Mapping[str, str | None] = MappingProxyType({}),
) -> int:
    """Write NAME.arrow in a schema version from an annotation journal; returns the rows.

    Columns without a value are dropped, and metadata about them. `labels`: names by `label_index`; `stated`: values
    of further metadata, None for a key that stays out. Raises DatasetError when it cannot be written, KeyError for a
    version that cannot be.
    """
    if version not in schema.WRITABLE:
        raise KeyError(version)
    known = schema.list_columns(version)
    first = next(iter(journal()), None)
    if first is not None and {"timing"} <= known.keys() & set(first.schema.names):
        known["timing"] = known["timing"]._replace(type=first.schema.field("timing").type)
    filled, categories = count_columns(journal, known)
    columns = choose_columns(filled, known)
    metadata: dict[str, str] = {}
    if schema.has_metadata(version):
        given = {
            "schema_version": version,
            "category_metadata": None if category_metadata is None else encode_json(category_metadata),
            "labels": None if labels is None else encode_json(list(labels)),
            **stated,
        }
        metadata = schema.order_metadata(version, given, columns)
    with open_synced(create_anew(out), out) as file:
        return write_rows(journal, file, ".arrow", columns, categories, metadata, version)


def seal_frames(journal: Batches, out: Path, columns: dict[str, Column], metadata: Mapping[str, object]) -> int:
    """Write NAME.frames.arrow from a journal, with `columns` and `metadata` (plain objects, as JSON).

    All columns but those of the pose are written, filled or not. Returns the rows. Raises DatasetError when it cannot
    be written or a value has no JSON form.
    """
    filled, _ = count_columns(journal, {})
    columns = {name: column for name, column in columns.items() if name not in schema.POSE_COLUMNS or filled[name]}
    texts = {key: encode_json(value) for key, value in metadata.items()}
    with open_synced(create_anew(out), out) as file:
        return write_rows(journal, file, ".arrow", columns, {}, texts, "")


def encode_json(value: object) -> str:
    """Return `value` as JSON in UTF-8; numbers that are not finite become null, mappings keep their order."""
    with explain_errors("metadata cannot be stored as JSON", TypeError, ValueError, RecursionError):
        text = json.dumps(_convert_plain(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate: JSON's own escape


def _convert_plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _convert_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_convert_plain(item) for item in value]
    return value
