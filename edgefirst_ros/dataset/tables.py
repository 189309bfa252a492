# SPDX-License-Identifier: Apache-2.0
"""Tables: the Arrow files that journals are sealed to."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.claim import NEW_FILE, reporting
from edgefirst_ros.dataset.outline import outline_of_png
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.errors import DatasetError

Batches = Callable[[], Iterable[pa.RecordBatch]]
"""Gives the batches of a journal, as often as it is called."""

ROWS_PER_BATCH = 1024  # of a sealed file; fixed, so that equal rows give equal bytes


def seal_annotations(
    journal: Batches,
    out: Path,
    version: str = schema.DEFAULT_VERSION,
    labels: Sequence[str] | None = None,
    category_metadata: Mapping[str, object] | None = None,
) -> int:
    """Write NAME.arrow in a schema version from an annotation journal; returns the rows.

    Columns that nobody filled are left out, and metadata about them. `labels`: names by `label_index`.
    Raises DatasetError when it cannot be written, KeyError for a version that cannot be.
    """
    if version not in schema.WRITABLE:
        raise KeyError(version)
    filled, categories = _survey(journal, version)
    columns = {name: column for name, column in schema.columns(version).items() if name in filled}
    metadata: dict[str, str] = {}
    if schema.has_metadata(version):
        given = {
            "schema_version": version,
            "category_metadata": None if category_metadata is None else json_text(category_metadata),
            "labels": None if labels is None else json_text(list(labels)),
        }
        for key in schema.METADATA:
            value = key.written if key.column is None or key.column in columns else None
            value = given.get(key.name, value)
            if value is not None:
                metadata[key.name] = value
    return _seal(journal, out, columns, categories, metadata, version)


def seal_frames(journal: Batches, out: Path, columns: dict[str, Column], metadata: Mapping[str, object]) -> int:
    """Write NAME.frames.arrow from a journal, with all `columns` and `metadata` (plain objects, as JSON).

    Returns the rows. Raises DatasetError when it cannot be written or a value has no JSON form.
    """
    return _seal(journal, out, columns, {}, {key: json_text(value) for key, value in metadata.items()}, "")


def json_text(value: object) -> str:
    """Return `value` as JSON in UTF-8; numbers that are not finite become null, mappings keep their order."""
    try:
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DatasetError(f"metadata cannot be stored as JSON: {error}") from error
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate: JSON's own escape


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _survey(journal: Batches, version: str) -> tuple[set[str], dict[str, pa.Array]]:
    """Return the columns that are filled, and the values of each category in order of appearance."""
    columns = schema.columns(version)
    filled = {column.name for column in columns.values() if column.level == "identity"}
    values: dict[str, dict[str, None]] = {column.name: {} for column in columns.values() if column.is_category}
    for batch in journal():
        filled |= {name for name in batch.schema.names if batch[name].null_count < batch.num_rows}
        for name, known in values.items():
            known.update(dict.fromkeys(pc.unique(batch[name]).drop_null().to_pylist()))
    if version < "2026.04" and "polygon" in filled:
        filled.add("mask")
    return filled, {name: pa.array(list(known), schema.TEXT) for name, known in values.items()}


def _seal(
    journal: Batches,
    out: Path,
    columns: dict[str, Column],
    categories: Mapping[str, pa.Array],
    metadata: Mapping[str, str],
    version: str,
) -> int:
    target = schema.arrow_schema(columns).with_metadata(dict(metadata) or None)
    rows = 0
    with reporting(out, "write"):
        out.unlink(missing_ok=True)
        fd = os.open(out, NEW_FILE, 0o644)
        with open(fd, "wb", buffering=1 << 20) as file:
            with pa.ipc.new_file(file, target) as writer:
                for batch in _even_batches(journal):
                    arrays = [_stored(batch, column, categories, version) for column in columns.values()]
                    writer.write_batch(pa.record_batch(arrays, schema=target))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
    return rows


def _even_batches(journal: Batches) -> Iterator[pa.RecordBatch]:
    """Yield all rows in batches of ROWS_PER_BATCH, however the journals were flushed."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in journal():
        waiting.append(batch)
        count += batch.num_rows
        while count >= ROWS_PER_BATCH:
            table = pa.Table.from_batches(waiting)
            yield _fresh(table.slice(0, ROWS_PER_BATCH))
            waiting = table.slice(ROWS_PER_BATCH).to_batches()
            count -= ROWS_PER_BATCH
    if count:
        yield _fresh(pa.Table.from_batches(waiting))


def _fresh(table: pa.Table) -> pa.RecordBatch:
    """Build the rows anew, value by value.

    Copies and slices carry along what lies in memory under null values and beside the ends of a slice, and with it the
    bytes of the file would depend on chance and on how the journal was cut.
    """
    columns = [pa.array(column.to_pylist(), column.type) for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def _stored(batch: pa.RecordBatch, column: Column, categories: Mapping[str, pa.Array], version: str) -> pa.Array:
    """Return a column of the journal in the form of the version."""
    if column.name == "mask" and column.type == schema.MASK_AS_POLYGON:
        both = zip(batch["polygon"].to_pylist(), batch["mask"].to_pylist(), strict=True)
        return pa.array([_separated(polygon, mask) for polygon, mask in both], column.type)
    values = batch[column.name]
    if column.is_category:
        known = categories[column.name]
        return pa.DictionaryArray.from_arrays(pc.index_in(values, known).cast(pa.uint32()), known)
    if column.name == "pose" and schema.pose_order(version)[0] == "roll":
        return pa.array([pose and pose[::-1] for pose in values.to_pylist()], column.type)
    return values if values.type == column.type else values.cast(column.type)


def _separated(polygon: list[list[float]] | None, mask: bytes | None) -> list[float] | None:
    """Return the rings of a polygon, or else of a mask, with NaN between them.

    Source: EdgeFirst Dataset Format, "Mask".
    """
    if polygon is None:
        if mask is None:
            return None
        polygon = outline_of_png(mask)
    joined: list[float] = []
    for ring in polygon:
        joined += [math.nan, *ring] if joined else ring
    return joined
