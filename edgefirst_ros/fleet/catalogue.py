# SPDX-License-Identifier: Apache-2.0
"""All states as one table: read anew where they changed, kept as DST/catalogue.parquet."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import polars as pl

from edgefirst_ros import streams
from edgefirst_ros.dataset.objects.store import Store, StoredObject, open_store
from edgefirst_ros.errors import DatasetError, ObjectStoreError, UsageError
from edgefirst_ros.fleet.layout import Layout
from edgefirst_ros.fleet.state import LARGEST, State

AT_ONCE = 32
"""States that are read side by side."""
BATCH = 5000
LABEL, SENSOR = "label_", "samples_"
"""What the columns of numbers of samples by label and by sensor begin with."""
SENSORS = {sensor.key: f"{SENSOR}{sensor.column}" for sensor in streams.with_column()} | {"model": f"{SENSOR}model"}
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
    **dict.fromkeys(SENSORS.values(), pl.Int64),
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
"""Columns, besides one for each label."""


def read_catalogue(layout: Layout) -> pl.DataFrame:
    """Return the table as it was written last; no rows where there is none, or none that is understood."""
    store = open_store(layout.root)
    found = store.stat(layout.catalogue.key)
    if found is None:
        return pl.DataFrame(schema=SCHEMA)
    try:
        table = pl.read_parquet(io.BytesIO(b"".join(store.stream(found))))
        return table if all(table.schema.get(name) == kind for name, kind in SCHEMA.items()) else _empty()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # the states have it all
        return _empty()


def current(layout: Layout, note: Callable[[str], None] = lambda text: None) -> pl.DataFrame:
    """Return the table of all states that there are now, in order of their keys; only changed ones are read.

    A state that cannot be understood is none, and is noted. Raises ObjectStoreError.
    """
    store = open_store(layout.root)
    there = list(store.objects(layout.states.key))
    listed = pl.DataFrame(
        {"state": [layout.relative(o.key) for o in there], "state_etag": [o.etag for o in there]},
        schema={"state": pl.String, "state_etag": pl.String},
    )
    if not there:
        return _empty()
    kept = read_catalogue(layout).join(listed, on=["state", "state_etag"], how="semi")
    known = set(kept["state"])
    changed = (found for found in there if layout.relative(found.key) not in known)
    tables = [kept, *_tables(layout, store, changed, note)]
    table = pl.concat(tables, how="diagonal").sort("state")
    labels = pl.selectors.starts_with(LABEL)
    numbers = table.select(labels.fill_null(0))
    used = sorted(column.name for column in numbers if column.max())
    return table.select(*SCHEMA).hstack(numbers.select(used))


def write_catalogue(layout: Layout, table: pl.DataFrame) -> None:
    """Put the table in place, unless the same is there. Raises ObjectStoreError."""
    if table.equals(read_catalogue(layout)) and len(table):
        return
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    open_store(layout.root).write(layout.catalogue.key, buffer.getvalue())


def choose(table: pl.DataFrame, where: str | None) -> pl.DataFrame:
    """Return the rows that an SQL condition chooses. Raises UsageError where it is none, or names no column."""
    if where is None:
        return table
    try:
        return pl.SQLContext(catalogue=table).execute(f"SELECT * FROM catalogue WHERE {where}", eager=True)  # noqa: S608
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        said = str(error).splitlines()[0]
        raise UsageError(f"--where {where!r}: {said}; columns: {', '.join(table.columns)}") from None


def row_of(state: State, place: str, etag: str) -> dict[str, Any]:
    """Return a state as a row."""
    import json

    row = state.model_dump(exclude={"sensors", "labels", "counts"})
    row |= {"bytes": state.total_bytes, "container": state.container, "state": place, "state_etag": etag}
    row["counts"] = json.dumps(state.counts, separators=(",", ":"))
    row |= {column: state.sensors.get(key, 0) for key, column in SENSORS.items()}
    return row | {f"{LABEL}{label}": number for label, number in state.labels.items()}


def _tables(
    layout: Layout, store: Store, changed: Iterable[StoredObject], note: Callable[[str], None]
) -> Iterator[pl.DataFrame]:
    """Read states, so many at a time that they take little memory."""

    def read(found: StoredObject) -> dict[str, Any] | str:
        place = layout.relative(found.key)
        try:
            if found.size > LARGEST:
                raise DatasetError(f"{place}: has {found.size} bytes, no state has more than {LARGEST}")
            return row_of(State.of_json(store.read(found.key), place), place, found.etag)
        except ObjectStoreError:
            raise
        except DatasetError as error:
            return str(error)

    waiting = iter(changed)
    with ThreadPoolExecutor(1 if layout.root.local else AT_ONCE) as pool:
        while batch := list(islice(waiting, BATCH)):
            rows = []
            for row in pool.map(read, batch):
                if isinstance(row, str):
                    note(f"{row}; it counts as not done")
                else:
                    rows.append(row)
            yield _table(rows)


def _table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    labels = sorted({name for row in rows for name in row if name.startswith(LABEL)})
    return pl.DataFrame(rows, schema={**SCHEMA, **dict.fromkeys(labels, pl.Int64)})


def _empty() -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMA)
