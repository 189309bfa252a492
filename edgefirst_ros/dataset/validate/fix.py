# SPDX-License-Identifier: Apache-2.0
"""`validate --fix`: rewrites the annotation table without the defects that can be repaired without guessing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import Key, locate
from edgefirst_ros.dataset.publish import refuse_irreplaceable
from edgefirst_ros.dataset.storage.lock import Replacement, keep_copy, report_errors
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.json_form import NestedTable
from edgefirst_ros.dataset.tables.values import is_valid
from edgefirst_ros.dataset.tables.write import open_writer
from edgefirst_ros.dataset.validate import RULES
from edgefirst_ros.dataset.validate.report import KEY, Subject, is_readable
from edgefirst_ros.dataset.validate.rules_tables import Flags, null_bad, select_places
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

BEFORE = ".before-fix"

OF_AN_ANNOTATION = {c.name for c in (*schema.COLUMNS, *schema.FURTHER) if c.level == "annotation"} | {
    old for old, new in schema.ALIASES.items() if new == "object_id"
}
REPAIRED = tuple(rule for rule in RULES if rule.fix is not None)


@dataclass
class Repairs:
    """Outcome of a fix: {(rule, repair): number}; `kept` is the path of the original table, None without changes."""

    table: Path | None = None
    kept: Path | None = None
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def plain(self) -> dict[str, Any]:
        changes = [{"rule": rule, "what": what, "number": n} for (rule, what), n in sorted(self.changed.items())]
        return {"kept": str(self.kept) if self.kept else None, "changed": changes}


def fix(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Repairs:
    """Repair the annotations of the dataset at `path` where no guess is needed; the original table stays beside.

    Without a possible repair no file changes. Raises DatasetError without a dataset, it is not
    finished, or the table of an earlier fix is still there; StorageError where the disk refuses.
    """
    paths = locate(path)
    if paths.unfinished:
        raise DatasetError(f"{paths.container}: is not finished; run edgefirst-ros recover first")
    subject = Subject(paths, limits)
    table, known = subject.annotations, schema.COLUMNS
    fields = table.schema if table else ()
    names = [f.name for f in fields if any(c.name == f.name and is_readable(f.type, c.type) for c in known)]
    if table is None or not table.rows or "name" not in names:
        return Repairs()
    done = Repairs(table.path)
    rows = RowRepair(subject.samples)
    for batch in table.batches():
        rows.add(_mend_columns(table.path, batch, names, done.changed), batch, names)
    rows.decide(done.changed)
    if done.changed:
        if isinstance(table, NestedTable):
            raise DatasetError(f"{table.path}: JSON is not put right; make it {paths.arrow.name} with migrate first")
        done.kept = _replace(table, names, rows)
    return done


def _mend_columns(
    path: Path, batch: pa.RecordBatch, names: Collection[str], changed: Counter[tuple[str, str]]
) -> pa.RecordBatch:
    """Return the batch with the columns in `names` put right, as far as their types are the format's; count repairs."""
    arrays = {name: batch.column(name) for name in batch.schema.names}
    for name in names:
        for rule in REPAIRED:
            kind = arrays[name].type
            if rule.fix is None or name not in rule.fix.mend or not rule.fix.fits(kind) or pa.types.is_null(kind):
                continue
            with explain_errors(f"{path}: column {name!r} cannot be put right", pa.ArrowException, ValueError):
                arrays[name], count = rule.fix.mend[name](arrays[name])
            if count:
                changed[rule.id, rule.fix.said.format(name)] += count
    for name in (name for name in schema.GEOMETRY if name in arrays):
        score = f"{name}_score"
        if score in names:
            gone = is_valid(batch.column(name)) & ~is_valid(arrays[name])
            arrays[score] = null_bad(arrays[score], gone)
    return pa.record_batch(list(arrays.values()), schema=batch.schema)


class RowRepair:
    """The rows of a table: first all are added, batch by batch, then it is decided, then it is applied to each."""

    def __init__(self, samples: Collection[Key]) -> None:
        self._samples = samples
        self._rows: list[pl.DataFrame] = []
        """Sample of each row, and whether it is empty or lost all its geometry."""
        self._filled: dict[str, list[Flags]] = {}
        self._keep = self._blank = np.zeros(0, bool)
        self._left_out: set[str] = set()

    def add(self, fixed: pa.RecordBatch, before: pa.RecordBatch, readable: Collection[str]) -> None:
        """Take in a batch: as it is with its columns put right, and as it was."""
        had, has = _has_any(before, schema.GEOMETRY), _has_any(fixed, schema.GEOMETRY)
        keys = fixed.select([name for name in KEY if name in readable])
        rows = pl.DataFrame(pl.from_arrow(pa.Table.from_batches([keys])))
        frame = pl.col("frame").cast(pl.Int64, strict=False) if "frame" in readable else pl.lit(None, pl.Int64)
        rows = rows.select(pl.col("name").cast(pl.String), pl.when(frame >= 0).then(frame).alias("frame"))
        self._rows.append(
            rows.with_columns(empty=pl.Series(~has & ~_has_any(fixed, ("label",))), lost=pl.Series(had & ~has))
        )
        for name in fixed.schema.names:
            self._filled.setdefault(name, []).append(is_valid(fixed.column(name)))

    def decide(self, changed: Counter[tuple[str, str]]) -> None:
        """Choose the rows and columns that stay, and count the others.

        Drops rows of missing samples, unless no row would remain: then the names differ. Also drops rows that are
        empty or lost all their geometry, except one of a sample that has no others.
        """
        rows = pl.concat(self._rows).with_row_index("row")
        samples = pl.DataFrame(list(self._samples), {"name": pl.String, "frame": pl.Int64}, orient="row")
        there = samples.with_columns(keep=pl.lit(True))
        rows = rows.join(there, on=KEY, how="left", nulls_equal=True, maintain_order="left")
        rows = rows.with_columns(pl.col("keep").fill_null(pl.col("keep").null_count() == pl.len()))
        rows = rows.with_columns(gone=pl.col("keep") & (pl.col("empty") | pl.col("lost")))
        alone = rows.filter(pl.col("gone") & ~(pl.col("keep") & ~pl.col("gone")).any().over(KEY))
        first = alone.sort("lost", maintain_order=True).unique(KEY, keep="first")  # prefers empty to lost
        keep, gone, lost = (rows[name].to_numpy() for name in ("keep", "gone", "lost"))
        stays = np.isin(np.arange(len(rows)), first["row"].to_numpy())
        self._blank = stays & lost
        self._keep = keep & (~gone | stays)
        dropped = gone & ~stays
        numbers = {
            ("REF001", "rows of missing samples removed"): int((~keep).sum()),
            ("TAB015", "empty rows removed"): int((dropped & ~lost).sum()),
            ("TAB015", "rows left without geometry removed"): int((dropped & lost).sum()),
            ("TAB015", "only rows of their sample, left without geometry, emptied"): int(self._blank.sum()),
        }
        for name, parts in self._filled.items():
            said = np.concatenate(parts) & self._keep
            if name in OF_AN_ANNOTATION:
                said &= ~self._blank
            if name not in KEY and not said.any():
                self._left_out.add(name)
        numbers["TAB006", "empty columns removed"] = len(self._left_out)
        changed.update({what: number for what, number in numbers.items() if number})

    def schema(self, before: pa.Schema) -> pa.Schema:
        return pa.schema([f for f in before if f.name not in self._left_out])

    def apply(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Return what stays of a batch whose first row is row `start` of the table."""
        stop = start + batch.num_rows
        blank, target = self._blank[start:stop], self.schema(batch.schema)
        arrays = [null_bad(batch[n], blank) if n in OF_AN_ANNOTATION else batch[n] for n in target.names]
        keep = self._keep[start:stop]
        if not keep.all():
            arrays = [select_places(array, pa.array(np.flatnonzero(keep))) for array in arrays]
        return pa.record_batch(arrays, schema=target)


def _has_any(batch: pa.RecordBatch, names: Collection[str]) -> Flags:
    there = [is_valid(batch[name]) for name in names if name in batch.schema.names]
    found: Flags = np.logical_or.reduce([np.zeros(batch.num_rows, bool), *there])
    return found


def _replace(table: TableFile, names: Collection[str], rows: RowRepair) -> Path:
    """Write the table under a partial name and put it into place; returns the name that the old one has now."""
    path = table.path
    kept = path.with_name(path.name + BEFORE)
    if os.path.lexists(kept) and not os.path.samefile(kept, path):
        raise DatasetError(f"{kept} exists, from an earlier fix; remove it or move it away")
    with report_errors(path, "rewrite it"):
        refuse_irreplaceable(path)
    target = rows.schema(table.schema).with_metadata(table.metadata or None)
    with Replacement(path) as replacement:
        with replacement.writing() as file, open_writer(file, target, parquet=table.is_parquet) as writer:
            start = 0
            for batch in table.batches():
                kept_rows = rows.apply(_mend_columns(path, batch, names, Counter()), start)
                start += batch.num_rows
                if kept_rows.num_rows:
                    writer.write_batch(kept_rows)
        if not os.path.lexists(kept):  # else a fix was interrupted here
            keep_copy(path, kept)
        replacement.put_in_place()
    return kept
