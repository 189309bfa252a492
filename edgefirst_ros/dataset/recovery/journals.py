# SPDX-License-Identifier: Apache-2.0
"""Rows (in today's columns) and commits of an unfinished dataset, from its journals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from zlib_ng import zlib_ng

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, safe_name
from edgefirst_ros.dataset.storage.member_index import FrameSet, keys_of
from edgefirst_ros.dataset.tables.cast import cast_rows
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL, read_checkpoints
from edgefirst_ros.dataset.tables.rowlog import is_plain_file, read_log
from edgefirst_ros.errors import DatasetError, StorageError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A commit: a consistent state of container and tables that was handed to the system."""

    samples: int = 0
    rows: int = 0
    """Rows of annotations."""
    bytes: int = 0
    """Bytes of the ZIP."""
    synced: bool = True
    """True if everything was synced to disk before the journal recorded it."""


class Journals:
    """Rows and commits of an unfinished dataset: both journals, and the log of the rows after them.

    Journals of another version give their rows in today's columns. What this version does not understand ends the
    rows of its file; `not_understood` says why, by path, and such a file must be kept. Raises StorageError.
    """

    def __init__(self, paths: DatasetPaths) -> None:
        self.paths = paths
        self.description: dict[str, Any] = {}
        """Metadata of the dataset at its last commit."""
        self.companions: list[str] = list(schema.DEFAULT_COMPANIONS)
        self.points: list[Checkpoint] = [Checkpoint()]
        self.not_understood: dict[Path, str] = {}
        self._logged_frames: list[pa.RecordBatch] = []
        self._logged_annotations: list[pa.RecordBatch] = []
        self._read_log(*self._read_commits())

    @property
    def written_here(self) -> bool:
        """True if any journal exists: without them the members are another tool's."""
        files = self.paths.frames_journal, self.paths.arrow_journal, self.paths.row_log
        return any(map(is_plain_file, files))

    def annotations(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of annotations, all or the first `rows`."""
        return _first(chain(self._annotations_journal(), self._logged_annotations), rows)

    def frames(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of frames, all or the first `rows`."""
        journal = (batch for batch, _ in self._frames_journal())
        return _first(chain(journal, self._logged_frames), rows)

    def _annotations_journal(self) -> Iterator[pa.RecordBatch]:
        return (batch for batch, _ in self._batches(self.paths.arrow_journal, lambda _: ANNOTATION_JOURNAL))

    def _frames_journal(self) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
        return self._batches(self.paths.frames_journal, _frames_columns)

    def _read_commits(self) -> tuple[int, int]:
        """Collect the commits; returns how many rows of frames and of annotations the journals have."""
        rows = order = 0
        ends = {0: 0}  # rows up to the end of each batch of annotations, and the checksum of their samples
        for batch in self._annotations_journal():
            order, rows = _order_of(batch, order), rows + batch.num_rows
            ends[rows] = order
        samples = order = 0
        for batch, checkpoint in self._frames_journal():
            self.companions = companions_of(batch.schema.names)
            order, samples = _order_of(batch, order), samples + batch.num_rows
            if checkpoint is None:
                continue
            point = _point(checkpoint)
            if point is not None and point.samples == samples and ends.get(point.rows) == order:
                self.points.append(point)
                description = checkpoint.get("description")
                self.description.update(description if isinstance(description, dict) else {})
        return samples, rows

    def _read_log(self, samples: int, rows: int) -> None:
        """Add the rows of the log, which follow those of the journals without a gap."""
        frames = schema.journal_schema(schema.frames_columns(self.companions))
        for logged in read_log(self.paths.row_log):
            try:
                if logged.samples == samples:
                    self._logged_frames.append(_logged([logged.frame], frames))
                    samples += 1
                if logged.rows == rows:
                    self._logged_annotations.append(_logged(logged.annotations, ANNOTATION_JOURNAL))
                    rows += len(logged.annotations)
            except (DatasetError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                self.not_understood[self.paths.row_log] = str(error)
                return

    def _batches(
        self, path: Path, wanted: Callable[[pa.Schema], pa.Schema]
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
        """Yield the batches of a journal, in the columns `wanted` for those it has, with their checkpoints."""
        before = FrameSet()
        try:
            for stored, checkpoint in read_checkpoints(path) if is_plain_file(path) else ():
                batch = cast_rows(stored, wanted(stored.schema))
                check_rows(batch)
                keys = set(keys_of(batch))
                if any(key in before for key in keys):
                    raise DatasetError("the rows of a sample are in two places")
                for key in keys:
                    before.add(*key)
                yield batch, checkpoint
        except StorageError:
            raise
        except DatasetError as error:
            self.not_understood[path] = str(error)


def _frames_columns(found: pa.Schema) -> pa.Schema:
    """Return the columns of a journal of frames that has the companions of another one."""
    return schema.journal_schema(schema.frames_columns(companions_of(found.names)))


def companions_of(columns: Collection[str]) -> list[str]:
    """Return the companions that have a column among those of a table of frames."""
    return [base for base in schema.COMPANIONS if f"{base}_timestamp" in columns or f"{base}_skew" in columns]


def _order_of(batch: pa.RecordBatch, order: int) -> int:
    """Return the checksum of the samples before, `order`, continued by those of a batch of either journal."""
    for name, frame in dict.fromkeys(keys_of(batch)):
        order = zlib_ng.crc32(f"{name}/{frame}".encode(), order)
    return order


def check_rows(batch: pa.RecordBatch) -> None:
    """Raise DatasetError where a row names no sample."""
    if any(batch[name].null_count for name in ("name", "frame", "timestamp")):
        raise DatasetError("a row has no name, frame or timestamp")
    for name in batch["name"].unique().to_pylist():
        if safe_name(name) != name:
            raise DatasetError(f"{name!r} cannot name a sequence")


def _point(checkpoint: Mapping[str, object]) -> Checkpoint | None:
    samples, rows, size = (checkpoint.get(key) for key in ("samples", "rows", "bytes"))
    if not (isinstance(samples, int) and isinstance(rows, int) and isinstance(size, int)):
        return None
    if min(samples, rows, size) < 0:
        return None
    return Checkpoint(samples, rows, size, checkpoint.get("synced") is True)


def _logged(rows: Sequence[dict[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    """Return rows of the log as a batch. Raises DatasetError, and what Arrow raises for values that do not fit."""
    for name in set().union(*rows):
        if name not in columns.names:
            raise DatasetError(f"this version knows no column {name!r}")
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    batch.validate(full=True)
    check_rows(batch)
    return batch


def _first(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yield all rows, or the first `rows`."""
    left = rows
    for batch in batches:
        if left is not None and left < batch.num_rows:
            if left:
                yield batch.slice(0, left)
            return
        left = None if left is None else left - batch.num_rows
        yield batch
