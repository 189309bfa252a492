# SPDX-License-Identifier: Apache-2.0
"""Labels, object ids and annotation rows of several datasets made consistent for one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.frames_metadata import frames_metadata, parsed
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.merge_rows import AnnotationRows, read_frames
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.dataset.tables.forms.read import Annotations
from edgefirst_ros.dataset.tables.forms.table import annotation_path
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL
from edgefirst_ros.errors import DatasetError

COLUMNS = frozenset(ANNOTATION_JOURNAL.names)
KEYS = pl.DataFrame(schema={"name": pl.String, "frame": pl.Int64})
"""None."""
RANDOM = 4
"""Version of the random UUIDs that a device gives its tracks: equal ones in two datasets are the same track."""


@dataclass
class Part:
    """One of the datasets that are merged."""

    dataset: Dataset
    sequences: dict[str, str]
    """Sequence -> its name in the merged dataset."""
    version: str = schema.UNNAMED_VERSION
    metadata: Mapping[str, str] = field(default_factory=dict)
    """File metadata of the annotations."""
    indices: dict[int, int] = field(default_factory=dict)
    """`label_index` -> that in the merged dataset, if it changes."""
    ids: dict[str, str] = field(default_factory=dict)
    """`object_id` -> that in the merged dataset, if it changes."""
    notes: list[str] = field(default_factory=list)
    lost: int = 0
    """Number of annotation values that cannot be read."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Labels by index: as listed in the metadata, else as used by the rows."""
    object_ids: frozenset[str] = frozenset()
    """All object ids of the annotations."""

    def __post_init__(self) -> None:
        frames, limits = self.dataset.paths.frames, self.dataset.limits
        there = os.path.lexists(frames)
        file = TableFile(frames, limits) if there else None
        self.frames = read_frames(file) if file else None
        self.frames_metadata = frames_metadata(frames, file.metadata) if file else {}
        self._rows: AnnotationRows | None = None
        self._path = path = annotation_path(self.dataset.paths.arrow)
        if path is None:
            return
        found = read_annotations(path, limits=limits)
        table = self._read(found).table
        self.version, self.metadata = found.version, dict(found.metadata)
        if found.nested and "box2d" in found.columns:
            self.metadata = {**self.metadata, "box2d_format": found.layout}
        if self.version not in schema.WRITABLE:
            raise DatasetError(f"{path}: schema {self.version} cannot be merged; known: {', '.join(schema.WRITABLE)}")
        self._check_forms(path, table.column_names)
        self.names = self._names(table)
        if "object_id" in table.column_names:
            self.object_ids = frozenset(_column(table, "object_id").drop_nulls().unique())
        self.notes += [f"{path}: {what}: {number}" for what, number in found.tally.lost.items()]
        self.lost = sum(found.tally.lost.values())
        foreign = sorted(set(found.columns) - COLUMNS)
        self.notes += [f"{path}: columns that are not merged: {', '.join(foreign)}"] if foreign else []

    @property
    def keys(self) -> pl.DataFrame:
        """(sequence, frame) of the samples with rows, even those without members, while `opened`."""
        return KEYS if self._rows is None else self._rows.keys

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the annotation rows, for `rows` and `keys`: of one part at a time, as they take the memory."""
        if self._path is not None:
            self._rows = self._read(read_annotations(self._path, limits=self.dataset.limits))
        yield
        self._rows = None

    def _read(self, found: Annotations) -> AnnotationRows:
        return AnnotationRows(found, [sample.key for sample in self.dataset.samples()], self.dataset.limits)

    def _names(self, table: pa.Table) -> dict[int, str]:
        if "labels" in self.metadata:
            labels = parsed(self.metadata["labels"])
            if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                raise DatasetError(f"{self.dataset.paths.arrow}: metadata labels is not a list of texts")
            return dict(enumerate(labels))
        if not {"label", "label_index"} <= set(table.column_names):
            return {}
        pairs = pl.DataFrame([_column(table, "label_index"), _column(table, "label")])
        return dict(reversed(pairs.drop_nulls().unique().sort("label_index", "label").rows()))

    def rows(self, key: Key, timestamp: int) -> pa.RecordBatch | None:
        """Return the rows of a sample for the merged dataset, while `opened`; None without any."""
        if self._rows is None:
            return None
        return self._rows.of(key, self.sequences[key.name], timestamp, self.ids, self.indices)

    def _check_forms(self, file: Path, columns: Sequence[str]) -> None:
        """Raise DatasetError if the file has other conventions (box layout, orders) than datasets written here."""
        for key in schema.METADATA:
            said = schema.has_metadata(self.version) or key.name in self.metadata
            if said and key.column in columns and key.written is not None:
                found = self.metadata.get(key.name, key.default)
                if found != key.written:
                    raise DatasetError(
                        f"{file}: {key.name} is {found}, datasets are merged with {key.written} alone; "
                        "convert the annotations with edgefirst-ros migrate"
                    )


def _column(table: pa.Table, name: str) -> pl.Series:
    return pl.Series(name, pl.from_arrow(table[name]))


def unite_labels(parts: Sequence[Part]) -> list[str] | None:
    """Return one list of labels for all parts, and set in each part how its indices change.

    The first list is kept as it is, what others know besides comes behind it. None, and no index changes, where no
    part has a list and all agree about the indices they use.
    """
    known = [part.names for part in parts]
    if not any("labels" in part.metadata for part in parts):
        pairs = {pair for names in known for pair in names.items()}
        if len(pairs) == len({index for index, _ in pairs}) == len({name for _, name in pairs}):
            return None
    united: list[str] = []
    for part, names in zip(parts, known, strict=True):
        in_order = [names[index] for index in sorted(names)]
        taken = set(united)
        united += [name for name in dict.fromkeys(in_order) if name not in taken] if united else in_order
        place = {name: index for index, name in reversed(list(enumerate(united)))}
        kept = united[: len(names)] == in_order and sorted(names) == list(range(len(names)))
        part.indices = {} if kept else {index: place[name] for index, name in names.items() if index != place[name]}
    return united


def separate_ids(parts: Sequence[Part]) -> None:
    """Set in each part new object ids for those that another object of an earlier part has.

    An id that a device made at random is the same track in both; any other is made of names and numbers, which come
    again in other recordings.
    """
    taken: set[str] = set()
    for part in parts:
        own = part.object_ids
        where = next(iter(part.sequences.values()), "")
        free = own - taken
        for one in sorted(own & taken):
            if not _is_random(one):
                new = f"{where}/{one}"
                while not part.ids.get(one) or part.ids[one] in taken or part.ids[one] in free:
                    new = part.ids[one] = str(uuid.uuid5(uuid.NAMESPACE_URL, new))
                taken.add(new)
        taken |= free


def _is_random(text: str) -> bool:
    try:
        return uuid.UUID(text).version == RANDOM
    except ValueError:
        return False
