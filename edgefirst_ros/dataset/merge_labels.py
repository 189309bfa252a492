# SPDX-License-Identifier: Apache-2.0
"""What several datasets say of one thing each, as one dataset says it: labels, object ids, rows of annotations."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.frames_metadata import parsed
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.query import sorted_rows
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.dataset.tables.forms.table import annotation_path
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.grayscale import encode_gray
from edgefirst_ros.sensors.masks import VOID

COLUMNS = frozenset(ANNOTATION_JOURNAL.names)
INDICES = ("neg_label_indices", "not_exhaustive_label_indices")
RANDOM = 4
"""Version of the UUIDs that a device gives its tracks: two datasets that have one have the same track."""


@dataclass
class Part:
    """One dataset on its way into another."""

    dataset: Dataset
    sequences: dict[str, str]
    """Name of each sequence -> its name in the merged dataset."""
    version: str = schema.UNNAMED_VERSION
    metadata: Mapping[str, str] = field(default_factory=dict)
    """File metadata of the annotations."""
    indices: dict[int, int] = field(default_factory=dict)
    """`label_index` -> the one in the merged dataset, where it is another."""
    ids: dict[str, str] = field(default_factory=dict)
    """`object_id` -> the one in the merged dataset, where it is another."""
    notes: list[str] = field(default_factory=list)
    lost: int = 0
    """Values of the annotations that cannot be read."""

    def __post_init__(self) -> None:
        self._table, self._spans = pl.DataFrame(), dict[Key, tuple[int, int]]()
        file = annotation_path(self.dataset.paths.arrow)
        if file is None:
            return
        found = read_annotations(file, limits=self.dataset.limits)
        self._table, self._spans = sorted_rows(_frame(list(found.batches()), found.schema), file)
        self.version, self.metadata = found.version, dict(found.metadata)
        if found.nested and "box2d" in found.columns:
            self.metadata = {**self.metadata, "box2d_format": found.layout}
        if self.version not in schema.WRITABLE:
            raise DatasetError(
                f"{file}: schema {self.version} cannot be merged, known are {', '.join(schema.WRITABLE)}"
            )
        self._check_forms(file)
        self.notes += [f"{file}: {what}: {number}" for what, number in found.tally.lost.items()]
        self.lost = sum(found.tally.lost.values())
        foreign = sorted(set(self._table.columns) - COLUMNS)
        self.notes += [f"{file}: columns that are not merged: {', '.join(foreign)}"] if foreign else []
        self._table = self._table.drop(foreign)

    @property
    def keys(self) -> list[Key]:
        """Samples that have rows."""
        return list(self._spans)

    @property
    def object_ids(self) -> set[str]:
        """All object ids there are."""
        there = "object_id" in self._table.columns
        return set(self._table["object_id"].drop_nulls().unique().to_list()) if there else set()

    @property
    def names(self) -> dict[int, str]:
        """The labels by their index: as the file lists them, else as its rows use them."""
        if "labels" in self.metadata:
            labels = parsed(self.metadata["labels"])
            if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
                raise DatasetError(f"{self.dataset.paths.arrow}: metadata labels is no list of texts")
            return dict(enumerate(labels))
        if not {"label", "label_index"} <= set(self._table.columns):
            return {}
        pairs = self._table.select("label_index", "label").drop_nulls().unique().sort("label_index", "label")
        return dict(reversed(pairs.rows()))

    def rows(self, key: Key) -> Iterator[dict[str, Any]]:
        """The rows of a sample as the merged dataset has them, without what identifies the sample and without nulls."""
        start, count = self._spans.get(key, (0, 0))
        for row in self._table.slice(start, count).iter_rows(named=True):
            yield self._united(
                {k: v for k, v in row.items() if v is not None and k not in ("name", "frame", "timestamp")}
            )

    def _united(self, row: dict[str, Any]) -> dict[str, Any]:
        if "object_id" in row:
            row["object_id"] = self.ids.get(row["object_id"], row["object_id"])
        if self.indices:
            if "label_index" in row:
                row["label_index"] = self.indices.get(row["label_index"], row["label_index"])
            for name in INDICES:
                if name in row:
                    row[name] = [self.indices.get(index, index) for index in row[name]]
            if "mask" in row and not {"box2d", "polygon", "label"} & row.keys():
                row["mask"] = self._mask(row["mask"])
        return row

    def _mask(self, png: bytes) -> bytes:
        """A mask of classes, counted by the labels of the merged dataset."""
        from PIL import Image

        values = np.arange(256)
        for old, new in self.indices.items():
            if old < VOID:
                values[old] = new
        try:
            with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
                if image.mode not in ("1", "L"):
                    raise DatasetError(
                        f"{self.dataset.paths.arrow}: a mask of classes of mode {image.mode}, expected 8 bits"
                    )
                classes = values[np.asarray(image).astype(np.uint8)]
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DatasetError(f"{self.dataset.paths.arrow}: a mask cannot be read as PNG: {error}") from error
        if classes.max(initial=0) > VOID:
            raise DatasetError(f"{self.dataset.paths.arrow}: a mask of classes can have {VOID} labels, there are more")
        return encode_gray(classes.astype(np.uint8))

    def _check_forms(self, file: Path) -> None:
        """Raise DatasetError where numbers mean something else than in a dataset that is written here."""
        for key in schema.METADATA:
            said = schema.has_metadata(self.version) or key.name in self.metadata
            if said and key.column in self._table.columns and key.written is not None:
                found = self.metadata.get(key.name, key.default)
                if found != key.written:
                    raise DatasetError(
                        f"{file}: {key.name} is {found}, datasets are merged with {key.written} alone; "
                        "convert the annotations with edgefirst-ros migrate"
                    )


def unite_labels(parts: Sequence[Part]) -> list[str] | None:
    """One list of labels for all, and in each part what becomes of its indices.

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
    """Say in each part which object ids it must change, because another object of a part before it has them.

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


def _frame(batches: list[pa.RecordBatch], columns: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches, columns)))
