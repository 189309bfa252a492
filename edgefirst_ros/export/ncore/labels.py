# SPDX-License-Identifier: Apache-2.0
"""Masks, polygons and depth of a sample as NCore's camera labels, and its boxes in space as cuboids."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.reader import MAX_PIXELS
from edgefirst_ros.dataset.rings import separated
from edgefirst_ros.export.drive import OPTICAL, is_class_mask
from edgefirst_ros.export.ncore.library import library

Row = Mapping[str, Any]
MILLIMETRE = 0.001
"""Scale of a 16-bit depth picture, m."""
HALF = {"binary": 0, "confidence": 0.5, "sigmoid": 0.5, "logits": 0.5}
"""By mask_interpretation, the part of the largest value above which a pixel belongs to an instance."""
KEPT = ("label", "label_index", "group", "object_id", "box2d", "box2d_score", "iscrowd", "ignore")
"""Columns that go into the metadata of a camera frame."""


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

    def add(self, rows: Sequence[Row], size: tuple[int, int], stamp_us: int) -> None:
        """Put masks and polygons of a sample whose picture has `size` (width, height)."""
        values = np.zeros((size[1], size[0]), np.uint16)
        told: list[dict[str, Any]] = []
        classes: bytes | None = None
        for row in rows:
            mask = row.get("mask")
            if isinstance(mask, bytes) and is_class_mask(row):
                classes = mask if self._fits(mask, size) else None
                continue
            shape = self._shape(row, size)
            if shape is None:
                continue
            values[shape] = len(told) + 1
            told.append({"value": len(told) + 1} | {name: row[name] for name in KEPT[:4] if row.get(name) is not None})
        if told:
            self._instances(values, told, stamp_us)
        if classes is not None:
            self._writer("semantic", np.uint8).store_label(classes, stamp_us, {"labels": self._labels})
            self._tally["masks of classes"] += 1

    def _fits(self, png: bytes, size: tuple[int, int]) -> bool:
        found = _picture(png)
        fits = found is not None and found.shape == size[::-1] and found.dtype == np.uint8
        self._tally["masks without a place"] += not fits
        return fits

    def _shape(self, row: Row, size: tuple[int, int]) -> NDArray[np.bool_] | None:
        """(height, width) of an instance; None without one."""
        mask = row.get("mask")
        if isinstance(mask, bytes):
            found = _picture(mask)
            if found is None or found.shape != size[::-1]:
                self._tally["masks without a place"] += 1
                return None
            most = 1 if found.dtype == np.bool_ else np.iinfo(found.dtype).max
            return found > self._level * most
        rings = _rings(mask) if mask is not None else row.get("polygon")
        return filled(rings, size) if rings else None

    def _instances(self, values: NDArray[np.uint16], told: list[dict[str, Any]], stamp_us: int) -> None:
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(values).save(file, "PNG", compress_level=1)
        self._writer("instance", np.uint16).store_label(file.getvalue(), stamp_us, {"instances": told})
        self._tally["instances"] += len(told)

    def _writer(self, what: str, kind: Any) -> Any:
        if what not in self._writers:
            lib = library()
            schema = lib.LabelSchema(np.dtype(kind), (), lib.LabelEncoding.IMAGE_ENCODED, "png", None)
            label = lib.LabelType(lib.LabelCategory.SEGMENTATION, what, lib.LabelUnit.UNITLESS)
            self._writers[what] = self._register(
                lib.CameraLabelDescriptor(self._camera, label, schema, lib.LabelSource.AUTOLABEL)
            )
        return self._writers[what]

    def add_depth(self, png: bytes, stamp_us: int) -> None:
        """Put a depth picture, 16-bit grayscale in mm; another one is only counted."""
        values = _picture(png)
        if values is None or values.dtype != np.uint16:
            self._tally["depth without a place"] += 1
            return
        if "depth" not in self._writers:
            lib = library()
            quantised = lib.QuantizationParams(np.dtype(np.uint16), MILLIMETRE, 0.0)
            schema = lib.LabelSchema(np.dtype(np.float32), (), lib.LabelEncoding.RAW, None, quantised)
            self._writers["depth"] = self._register(
                lib.CameraLabelDescriptor(self._camera, lib.LabelType.DEPTH_Z_M, schema, lib.LabelSource.EXTERNAL)
            )
        self._writers["depth"].store_label((values * MILLIMETRE).astype(np.float32), stamp_us)
        self._tally["depth"] += 1


def _picture(png: bytes) -> NDArray[Any] | None:
    """(height, width) bool, uint8 or uint16 of a grayscale PNG; None when it is none."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                return None
            values = np.asarray(picture)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    if values.dtype == np.int32:  # what older versions of Pillow make of 16 bits
        values = values.astype(np.uint16)
    return values if values.ndim == 2 and values.dtype in (np.bool_, np.uint8, np.uint16) else None


def _rings(flat: Any) -> list[list[float]]:
    """Rings of a mask of 2025.10 that are whole."""
    return [ring for ring in separated(flat) if len(ring) >= 6 and len(ring) % 2 == 0]


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
    """Boxes in space of a drive, in the frame of the sensor that is fused (x forward, y left, z up)."""

    def __init__(self, sensor: str, tally: Counter[str]) -> None:
        self.sensor = sensor
        self.observations: list[Any] = []
        self.scores: list[float] = []
        self._seen: tuple[int, set[tuple[Any, ...]]] = (0, set())
        self._tally = tally

    def add(self, rows: Sequence[Row], place: str, stamp_us: int) -> None:
        """Put the boxes of a sample, measured at `stamp_us`; `place` names boxes without an object_id.

        A message that serves several samples gives its boxes once.
        """
        lib = library()
        if stamp_us != self._seen[0]:
            self._seen = stamp_us, set()
        for number, row in enumerate(rows):
            box = row.get("box3d")
            if box is None:
                continue
            if len(box) != 6 or not all(map(math.isfinite, box)):
                self._tally["boxes not finite"] += 1
                continue
            known = row.get("label"), *box
            if known in self._seen[1]:
                self._tally["boxes again"] += 1
                continue
            self._seen[1].add(known)
            x, y, z = (float(v) for v in np.array(OPTICAL) @ box[:3])
            width, height, length = map(float, box[3:])
            self.observations.append(
                lib.CuboidTrackObservation(
                    track_id=str(row.get("object_id") or f"{place}/{number}"),
                    class_id=str(row.get("label") or "unknown"),
                    timestamp_us=stamp_us,
                    reference_frame_id=self.sensor,
                    reference_frame_timestamp_us=stamp_us,
                    bbox3=lib.BBox3((x, y, z), (length, width, height), (0.0, 0.0, 0.0)),
                    source=lib.LabelSource.AUTOLABEL,
                )
            )
            score = row.get("box3d_score")
            self.scores.append(math.nan if score is None else score)


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What of annotation rows goes into the metadata of a camera frame, as JSON."""
    found = []
    for row in rows:
        kept = {name: row[name] for name in KEPT if row.get(name) is not None}
        kept = {name: list(value) if name == "box2d" else value for name, value in kept.items()}
        if not any(isinstance(v, float) and not math.isfinite(v) for v in (*kept.values(), *kept.get("box2d", ()))):
            found.append(kept)
    return [row for row in found if row.keys() - {"group"}]
