# SPDX-License-Identifier: Apache-2.0
"""The rows of a dataset that is being written: one log of both tables, record by record, that survives being cut.

A record is a head (checksum, three lengths), a JSON object, a JSON list of annotation rows, and raw bytes: the masks of
the rows, or a whole Arrow batch of them. Each checksum continues that of the record before, so a stale record never
follows a new one.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from numbers import Real
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import FrameSet, iter_keys, make_safe
from edgefirst_ros.dataset.storage.lock import create_anew, give_back, open_file, report_errors, write_at
from edgefirst_ros.dataset.tables.arrow_file import count_message
from edgefirst_ros.dataset.tables.values import MISFITS, cast_rows, refuse_unknown
from edgefirst_ros.errors import DatasetError, StorageError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Budget

Row = Mapping[str, object]

ANNOTATION_ROWS = schema.make_journal_schema(schema.list_columns(schema.VERSIONS[-1]))
"""Columns of annotation rows, for all versions that they are sealed to; `pose` is [yaw, pitch, roll] here."""


def carry_timing(*further: pa.StructType) -> pa.Schema:
    """Return `ANNOTATION_ROWS` with the fields of `timing` that no version knows: new ones do not break readers.

    Raises DatasetError where one has two types.
    """
    place = ANNOTATION_ROWS.get_field_index("timing")
    fields = {field.name: field for field in schema.TIMING}
    for field in (field for kind in further for field in kind):
        if fields.setdefault(field.name, field).type != field.type:
            raise DatasetError(f"timing.{field.name} is {field.type}, and {fields[field.name].type} in another table")
    return ANNOTATION_ROWS.set(place, ANNOTATION_ROWS.field(place).with_type(pa.struct([*fields.values()])))


_FORMAT = 1
_HEAD = struct.Struct("<4I")
_LENGTHS = struct.Struct("<3I")
_ROWS_AT_ONCE = 1 << 12
_SAMPLES_AT_ONCE = 64
"""Samples whose batches become one record, unless a commit comes before."""
_PENDING_BYTES = 1 << 20
IN_MEMORY = 16 << 20
"""Bytes of rows that `Rows` holds in memory; further ones are in a file."""


class Checkpoint(NamedTuple):
    """A commit: a consistent state of container and rows that was handed to the system."""

    samples: int = 0
    rows: int = 0
    bytes: int = 0
    synced: bool = True
    """True if everything was synced to disk before the log recorded it."""
    end: int = 0
    """Bytes of the log up to it; 0 in datasets of earlier versions."""
    checksum: int = 0
    """That of its record, which the next one continues."""


class Rows:
    """Rows on their way into a table: in memory, beyond `IN_MEMORY` bytes in a file without a name.

    Owns: the file; used by one thread.
    """

    def __init__(self, columns: pa.Schema, folder: Path | None = None) -> None:
        """`folder`: where the file is; by default the system's temporary folder."""
        self.columns = columns
        self.count = 0
        self._given = folder
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._file: IO[bytes] | None = None
        self._stream: Any = None

    @property
    def _folder(self) -> Path:
        """Where the file is; the system's temporary folder is looked for only when it is needed."""
        return self._given if self._given is not None else Path(tempfile.gettempdir())

    def append(self, row: Row) -> None:
        """Add a row; a column that is absent is null. Raises DatasetError if it does not fit, at the latest when read.

        Raises StorageError if the file cannot be written.
        """
        self._pending.append(row)
        self.count += 1
        mask = row.get("mask")
        self._pending_bytes += len(mask) if isinstance(mask, bytes) else 0
        if len(self._pending) >= _ROWS_AT_ONCE or self._pending_bytes >= _PENDING_BYTES:
            self.settle()

    def append_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows in the columns of this table. Raises StorageError if the file cannot be written."""
        self.settle()
        self.count += batch.num_rows
        self._hold(batch)

    def batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, or the first `rows`. Raises DatasetError for rows that do not fit, and StorageError."""
        self.settle()
        left = self.count if rows is None else rows
        for batch in self._read_stored():
            if left < batch.num_rows:
                if left:
                    yield batch.slice(0, left)
                return
            left -= batch.num_rows
            yield batch

    def rows(self, first: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield all rows, or the first so many, one by one. Raises as `batches`."""
        return (row for batch in self.batches(first) for row in batch.to_pylist())

    def _read_stored(self) -> Iterator[pa.RecordBatch]:
        yield from self._held
        if self._file is not None:
            self._file.flush()
            with report_errors(self._folder, "read rows back from a temporary file"):
                yield from pa.ipc.open_stream(pa.OSFile(f"/dev/fd/{self._file.fileno()}"))

    def settle(self) -> None:
        """Turn pending rows into a batch; if one does not fit its type (DatasetError), all of them are dropped."""
        rows, self._pending, self._pending_bytes = self._pending, [], 0
        if not rows:
            return
        try:
            self._hold(make_batch(rows, self.columns))
        except DatasetError:
            self.count -= len(rows)
            raise

    def _hold(self, batch: pa.RecordBatch) -> None:
        self._held_bytes += batch.nbytes
        if self._held_bytes <= IN_MEMORY:
            self._held.append(batch)
            return
        with report_errors(self._folder, "hold rows in a temporary file"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
                self._stream = pa.ipc.new_stream(self._file, self.columns)
            self._stream.write_batch(batch)


def make_batch(rows: Sequence[Row], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows as a batch; absent columns are null. Raises DatasetError where one does not fit its type."""
    filled = frozenset[str]().union(*rows)
    refuse_unknown(filled, columns)
    arrays = []
    for field in columns:
        if field.name not in filled:
            arrays.append(pa.nulls(len(rows), field.type))
            continue
        with explain_errors(f"{field.name} does not fit {field.type}", *MISFITS):
            arrays.append(pa.array([row.get(field.name) for row in rows], type=field.type))
    return pa.record_batch(arrays, schema=columns)


class RowLog:
    """Appends the rows of samples; each record is written by one call, as a whole or not at all.

    Owns: its file; used by the thread that writes the dataset.
    """

    def __init__(
        self,
        path: Path,
        companions: Sequence[str],
        point: Checkpoint | None = None,
        columns: pa.Schema = ANNOTATION_ROWS,
    ) -> None:
        """Create `path` again, replacing a dead writer's file; `point`: continue an existing log after this commit.

        `companions`: those with columns in the table of frames; `columns`: those of batches. Raises StorageError.
        """
        self.path = path
        self.samples = self.rows = self.bytes = 0
        self._frame_rules = RowRules(schema.make_journal_schema(schema.list_frames_columns(companions)))
        self._annotation_rules = RowRules(ANNOTATION_ROWS)
        self._checksum = 0
        self._described: dict[str, object] = {}
        self._waiting: list[tuple[Row, pa.RecordBatch]] = []
        if point is None:
            self._fd = create_anew(path)
            try:
                begin = {"format": _FORMAT, "companions": list(companions)}
                self._write(begin, blobs=[memoryview(columns.serialize())])
            except StorageError:
                self.close()
                raise
            return
        self.samples, self.rows, self.bytes, self._checksum = point.samples, point.rows, point.end, point.checksum
        with report_errors(path, "continue"):
            self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.ftruncate(self._fd, self.bytes)

    def check(self, frame: Row, annotations: Sequence[Row]) -> None:
        """Raise DatasetError for a row that breaks a rule of the format, before anything of its sample is written."""
        for row in annotations:
            self._annotation_rules.check(row)
        self._frame_rules.check(frame)

    def announce(self, members: Sequence[tuple[str, int, int]]) -> None:
        """Record sizes and checksums of members before they are written. Raises StorageError."""
        self._write({"members": members})

    def append(self, frame: Row, annotations: Sequence[Row], batch: pa.RecordBatch | None = None) -> None:
        """Add the rows of a sample that `check` let pass; or a `batch` of annotations that keep the rules.

        Raises StorageError; the log then has no row of the sample.
        """
        if batch is not None:
            self._waiting.append((frame, batch))
            if len(self._waiting) >= _SAMPLES_AT_ONCE:
                try:
                    self._write_waiting()
                except StorageError:
                    self._waiting.pop()
                    raise
            self.rows += batch.num_rows
        else:
            self._write_waiting()
            masks = [memoryview(mask) for row in annotations if isinstance(mask := row.get("mask"), bytes)]
            rows = [
                {**row, "mask": len(mask)} if isinstance(mask := row.get("mask"), bytes) else row for row in annotations
            ]
            self._write({"frame": frame}, rows, masks)
            self.rows += len(annotations)
        self.samples += 1

    def _write_waiting(self) -> None:
        if self._waiting:
            frames, batches = zip(*self._waiting, strict=True)
            (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
            self._write({"frames": frames, "batch": batch.num_rows}, blobs=[memoryview(batch.serialize())])
            self._waiting = []

    def commit(self, size: int, description: Mapping[str, object], *, sync: bool) -> None:
        """Record that the rows so far belong to the first `size` bytes of the container; `sync`: wait for the disk.

        Changes in the `description` of the dataset are recorded with it. Raises StorageError; the next commit
        tries again.
        """
        self._write_waiting()
        known = dict(description)
        new = {key: value for key, value in known.items() if self._described.get(key) != value}
        facts = {"samples": self.samples, "rows": self.rows, "bytes": size, "synced": sync, "description": new}
        self._write({"commit": facts})
        if sync:
            with report_errors(self.path, "write"):
                os.fdatasync(self._fd)
        self._described = known

    def _write(self, facts: Row, rows: Sequence[Row] = (), blobs: Sequence[memoryview] = ()) -> None:
        text, listed = _to_json(facts).encode(), _to_json(rows).encode() if rows else b""
        lengths = _LENGTHS.pack(len(text), len(listed), sum(map(len, blobs)))
        checksum = zlib_ng.crc32(b"".join((lengths, text, listed)), self._checksum)
        for blob in blobs:
            checksum = zlib_ng.crc32(blob, checksum)
        parts = [memoryview(checksum.to_bytes(4, "little") + lengths + text + listed), *blobs]
        with report_errors(self.path, "write"):
            self.bytes = write_at(self._fd, parts, self.bytes)
        self._checksum = checksum

    def read(self) -> tuple[Rows, Rows]:
        """Return the rows of frames and those of annotations. Raises StorageError if not all can be read back."""
        self._write_waiting()
        found = LoggedRows(self.path, self.path.parent)
        if (found.frames.count, found.annotations.count) != (self.samples, self.rows):
            raise StorageError(
                f"{self.path}: {found.frames.count} samples with {found.annotations.count} rows can be read back of "
                f"{self.samples} with {self.rows} written{'; ' if found.why else ''}{found.why}"
            )
        return found.frames, found.annotations

    def close(self) -> None:
        """Close, keeping the file; a second call has no effect."""
        if self._fd >= 0:
            with suppress(StorageError):  # a commit would have said so
                self._write_waiting()
            give_back(self._fd)
            self._fd = -1


class RowRules:
    """Rules of the format for rows in certain columns."""

    def __init__(self, columns: pa.Schema) -> None:
        self._names = frozenset(columns.names)
        self._required = [field.name for field in columns if not field.nullable]

    def check(self, row: Row) -> None:
        """Raise DatasetError for a row that breaks a rule.

        Source: EdgeFirst Annotation Schema 2026.04, "Geometry: Polygon" (validity rules), "Score Columns".
        """
        place = f"{row.get('name')} frame {row.get('frame')}"
        if not row.keys() <= self._names:
            raise DatasetError(f"{place}: no such columns: {sorted(row.keys() - self._names)}")
        for name in self._required:
            if row.get(name) is None:
                raise DatasetError(f"{place}: a row without {name}")
        for name, value in row.items():
            if value is None:
                continue
            if name.endswith("_score") and not (isinstance(value, Real) and 0 <= float(value) <= 1):
                raise DatasetError(f"{place}: {name} is {value!r}, must be within 0..1")
            if name in ("box2d", "box3d") and not all(map(math.isfinite, cast("Sequence[float]", value))):
                raise DatasetError(f"{place}: {name} is {list(cast('Sequence[float]', value))}, must be finite")
            for ring in cast("Sequence[Sequence[float]]", value) if name == "polygon" else ():
                if len(ring) % 2 or len(ring) < 6:
                    raise DatasetError(f"{place}: a polygon ring of {len(ring)} values, must be 3 or more pairs")


_to_json = json.JSONEncoder(default=lambda value: value.tolist()).encode  # numbers and arrays of numpy


# ---- reading -----------------------------------------------------------------------------------
class _Record(NamedTuple):
    facts: dict[str, Any]
    rows: list[dict[str, Any]]
    blob: bytes
    place: int
    """Offset of the raw bytes."""
    end: int
    checksum: int


class LoggedRows:
    """The rows and commits of a log, up to its end or to the first record that is cut, damaged or not understood.

    `why` describes the record that is not understood, empty if all are. Raises StorageError if the file is unreadable.
    """

    def __init__(self, path: Path | None, folder: Path | None = None) -> None:
        """`path`: None for none; `folder`: for the temporary files of `Rows`."""
        self.companions: list[str] = list(schema.DEFAULT_COMPANIONS)
        self.description: dict[str, Any] = {}
        """Metadata of the dataset at its last commit."""
        self.points: list[Checkpoint] = [Checkpoint()]
        self.members: dict[str, tuple[int, int]] | None = None
        """{name: bytes and CRC-32} of members that were announced; None without a log of this version."""
        self.why = ""
        self.annotations = Rows(ANNOTATION_ROWS, folder)
        self.frames = Rows(schema.make_journal_schema(schema.list_frames_columns(self.companions)), folder)
        if path is None:
            return
        self.members, self._folder = {}, folder
        self._stored = ANNOTATION_ROWS
        """Columns of the batches in the log."""
        self._seen = FrameSet()
        with report_errors(path, "read"):
            fd = open_file(path)
        try:
            with report_errors(path, "read"):
                size = os.fstat(fd).st_size
                self._read(fd, size, Budget.of_file(path, size, DEFAULT_LIMITS))
        finally:
            os.close(fd)

    def _read(self, fd: int, size: int, budget: Budget) -> None:
        try:
            for record in _iter_records(fd, size):
                self._add_record(record, partial(count_message, fd, record.end, record.place, budget))
            self.frames.settle()
            self.annotations.settle()
        except StorageError:
            raise
        except (
            DatasetError,
            pa.ArrowException,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            self.why = str(error) or type(error).__name__
        there = self.frames.count, self.annotations.count
        self.points = [point for point in self.points if point.samples <= there[0] and point.rows <= there[1]]

    def _add_record(self, record: _Record, count: Callable[[], None]) -> None:
        facts = record.facts
        if "batch" in facts:
            self._add_batch(facts["frames"] if "frames" in facts else [facts["frame"]], record, count)
        elif "frame" in facts:
            self._add(facts["frame"], record)
        elif "commit" in facts:
            self._commit(facts["commit"], record)
        elif "members" in facts and self.members is not None:
            self.members.update({str(name): (int(size), int(crc)) for name, size, crc in facts["members"]})
        elif facts.get("format") == _FORMAT:
            self.companions = list(facts["companions"])
            self.frames = Rows(schema.make_journal_schema(schema.list_frames_columns(self.companions)), self._folder)
            self._stored = pa.ipc.read_schema(pa.py_buffer(record.blob))
            timing = self._stored.field("timing").type if "timing" in self._stored.names else schema.TIMING
            if pa.types.is_struct(timing):
                self.annotations = Rows(carry_timing(timing), self._folder)
        else:
            raise DatasetError(f"this version knows no record of {', '.join(sorted(facts))[:100]}")

    def _add(self, frame: dict[str, Any], record: _Record) -> None:
        key = self._see(frame)
        for row in (rows := _with_masks(record.rows, record.blob)):
            if _read_identity(row) != key:
                raise DatasetError("a sample has rows of another one")
            refuse_unknown(row, ANNOTATION_ROWS)
        for row in rows:
            self.annotations.append(row)
        self.frames.append(frame)

    def _add_batch(self, frames: list[dict[str, Any]], record: _Record, count: Callable[[], None]) -> None:
        """Add the rows of samples that are one batch, once `count` finds it small enough."""
        keys = {self._see(frame) for frame in frames}
        count()
        stored = pa.ipc.read_record_batch(pa.py_buffer(record.blob), self._stored)
        stored.validate(full=True)
        batch = cast_rows(stored, self.annotations.columns)
        if not keys.issuperset(iter_keys(batch)):
            raise DatasetError("a sample has rows of another one")
        self.annotations.append_batch(batch)
        for frame in frames:
            self.frames.append(frame)

    def _see(self, frame: dict[str, Any]) -> tuple[str, int]:
        """Return the key of a sample that was not seen before. Raises DatasetError."""
        key = _read_identity(frame)
        if key in self._seen:
            raise DatasetError("the rows of a sample are in two places")
        refuse_unknown(frame, self.frames.columns)
        self._seen.add(*key)
        return key

    def _commit(self, facts: dict[str, Any], record: _Record) -> None:
        samples, rows, size = (facts[key] for key in ("samples", "rows", "bytes"))
        if (samples, rows) != (self.frames.count, self.annotations.count) or not isinstance(size, int) or size < 0:
            raise DatasetError("a commit does not agree with the rows before it")
        self.description.update(dict(facts.get("description") or {}))
        synced = facts.get("synced") is True
        self.points.append(Checkpoint(samples, rows, size, synced, record.end, record.checksum))


def _read_identity(row: Mapping[str, Any]) -> tuple[str, int]:
    """Return sequence and frame of a row. Raises DatasetError where it names no sample."""
    name, frame, stamp = (row.get(key) for key in ("name", "frame", "timestamp"))
    if not (isinstance(name, str) and isinstance(frame, int) and isinstance(stamp, int)):
        raise DatasetError("a row has no name, frame or timestamp")
    if make_safe(name) != name or not (0 <= frame < 1 << 32 and -(1 << 63) <= stamp < 1 << 63):
        raise DatasetError(f"{name!r}, frame {frame}, at {stamp} cannot name a sample")
    return name, frame


def _with_masks(rows: list[dict[str, Any]], blob: bytes) -> list[dict[str, Any]]:
    """Return rows with the bytes of their masks, which follow each other in `blob`."""
    place = 0
    for row in rows:
        if (length := row.get("mask")) is not None:
            row["mask"] = blob[place : place + length]
            place += length
    if place != len(blob):
        raise DatasetError("masks have other lengths than their rows say")
    return rows


def _iter_records(fd: int, size: int) -> Iterator[_Record]:
    """Yield the whole records of a log of `size` bytes, up to its end or the first that is cut or damaged."""
    place = checksum = 0
    while place + _HEAD.size <= size:
        head = os.pread(fd, _HEAD.size, place)
        stated, *lengths = _HEAD.unpack(head)
        end = place + _HEAD.size + sum(lengths)
        if not lengths[0] or end > size:
            return
        data = os.pread(fd, end - place, place)
        checksum = zlib_ng.crc32(memoryview(data)[4:], checksum)
        if checksum != stated or len(data) != end - place:
            return
        text, listed = (data[_HEAD.size :][: lengths[0]], data[_HEAD.size + lengths[0] :][: lengths[1]])
        try:
            facts, rows = json.loads(text), json.loads(listed) if listed else []
        except (ValueError, RecursionError):
            return
        if not isinstance(facts, dict) or not all(isinstance(row, dict) for row in rows):
            return
        blob = end - lengths[2]
        yield _Record(facts, rows, data[len(data) - lengths[2] :], blob, end, checksum)
        place = end
