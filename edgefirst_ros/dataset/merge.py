# SPDX-License-Identifier: Apache-2.0
"""Merges datasets: members keep their bytes, tables are concatenated, metadata are combined."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.merge_labels import MergeInput, merge_metadata, separate_ids, unite_box_frames, unite_labels
from edgefirst_ros.dataset.names import DatasetPaths, Key, Layout, check_name, fold_case, make_safe
from edgefirst_ros.dataset.query import select_keys
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.regroup import GroupCounts
from edgefirst_ros.dataset.tables.rowlog import carry_timing
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import (
    DatasetError,
    EdgeFirstError,
    Text,
    UsageError,
    escape_text,
    join_names,
    pluralize,
    show_path,
)
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.exif import insert_jpeg, insert_png, rename_exif
from edgefirst_ros.streams import CAMERA, find_by_column, find_form

MOST_NAMED = 3
"""Most dropped members that a note names."""


@dataclass(frozen=True)
class Merged:
    """Outcome of a merge."""

    paths: DatasetPaths
    samples: int
    sequences: dict[str, dict[str, str]]
    """{dataset: {sequence: its name in the merged dataset}}."""
    notes: list[str] = field(default_factory=list)
    loss: bool = False
    groups: GroupCounts | None = None
    """Counts of each group; None if samples keep their groups."""

    @property
    def exit_code(self) -> int:
        """0 if the merge is complete, 3 if it dropped something."""
        return 3 if self.loss else 0

    def plain(self) -> dict[str, Any]:
        return {
            "dataset": str(self.paths.container),
            "annotations": str(self.paths.arrow),
            "frames": str(self.paths.frames),
            "samples": self.samples,
            "sequences": self.sequences,
            "groups": {} if self.groups is None else self.groups.plain,
            "notes": self.notes,
            "loss": self.loss,
            "exit_code": self.exit_code,
        }

    def text(self) -> Text:
        yield f"{pluralize(self.samples, 'sample')} in {show_path(self.paths.container)}"
        for dataset, sequences in self.sequences.items():
            for old, new in sequences.items():
                yield f"{dataset}: {old}" + (f" is now {new}" if new != old else "")
        if self.groups is not None:
            yield ""
            yield from self.groups.text()
        yield from (f"note: {note}" for note in self.notes)
        if self.loss:
            yield "finished with loss: see the notes above"


def merge(
    datasets: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    name: str | None = None,
    rename: bool = False,
    renumber: bool = False,
    layout: Layout = "zip",
    overwrite: bool = False,
    group_rule: GroupRule | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> Merged:
    """Merge datasets into one dataset in the folder `out`.

    Members keep their bytes. Rows get the newest schema version of all datasets.

    Args:
        datasets: Datasets, folders of datasets, or globs; one or several.
        out: Folder of the merged dataset.
        name: Its name; default: that of the folder.
        rename: Rename sequences whose name exists already, also in the EXIF of their pictures.
        renumber: Assign one number to each label if the datasets number them differently.
        layout: zip or directory.
        overwrite: Replace an existing dataset.
        group_rule: Rule that assigns all samples to new groups.
        limits: Largest table and ZIP that is read.
        progress: Is called with (step, done, total).

    Returns:
        Paths, number of samples, new names of sequences, notes, and the exit code: 3 if something was lost.

    Raises:
        DatasetError: A dataset cannot be read, or the datasets do not fit together.
        UsageError: The name or the rule is invalid. In both cases no dataset is written.
    """
    if not datasets:
        raise UsageError("no dataset is given")
    name = check_name(name) if name is not None else make_safe(Path(os.path.abspath(out)).name)
    datasets = [datasets] if isinstance(datasets, str | os.PathLike) else datasets
    opened = [part for path in datasets for part in Dataset(path, limits=limits).parts]
    parts = [
        MergeInput(dataset, names)
        for dataset, names in zip(opened, _name_sequences(opened, rename=rename), strict=True)
    ]
    if group_rule is not None:
        group_rule.check([new for part in parts for new in part.sequences.values()])
    notes: list[str] = []
    labels, categories = unite_labels(parts, renumber=renumber)
    if any(part.numbers for part in parts):
        notes.append("labels were renumbered: category_metadata has the label_index of each")
    separate_ids(parts)
    metadata = merge_metadata(parts, notes)
    box3d_frame = unite_box_frames(parts, notes)
    stated = {"labels": labels, "category_metadata": categories, "box3d_frame": box3d_frame}
    stamped = (name for part in parts for name in part.frames.columns if name.endswith("_timestamp"))
    companions = schema.find_companions(stamped)
    known = schema.list_frames_columns(companions)
    version = max(part.version for part in parts)
    columns = carry_timing(*(part.timing for part in parts))
    for part in parts:
        part.columns = columns
    writer = DatasetWriter(
        out,
        name,
        layout=layout,
        schema=version,
        companions=companions,
        overwrite=overwrite,
        describe=lambda: {**metadata, **stated},
        group_rule=group_rule,
        columns=columns,
    )
    total, lost = sum(map(len, opened)), sum(part.lost for part in parts)
    with writer, ExitStack() as failing:
        failing.callback(writer.abort)
        for part in parts:
            with part.open_rows():
                kept: list[Key] = []
                for key in (sample.key for sample in part.dataset):
                    if key.frame is None:
                        place = part.dataset.container.path
                        raise DatasetError(f"{place}: {key.name!r} has no frame number and cannot be merged")
                    row = _make_frames_row(part, key, known, companions)
                    if row is None:
                        continue
                    kept.append(key)
                    writer.write(_make_sample(part, key, row))
                    if progress is not None:
                        progress(f"merging {part.dataset.paths.name}", writer.samples, total)
                lost += _count_left_over(part, kept, notes)
        if not writer.samples:
            raise DatasetError("the datasets have no samples with a row in the frames table; no dataset is written")
        failing.pop_all()  # from here on all data exists, and can be completed later
        paths = writer.finish(metadata, labels, categories, box3d_frame)
    groups = None if group_rule is None else GroupCounts.of([paths], group_rule, limits)
    notes = [*dict.fromkeys(note for part in parts for note in part.notes), *notes, *(groups.notes if groups else ())]
    sequences = {os.fspath(part.dataset.paths.container): dict(part.sequences) for part in parts}
    return Merged(paths, writer.samples, sequences, notes, bool(lost), groups)


# ---- names ---------------------------------------------------------------------------------------
def _name_sequences(datasets: Sequence[Dataset], *, rename: bool) -> list[dict[str, str]]:
    """Return for each dataset {sequence: new name}. Raises UsageError if two are the same, or have the same one."""
    owners: dict[str, Dataset] = {}
    places, found = set[str](), []
    for dataset in datasets:
        if (place := os.path.realpath(dataset.container.path)) in places:
            raise UsageError(f"{dataset.container.path} is given twice; name each dataset once")
        places.add(place)
        names = {}
        for sequence in dataset.sequences:
            new = sequence
            if fold_case(new) in owners:
                if not rename:
                    both = f"{owners[fold_case(new)].container.path} and {dataset.container.path}"
                    raise UsageError(f"{both} both have a sequence {sequence!r}; use --rename to rename the second one")
                free = (make_safe(f"{sequence}-{number}") for number in itertools.count(2))
                new = next(name for name in free if fold_case(name) not in owners)
            owners[fold_case(new)] = dataset
            names[sequence] = new
        found.append(names)
    return found


# ---- samples -------------------------------------------------------------------------------------
def _make_frames_row(
    part: MergeInput, key: Key, known: Collection[str], companions: Sequence[str]
) -> dict[str, Any] | None:
    """Return the frames row of a sample; None if it has no row with a stamp."""
    number = part.dataset.frame_rows.get(key)
    if number is None:
        return None
    row = {name: value for name, value in part.frames.row(number, named=True).items() if name in known}
    if row.get("timestamp") is None:
        return None
    members = part.dataset.members(key).keys()
    stamped = [base for base in companions if f"{base}_timestamp" in part.frames.columns]
    there = {kind for base in stamped for kind in find_by_column(base).kinds}
    for base in companions if members.isdisjoint(CAMERA.kinds) else ():  # a picture is the reference where there is one
        kinds = find_by_column(base).kinds
        if there.isdisjoint(kinds) and not members.isdisjoint(kinds):
            row |= {f"{base}_timestamp": row["timestamp"], f"{base}_skew": 0}  # elsewhere it is not the reference
            there.update(kinds)
    return row


def _make_sample(part: MergeInput, key: Key, row: dict[str, Any]) -> NewSample:
    dataset, sequence = part.dataset, part.sequences[key.name]
    members: list[tuple[str, Sequence[Any]]] = []
    for kind, name in dataset.members(key).items():
        buffers: Sequence[Any] = [dataset.container.read(name)]
        if sequence != key.name and find_form(kind) == "camera":
            try:
                exif = rename_exif(buffers[0], sequence)
                if exif is not None:  # else another program wrote it
                    buffers = (insert_png if kind.endswith("png") else insert_jpeg)(buffers[0], exif)
            except EdgeFirstError as error:
                raise DatasetError(f"{dataset.container.path}: {name!r}: {error}") from error
        members.append((kind, buffers))
    stamp, frame = int(row["timestamp"]), key.frame or 0
    own = {name: value for name, value in row.items() if name not in ("name", "frame", "timestamp")}
    return NewSample(sequence, frame, stamp, members, own, batch=part.rows(key, stamp))


def _count_left_over(part: MergeInput, kept: Sequence[Key], notes: list[str]) -> int:
    """Note the members of no sample, and the rows of both tables that belong to no sample that was `kept`."""
    dataset, without = part.dataset, len(part.dataset) - len(kept)
    place = dataset.container.path
    rows = pl.concat([part.keys, select_keys(part.frames, dataset.paths.frames)])
    unknown = rows.unique().join(pl.DataFrame(kept, part.keys.schema, orient="row"), on=["name", "frame"], how="anti")
    if without:
        notes.append(f"{place}: dropped, without a stamp in the frames table: {pluralize(without, 'sample')}")
    if unknown.height > without:
        notes.append(f"{place}: dropped, rows without members: {pluralize(unknown.height - without, 'sample')}")
    own = {name for sample in dataset for name in dataset.members(sample.key).values()}
    foreign = [name for name in dataset.container.names if name not in own and not name.endswith("/")]
    if foreign:
        names = join_names(map(escape_text, foreign), MOST_NAMED)
        notes.append(f"{place}: dropped, of no sample: {pluralize(len(foreign), 'member')}: {names}")
    return without + unknown.height + len(foreign)
