# SPDX-License-Identifier: Apache-2.0
"""COCO: writes instances.json and the pictures, and reads boxes, rings, runs and crowds.

Source: cocodataset.org, "Data format"; pycocotools; LVIS ("neg_category_ids"). Keys that COCO does not know are ours;
its readers ignore them. With them an import restores the other columns.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.tables.write import describe_lost_scores, read_object_pixels
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import LONGEST_PART, clean_text, read_file
from edgefirst_ros.export.labels.foreign import (
    LARGEST,
    MOST_KEYS,
    ForeignLabels,
    ForeignPicture,
    Row,
    check_ring,
    is_number,
)
from edgefirst_ros.export.labels.pictures import (
    IMAGES,
    LabelledPicture,
    LabelRows,
    check_mode,
    group_name,
    iter_pictures,
    put_pictures,
    report_pictures,
)
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.sensors.png import encode_gray

FILE = "instances.json"
FOREIGN = (FILE, "annotations/instances.json", "instances_*.json", "annotations/instances_*.json", "result.json",
           "labels.json", "_annotations.coco.json", "*/_annotations.coco.json")  # fmt: skip
"""Names in a folder, the first that is there: ours, COCO's and CVAT's, Label Studio's, FiftyOne's, Roboflow's."""
STANDARD = ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints", "num_keypoints")
"""Keys of an annotation that COCO defines."""
OWN = {"box2d_score": "score"}
"""Columns under another key; all others keep their names."""
HOMES = {
    "name": "images.file_name, sequence",
    "frame": "images.file_name, frame",
    "timestamp": "images.timestamp",
    "label": "categories.name",
    "label_index": "categories.id",
    "group": "images.group",
    "size": "images.width, height",
    "location": "images.location",
    "pose": "images.pose",
    "degradation": "images.degradation",
    "neg_label_indices": "images.neg_category_ids",
    "not_exhaustive_label_indices": "images.not_exhaustive_category_ids",
    "polygon": "annotations.segmentation",
    "mask": "annotations.segmentation (RLE)",
    "box2d": "annotations.bbox",
    "iscrowd": "annotations.iscrowd",
    "ignore": "annotations.iscrowd",
    "category_frequency": "categories.frequency",
}
LISTS = {"neg_label_indices": "neg_category_ids", "not_exhaustive_label_indices": "not_exhaustive_category_ids"}
OF_IMAGES = {"location": "location", "pose": "pose", "degradation": "degradation", **LISTS}
OF_CATEGORIES = {"def": "definition"}
"""{key of LVIS: key of category_metadata}; all others keep their names."""
PLAIN = (pl.String, pl.Boolean, pl.Categorical, pl.Enum)
"""Types of columns whose values JSON has, in addition to numbers."""
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


def export(
    dataset: Dataset,
    out: Path,
    report: LossReport,
    progress: Progress,
    pictures: str = "copy",
    by_group: bool = False,
    unlooked: bool = False,
) -> None:
    """Write a dataset into the empty folder `out`: instances.json, with `by_group` one a group, and images/.

    `pictures` is one of MODES; `unlooked`: also unprocessed samples, as pictures without objects. Raises UsageError,
    DatasetError, StorageError.
    """
    check_mode(dataset, pictures)
    rows = LabelRows(dataset, report)
    chosen = iter_pictures(dataset, rows, report, unlooked=unlooked)
    writer = _LabelWriter(rows)
    numbered = list(enumerate(chosen, 1))
    if by_group:
        for group in dict.fromkeys(picture.group for picture in chosen):
            name = FILE if group is None else f"instances_{group_name(group)}.json"
            writer.write(out / name, [item for item in numbered if item[1].group == group])
    else:
        writer.write(out / FILE, numbered)
    put_pictures(chosen, pictures, lambda picture: out / IMAGES / picture.file, progress)
    _report(report, dataset, rows, writer, pictures)


class _LabelWriter:
    """Writes files of annotations, counted over all of them: `lost` by reason."""

    def __init__(self, rows: LabelRows) -> None:
        self.rows, self.lost, self.written = rows, Counter[str](), 0
        self.further = [
            name
            for name, kind in rows.table.schema.items()
            if name not in (*HOMES, *STANDARD) and (kind.is_numeric() or kind in PLAIN or name == "box3d")
        ]
        self._labels = rows.table["label"].to_list()
        self._frequencies = _find_frequencies(rows.table)
        if rows.table.filter(
            pl.col("category_frequency").is_not_null() & ~pl.col("label").is_in([*self._frequencies])
        ).height:
            self.further.append("category_frequency")
        self._indices = rows.table["label_index"].to_list()
        self._rings = rows.table["polygon"].is_not_null().to_list()
        self._masks = rows.table["mask"].is_not_null().to_list()
        self._values = {name: rows.table[name].to_list() for name in self.further}
        self._of_images = {key: rows.column(name) for name, key in OF_IMAGES.items()}

    def write(self, path: Path, pictures: Sequence[tuple[int, LabelledPicture]]) -> None:
        """Write one file; image ids are the numbers."""
        head: dict[str, Any] = {"info": {"description": "EdgeFirst dataset"}, "licenses": []}
        head["categories"] = [
            {"id": index, "name": name, "supercategory": name} | self._category(name)
            for index, name in sorted(self.rows.labels.names.items())
        ]
        with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps(head, ensure_ascii=False)[:-1])
            _list(file, "images", (self._image(number, picture) for number, picture in pictures))
            _list(file, "annotations", (one for number, picture in pictures for one in self._of(number, picture)))
            file.write("}\n")

    def _category(self, name: str) -> dict[str, Any]:
        known = dict(self.rows.labels.categories.get(name, {}))
        known |= {"frequency": self._frequencies[name]} if name in self._frequencies else {}
        names = {name: key for key, name in OF_CATEGORIES.items()}
        return {
            names.get(key, key): value
            for key, value in known.items()
            if key not in ("id", "name") and value is not None
        }

    def _image(self, number: int, picture: LabelledPicture) -> dict[str, Any]:
        key, (width, height) = picture.sample.key, picture.size
        found: dict[str, Any] = {"id": number, "file_name": picture.file, "width": width, "height": height}
        stamp = picture.sample.timestamp
        found |= {"sequence": key.name, "frame": key.frame, "group": picture.group, "timestamp": stamp}
        place = self.rows.first.get(key)
        if place is not None:
            found |= {name: _convert_plain(values[place]) for name, values in self._of_images.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _of(self, number: int, picture: LabelledPicture) -> Iterator[dict[str, Any]]:
        width, height = picture.size
        for row in picture.rows:
            index, box = self._indices[row], self.rows.extent(row)
            if self._labels[row] is None:
                self.lost["annotations without a label"] += 1
                continue
            if box is None:
                self.lost["annotations without a box, polygon or mask in the picture"] += 1
                continue
            segmentation, area = self._segmentation(row, picture)
            x, y = (box[0] - box[2] / 2) * width, (box[1] - box[3] / 2) * height
            self.written += 1
            found = {
                "id": self.written,
                "image_id": number,
                "category_id": index,
                "bbox": [x, y, box[2] * width, box[3] * height],
                "area": box[2] * width * box[3] * height if area is None else area,
                "iscrowd": int(self.rows.crowd[row]),
                "segmentation": segmentation,
            }
            for name, values in self._values.items():
                value = _convert_plain(values[row])
                if value is not None and (name != "category_frequency" or self._labels[row] not in self._frequencies):
                    found[OWN.get(name, name)] = value
            yield found

    def _segmentation(self, row: int, picture: LabelledPicture) -> tuple[Any, float | None]:
        """Return the rings of a row, else its mask, and the area: pixels."""
        width, height = picture.size
        if self._rings[row]:
            self.lost["masks of annotations that have a polygon"] += self._masks[row]
            rings = [[v * (height if n % 2 else width) for n, v in enumerate(ring)] for ring in self.rows.rings(row)]
            return rings, math.fsum(abs(_measure_area(ring)) for ring in rings)
        data = self.rows.mask(row) if self._masks[row] else None
        if data is None:
            return [], None
        mask: NDArray[np.bool_] | None = read_object_pixels(data)
        if mask is None or mask.shape != (height, width):
            self.lost["masks that cannot be read, or of another size than the picture"] += 1
            return [], None
        if reason := describe_lost_scores(data):
            self.lost[reason] += 1
        return {"size": [height, width], "counts": encode_runs(mask)}, float(mask.sum())


def _find_frequencies(table: pl.DataFrame) -> dict[str, str]:
    """Return LVIS's group of each label whose rows all say the same."""
    column = pl.col("category_frequency").cast(pl.String)
    found = table.drop_nulls("label").group_by("label").agg(column.first().alias("f"), column.n_unique().alias("n"))
    return dict(found.filter((pl.col("n") == 1) & pl.col("f").is_not_null()).select("label", "f").sort("label").rows())


def _measure_area(ring: Sequence[float]) -> float:
    xs, ys = ring[::2], ring[1::2]
    area = 0.0
    for x0, y0, x1, y1 in zip(xs, ys, [*xs[1:], xs[0]], [*ys[1:], ys[0]], strict=True):
        area += x0 * y1 - x1 * y0  # `sum` would round otherwise from Python 3.12 on
    return area / 2


def _list(file: TextIO, name: str, items: Iterator[dict[str, Any]]) -> None:
    file.write(f', "{name}": [')
    for number, item in enumerate(items):
        file.write((",\n" if number else "\n") + json.dumps(item, ensure_ascii=False, allow_nan=False))
    file.write("]")


def _convert_plain(value: Any) -> Any:
    """Return a value as JSON has it; None for a value that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [float(v) if isinstance(v, float) else v for v in value] if isinstance(value, list | tuple) else value


def _report(report: LossReport, dataset: Dataset, rows: LabelRows, writer: _LabelWriter, mode: str) -> None:
    report.add("annotations", "annotations", number=writer.written)
    for what, number in writer.lost.items():
        report.count(what, "", "not exported", number)
    for name in rows.columns:
        own = f"annotations.{OWN.get(name, name)}" if name in writer.further else ""
        report.add(f"column {name}", HOMES.get(name, own), "" if name in HOMES or own else "has no place in COCO")
    report_pictures(report, dataset, mode)


def read_coco(path: Path) -> ForeignLabels:
    """Read one JSON file, or those of a folder that have one of the names `FOREIGN`.

    Raises DatasetError where it is not a COCO file, too large, or not a regular file.
    """
    found = ForeignLabels(path)
    files, left = _list_files(path), LARGEST
    for file in files:
        try:
            data = read_file(file, left)
            content = json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{file}: cannot be read as JSON: {error}") from error
        left -= len(data)
        _LabelFile(file, content, max(FREE, PIXELS * len(data)), found).read()
    return found


def _list_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    inside = (
        [file for file in sorted(path.glob(pattern)) if file.parent == path or not file.parent.is_symlink()]
        for pattern in FOREIGN
    )
    found = next(filter(None, inside), None)
    if found is None:
        raise DatasetError(f"{path}: expected one of the files {', '.join(FOREIGN)}, or the file itself")
    return found


class _LabelFile:
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
            own, size = by_image.pop(number, []), _read_size(image)
            rows = partial(self._rows, own, size)
            self._found.pictures.append(ForeignPicture(file, len(own), rows, self._of_sample(image)))
        if any(by_image.values()):
            lost["annotations of images that are not listed"] += sum(map(len, by_image.values()))

    def _category(self, category: dict[str, Any]) -> None:
        known = {OF_CATEGORIES.get(key, key): value for key, value in category.items() if value is not None}
        lists = {key: value if isinstance(value, list) else [value] for key, value in known.items() if key in KEPT}
        own = {key: known[key] for key in KEPT if key in lists and all(isinstance(one, str) for one in lists[key])}
        name = self._found.category(category.get("name"), category.get("id"), own)
        self._names[category["id"]] = name
        if known.get("frequency") in FREQUENCIES:
            self._found.frequencies[name] = known.pop("frequency")
        self._found.federated |= bool(category.keys() & LVIS)
        for key in sorted(known.keys() - own.keys() - {"id", "name"}):
            self._found.lose_key(f"categories.{key}")

    def _of_sample(self, image: dict[str, Any]) -> dict[str, list[int]]:
        """Return the lists of an image: labels that LVIS verified as absent, and those not annotated exhaustively."""
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
            number = annotation.get("category_id")
            name = self._names.get(number if type(number) in (int, str) else None)
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
            if scaled := _check_finite([(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]):
                row["box2d"] = scaled
        elif box is not None:
            lost["boxes that are not four finite numbers with a size"] += 1
        shape = annotation.get("segmentation")
        if isinstance(shape, list):
            rings = [ring for ring in map(check_ring, shape) if ring is not None]
            lost["rings that are odd, under three points or not finite"] += len(shape) - len(rings)
            places = [[v / (height if n % 2 else width) for n, v in enumerate(ring)] for ring in rings]
            if places and all(map(_check_finite, places)):
                row["polygon"] = places
        elif isinstance(shape, dict):
            mask = self._mask(shape, real)
            if mask is not None:
                row["mask"] = mask

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
                runs = unpack_runs(runs)
            return encode_gray(decode_runs(runs, real))
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
                row[name] = clean_text(value)
            elif self._keys.get(key) is not None and not (isinstance(value, int) and not -(1 << 63) <= value < 1 << 63):
                row[f"\0{key}"] = clean_text(value) if isinstance(value, str) else value
            else:
                self._found.lose_key(f"annotations.{key}")


def _read_size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = image.get("width"), image.get("height")
    fits = all(type(value) is int and 0 < value < 1 << 20 for value in (width, height))
    return (width, height) if fits else None  # type: ignore[return-value]


def _check_finite(values: list[float]) -> list[float] | None:
    return values if all(-LARGEST_FLOAT < value < LARGEST_FLOAT for value in values) else None


def _is_name(key: str) -> bool:
    """True if a column can have this name: Unicode without control characters, no longer than a name of a file."""
    return key.isprintable() and len(key.encode("utf-8", "surrogatepass")) <= LONGEST_PART


LONGEST_RUN = 1 << 40
"""No run is as long; numbers beyond are rejected while they are read."""


def encode_runs(mask: NDArray[np.bool_]) -> list[int]:
    """Return the lengths of the runs of a mask (height, width)."""
    flat = np.ascontiguousarray(mask.T).reshape(-1)
    turns = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    runs: list[int] = np.diff(np.concatenate(([0], turns, [len(flat)]))).tolist()
    return [0, *runs] if len(flat) and flat[0] else runs


def decode_runs(runs: Any, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the mask (height, width) of runs; `size` is width and height. Raises ValueError where they do not fit."""
    width, height = size
    if not isinstance(runs, list) or not all(type(run) is int and 0 <= run < LONGEST_RUN for run in runs):
        raise ValueError("runs are not a list of lengths")
    counts = np.asarray(runs, np.int64)
    if int(counts.sum()) != width * height or (counts > width * height).any():
        raise ValueError(f"runs of {int(counts.sum())} pixels for {width} x {height}")
    values = np.zeros(len(counts), np.bool_)
    values[1::2] = True
    return np.ascontiguousarray(np.repeat(values, counts).reshape(width, height).T)


def unpack_runs(text: str) -> list[int]:
    """Return the runs in the text that COCO packs them into. Raises ValueError where it is not such a text."""
    found: list[int] = []
    number = shift = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64:
            raise ValueError(f"{character!r} does not come in packed runs")
        number |= (code & 0x1F) << shift
        shift += 5
        if shift > 60:
            raise ValueError("a run is too long")
        if not code & 0x20:
            if code & 0x10:
                number -= 1 << shift
            if len(found) > 2:
                number += found[-2]
            if not 0 <= number < LONGEST_RUN:
                raise ValueError("a run is not a length")
            found.append(number)
            number = shift = 0
    if shift:
        raise ValueError("packed runs end within a run")
    return found
