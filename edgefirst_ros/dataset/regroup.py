# SPDX-License-Identifier: Apache-2.0
"""Assigns the samples of finished datasets to new groups, rewriting only the tables of annotations."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa

from edgefirst_ros.config.load import load
from edgefirst_ros.dataset import grouping, schema
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.names import DatasetPaths, locate
from edgefirst_ros.dataset.storage.lock import Replacement, is_plain_file, report_errors
from edgefirst_ros.dataset.tables.arrow_file import ARROW_MAGIC, TableFile, find_annotations, open_annotations
from edgefirst_ros.errors import DatasetError, Text, UsageError, explain_errors, join_names, pluralize, show_path
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

KEY = ["name", "frame"]
ANNOTATIONS = {"name": pl.String, "frame": pl.Int64, "timestamp": pl.Int64, "label": pl.String, "group": pl.String}
FRAMES = {"name": pl.String, "frame": pl.Int64, "timestamp": pl.Int64}


class GroupRows:
    """Reads the tables of a dataset. Raises DatasetError where they cannot be read.

    `annotations`: name, frame, timestamp, label and group of every row, in the order of the file; `samples`: name,
    frame, timestamp and the stamps of companions of every sample. Frame and stamp (ns) are null where
    unknown; stamps are those of the table of frames, where it has the sample.
    """

    def __init__(self, paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> None:
        found = find_annotations(paths.arrow)
        own = pl.DataFrame(schema=ANNOTATIONS)
        if found is not None:
            own = read_columns(open_annotations(found, limits), ANNOTATIONS)
        frames = pl.DataFrame(schema=FRAMES)
        if os.path.lexists(paths.frames):
            table = TableFile(paths.frames, limits)
            stamps = (f"{column}_timestamp" for column in schema.find_companions(table.schema.names))
            frames = read_columns(table, {**FRAMES, **dict.fromkeys(stamps, pl.Int64)})
        known = frames.select(*KEY, pl.col("timestamp").alias("stamp")).unique(KEY, keep="first")
        joined = own.join(known, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        self.annotations = joined.with_columns(pl.coalesce("stamp", "timestamp").alias("timestamp")).drop("stamp")
        further = self.annotations.join(known, on=KEY, how="anti", nulls_equal=True).select(*KEY, "timestamp")
        self.samples = pl.concat([frames, further.unique(KEY, keep="first", maintain_order=True)], how="diagonal")


def read_columns(table: TableFile, wanted: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    """Return some columns of a table, null for one that it does not have."""
    there = [name for name in wanted if name in table.schema.names]
    if "name" not in there:
        raise DatasetError(f"{table.path}: has no column 'name'")
    columns = [
        (pl.col(name) if name in there else pl.lit(None)).cast(kind).alias(name) for name, kind in wanted.items()
    ]
    found = pl.DataFrame(schema=wanted)
    with explain_errors(f"{table.path}: columns {', '.join(there)} cannot be read", pl.exceptions.PolarsError):
        for frame in table.frames(there):
            found.extend(frame.select(columns))  # copied: the other columns of the batch need not stay
    if found["name"].null_count():
        raise DatasetError(f"{table.path}: column 'name' is null in a row; it must not be")
    return found


LISTED = 10


@dataclass(frozen=True)
class GroupCounts:
    """Counts by group."""

    groups: Mapping[str, Mapping[grouping.Kind, int]]
    """{group: {kind: number}}: samples, samples with a sensor, annotations of a label."""
    without: int = 0
    missed: str | None = None
    """Shares that were requested and that came out, where they differ by more than 5 points."""
    stable: bool = False
    """True if sequences were assigned by their names."""

    @classmethod
    def of(
        cls, datasets: Sequence[DatasetPaths], rule: GroupRule | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> GroupCounts:
        """Count the groups of finished datasets; those of `rule` are listed first, even empty ones.

        Raises DatasetError where a table cannot be read.
        """
        found: dict[str, Counter[grouping.Kind]] = {
            group: Counter() for group in (rule.names if rule is not None else ())
        }
        shared: Counter[str | None] = Counter()
        without = 0
        for paths, rows in ((paths, GroupRows(paths, limits)) for paths in datasets):
            if not os.path.lexists(paths.frames):  # then pictures without a row are in no table
                from edgefirst_ros.dataset.reader import Dataset  # no conversion comes here

                known = set(rows.samples.select(KEY).iter_rows())
                without += sum(sample.key not in known for sample in Dataset(paths.container, limits=limits))
            for (group,), tally in grouping.count_labels(rows.annotations.drop_nulls("group"), "group"):
                found.setdefault(group, Counter()).update(tally)
            group_of = rows.annotations.drop_nulls("group").unique(KEY, keep="first").select(*KEY, "group")
            samples = rows.samples.join(group_of, on=KEY, how="left", nulls_equal=True)
            for name, group, number in samples.group_by("name", "group").len().rows():
                if rule is not None and rule.share_of(name):
                    shared[group] += number
            for (group,), tally in grouping.count_samples(samples, "group"):
                if group is None:
                    without += tally[grouping.SAMPLES]
                else:
                    found.setdefault(group, Counter()).update(tally)
        missed = None if rule is None else grouping.describe_missed_shares(rule.shares, shared)
        return cls(found, without, missed, rule is not None and rule.stable)

    @property
    def kinds(self) -> list[grouping.Kind]:
        """Kinds that are counted: samples, then sensors, then labels, the most frequent first."""
        totals: Counter[grouping.Kind] = Counter()
        for tally in self.groups.values():
            totals.update(tally)
        order = ("samples", "sensor", "label")
        present = [kind for kind, number in totals.items() if number]
        return sorted(present, key=lambda kind: (order.index(kind.what), -totals[kind], kind.name))

    @property
    def notes(self) -> list[str]:
        """Notes about groups that are empty, or do not have a sensor or label that others have."""
        notes = []
        for group, tally in self.groups.items():
            if not tally.get(grouping.SAMPLES, 0):
                block = "" if self.stable else ", or a shorter split_block, such as 1"
                notes.append(f"group {group} is empty: it needs more sequences{block}")
                continue
            for what in ("sensor", "label"):
                lacking = [kind.name for kind in self.kinds if kind.what == what and not tally.get(kind, 0)]
                if lacking:
                    names = f"{what}{'s' if len(lacking) > 1 else ''} {join_names(lacking, LISTED)}"
                    notes.append(f"group {group} has no {names}, which another group has")
        return [*notes, self.missed] if self.missed is not None else notes

    def text(self) -> Text:
        """Return a table of samples, sensors and labels by group."""
        rows = [
            (f"{kind.what} {kind.name}".rstrip(), *(str(tally.get(kind, 0)) for tally in self.groups.values()))
            for kind in self.kinds
        ]
        yield ("group", *self.groups), rows
        if self.without:
            yield f"without a group: {pluralize(self.without, 'sample')}"

    @property
    def plain(self) -> dict[str, dict[str, Any]]:
        """Counts ready for JSON."""
        return {
            group: {
                "samples": tally.get(grouping.SAMPLES, 0),
                "sensors": {kind.name: tally[kind] for kind in self.kinds if kind.what == "sensor" and tally.get(kind)},
                "labels": {kind.name: tally[kind] for kind in self.kinds if kind.what == "label" and tally.get(kind)},
            }
            for group, tally in self.groups.items()
        }


@dataclass(frozen=True)
class Regrouped:
    """Outcome of a split."""

    tables: list[Path]
    counts: GroupCounts
    """Counts of each group over all datasets."""
    exit_code: int = 0

    def plain(self) -> dict[str, Any]:
        facts = {"tables": list(map(str, self.tables)), "groups": self.counts.plain}
        return facts | {"without_group": self.counts.without, "notes": self.counts.notes}

    def text(self) -> Text:
        tables = ", ".join(map(show_path, self.tables))
        yield f"groups written to {pluralize(len(self.tables), 'table')}: {tables}"
        yield ""
        yield from self.counts.text()
        yield from (f"note: {note}" for note in self.counts.notes)


def split(
    datasets: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    rule: GroupRule | Mapping[str, float],
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> Regrouped:
    """Assign the samples of finished datasets to groups, as one set of sequences.

    Only NAME.arrow changes. It is replaced when the new tables of all datasets are complete.

    Args:
        datasets: One dataset or several; sequences with the same name get the same group.
        rule: Shares such as {"train": 0.8, "val": 0.2}, or a GroupRule.
        limits: Largest table that is read.

    Returns:
        The tables that were rewritten, and the samples, sensors and labels of each group.

    Raises:
        DatasetError: A dataset is not finished or has no NAME.arrow.
        UsageError: A pattern matches no sequence. In both cases every table stays as it was.
        StorageError: The disk is full or refuses.
    """
    if not isinstance(rule, GroupRule):
        if (given := GroupRule.of(load(None, split=rule))) is None:
            raise UsageError("expected shares such as {'train': 0.8, 'val': 0.2}")
        rule = given
    places = [_check_dataset(path) for path in ([datasets] if isinstance(datasets, str | os.PathLike) else datasets)]
    if len({os.path.realpath(paths.arrow) for paths in places}) < len(places):
        raise UsageError("a dataset is given twice")
    with ExitStack() as written:
        replacements = [written.enter_context(Replacement(paths.arrow)) for paths in places]
        parts = [GroupRows(paths, limits) for paths in places]
        rule.check({name for part in parts for name in part.samples["name"].unique()})
        groups = grouping.find_groups(rule, (part.samples for part in parts), (part.annotations for part in parts))
        if groups.by_block:
            for paths, part in zip(places, parts, strict=True):
                unstamped = part.samples.filter(pl.col("timestamp").is_null())["name"].unique().sort()
                for sequence in (one for one in unstamped if one not in groups.by_sequence):
                    raise DatasetError(
                        f"{paths.container}: samples of {sequence} have no stamp, so they make no blocks of time; give "
                        "as many sequences as there are groups, or groups by name"
                    )
        for replacement, paths, part in zip(replacements, places, parts, strict=True):
            with replacement.writing() as file:
                _write(file, paths.arrow, groups.of_rows(part.annotations, keep=not rule.shares), limits)
        for replacement in replacements:
            replacement.put_in_place()
    return Regrouped([paths.arrow for paths in places], GroupCounts.of(places, rule, limits))


def _check_dataset(path: str | os.PathLike[str]) -> DatasetPaths:
    paths = locate(path)
    if paths.unfinished:
        raise DatasetError(f"{paths.container}: is not finished; run edgefirst-ros recover first")
    if not paths.members.exists():
        raise DatasetError(f"{paths.members}: missing; without it the tables are not a dataset")
    if not os.path.lexists(paths.arrow):
        other = find_annotations(paths.arrow)
        hint = f"; make it from {other.name} with edgefirst-ros migrate" if other is not None else ""
        raise DatasetError(f"{paths.arrow}: missing, and it holds the groups{hint}")
    if not is_plain_file(paths.arrow):
        raise DatasetError(f"{paths.arrow}: is not a regular file; replace it by the file itself")
    with report_errors(paths.arrow, "read"), paths.arrow.open("rb") as file:
        if file.read(len(ARROW_MAGIC)) != ARROW_MAGIC:
            raise DatasetError(f"{paths.arrow}: expected an Arrow IPC file; make one with edgefirst-ros migrate")
    return paths


def _write(file: BinaryIO, path: Path, column: Sequence[str | None], limits: Limits) -> None:
    table, known = TableFile(path, limits), pa.array([*dict.fromkeys(filter(None, column))], schema.TEXT)
    names, kept = table.schema.names, [field for field in table.schema if field.name != "group"]
    before = itertools.takewhile(lambda name: name != "group", schema.WORKING)  # in the order of the format
    place = max((names.index(name) + 1 for name in before if name in names), default=0)
    place = names.index("group") if "group" in names else place
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
