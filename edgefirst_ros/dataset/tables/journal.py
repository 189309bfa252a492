# SPDX-License-Identifier: Apache-2.0
"""Journals: rows on their way into a table, in files that grow batch by batch and survive being cut."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.storage.lock import create_anew, give_back, reporting, write_at
from edgefirst_ros.dataset.tables.ipc_sizes import count_stream
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from typing_extensions import Buffer

Row = Mapping[str, object]

ANNOTATION_JOURNAL = schema.journal_schema(schema.columns(schema.VERSIONS[-1]))
"""Columns of an annotation journal, whatever version it is sealed to; `pose` is [yaw, pitch, roll] here."""

_PENDING_ROWS = 256
_ROWS_AT_ONCE = 1 << 12
_PENDING_BYTES = 1 << 20
_CHECKPOINT, _CHECKSUM = b"checkpoint", b"crc32"


class JournalError(DatasetError):
    """A journal that this version does not understand."""


class Journal:
    """Rows on their way into a table: an Arrow IPC stream with every column and plain text for categories.

    Its file ends with a whole batch at any time, also when the disk refuses to take one: the rows are kept for later.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        """Create `path` anew, replacing what a dead writer left; the caller holds the dataset's lock."""
        self.path = path
        self.rows = 0
        self.bytes = 0
        self._schema = columns
        self._names = frozenset(columns.names)
        self._required = [field.name for field in columns if not field.nullable]
        self._scores = [name for name in columns.names if name.endswith("_score")]
        self._pending: list[Row] = []
        self._parts: list[pa.RecordBatch] = []
        """Batches before those of `_pending`."""
        self._pending_bytes = 0
        self._fd = create_anew(path)
        self._sink = _Sink()
        self._stream = pa.ipc.new_stream(self._sink, columns)

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
        """Add a row that `check` let pass; a column that is absent is null."""
        self._pending.append(row)
        self.rows += 1
        mask = row.get("mask")
        self._pending_bytes += len(mask) if isinstance(mask, bytes) else 0

    def append_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows that keep the rules, in the columns of the journal."""
        if self._pending:
            self._parts.append(self._of_rows())
        self._parts.append(batch)
        self.rows += batch.num_rows
        self._pending_bytes += batch.nbytes

    @property
    def heavy(self) -> bool:
        """True if so much is pending that it should be written now."""
        rows = len(self._pending) + sum(batch.num_rows for batch in self._parts)
        return rows >= _PENDING_ROWS or self._pending_bytes >= _PENDING_BYTES

    def flush(self, sync: bool, checkpoint: Mapping[str, object] | None = None) -> None:
        """Hand all rows to the system; `sync`: and wait for the disk. `checkpoint` (JSON) goes with the last of them.

        Raises StorageError; nothing is lost then, the next call tries again.
        """
        with reporting(self.path, "write"):
            self._save()  # what could not be written the last time
        if self._pending or self._parts or checkpoint is not None:
            self._stream_pending(checkpoint)
        with reporting(self.path, "write"):
            self._save()
            if sync:
                os.fdatasync(self._fd)

    def _stream_pending(self, checkpoint: Mapping[str, object] | None) -> None:
        if self._pending or not self._parts:
            self._parts.append(self._of_rows())
        table = pa.Table.from_batches(self._parts)
        self._parts, self._pending_bytes = [], 0
        for start in range(0, max(1, table.num_rows), _ROWS_AT_ONCE):
            part = table.slice(start, _ROWS_AT_ONCE)
            arrays = [pa.concat_arrays(column.chunks) for column in part.columns]
            last = start + _ROWS_AT_ONCE >= table.num_rows
            self._stream_out(pa.record_batch(arrays, schema=self._schema), checkpoint if last else None)
            if not last:
                with reporting(self.path, "write"):
                    self._save()

    def _of_rows(self) -> pa.RecordBatch:
        """Turn rows that are pending into a batch; if one does not fit its types, all of them are thrown away."""
        rows, self._pending = self._pending, []
        filled = frozenset[str]().union(*rows)
        arrays = []
        for field in self._schema:
            if field.name not in filled:
                arrays.append(pa.nulls(len(rows), field.type))
                continue
            try:
                arrays.append(pa.array([row.get(field.name) for row in rows], type=field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                self.rows -= len(rows)
                raise DatasetError(f"{self.path}: {field.name} does not fit {field.type}: {error}") from error
        return pa.record_batch(arrays, schema=self._schema)

    def _stream_out(self, batch: pa.RecordBatch, checkpoint: Mapping[str, object] | None) -> None:
        text = b"" if checkpoint is None else json.dumps(checkpoint).encode()
        metadata = {_CHECKSUM: b"%08x" % _checksum(batch, text)}
        self._stream.write_batch(batch, metadata if checkpoint is None else {**metadata, _CHECKPOINT: text})

    def _save(self) -> None:
        """Append the bytes of the stream to the file, as a whole or not at all."""
        if self._sink.parts:
            self.bytes = write_at(self._fd, [memoryview(part) for part in self._sink.parts], self.bytes)
            self._sink.parts.clear()

    def refill(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take over the rows of another journal."""
        for batch in batches:
            self._stream_out(batch, None)
            self.rows += batch.num_rows
            with reporting(self.path, "write"):
                self._save()

    def close(self) -> None:
        """Write what is pending and the end mark; closing twice does nothing."""
        if self._fd < 0:
            return
        try:
            self.flush(sync=False)
            self._stream.close()
            with reporting(self.path, "write"):
                self._save()
                fd, self._fd = self._fd, -1
                os.close(fd)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing what is pending; closing twice does nothing."""
        if self._fd >= 0:
            give_back(self._fd)
            self._fd = -1


class _Sink(io.RawIOBase):
    """Takes what a stream writes and holds it until the file has it."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        part = bytes(data)
        self.parts += [part] if part else []
        return len(part)


def remade_path(journal: Path) -> Path:
    """Return the path of a journal that is written to replace `journal`, which must not change until then."""
    return journal.with_name(f"{journal.name}.partial")


def read_journal(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the whole batches of a journal, up to its end or to where it was cut, damaged or is not understood."""
    with suppress(JournalError):
        for batch, _ in read_checkpoints(path):
            yield batch


def read_checkpoints(path: Path) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
    """Yield the whole batches, each with the checkpoint that went with it, up to the end, a cut or damage.

    A batch that states more rows or bytes than its file can hold is damage. Raises JournalError for what no writer of
    this version made, and StorageError.
    """
    with _Bounded(path) as file:
        try:
            stream = pa.ipc.open_stream(file)
            stream.schema.names  # noqa: B018  one that is no UTF-8 is met here
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if _is_cut_in_schema(path):
                return
            raise JournalError(f"no Arrow stream: {error}") from error
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                batch.validate(full=True)
            except (StopIteration, pa.ArrowException, OSError, ValueError, RecursionError):
                return
            if _CHECKSUM not in (metadata or {}):
                raise JournalError("a batch of rows has no checksum")
            try:
                text = metadata.get(_CHECKPOINT, b"")
                if int(metadata[_CHECKSUM], 16) != _checksum(batch, text):
                    return
                checkpoint = json.loads(text) if text else None
            except (ValueError, RecursionError):
                return
            yield batch, checkpoint if isinstance(checkpoint, dict) else None


def _is_cut_in_schema(path: Path) -> bool:
    """True if a journal ends within its schema, or a power cut left nothing but zeros of it: it has no rows."""
    with reporting(path, "read"), path.open("rb") as file:
        start, size = file.read(8), os.fstat(file.fileno()).st_size
    if len(start) < 8 or not any(start):
        return True
    return start[:4] == b"\xff\xff\xff\xff" and 8 + int.from_bytes(start[4:], "little") > size


class _Bounded(io.FileIO):
    """A journal up to where its messages are whole: a length that lies, or packed zeros, must not be allocated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reporting(path, "read"):
            super().__init__(path)
            size = os.fstat(self.fileno()).st_size
            self._end = count_stream(self.fileno(), size, Budget.of_file(path, size, DEFAULT_LIMITS))

    def read(self, size: int | None = -1, /) -> bytes:
        with reporting(self._path, "read"):  # Arrow lets its own OSError tell that a file was cut
            left = max(0, self._end - self.tell())
            return super().read(left if size is None or size < 0 else min(size, left)) or b""


def _checksum(batch: pa.RecordBatch, checkpoint: bytes) -> int:
    """Return a checksum: a power cut leaves blocks of zeros, which Arrow takes for values."""
    return zlib_ng.crc32(checkpoint, zlib_ng.crc32(batch.serialize()))


def _place(row: Row) -> str:
    return f"{row.get('name')} frame {row.get('frame')}"
