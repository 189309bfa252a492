# SPDX-License-Identifier: Apache-2.0
"""The column `group` of annotations: counts for the split, and rows with the group of their sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa

from edgefirst_ros import streams
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.grouping import GroupRule, Groups
from edgefirst_ros.dataset.split import SAMPLES, Kind
from edgefirst_ros.dataset.tables.batches import Batches

NAME, BLOCK = "name", "block"


def groups_of(rule: GroupRule, frames: Batches, annotations: Batches) -> Groups:
    """Return the groups of all samples: of rows of frames and of annotations with name and timestamp.

    Rows of frames may have stamps of companions, those of annotations labels, as plain text.
    """
    found: dict[tuple[str, int], Counter[Kind]] = {}
    for batch in frames():
        _count_frames(batch, rule.block, found)
    for batch in annotations():
        _count_labels(batch, rule.block, found)
    return rule.groups(found)


def with_groups(rule: GroupRule | None, frames: Batches, annotations: Batches) -> Batches:
    """Return the rows of a journal of annotations with the group of their sample; as they are without a rule."""
    if rule is None:
        return annotations
    groups = groups_of(rule, frames, annotations)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in annotations():
            place = batch.schema.get_field_index("group")
            yield batch.set_column(place, batch.schema.field(place), group_column(batch, groups))

    return batches


def group_column(batch: pa.RecordBatch, groups: Groups) -> pa.Array:
    """Return the group of each row with name and timestamp, as plain text."""
    names, stamps = batch["name"].to_pylist(), batch["timestamp"].to_pylist()
    return pa.array([groups.of(name, stamp) for name, stamp in zip(names, stamps, strict=True)], schema.TEXT)


def _count_frames(batch: pa.RecordBatch, block: int, found: dict[tuple[str, int], Counter[Kind]]) -> None:
    stamps = {
        Kind("sensor", streams.of_column(column).key): f"{column}_timestamp"
        for column in schema.COMPANIONS
        if f"{column}_timestamp" in batch.schema.names
    }
    table = pa.table({**_units(batch, block), **{kind.name: batch[column] for kind, column in stamps.items()}})
    counted = table.group_by([NAME, BLOCK]).aggregate([([], "count_all"), *((kind.name, "count") for kind in stamps)])
    for row in counted.to_pylist():
        tally = found.setdefault((row[NAME], row[BLOCK]), Counter())
        tally[SAMPLES] += row["count_all"]
        tally.update({kind: number for kind in stamps if (number := row[f"{kind.name}_count"])})


def _count_labels(batch: pa.RecordBatch, block: int, found: dict[tuple[str, int], Counter[Kind]]) -> None:
    table = pa.table({**_units(batch, block), "label": batch["label"]})
    table = table.filter(table["label"].is_valid())
    for row in table.group_by([NAME, BLOCK, "label"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault((row[NAME], row[BLOCK]), Counter())[Kind("label", row["label"])] += row["count_all"]


def _units(batch: pa.RecordBatch, block: int) -> dict[str, pa.Array | Iterable[int]]:
    """Return the sequence of each row and its block of time, rounded down as Python does."""
    stamps = batch["timestamp"].to_numpy(zero_copy_only=False)
    return {NAME: batch["name"], BLOCK: stamps // block}
