# SPDX-License-Identifier: Apache-2.0
"""Write user annotations into a finished dataset: all rows are checked, then the table is replaced atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.label_names import Labels
from edgefirst_ros.dataset.names import DatasetPaths, Key
from edgefirst_ros.dataset.query import KEY, select_annotating, select_keys
from edgefirst_ros.dataset.schema import Column
from edgefirst_ros.dataset.storage.lock import Replacement, is_plain_file, keep_each
from edgefirst_ros.dataset.tables.arrow_file import find_annotations, open_annotations
from edgefirst_ros.dataset.tables.forms import Annotations
from edgefirst_ros.dataset.tables.values import MISFITS
from edgefirst_ros.dataset.tables.write import choose_columns, count_columns, write_rows
from edgefirst_ros.errors import DatasetError, UsageError, describe_any, explain_errors, pluralize, sort_nearest
from edgefirst_ros.limits import Limits

PNG = b"\x89PNG\r\n\x1a\n"
PLACE = "\0place"
"""Internal column: index of a row's sample in the dataset; no other column has that name."""


@dataclass(frozen=True)
class Written:
    """A dataset whose annotations are replaced: paths, limits, its samples in order with their stamps, and its rows."""

    paths: DatasetPaths
    limits: Limits
    keys: Sequence[Key]
    stamps: Sequence[int | None] | None
    """Stamps of the samples, ns; None where no table of frames has any."""
    annotations: pl.DataFrame


def write_annotations(
    dataset: Written,
    frame: pl.DataFrame,
    categories: Mapping[str, Mapping[str, Any]] | None = None,
    keep_as: str | None = None,
    *,
    dry_run: bool = False,
) -> Path | None:
    """Replace the annotations of a dataset by `frame`, as `Dataset.write_annotations` does.

    A sample without rows gets one row that marks it as empty. The same rows result in the same bytes.
    """
    if not isinstance(frame, pl.DataFrame):
        raise UsageError(f"expected a polars.DataFrame, got {type(frame).__name__}")
    paths = dataset.paths
    if paths.unfinished:
        raise DatasetError(f"{paths.container}: is not finished; run edgefirst-ros recover first")
    if os.path.lexists(paths.arrow) and not is_plain_file(paths.arrow):
        raise DatasetError(f"{paths.arrow}: is not a regular file; replace it by the file itself")
    with ExitStack() as stack:
        target = paths.arrow
        if dry_run:  # the dataset may be where nothing can be written
            target = Path(stack.enter_context(TemporaryDirectory(prefix="edgefirst-label-")), target.name)
        replacement = stack.enter_context(Replacement(target))
        before = _read_before(dataset)
        given = _read(before, frame)
        rows, known = given.frame(), before.frame()
        labels = Labels.of(before.metadata, known, categories)
        rows = labels.add_indices(_complete(dataset, rows, known))
        with replacement.writing() as file:
            _write(file, given, rows, labels)
        if dry_run:
            return None
        kept = None
        if keep_as is not None and os.path.lexists(paths.arrow):
            kept = keep_each(paths.arrow, keep_as)
        replacement.put_in_place()
    return kept


def make_table(rows: Sequence[Mapping[str, Any]], further: Mapping[str, str]) -> pl.DataFrame:
    """Return rows, by column, as a table with the schema's types; `further` names columns that it does not know.

    Raises DatasetError for values that do not fit.
    """
    columns: dict[str, pa.Array] = {}
    for name in {"name": None, "frame": None, "label": None, **dict.fromkeys(name for row in rows for name in row)}:
        kind = None if name in further else schema.choose_working_type(schema.WORKING[name])
        with explain_errors(f"column {further.get(name, name)!r} does not fit {kind}", *MISFITS):
            columns[further.get(name, name)] = pa.array([row.get(name) for row in rows], kind)
    return pl.DataFrame(pl.from_arrow(pa.table(columns)))


class _Rows:
    """New rows before they are written, in the interface of a table file. Raises UsageError for impossible columns."""

    def __init__(self, frame: pl.DataFrame, metadata: Mapping[str, str]) -> None:
        for name, kind in frame.schema.items():
            if "\0" in name:  # Arrow's C interface ends a name there
                raise UsageError(f"column {name!r} has a NUL in its name, which no table can have")
            if kind == pl.Object:
                raise UsageError(f"column {name!r} holds objects of Python, which no table can hold")
        try:
            self._table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException) as error:
            raise UsageError(f"the annotations have columns that no table can hold: {describe_any(error)}") from error
        self.schema, self.metadata = self._table.schema.remove_metadata(), dict(metadata)

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches()


def _read_before(dataset: Written) -> Annotations:
    """Return the annotations that are replaced. Raises DatasetError if their conventions cannot be written."""
    file = find_annotations(dataset.paths.arrow)
    if file is None:
        metadata = {key.name: key.written for key in schema.METADATA if key.written is not None}
        none = pl.DataFrame(schema={"name": pl.String})
        metadata["schema_version"] = schema.DEFAULT_VERSION
        return Annotations(dataset.paths.arrow, source=_Rows(none, metadata))
    table = open_annotations(file, dataset.limits)
    before = Annotations(file, source=_Rows(dataset.annotations, table.metadata))
    schema.check_writable(file, before.version, table.metadata, table.schema.names)
    return before


def _read(before: Annotations, frame: pl.DataFrame) -> Annotations:
    if "name" not in frame.columns:
        raise UsageError("the annotations have no column 'name', which says the sequence of each row")
    given = Annotations(before.path, source=_Rows(frame, before.metadata))
    try:
        for _ in given.batches():
            pass
    except DatasetError as error:
        raise UsageError(str(error).removeprefix(f"{before.path}: ")) from error
    if "mask" in frame.columns and frame["mask"].dtype == pl.Binary:
        given.tally.lose("mask: no PNG file", frame["mask"].bin.starts_with(PNG).to_list().count(False))
    if given.tally.lost:
        lost = "; ".join(f"{what} ({pluralize(number, 'value')})" for what, number in given.tally.lost.items())
        raise UsageError(f"annotations that cannot be stored: {lost}")
    given.tally.freeze()
    return given


def _complete(dataset: Written, rows: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in sample order, completed by columns of the sample, with one row for each sample without any."""
    order = pl.DataFrame(dataset.keys, {"name": pl.String, "frame": pl.Int64}, orient="row").with_row_index(PLACE)
    place = select_keys(rows, dataset.paths.arrow).join(
        order, on=KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    if place[PLACE].null_count():
        _refuse(dataset, place.with_row_index("row").filter(pl.col(PLACE).is_null()).row(0, named=True))
    for name in rows.columns:
        column = schema.WORKING.get(name)
        if column and (column.level == "sample" or name == "timestamp") and not rows[name].dtype.is_nested():
            differing = rows.drop_nulls(name).group_by(KEY, maintain_order=True).agg(pl.col(name).n_unique())
            for row in differing.filter(pl.col(name) > 1).head(1).iter_rows(named=True):
                where = f"frame {row.get('frame')} of {row['name']!r}"
                raise UsageError(f"{where} has {row[name]} values of {name}, which is one")
    own = _list_sample_columns(dataset, order, known)
    kept = select_annotating(rows.with_columns(place[PLACE]))
    parts = [kept, rows.with_columns(place[PLACE]).join(kept.select(PLACE), on=PLACE, how="anti")]
    parts[1] = parts[1].unique(PLACE, keep="first", maintain_order=True)
    there = pl.concat([part.select(PLACE) for part in parts])
    missing = order.join(there, on=PLACE, how="anti").select("name", pl.col("frame").cast(pl.UInt32), PLACE)
    every = pl.concat([*parts, missing], how="diagonal_relaxed").sort(PLACE, maintain_order=True)
    joined = every.select(PLACE).join(own, on=PLACE, how="left", maintain_order="left").drop(PLACE)
    filled = [
        joined[name] if name not in every.columns else every[name].zip_with(every[name].is_not_null(), joined[name])
        for name in joined.columns
    ]
    return every.with_columns(filled).drop(PLACE)


def _list_sample_columns(dataset: Written, order: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of each sample in the old table; stamps also from the frames table."""
    names = [
        name
        for name, column in schema.WORKING.items()
        if name in known.columns and (column.level == "sample" or name == "timestamp")
    ]
    key = select_keys(known, dataset.paths.arrow).join(
        order, on=KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    placed = known.select(names).with_columns(key[PLACE]).drop_nulls(PLACE)
    found = placed.group_by(PLACE, maintain_order=True).agg(pl.col(name).drop_nulls().first() for name in names)
    if dataset.stamps is None:
        return found
    of_frames = order.select(PLACE).with_columns(pl.Series("timestamp", dataset.stamps, pl.Int64))
    joined = of_frames.join(found, on=PLACE, how="left", maintain_order="left", suffix="_before")
    if "timestamp_before" in joined.columns:
        joined = joined.with_columns(pl.coalesce("timestamp_before", "timestamp").alias("timestamp"))
    return joined.drop("timestamp_before", strict=False)


def _refuse(dataset: Written, row: Mapping[str, Any]) -> None:
    name, frame = row["name"], row["frame"]
    sequences = list(dict.fromkeys(key.name for key in dataset.keys))
    if name not in sequences:
        raise UsageError(f"row {row['row']}: unknown sequence {name!r}; known: {sort_nearest(name, sequences)}")
    frames = [str(key.frame) for key in dataset.keys if key.name == name]
    raise UsageError(
        f"row {row['row']}: sequence {name!r} has no frame {frame}; known: {sort_nearest(str(frame), frames)}"
    )


def _write(file: Any, given: Annotations, rows: pl.DataFrame, labels: Labels) -> None:
    version = given.version
    known = schema.list_columns(version)
    bound = {column.name for column in schema.COLUMNS}
    further = {name: given.columns[name] for name in given.columns if name not in bound}
    if "timing" in known and "timing" in given.columns:
        further["timing"] = given.columns["timing"]  # with the fields that no version knows
    columns: dict[str, Column] = {**known, **further}
    target = schema.make_journal_schema({**schema.WORKING, **further})
    plain = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
    table = plain.cast(pa.schema([target.field(name) for name in plain.schema.names]))
    for name in table.schema.names:
        separated = name == "polygon" and "mask" in known and "polygon" not in known
        if name not in columns and not separated and table[name].null_count < len(table):
            raise UsageError(f"schema {version} has no column {name!r}; known: {sort_nearest(name, known)}")
    there = {name: column for name, column in columns.items() if name in table.schema.names}
    filled, categories = count_columns(table.to_batches, there)
    written = choose_columns(filled, columns)
    metadata = schema.order_metadata(version, labels.metadata(given.metadata), written)
    write_rows(table.to_batches, file, ".arrow", written, categories, metadata, version)
