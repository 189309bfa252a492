# SPDX-License-Identifier: Apache-2.0
"""Labels made elsewhere brought into the annotations of a dataset, matched by the names of pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.errors import DatasetError, UsageError, counted, nearest_first
from edgefirst_ros.progress import Progress, quiet

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.inputs import Key
    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.export.labels.foreign import ForeignLabels, Row

READERS = {"coco": ("coco_file", "read_coco"), "yolo": ("yolo_files", "read_yolo")}
"""{format: module and function that reads it}."""
SHAPES = ("box2d", "polygon", "mask", "box3d")


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
    unmatched: list[str] = field(default_factory=list)
    """Pictures of the labels without a sample."""
    lost: dict[str, int] = field(default_factory=dict)
    """{reason: number of labels that could not be imported}."""
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 when all is there, 3 when labels were lost."""
        return 3 if self.lost else 0


def label(
    dataset: Dataset | str | os.PathLike[str],
    form: str,
    labels: str | os.PathLike[str],
    *,
    replace: bool = False,
    join: bool = False,
    progress: Progress | None = None,
) -> Labelled:
    """Bring labels in the form "coco" or "yolo" into the annotations of a dataset; the container is not touched.

    Pictures are matched by name (SEQUENCE_FRAME, in any folder, with any suffix), in a dataset of one sequence also by
    the frame number alone. In the samples that the labels name `replace` takes their rows in place of those there are,
    and `join` beside them; other samples keep theirs. A sample that is named without annotations has none, and that is
    known (`neg_label_indices`). Raises UsageError where there are rows already and neither is set, or for an unknown
    form; DatasetError for labels that cannot be read or of which no picture is a sample; nothing is changed then.
    """
    from edgefirst_ros.dataset.query import annotating
    from edgefirst_ros.dataset.reader import Dataset

    if form not in READERS:
        raise UsageError(f"unknown form of labels {form!r}; known: {', '.join(READERS)}")
    if replace and join:
        raise UsageError("replace and join exclude each other: choose one of them")
    opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    there = annotating(opened.annotations).height
    if there and not (replace or join):
        raise UsageError(
            f"{opened.paths.arrow}: has {counted(there, 'annotation')} already: replace them in samples that are named "
            "(--replace), or put the labels beside them (--join)"
        )
    tell = progress or quiet
    tell("labels", 0, 1)
    module, name = READERS[form]
    path = Path(labels)
    if not os.path.lexists(path):
        raise DatasetError(f"{path}: does not exist")
    found: ForeignLabels = getattr(import_module(f"edgefirst_ros.export.labels.{module}"), name)(path)
    done = Labelled(opened.paths.arrow)
    named, rows, empty = _matched(opened, found, done)
    kept = _kept(opened, named, join=join)
    done.kept = annotating(kept).height
    done.replaced = there - done.kept
    categories: Mapping[str, Mapping[str, Any]] | None = found.categories
    if done.kept or (not found.categories):
        rows, categories = _by_name(opened, kept, rows), None
    else:
        _mark_empty(rows, empty, [of["id"] for of in found.categories.values()])
    table = _table(rows)
    done.annotations = annotating(table).height
    opened.write_annotations(_joined(kept, table), categories=categories)
    done.lost = {reason: number for reason, number in sorted(found.lost.items()) if number}
    tell("labels", 1, 1)
    return done


def _matched(dataset: Dataset, found: ForeignLabels, done: Labelled) -> tuple[set[Key], list[Row], set[Key]]:
    """Return the samples that labels name, their rows, and those of the samples that are named without annotations.

    A sample is none of the latter where its annotations are lost. Raises DatasetError where labels name no sample.
    """
    from edgefirst_ros.export.labels.pictures import size_of, stem_of

    keys = {stem_of(sample.key): sample.key for sample in dataset}
    keys |= {f"{key.name}_{key.frame}": key for key in keys.values() if key.frame is not None}
    single = dataset.sequences[0] if len(dataset.sequences) == 1 else None
    named: set[Key] = set()
    empty: set[Key] = set()
    rows: list[Row] = []
    for picture in found.pictures:
        key = _key(picture.name, keys, single)
        if key is None:
            done.unmatched.append(picture.name)
            found.lost["annotations of pictures that are not samples"] += picture.annotations
        elif key in named:
            found.lost["pictures of a sample that another one is of"] += 1
        else:
            named.add(key)
            size = size_of(dataset.sample(*key))
            lost = found.lost.total()
            own = [{"name": key.name, "frame": key.frame, **row} for row in picture.rows(size)]
            rows += own
            if not own and found.lost.total() == lost:
                empty.add(key)
    done.pictures = len(named)
    if not found.pictures:
        raise DatasetError(f"{found.source}: names no picture, so there is nothing to import")
    if not named:
        first = done.unmatched[0]
        raise DatasetError(
            f"{found.source}: none of its {len(done.unmatched)} pictures is a sample of {dataset.container.path}, such "
            f"as {first[:80]!r}; known: {nearest_first(first[:80], list(keys)[:1000])}"
        )
    if len(named) < len(dataset):
        others = counted(len(dataset) - len(named), "sample")
        done.notes.append(f"not named by the labels, which leave what is there: {others}")
    return named, rows, empty


def _key(name: str, keys: Mapping[str, Key], single: str | None) -> Key | None:
    stem = name.replace("\\", "/").rpartition("/")[2]
    while True:
        if stem in keys:
            return keys[stem]
        if single is not None and stem.isdecimal() and stem.isascii() and len(stem) <= 10:
            return keys.get(f"{single}_{int(stem)}")
        stem, dot, _ = stem.rpartition(".")
        if not dot:
            return None


def _kept(dataset: Dataset, named: set[Key], *, join: bool) -> pl.DataFrame:
    """The rows that stay: all with `join`, else those of other samples, and of every sample what is of itself."""
    import polars as pl

    from edgefirst_ros.dataset.inputs import Key
    from edgefirst_ros.dataset.query import keys_of

    table = dataset.annotations
    if join:
        return table
    keys = [Key(name, frame) in named for name, frame in keys_of(table, dataset.paths.arrow).iter_rows()]
    return table.filter(~pl.Series(keys, dtype=pl.Boolean))


def _by_name(dataset: Dataset, kept: pl.DataFrame, rows: list[Row]) -> list[Row]:
    """The rows with the indices that the dataset has for their labels; new labels keep theirs where it is free."""
    from edgefirst_ros.dataset.query import listed_labels

    pairs = kept.select("label", "label_index").cast({"label": str}).drop_nulls().unique().rows()
    known: dict[str, int | None] = dict(pairs)
    labels = dataset.metadata.get("labels")
    if isinstance(labels, list):
        known |= {name: index for index, name in enumerate(labels) if isinstance(name, str)}
    known |= {name: None for name in listed_labels(dataset.metadata) if name not in known}
    taken = {index for index in known.values() if index is not None}
    return [
        {**row, "label_index": None} if row["label"] in known or row["label_index"] in taken else row for row in rows
    ]


def _mark_empty(rows: list[Row], empty: set[Key], indices: list[int]) -> None:
    """Add a row for each sample that is named without annotations: none of the labels is there."""
    rows += [
        {"name": key.name, "frame": key.frame, "neg_label_indices": indices}
        for key in sorted(empty, key=lambda key: (key.name, key.frame or 0))
    ]


def _table(rows: list[Row]) -> pl.DataFrame:
    """Return rows as a table; keys after a NUL are further columns."""
    from edgefirst_ros.dataset import schema
    from edgefirst_ros.dataset.annotate import table_of

    further = {name: name[1:] for name in dict.fromkeys(key for row in rows for key in row) if name.startswith("\0")}
    return table_of(rows, {key: f"{name}_" if name in schema.WORKING else name for key, name in further.items()})


def _joined(kept: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Both, one below the other, in the types of the rows that stay."""
    import polars as pl

    kept = kept.cast({name: pl.String for name, kind in kept.schema.items() if kind in (pl.Categorical, pl.Enum)})
    same = [name for name in table.columns if name in kept.columns and table.schema[name] != kept.schema[name]]
    try:
        return pl.concat([kept, table.cast({name: kept.schema[name] for name in same})], how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"the labels do not fit the columns of the dataset: {error}") from error
