# SPDX-License-Identifier: Apache-2.0
"""Annotations written in any form: Arrow IPC, Parquet or nested JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO, Protocol

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.tables.batches import Batches, even_batches
from edgefirst_ros.dataset.tables.versions import Categories, stored

FORMS = (".arrow", ".parquet", ".json")
"""Suffixes, which name the form."""
ROWS = {".arrow": 1024, ".parquet": 1 << 14, ".json": 1 << 13}
"""Rows of a batch; fixed, so that equal rows give equal bytes."""


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def write_rows(
    rows: Batches,
    file: BinaryIO,
    form: str,
    columns: Mapping[str, Column],
    categories: Mapping[str, Categories],
    metadata: Mapping[str, str],
    version: str,
) -> int:
    """Write rows in working types to an open file; returns their number.

    `columns` are those of the version that are written, `categories` the values of each that is one. Equal rows give
    equal bytes.
    """
    target = schema.arrow_schema(dict(columns)).with_metadata(dict(metadata) or None)
    writer = _writer(file, form, target, columns, metadata, version)
    count = 0
    try:
        for batch in even_batches(rows(), ROWS[form]):
            if form != ".json":
                arrays = [stored(batch, column, categories, version) for column in columns.values()]
                writer.write_batch(pa.record_batch(arrays, schema=target))
            else:
                writer.write_batch(batch)
            count += batch.num_rows
    finally:
        writer.close()
    return count


def _writer(
    file: BinaryIO,
    form: str,
    target: pa.Schema,
    columns: Mapping[str, Column],
    metadata: Mapping[str, str],
    version: str,
) -> _Writer:
    if form == ".arrow":
        arrow: _Writer = pa.ipc.new_file(file, target)
        return arrow
    if form == ".parquet":
        from pyarrow.parquet import ParquetWriter

        parquet: _Writer = ParquetWriter(file, target, compression="zstd")
        return parquet
    from edgefirst_ros.dataset.tables.forms.unflatten import NestedWriter

    return NestedWriter(file, columns, metadata, version)
