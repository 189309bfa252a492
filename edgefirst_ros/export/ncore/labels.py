# SPDX-License-Identifier: Apache-2.0
"""Masks, polygons and depth of a sample as NCore's camera labels, and its boxes in space as cuboids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.export.drive import Drive, is_class_mask
from edgefirst_ros.export.ncore.library import RIG, library
from edgefirst_ros.sensors.png import decode_gray, encode_gray

Row = Mapping[str, Any]
MILLIMETRE = 0.001
"""Scale of a 16-bit depth picture, m."""
HALF = {"binary": 0, "confidence": 0.5, "sigmoid": 0.5, "logits": 0.5}
"""{mask_interpretation: fraction of the largest value above which a pixel belongs to an instance}."""
MOST_INSTANCES = 65535
"""Of one picture: their numbers are 16 bits, and 0 is none."""
KEPT = ("label", "label_index", "group", "object_id", "box2d", "box2d_score", "iscrowd", "ignore")
"""Columns that go into the metadata of a camera frame."""


@dataclass(slots=True)
class Marks:
    """Labels of one picture, as they are stored."""

    instances: bytes | None = None
    """A 16-bit PNG: which instance a pixel belongs to, of those that were `told`."""
    told: list[dict[str, Any]] = field(default_factory=list)
    classes: bytes | None = None
    """An 8-bit PNG: the class of each pixel."""
    misplaced: int = 0
    """Masks that are no pictures of this size."""


class Labels:
    """Camera labels of a drive; a component is begun with its first label."""

    def __init__(
        self,
        register: Callable[[Any], Any],
        camera: str,
        labels: Sequence[str],
        interpretation: str,
        tally: Counter[str],
    ) -> None:
        """`register` gives the writer of a descriptor; `labels` are the names of the classes in masks of classes."""
        self._register = register
        self._camera = camera
        self._labels = list(labels)
        self._level = HALF.get(interpretation, 0)
        self._tally = tally
        self._writers: dict[str, Any] = {}

    def prepared(self, rows: Sequence[Row], size: tuple[int, int]) -> Marks:
        """Masks and polygons of a sample whose picture has `size` (width, height). Threads may share this."""
        marks = Marks()
        values: NDArray[np.uint16] | None = None
        for row in rows:
            mask = row.get("mask")
            if isinstance(mask, bytes) and is_class_mask(row):
                marks.classes = mask if _fits(mask, size) else None
                marks.misplaced += marks.classes is None
                continue
            if isinstance(mask, bytes):
                shape = self._shape(mask, size)
                marks.misplaced += shape is None
            else:
                rings = row.get("polygon")
                shape = filled(rings, size) if rings else None
            if shape is None:
                continue
            number = len(marks.told) + 1
            if number > MOST_INSTANCES:
                marks.misplaced += 1
                continue
            if values is None:
                values = np.zeros((size[1], size[0]), np.uint16)
            np.copyto(values, number, where=shape)
            marks.told.append({"value": number} | {name: row[name] for name in KEPT[:4] if row.get(name) is not None})
        marks.instances = encode_gray(values) if values is not None else None
        return marks

    def _shape(self, mask: bytes, size: tuple[int, int]) -> NDArray[np.bool_] | None:
        """(height, width) of an instance; None where its mask is no picture of this size."""
        found = decode_gray(mask)
        if found is None or found.shape != size[::-1]:
            return None
        # Of whole numbers, those above a limit are those above what is whole of it.
        return found if found.dtype == np.bool_ else found > found.dtype.type(self._level * np.iinfo(found.dtype).max)

    def add(self, marks: Marks, stamp_us: int) -> None:
        """Put what was prepared of a sample."""
        self._tally["masks without a place"] += marks.misplaced
        if marks.instances is not None:
            self._writer("instance", np.uint16).store_label(marks.instances, stamp_us, {"instances": marks.told})
            self._tally["instances"] += len(marks.told)
        if marks.classes is not None:
            self._writer("semantic", np.uint8).store_label(marks.classes, stamp_us, {"labels": self._labels})
            self._tally["masks of classes"] += 1

    def _writer(self, what: str, kind: Any) -> Any:
        if what not in self._writers:
            lib = library()
            schema = lib.LabelSchema(np.dtype(kind), (), lib.LabelEncoding.IMAGE_ENCODED, "png", None)
            label = lib.LabelType(lib.LabelCategory.SEGMENTATION, what, lib.LabelUnit.UNITLESS)
            self._writers[what] = self._register(
                lib.CameraLabelDescriptor(self._camera, label, schema, lib.LabelSource.AUTOLABEL)
            )
        return self._writers[what]

    def add_depth(self, metres: NDArray[np.float32] | None, stamp_us: int) -> None:
        """Put what `depth` found in a picture; None is only counted."""
        if metres is None:
            self._tally["depth without a place"] += 1
            return
        if "depth" not in self._writers:
            lib = library()
            quantised = lib.QuantizationParams(np.dtype(np.uint16), MILLIMETRE, 0.0)
            schema = lib.LabelSchema(np.dtype(np.float32), (), lib.LabelEncoding.RAW, None, quantised)
            self._writers["depth"] = self._register(
                lib.CameraLabelDescriptor(self._camera, lib.LabelType.DEPTH_Z_M, schema, lib.LabelSource.EXTERNAL)
            )
        self._writers["depth"].store_label(metres, stamp_us)
        self._tally["depth"] += 1


def depth(png: bytes) -> NDArray[np.float32] | None:
    """(height, width) m of a depth picture, 16-bit grayscale in mm; None of another one."""
    values = decode_gray(png)
    return None if values is None or values.dtype != np.uint16 else (values * MILLIMETRE).astype(np.float32)


def _fits(png: bytes, size: tuple[int, int]) -> bool:
    """True if this is a mask of classes for a picture of `size`."""
    found = decode_gray(png)
    return found is not None and found.shape == size[::-1] and found.dtype == np.uint8


def filled(rings: Sequence[Sequence[float]], size: tuple[int, int]) -> NDArray[np.bool_]:
    """(height, width): the pixels of `size` (width, height) whose centres are in rings of normalised x, y.

    A ring within another is a hole.
    """
    width, height = size
    crossed = np.zeros((height, width + 1), np.bool_)
    for ring in rings:
        places = np.asarray(ring, float).reshape(-1, 2) * size - 0.5  # so that centres are whole numbers
        for (x0, y0), (x1, y1) in zip(places, np.roll(places, -1, axis=0), strict=True):
            low, high = (int(np.clip(np.ceil(y), 0, height)) for y in sorted((y0, y1)))
            if low < high:
                lines = np.arange(low, high)
                columns = np.ceil(x0 + (lines - y0) * (x1 - x0) / (y1 - y0))
                crossed[lines, np.clip(columns, 0, width).astype(np.intp)] ^= True
    return np.logical_xor.accumulate(crossed[:, :width], axis=1)


# ---- boxes ---------------------------------------------------------------------------------------
class Cuboids:
    """Boxes in space of a drive, in the frame `rig`."""

    def __init__(self, drive: Drive, tally: Counter[str]) -> None:
        self.observations: list[Any] = []
        self.scores: list[float] = []
        self._drive = drive
        self._tally = tally

    def add(self, rows: Sequence[Row], place: str, stamp_us: int) -> None:
        """Add the boxes of a sample at `stamp_us`; `place` names boxes without an object_id."""
        lib = library()
        for number, row in enumerate(rows):
            box = row.get("box3d")
            if box is None:
                continue
            if len(box) != 6 or not all(map(math.isfinite, box)):
                self._tally["boxes not finite"] += 1
                continue
            x, y, z, length, width, height = self._drive.boxes(box)[0].tolist()
            self.observations.append(
                lib.CuboidTrackObservation(
                    track_id=str(row.get("object_id") or f"{place}/{number}"),
                    class_id=str(row.get("label") or "unknown"),
                    timestamp_us=stamp_us,
                    reference_frame_id=RIG,
                    reference_frame_timestamp_us=stamp_us,
                    bbox3=lib.BBox3((x, y, z), (length, width, height), (0.0, 0.0, 0.0)),
                    source=lib.LabelSource.AUTOLABEL,
                )
            )
            score = row.get("box3d_score")
            self.scores.append(math.nan if score is None else score)


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the columns of annotation rows that go into the metadata of a camera frame, as JSON."""
    found = []
    for row in rows:
        kept = {name: row[name] for name in KEPT if row.get(name) is not None}
        kept = {name: list(value) if name == "box2d" else value for name, value in kept.items()}
        if not any(isinstance(v, float) and not math.isfinite(v) for v in (*kept.values(), *kept.get("box2d", ()))):
            found.append(kept)
    return [row for row in found if row.keys() - {"group"}]
