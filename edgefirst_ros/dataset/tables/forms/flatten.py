# SPDX-License-Identifier: Apache-2.0
"""Samples of nested JSON as rows: one for each annotation, one for a sample without any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.boxes import LAYOUTS
from edgefirst_ros.dataset.tables.forms.collect import BOX3D, KEYS, POSE, CollectedRows, Columns, names_of
from edgefirst_ros.dataset.tables.forms.tally import Tally
from edgefirst_ros.dataset.tables.forms.variants import brought_to
from edgefirst_ros.errors import DatasetError

ROWS = 1 << 13
_F64 = pa.float64()


def _numbers(*names: str) -> pa.DataType:
    return pa.struct([(name, _F64) for name in names])


SAMPLE = {
    "name": schema.TEXT,
    "image_name": schema.TEXT,
    "sequence_name": schema.TEXT,
    "frame_number": pa.int64(),
    "group_name": schema.TEXT,
    "width": pa.uint32(),
    "height": pa.uint32(),
    "timestamp": pa.int64(),
    "degradation": schema.TEXT,
    "neg_label_indices": schema.INDICES,
    "not_exhaustive_label_indices": schema.INDICES,
    "sensors": pa.struct([("gps", _numbers("latitude", "longitude")), ("imu", _numbers(*POSE))]),
}
"""Keys of a sample that are read."""
_PLAIN = [
    column
    for column in schema.WORKING.values()
    if column.level == "annotation" and column.name not in ("label", "polygon", "mask", "box2d", "box3d")
]
ANNOTATION = {
    "label_name": schema.TEXT,
    **{column.name: schema.working(column) for column in _PLAIN},
    "polygon": pa.large_list(pa.large_list(pa.large_list(_F64))),
    "mask": schema.TEXT,
    "box2d": _numbers(*dict.fromkeys(key for keys in KEYS.values() for key in keys)),
    "box3d": _numbers(*BOX3D),
}
"""Keys of an annotation that are read."""
REPEATED = {"name", "image_name", "sequence_name", "frame_number", "group_name"}
"""Keys of the sample that annotations of the vendor's server repeat."""
_KNOWN = frozenset(ANNOTATION)
TIMING = {field.name for field in schema.TIMING}
_FLAGS = [name for name, kind in ANNOTATION.items() if pa.types.is_boolean(kind)]
_OLDER = {"mask", "object_reference", *_FLAGS}
"""Keys with another meaning in older files."""


class Flattener:
    """Collects samples (`add`) and returns the table of their rows (`finish`)."""

    def __init__(self, path: Path, tally: Tally) -> None:
        self.samples = 0
        self._path = path
        self._tally = tally
        self._waiting: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] = []
        self._owner: list[int] = []
        self._batches: list[CollectedRows] = []
        self._further: dict[str, dict[int, Any]] = {}
        self._before = 0

    def add(self, sample: Any) -> None:
        """Add a sample. Raises DatasetError if it is not an object, or `annotations` not a list of objects."""
        annotations = sample.get("annotations") if isinstance(sample, dict) else None
        if not isinstance(sample, dict) or not isinstance(annotations, list | None):
            raise self._error("is not an object with a list of annotations", self.samples)
        if annotations and set(map(type, annotations)) != {dict}:
            raise self._error("has an annotation that is not an object", self.samples)
        first = self._before + len(self._rows)
        self._rows += annotations or [{}]
        count = len(annotations or (None,))
        sensors = sample.get("sensors")
        if sensors is not None:
            self._check_sensors(sample, sensors)
        for key in sample.keys() - SAMPLE.keys() - {"annotations"}:
            self._aside(key, sample[key], first, count, ())
        self._owner += [len(self._waiting)] * count
        self._waiting.append(sample)
        self.samples += 1
        if len(self._rows) >= ROWS:
            self._flush()

    def finish(self, layout: str) -> pa.Table:
        """Return all rows in working types, those columns that are filled; `layout` is that of box2d."""
        self._flush()
        if layout not in LAYOUTS:
            raise DatasetError(f"{self._path}: box2d_format is {layout!r}, must be one of {', '.join(LAYOUTS)}")
        for batch in self._batches:
            batch.settle(layout)
        columns = {}
        for name, column in schema.WORKING.items():
            chunks = [batch.columns[name] for batch in self._batches]
            if (column.level == "identity" and name != "timestamp") or any(c.null_count < len(c) for c in chunks):
                kind = chunks[0].type if chunks else schema.working(column)
                columns[name] = pa.chunked_array(chunks, kind)
        columns |= self._further_columns()
        return pa.table(columns)

    def _look_over(self) -> set[str]:
        """Bring the waiting annotations into one form, and put aside what no version knows; returns their keys."""
        keys: set[str] = set().union(*self._rows)
        if keys & _OLDER:
            for row, annotation in enumerate(self._rows):
                self._prepare(annotation, row)
            keys = set().union(*self._rows)
        if "timing" in keys:
            for timing in filter(None, (annotation.get("timing") for annotation in self._rows)):
                for name in timing.keys() - TIMING if isinstance(timing, dict) else ():
                    self._tally.lose(f"timing.{name}: no such field", timing[name] is not None)
        if not keys <= _KNOWN:
            for row, annotation in enumerate(self._rows):
                for key in annotation.keys() - _KNOWN:
                    self._aside(key, annotation[key], self._before + row, 1, REPEATED)
        return keys

    def _prepare(self, annotation: dict[str, Any], row: int) -> None:
        """Bring older forms of an annotation into the newer: polygons under `mask`, flags as numbers, and so on."""
        mask = annotation.get("mask")
        if isinstance(mask, dict):
            rings = mask.get("polygon")
            if annotation.get("polygon") is not None:
                raise self._error("has an annotation with two polygons", self._sample_of(row))
            annotation["polygon"], annotation["mask"] = rings, None
        if "object_reference" in annotation and annotation.get("object_id") is None:
            annotation["object_id"] = annotation.pop("object_reference")
        for flag in _FLAGS:
            if type(annotation.get(flag)) is int:
                annotation[flag] = annotation[flag] != 0

    def _check_sensors(self, sample: dict[str, Any], sensors: Any) -> None:
        """Count what `sensors` says that no column holds."""
        if isinstance(sensors, list) and all(isinstance(item, dict) for item in sensors):
            sample["sensors"] = sensors = {key: value for item in sensors for key, value in item.items()}
        if not isinstance(sensors, Mapping):
            raise self._error(f"sensors is {sensors!r:.60}, must be an object", self.samples)
        known = {"gps": {"latitude", "longitude"}, "imu": set(POSE)}
        for sensor, values in sensors.items():
            if values is None:
                continue
            names = values.keys() if isinstance(values, dict) and sensor in known else {""}
            for name in names - known.get(sensor, set()):
                self._tally.lose(f"sensors.{sensor}{'.' if name else ''}{name}: has no column", 1)

    def _aside(self, key: str, value: Any, first: int, count: int, passed: set[str] | tuple[str, ...]) -> None:
        """Keep the value of a key that no version knows, for all rows that it belongs to."""
        if value is None or key in passed:
            return
        if key in schema.WORKING:
            self._tally.lose(f"{key}: in a place where it means nothing", 1)
        else:
            self._further.setdefault(key, {}).update(dict.fromkeys(range(first, first + count), value))

    def _flush(self) -> None:
        if not self._rows:
            return
        rows = self._columns(self._rows, self._look_over(), ANNOTATION, "annotation")
        samples = self._columns(self._waiting, set().union(*self._waiting), SAMPLE, "sample")
        self._collect(samples, rows, np.array(self._owner))
        self._waiting, self._rows, self._owner = [], [], []

    def _collect(self, samples: Columns, rows: Columns, owner: NDArray[np.int64]) -> None:
        names = names_of(samples)
        count = len(names)
        if names.null_count:
            nameless = self.samples - count + pc.index(pc.is_null(names), True).as_py()
            raise self._error("has no name, sequence_name or image_name", nameless)
        try:
            self._batches.append(CollectedRows(samples, rows, names, owner))
        except ValueError as error:
            place = f"one of {count} samples up to {self.samples} (from 0)"
            raise DatasetError(f"{self._path}: {place} has a mask that is not base64: {error}") from error
        self._before += len(owner)

    def _columns(
        self, values: list[dict[str, Any]], keys: set[str], kinds: dict[str, pa.DataType], what: str
    ) -> dict[str, pa.Array]:
        """Return the columns of objects that have these keys, all those of `kinds`."""
        given = [(key, _given(kind, values, key)) for key, kind in kinds.items() if key in keys]
        try:
            found = pa.array(values, pa.struct(given)) if given else None
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._explained(values, kinds, what) from error
        columns = dict(zip((key for key, _ in given), found.flatten() if found is not None else (), strict=True))
        return {
            key: brought_to(columns[key], kind) if key in columns else pa.nulls(len(values), kind)
            for key, kind in kinds.items()
        }

    def _explained(self, values: list[Any], kinds: dict[str, pa.DataType], what: str) -> DatasetError:
        """Raise DatasetError that names the value that does not fit."""
        for number, value in enumerate(values):
            for key, kind in kinds.items():
                try:
                    pa.array([value.get(key)], kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    place = self.samples - len(self._waiting) + number if what == "sample" else self._sample_of(number)
                    return self._error(
                        f"{key} of its {what}: {error}" if what != "sample" else f"{key}: {error}", place
                    )
        return self._error("or one after it cannot be read", self.samples - len(self._waiting))

    def _sample_of(self, row: int) -> int:
        """Return the number of the sample of a waiting row."""
        return self.samples - len(self._waiting) + self._owner[row]

    def _further_columns(self) -> dict[str, pa.Array]:
        columns = {}
        for key, values in self._further.items():
            try:
                array = pa.array([values.get(row) for row in range(self._before)])
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                array = None
            if array is None or pa.types.is_struct(array.type) or "struct" in str(array.type):
                self._tally.lose(f"{key}: values that make no column", len(values))
            else:
                columns[key] = array
        return columns

    def _error(self, what: str, sample: int) -> DatasetError:
        return DatasetError(f"{self._path}: sample {sample} (from 0) {what}")


def _given(kind: pa.DataType, values: list[dict[str, Any]], key: str) -> pa.DataType:
    """Return the type of named numbers without the names that no value has: each would be looked for in every row."""
    if kind not in (ANNOTATION["box2d"], ANNOTATION["box3d"]):
        return kind
    named = [value for row in values if type(value := row.get(key)) is dict]
    names: set[str] = set().union(*named)
    return pa.struct([field for field in kind if field.name in names])
