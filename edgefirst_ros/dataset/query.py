# SPDX-License-Identifier: Apache-2.0
"""Samples by what a table says of them: the rows of each, and those that have a label, a group, a score."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.errors import DatasetError, UsageError

if TYPE_CHECKING:
    import polars as pl


def keys_of(table: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Return columns name (String) and frame (Int64), whatever types they have; raises DatasetError naming `path`."""
    import polars as pl

    frame = pl.col("frame") if "frame" in table.columns else pl.lit(None)
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


def sorted_rows(table: pl.DataFrame, path: Path) -> tuple[pl.DataFrame, dict[Key, tuple[int, int]]]:
    """Return the table sorted by sample, rows of one in their order, and the (first row, rows) of each."""
    order = keys_of(table, path).with_row_index().sort("name", "frame", maintain_order=True)
    runs = order.group_by("name", "frame", maintain_order=True).len()
    spans = zip(runs.rows(), accumulate(runs["len"].to_list(), initial=0), strict=False)
    return table[order["index"]], {Key(name, frame): (start, count) for (name, frame, count), start in spans}


def annotating(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that hold an annotation: one without label and geometry stands for a sample without any."""
    import polars as pl

    present = [name for name in ("label", *schema.GEOMETRY) if name in table.columns]
    return table.filter(pl.any_horizontal(pl.col(present).is_not_null())) if present else table.clear()


def without_broken_rings(table: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the table without rings that are odd, under three points or not finite, and the number of those."""
    import polars as pl

    from edgefirst_ros.dataset.tables.forms.variants import is_list, whole_rings

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
    table: pl.DataFrame, path: Path, label: str | Collection[str] | None, group: str | None, score: float | None
) -> Mapping[Key, int]:
    """Return the samples with a row that has the label (or one of several), the group, and at least the score.

    Raises UsageError for a score outside 0..1.
    """
    import polars as pl

    if score is not None and not 0 <= score <= 1:
        raise UsageError(f"score is {score}, it must lie within 0..1")
    wanted = []
    if label is not None:
        wanted.append(_is_one_of(table, "label", [label] if isinstance(label, str) else list(label)))
    if group is not None:
        wanted.append(_is_one_of(table, "group", [group]))
    if score is not None:
        scores = [name for name in table.columns if name.endswith("_score")]
        wanted.append(pl.any_horizontal(pl.col(scores) >= score) if scores else pl.lit(False))
    return first_rows(table.filter(pl.all_horizontal(wanted)) if wanted else table, path)


def _is_one_of(table: pl.DataFrame, column: str, values: Collection[str]) -> pl.Expr:
    import polars as pl

    return pl.col(column).cast(pl.String).is_in(values) if column in table.columns else pl.lit(False)
