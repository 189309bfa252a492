# SPDX-License-Identifier: Apache-2.0
"""Opens a table of a dataset as a file: Arrow IPC, Parquet as other tools write it, or nested JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.tables.stated_sizes import count_batches, count_pages, expanded_bytes
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Budget, Limits

if TYPE_CHECKING:
    import polars as pl


ROWS_AT_ONCE = 1 << 14
"""Rows that `TableFile.frames` gives at a time, or some more."""
ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"
ROWS = 65536


class TableFile:
    """An open table: `schema` (Arrow, without metadata), `metadata` (text by key), rows batch by batch.

    The file is read, never mapped: another process that cuts it gives an error, and no death. Raises DatasetError where
    the file is no table, a link or not a regular file, its rows are broken, or it states that it unpacks to more than
    `limits` let it.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS, *, fd: int | None = None) -> None:
        """`fd`: a descriptor of its bytes, which is closed here; `path` is then what messages call it."""
        self.path = path
        self._checked = False
        self._limits = limits
        self._at_once = ROWS
        fd = open_file(path) if fd is None else fd
        try:
            start = os.pread(fd, len(ARROW_MAGIC), 0)
            self._size = os.fstat(fd).st_size
            self._parquet = start != ARROW_MAGIC
            if not self._parquet:
                count_batches(fd, self._size, self._budget())
                self._bytes = _native(fd)
                self._file: Any = pa.ipc.open_file(self._bytes)
                schema = self._file.schema
            elif start.startswith(PARQUET_MAGIC):
                schema = self._open_parquet(fd)
            else:
                stream = "; an Arrow IPC stream?" if start[:4] == b"\xff\xff\xff\xff" else ""
                raise DatasetError(f"{path}: begins with {start!r}, expected {ARROW_MAGIC!r} (Arrow IPC file){stream}")
            self.schema = schema.remove_metadata()
            _check_names(self.schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read as a table: {error}") from error
        finally:
            os.close(fd)
        self.metadata = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (schema.metadata or {}).items()
        }

    def _open_parquet(self, fd: int) -> Any:
        from pyarrow.parquet import ParquetFile

        self._bytes = _native(fd)
        self._file = ParquetFile(self._bytes)
        budget = self._budget()
        longest = count_pages(fd, self._file.metadata, budget)
        self._at_once = max(1, min(ROWS, budget.unpacked // max(1, longest)))
        # polars leaves the metadata of the file out of the Arrow schema that it stores in it
        stored = dict(self._file.metadata.metadata or {})
        stored.pop(b"ARROW:schema", None)
        return self._file.schema_arrow.with_metadata(stored)

    def _budget(self) -> Budget:
        return Budget.of_file(self.path, self._size, self._limits)

    def content(self) -> bytes:
        """Return the bytes of the file, also where it is held in memory. Raises DatasetError."""
        try:
            return bytes(self._bytes.read_at(self._size, 0))
        except OSError as error:
            raise DatasetError(f"{self.path}: cannot be read: {error}") from error

    @property
    def rows(self) -> int:
        """Number of rows."""
        if self._parquet:
            return int(self._file.metadata.num_rows)
        return sum(batch.num_rows for batch in self._stored())

    def batches(self) -> Iterator[Any]:
        """Yield the record batches, on the first pass fully validated: lengths, offsets, UTF-8, dictionary indices."""
        budget, found = self._budget(), 0
        try:
            for batch in self._stored():
                found += batch.num_rows
                if not self._checked:
                    batch.validate(full=True)
                    budget.take(rows=batch.num_rows, unpacked=sum(map(expanded_bytes, batch.columns)))
                    budget.take(unpacked=batch.nbytes if self._parquet else 0)
                yield batch
            if found != self.rows:
                raise ValueError(f"{self.rows} are announced, {found} are there")
            self._checked = True
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self.path}: rows cannot be read: {error}") from error

    def values(self, names: Sequence[str]) -> dict[str, list[Any]]:
        """Return the values of existing columns as Python objects, without loading polars.

        Raises DatasetError.
        """
        found: dict[str, list[Any]] = {name: [] for name in names}
        for batch in self.batches():
            for name, values in found.items():
                values.extend(_plain(batch.column(name)))
        return found

    def frame(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return all rows, of `columns` the existing ones. Raises DatasetError, also for types that polars lacks."""
        names = [name for name in self.schema.names if columns is None or name in columns]
        return self._in_polars(names, self.batches())

    def frames(self, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Yield the rows of existing columns, some batches at a time: these hold all columns. Raises as `frame`."""
        waiting, rows = list[Any](), 0
        for batch in self.batches():
            waiting.append(batch)
            rows += batch.num_rows
            if rows >= ROWS_AT_ONCE:
                yield self._in_polars(columns, waiting)
                waiting, rows = [], 0
        if waiting:
            yield self._in_polars(columns, waiting)

    def _in_polars(self, names: Sequence[str], batches: Iterable[Any]) -> pl.DataFrame:
        import polars as pl

        try:
            schema = pa.schema([self.schema.field(name) for name in names])
            table = pa.Table.from_batches([batch.select(names) for batch in batches], schema)
            return pl.DataFrame(pl.from_arrow(table.unify_dictionaries()))
        except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
            raise DatasetError(f"{self.path}: cannot be read as a table: {error}") from error

    def _stored(self) -> Iterator[Any]:
        if self._parquet:
            yield from self._file.iter_batches(self._at_once)
        else:
            for number in range(self._file.num_record_batches):
                yield self._file.get_batch(number)


def _plain(array: pa.Array) -> list[Any]:
    if not pa.types.is_dictionary(array.type):
        return list(array.to_pylist())
    entries = array.dictionary.to_pylist()
    return [None if index is None else entries[index] for index in array.indices.to_pylist()]


def _native(fd: int) -> Any:
    """Return the same file opened by pyarrow itself.

    Of a file of Python its threads hold buffers that only Python can free; one that is freed while the interpreter ends
    aborts the process.
    """
    return pa.OSFile(f"/dev/fd/{fd}")


def _check_names(fields: Iterable[Any]) -> None:
    """Raise ValueError for names that are no UTF-8 or come twice: here, and not somewhere later."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise ValueError(f"two columns are named {field.name!r}")
        seen.add(field.name)
        _check_names(field.type.field(number) for number in range(field.type.num_fields))


SUFFIXES = (".arrow", ".parquet", ".json")
"""Suffixes of annotation files; of several files the first counts."""


def annotation_forms(arrow: Path) -> list[Path]:
    """Return the paths that the annotations of a dataset may have: NAME.arrow, NAME.parquet, NAME.json."""
    return [arrow.with_name(arrow.name.removesuffix(SUFFIXES[0]) + suffix) for suffix in SUFFIXES]


def annotation_path(arrow: Path) -> Path | None:
    """Return NAME.arrow, else NAME.parquet or NAME.json beside it; None without any of them."""
    return next((path for path in annotation_forms(arrow) if os.path.lexists(path)), None)


def open_annotations(path: Path, limits: Limits = DEFAULT_LIMITS) -> TableFile:
    """Open annotations of any format as a table. Raises DatasetError if the file is not one."""
    if path.suffix != SUFFIXES[-1]:
        return TableFile(path, limits)
    from edgefirst_ros.dataset.tables.json_form import NestedTable

    return NestedTable(path, limits)
