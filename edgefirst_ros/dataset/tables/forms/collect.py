# SPDX-License-Identifier: Apache-2.0
"""Columns of samples and of annotations, as nested JSON names them, as one batch of rows in working types."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables.boxes import LAYOUTS, converted
from edgefirst_ros.dataset.tables.forms.variants import fixed, numbers_of
from edgefirst_ros.dataset.tables.rings import is_valid, lengths, lists, numpy_type

_F64 = pa.float64()
KEYS = {"cxcywh": ("cx", "cy", "w", "h"), "ltwh": ("x", "y", "w", "h"), "xyxy": ("x_min", "y_min", "x_max", "y_max")}
"""Names of the numbers of `box2d` in each layout."""
BOX3D = ("x", "y", "z", "w", "h", "l")
POSE = ("yaw", "pitch", "roll")

Columns = dict[str, pa.Array]


class CollectedRows:
    """Collected rows whose boxes wait for the layout of the file, which may follow them."""

    def __init__(self, samples: Columns, rows: Columns, names: pa.Array, owner: NDArray[np.int64]) -> None:
        """`names` of the samples; `owner`: which sample each row belongs to. Raises ValueError for a broken mask."""
        taken = pa.array(owner)
        self.columns = {name: array.take(taken) for name, array in _of_samples(samples, names).items()}
        self.columns |= {key: array for key, array in rows.items() if key in schema.WORKING}
        self.columns["label"] = rows["label_name"]
        self.columns["polygon"] = _polygons(rows["polygon"])
        self.columns["mask"] = _pictures(rows["mask"])
        self.columns["box3d"] = _stacked(rows["box3d"], BOX3D, pa.float32())
        self._boxes, self._found = _named_boxes(rows["box2d"])

    def settle(self, layout: str) -> None:
        """Convert the boxes to the layout of the file."""
        self.columns["box2d"] = _boxes(self._boxes, self._found, layout)


def names_of(samples: Columns) -> pa.Array:
    """Names of samples: SEQUENCE, or the picture's without what tells its kind: scene_001.camera.jpeg is scene_001."""
    found = pc.coalesce(samples["name"], samples["sequence_name"])
    if found.null_count:
        image = pc.replace_substring_regex(samples["image_name"], r"(?s)^.*/", "")
        stem = pc.replace_substring_regex(image, r"\.[^.]*$", "")
        stem = pc.if_else(pc.equal(stem, ""), image, stem)
        found = pc.coalesce(found, pc.replace_substring_regex(stem, r"\.camera$", ""))
    return found


def _of_samples(found: Columns, names: pa.Array) -> Columns:
    """Return the columns of the samples in working types; a negative frame becomes null."""
    frame = found["frame_number"]
    gps, imu = found["sensors"].flatten()
    size = pa.StructArray.from_arrays([found["width"], found["height"]], ["width", "height"])
    return {
        "name": names,
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
    wanted = schema.array(kind, len(names))
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    valid = np.stack([is_valid(children[name]) for name in names], axis=1)
    parts = [pc.fill_null(children[name], 0).to_numpy(zero_copy_only=False) for name in names]
    with np.errstate(over="ignore"):
        numbers = np.stack(parts, axis=1).astype(numpy_type(kind))
    flat = pa.array(numbers.reshape(-1), kind, mask=None if valid.all() else ~valid.reshape(-1))
    bitmap = pa.py_buffer(np.packbits(valid.any(axis=1), bitorder="little"))
    return pa.Array.from_buffers(wanted, len(array), [bitmap], children=[flat])


def _named_boxes(array: pa.StructArray) -> tuple[pa.Array, NDArray[np.int64]]:
    """Boxes by the names of their numbers, and which layout those say."""
    children = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    layout = np.full(len(array), LAYOUTS.index("ltwh"))
    said = {name: is_valid(children[mark]) for name, mark in (("cxcywh", "cx"), ("xyxy", "x_min"))}
    whole = next((name for name, rows in said.items() if len(rows) and rows.all()), None)
    if whole is not None:
        return _stacked(array, KEYS[whole], _F64), np.full(len(array), LAYOUTS.index(whole))
    found = _stacked(array, KEYS["ltwh"], _F64)
    for name, rows in said.items():
        if rows.any():
            layout[rows] = LAYOUTS.index(name)
            other = _stacked(array, KEYS[name], _F64)
            index = np.where(rows, np.arange(len(array)) + len(array), np.arange(len(array)))
            found = pa.concat_arrays([found, other]).take(pa.array(index))
    return found, layout


def _boxes(named: pa.Array, found: NDArray[np.int64], layout: str) -> pa.Array:
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
    if array.null_count == len(array):
        return pa.nulls(len(array), schema.POLYGON)
    rings = pc.list_flatten(array)
    points = pc.list_flatten(rings)
    sizes = lengths(points)
    of_ring = lengths(rings)
    values = pc.list_flatten(points).cast(pa.float32(), safe=False)
    if (sizes == 2).all():
        flat = lists(of_ring * 2, values)
    else:
        owner = np.repeat(np.arange(len(rings)), of_ring)
        odd = np.bincount(owner[sizes != 2], minlength=len(rings)) > 0
        kept = np.repeat(~odd[owner], sizes)
        flat = lists(np.where(odd, 0, of_ring * 2), values.filter(pa.array(kept)))
    return lists(lengths(array), flat, is_valid(array))


def _pictures(texts: pa.Array) -> pa.Array:
    """Bytes of texts in base64. Raises ValueError (also binascii.Error, which is one)."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), pa.large_binary())
    found = [None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()]
    return pa.array(found, pa.large_binary())
