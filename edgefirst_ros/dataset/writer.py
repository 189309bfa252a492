# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset: under names that tell it is unfinished, until everything is complete and renamed into place."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from edgefirst_ros.dataset import schema as schemas
from edgefirst_ros.dataset.names import DatasetPaths, Layout, check_name, member_name
from edgefirst_ros.dataset.publish import create_members, place, refuse_existing, remove_if_possible, remove_unfinished
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.storage.lock import give_back, reporting
from edgefirst_ros.dataset.storage.space import Reserve
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL, Journal, read_journal, remade_path
from edgefirst_ros.dataset.tables.rowlog import RowLog
from edgefirst_ros.dataset.tables.seal import seal_annotations, seal_frames
from edgefirst_ros.errors import DatasetError, StorageError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SOONEST = 0.4
"""s from one commit to the next where the disk is quick."""
_SPARE = 20
"""Times that a commit took which go by before the next one: a slow disk is not kept busy with them."""
Describe = Callable[[], Mapping[str, object]]


@dataclass(frozen=True)
class Sample:
    """One frame with all that belongs to it."""

    sequence: str
    frame: int
    timestamp: int
    """Nanoseconds since the epoch."""
    members: Sequence[tuple[str, Sequence[Buffer]]] = ()
    """(kind, buffers written one after the other), e.g. ("camera.jpeg", [header, body])."""
    frame_row: Mapping[str, object] = field(default_factory=dict)
    """Further columns of NAME.frames.arrow."""
    annotations: Sequence[Mapping[str, object]] = ()
    """One row of NAME.arrow each; none: one row without label and geometry."""
    common: Mapping[str, object] = field(default_factory=dict)
    """Columns of NAME.arrow equal on every row: size, location [lat, lon], pose [yaw, pitch, roll], group."""


class DatasetWriter:
    """Writes samples in the order given. Until `finish` only `*.partial` and `*.journal` names exist below `out`.

    A sample is committed once `flush` is through: its members first, then its rows; this happens by itself after
    `flush_interval` at the latest, sooner where the disk is quick, and at a keyframe after half of that. Left by an
    error, the writer keeps what was written (or removes it, if that is nothing). Raises DatasetError when a finished
    output is there and not `overwrite`, when an unfinished one is there that is neither to be replaced nor continued,
    when another writer is at work on it, or when `out` cannot be written.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        name: str,
        *,
        layout: Layout = "zip",
        schema: str = schemas.DEFAULT_VERSION,
        companions: Sequence[str] = schemas.DEFAULT_COMPANIONS,
        overwrite: bool = False,
        fsync: bool = False,
        flush_interval: float = 1.0,
        describe: Describe | None = None,
        unfinished: UnfinishedDataset | None = None,
    ) -> None:
        """`companions`: those with columns in the frames table; `fsync`: flush to the disk, not only to the system.

        `describe` gives what is known of the dataset so far (keys of the frames table's metadata, `labels`,
        `topics`), for the case that it is never finished. `unfinished`: a dataset to go on with; the
        samples it has must be written again, and only those behind them reach the disk.
        """
        if layout not in ("zip", "directory"):
            raise UsageError(f"layout {layout!r}; known are zip, directory")
        if schema not in schemas.WRITABLE:
            raise UsageError(f"schema {schema!r}; can be written: {', '.join(schemas.WRITABLE)}")
        if "\0" in os.fspath(out):
            raise UsageError(f"{os.fspath(out)!r} is no path")
        self.paths = DatasetPaths(Path(os.path.abspath(out)), check_name(name), layout)
        self.samples = 0
        self.committed = 0
        """Samples that survive the end of the process, and with `fsync` a power cut."""
        self._schema = schema
        self._overwrite = overwrite
        self._fsync = fsync
        self._interval = flush_interval
        self._due = min(flush_interval, _SOONEST)
        self._describe = describe or dict
        self._described: dict[str, object] = {}
        self._frames_columns = schemas.frames_columns(companions)
        self._kept: Counter[str] = Counter()
        self._expected: Iterator[Mapping[str, object]] = iter(())
        self._resumed = unfinished is not None
        if unfinished is None:
            self._begin()
        else:
            self._resume(unfinished)
        self._open = True
        self._flushed = time.monotonic()

    def _begin(self) -> None:
        paths = self.paths
        self._container, self._lock = create_members(paths, overwrite=self._overwrite)
        with ExitStack() as failing:
            self._give_back_with(failing)
            failing.callback(remove_if_possible, paths)
            self._reserve = Reserve(paths.reserve)
            failing.callback(self._reserve.release)
            self._log = RowLog(paths.row_log)
            failing.callback(self._log.close)
            self._annotations = Journal(paths.arrow_journal, ANNOTATION_JOURNAL)
            failing.callback(self._annotations.abandon)
            self._frames = Journal(paths.frames_journal, schemas.journal_schema(self._frames_columns))
            failing.callback(self._frames.abandon)
            self._flush(0)
            failing.pop_all()

    def _give_back_with(self, failing: ExitStack) -> None:
        """Let go of container and lock, should the writer not come into being."""
        failing.callback(give_back, self._lock)
        failing.callback(self._container.abandon)

    def _resume(self, unfinished: UnfinishedDataset) -> None:
        """Go on behind the committed samples of an unfinished dataset, and cut off what lies behind them."""
        paths, handed = self.paths, unfinished.hand_over()
        self._container, self._lock, point = handed.members, handed.lock, handed.point
        with ExitStack() as failing:
            self._give_back_with(failing)
            self._reserve = Reserve(paths.reserve)
            failing.callback(self._reserve.release)
            journals = unfinished.journals
            rows = partial(journals.annotations, point.rows), partial(journals.frames, point.samples)
            columns = ANNOTATION_JOURNAL, schemas.journal_schema(self._frames_columns)
            made = []
            for path, schema, batches in zip((paths.arrow_journal, paths.frames_journal), columns, rows, strict=True):
                journal = Journal(remade_path(path), schema)
                failing.callback(journal.abandon)
                journal.refill(batches())
                made.append(journal)
            self._annotations, self._frames = made
            self._flush(point.bytes)
            for journal, path in zip(made, (paths.arrow_journal, paths.frames_journal), strict=True):
                with reporting(path, "put in place"):
                    os.replace(journal.path, path)
                journal.path = path
            self._log = RowLog(paths.row_log)
            failing.pop_all()
        for batch in read_journal(paths.frames_journal):
            self._kept.update(batch["name"].to_pylist())
        self._expected = (row for batch in read_journal(paths.frames_journal) for row in batch.to_pylist())
        self.committed = point.samples

    def kept(self, sequence: str) -> int:
        """How many of the first samples of a sequence are there already, where an unfinished dataset is continued."""
        return self._kept[sequence]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if self.samples or self.committed:
            self._suspend()
        elif error is None:
            self.abort()
        else:
            with suppress(StorageError):  # the error that led here says more
                self.abort()

    def write(self, sample: Sample) -> None:
        """Append a sample: its members first, then its rows.

        Raises DatasetError for a row that breaks the format; nothing of the sample is kept then. Raises StorageError
        when the disk refuses; `samples` tells whether the sample is among those that can still be completed.
        """
        identity = {"name": sample.sequence, "frame": sample.frame, "timestamp": sample.timestamp}
        if self.samples < self.committed:  # the unfinished dataset has it
            self._compare({**identity, **sample.frame_row})
            self.samples += 1
            return
        rows = [{**identity, **sample.common, **row} for row in sample.annotations or ({},)]
        for row in rows:
            self._annotations.check(row)
        frames_row = {**identity, **sample.frame_row}
        self._frames.check(frames_row)
        names = [member_name(sample.sequence, sample.frame, kind) for kind, _ in sample.members]
        self._container.begin()
        whole = False
        try:
            for name, (_, buffers) in zip(names, sample.members, strict=True):
                self._container.add(name, buffers, sample.timestamp)
            whole = True
        finally:
            if not whole:
                self._container.undo()
        before = self._frames.rows, self._annotations.rows
        for row in rows:
            self._annotations.append(row)
        self._frames.append(frames_row)
        self.samples += 1
        if any("mask" in row for row in rows):  # large, and no text
            self._annotations.flush(sync=False)
            self._frames.flush(sync=False)
        else:
            self._log.append(*before, frames_row, rows)
        age = self.flush_age * 2 if sample.frame_row.get("keyframe") else self.flush_age
        if age >= self._due or self._annotations.heavy or self._frames.heavy:
            self.flush()

    def _compare(self, row: Mapping[str, object]) -> None:
        """Raise DatasetError where a sample is not the one that was written before."""
        expected = next(self._expected)
        for key in ("name", "frame", "timestamp", *(key for key in row if key.endswith("_timestamp"))):
            if row.get(key) != expected.get(key):
                raise DatasetError(
                    f"{self.paths.members_partial}: sample {self.samples + 1} has {key} {expected.get(key)}, now it is "
                    f"{row.get(key)}: it was not made from this recording in this way; use --overwrite to begin anew"
                )

    def flush(self) -> None:
        """Commit all samples so far: they survive the end of the process, and with `fsync` a power cut."""
        if self.samples <= self.committed:
            return
        began = time.monotonic()
        self._flush(self._container.flush(self._fsync))
        self._log.clear()
        self.committed = self.samples
        self._flushed = time.monotonic()
        self._due = min(self._interval, max(_SOONEST, _SPARE * (self._flushed - began)))

    def _flush(self, size: int) -> None:
        """Hand over the rows, the container being `size` bytes long."""
        self._annotations.flush(self._fsync)
        known = {**self._describe(), "schema_version": self._schema}
        checkpoint = {
            "samples": self._frames.rows,
            "rows": self._annotations.rows,
            "bytes": size,
            "synced": self._fsync,
            "description": {key: value for key, value in known.items() if self._described.get(key) != value},
        }
        self._frames.flush(self._fsync, checkpoint)
        self._described = known
        tables = self._annotations.bytes + self._frames.bytes
        self._reserve.hold(tables + tables // 4 + self._container.closing_bytes)

    @property
    def flush_age(self) -> float:
        """Seconds since the last flush."""
        return time.monotonic() - self._flushed

    def finish(
        self,
        frames_metadata: Mapping[str, object],
        labels: Sequence[str] | None = None,
        category_metadata: Mapping[str, object] | None = None,
    ) -> DatasetPaths:
        """Seal the tables, complete the container, rename all into place; returns where they are.

        Raises StorageError when the disk refuses; everything stays as `edgefirst-ros recover` needs it.
        """
        try:
            return self._finish(frames_metadata, labels, category_metadata)
        except StorageError as error:
            raise StorageError(
                f"{error}; once that is mended, `edgefirst-ros recover {self.paths.container}` completes the dataset"
            ) from error

    def _finish(
        self,
        frames_metadata: Mapping[str, object],
        labels: Sequence[str] | None,
        category_metadata: Mapping[str, object] | None,
    ) -> DatasetPaths:
        paths = self.paths
        if self.samples < self.committed:
            raise DatasetError(
                f"{paths.members_partial}: has {self.committed} samples, now there are {self.samples}: it was not made "
                "from this recording in this way; use --overwrite to begin anew"
            )
        self._container.flush(sync=False)  # is it still there?
        self._reserve.release()
        self._annotations.close()
        self._frames.close()
        self._log.close()
        annotations = partial(read_journal, paths.arrow_journal)
        frames = partial(read_journal, paths.frames_journal)
        for journal, rows in (
            (
                self._annotations,
                seal_annotations(annotations, paths.arrow_partial, self._schema, labels, category_metadata),
            ),
            (self._frames, seal_frames(frames, paths.frames_partial, self._frames_columns, frames_metadata)),
        ):
            if rows != journal.rows:
                raise StorageError(f"{journal.path}: {rows} rows can be read back of {journal.rows} written")
        self._container.close()
        if not self._resumed:
            refuse_existing(paths, overwrite=self._overwrite)
        place(paths)
        self._release()
        return paths

    def abort(self) -> None:
        """Remove everything that was written."""
        try:
            self._annotations.abandon()
            self._frames.abandon()
            self._log.close()
            remove_unfinished(self.paths)
        finally:
            self._release()

    def _suspend(self) -> None:
        """Close, keeping the partial files as they are."""
        self._reserve.release()
        for journal in (self._annotations, self._frames):
            with suppress(StorageError):  # what the disk refuses now is rebuilt from the members
                journal.close()
        self._log.close()
        self._release()

    def _release(self) -> None:
        if self._open:
            self._open = False
            self._reserve.release()
            self._container.abandon()
            give_back(self._lock)
