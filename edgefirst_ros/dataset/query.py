# SPDX-License-Identifier: Apache-2.0
"""Rows of a table by sample, and samples by label, group and score."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, Key
from edgefirst_ros.errors import DatasetError, UsageError, nearest_first

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.tables.arrow_file import TableFile

KEY = ["name", "frame"]


def keys_of(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return columns name (String) and frame (Int64), whatever types they have; raises DatasetError naming `path`."""
    import polars as pl

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


def first_rows(table: pl.DataFrame, path: Path) -> dict[Key, int]:
    """Return the first row of each sample."""
    found: dict[Key, int] = {}
    for number, (name, frame) in enumerate(keys_of(table, path).iter_rows()):
        found.setdefault(Key(name, frame), number)
    return found


def rows_by_key(file: TableFile) -> dict[Key, int]:
    """Return the first row of each sample, as `first_rows` does, of a file of frames. Raises DatasetError naming it."""
    fields = {field.name: field.type for field in file.schema if field.name in KEY}
    for name, fits in (("name", _is_text), ("frame", pa.types.is_integer)):
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


def sorted_rows(table: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
    """Return the table stably sorted by sample, and {sample: (first row, number of rows)}."""
    order = keys_of(table, path).with_row_index().sort("name", "frame", maintain_order=True)
    runs = order.group_by("name", "frame", maintain_order=True).len()
    spans = zip(runs.rows(), itertools.accumulate(runs["len"].to_list(), initial=0), strict=False)
    return table[order["index"]], {Key(name, frame): (start, count) for (name, frame, count), start in spans}


def annotating(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that hold an annotation; one without label and geometry only marks a sample without any."""
    import polars as pl

    present = [name for name in ("label", *schema.GEOMETRY) if name in table.columns]
    return table.filter(pl.any_horizontal(pl.col(present).is_not_null())) if present else table.clear()


def without_broken_rings(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the table without rings that are odd, under three points or not finite, and the number of those."""
    import polars as pl

    from edgefirst_ros.dataset.tables.values import is_list, whole_rings

    broken = 0
    for name in ("polygon", "mask"):
        array = table[name].to_arrow() if name in table.columns else None
        if array is None or not is_list(array.type):
            continue
        try:
            array, count = whole_rings(array)
        except DatasetError:  # lists of something else, which is reported by `validate`
            continue
        if count:
            table = table.with_columns(pl.Series(name, pl.from_arrow(array), table.schema[name]))
            broken += count
    return table, broken


def matching(
    table: pl.DataFrame,
    path: Path,
    metadata: Mapping[str, Any],
    label: str | Collection[str] | None,
    group: str | None,
    score: float | None,
) -> Collection[Key]:
    """Return the samples with a row that has the label (or one of several), the group, and at least the score.

    Raises UsageError for a score outside 0..1, and for a label or group that neither a row nor `metadata` has.
    """
    import polars as pl

    if score is not None and not 0 <= score <= 1:
        raise UsageError(f"score is {score}, it must lie within 0..1")
    wanted = []
    if label is not None:
        labels = [label] if isinstance(label, str) else list(label)
        _check("label", labels, {**dict.fromkeys(_values(table, "label")), **dict.fromkeys(listed_labels(metadata))})
        wanted.append(pl.col("label").cast(pl.String).is_in(labels))
    if group is not None:
        _check("group", [group], _values(table, "group"))
        wanted.append(pl.col("group").cast(pl.String) == group)
    if score is not None:
        scores = [name for name in table.columns if name.endswith("_score")]
        wanted.append(pl.any_horizontal(pl.col(scores) >= score) if scores else pl.lit(False))
    return first_rows(table.filter(pl.all_horizontal(wanted)), path).keys()


def listed_labels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the labels that file metadata name, also those that no row has."""
    labels, categories = metadata.get("labels"), metadata.get("category_metadata")
    listed = [*(labels if isinstance(labels, list) else ()), *(categories if isinstance(categories, dict) else ())]
    return [name for name in listed if isinstance(name, str)]


def with_all_columns(table: pl.DataFrame, version: str) -> pl.DataFrame:
    """Return annotations with every column of their version, null for absent ones, in the version's order."""
    import polars as pl

    known = pl.DataFrame(pl.from_arrow(schema.arrow_schema(schema.columns(version)).empty_table())).schema
    aliased = {schema.ALIASES[name] for name in table.columns if name in schema.ALIASES}
    missing = [name for name in known if name not in table.columns and name not in aliased]
    full = table.with_columns(pl.lit(None, known[name]).alias(name) for name in missing)
    order = [name for name in known if name in full.columns]
    return full.select(*order, *(name for name in full.columns if name not in known))


def with_frames(annotations: pl.DataFrame, frames: pl.DataFrame | None, paths: DatasetPaths) -> pl.DataFrame:
    """Return annotations joined with those columns of their frame that they lack."""
    if frames is None:
        return annotations
    further = [name for name in frames.columns if name not in annotations.columns]
    own = keys_of(annotations, paths.arrow)
    other = keys_of(frames, paths.frames).with_columns(frames.select(further)).unique(KEY, keep="first")
    joined = own.join(other, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return annotations.with_columns(joined.select(further))


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _values(table: pl.DataFrame, column: str) -> list[str]:
    import polars as pl

    return table[column].drop_nulls().unique(maintain_order=True).cast(pl.String).to_list()


def _check(what: str, names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}; known: {nearest_first(name, known)}")
