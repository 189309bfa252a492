# SPDX-License-Identifier: Apache-2.0
"""Rows in working types (`schema.WORKING`) as a schema version stores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.tables.batches import Batches
from edgefirst_ros.dataset.tables.forms.variants import fixed, numbers_of
from edgefirst_ros.dataset.tables.outline import outline_of_png
from edgefirst_ros.dataset.tables.rings import is_valid, join


class Categories:
    """Values of a categorical column, in order, and the index of each."""

    def __init__(self, values: list[str]) -> None:
        self._values = pa.array(values, schema.TEXT)
        self._places = {value: place for place, value in enumerate(values)}

    def encode(self, array: pa.Array) -> pa.Array:
        """Return texts as a dictionary of all values."""
        # Only those of this array are looked up: Arrow would sort all of them anew for each.
        own = array.dictionary_encode()
        places = pa.array([self._places[value] for value in own.dictionary.to_pylist()], pa.uint32())
        return pa.DictionaryArray.from_arrays(places.take(own.indices), self._values)


@dataclass
class ColumnCounts:
    """Counts of non-null values by column, and the values of each categorical column in order of appearance."""

    rows: int = 0
    filled: dict[str, int] = field(default_factory=dict)
    categories: dict[str, Categories] = field(default_factory=dict)


def count_columns(source: Batches, columns: Mapping[str, Column]) -> ColumnCounts:
    """Count what the rows hold, in one pass."""
    found = ColumnCounts()
    values: dict[str, dict[str, None]] = {column.name: {} for column in columns.values() if column.is_category}
    for batch in source():
        found.rows += batch.num_rows
        for name in batch.schema.names:
            found.filled[name] = found.filled.get(name, 0) + batch.num_rows - batch[name].null_count
        for name, known in values.items():
            if name in batch.schema.names and batch[name].null_count < batch.num_rows:
                known.update(dict.fromkeys(batch[name].unique().drop_null().to_pylist()))
    found.categories = {name: Categories(list(known)) for name, known in values.items()}
    return found


def written_columns(found: ColumnCounts, columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return those of `columns` that are written: the filled ones, and those that tell samples apart."""
    filled = {name for name, number in found.filled.items() if number}
    if "mask" in columns and columns["mask"].type == schema.MASK_AS_POLYGON and "polygon" in filled:
        filled.add("mask")
    return {
        name: column
        for name, column in columns.items()
        if name in filled or (column.level == "identity" and name in found.filled)
    }


def stored(batch: pa.RecordBatch, column: Column, categories: Mapping[str, Categories], version: str) -> pa.Array:
    """Return a column as the version stores it."""
    if column.name == "mask" and column.type == schema.MASK_AS_POLYGON:
        return join(_outlines(batch))
    values = batch[column.name]
    if column.is_category:
        return categories[column.name].encode(values)
    if column.name == "pose" and schema.pose_order(version)[0] == "roll":
        return fixed(numbers_of(values)[:, ::-1], is_valid(values), column.type)
    return values if values.type == column.type else values.cast(column.type)


def _outlines(batch: pa.RecordBatch) -> pa.Array:
    """Return the polygons of a batch, and where there is none the outlines of the masks."""
    there = batch.schema.names
    polygons = batch["polygon"] if "polygon" in there else pa.nulls(batch.num_rows, schema.POLYGON)
    if "mask" not in there:
        return polygons
    wanted = is_valid(batch["mask"]) & ~is_valid(polygons)
    if not wanted.any():
        return polygons
    masks = batch["mask"].filter(pa.array(wanted)).to_pylist()
    outlines = pa.array([outline_of_png(mask) for mask in masks], schema.POLYGON)
    index = np.where(wanted, len(polygons) + np.cumsum(wanted) - 1, np.arange(len(polygons)))
    return pa.concat_arrays([polygons, outlines]).take(pa.array(index))
