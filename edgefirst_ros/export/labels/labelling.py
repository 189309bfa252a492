# SPDX-License-Identifier: Apache-2.0
"""Labels made elsewhere brought into the annotations of a dataset, matched by the names of pictures."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.annotate import make_table
from edgefirst_ros.dataset.label_names import list_conflicts, list_pairs, read_categories
from edgefirst_ros.dataset.names import Key, order_of
from edgefirst_ros.dataset.objects.places import refuse_buckets
from edgefirst_ros.dataset.query import select_annotating
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import DatasetError, Text, UsageError, join_names, pluralize, sort_nearest
from edgefirst_ros.export.labels.foreign import ForeignLabels, Row
from edgefirst_ros.export.labels.pictures import LISTS, LabelRows, find_extent, make_stem, read_size
from edgefirst_ros.export.output import LossReport

SHOWN = 5
"""Pictures without a sample that are named."""
CARRIED = {"coco": {"iscrowd", "ignore"}, "yolo": set[str]()}
"""Columns that every file of a format states, in addition to label and box."""
ALWAYS = {"name", "frame", "timestamp", "label", "label_index", "box2d"}
BEFORE = ".before-label"
"""Ending of the name under which the table before stays."""
PLACE, NEW, OLD = "\0place", "\0new", "\0old"
"""Internal columns: no other has such a name."""
OF_OTHERS = re.compile(r"\.(camera[-_]|lidar|radar|depth)")
"""How a picture's name goes on after that of its sample, if it is of another sensor than the camera."""
OF_TOOLS = re.compile(r"^(?:[0-9a-f]{8}-)?(.+?)(?:_(?:jpe?g|png)\.rf\.\w+(?:\.\w+)?)?$")
"""What Label Studio puts before the names of uploaded pictures, and Roboflow behind them."""
LEAST_OVERLAP = 0.5
"""Intersection over union from which on two boxes of one label are the same annotation."""


@dataclass
class Labelled:
    """Outcome of an import of labels."""

    arrow: Path
    """Path of the table that was replaced."""
    pictures: int = 0
    """Number of samples with labels."""
    annotations: int = 0
    """Number of imported rows."""
    replaced: int = 0
    """Number of replaced rows."""
    kept: int = 0
    """Number of kept rows."""
    matched: int = 0
    """Number of replaced rows that an imported one matches."""
    empty: int = 0
    """Number of pictures that came in as empty."""
    unmatched: list[str] = field(default_factory=list)
    """Pictures of the labels without a sample."""
    lost: dict[str, int] = field(default_factory=dict)
    """{reason: number of labels that could not be imported, or of replaced values that no imported row carries}."""
    keys: dict[str, int] = field(default_factory=dict)
    """{key of the labels that has no place in a dataset: number of its values}."""
    before: Path | None = None
    """The table before the change; None without an earlier table or a change."""
    notes: list[str] = field(default_factory=list)

    dry_run: bool = False
    skip_empty: bool = False
    """True if pictures without a label stay as they were."""

    @property
    def exit_code(self) -> int:
        """0 when complete, 3 when labels were lost."""
        return 3 if self.lost else 0

    def plain(self) -> dict[str, Any]:
        """Return the outcome, ready for JSON."""
        names = ("exit_code", "pictures", "annotations", "replaced", "kept", "matched", "empty", "dry_run")
        facts = {"arrow": str(self.arrow)} | {name: getattr(self, name) for name in names}
        facts["before"] = None if self.before is None else str(self.before)
        return facts | {name: getattr(self, name) for name in ("keys", "unmatched", "lost", "notes")}

    def text(self) -> Text:
        """Return the numbers, and all losses."""
        yield "dry run: no file changes" if self.dry_run else f"{self.arrow}: written"
        yield f"imported {pluralize(self.annotations, 'annotation')} for {pluralize(self.pictures, 'sample')}"
        yield f"{pluralize(self.replaced, 'annotation')} replaced, {self.matched} of them matched, {self.kept} kept"
        if self.before is not None:
            yield f"the table before: {self.before}"
        if self.empty:
            yield f"without labels: {pluralize(self.empty, 'picture')}" + (", unchanged" if self.skip_empty else "")
        if self.unmatched:
            names = join_names((repr(name[:80]) for name in self.unmatched), SHOWN)
            yield f"pictures of the labels that are not samples: {len(self.unmatched)}: {names}"
        yield from (f"lost: {reason}: {number}" for reason, number in self.lost.items())
        yield from (f"lost: key {key}, which has no place: {number}" for key, number in self.keys.items())
        yield from (f"note: {note}" for note in self.notes)


def label(
    dataset: Dataset | str | os.PathLike[str],
    form: str,
    labels: str | os.PathLike[str],
    *,
    replace: bool = False,
    join: bool = False,
    renumber: bool = False,
    skip_empty: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Labelled:
    """Import COCO or YOLO labels into the annotations of a dataset; only NAME.arrow changes.

    Pictures are matched by name: SEQUENCE_FRAME in any folder, with any suffix. In a dataset of one sequence the frame
    number is enough. Those of other cameras (`.camera-left.jpeg`) match no sample. Samples that the labels do not name
    keep their annotations.

    With `replace`, a new row keeps values that the labels cannot hold, such as masks and scores, from the old row that
    matches it: the same label, and boxes that overlap by half. Rows that the format cannot hold also stay.

    A sample that the labels name without annotations is then known to be empty (`neg_label_indices`), unless the labels
    state themselves which classes are absent.

    Args:
        dataset: Dataset, or its path.
        form: Format of the labels: "coco" or "yolo".
        labels: File or folder of the labels.
        replace: Replace the annotations of the samples that the labels name.
        join: Keep these annotations, and add the labels.
        renumber: Use the `label_index` of the dataset where that of the labels differs.
        skip_empty: Do not change samples that the labels name without annotations.
        dry_run: Do not change any file.
        progress: Called with (step, done, total).

    Returns:
        Numbers of rows imported, replaced, kept and lost. The table before stays as NAME.arrow.before-label,
        or with .2, .3 and so on while an older one has that name.

    Raises:
        UsageError: The dataset has annotations and neither `replace` nor `join` is set, labels have other numbers than
            in rows that stay, or the format is unknown; no file changes.
        DatasetError: The labels cannot be read, or their pictures are not samples of the dataset; no file changes.
    """
    if form not in CARRIED:
        raise UsageError(f"unknown form of labels {form!r}; known: {', '.join(CARRIED)}")
    if replace and join:
        raise UsageError("--replace and --join cannot be combined")
    refuse_buckets("label", [labels], "fetch the labels", does="read from")
    given = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    opened, *others = given.parts
    if others:
        names = join_names((part.paths.container for part in given.parts), 5)
        raise UsageError(f"{given.title}: labels are imported into one dataset at a time; name one of {names}")
    before = LabelRows(opened, LossReport(form), indexed=False)
    if before.table.height and not (replace or join):
        raise UsageError(
            f"{opened.paths.arrow}: already has {pluralize(before.table.height, 'annotation')}: use --replace to "
            "replace those of the labelled samples, or --join to add to them"
        )
    tell = progress or ignore_progress
    tell("reading labels", 0, 1)
    path = Path(labels)
    if not os.path.lexists(path):
        raise DatasetError(f"{path}: no such file or directory")
    found: ForeignLabels = getattr(import_module(f"edgefirst_ros.export.labels.{form}"), f"read_{form}")(path)
    done = Labelled(opened.paths.arrow, dry_run=dry_run, skip_empty=skip_empty)
    named, rows, empty = _match_samples(opened, found, done)
    done.empty = len(empty)
    if skip_empty:
        named, empty = named - empty, set()
    gone = [] if join else [row for key in named for row in before.of(key) if before.fits(row, form)]
    kept = before.table.with_row_index(PLACE).filter(~pl.col(PLACE).is_in(gone)).select(before.own_columns)
    done.kept, done.replaced = kept.height, len(gone)
    rows, categories = _number_labels(before, kept, rows, found, renumber=renumber)
    there = set(kept.select("name", "frame").iter_rows())
    if not found.federated:
        absent = sorted(of["id"] for name, of in categories.items() if name in found.categories)
        rows += [{**key._asdict(), "neg_label_indices": absent} for key in sorted(empty - there, key=order_of)]
    _correct_absent(before, rows, replace=replace)
    table = _make_table(rows)
    done.annotations = select_annotating(table).height
    table = _fill_columns(before, gone, table, form, done)
    whole = _join_rows(kept, table)
    done.before = opened.write_annotations(whole, categories=categories, keep_as=BEFORE, dry_run=dry_run)
    done.lost |= {reason: number for reason, number in sorted(found.lost.items()) if number}
    done.keys = dict(sorted(found.keys.items()))
    tell("reading labels", 1, 1)
    return done


def _match_samples(dataset: Dataset, found: ForeignLabels, done: Labelled) -> tuple[set[Key], list[Row], set[Key]]:
    """Return the samples that labels name, their rows, and those of the samples that are named without annotations.

    A sample whose annotations are lost is not one of the latter. Raises DatasetError where labels name no sample.
    """
    keys = {make_stem(sample.key): sample.key for sample in dataset}
    keys |= {f"{key.name}_{key.frame}": key for key in keys.values() if key.frame is not None}
    single = dataset.sequences[0] if len(dataset.sequences) == 1 else None
    named: set[Key] = set()
    empty: set[Key] = set()
    rows: list[Row] = []
    for picture in found.pictures:
        key = _find_key(picture.name, keys, single)
        if key is None:
            done.unmatched.append(picture.name)
            found.lost["annotations of pictures that are not samples"] += picture.annotations
        elif key in named:
            found.lost["pictures of a sample that another one is of"] += 1
        else:
            named.add(key)
            size = read_size(dataset.sample(*key))
            lost = found.lost.total()
            own = [{**key._asdict(), **picture.of_sample, **row} for row in picture.rows(size)]
            rows += own
            if not own and found.lost.total() == lost:
                empty.add(key)
                rows += [{**key._asdict(), **picture.of_sample}] if picture.of_sample else []
    done.pictures = len(named)
    if not found.pictures:
        raise DatasetError(f"{found.source}: names no picture to import")
    if not named:
        first = done.unmatched[0]
        raise DatasetError(
            f"{found.source}: none of its {len(done.unmatched)} pictures is of the camera of a sample of "
            f"{dataset.container.path}, such as {first[:80]!r}; known: {sort_nearest(first[:80], list(keys)[:1000])}"
        )
    if len(named) < len(dataset):
        others = pluralize(len(dataset) - len(named), "sample")
        done.notes.append(f"unchanged, because the labels do not name them: {others}")
    return named, rows, empty


def _find_key(name: str, keys: Mapping[str, Key], single: str | None) -> Key | None:
    file = name.replace("\\", "/").rpartition("/")[2]
    for whole in (file, OF_TOOLS.sub(r"\1", file)):
        stem = whole
        while stem:
            found = keys.get(stem)
            if single is not None and stem.isdecimal() and stem.isascii() and len(stem) <= 10:
                found = found or keys.get(f"{single}_{int(stem)}")
            if found is not None:
                return None if OF_OTHERS.match(whole, len(stem)) else found
            stem = stem.rpartition(".")[0]
    return None


def _number_labels(
    before: LabelRows, kept: pl.DataFrame, rows: list[Row], found: ForeignLabels, *, renumber: bool
) -> tuple[list[Row], dict[str, dict[str, Any]]]:
    """Return the rows and the categories of the dataset; where rows stay, with the numbers that these have for labels.

    Raises UsageError where labels and rows that stay number labels differently, unless `renumber`.
    """
    pairs = list_pairs({}, kept)
    incoming = [(int(of["id"]), name) for name, of in found.categories.items()]
    conflicts = list_conflicts([*pairs, *incoming])
    if conflicts and not renumber:
        raise UsageError(
            f"{found.source}: numbers labels differently from rows that stay: {'; '.join(conflicts)}; --renumber uses "
            "the numbers of the dataset"
        )
    numbers: dict[str, int] = {}
    for index, name in pairs:
        numbers.setdefault(name, index)
    taken = set(numbers.values())
    free = count(1 + max((index for index, _ in [*pairs, *incoming]), default=-1))
    for index, name in incoming:
        if name not in numbers:
            numbers[name] = next(free) if index in taken else index
            taken.add(numbers[name])
    moved = {index: numbers[name] for index, name in incoming}
    for row in rows:
        if "label" in row:
            row["label_index"] = numbers[row["label"]]
        row |= {name: [moved.get(one, one) for one in row[name]] for name in LISTS if name in row}
    known = read_categories(before.metadata)
    categories = {name: {**known.get(name, {}), **of, "id": numbers[name]} for name, of in found.categories.items()}
    if pairs:
        others = {name: of for name, of in known.items() if name in numbers or of.get("id") not in taken}
        categories = {**others, **categories}
    used = {row["label"] for row in rows if "label" in row}
    for name, frequency in found.frequencies.items():
        categories[name] |= {} if name in used else {"frequency": frequency}
    return rows, categories


def _fill_columns(before: LabelRows, gone: list[int], table: pl.DataFrame, form: str, done: Labelled) -> pl.DataFrame:
    """Return imported rows with the columns that the labels do not carry, from the rows that they match.

    Counts in `done` the lost values of rows without a match.
    """
    there = {name for name in table.columns if table[name].null_count() < table.height}
    columns = [name for name in before.own_columns if name not in ALWAYS | CARRIED[form] | there]
    columns = [name for name in columns if before.table[name].null_count() < before.table.height]
    matches = _match_rows(before, gone, table)
    done.matched = len(matches)
    pairs = pl.DataFrame({NEW: list(matches), OLD: list(matches.values())}, {NEW: pl.UInt32, OLD: pl.UInt32})
    stated = [name for name in CARRIED[form] if name in before.own_columns]
    wanted = list(dict.fromkeys([*columns, *stated, "mask", "polygon"]))
    old = before.table.select(wanted).with_row_index(OLD)
    order = table.select().with_row_index(NEW) if table.width == 0 else table.with_row_index(NEW).select(NEW)
    taken = order.join(pairs, on=NEW, how="left", maintain_order="left")
    taken = taken.join(old, on=OLD, how="left", maintain_order="left")
    table = table.with_columns(taken[name] for name in columns)
    for name in stated:  # values that the labels do not state are false
        given = table[name] if name in there else pl.Series(name, [None] * table.height, pl.Boolean)
        table = table.with_columns(given.zip_with(given.is_not_null() | taken[name].is_null(), taken[name] & False))
    if {"mask", "polygon"} <= there:  # a form has one shape for each annotation: of both, the polygon
        both = table["mask"].is_null() & table["polygon"].is_not_null() & taken["polygon"].is_not_null()
        table = table.with_columns(table["mask"].zip_with(~both, taken["mask"]))
    left = before.table[sorted(set(gone) - set(matches.values()))]
    lost = {name: left.height - left[name].null_count() for name in columns}
    done.lost |= {f"{name} of replaced annotations that no label matches": n for name, n in lost.items() if n}
    return table


def _match_rows(before: LabelRows, gone: list[int], table: pl.DataFrame) -> dict[int, int]:
    """Return {imported row: replaced row} of the same annotations, those that overlap most first."""
    old: dict[tuple[Any, ...], list[int]] = {}
    names = before.table.select("name", "frame", "label").rows()
    for row in gone:
        old.setdefault(names[row], []).append(row)
    new: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(table.select("name", "frame", "label").iter_rows()):
        if key in old:
            new.setdefault(key, []).append(row)
    found: dict[int, int] = {}
    shapes = [name for name in ("box2d", "polygon", "mask") if name in table.columns]
    for key, rows in new.items():
        extents = [find_extent(**table.select(shapes).row(row, named=True)) for row in rows]
        overlaps = _measure_overlaps(extents, [before.extent(row) for row in old[key]])
        if "polygon" in shapes:  # then a form may have had the outline only
            overlaps = np.fmax(
                overlaps, _measure_overlaps(extents, [before.extent(row, boxed=False) for row in old[key]])
            )
        taken: set[int] = set()
        for place in np.argsort(-overlaps, axis=None, kind="stable").tolist():
            one, other = divmod(place, len(old[key]))
            if overlaps[one, other] < LEAST_OVERLAP:
                break
            if rows[one] not in found and other not in taken:
                found[rows[one]] = old[key][other]
                taken.add(other)
    return dict(sorted(found.items()))


def _measure_overlaps(new: Sequence[list[float] | None], old: Sequence[list[float] | None]) -> NDArray[np.float64]:
    """Return intersections over unions, (new, old), of [cx, cy, w, h]; the larger of whole boxes and those in 0..1."""
    corners = []
    for boxes in (new, old):
        found = np.array([[np.nan] * 4 if box is None else box for box in boxes], float).reshape(-1, 4)
        corners.append(np.stack([found[:, :2] - found[:, 2:] / 2, found[:, :2] + found[:, 2:] / 2]))
    best = np.zeros((len(new), len(old)))
    for one, other in (corners, [np.clip(corner, 0, 1) for corner in corners]):
        low, high = np.maximum(one[0][:, None], other[0]), np.minimum(one[1][:, None], other[1])
        common = np.prod(np.clip(high - low, 0, None), axis=2)
        areas = [np.prod(box[1] - box[0], axis=1) for box in (one, other)]
        union = areas[0][:, None] + areas[1] - common
        same = np.all((one[0][:, None] == other[0]) & (one[1][:, None] == other[1]), axis=2)
        with np.errstate(invalid="ignore", divide="ignore"):
            overlap = np.where(same, 1.0, np.where(union > 0, common / union, 0.0))
        best = np.fmax(best, overlap)
    return best


def _correct_absent(before: LabelRows, rows: list[Row], *, replace: bool) -> None:
    """Set for samples with new labels those still known to be absent, without the labels that they have now."""
    absent = before.column("neg_label_indices") if "neg_label_indices" in before.columns else []
    older = {key: absent[place] for key, place in before.first.items() if absent and absent[place] is not None}
    present: defaultdict[Key, set[int]] = defaultdict(set)
    for row in rows:
        if row.get("label") is not None:
            present[Key(row["name"], row["frame"])].add(row["label_index"])
    for row in rows:
        key = Key(row["name"], row["frame"])
        if key in present and key in older and row.get("neg_label_indices") is None:
            row["neg_label_indices"] = [] if replace else [n for n in older[key] if n not in present[key]]


def _make_table(rows: list[Row]) -> pl.DataFrame:
    """Return rows as a table; keys after a NUL are further columns."""
    further = {name: name[1:] for name in dict.fromkeys(key for row in rows for key in row) if name.startswith("\0")}
    return make_table(rows, {key: f"{name}_" if name in schema.WORKING else name for key, name in further.items()})


def _join_rows(kept: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    kept = kept.cast({name: pl.String for name, kind in kept.schema.items() if kind in (pl.Categorical, pl.Enum)})
    same = [name for name in table.columns if name in kept.columns and table.schema[name] != kept.schema[name]]
    try:
        joined = pl.concat([kept, table.cast({name: kept.schema[name] for name in same})], how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"the labels do not fit the columns of the dataset: {error}") from error
    lists = [name for name in LISTS if name in joined.columns]
    return joined.with_columns(pl.col(name).drop_nulls().first().over("name", "frame") for name in lists)
