# SPDX-License-Identifier: Apache-2.0
"""`validate --fix`: rewrites the annotation table without the defects that can be repaired without guessing."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import (
    find,
)
from edgefirst_ros.dataset.publish import refuse_irreplaceable
from edgefirst_ros.dataset.storage.lock import claim_file, give_back, reporting
from edgefirst_ros.dataset.storage.syncing import sync_folder
from edgefirst_ros.dataset.tables.arrow_file import ARROW_MAGIC, TableFile
from edgefirst_ros.dataset.tables.forms.nested_table import NestedTable
from edgefirst_ros.dataset.tables.forms.variants import is_list, whole_rings
from edgefirst_ros.dataset.tables.rings import is_valid
from edgefirst_ros.dataset.validate import repair
from edgefirst_ros.dataset.validate.columns import is_readable
from edgefirst_ros.dataset.validate.rows import Rows
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

BEFORE = ".before-fix"
"""Suffix of the original table."""
LENGTHS = {"box2d": 4, "box3d": 6, "location": 2, "pose": 3}


@dataclass
class Fix:
    """Outcome of a fix: {(rule, repair): number}; `kept` is the path of the original table, None without changes."""

    table: Path | None = None
    kept: Path | None = None
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)


def fix(path: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> Fix:
    """Repair the annotations of the dataset at `path` where no guess is needed; the original table is kept beside.

    Nothing is written where nothing can be put right. Raises DatasetError where there is no dataset, it is not
    finished, or the table of an earlier fix is still there; StorageError where the disk refuses.
    """
    paths = find(path)
    if paths.unfinished:
        raise DatasetError(f"{paths.container}: is not finished; run edgefirst-ros recover first")
    subject = Subject(paths, limits)
    table = subject.annotations
    if table is None or not table.rows or "name" not in _readable(table):
        return Fix()
    done = Fix(table.path)
    columns = _Columns(table)
    rows = Rows(subject.samples)
    for batch in table.batches():
        fixed = columns.fixed(batch, columns.readable, done.changed)
        rows.add(fixed, batch, columns.readable)
    rows.decide(done.changed)
    if done.changed:
        if isinstance(table, NestedTable):
            raise DatasetError(f"{table.path}: JSON is not put right; make it {paths.arrow.name} with migrate first")
        done.kept = _replace(table, columns, rows)
    return done


class _Columns:
    """The repairs of columns, as far as their types are those of the format."""

    def __init__(self, table: TableFile) -> None:
        self._path = table.path
        self.readable = _readable(table)
        self.broken: set[str] = set()
        """Columns with repairs so far."""

    def fixed(self, batch: pa.RecordBatch, names: Collection[str], changed: Counter[tuple[str, str]]) -> pa.RecordBatch:
        """Return the batch with the columns in `names` put right, and count what was done."""
        arrays = {name: batch.column(name) for name in batch.schema.names}
        before = {name: arrays[name] for name in schema.GEOMETRY if name in arrays}
        for name in names:
            try:
                rule, what, (arrays[name], count) = self._repaired(name, arrays)
            except (pa.ArrowException, ValueError) as error:
                raise DatasetError(f"{self._path}: column {name!r} cannot be put right: {error}") from error
            if count:
                changed[rule, what] += count
                self.broken.add(name)
        for name, array in before.items():
            score = f"{name}_score"
            if score in self.readable:
                gone = is_valid(array) & ~is_valid(arrays[name])
                arrays[score] = repair.nulled(arrays[score], gone)
        return pa.record_batch(list(arrays.values()), schema=batch.schema)

    def _repaired(self, name: str, arrays: dict[str, pa.Array]) -> tuple[str, str, tuple[pa.Array, int]]:
        array = arrays[name]
        if pa.types.is_null(array.type):
            return "", "", (array, 0)
        if name == "polygon" or (name == "mask" and is_list(array.type)):
            return "TAB007", f"rings of {name} removed", whole_rings(array)
        if name == "mask":
            return "TAB013", "masks that are no PNG files made null", repair.masks(array)
        if name.endswith("_score"):
            return "TAB008", f"values of {name} brought to 0..1 or made null", repair.scores(array)
        if name in LENGTHS:
            rule = "TAB009" if name in schema.GEOMETRY else "TAB022"
            return rule, f"values of {name} that are not finite made null", repair.numbers(array, LENGTHS[name])
        if name == "timing":
            return "TAB010", "negative timings made null", repair.timings(array)
        return "", "", (array, 0)


def _readable(table: TableFile) -> list[str]:
    """Return the columns with a type of any version: those that the rules look at."""
    return [
        f.name for f in table.schema if any(c.name == f.name and is_readable(f.type, c.type) for c in schema.COLUMNS)
    ]


def _batches(table: TableFile, columns: _Columns, rows: Rows) -> Iterator[pa.RecordBatch]:
    start, broken = 0, sorted(columns.broken)
    for batch in table.batches():
        fixed = columns.fixed(batch, broken, Counter())
        yield rows.apply(fixed, start)
        start += batch.num_rows


def _replace(table: TableFile, columns: _Columns, rows: Rows) -> Path:
    """Write the table under a partial name and put it into place; returns the name that the old one has now."""
    path = table.path
    kept, partial = path.with_name(path.name + BEFORE), path.with_name(f"{path.name}.fix.partial")
    if os.path.lexists(kept) and not os.path.samefile(kept, path):
        raise DatasetError(f"{kept} exists, from an earlier fix; remove it or move it away")
    with reporting(path, "rewrite it"):
        refuse_irreplaceable(path)
        fd = claim_file(partial)
        try:
            _write(fd, table, columns, rows)
            _keep(path, kept)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
            give_back(fd)
        sync_folder(path.parent)
    return kept


def _write(fd: int, table: TableFile, columns: _Columns, rows: Rows) -> None:
    target = rows.schema(table.schema).with_metadata(table.metadata or None)
    with open(fd, "wb", buffering=1 << 20, closefd=False) as file:
        try:
            with _writer(file, table.path, target) as writer:
                for batch in _batches(table, columns, rows):
                    if batch.num_rows:
                        writer.write_batch(batch)
        except pa.ArrowException as error:
            raise DatasetError(f"{table.path}: cannot be rewritten: {error}") from error
        file.flush()
        os.fsync(fd)


def _writer(file: Any, path: Path, target: pa.Schema) -> Any:
    with path.open("rb") as old:
        if old.read(len(ARROW_MAGIC)) == ARROW_MAGIC:
            return pa.ipc.new_file(file, target)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(file, target, compression="zstd")


def _keep(path: Path, kept: Path) -> None:
    """Give the table a second name, so that there is one under its own name at any moment."""
    if os.path.lexists(kept):
        return  # a fix that was interrupted here
    try:
        os.link(path, kept)
    except FileExistsError as error:
        raise DatasetError(f"{kept} exists, from an earlier fix; remove it or move it away") from error
    except OSError:  # no second names on this file system
        with path.open("rb") as source, kept.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
