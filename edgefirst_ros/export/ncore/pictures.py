# SPDX-License-Identifier: Apache-2.0
"""Camera labels of NCore as masks, depth and boxes of a dataset."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.export.importing import clean_text
from edgefirst_ros.export.ncore.library import library
from edgefirst_ros.sensors.png import encode_gray

MILLIMETRES = 1000
LARGEST_NUMBER = 3e38
"""Largest number in a column of boxes (float32)."""
COLUMNS = ("label", "label_index", "box2d", "box2d_score")
"""Columns that `export` puts into the metadata of a frame for each object_id."""


class Pictures:
    """Labels and metadata of the pictures of one camera."""

    def __init__(self, loader: Any, camera: str, name: str, budget: Budget, tally: Counter[str]) -> None:
        lib = library()
        self._name, self._budget, self._tally = name, budget, tally
        self.labels: list[str] | None = None
        """Names of classes, where masks of classes told them."""
        self._by_kind: dict[str, Any] = {}
        for source in loader.query_camera_labels(camera):
            kind = source.label_descriptor.label_type
            if kind.category == lib.LabelCategory.SEGMENTATION and kind.qualifier in ("semantic", "instance"):
                self._by_kind.setdefault(kind.qualifier, source)
            elif kind == lib.LabelType.DEPTH_Z_M:
                self._by_kind.setdefault("depth", source)
            else:
                tally["labels"] += source.labels_count

    def size(self, data: Any) -> tuple[int, int] | None:
        """Width and height of a picture; None where it is none."""
        try:
            width, height = data.get_decoded_image().size
        except Exception:  # noqa: BLE001  # Pillow's own kinds of OSError, SyntaxError, ValueError and more
            self._tally["broken pictures"] += 1
            return None
        return int(width), int(height)

    def _label(self, kind: str, stamp: int) -> Any:
        source = self._by_kind.get(kind)
        return source.get_label(stamp) if source is not None and stamp in source.label_timestamps_us else None

    def _values(self, label: Any) -> NDArray[Any] | None:
        """Return the values of a label; None without one, or if it cannot be read."""
        try:
            return None if label is None else np.asarray(label.get_data())
        except Exception:  # noqa: BLE001  # as above, and what zarr raises on broken chunks
            self._tally["broken labels"] += 1
            return None

    def depth(self, stamp: int) -> bytes | None:
        """16-bit PNG in mm, 0 where unknown; None without one."""
        values = self._values(self._label("depth", stamp))
        if values is None:
            return None
        metres = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        self._tally["depth"] += 1
        return encode_gray(np.clip(np.rint(metres * MILLIMETRES), 0, 65535).astype(np.uint16), smooth=True)

    def rows(self, stamp: int, told: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Annotation rows by object_id (the mask of classes by an empty one)."""
        rows: dict[str, dict[str, Any]] = {}
        noted = told.get("annotations")
        for row in noted if isinstance(noted, list) else ():
            if isinstance(row, dict) and isinstance(row.get("object_id"), str):
                thing = clean_text(row["object_id"])
                rows[thing] = {"object_id": thing, **_sound(row, COLUMNS)}
        classes = self._label("semantic", stamp)
        values = self._values(classes)
        if values is not None:
            if values.ndim == 2 and values.min(initial=0) >= 0 and values.max(initial=0) <= 255:
                rows[""] = {"mask": encode_gray(values.astype(np.uint8))}
                self._tally["classes"] += 1
                names = classes.generic_meta_data.get("labels")
                self.labels = self.labels or ([clean_text(str(n)) for n in names] if isinstance(names, list) else None)
            else:
                self._tally["labels"] += 1
        instances = self._label("instance", stamp)
        values = self._values(instances)
        if values is not None:
            self._instances(stamp, instances, values, rows)
        return rows

    def _instances(self, stamp: int, label: Any, values: NDArray[Any], rows: dict[str, dict[str, Any]]) -> None:
        said = label.generic_meta_data.get("instances")
        known = {one["value"]: one for one in said if "value" in one} if isinstance(said, list) else {}
        for value in map(int, np.unique(values)):
            if value == 0:
                continue
            one = known.get(value, {})
            identity = clean_text(str(one.get("object_id") or "")) or str(
                uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}/{stamp}/{value}")
            )
            row = rows.setdefault(identity, {"object_id": identity})
            row |= _sound(one, ("label", "label_index"))
            self._budget.take(unpacked=values.size)
            row["mask"] = encode_gray(values == value)
            self._tally["instances"] += 1


def _sound(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns with a value of the right type; foreign metadata may hold anything."""
    kept = {name: row[name] for name in columns if name in row and _FITS[name](row[name])}
    return {name: clean_text(value) if name == "label" else value for name, value in kept.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "label": lambda value: isinstance(value, str),
    "label_index": lambda value: type(value) is int and 0 <= value < 1 << 64,
    "box2d": lambda value: isinstance(value, list) and len(value) == 4 and all(map(_is_number, value)),
    "box2d_score": lambda value: _is_number(value) and 0 <= value <= 1,
}
