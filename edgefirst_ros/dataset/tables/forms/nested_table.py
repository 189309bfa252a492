# SPDX-License-Identifier: Apache-2.0
"""Nested JSON as a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.forms.nested import LAYOUT, NestedFile
from edgefirst_ros.dataset.tables.forms.tally import Tally
from edgefirst_ros.dataset.tables.versions import count_columns, stored, written_columns
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits


class NestedTable(TableFile):
    """Nested JSON as the Arrow file of its version would be, nothing left out: columns, types, orders.

    The metadata say the layout of the boxes, also where JSON takes it for granted. All of it is read at once. Raises
    DatasetError as NestedFile does.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._checked = False
        self._limits = limits
        self._parquet = False
        self._nested = NestedFile(path, Tally())
        self._size = self._nested.size
        there = {field.name: field.type for field in self._nested.schema}
        self.metadata = dict(self._nested.metadata)
        if not self._nested.bare or "mask" in there:
            self.metadata.setdefault("schema_version", schema.DEFAULT_VERSION)
        if "box2d" in there:
            self.metadata.setdefault("box2d_format", LAYOUT)
        self._version = schema.nearest(self.metadata.get("schema_version", schema.UNNAMED_VERSION))
        known = schema.columns(self._version)
        found = count_columns(self._nested.batches, {name: column for name, column in known.items() if name in there})
        self._columns = written_columns(found, known)
        held = {*self._columns, *(("polygon",) if "polygon" not in known else ())}
        self._columns |= {name: schema.Column(name, kind) for name, kind in there.items() if name not in held}
        self._categories = found.categories
        self.schema = schema.arrow_schema(self._columns)

    def content(self) -> bytes:
        """Return the bytes of the file."""
        return self.path.read_bytes()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(batch.num_rows for batch in self._nested.batches())

    def _stored(self) -> Iterator[pa.RecordBatch]:
        for batch in self._nested.batches():
            arrays = [stored(batch, column, self._categories, self._version) for column in self._columns.values()]
            yield pa.record_batch(arrays, schema=self.schema)
