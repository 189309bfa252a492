# SPDX-License-Identifier: Apache-2.0
"""Questions to a dataset: rows by sample; samples by sensor, label, group, score and expression; repeated members."""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, overload

import numpy as np
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.names import DatasetPaths, FrameSet, Key, map_kinds, parse_member
from edgefirst_ros.dataset.names import iter_keys as keys_of_batch
from edgefirst_ros.dataset.storage.zip_read import count_members
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.values import LAYOUTS, convert_layout, drop_broken_rings, is_list, is_text, split
from edgefirst_ros.errors import DatasetError, UsageError, format_size, pluralize, sort_nearest, without_attribute
from edgefirst_ros.streams import stamp_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.dataset.sample import Sample

KEY = ["name", "frame"]
INSTEAD = {
    **dict.fromkeys(("filter", "query", "select"), "where(condition)"),
    **dict.fromkeys(("head", "take"), "[:5]"),
    **dict.fromkeys(("first", "get"), "[0]"),
    **dict.fromkeys(("random", "sort"), "shuffle(seed)"),
    **dict.fromkeys(("camera", "image", "lidar", "radar", "cube"), "samples('camera'), then the method of a sample"),
    "to_torch": "torch.utils.data.DataLoader, which accepts it as it is",
    "close": "it as it is: files close with the last reference",
    **dict.fromkeys(("tail", "skip"), "[-5:] or [5:]"),
    **dict.fromkeys(("columns", "describe", "iterrows", "to_pandas", "shape"), "to_polars()"),
    **dict.fromkeys(("episodes", "drives"), "sequences"),
    **dict.fromkeys(("names", "classes"), "labels"),
    **dict.fromkeys(("num_samples", "num_frames", "size"), "len(...)"),
    **dict.fromkeys(("name", "path"), "title, the path as text"),
    **dict.fromkeys(("meta", "info", "features"), "metadata"),
    **dict.fromkeys(("map", "batch"), "a loop, or torch.utils.data.DataLoader"),
    **dict.fromkeys(("fps", "duration", "topics"), "frames, metadata, or the command edgefirst-ros info"),
    **dict.fromkeys(("train", "val", "test"), "samples(group='train')"),
    **dict.fromkeys(("split", "train_test_split"), "edgefirst_ros.split(...), then samples(group='train')"),
    **dict.fromkeys(("export", "validate", "report", "merge", "label"), "the function of this name in edgefirst_ros"),
}
"""Attributes that users of other libraries expect of a dataset, and what it has instead."""


def select_keys(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return columns name (String) and frame (Int64), cast from any type; raises DatasetError naming `path`."""
    frame = pl.col("frame") if "frame" in table.columns else pl.lit(None)
    for name, kind in table.schema.items():
        if name == "name" and kind not in (pl.String, pl.Categorical, pl.Enum, pl.Null):
            raise DatasetError(f"{path}: column 'name' is {kind}, must be text")
        if name == "frame" and not kind.is_integer() and kind != pl.Null:
            raise DatasetError(f"{path}: column 'frame' is {kind}, must be whole numbers")
    try:
        return table.select(pl.col("name").cast(pl.String), frame.cast(pl.Int64).alias("frame"))
    except pl.exceptions.PolarsError as error:
        raise DatasetError(f"{path}: columns name and frame cannot be read: {error}") from error


def select_first_rows(table: pl.DataFrame, path: Path) -> dict[Key, int]:
    """Return the first row of each sample."""
    found: dict[Key, int] = {}
    for number, (name, frame) in enumerate(select_keys(table, path).iter_rows()):
        found.setdefault(Key(name, frame), number)
    return found


def map_rows(file: TableFile) -> dict[Key, int]:
    """Return the first row of each sample of a file of frames, as `select_first_rows`. Raises DatasetError."""
    fields = {field.name: field.type for field in file.schema if field.name in KEY}
    for name, fits in (("name", is_text), ("frame", pa.types.is_integer)):
        if name in fields and not (fits(fields[name]) or pa.types.is_null(fields[name])):
            must = "text" if name == "name" else "whole numbers"
            raise DatasetError(f"{file.path}: column {name!r} is {fields[name]}, must be {must}")
    if "name" not in fields:
        raise DatasetError(f"{file.path}: has no column 'name'")
    values = file.values(list(fields))
    frames = values.get("frame") or itertools.repeat(None)
    found: dict[Key, int] = {}
    for number, (name, frame) in enumerate(zip(values["name"], frames, strict=False)):
        found.setdefault(Key(name, frame), number)
    return found


def sort_rows(table: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
    """Return the table stably sorted by sample, and {sample: (first row, number of rows)}."""
    order = select_keys(table, path).with_row_index().sort("name", "frame", maintain_order=True)
    return table[order["index"]], find_spans(order)


def find_spans(order: pl.DataFrame) -> dict[Key, tuple[int, int]]:
    """Return {sample: (first row, number of rows)} of the keys of rows that are sorted by sample."""
    runs = order.group_by(KEY, maintain_order=True).len()
    spans = zip(runs.rows(), itertools.accumulate(runs["len"].to_list(), initial=0), strict=False)
    return {Key(name, frame): (start, count) for (name, frame, count), start in spans}


def select_annotating(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that hold an annotation; one without label and geometry only marks a sample without any."""
    present = [name for name in ("label", *schema.GEOMETRY) if name in table.columns]
    return table.filter(pl.any_horizontal(pl.col(present).is_not_null())) if present else table.clear()


def without_broken_rings(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the table without rings that are odd, under three points or not finite, and the number of those."""
    broken = 0
    for name in ("polygon", "mask"):
        array = table[name].to_arrow() if name in table.columns else None
        if array is None or not is_list(array.type):
            continue
        try:
            array, count = drop_broken_rings(array)
        except DatasetError:  # lists of something else, which is reported by `validate`
            continue
        if count:
            table = table.with_columns(pl.Series(name, pl.from_arrow(array), table.schema[name]))
            broken += count
    return table, broken


def find_matching(
    table: pl.DataFrame,
    path: Path,
    metadata: Mapping[str, Any],
    label: str | Collection[str] | None,
    group: str | Collection[str] | None,
    score: float | None,
) -> Collection[Key]:
    """Return the samples with a row that has the label and the group (or one of several), and at least the score.

    Raises UsageError for a score outside 0..1, and for a label or group that neither a row nor `metadata` has.
    """
    if score is not None and not 0 <= score <= 1:
        raise UsageError(f"score is {score}, it must be within 0..1")
    wanted = []
    if label is not None:
        labels = list_names(label)
        check_known("label", labels, {*_list_values(table, "label"), *list_labels(metadata)})
        wanted.append(pl.col("label").cast(pl.String).is_in(labels))
    if group is not None:
        groups = list_names(group)
        check_known("group", groups, _list_values(table, "group"))
        wanted.append(pl.col("group").cast(pl.String).is_in(groups))
    if score is not None:
        scores = [name for name in table.columns if name.endswith("_score")]
        wanted.append(pl.any_horizontal(pl.col(scores) >= score) if scores else pl.lit(False))
    return select_first_rows(table.filter(pl.all_horizontal(wanted)), path).keys()


def list_labels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the labels that file metadata name, also those that no row has."""
    labels, categories = metadata.get("labels"), metadata.get("category_metadata")
    listed = [*(labels if isinstance(labels, list) else ()), *(categories if isinstance(categories, dict) else ())]
    return [name for name in listed if isinstance(name, str)]


def with_all_columns(table: pl.DataFrame, version: str) -> pl.DataFrame:
    """Return annotations with every column of their version, null for absent ones, in the version's order."""
    known = pl.DataFrame(pl.from_arrow(schema.make_arrow_schema(schema.list_columns(version)).empty_table())).schema
    aliased = {schema.ALIASES[name] for name in table.columns if name in schema.ALIASES}
    missing = [name for name in known if name not in table.columns and name not in aliased]
    full = table.with_columns(pl.lit(None, known[name]).alias(name) for name in missing)
    order = [name for name in known if name in full.columns]
    return full.select(*order, *(name for name in full.columns if name not in known))


def with_frames(annotations: pl.DataFrame, frames: pl.DataFrame | None, paths: DatasetPaths) -> pl.DataFrame:
    """Return annotations joined with those columns of their frame that they do not have."""
    if frames is None:
        return annotations
    further = [name for name in frames.columns if name not in annotations.columns]
    own = select_keys(annotations, paths.arrow)
    other = select_keys(frames, paths.frames).with_columns(frames.select(further)).unique(KEY, keep="first")
    joined = own.join(other, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return annotations.with_columns(joined.select(further))


def with_polygons(table: pl.DataFrame) -> pl.DataFrame:
    """Return annotations in which masks that are outlines, as until 2025.10, are polygons."""
    if not isinstance(table.schema.get("mask"), pl.List):
        return table
    rings = split(table["mask"].to_arrow(compat_level=pl.CompatLevel.oldest()))
    return table.drop("mask").with_columns(pl.Series("polygon", rings))


def _list_values(table: pl.DataFrame, column: str) -> list[str]:
    return table[column].drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()


def list_names(given: Iterable[str] | object) -> list[str]:
    """Return names that are given as one or as several; an empty list for None."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return [*given] if several else [] if given is None else [given]  # type: ignore[misc,list-item]


def check_known(what: str, names: Collection[str], known: Collection[str]) -> None:
    """Raise UsageError for a name that is not among the known ones."""
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known: {sort_nearest(str(name), known)}")


class Samples(Sequence["Sample"]):
    """Some samples of a dataset in some order, each read on access.

    PyTorch accepts it as a map-style dataset: it has a length, returns samples by index, and can be pickled for other
    processes. Threads may share it.
    """

    def __init__(self, dataset: Dataset, keys: Sequence[Any]) -> None:
        """`keys`: as the dataset names its samples."""
        self._dataset, self._keys = dataset, keys

    @property
    def dataset(self) -> Dataset:
        """The dataset that they belong to."""
        return self._dataset

    def __getattr__(self, name: str) -> Any:
        whole = not name.startswith("_") and hasattr(type(self.dataset), name)
        hint = {name: f"dataset.{name}, which is that of all samples"} if whole else {}
        raise without_attribute(self, name, INSTEAD | hint)

    def __repr__(self) -> str:
        return f"<{len(self._keys)} of the {pluralize(len(self.dataset), 'sample')} of {self.dataset.title}>"

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Samples: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Sample | Samples:
        """Return the sample at an index, negative from the end, or the `Samples` of a slice. Raises IndexError."""
        if isinstance(index, slice):
            return Samples(self.dataset, self._keys[index])
        try:
            place = operator.index(index)
        except TypeError:
            text = f"expected an index or a slice, got {type(index).__name__}; samples('camera') selects by sensor"
            raise TypeError(text) from None
        return self.dataset._sample_of(self._keys[place])

    def __iter__(self) -> Iterator[Sample]:
        return self.dataset._iter_samples(self._keys)

    def __add__(self, other: Samples) -> Samples:
        """Return these samples and then those of another dataset or selection."""
        from edgefirst_ros.dataset.several import join_samples

        return join_samples(self, other)

    def shuffle(self, seed: int = 0) -> Samples:
        """Return the samples in a random order, which depends only on their number and the seed.

        Args:
            seed: Seed of the order.

        Returns:
            The samples in another order.
        """
        keys = list(self._keys)
        random.Random(seed).shuffle(keys)  # noqa: S311  an order, no secret
        return Samples(self.dataset, keys)

    def where(self, expression: pl.Expr | Callable[[Sample], object] | None = None, **named: NoReturn) -> Samples:
        """Return the samples for which a condition is true, in the same order.

        Args:
            expression: A function of a sample, or a polars expression on columns of the frames table. If it names
                columns of the annotations, it must hold for one annotation of the sample.
            named: Refused; `Dataset.samples` selects by name.

        Returns:
            The matching samples.

        Raises:
            UsageError: A column is unknown, or the result is not one Boolean for each row.
        """
        if callable(expression) and not named:
            return Samples(self.dataset, [key for key in self._keys if expression(self.dataset._sample_of(key))])
        if named or not isinstance(expression, pl.Expr):
            found = f"got {', '.join(f'{name}=' for name in named) or type(expression).__name__}"
            hint = "samples(label='car') selects by label"
            raise UsageError(f"expected an expression such as polars.col('latitude') > 45, {found}; {hint}")
        return Samples(self.dataset, self.dataset._keys_where(self._keys, expression))

    def show(self, number: int = 3) -> Cards:
        """Return some samples, spread evenly, that a notebook draws as cards.

        Args:
            number: Number of samples.

        Returns:
            The cards.
        """
        places = np.unique(np.linspace(0, len(self) - 1, min(number, len(self))).round().astype(int)) if self else ()
        return Cards(self.dataset, [self._keys[place] for place in places])


class Cards(Samples):
    """Some samples that a notebook draws, each with its picture, boxes, points and caption."""

    def _repr_html_(self) -> str:
        return "".join(sample._repr_html_() for sample in self)


def find_processed(dataset: Dataset) -> Collection[Key]:
    """Return the samples that the model processed; of sequences without a model those with an annotation."""
    frames, found = dataset.frames, set[Key]()
    if frames is not None and schema.MODEL_TIMESTAMP in frames.columns:
        looked = frames[schema.MODEL_TIMESTAMP].is_not_null().to_list()
        found = {key for key, row in dataset.frame_rows.items() if looked[row]}
    with_model = {key.name for key in found}
    return found | {key for key in dataset.annotation_rows[1] if key.name not in with_model}


def convert_boxes(rows: pl.DataFrame, metadata: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return (N, 4) centre and size of boxes in parts of the picture, without nulls and boxes in pixels."""
    if "box2d" not in rows.columns or str(metadata.get("box2d_normalized", "true")) == "false":
        return np.zeros((0, 4))
    kind = rows.schema["box2d"]
    if not isinstance(kind, pl.Array | pl.List):
        return np.zeros((0, 4))
    values = rows["box2d"].drop_nulls()
    if isinstance(kind, pl.List):
        values = values.filter(values.list.len() == 4).cast(pl.Array(pl.Float64, 4), strict=False)
    found = np.array(values.to_list(), float).reshape(-1, 4)
    found = found[np.isfinite(found).all(1)]
    form = metadata.get("box2d_format")
    return convert_layout(found, form if form in LAYOUTS else LAYOUTS[0], LAYOUTS[0])


def find_repeats(
    stamps: Mapping[str, Sequence[Any]], keys: Iterable[Key], rows: Mapping[Key, int]
) -> dict[Key, frozenset[str]]:
    """Return the inputs that samples repeat.

    `stamps` by input, of every row of the frames; `keys` in the order of the samples, `rows` of each its row.
    """
    found: dict[Key, frozenset[str]] = {}
    for before, key in itertools.pairwise(keys):
        if before.name == key.name and before in rows and key in rows:
            last, row = rows[before], rows[key]
            same = [name for name, of in stamps.items() if of[row] is not None and of[row] == of[last]]
            if same:
                found[key] = frozenset(same)
    return found


def describe_repeats(members: int, size: int) -> str:
    """Return in words how many members repeat the message of the sample before, their bytes, and what saves them."""
    return (
        f"repeated members: {members}, {format_size(size)}: a slower sensor's message serves several samples; "
        "convert --no-reuse writes each once"
    )


def count_repeats(paths: DatasetPaths) -> tuple[int, int]:
    """Return how many members of a dataset repeat the message of the sample before, and their bytes.

    Memory is a bit for each frame and input, so that it is as good as the same for a drive of any length. Raises
    DatasetError.
    """
    table = TableFile(paths.frames)
    columns = stamp_columns(table.schema.names)
    found = {name: FrameSet() for name in columns}
    inputs_of = map_kinds(table.schema.names)
    keys, stamps = list[Key](), {name: list[Any]() for name in columns}
    for batch in table.batches():
        keys = [*keys[-1:], *map(Key._make, keys_of_batch(batch))]
        stamps = {name: [*stamps[name][-1:], *batch[column].to_pylist()] for name, column in columns.items()}
        for key, inputs in find_repeats(stamps, keys, {key: row for row, key in enumerate(keys)}).items():
            if key.frame is not None:
                for name in inputs:
                    found[name].add(key.name, key.frame)

    def repeats(name: str) -> bool:
        member = parse_member(name)
        frames = found.get(inputs_of[member.kind]) if member is not None else None
        return frames is not None and member is not None and (member.sequence, member.frame) in frames

    return count_members(paths.members, repeats) if any(found.values()) else (0, 0)
