# SPDX-License-Identifier: Apache-2.0
"""All states as one table, kept as DST/catalogue.parquet; only changed states are read again."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import polars as pl

from edgefirst_ros.config import MODEL, SENSORS
from edgefirst_ros.config.load import suggest_nearest
from edgefirst_ros.dataset.objects.bucket import map_in_threads
from edgefirst_ros.dataset.objects.location import StoredObject
from edgefirst_ros.dataset.objects.store import Store, open_store
from edgefirst_ros.errors import DatasetError, ObjectStoreError, UsageError
from edgefirst_ros.fleet.state import LARGEST, Layout, RecordingState

AT_ONCE = 32
BATCH = 10_000
"""States that are listed and read before they are packed."""
LABEL, SENSOR = "label_", "samples_"
"""Prefixes of the columns with the number of samples by label and by sensor."""
MEMBERS = pl.List(pl.Struct({"key": pl.String, "bytes": pl.Int64, "etag": pl.String}))
SCHEMA: Mapping[str, Any] = {
    "source": pl.String,
    "size": pl.Int64,
    "etag": pl.String,
    "sha256": pl.String,
    "settings": pl.String,
    "software": pl.String,
    "verdict": pl.String,
    "name": pl.String,
    "samples": pl.Int64,
    **{f"{SENSOR}{key.replace('.', '_')}": pl.Int64 for key in (*SENSORS, MODEL)},
    "first": pl.Int64,
    "last": pl.Int64,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
    "bytes": pl.Int64,
    "group": pl.String,
    "loss": pl.String,
    "error": pl.String,
    "container": pl.String,
    "members": MEMBERS,
    "counts": pl.String,
    "state": pl.String,
    "state_etag": pl.String,
}
"""Columns, in addition to those for labels and for further instances of sensors."""


class Catalogue:
    """The current table, sorted by the keys of the states; about 200 bytes a row, compressed.

    Threads may share it.
    """

    def __init__(self, rows: pl.LazyFrame, number: int, *, changed: bool) -> None:
        """`changed`: True if it differs from the stored one."""
        self.rows, self._number, self.changed = rows, number, changed

    def __len__(self) -> int:
        return self._number

    def choose(self, where: str | None, *columns: str | pl.Expr) -> pl.DataFrame:
        """Return columns, by default all, of the rows that an SQL condition chooses.

        Raises UsageError where it is not a condition, or names no column.
        """
        try:
            query = f"SELECT * FROM catalogue WHERE {where}"  # noqa: S608
            rows = self.rows if where is None else pl.SQLContext(catalogue=self.rows).execute(query, eager=False)
            return rows.select(columns or pl.all()).collect()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            said = str(error).splitlines()[0].partition("; valid columns")[0]
            names = sorted(self.rows.collect_schema().names())
            wrong = re.search(r'column "(.+?)"', said)
            near = suggest_nearest(wrong[1], names, "") if wrong else ""
            raise UsageError(f"--where {where!r}: {said}{near}; columns: {', '.join(names)}") from None


def update_catalogue(layout: Layout, note: Callable[[str], None] = lambda text: None) -> Catalogue:
    """Return the table of all present states; only changed ones are read, some thousand at a time.

    A state that cannot be understood is ignored and noted. Raises ObjectStoreError.
    """
    store = open_store(layout.root)
    stored = _scan_stored(layout, store)
    known = stored.select("state", "state_etag").with_row_index().collect()
    kept = [pl.Series([], dtype=pl.get_index_type())]
    new: list[pl.LazyFrame] = []
    number, states = 0, store.objects(layout.states.key)
    while batch := {layout.relative(found.key): found for found in islice(states, BATCH)}:
        listed = pl.DataFrame({"state": list(batch), "state_etag": [found.etag for found in batch.values()]})
        first = known["state"].search_sorted(min(batch), "left")
        last = known["state"].search_sorted(max(batch), "right")
        same = known.slice(first, last - first).join(listed, on=["state", "state_etag"], how="semi")
        kept.append(same["index"])
        there = set(same["state"])
        table = _read(layout, store, [found for place, found in batch.items() if place not in there], note)
        if len(table):
            new.append(pl.scan_parquet(_pack_table(table.lazy())))
        number += len(same) + len(table)
    gone = known.filter(~pl.col("index").is_in(pl.concat(kept).implode()))["state"]
    if not new and not len(gone):
        return Catalogue(stored, number, changed=False)
    rows = _merge_rows(stored.filter(~pl.col("state").is_in(gone.implode())), new)
    most = rows.select((pl.selectors.starts_with(LABEL, SENSOR) - pl.selectors.by_name(SCHEMA)).max()).collect()
    used = sorted(column.name for column in most if column.item())
    return Catalogue(rows.select(*SCHEMA, *used), number, changed=True)


def write_catalogue(layout: Layout, catalogue: Catalogue) -> None:
    """Write the table, unless the stored one is the same. Raises ObjectStoreError."""
    store = open_store(layout.root)
    if catalogue.changed or store.stat(layout.catalogue.key) is None:
        store.write(layout.catalogue.key, _pack_table(catalogue.rows))


def make_row(state: RecordingState, place: str, etag: str) -> dict[str, Any]:
    """Return a state as a row."""
    row = state.model_dump(exclude={"sensors", "labels", "counts"})
    container = state.members[-1].key if state.members else None
    row |= {"bytes": state.total_bytes, "container": container, "state": place, "state_etag": etag}
    row["counts"] = json.dumps(state.counts, separators=(",", ":"))
    row |= {name: 0 for name in SCHEMA if name.startswith(SENSOR)}
    row |= {f"{SENSOR}{key.replace('.', '_')}": number for key, number in state.sensors.items()}
    return row | {f"{LABEL}{label}": number for label, number in state.labels.items()}


def _scan_stored(layout: Layout, store: Store) -> pl.LazyFrame:
    """Return the stored table; no rows if it is missing, or it is not understood."""
    found = store.stat(layout.catalogue.key)
    if found is not None:
        try:
            table = pl.scan_parquet(b"".join(store.stream(found)))
            schema = table.collect_schema()
            table.select(pl.all().count()).collect()  # whether all can be read
            if all(schema.get(name) == kind for name, kind in SCHEMA.items()):
                return table
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the states have it all
            pass
    return pl.LazyFrame(schema=SCHEMA)


def _merge_rows(stored: pl.LazyFrame, new: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Merge the rows of two sorted tables; counts of labels and sensors that one does not have are 0."""
    read = pl.concat(new, how="diagonal") if new else pl.LazyFrame(schema=SCHEMA)
    schemas = stored.collect_schema(), read.collect_schema()
    counted = (name for name in schemas[0].keys() | schemas[1].keys() if name.startswith((LABEL, SENSOR)))
    labels = sorted(name for name in counted if name not in SCHEMA)
    whole = [
        table.with_columns(pl.lit(None, pl.Int64).alias(label) for label in labels if label not in schema)
        .select(*SCHEMA, *labels)
        .with_columns(pl.col(labels).fill_null(0))
        for table, schema in zip((stored, read), schemas, strict=True)
    ]
    return whole[0].merge_sorted(whole[1], "state")


def _pack_table(table: pl.LazyFrame) -> bytes:
    buffer = io.BytesIO()
    table.sink_parquet(buffer, row_group_size=BATCH)
    return buffer.getvalue()


def _read(layout: Layout, store: Store, changed: Sequence[StoredObject], note: Callable[[str], None]) -> pl.DataFrame:
    """Read states side by side, in order of their keys."""

    def read(found: StoredObject) -> dict[str, Any] | str:
        place = layout.relative(found.key)
        try:
            if found.size > LARGEST:
                raise DatasetError(f"{place}: has {found.size} bytes, no state has more than {LARGEST}")
            return make_row(RecordingState.of_json(store.read(found.key), place), place, found.etag)
        except ObjectStoreError:
            raise
        except DatasetError as error:
            return str(error)

    rows: list[dict[str, Any]] = []
    for row in map(read, changed) if layout.root.local else map_in_threads(read, changed, AT_ONCE):
        if isinstance(row, str):
            note(f"{row}; it counts as not done")
        else:
            rows.append(row)
    labels = sorted({name for row in rows for name in row if name.startswith((LABEL, SENSOR))} - SCHEMA.keys())
    return pl.DataFrame(rows, schema={**SCHEMA, **dict.fromkeys(labels, pl.Int64)}).sort("state")
