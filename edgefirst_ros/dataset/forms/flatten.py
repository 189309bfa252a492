# SPDX-License-Identifier: Apache-2.0
"""Samples of nested JSON as rows: one for each annotation, one for a sample without any."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.boxes import LAYOUTS, converted
from edgefirst_ros.dataset.forms.tally import Tally
from edgefirst_ros.dataset.forms.variants import fixed, numbers_of
from edgefirst_ros.dataset.rings import is_valid, lengths, lists, offsets
from edgefirst_ros.errors import DatasetError

ROWS = 1 << 13
_F64 = pa.float64()


def _numbers(*names: str) -> pa.DataType:
    return pa.struct([(name, _F64) for name in names])


KEYS = {"cxcywh": ("cx", "cy", "w", "h"), "ltwh": ("x", "y", "w", "h"), "xyxy": ("x_min", "y_min", "x_max", "y_max")}
"""How the numbers of `box2d` are named in each layout."""
BOX3D = ("x", "y", "z", "w", "h", "l")
POSE = ("yaw", "pitch", "roll")

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
"""What is read of a sample."""
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
"""What is read of an annotation."""
REPEATED = {"name", "image_name", "sequence_name", "frame_number", "group_name"}
"""Keys of the sample that annotations of the vendor's server repeat."""
_KNOWN = frozenset(ANNOTATION)
_FLAGS = [name for name, kind in ANNOTATION.items() if pa.types.is_boolean(kind)]
_OLDER = {"mask", "object_reference", *_FLAGS}
"""Keys that older files use in another way."""


class Flattener:
    """Takes samples (`add`) and gives the table of their rows (`finish`)."""

    def __init__(self, path: Path, tally: Tally) -> None:
        self.samples = 0
        self._path = path
        self._tally = tally
        self._waiting: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] = []
        self._owner: list[int] = []
        self._batches: list[dict[str, pa.Array]] = []
        self._further: dict[str, dict[int, Any]] = {}
        self._before = 0

    def add(self, sample: Any) -> None:
        """Take a sample. Raises DatasetError when it is no object, or `annotations` no list of such."""
        annotations = sample.get("annotations") if isinstance(sample, dict) else None
        if not isinstance(sample, dict) or not isinstance(annotations, list | None):
            raise self._error("is no object with a list of annotations", self.samples)
        if not all(isinstance(annotation, dict) for annotation in annotations or ()):
            raise self._error("has an annotation that is no object", self.samples)
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
            batch["box2d"] = _boxes(batch.pop("box2d"), batch.pop("layout"), layout)
        columns = {}
        for name, column in schema.WORKING.items():
            chunks = [batch[name] for batch in self._batches]
            if (column.level == "identity" and name != "timestamp") or any(c.null_count < len(c) for c in chunks):
                kind = chunks[0].type if chunks else schema.working(column)
                columns[name] = pa.chunked_array(chunks, kind)
        columns |= self._further_columns()
        return pa.table(columns)

    def _look_over(self) -> None:
        """Bring the waiting annotations into one form, and put aside what no version knows."""
        keys: set[str] = set().union(*self._rows)
        if keys & _OLDER:
            for row, annotation in enumerate(self._rows):
                self._prepare(annotation, row)
        if not keys <= _KNOWN:
            for row, annotation in enumerate(self._rows):
                for key in annotation.keys() - _KNOWN:
                    self._aside(key, annotation[key], self._before + row, 1, REPEATED)

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
        self._look_over()
        samples = self._columns(self._waiting, SAMPLE, "sample")
        rows = self._columns(self._rows, ANNOTATION, "annotation")
        owner = pa.array(self._owner)
        of_sample = {name: array.take(owner) for name, array in _of_samples(samples, self._names()).items()}
        polygons = _polygons(rows.pop("polygon"))
        try:
            masks = [None if m is None else base64.b64decode(m, validate=True) for m in rows.pop("mask").to_pylist()]
        except (binascii.Error, ValueError) as error:
            raise self._error(f"has a mask that is no base64: {error}", None) from error
        numbers, layout = _named_boxes(rows.pop("box2d"))
        box3d = _stacked(rows.pop("box3d"), BOX3D, pa.float32())
        self._batches.append(
            {
                **of_sample,
                **rows,
                "label": rows["label_name"],
                "polygon": polygons,
                "mask": pa.array(masks, pa.large_binary()),
                "box2d": numbers,
                "layout": layout,
                "box3d": box3d,
            }
        )
        self._before += len(self._rows)
        self._waiting, self._rows, self._owner = [], [], []

    def _columns(self, values: list[Any], kinds: dict[str, pa.DataType], what: str) -> dict[str, pa.Array]:
        keys: set[str] = set().union(*values)
        there = [(key, kind) for key, kind in kinds.items() if key in keys]
        try:
            found = pa.array(values, pa.struct(there)) if there else None
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._explained(values, kinds, what) from error
        columns = dict(zip((key for key, _ in there), found.flatten() if found is not None else (), strict=True))
        return {key: columns[key] if key in columns else pa.nulls(len(values), kind) for key, kind in kinds.items()}

    def _explained(self, values: list[Any], kinds: dict[str, pa.DataType], what: str) -> DatasetError:
        """Find which value it is that does not fit."""
        for number, value in enumerate(values):
            for key, kind in kinds.items():
                try:
                    pa.array([value.get(key)], kind)
                except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                    place = self.samples - len(self._waiting) + number if what == "sample" else self._sample_of(number)
                    return self._error(
                        f"{key} of its {what}: {error}" if what != "sample" else f"{key}: {error}", place
                    )
        return self._error("cannot be read", None)

    def _sample_of(self, row: int) -> int:
        """The number of the sample of a waiting row."""
        return self.samples - len(self._waiting) + self._owner[row]

    def _names(self) -> list[str]:
        """Names of the waiting samples: SEQUENCE, or the picture's without its suffixes."""
        found = []
        for number, sample in enumerate(self._waiting):
            given = (sample.get("name"), sample.get("sequence_name"), _stem(sample.get("image_name")))
            name = next((name for name in given if name is not None), None)
            if name is None:
                raise self._error(
                    "has no name, sequence_name or image_name", self.samples - len(self._waiting) + number
                )
            found.append(name)
        return found

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

    def _error(self, what: str, sample: int | None) -> DatasetError:
        place = f"one of {len(self._waiting)} samples up to {self.samples}" if sample is None else f"sample {sample}"
        return DatasetError(f"{self._path}: {place} (from 0) {what}")


def _stem(image: str | None) -> str | None:
    """The name of a picture without what tells its kind: scene_001.camera.jpeg is scene_001."""
    if image is None:
        return None
    name = image.rpartition("/")[2]
    return (name.rpartition(".")[0] or name).removesuffix(".camera")


def _of_samples(found: dict[str, pa.Array], names: list[str]) -> dict[str, pa.Array]:
    """Columns of the samples in working types; a frame under 0 is none."""
    frame = found["frame_number"]
    gps, imu = found["sensors"].flatten()
    size = pa.StructArray.from_arrays([found["width"], found["height"]], ["width", "height"])
    return {
        "name": pa.array(names, schema.TEXT),
        "frame": pc.if_else(pc.less(frame, 0), pa.scalar(None, frame.type), frame),
        "timestamp": found["timestamp"],
        "group": found["group_name"],
        "size": _stacked(size, ("width", "height"), pa.uint32()),
        "location": _stacked(gps, ("latitude", "longitude"), pa.float32()),
        "pose": _stacked(imu, POSE, pa.float32()),
        **{name: found[name] for name in ("degradation", "neg_label_indices", "not_exhaustive_label_indices")},
    }


def _stacked(array: pa.StructArray, names: tuple[str, ...], kind: pa.DataType) -> pa.Array:
    """Named numbers as arrays of a fixed length; null where all are, with a null within where some are."""
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    valid = np.stack([is_valid(children[name]) for name in names], axis=1)
    parts = [pc.fill_null(children[name], 0).to_numpy(zero_copy_only=False) for name in names]
    with np.errstate(over="ignore"):
        numbers = np.stack(parts, axis=1).astype(kind.to_pandas_dtype())
    flat = pa.array(numbers.reshape(-1), kind, mask=~valid.reshape(-1))
    bitmap = pa.py_buffer(np.packbits(valid.any(axis=1), bitorder="little"))
    return pa.Array.from_buffers(schema.array(kind, len(names)), len(array), [bitmap], children=[flat])


def _named_boxes(array: pa.StructArray) -> tuple[pa.Array, np.ndarray]:
    """Boxes by the names of their numbers, and which layout those say."""
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    layout = np.full(len(array), LAYOUTS.index("ltwh"))
    found = _stacked(array, KEYS["ltwh"], _F64)
    for name, mark in (("cxcywh", "cx"), ("xyxy", "x_min")):
        said = is_valid(children[mark])
        if said.any():
            layout[said] = LAYOUTS.index(name)
            other = _stacked(array, KEYS[name], _F64)
            index = np.where(said, np.arange(len(array)) + len(array), np.arange(len(array)))
            found = pa.concat_arrays([found, other]).take(pa.array(index))
    return found, layout


def _boxes(named: pa.Array, found: np.ndarray, layout: str) -> pa.Array:
    """Boxes in the layout of the file. Numbers named x, y, w, h are in that layout, if it has a width at all."""
    if layout == "cxcywh":
        found = np.where(found == LAYOUTS.index("ltwh"), LAYOUTS.index("cxcywh"), found)
    if (found == LAYOUTS.index(layout)).all():
        return named
    numbers = numbers_of(named)
    for number, name in enumerate(LAYOUTS):
        rows = found == number
        numbers[rows] = converted(numbers[rows], name, layout)
    return fixed(numbers, is_valid(named), named.type)


def _polygons(array: pa.Array) -> pa.Array:
    """Rings of points as rings of numbers; a ring with a point that is no pair becomes empty."""
    rings = pc.list_flatten(array)
    points = pc.list_flatten(rings)
    sizes = lengths(points)
    of_ring = lengths(rings)
    owner = np.repeat(np.arange(len(rings)), of_ring)
    odd = np.bincount(owner[sizes != 2], minlength=len(rings)) > 0
    values = pc.list_flatten(points).cast(pa.float32(), safe=False)
    kept = np.repeat(~odd[owner], sizes)
    flat = lists(np.where(odd, 0, of_ring * 2), values.filter(pa.array(kept)))
    return lists(np.diff(offsets(lengths(array))), flat, is_valid(array))
