# SPDX-License-Identifier: Apache-2.0
"""Assigns the samples of finished datasets to new groups, rewriting only the tables of annotations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.group_counts import GroupCounts
from edgefirst_ros.dataset.group_rows import GroupRows
from edgefirst_ros.dataset.grouping import GroupRule, Groups
from edgefirst_ros.dataset.names import (
    DatasetPaths,
    find,
)
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.storage.opening import is_plain_file
from edgefirst_ros.dataset.tables.arrow_file import ARROW_MAGIC, TableFile
from edgefirst_ros.dataset.tables.batches import Batches
from edgefirst_ros.dataset.tables.forms.table import annotation_path
from edgefirst_ros.dataset.tables.groups import groups_of
from edgefirst_ros.dataset.tables.replacement import Replacement
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

UNSTAMPED = -1
"""Stands for the stamp of a sample that has none."""


@dataclass(frozen=True)
class Regrouped:
    """Outcome of a split."""

    tables: list[Path]
    """Tables that were rewritten."""
    counts: GroupCounts
    """Counts of each group over all datasets."""


def split(datasets: Sequence[str | os.PathLike[str]], rule: GroupRule, *, limits: Limits = DEFAULT_LIMITS) -> Regrouped:
    """Assign the samples of finished datasets to the groups of `rule`, as one set of sequences.

    Each NAME.arrow is replaced at once, when all of them are written; containers and tables of frames stay as they are.
    Sequences of one name, in several datasets, get one group. Raises DatasetError for what is no finished dataset or
    has no NAME.arrow, UsageError for a pattern that matches no sequence; nothing is changed then. Raises StorageError.
    """
    places = [_checked(path) for path in datasets]
    if len({os.path.realpath(paths.arrow) for paths in places}) < len(places):
        raise UsageError("a dataset is given twice")
    with ExitStack() as written:
        replacements = [written.enter_context(Replacement(paths.arrow)) for paths in places]
        parts = [GroupRows(paths, limits) for paths in places]
        rule.check({name for part in parts for name in part.samples["name"].unique()})
        groups = groups_of(
            rule, _batches([part.samples for part in parts]), _batches([part.annotations for part in parts])
        )
        if groups.by_block:
            for paths, part in zip(places, parts, strict=True):
                _check_stamps(paths, part, groups)
        for replacement, paths, part in zip(replacements, places, parts, strict=True):
            with replacement.writing() as file:
                _write(file, paths.arrow, _column(part.annotations, groups), limits)
        for replacement in replacements:
            replacement.put_in_place()
    return Regrouped([paths.arrow for paths in places], GroupCounts.of(places, rule.names, limits))


def _checked(path: str | os.PathLike[str]) -> DatasetPaths:
    paths = find(path)
    if paths.unfinished:
        raise DatasetError(f"{paths.container}: is not finished; run edgefirst-ros recover first")
    if not paths.members.exists():
        raise DatasetError(f"{paths.members}: not there; the tables alone are not a dataset")
    if not os.path.lexists(paths.arrow):
        other = annotation_path(paths.arrow)
        hint = f"; make it from {other.name} with edgefirst-ros migrate" if other is not None else ""
        raise DatasetError(f"{paths.arrow}: not there, and groups are kept in it{hint}")
    if not is_plain_file(paths.arrow):
        raise DatasetError(f"{paths.arrow}: is not a regular file; put the file itself there")
    with reporting(paths.arrow, "read"), paths.arrow.open("rb") as file:
        if file.read(len(ARROW_MAGIC)) != ARROW_MAGIC:
            raise DatasetError(f"{paths.arrow}: expected an Arrow IPC file; make one with edgefirst-ros migrate")
    return paths


def _batches(tables: Sequence[pl.DataFrame]) -> Batches:
    def batches() -> Iterator[pa.RecordBatch]:
        for table in tables:
            stamped = table.with_columns(pl.col("timestamp").fill_null(UNSTAMPED))
            yield from stamped.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()

    return batches


def _check_stamps(paths: DatasetPaths, part: GroupRows, groups: Groups) -> None:
    """Raise DatasetError if samples without a stamp would have to be split into blocks of time."""
    unstamped = part.samples.filter(pl.col("timestamp").is_null())["name"].unique().sort()
    for sequence in unstamped:
        if sequence not in groups.by_sequence:
            raise DatasetError(
                f"{paths.container}: samples of {sequence} have no stamp, so they make no blocks of time; give as "
                "many sequences as there are groups, or groups by name"
            )


def _column(annotations: pl.DataFrame, groups: Groups) -> list[str | None]:
    stamps = annotations["timestamp"].fill_null(UNSTAMPED)
    return [groups.of(name, stamp) for name, stamp in zip(annotations["name"], stamps, strict=True)]


def _write(file: BinaryIO, path: Path, column: Sequence[str | None], limits: Limits) -> None:
    """Write the table of annotations at `path` with a new column `group`. Raises DatasetError."""
    table, known = TableFile(path, limits), pa.array([*dict.fromkeys(filter(None, column))], schema.TEXT)
    place, kept = _place(table.schema), [field for field in table.schema if field.name != "group"]
    fields = [*kept[:place], pa.field("group", schema.CATEGORY), *kept[place:]] if len(known) else kept
    number = {group: index for index, group in enumerate(known.to_pylist())}
    target, start = pa.schema(fields).with_metadata(table.metadata or None), 0
    with pa.ipc.new_file(file, target) as writer:
        for batch in table.batches():
            own = column[start : start + batch.num_rows]
            codes = pa.array([None if group is None else number[group] for group in own], pa.uint32())
            arrays = [batch[field.name] for field in kept]
            if len(known):
                arrays.insert(place, pa.DictionaryArray.from_arrays(codes, known))
            writer.write_batch(pa.record_batch(arrays, schema=target))
            start += batch.num_rows


def _place(there: pa.Schema) -> int:
    """Return the index of the column `group`: where it is, else by the order of the format."""
    names: list[str] = list(there.names)
    if "group" in names:
        return names.index("group")
    before = [*schema.WORKING][: [*schema.WORKING].index("group")]
    return max((names.index(name) + 1 for name in before if name in names), default=0)
