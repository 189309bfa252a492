# SPDX-License-Identifier: Apache-2.0
"""One table of a dataset as a file: Arrow IPC, or Parquet as other tools write it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.ipc

from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    import polars as pl

ARROW_MAGIC = b"ARROW1"
PARQUET_MAGIC = b"PAR1"
ROWS = 65536


class TableFile:
    """An open table: `schema` (Arrow, without metadata), `metadata` (text by key), rows batch by batch.

    Raises DatasetError where the file is no table, or its rows are broken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked = False
        try:
            with path.open("rb") as handle:
                start = handle.read(len(ARROW_MAGIC))
            if start == ARROW_MAGIC:
                self._file: Any = pa.ipc.open_file(pa.memory_map(str(path)))
                self._parquet = False
                schema = self._file.schema
            elif start.startswith(PARQUET_MAGIC):
                from pyarrow.parquet import ParquetFile

                self._file = ParquetFile(path)
                self._parquet = True
                # polars leaves the metadata of the file out of the Arrow schema that it stores in it
                stored = dict(self._file.metadata.metadata or {})
                stored.pop(b"ARROW:schema", None)
                schema = self._file.schema_arrow.with_metadata(stored)
            else:
                stream = "; an Arrow IPC stream?" if start[:4] == b"\xff\xff\xff\xff" else ""
                raise DatasetError(f"{path}: begins with {start!r}, expected {ARROW_MAGIC!r} (Arrow IPC file){stream}")
            self.schema = schema.remove_metadata()
            _check_names(self.schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{path}: cannot be read as a table: {error}") from error
        self.metadata = {
            key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
            for key, value in (schema.metadata or {}).items()
        }

    @property
    def rows(self) -> int:
        """How many rows there are."""
        if self._parquet:
            return int(self._file.metadata.num_rows)
        return sum(batch.num_rows for batch in self._stored())

    def batches(self) -> Iterator[Any]:
        """The record batches, on the first pass checked whole: lengths, offsets, UTF-8 and dictionary indices."""
        try:
            for batch in self._stored():
                if not self._checked:
                    batch.validate(full=True)
                yield batch
            self._checked = True
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DatasetError(f"{self.path}: rows cannot be read: {error}") from error

    def frame(self) -> pl.DataFrame:
        """All rows. Raises DatasetError, also for types that polars does not have."""
        import polars as pl

        try:
            table = pa.Table.from_batches(list(self.batches()), self.schema).unify_dictionaries()
            frame = pl.from_arrow(table)
        except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
            raise DatasetError(f"{self.path}: cannot be read as a table: {error}") from error
        if not isinstance(frame, pl.DataFrame):
            raise DatasetError(f"{self.path}: is no table")
        return frame

    def _stored(self) -> Iterator[Any]:
        if self._parquet:
            yield from self._file.iter_batches(ROWS)
        else:
            for number in range(self._file.num_record_batches):
                yield self._file.get_batch(number)


def _check_names(fields: Iterable[Any]) -> None:
    """Raise ValueError for names that are no UTF-8 or come twice: here, and not somewhere later."""
    seen: set[str] = set()
    for field in fields:
        if field.name in seen:
            raise ValueError(f"two columns are named {field.name!r}")
        seen.add(field.name)
        _check_names(field.type.field(number) for number in range(field.type.num_fields))
