# SPDX-License-Identifier: Apache-2.0
"""The dataset under validation: everything is opened once, members are read one by one, tables batch by batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key, list_members
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.storage.access import Archive, Container, open_container
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.forms.table import annotation_path, open_annotations
from edgefirst_ros.dataset.validate.columns import is_readable
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True)
class FrameRow:
    """Columns of one frames row that members are compared with."""

    timestamp: int | None
    size: tuple[int, ...] | None
    position: tuple[float, float] | None
    companions: dict[str, int]
    """{companion: stamp in ns}, existing ones only."""


@dataclass
class View:
    """One member while it is checked; `fault` says why it could not be read."""

    name: str
    key: Key | None
    kind: str
    data: bytes
    fault: str
    row: FrameRow | None
    zip_entry: Any = None
    notes: dict[str, Any] = field(default_factory=dict)
    """Values that one rule read from the member and others need, too."""


class Subject:
    """The dataset under validation.  Raises DatasetError when its members cannot be listed."""

    def __init__(self, paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> None:
        self.paths, self._limits = paths, limits
        if not os.path.lexists(paths.members):
            raise DatasetError(f"{paths.members}: not there; the tables alone are not a dataset")
        self.container: Container = open_container(paths.members, limits)
        self.table_faults: list[tuple[str, str]] = []
        found = annotation_path(paths.arrow)
        self.annotations = self._open(open_annotations, found) if found else None
        self.frames = self._open(TableFile, paths.frames) if os.path.lexists(paths.frames) else None
        names = self.container.names
        self.members = list(zip(names, list_members(names, self._annotated), strict=True))
        self.samples: dict[Key, set[str]] = {}
        for _, member in self.members:
            if member:
                self.samples.setdefault(member[0], set()).add(member[1])
        self.rows = self._frame_rows()
        self.view: View | None = None
        """The member under the eyes of the member rules."""

    @property
    def archive(self) -> Archive | None:
        """The ZIP; None for a folder."""
        return self.container if isinstance(self.container, Archive) else None

    @property
    def version(self) -> str:
        """Schema version of the annotations; that of 2026.04 for one that is not known."""
        said = schema.stated_version(self.annotations.metadata, self.annotations.schema) if self.annotations else ""
        return said if said in schema.VERSIONS else schema.DEFAULT_VERSION

    def views(self) -> Iterator[View]:
        """Every member, read once; duplicates too."""
        archive = self.archive
        for number, (name, found) in enumerate(self.members):
            entry = archive.entries[number] if archive else None
            data, fault = b"", ""
            try:
                data = archive.read_entry(entry) if archive and entry else self.container.read(name)
            except DatasetError as error:
                fault = str(error)
            key, kind = found or (None, "")
            yield View(name, key, kind, data, fault, self.rows.get(key) if key else None, entry)

    def annotation_rows(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Rows of the annotations as plain values: `name`, `frame` and those of `columns` that can be read."""
        yield from _rows(self.annotations, columns, schema.COLUMNS)

    def frames_rows(self) -> Iterator[dict[str, Any]]:
        """Rows of the frames table as plain values, those columns of the format that can be read."""
        known = schema.frames_columns(schema.COMPANIONS)
        yield from _rows(self.frames, known, known.values())

    def _open(self, opener: Callable[[Path, Limits], TableFile], path: Path) -> TableFile | None:
        """A table whose rows can all be read, or None and a fault."""
        try:
            table = opener(path, self._limits)
            for _ in table.batches():
                pass
        except DatasetError as error:
            self.table_faults.append((path.name, str(error)))
            return None
        return table

    def _annotated(self) -> set[Key]:
        return {key_of(row) for row in self.annotation_rows()}

    def _frame_rows(self) -> dict[Key, FrameRow]:
        found = {}
        for row in self.frames_rows():
            stamp, size, place = row.get("timestamp"), row.get("size"), (row.get("latitude"), row.get("longitude"))
            companions = {
                name.removesuffix("_timestamp"): value
                for name, value in row.items()
                if name.endswith("_timestamp") and isinstance(value, int)
            }
            found[key_of(row)] = FrameRow(
                stamp if isinstance(stamp, int) else None,
                tuple(size) if isinstance(size, list) else None,
                place if all(isinstance(part, float) for part in place) else None,  # type: ignore[arg-type]
                companions,
            )
        return found


def key_of(row: dict[str, Any]) -> Key:
    """The sample of a row."""
    return Key(str(row.get("name")), row.get("frame"))


def place_of(row: dict[str, Any] | Key) -> str:
    """The sample of a row, in words."""
    key = row if isinstance(row, Key) else key_of(row)
    return key.name if key.frame is None else f"{key.name} frame {key.frame}"


def _rows(table: TableFile | None, columns: Iterable[str], known: Iterable[schema.Column]) -> Iterator[dict[str, Any]]:
    """Columns of a type that no version has are left out: that is reported, and their values mean nothing."""
    if table is None:
        return
    wanted = {"name", "frame", *columns}
    found = {field.name: field.type for field in table.schema if field.name in wanted}
    there = list(dict.fromkeys(c.name for c in known if c.name in found and is_readable(found[c.name], c.type)))
    for batch in table.batches():
        for start in range(0, batch.num_rows, 1024):
            yield from batch.select(there).slice(start, 1024).to_pylist()
