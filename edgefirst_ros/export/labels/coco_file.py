# SPDX-License-Identifier: Apache-2.0
"""Labels in the form of COCO, read: boxes, rings, runs, crowds; what is not as the form says is counted."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import LONGEST_PART, read_file
from edgefirst_ros.export.labels.coco import FILE, LISTS, OF_CATEGORIES, OF_IMAGES, OWN, STANDARD
from edgefirst_ros.export.labels.foreign import (
    LARGEST,
    MOST_KEYS,
    ForeignLabels,
    ForeignPicture,
    Row,
    is_number,
    whole_ring,
)
from edgefirst_ros.export.labels.rle import mask_of, unpacked
from edgefirst_ros.sensors.png import encode_gray

PIXELS, FREE = 1 << 12, 1 << 31
"""Pixels of masks that may come out of each byte of a file; so many always may."""
LARGEST_FLOAT = 3.4e38
"""Within float32."""
KEYS = {key: name for name, key in OWN.items()}
SCORES = ("box2d_score", "box3d_score", "polygon_score", "mask_score")
KEPT = ("supercategory", "synset", "synonyms", "definition")
FREQUENCIES = ("f", "c", "r")
OF_FILE = {"info", "images", "annotations", "categories"}
PLACES = {"id", "file_name", "width", "height", "sequence", "frame", "group", "timestamp", *OF_IMAGES.values()}
"""Keys of an image that are read, or that the dataset itself knows."""
LVIS = {"def", "frequency", *LISTS.values()}
"""Keys of categories and images that only LVIS has."""
UNPLACED = {"keypoints", "num_keypoints"}


def read_coco(path: Path) -> ForeignLabels:
    """Read one JSON file, or those of a folder: instances.json, else instances_*.json, there or in `annotations`.

    Raises DatasetError where it is no COCO file, too large, or not a regular file.
    """
    found = ForeignLabels(path)
    files, left = _files(path), LARGEST
    for file in files:
        try:
            data = read_file(file, left)
            content = json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{file}: cannot be read as JSON: {error}") from error
        left -= len(data)
        _File(file, content, max(FREE, PIXELS * len(data)), found).read()
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    for folder in (path, path / "annotations"):
        if os.path.lexists(folder / FILE):
            return [folder / FILE]
        several = sorted(folder.glob("instances_*.json")) if folder.is_dir() else []
        if several:
            return several
    raise DatasetError(f"{path}: holds neither {FILE} nor instances_*.json, nor does a folder annotations in it")


class _File:
    """One file; `budget`: pixels of masks that may come out of it."""

    def __init__(self, path: Path, content: Any, budget: int, found: ForeignLabels) -> None:
        self._path, self._found, self._budget = path, found, budget
        if not isinstance(content, dict):
            raise DatasetError(f"{path}: expected a JSON object of images, annotations and categories")
        for key in ("images", "annotations", "categories"):
            if not isinstance(content.get(key), list):
                raise DatasetError(f"{path}: expected a list of {key}, found {type(content.get(key)).__name__}")
        self._content: Mapping[str, list[Any]] = content
        self._names: dict[Any, str] = {}
        self._keys: dict[str, type[Any] | None] = {}

    def read(self) -> None:
        lost = self._found.lost
        for key in sorted(key for key, value in self._content.items() if key not in OF_FILE and value):
            self._found.lose_key(key)
        for category in self._content["categories"]:
            if not isinstance(category, dict):
                raise DatasetError(f"{self._path}: a category is {type(category).__name__}, expected an object")
            self._category(category)
        by_image: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for annotation in self._content["annotations"]:
            image = annotation.get("image_id") if isinstance(annotation, dict) else None
            if type(image) in (int, str):
                by_image[image].append(annotation)
            else:
                lost["annotations without an image"] += 1
        self._kinds(by_image)
        for image in self._content["images"]:
            number, file = (image.get("id"), image.get("file_name")) if isinstance(image, dict) else (None, None)
            if type(number) not in (int, str) or not isinstance(file, str):
                lost["images without an id or file_name"] += 1
                continue
            own, size = by_image.pop(number, []), _size(image)
            rows = partial(self._rows, own, size)
            self._found.pictures.append(ForeignPicture(file, len(own), rows, self._of_sample(image)))
        if any(by_image.values()):
            lost["annotations of images that are not listed"] += sum(map(len, by_image.values()))

    def _category(self, category: dict[str, Any]) -> None:
        known = {OF_CATEGORIES.get(key, key): value for key, value in category.items() if value is not None}
        own = {key: known[key] for key in KEPT if key in known and _is_text(known[key])}
        name = self._found.category(category.get("name"), category.get("id"), own)
        self._names[category["id"]] = name
        if known.get("frequency") in FREQUENCIES:
            self._found.frequencies[name] = known.pop("frequency")
        self._found.federated |= bool(category.keys() & LVIS)
        for key in sorted(known.keys() - own.keys() - {"id", "name"}):
            self._found.lose_key(f"categories.{key}")

    def _of_sample(self, image: dict[str, Any]) -> dict[str, list[int]]:
        """Return the lists of an image: what LVIS verified to be absent, and what it did not annotate exhaustively."""
        found = {}
        for name, key in LISTS.items():
            value = image.get(key)
            if isinstance(value, list) and all(type(one) is int and 0 <= one < 1 << 32 for one in value):
                found[name] = value
            elif value is not None:
                self._found.lost[f"{key} that is not a list of ids"] += 1
        self._found.federated |= bool(image.keys() & LVIS)
        for key in sorted(key for key in image.keys() - PLACES if image[key] is not None):
            self._found.lose_key(f"images.{key}")
        return found

    def _kinds(self, by_image: Mapping[Any, list[dict[str, Any]]]) -> None:
        """Find the further keys that become columns: those with values of one type."""
        for listed in by_image.values():
            for annotation in listed:
                for key in annotation.keys() - STANDARD:
                    value = annotation[key]
                    kind = type(value) if type(value) in (str, bool, int, float) and _is_name(key) else None
                    known = self._keys.get(key, kind) if len(self._keys) < MOST_KEYS or key in self._keys else None
                    if {kind, known} == {int, float}:
                        kind = known = float
                    self._keys[key] = kind if kind == known else None

    def _rows(
        self, annotations: list[dict[str, Any]], stated: tuple[int, int] | None, real: tuple[int, int] | None
    ) -> Iterator[Row]:
        size = stated or real
        if size is None:
            self._found.lost["annotations in pixels of pictures of unknown size"] += len(annotations)
            return
        for annotation in annotations:
            name = self._names.get(_hashable(annotation.get("category_id")))
            if name is None:
                self._found.lost["annotations of categories that are not listed"] += 1
                continue
            row: Row = {"label": name, "label_index": self._found.categories[name]["id"]}
            if name in self._found.frequencies:
                row["category_frequency"] = self._found.frequencies[name]
            self._shape(row, annotation, size, real)
            if not row.keys() & {"box2d", "polygon", "mask"}:
                self._found.lost["annotations without a box, ring or mask that is whole"] += 1
                continue
            if annotation.get("iscrowd") in (1, True):
                row["iscrowd"] = True
            self._further(row, annotation)
            yield row

    def _shape(
        self, row: Row, annotation: Mapping[str, Any], size: tuple[int, int], real: tuple[int, int] | None
    ) -> None:
        (width, height), lost = size, self._found.lost
        box = annotation.get("bbox")
        if isinstance(box, list) and len(box) == 4 and all(map(is_number, box)) and min(box[2:]) >= 0:
            x, y, w, h = box
            row["box2d"] = _finite([(x + w / 2) / width, (y + h / 2) / height, w / width, h / height])
        elif box is not None:
            lost["boxes that are not four finite numbers with a size"] += 1
        shape = annotation.get("segmentation")
        if isinstance(shape, list):
            rings = [ring for ring in map(whole_ring, shape) if ring is not None]
            lost["rings that are odd, under three points or not finite"] += len(shape) - len(rings)
            if rings:
                scaled = [[v / (height if n % 2 else width) for n, v in enumerate(ring)] for ring in rings]
                row["polygon"] = scaled if all(_finite(ring) for ring in scaled) else None
        elif isinstance(shape, dict):
            mask = self._mask(shape, real)
            if mask is not None:
                row["mask"] = mask
        if row.get("box2d") is None:
            row.pop("box2d", None)
        if row.get("polygon") is None:
            row.pop("polygon", None)

    def _mask(self, shape: Mapping[str, Any], real: tuple[int, int] | None) -> bytes | None:
        runs = shape.get("counts")
        if real is None or shape.get("size") != [real[1], real[0]]:
            self._found.lost["masks of another size than the picture"] += 1
            return None
        self._budget -= real[0] * real[1]
        if self._budget < 0:
            raise DatasetError(f"{self._path}: more pixels of masks come out of it than of any drive")
        try:
            if isinstance(runs, str):
                runs = unpacked(runs)
            if not isinstance(runs, list) or not all(type(run) is int and 0 <= run < 1 << 40 for run in runs):
                raise ValueError("runs are not a list of lengths")
            return encode_gray(mask_of(runs, real))
        except ValueError:
            self._found.lost["masks whose runs do not fit"] += 1
            return None

    def _further(self, row: Row, annotation: Mapping[str, Any]) -> None:
        for key, value in annotation.items():
            name = KEYS.get(key, key)
            if key in UNPLACED and value:
                self._found.lose_key(f"annotations.{key}")
            if key in STANDARD or name in row or value is None:
                continue
            if name == "box3d":
                if isinstance(value, list) and len(value) == 6 and all(map(is_number, value)):
                    row[name] = value
                else:
                    self._found.lost["box3d that is not six finite numbers"] += 1
            elif name in SCORES:
                if is_number(value) and 0 <= value <= 1:
                    row[name] = float(value)
                else:
                    self._found.lost[f"{key} outside 0..1"] += 1
            elif name in ("object_id", "category_frequency") and isinstance(value, str):
                row[name] = value.encode("utf-8", "replace").decode()
            elif self._keys.get(key) is not None and _fits(value):
                row[f"\0{key}"] = value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
            else:
                self._found.lose_key(f"annotations.{key}")


def _size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = image.get("width"), image.get("height")
    fits = all(type(value) is int and 0 < value < 1 << 20 for value in (width, height))
    return (width, height) if fits else None  # type: ignore[return-value]


def _finite(values: list[float]) -> list[float] | None:
    """Return the values, where float32 can hold them."""
    return values if all(-LARGEST_FLOAT < value < LARGEST_FLOAT for value in values) else None


def _is_name(key: str) -> bool:
    """True if a column can have this name: Unicode without control characters, no longer than a name of a file."""
    return key.isprintable() and len(key.encode("utf-8", "surrogatepass")) <= LONGEST_PART


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


def _hashable(value: Any) -> Any:
    return value if type(value) in (int, str) else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
