# SPDX-License-Identifier: Apache-2.0
"""Tables of a finished dataset whose archive was cut: rows without members go, all others stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import KIND_OF, DatasetPaths, keys_of
from edgefirst_ros.dataset.recovery.journals import check_rows, companions_of
from edgefirst_ros.dataset.sequences import frames_metadata
from edgefirst_ros.dataset.storage.lock import create_anew, reporting
from edgefirst_ros.dataset.storage.zip_write import missing
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.values import cast_rows
from edgefirst_ros.dataset.tables.write import json_text
from edgefirst_ros.errors import DatasetError, TooLargeError
from edgefirst_ros.limits import Limits

Kinds = Callable[[str, int], frozenset[str]]
"""Returns the kinds of members that a sample has."""


class FinishedTables:
    """Tables beside an archive without journals.

    `frames`: the table of frames, if this software wrote it; tables of another tool are not to be changed.
    Raises TooLargeError.
    """

    def __init__(self, paths: DatasetPaths, limits: Limits) -> None:
        self.readable: dict[Path, TableFile] = {}
        self.unreadable: dict[Path, DatasetError] = {}
        self.frames: FinishedFrames | None = None
        for path in filter(os.path.exists, (paths.arrow, paths.frames)):
            try:
                table = TableFile(path, limits)
                for _ in table.batches():
                    pass
            except TooLargeError:
                raise
            except DatasetError as error:
                self.unreadable[path] = error
            else:
                self.readable[path] = table
        if paths.frames in self.readable:
            with suppress(DatasetError):
                self.frames = FinishedFrames(self.readable[paths.frames])


class FinishedFrames:
    """A finished frames table that this software wrote; `description`: its metadata as plain values.

    Raises DatasetError for a table that does not name the software, or has rows that are not as the format says.
    """

    def __init__(self, table: TableFile) -> None:
        self._table = table
        self.description = frames_metadata(table.path, table.metadata)
        software = self.description.get("software")
        if not isinstance(software, dict) or not software.get("name"):
            raise DatasetError(f"{table.path}: does not name the software that wrote it")
        self._columns = schema.journal_schema(schema.frames_columns(companions_of(table.schema.names)))
        for batch in self.batches():
            check_rows(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the columns of a journal."""
        return map(self._cast, self._table.batches())

    def write(self, out: Path, kinds: Kinds, changed: Mapping[str, object]) -> None:
        """Write the table without rows of samples that are gone; stamps of members that are gone become null.

        `changed`: metadata that take the place of those there. Raises DatasetError.
        """
        metadata = {**self._table.metadata, **{key: json_text(value) for key, value in changed.items()}}
        _write(self._table, out, self._kept(kinds), metadata)

    def _cast(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        known = [name for name in self._columns.names if name in stored.schema.names]
        return cast_rows(stored.select(known), self._columns)

    def _kept(self, kinds: Kinds) -> Iterator[pa.RecordBatch]:
        for stored in self._table.batches():
            rows = self._cast(stored)
            found = [kinds(*key) for key in keys_of(rows)]
            batch = stored
            for base, kind in KIND_OF.items():
                there = pa.array([kind in own for own in found], pa.bool_())
                for name in {f"{base}_timestamp", f"{base}_skew"} & {*stored.schema.names}:
                    values, place = stored[name], stored.schema.get_field_index(name)
                    nulled = pc.if_else(there, values, pa.scalar(None, values.type))
                    batch = batch.set_column(place, stored.schema.field(place), nulled)
            kept = [bool(own) or not missing(row, own) for row, own in zip(rows.to_pylist(), found, strict=True)]
            yield batch.filter(pa.array(kept, pa.bool_()))


def write_annotations(table: TableFile, out: Path, stays: Callable[[tuple[str, int]], bool]) -> None:
    """Write a finished table of annotations with the rows of samples that stay. Raises DatasetError."""

    def kept() -> Iterator[pa.RecordBatch]:
        for batch in table.batches():
            there = [None in key or stays(key) for key in keys_of(batch)]
            yield batch.filter(pa.array(there, pa.bool_()))

    _write(table, out, kept(), table.metadata)


def _write(table: TableFile, out: Path, batches: Iterator[pa.RecordBatch], metadata: Mapping[str, str]) -> None:
    target = table.schema.with_metadata(dict(metadata) or None)
    with reporting(out, "write"), open(create_anew(out), "wb", buffering=1 << 20) as file:
        try:
            with pa.ipc.new_file(file, target) as writer:
                for batch in batches:
                    writer.write_batch(pa.record_batch(batch.columns, schema=target))
        except pa.ArrowException as error:
            raise DatasetError(f"{table.path}: cannot be rewritten: {error}") from error
        file.flush()
        os.fsync(file.fileno())
