# SPDX-License-Identifier: Apache-2.0
"""Reads journals and row logs of any version, and the tables of a finished dataset whose archive was cut."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, FrameSet, iter_keys, make_safe
from edgefirst_ros.dataset.schema import parse_frames_metadata
from edgefirst_ros.dataset.storage.lock import create_anew, is_plain_file, open_synced, report_errors
from edgefirst_ros.dataset.tables.arrow_file import TableFile, count_stream
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, Checkpoint, LoggedRows, Rows, make_batch
from edgefirst_ros.dataset.tables.values import cast_rows
from edgefirst_ros.errors import DatasetError, StorageError, TooLargeError
from edgefirst_ros.limits import DEFAULT_LIMITS, Budget, Limits

_LARGEST_LOG = 1 << 26
"""Most bytes read of a log of version 0.1: far more than a flush interval wrote."""


class Journals(LoggedRows):
    """Rows and commits of an unfinished dataset, also of version 0.1.

    A record that this version does not understand ends the rows of its file; `not_understood` says why, by path, and
    such a file must stay. Raises StorageError.
    """

    def __init__(self, paths: DatasetPaths) -> None:
        self.is_older = any(map(is_plain_file, (paths.arrow_journal, paths.frames_journal)))
        """True for journals of version 0.1."""
        self.written_here = self.is_older or is_plain_file(paths.row_log)
        """True if any file of rows exists: without them the members are another tool's."""
        super().__init__(paths.row_log if self.written_here and not self.is_older else None)
        self.not_understood = {paths.row_log: self.why} if self.why else {}
        if self.is_older:
            self._read_frames(paths.frames_journal, self._read_annotations(paths.arrow_journal))
            self._read_log(paths.row_log)

    @property
    def synced(self) -> Checkpoint:
        """The last commit that was synced to disk."""
        return max((point for point in self.points if point.synced), key=lambda point: point.samples)

    def _read_annotations(self, path: Path) -> dict[int, int]:
        order, ends = 0, {0: 0}
        for batch, _ in self._batches(path, lambda _: ANNOTATION_ROWS):
            self.annotations.append_batch(batch)
            order = _order_of(batch, order)
            ends[self.annotations.count] = order
        return ends

    def _read_frames(self, path: Path, ends: Mapping[int, int]) -> None:
        order = 0

        def columns_of(found: pa.Schema) -> pa.Schema:
            return schema.make_journal_schema(schema.list_frames_columns(schema.find_companions(found.names)))

        for batch, checkpoint in self._batches(path, columns_of):
            if not self.frames.count:
                self.companions, self.frames = schema.find_companions(batch.schema.names), Rows(batch.schema)
            self.frames.append_batch(batch)
            order = _order_of(batch, order)
            point = _parse_checkpoint(checkpoint or {})
            if point is not None and point.samples == self.frames.count and ends.get(point.rows) == order:
                self.points.append(point)
                description = (checkpoint or {}).get("description")
                self.description.update(description if isinstance(description, dict) else {})

    def _read_log(self, path: Path) -> None:
        """Add the rows of the log, which follow those of the journals without a gap."""
        for samples, rows, frame, listed in _read_lines(path):
            try:
                if samples == self.frames.count:
                    self.frames.append_batch(_make_batch([frame], self.frames.columns))
                if rows == self.annotations.count and listed:
                    self.annotations.append_batch(_make_batch(listed, ANNOTATION_ROWS))
            except (DatasetError, pa.ArrowException) as error:
                self.not_understood[path] = str(error)
                return

    def _batches(
        self, path: Path, wanted: Callable[[pa.Schema], pa.Schema]
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
        """Yield the batches of a journal, in the columns `wanted` for those it has, with their checkpoints."""
        before = FrameSet()
        try:
            for stored, checkpoint in _read_stream(path) if is_plain_file(path) else ():
                batch = cast_rows(stored, wanted(stored.schema))
                check_rows(batch)
                keys = set(iter_keys(batch))
                if any(key in before for key in keys):
                    raise DatasetError("the rows of a sample are in two places")
                before.update(keys)
                yield batch, checkpoint
        except StorageError:
            raise
        except DatasetError as error:
            self.not_understood[path] = str(error)


def _order_of(batch: pa.RecordBatch, order: int) -> int:
    """Return the checksum of the samples before, `order`, continued by those of a batch of either journal."""
    for name, frame in dict.fromkeys(iter_keys(batch)):
        order = zlib_ng.crc32(f"{name}/{frame}".encode(), order)
    return order


def check_rows(batch: pa.RecordBatch) -> None:
    """Raise DatasetError where a row names no sample."""
    if any(batch[name].null_count for name in ("name", "frame", "timestamp")):
        raise DatasetError("a row has no name, frame or timestamp")
    for name in batch["name"].unique().to_pylist():
        if make_safe(name) != name:
            raise DatasetError(f"{name!r} cannot name a sequence")


def _parse_checkpoint(checkpoint: Mapping[str, object]) -> Checkpoint | None:
    samples, rows, size = (checkpoint.get(key) for key in ("samples", "rows", "bytes"))
    if not (isinstance(samples, int) and isinstance(rows, int) and isinstance(size, int)):
        return None
    if min(samples, rows, size) < 0:
        return None
    return Checkpoint(samples, rows, size, checkpoint.get("synced") is True)


def _make_batch(rows: list[dict[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows of the log as a batch. Raises DatasetError, and what Arrow raises for values that do not fit."""
    batch = make_batch(rows, columns)
    batch.validate(full=True)
    check_rows(batch)
    return batch


def _read_stream(path: Path) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
    """Yield the whole batches, each with its checkpoint, up to the end, a cut or damage.

    A batch that states more rows or bytes than its file can hold is damage. Raises DatasetError for streams
    that version 0.1 did not write, and StorageError.
    """
    with _Bounded(path) as file:
        try:
            stream = pa.ipc.open_stream(file)
            stream.schema.names  # noqa: B018  raises on a name that is not UTF-8
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if file.is_cut_in_schema:
                return
            raise DatasetError(f"no Arrow stream: {error}") from error
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                batch.validate(full=True)
            except (StopIteration, pa.ArrowException, OSError, ValueError, RecursionError):
                return
            if b"crc32" not in (metadata or {}):
                raise DatasetError("a batch of rows has no checksum")
            try:
                text = metadata.get(b"checkpoint", b"")
                if int(metadata[b"crc32"], 16) != zlib_ng.crc32(text, zlib_ng.crc32(batch.serialize())):
                    return
                checkpoint = json.loads(text) if text else None
            except (ValueError, RecursionError):
                return
            yield batch, checkpoint if isinstance(checkpoint, dict) else None


class _Bounded(io.FileIO):
    """A journal up to where its messages are whole: a length that is, or packed zeros, must not be allocated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with report_errors(path, "read"):
            super().__init__(path)
            start, size = super().read(8) or b"", self.seek(0, 2)
            self.seek(0)
            self._end = count_stream(self.fileno(), size, Budget.of_file(path, size, DEFAULT_LIMITS))
        cut = start[:4] == b"\xff\xff\xff\xff" and 8 + int.from_bytes(start[4:], "little") > size
        self.is_cut_in_schema = len(start) < 8 or not any(start) or cut
        """True if it ends within its schema, or a power cut left only zeros of it: it has no rows."""

    def read(self, size: int | None = -1, /) -> bytes:
        with report_errors(self._path, "read"):  # Arrow raises an OSError of its own for a cut file
            left = max(0, self._end - self.tell())
            return super().read(left if size is None or size < 0 else min(size, left)) or b""


def _read_lines(path: Path) -> Iterator[tuple[int, int, dict[str, Any], list[dict[str, Any]]]]:
    """Yield the content of the whole lines of a log, up to the first that is cut or damaged.

    A line has the numbers of rows of frames and of annotations before it, a row of frames and rows of annotations.
    """
    if not is_plain_file(path):
        return
    with report_errors(path, "read"), path.open("rb") as file:
        data = file.read(_LARGEST_LOG)
    for line in io.BytesIO(data):  # one after the other: there may be as many as bytes
        checksum, _, text = line.removesuffix(b"\n").partition(b" ")
        try:
            if int(checksum, 16) != zlib_ng.crc32(text):
                return
            samples, rows, frame, annotations = json.loads(text)
            listed = [dict(row) for row in annotations]
            for row in listed:
                if isinstance(mask := row.get("mask"), str):
                    row["mask"] = base64.b64decode(mask, validate=True)
            yield int(samples), int(rows), dict(frame), listed
        except (ValueError, TypeError, RecursionError):
            return


class FinishedTables:
    """Tables beside an archive without journals.

    `description`: metadata of a table of frames that this software wrote, as plain values; empty for tables of another
    tool, which are not to be changed. `companions`: those of the table of frames. Raises TooLargeError.
    """

    def __init__(self, paths: DatasetPaths, limits: Limits) -> None:
        self.readable: dict[Path, TableFile] = {}
        self.unreadable: dict[Path, DatasetError] = {}
        self.description: dict[str, Any] = {}
        for path in filter(os.path.exists, (paths.arrow, paths.frames)):
            try:
                self.readable[path] = TableFile(path, limits).check_rows()
            except TooLargeError:
                raise
            except DatasetError as error:
                self.unreadable[path] = error
        self._frames = self.readable.get(paths.frames)
        if self._frames is not None:
            self.companions = schema.find_companions(self._frames.schema.names)
            with suppress(DatasetError):
                found = parse_frames_metadata(paths.frames, self._frames.metadata)
                for batch in self.frames():
                    check_rows(batch)
                software = found.get("software")
                self.description = found if isinstance(software, dict) and software.get("name") else {}

    def frames(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of frames in the columns of a journal. Raises DatasetError for rows of another form."""
        for stored in self._frames.batches() if self._frames is not None else ():
            columns = schema.make_journal_schema(schema.list_frames_columns(self.companions))
            yield cast_rows(stored.select([name for name in columns.names if name in stored.schema.names]), columns)


def write_annotations(table: TableFile, out: Path, stays: Callable[[tuple[str, int]], bool]) -> None:
    """Write a finished table of annotations with the rows of samples that stay. Raises DatasetError."""
    target = table.schema.with_metadata(dict(table.metadata) or None)
    with open_synced(create_anew(out), out) as file, pa.ipc.new_file(file, target) as writer:
        for batch in table.batches():
            there = [None in key or stays(key) for key in iter_keys(batch)]
            kept = batch.filter(pa.array(there, pa.bool_()))
            writer.write_batch(pa.record_batch(kept.columns, schema=target))
