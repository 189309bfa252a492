# SPDX-License-Identifier: Apache-2.0
"""Rows of a dataset that is being written: in two journals, committed together, and sealed to its tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.tables.batches import Batches
from edgefirst_ros.dataset.tables.groups import with_groups
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL, Journal, Row, read_journal, remade_path
from edgefirst_ros.dataset.tables.seal import seal_annotations, seal_frames
from edgefirst_ros.errors import StorageError

GROUPING = "grouping"
"""Key of the description of an unfinished dataset: its group rule."""


class RowJournals:
    """Writes the rows of samples to the journal of annotations and to that of frames.

    Owns: both files; used by the thread that writes the dataset.
    """

    def __init__(
        self, paths: DatasetPaths, columns: dict[str, Column], committed: tuple[Batches, Batches] | None = None
    ) -> None:
        """`columns` of the frames table; `committed`: the rows (annotations, frames) to go on behind.

        With these the journals grow beside those of the unfinished dataset, until `put_in_place`. Raises StorageError.
        """
        self._paths = paths
        self._columns = columns
        self._described: dict[str, object] = {}
        with ExitStack() as failing:
            made = []
            for number, path in enumerate((paths.arrow_journal, paths.frames_journal)):
                kind = schema.journal_schema(columns) if number else ANNOTATION_JOURNAL
                journal = Journal(path if committed is None else remade_path(path), kind)
                failing.callback(journal.abandon)
                if committed is not None:
                    journal.refill(committed[number]())
                made.append(journal)
            self._annotations, self._frames = made
            failing.pop_all()

    def put_in_place(self) -> None:
        """Take the names of the journals of the unfinished dataset. Raises StorageError."""
        for journal, path in (
            (self._annotations, self._paths.arrow_journal),
            (self._frames, self._paths.frames_journal),
        ):
            with reporting(path, "put in place"):
                os.replace(journal.path, path)
            journal.path = path

    @property
    def counts(self) -> tuple[int, int]:
        """Number of rows of frames and of annotations so far."""
        return self._frames.rows, self._annotations.rows

    @property
    def bytes(self) -> int:
        """Bytes of both journals."""
        return self._annotations.bytes + self._frames.bytes

    @property
    def heavy(self) -> bool:
        """True if so much is pending that it should be committed now."""
        return self._annotations.heavy or self._frames.heavy

    def check(self, frame: Row, annotations: Sequence[Row]) -> None:
        """Raise DatasetError for rows of a sample that break a rule of the format."""
        for row in annotations:
            self._annotations.check(row)
        self._frames.check(frame)

    def append(self, frame: Row, annotations: Sequence[Row], batch: pa.RecordBatch | None = None) -> None:
        """Add the rows of a sample that `check` let pass; or a `batch` of annotations that keep the rules."""
        if batch is not None:
            self._annotations.append_batch(batch)
        for row in annotations:
            self._annotations.append(row)
        self._frames.append(frame)

    def flush(self) -> None:
        """Hand all rows to the system without a commit. Raises StorageError."""
        self._annotations.flush(sync=False)
        self._frames.flush(sync=False)

    def commit(self, size: int, description: Mapping[str, object], *, sync: bool) -> None:
        """Write all rows, and that they belong to the first `size` bytes of the container; `sync`: wait for the disk.

        Of the `description` of the dataset goes along what is new. Raises StorageError; the next commit tries again.
        """
        self._annotations.flush(sync)
        known = dict(description)
        checkpoint = {
            "samples": self._frames.rows,
            "rows": self._annotations.rows,
            "bytes": size,
            "synced": sync,
            "description": {key: value for key, value in known.items() if self._described.get(key) != value},
        }
        self._frames.flush(sync, checkpoint)
        self._described = known

    def seal(
        self,
        version: str,
        frames_metadata: Mapping[str, object],
        labels: Sequence[str] | None,
        category_metadata: Mapping[str, object] | None,
        group_rule: GroupRule | None,
    ) -> None:
        """Close the journals and write both tables beside them, `version` being the schema's. Raises StorageError."""
        paths = self._paths
        self._annotations.close()
        self._frames.close()
        frames = partial(read_journal, paths.frames_journal)
        annotations = with_groups(group_rule, frames, partial(read_journal, paths.arrow_journal))
        sealed = seal_annotations(annotations, paths.arrow_partial, version, labels, category_metadata)
        _compare(self._annotations, sealed)
        sealed = seal_frames(frames, paths.frames_partial, self._columns, frames_metadata)
        _compare(self._frames, sealed)

    def close(self) -> None:
        """Write what is pending as far as the disk takes it, and close; the rest is rebuilt from the members."""
        for journal in (self._annotations, self._frames):
            with suppress(StorageError):
                journal.close()

    def abandon(self) -> None:
        """Close without writing what is pending; closing twice does nothing."""
        self._annotations.abandon()
        self._frames.abandon()


def _compare(journal: Journal, rows: int) -> None:
    if rows != journal.rows:
        raise StorageError(f"{journal.path}: {rows} rows can be read back of {journal.rows} written")
