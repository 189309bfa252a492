# SPDX-License-Identifier: Apache-2.0
"""Reads the nested form: JSON with a sample an object, and its annotations within, as columns of rows.

A bare array of samples is 2025.10; an object with `schema_version` and `samples` is 2026.04 or later.
Source: EdgeFirst Annotation Schema 2026.04 ("JSON field", "JSON representation").
"""

from __future__ import annotations

import base64
import gc
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.tables.values import (
    LAYOUTS,
    MISFITS,
    Tally,
    convert_layout,
    count_lengths,
    find_numpy_type,
    fix_lengths,
    is_valid,
    make_lists,
    read_numbers,
)
from edgefirst_ros.dataset.tables.write import choose_columns, count_columns, store_column
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

_F64 = pa.float64()
KEYS = {"cxcywh": ("cx", "cy", "w", "h"), "ltwh": ("x", "y", "w", "h"), "xyxy": ("x_min", "y_min", "x_max", "y_max")}
"""Names of the numbers of `box2d` in each layout."""
BOX3D = ("x", "y", "z", "w", "h", "l")
LAYOUT_OF_BOX = "box2d layout"
"""Internal column, which the schema does not have."""
POSE = ("yaw", "pitch", "roll")

Columns = dict[str, pa.Array]


def _join_samples(samples: Columns, rows: Columns, names: pa.Array, owner: NDArray[np.int64]) -> Columns:
    """Return rows with the columns of their samples; boxes wait for the layout of the file, which may follow them.

    `names` of the samples; `owner`: which sample each row belongs to. Raises ValueError for a broken mask.
    """
    taken = pa.array(owner)
    columns = {name: array.take(taken) for name, array in _convert_samples(samples, names).items()}
    columns |= {key: array for key, array in rows.items() if key in schema.WORKING}
    columns |= {
        "label": rows["label_name"],
        "polygon": _convert_polygons(rows["polygon"]),
        "mask": _decode_pictures(rows["mask"]),
    }
    columns["box3d"] = _stack_numbers(rows["box3d"], BOX3D, pa.float32())
    columns["box2d"], columns[LAYOUT_OF_BOX] = _read_boxes(rows["box2d"])
    return columns


def parse_names(samples: Columns) -> pa.Array:
    """Names of samples: SEQUENCE, or the picture's without what shows its kind: scene_001.camera.jpeg is scene_001."""
    found = pc.coalesce(samples["name"], samples["sequence_name"])
    if found.null_count:
        image = pc.replace_substring_regex(samples["image_name"], r"(?s)^.*/", "")
        stem = pc.replace_substring_regex(image, r"\.[^.]*$", "")
        stem = pc.if_else(pc.equal(stem, ""), image, stem)
        found = pc.coalesce(found, pc.replace_substring_regex(stem, r"\.camera$", ""))
    return found


def _convert_samples(found: Columns, names: pa.Array) -> Columns:
    """Return the columns of the samples in working types; a negative frame becomes null."""
    frame = found["frame_number"]
    gps, imu = found["sensors"].flatten()
    size = pa.StructArray.from_arrays([found["width"], found["height"]], ["width", "height"])
    return {
        "name": names,
        "frame": pc.if_else(pc.less(frame, 0), pa.scalar(None, frame.type), frame),
        "timestamp": found["timestamp"],
        "group": found["group_name"],
        "size": _stack_numbers(size, ("width", "height"), pa.uint32()),
        "location": _stack_numbers(gps, ("latitude", "longitude"), pa.float32()),
        "pose": _stack_numbers(imu, POSE, pa.float32()),
        **{name: found[name] for name in ("degradation", "neg_label_indices", "not_exhaustive_label_indices")},
    }


def _stack_numbers(array: pa.StructArray, names: tuple[str, ...], kind: pa.DataType) -> pa.Array:
    """Named numbers as arrays of a fixed length; null where all are, with a null within where some are."""
    wanted = pa.list_(kind, len(names))
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    valid = np.stack([is_valid(children[name]) for name in names], axis=1)
    parts = [pc.fill_null(children[name], 0).to_numpy(zero_copy_only=False) for name in names]
    with np.errstate(over="ignore"):
        numbers = np.stack(parts, axis=1).astype(find_numpy_type(kind))
    flat = pa.array(numbers.reshape(-1), kind, mask=None if valid.all() else ~valid.reshape(-1))
    bitmap = pa.py_buffer(np.packbits(valid.any(axis=1), bitorder="little"))
    return pa.Array.from_buffers(wanted, len(array), [bitmap], children=[flat])


def _read_boxes(array: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return boxes by the names of their numbers, and the place in LAYOUTS of the layout which those say."""
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    layout = np.full(len(array), LAYOUTS.index("ltwh"))
    found = _stack_numbers(array, KEYS["ltwh"], _F64)
    for name, mark in (("cxcywh", "cx"), ("xyxy", "x_min")):
        rows = is_valid(children[mark])
        if rows.any():
            layout[rows] = LAYOUTS.index(name)
            found = pc.if_else(pa.array(rows), _stack_numbers(array, KEYS[name], _F64), found)
    return found, pa.array(layout)


def _convert_boxes(named: pa.Array, layouts: pa.Array, layout: str) -> pa.Array:
    """Boxes in the layout of the file. Numbers named x, y, w, h are in that layout, if it has a width at all."""
    found = layouts.to_numpy()
    if layout == "cxcywh":
        found = np.where(found == LAYOUTS.index("ltwh"), LAYOUTS.index("cxcywh"), found)
    if (found == LAYOUTS.index(layout)).all():
        return named
    numbers = read_numbers(named)
    for number, name in enumerate(LAYOUTS):
        rows = found == number
        numbers[rows] = convert_layout(numbers[rows], name, layout)
    return fix_lengths(numbers, is_valid(named), named.type)


def _convert_polygons(array: pa.Array) -> pa.Array:
    """Rings of points as rings of numbers; a ring with a point that is not a pair becomes empty."""
    if array.null_count == len(array):
        return pa.nulls(len(array), schema.POLYGON)
    rings = pc.list_flatten(array)
    points = pc.list_flatten(rings)
    sizes = count_lengths(points)
    of_ring = count_lengths(rings)
    values = pc.list_flatten(points).cast(pa.float32(), safe=False)
    if (sizes == 2).all():
        flat = make_lists(of_ring * 2, values)
    else:
        owner = np.repeat(np.arange(len(rings)), of_ring)
        odd = np.bincount(owner[sizes != 2], minlength=len(rings)) > 0
        kept = np.repeat(~odd[owner], sizes)
        flat = make_lists(np.where(odd, 0, of_ring * 2), values.filter(pa.array(kept)))
    return make_lists(count_lengths(array), flat, is_valid(array))


def _decode_pictures(texts: pa.Array) -> pa.Array:
    """Bytes of texts in base64. Raises ValueError (also binascii.Error, which is one)."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.large_binary())
    found = [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()]
    return pa.array(found, pa.large_binary())


ROWS = 1 << 13


def _make_number_type(*names: str) -> pa.DataType:
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
    "sensors": pa.struct([("gps", _make_number_type("latitude", "longitude")), ("imu", _make_number_type(*POSE))]),
}
_PLAIN = [
    column
    for column in schema.WORKING.values()
    if column.level == "annotation" and column.name not in ("label", "polygon", "mask", "box2d", "box3d")
]
ANNOTATION = {
    "label_name": schema.TEXT,
    **{column.name: schema.choose_working_type(column) for column in _PLAIN},
    "polygon": pa.large_list(pa.large_list(pa.large_list(_F64))),
    "mask": schema.TEXT,
    "box2d": _make_number_type(*dict.fromkeys(key for keys in KEYS.values() for key in keys)),
    "box3d": _make_number_type(*BOX3D),
}
REPEATED = {"name", "image_name", "sequence_name", "frame_number", "group_name"}
"""Keys of the sample that annotations of the vendor's server repeat."""
_KNOWN = frozenset(ANNOTATION)
TIMING = [field.name for field in schema.TIMING]
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
        self._batches: list[Columns] = []
        self._further: dict[str, dict[int, Any]] = {}
        self._of_timing: dict[str, dict[int, Any]] = {}
        """Values of fields of `timing` that no version knows, by row."""
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
            batch["box2d"] = _convert_boxes(batch["box2d"], batch[LAYOUT_OF_BOX], layout)
        columns = {}
        for name, column in schema.WORKING.items():
            chunks = [batch[name] for batch in self._batches]
            if (column.level == "identity" and name != "timestamp") or any(c.null_count < len(c) for c in chunks):
                kind = chunks[0].type if chunks else schema.choose_working_type(column)
                columns[name] = pa.chunked_array(chunks, kind)
        columns |= self._make_columns(self._further)
        if fields := self._make_columns(self._of_timing, "timing."):
            known = columns["timing"].combine_chunks()
            fields = dict(zip(TIMING, known.flatten(), strict=True)) | fields
            columns["timing"] = pa.StructArray.from_arrays([*fields.values()], [*fields], mask=known.is_null())
        return pa.table(columns)

    def _convert_waiting(self) -> set[str]:
        """Convert the waiting annotations to one form, and put aside keys that no version knows; returns their keys."""
        keys: set[str] = set().union(*self._rows)
        if keys & _OLDER:
            for row, annotation in enumerate(self._rows):
                self._prepare(annotation, row)
            keys = set().union(*self._rows)
        if "timing" in keys:
            for row, annotation in enumerate(self._rows, self._before):
                timing = annotation.get("timing")
                for name, value in timing.items() if isinstance(timing, dict) else ():
                    if name not in TIMING and value is not None:
                        self._of_timing.setdefault(name, {})[row] = value
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
            self._tally.lose(f"{key}: in a place where the format has no such key", 1)
        else:
            self._further.setdefault(key, {}).update(dict.fromkeys(range(first, first + count), value))

    def _flush(self) -> None:
        if not self._rows:
            return
        rows = self._columns(self._rows, self._convert_waiting(), ANNOTATION, "annotation")
        samples = self._columns(self._waiting, set().union(*self._waiting), SAMPLE, "sample")
        names = parse_names(samples)
        count = len(names)
        if names.null_count:
            nameless = self.samples - count + pc.index(pc.is_null(names), True).as_py()
            raise self._error("has no name, sequence_name or image_name", nameless)
        place = f"one of {count} samples up to {self.samples} (from 0)"
        with explain_errors(f"{self._path}: {place} has a mask that is not base64", ValueError):
            self._batches.append(_join_samples(samples, rows, names, np.array(self._owner)))
        self._before += len(self._owner)
        self._waiting, self._rows, self._owner = [], [], []

    def _columns(
        self, values: list[dict[str, Any]], keys: set[str], kinds: dict[str, pa.DataType], what: str
    ) -> dict[str, pa.Array]:
        given = {key: kind for key, kind in kinds.items() if key in keys}
        try:
            found = pa.array(values, pa.struct(list(given.items()))).flatten() if given else []
        except MISFITS as error:
            raise self._explain_kinds(values, kinds, what) from error
        nothing = {key: pa.nulls(len(values), kind) for key, kind in kinds.items() if key not in given}
        return dict(zip(given, found, strict=True)) | nothing

    def _explain_kinds(self, values: list[Any], kinds: dict[str, pa.DataType], what: str) -> DatasetError:
        for number, value in enumerate(values):
            for key, kind in kinds.items():
                try:
                    pa.array([value.get(key)], kind)
                except MISFITS as error:
                    place = self.samples - len(self._waiting) + number if what == "sample" else self._sample_of(number)
                    return self._error(
                        f"{key} of its {what}: {error}" if what != "sample" else f"{key}: {error}", place
                    )
        return self._error("or one after it cannot be read", self.samples - len(self._waiting))

    def _sample_of(self, row: int) -> int:
        return self.samples - len(self._waiting) + self._owner[row]

    def _make_columns(self, further: Mapping[str, dict[int, Any]], of: str = "") -> dict[str, pa.Array]:
        columns = {}
        for key, values in further.items():
            try:
                array = pa.array([values.get(row) for row in range(self._before)])
            except MISFITS:
                array = None
            if array is None or pa.types.is_struct(array.type) or "struct" in str(array.type):
                self._tally.lose(f"{of}{key}: values that make no column", len(values))
            else:
                columns[key] = array
        return columns

    def _error(self, what: str, sample: int) -> DatasetError:
        return DatasetError(f"{self._path}: sample {sample} (from 0) {what}")


CHUNK = 1 << 21
"""Characters that are read at once."""
LARGEST = 1 << 28
"""Characters of the largest sample, and of everything beside the samples."""
LAYOUT = "ltwh"
"""Box layout of a file that does not state one."""
BLANK = re.compile(r"[ \t\n\r]*")


class NestedFile:
    """A file of nested JSON as a table in working types: `schema`, `metadata`, `batches`.

    `bare`: a mere array. The text is read in pieces; what stays are the columns.
    Raises DatasetError naming the sample that is wrong.
    """

    def __init__(self, path: Path, tally: Tally) -> None:
        self.path = path
        rows = Flattener(path, tally)
        with explain_errors(f"{path}: cannot be read as JSON annotations", OSError, ValueError, RecursionError):
            with open(open_file(path), encoding="utf-8-sig", newline="") as file, _without_collector():
                document = _Document(file, rows)
                document.read()
            self.bare = document.bare
            self.metadata: dict[str, str] = (
                {}
                if self.bare
                else {key: _format_value(value) for key, value in document.beside.items() if value is not None}
            )
            "".join(part for item in self.metadata.items() for part in item).encode()  # must be Unicode
            self._table = rows.finish(self.metadata.get("box2d_format", LAYOUT))
        self.schema = self._table.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches(max_chunksize=1 << 16)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Values of JSON hold no cycles; the collector would walk over all of them again and again, for a quarter more."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class _Document:
    """Walks over the text of a file: values are decoded one after the other, samples are handed on."""

    def __init__(self, file: Any, rows: Flattener) -> None:
        self.beside: dict[str, Any] = {}
        self._file, self._rows = file, rows
        self._text, self._at = "", 0
        self._decode = json.JSONDecoder().raw_decode

    def read(self) -> None:
        first = self._next()
        if first not in ("[", "{"):
            raise ValueError(f"begins with {first!r}, expected an array of samples or an object with 'samples'")
        self.bare = first == "["
        (self._samples if self.bare else self._object)()
        if self._next():
            raise ValueError(f"more data after the end: {self._text[self._at : self._at + 20]!r}")

    def _object(self) -> None:
        seen: set[str] = set()
        for _ in self._items("{", "}"):
            key = self._value()
            if not isinstance(key, str) or key in seen:
                raise ValueError(f"key {key!r} is not text or comes twice")
            seen.add(key)
            self._read_value(":")
            if key == "samples":
                self._samples()
            else:
                self.beside[key] = self._value()
        if "samples" not in seen:
            raise ValueError("an object without 'samples'")

    def _samples(self) -> None:
        for _ in self._items("[", "]"):
            self._rows.add(self._value())

    def _items(self, begin: str, end: str) -> Iterator[None]:
        """Yield before each item of an array or object."""
        self._read_value(begin)
        if self._next() != end:
            yield
            while self._next() != end:
                self._read_value(",")
                yield
        self._read_value(end)

    def _read_value(self, wanted: str) -> None:
        found = self._next()
        if found != wanted:
            raise ValueError(f"found {found!r} where {wanted!r} was expected, after {self._rows.samples} samples")
        self._at += 1

    def _next(self) -> str:
        """Return the next character that is not blank; empty at the end."""
        while True:
            self._at += len(BLANK.match(self._text, self._at)[0])  # type: ignore[index]  # it matches nothing, too
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        self._next()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # cut where the piece ends, or wrong: more text decides
                if self._more():
                    continue
                raise ValueError(f"{error.msg} after {self._rows.samples} samples") from error
            if end == len(self._text):
                end -= self._at
                if self._more():  # a number may continue
                    continue
            self._at = end
            return value

    def _more(self) -> bool:
        left = len(self._text) - self._at
        if left > LARGEST:
            raise ValueError(f"a value of more than {LARGEST} characters after {self._rows.samples} samples")
        piece = self._file.read(max(CHUNK, left))
        self._text = self._text[self._at :] + piece
        self._at = 0
        return bool(piece)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class NestedTable(TableFile):
    """Nested JSON as the complete Arrow file of its version would be: columns, types, orders.

    The metadata say the layout of the boxes, also where JSON takes it for granted. All of it is read at once. Raises
    DatasetError as NestedFile does.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._checked = False
        self._limits = limits
        self.is_parquet = False
        self._nested = NestedFile(path, Tally())
        self._size = path.stat().st_size
        there = {field.name: field.type for field in self._nested.schema}
        self.metadata = dict(self._nested.metadata)
        if not self._nested.bare or "mask" in there:
            self.metadata.setdefault("schema_version", schema.DEFAULT_VERSION)
        if "box2d" in there:
            self.metadata.setdefault("box2d_format", LAYOUT)
        self._version = schema.find_nearest_version(self.metadata.get("schema_version", schema.UNNAMED_VERSION))
        known = schema.list_columns(self._version)
        there_known = {name: column for name, column in known.items() if name in there}
        filled, self._categories = count_columns(self._nested.batches, there_known)
        self._columns = choose_columns(filled, known)
        held = {*self._columns, *(("polygon",) if "polygon" not in known else ())}
        self._columns |= {name: schema.Column(name, kind) for name, kind in there.items() if name not in held}
        self.schema = schema.make_arrow_schema(self._columns)

    def _read_stored(self) -> Iterator[pa.RecordBatch]:
        for batch in self._nested.batches():
            arrays = [store_column(batch, column, self._categories, self._version) for column in self._columns.values()]
            yield pa.record_batch(arrays, schema=self.schema)
