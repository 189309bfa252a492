# SPDX-License-Identifier: Apache-2.0
"""Pictures and annotations that COCO and YOLO share: which pictures, their names, boxes and rings by picture."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.label_names import Labels
from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.query import select_annotating, select_first_rows, sort_rows, with_all_columns
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.schema import VERSIONS, WORKING
from edgefirst_ros.dataset.tables.forms import JSON_SUFFIX, Annotations
from edgefirst_ros.dataset.tables.values import convert_layout
from edgefirst_ros.dataset.tables.write import outline_png
from edgefirst_ros.errors import DatasetError, UsageError, pluralize, quote_error
from edgefirst_ros.export.importing import check_member_name
from edgefirst_ros.export.output import LossReport, make_ahead, write_files

Boxes = NDArray[np.float64]
LISTS = ("neg_label_indices", "not_exhaustive_label_indices")
IMAGES = "images"
"""Name of the folder of pictures."""
MODES = ("copy", "link", "none")
"""Pictures written beside the labels; links to the files of a dataset that is a folder; left where they are."""


def find_extent(
    box2d: Sequence[float] | None = None, polygon: Sequence[Sequence[float]] | None = None, mask: bytes | None = None
) -> list[float] | None:
    """Return [cx, cy, w, h] of an annotation, normalised: its box, else the one around its outline; None without."""
    if box2d is not None:
        return list(box2d)
    rings = polygon or (outline_png(mask) if mask is not None else [])
    points = np.asarray([value for ring in rings for value in ring], float).reshape(-1, 2)
    if not len(points):
        return None
    low, high = points.min(axis=0), points.max(axis=0)
    return [*((low + high) / 2).tolist(), *(high - low).tolist()]


class LabelRows:
    """Reads all annotations. Raises DatasetError where they cannot be read.

    `table`: those that are one, by sample, with every column; `boxes`: (N, 4) [cx, cy, w, h] normalised, NaN where a
    row has no box; `annotated`: samples that have one; `first`: one row by sample, for columns of the sample; `labels`:
    names by index; `columns`: those that the file has, `own_columns` those of the annotations themselves; `metadata`:
    text by key. Unless `indexed`, labels without an index stay so.
    """

    def __init__(self, dataset: Dataset, report: LossReport, *, indexed: bool = True) -> None:
        file, _ = dataset.table_files
        self.columns: list[str] = []
        metadata: dict[str, str] = {}
        rows = pl.DataFrame({"name": [], "frame": []}, {"name": pl.String, "frame": pl.UInt32})
        self._layout, self._normalised = "cxcywh", True
        if file is not None:
            nested = file.path.suffix == JSON_SUFFIX  # which its own reader understands in full
            found = Annotations(file.path, limits=dataset.limits, source=None if nested else file)
            rows = found.frame()
            metadata, self.columns = dict(found.metadata), [*found.columns]
            self._layout, self._normalised = found.layout, found.normalised
            for what, number in found.tally.lost.items():
                report.add(what, "", "cannot be read", number)
        self.metadata = metadata
        self.labels = Labels.of(metadata, rows)
        rows = with_all_columns(rows, VERSIONS[-1]).cast({"label": pl.String})
        rows = self.labels.add_indices(rows) if indexed else rows
        self.own_columns = ["name", "frame", *(name for name in rows.columns if self._is_own(name))]
        self._every = rows
        self.first = select_first_rows(rows, dataset.paths.arrow)
        self.table, self._spans = sort_rows(select_annotating(rows), dataset.paths.arrow)
        self.annotated = self._spans.keys()
        self.boxes = self._boxes()

    def of(self, key: Key) -> range:
        """Return the rows of a sample."""
        start, count = self._spans.get(key, (0, 0))
        return range(start, start + count)

    def column(self, name: str) -> list[Any]:
        """Values of a column of the samples, at the places in `first`."""
        found = self._every[name]
        return (found.cast(pl.String) if found.dtype == pl.Categorical else found).to_list()

    def rings(self, row: int) -> list[list[float]]:
        """Rings of the polygon of a row, normalised x, y."""
        return self.table["polygon"][row : row + 1].to_list()[0] or []

    def mask(self, row: int) -> bytes | None:
        """Return the PNG file of the mask of a row if it is one of an object, not of classes."""
        data: bytes | None = self.table["mask"][row]
        return data if self.table["label"][row] is not None else None

    def fits(self, row: int, form: str) -> bool:
        """True if a row can be in labels of a form: it has a label, and a place in the picture."""
        try:
            box = self.extent(row)
        except DatasetError:  # a mask that is not a picture
            return False
        if form == "yolo" and box is not None:
            low, high = (np.clip(np.add(box[:2], np.multiply(box[2:], half)), 0, 1) for half in (-0.5, 0.5))
            box = box if (high > low).all() and not self.crowd[row] else None
        return box is not None and self.table["label"][row] is not None

    @cached_property
    def crowd(self) -> list[bool]:
        """True for each annotation of several objects that are not told apart."""
        return (self.table["iscrowd"].fill_null(False) | self.table["ignore"].fill_null(False)).to_list()

    def _is_own(self, name: str) -> bool:
        column = WORKING.get(name)
        wanted = name in self.columns or name in ("label", "label_index")
        return wanted and (column is None or column.level == "annotation")

    def outline(self, row: int) -> list[list[float]]:
        """Rings of the polygon of a row, else around its mask. Raises DatasetError where that is not a picture."""
        rings = self.rings(row)
        data = None if rings else self.mask(row)
        return outline_png(data) if data is not None else rings

    def extent(self, row: int, *, boxed: bool = True) -> list[float] | None:
        """Return the box of a row, else (not `boxed`: only) the one around its outline; None where it has neither."""
        box: list[float] = self.boxes[row].tolist()
        return box if boxed and box[0] == box[0] else find_extent(None, self.outline(row))

    def _boxes(self) -> Boxes:
        """Boxes as the tables' float32 have them where they are centre and size."""
        column = self.table["box2d"]
        found = np.full((len(column), 4), np.nan)
        there = column.is_not_null().to_numpy()
        if not there.any():
            return found
        own = column.filter(column.is_not_null()).to_numpy().astype(np.float64).reshape(-1, 4)
        own = convert_layout(own, self._layout, "cxcywh")
        if not self._normalised:
            sizes = self.table["size"].filter(column.is_not_null())
            if sizes.null_count():
                raise DatasetError("box2d is in pixels, and some rows have no picture size")
            own = own / np.tile(sizes.to_numpy().astype(np.float64).reshape(-1, 2), 2)
        found[there] = own
        return found


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """One picture with its labels."""

    sample: Sample
    file: str
    """SEQUENCE_FRAME with the suffix of the picture, as the files of the form are called."""
    size: tuple[int, int]
    """Width and height in pixels."""
    group: str | None
    rows: range
    """Rows of `LabelRows` that are annotations of it."""


def make_stem(key: Key) -> str:
    """Return the name of a picture without its suffix."""
    return key.name if key.frame is None else f"{key.name}_{key.frame:03d}"


def iter_pictures(dataset: Dataset, rows: LabelRows, report: LossReport, *, unlooked: bool) -> list[LabelledPicture]:
    """Return the pictures to export with labels, in the order of the samples.

    Unprocessed ones are dropped, unless `unlooked`: without labels they would count as empty. A sample is processed if
    it has a stamp of the model, an annotation, or labels that are verified to be absent.
    Raises DatasetError where a picture cannot be read, or its name would lead elsewhere.
    """
    looked = _find_processed(dataset, rows)
    found, without, left = [], 0, 0
    sizes, groups = _read_sizes(dataset, rows), rows.column("group")
    for sample in dataset:
        if "camera" not in sample.inputs:
            without += 1
        elif not unlooked and sample.key not in looked:
            left += 1
        else:
            member = sample.member("camera")
            suffix = ".png" if member.endswith(".png") else ".jpeg"
            place = rows.first.get(sample.key)
            file = _check_safe(dataset, make_stem(sample.key) + suffix)
            group = None if place is None else groups[place]
            size = sizes.get(sample.key) or _measure_picture(sample)
            found.append(LabelledPicture(sample, file, size, group, rows.of(sample.key)))
    report.add("samples", "pictures", number=len(found))
    report.count("samples without a picture", "", "not exported", without)
    report.count("samples that the model skipped", "", "not exported; --unlooked exports them as empty", left)
    if not found:
        bare = f"no labels and no result of the model in {pluralize(left, 'picture')}; --unlooked exports them as empty"
        why = bare if left else "no sample has a picture"
        raise DatasetError(f"{dataset.container.path}: {why}")
    return found


def check_mode(dataset: Dataset, mode: str) -> None:
    """Raise UsageError for an unknown mode, or links to members that are not files."""
    if mode not in MODES:
        raise UsageError(f"--pictures: expected {', '.join(MODES)}, got {mode!r}")
    if mode == "link" and dataset.paths.layout == "zip":
        raise UsageError(f"{dataset.container.path} is a ZIP, its pictures cannot be linked; use copy or none")


def put_pictures(
    pictures: Sequence[LabelledPicture], mode: str, place: Callable[[LabelledPicture], Path], progress: Progress
) -> None:
    """Copy or link pictures to where `place` says. Raises DatasetError."""
    if mode == "none":
        return
    for folder in {place(picture).parent for picture in pictures}:
        folder.mkdir(parents=True, exist_ok=True)

    def read(picture: LabelledPicture) -> bytes | None:
        sample = picture.sample
        if mode == "copy":
            return sample.read("camera")
        os.symlink(os.path.abspath(sample.dataset.container.path / sample.member("camera")), place(picture))
        return None

    remote = any(is_remote(picture.sample.dataset.paths.container) for picture in pictures[:1])
    with write_files() as write, closing(make_ahead(pictures, read, quick=not remote)) as found:
        for number, (picture, data) in enumerate(found, 1):
            if data is not None:
                write(str(place(picture)), data)
            progress("pictures", number, len(pictures))


def report_pictures(report: LossReport, dataset: Dataset, mode: str) -> None:
    """Say where the pictures went, and that forms of labels have no place for other sensors and for calibrations."""
    report.add("pictures", f"{IMAGES}/" if mode != "none" else "", "" if mode != "none" else "left in the dataset")
    nowhere = f"has no place in {report.system.upper()}"
    kinds = Counter(kind for sample in dataset for kind in sample.inputs)
    for kind in sorted(kinds.keys() - {"camera"}):
        report.add(kind, "", nowhere, kinds[kind])
    report.add("calibration", "", nowhere)


def group_name(group: str) -> str:
    """Return the name of a group, as a part of a file's name. Raises DatasetError where it cannot be one."""
    try:
        if "/" in group:
            raise ValueError(f"name {group[:80]!r} has a slash")
        return check_member_name(group)
    except ValueError as error:
        raise DatasetError(f"group {group[:80]!r} cannot name a file: {error}") from error


def _find_processed(dataset: Dataset, rows: LabelRows) -> set[Key]:
    frames, found = dataset.frames, set(rows.annotated)
    if frames is not None and schema.MODEL_TIMESTAMP in frames.columns:
        stamps = frames[schema.MODEL_TIMESTAMP].to_list()
        found |= {key for key, row in dataset.frame_rows.items() if stamps[row] is not None}
    absent = rows.column("neg_label_indices")
    return found | {key for key, row in rows.first.items() if absent[row] is not None}


def _read_sizes(dataset: Dataset, rows: LabelRows) -> dict[Key, tuple[int, int]]:
    sources = [(rows.column("size"), rows.first)]
    if dataset.frames is not None and "size" in dataset.frames.columns:
        sources.append((dataset.frames["size"].to_list(), dataset.frame_rows))
    return {
        key: size for values, places in sources for key, row in places.items() if (size := _check_size(values[row]))
    }


def _check_size(size: object) -> tuple[int, int] | None:
    fits = isinstance(size, list) and len(size) == 2 and all(isinstance(value, int) and value > 0 for value in size)
    return (size[0], size[1]) if fits else None  # type: ignore[index]


def read_size(sample: Sample) -> tuple[int, int] | None:
    """Return width and height of the picture of a sample: from the table of frames, else from the picture itself.

    None where neither has them.
    """
    return _check_size(sample.row.get("size")) or (_measure_picture(sample) if "camera" in sample.inputs else None)


def _measure_picture(sample: Sample) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(sample.read("camera")), formats=("JPEG", "PNG")) as picture:
            return picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        place = f"{sample.dataset.container.path}: {sample.member('camera')!r}"
        raise DatasetError(f"{place}: not a readable picture: {quote_error(error)}") from error


def _check_safe(dataset: Dataset, name: str) -> str:
    try:
        return check_member_name(name)
    except ValueError as error:
        raise DatasetError(f"{dataset.container.path}: {error}; a picture cannot be called so") from error
