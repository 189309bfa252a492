# SPDX-License-Identifier: Apache-2.0
"""A dataset as COCO has it: instances.json, and the pictures.

Source: cocodataset.org, "Data format"; pycocotools; LVIS ("neg_category_ids"). Keys that COCO does not know are ours,
and passed over by its readers: they let labels come back with what they had.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import polars as pl

from edgefirst_ros.export.labels.pictures import (
    IMAGES,
    Picture,
    check_mode,
    group_name,
    pictures_of,
    put_pictures,
    report_pictures,
)
from edgefirst_ros.export.labels.rle import runs_of
from edgefirst_ros.export.labels.rows import LabelRows
from edgefirst_ros.progress import Progress
from edgefirst_ros.sensors.png import decode_gray

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.export.report import Report

FILE = "instances.json"
STANDARD = ("id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "keypoints", "num_keypoints")
"""Keys of an annotation that COCO gives a meaning."""
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
LISTS = {
    "neg_label_indices": "neg_category_ids",
    "not_exhaustive_label_indices": "not_exhaustive_category_ids",
}
OF_IMAGES = {"location": "location", "pose": "pose", "degradation": "degradation", **LISTS}
OF_CATEGORIES = {"def": "definition"}
"""{key of LVIS: key of category_metadata}; all others keep their names."""
NUMBERS = ("box3d",)
"""Further columns that are lists of numbers."""


def export(
    dataset: Dataset,
    out: Path,
    report: Report,
    progress: Progress,
    pictures: str = "copy",
    by_group: bool = False,
    unlooked: bool = False,
) -> None:
    """Write a dataset into the empty folder `out`: instances.json, with `by_group` one a group, and images/.

    `pictures` is one of MODES; `unlooked`: samples that nobody looked at too, as pictures of nothing. Raises
    UsageError, DatasetError, StorageError.
    """
    check_mode(dataset, pictures)
    rows = LabelRows(dataset, report)
    chosen = pictures_of(dataset, rows, report, unlooked=unlooked)
    writer = _Writer(rows)
    numbered = list(enumerate(chosen, 1))
    if by_group:
        for group in dict.fromkeys(picture.group for picture in chosen):
            name = FILE if group is None else f"instances_{group_name(group)}.json"
            writer.write(out / name, [item for item in numbered if item[1].group == group])
    else:
        writer.write(out / FILE, numbered)
    put_pictures(
        chosen,
        pictures,
        lambda picture: out / IMAGES / picture.file,
        lambda done: progress("pictures", done, len(chosen)),
    )
    _report(report, dataset, rows, writer, pictures)


class _Writer:
    """Writes files of annotations, counted over all of them: `lost` by reason."""

    def __init__(self, rows: LabelRows) -> None:
        self.rows, self.lost, self.written = rows, Counter[str](), 0
        named = [name for name in rows.table.columns if name not in HOMES and name not in STANDARD]
        self.further = [name for name in named if _fits(rows.table[name]) or name in NUMBERS]
        self._labels = rows.table["label"].to_list()
        self._frequencies = _frequencies(rows.table)
        if rows.table.filter(
            pl.col("category_frequency").is_not_null() & ~pl.col("label").is_in([*self._frequencies])
        ).height:
            self.further.append("category_frequency")
        self._indices = rows.table["label_index"].to_list()
        self._crowd = (rows.table["iscrowd"].fill_null(False) | rows.table["ignore"].fill_null(False)).to_list()
        self._rings = rows.table["polygon"].is_not_null().to_list()
        self._masks = rows.table["mask"].is_not_null().to_list()
        self._values = {name: rows.table[name].to_list() for name in self.further}
        self._of_images = {key: rows.column(name) for name, key in OF_IMAGES.items()}

    def write(self, path: Path, pictures: Sequence[tuple[int, Picture]]) -> None:
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

    def _image(self, number: int, picture: Picture) -> dict[str, Any]:
        key, (width, height) = picture.sample.key, picture.size
        found: dict[str, Any] = {"id": number, "file_name": picture.file, "width": width, "height": height}
        stamp = picture.sample.timestamp
        found |= {"sequence": key.name, "frame": key.frame, "group": picture.group, "timestamp": stamp}
        place = self.rows.first.get(key)
        if place is not None:
            found |= {name: _plain(values[place]) for name, values in self._of_images.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _of(self, number: int, picture: Picture) -> Iterator[dict[str, Any]]:
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
                "iscrowd": int(self._crowd[row]),
                "segmentation": segmentation,
            }
            for name, values in self._values.items():
                value = _plain(values[row])
                if value is not None and (name != "category_frequency" or self._labels[row] not in self._frequencies):
                    found[OWN.get(name, name)] = value
            yield found

    def _segmentation(self, row: int, picture: Picture) -> tuple[Any, float | None]:
        """Return the rings of a row, else its mask, and the area: pixels."""
        width, height = picture.size
        if self._rings[row]:
            self.lost["masks of annotations that have a polygon"] += self._masks[row]
            rings = [[v * (height if n % 2 else width) for n, v in enumerate(ring)] for ring in self.rows.rings(row)]
            return rings, math.fsum(abs(_area(ring)) for ring in rings)
        data = self.rows.mask(row) if self._masks[row] else None
        if data is None:
            return [], None
        mask: NDArray[np.bool_] | None = _mask(data)
        if mask is None or mask.shape != (height, width):
            self.lost["masks that cannot be read, or of another size than the picture"] += 1
            return [], None
        return {"size": [height, width], "counts": runs_of(mask)}, float(mask.sum())


def _frequencies(table: pl.DataFrame) -> dict[str, str]:
    """Return LVIS's group of each label whose rows all say the same."""
    column = pl.col("category_frequency").cast(pl.String)
    found = table.drop_nulls("label").group_by("label").agg(column.first().alias("f"), column.n_unique().alias("n"))
    return dict(found.filter((pl.col("n") == 1) & pl.col("f").is_not_null()).select("label", "f").sort("label").rows())


def _mask(data: bytes) -> NDArray[np.bool_] | None:
    """Return the pixels of a mask that are object: more than half of the range."""
    values = decode_gray(data)
    if values is None or values.dtype == bool:
        return values
    half: NDArray[np.bool_] = values > (127 if values.dtype.itemsize == 1 else 32767)
    return half


def _area(ring: Sequence[float]) -> float:
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


def _fits(column: Any) -> bool:
    kind = column.dtype
    return bool(kind.is_numeric() or str(kind) in ("String", "Boolean", "Categorical") or str(kind).startswith("Enum"))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; None for what it has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [float(v) if isinstance(v, float) else v for v in value] if isinstance(value, list | tuple) else value


def _report(report: Report, dataset: Dataset, rows: LabelRows, writer: _Writer, mode: str) -> None:
    report.add("annotations", "annotations", number=writer.written)
    for what, number in writer.lost.items():
        if number:
            report.add(what, "", "left out", number)
    for name in rows.columns:
        own = f"annotations.{OWN.get(name, name)}" if name in writer.further else ""
        report.add(f"column {name}", HOMES.get(name, own), "" if name in HOMES or own else "has no place in COCO")
    report_pictures(report, dataset, mode)
