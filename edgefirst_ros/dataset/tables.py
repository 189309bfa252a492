# SPDX-License-Identifier: Apache-2.0
"""Tables: journals that grow row by row and survive a cut, and the Arrow files they are sealed to."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.claim import NEW_FILE, reporting
from edgefirst_ros.dataset.outline import outline_of_png
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.errors import DatasetError

Row = Mapping[str, object]

ANNOTATION_JOURNAL = schema.journal_schema(schema.columns(schema.VERSIONS[-1]))
"""Columns of an annotation journal, whatever version it is sealed to; `pose` is [yaw, pitch, roll] here."""

ROWS_PER_BATCH = 1024  # of a sealed file; fixed, so that equal rows give equal bytes
_PENDING_ROWS = 256
_PENDING_BYTES = 1 << 20


class Journal:
    """Rows on their way into a table: an Arrow IPC stream with every column and plain text for categories."""

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        """Create `path` anew, replacing a leftover; the caller holds the dataset's lock."""
        self.path = path
        self.rows = 0
        self._schema = columns
        self._names = frozenset(columns.names)
        self._required = [field.name for field in columns if not field.nullable]
        self._scores = [name for name in columns.names if name.endswith("_score")]
        self._pending: list[Row] = []
        self._pending_bytes = 0
        with reporting(path, "create"):
            path.unlink(missing_ok=True)
            fd = os.open(path, NEW_FILE, 0o644)
            self._file = open(fd, "wb", buffering=1 << 16)  # noqa: SIM115
            self._stream = pa.ipc.new_stream(self._file, columns)
            self._file.flush()

    def check(self, row: Row) -> None:
        """Raise DatasetError for a row that breaks a rule of the format, before anything of its sample is written.

        Source: EdgeFirst Annotation Schema 2026.04, "Geometry: Polygon" (validity rules), "Score Columns".
        """
        if not row.keys() <= self._names:
            raise DatasetError(f"{self.path}: no such columns: {sorted(row.keys() - self._names)}")
        for name in self._required:
            if row.get(name) is None:
                raise DatasetError(f"{self.path}: a row without {name}")
        for name in self._scores:
            score = row.get(name)
            if score is not None and not (isinstance(score, Real) and 0 <= float(score) <= 1):
                raise DatasetError(f"{_place(row)}: {name} is {score!r}, must be within 0..1")
        for name in ("box2d", "box3d"):
            box = row.get(name)
            if box is not None and not all(map(math.isfinite, box)):  # type: ignore[call-overload]
                raise DatasetError(f"{_place(row)}: {name} is {list(box)}, must be finite")  # type: ignore[call-overload]
        rings = row.get("polygon")
        for ring in () if rings is None else rings:  # type: ignore[attr-defined]
            if len(ring) % 2 or len(ring) < 6:
                raise DatasetError(f"{_place(row)}: a polygon ring of {len(ring)} values, must be 3 or more pairs")

    def append(self, row: Row) -> None:
        """Add a row; a column that is absent is null. Raises DatasetError as `check` does."""
        self.check(row)
        self._pending.append(row)
        mask = row.get("mask")
        self._pending_bytes += len(mask) if isinstance(mask, bytes) else 0
        if len(self._pending) >= _PENDING_ROWS or self._pending_bytes >= _PENDING_BYTES:
            self._write()

    def _write(self) -> None:
        rows, self._pending, self._pending_bytes = self._pending, [], 0
        if not rows:
            return
        arrays = []
        for field in self._schema:
            try:
                arrays.append(pa.array([row.get(field.name) for row in rows], type=field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise DatasetError(f"{self.path}: {field.name} does not fit {field.type}: {error}") from error
        with reporting(self.path, "write"):
            self._stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        self.rows += len(rows)

    def flush(self, sync: bool) -> None:
        """Hand all rows to the system; `sync`: and wait for the disk."""
        self._write()
        with reporting(self.path, "write"):
            self._file.flush()
            if sync:
                os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Write what is pending and the end mark; closing twice does nothing."""
        if self._file.closed:
            return
        try:
            self._write()
        finally:
            with reporting(self.path, "write"), self._file:
                self._stream.close()


def read_journal(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the whole batches of a journal, up to its end or to where it was cut; never raises for a cut."""
    with reporting(path, "read"):
        file = _Bounded(path)
    with file:
        try:
            stream = pa.ipc.open_stream(file)
        except (pa.ArrowException, OSError):
            return
        while True:
            try:
                batch = stream.read_next_batch()
                batch.validate(full=True)
            except (StopIteration, pa.ArrowException, OSError):
                return
            yield batch


class _Bounded(io.FileIO):
    """A file that is never asked for more than it has: a length that lies must not be allocated."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(left if size is None or size < 0 else min(size, left)) or b""


def seal_annotations(
    journals: Sequence[Path],
    out: Path,
    version: str = schema.DEFAULT_VERSION,
    labels: Sequence[str] | None = None,
    category_metadata: Mapping[str, object] | None = None,
) -> int:
    """Write NAME.arrow in a schema version from annotation journals, one after the other; returns the rows.

    Columns that nobody filled are left out, and metadata about them. `labels`: names by `label_index`.
    Raises DatasetError when it cannot be written, KeyError for a version that cannot be.
    """
    if version not in schema.WRITABLE:
        raise KeyError(version)
    filled, categories = _survey(journals, version)
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
    return _seal(journals, out, columns, categories, metadata, version)


def seal_frames(journals: Sequence[Path], out: Path, columns: dict[str, Column], metadata: Mapping[str, object]) -> int:
    """Write NAME.frames.arrow with all `columns` and `metadata` (plain objects, stored as JSON); returns the rows.

    Raises DatasetError when it cannot be written or a value has no JSON form.
    """
    return _seal(journals, out, columns, {}, {key: json_text(value) for key, value in metadata.items()}, "")


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


def _survey(journals: Sequence[Path], version: str) -> tuple[set[str], dict[str, pa.Array]]:
    """Return the columns that are filled, and the values of each category in order of appearance."""
    columns = schema.columns(version)
    filled = {column.name for column in columns.values() if column.level == "identity"}
    values: dict[str, dict[str, None]] = {column.name: {} for column in columns.values() if column.is_category}
    for path in journals:
        for batch in read_journal(path):
            filled |= {name for name in batch.schema.names if batch[name].null_count < batch.num_rows}
            for name, known in values.items():
                known.update(dict.fromkeys(pc.unique(batch[name]).drop_null().to_pylist()))
    if version < "2026.04" and "polygon" in filled:
        filled.add("mask")
    return filled, {name: pa.array(list(known), schema.TEXT) for name, known in values.items()}


def _seal(
    journals: Sequence[Path],
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
                for batch in _even_batches(journals):
                    arrays = [_stored(batch, column, categories, version) for column in columns.values()]
                    writer.write_batch(pa.record_batch(arrays, schema=target))
                    rows += batch.num_rows
            file.flush()
            os.fsync(file.fileno())
    return rows


def _even_batches(journals: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield all rows in batches of ROWS_PER_BATCH, however the journals were flushed."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for path in journals:
        for batch in read_journal(path):
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


def _place(row: Row) -> str:
    return f"{row.get('name')} frame {row.get('frame')}"
