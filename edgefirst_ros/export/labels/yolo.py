# SPDX-License-Identifier: Apache-2.0
"""YOLO, written and read: a text file of labels for each picture, folders by group, data.yaml.

Source: docs.ultralytics.com, "Object Detection Datasets", "Instance Segmentation Datasets"; ultralytics/data/utils.py
(verify_image_label): centres and sizes, or the points of one ring, normalised and within 0..1.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgefirst_ros.config.yaml_file import read_yaml
from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.storage.lock import report_errors
from edgefirst_ros.dataset.tables.write import describe_lost_scores
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.importing import NOT_FOLLOWED, TEXT, read_file, refuse_deep
from edgefirst_ros.export.labels.foreign import LARGEST, ForeignLabels, ForeignPicture, Row
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

DATA, LABELS, ALL = "data.yaml", "labels", "all"
GROUPS = ("train", "val")
"""Groups that data.yaml always names."""
INDICES = "label_index"
"""Key of data.yaml, ours: `label_index` of each class, where these are not its places."""
HOMES = {
    "name": "names of the files",
    "frame": "names of the files",
    "label": "names of data.yaml",
    "label_index": "classes, label_index of data.yaml",
    "group": "folders",
    "box2d": "labels",
}
CUT_BOX, CUT_RING = "boxes cut at the edge of the picture", "outlines cut at the edge of the picture"
JOINED, RECTANGLE = "outlines of several rings: joined to one", "boxes without an outline: rectangles"
CHANGED = (CUT_BOX, CUT_RING, JOINED, RECTANGLE)
"""Reasons of annotations that are written, but changed."""
OF_SEGMENTS = {"polygon": "labels", "mask": "labels, its outline"}

Ring = Sequence[float]
MOST_FILES = 1 << 20
NAMES = (DATA, "dataset.yaml", "classes.txt", "obj.names")
"""Files of class names: ours and ultralytics', FiftyOne's, Label Studio's, CVAT's; the first that is there counts."""
OF_LABELS, OF_PICTURES = re.compile(rf"{LABELS}|obj_.+_data"), re.compile(rf"{IMAGES}|obj_.+_data")
PICTURES = (".jpeg", ".jpg", ".png")
FURTHEST = 1e6
"""From the picture that a place can are, in pictures."""


def export(
    dataset: Dataset,
    out: Path,
    report: LossReport,
    progress: Progress,
    pictures: str = "copy",
    segment: bool = False,
    single_group: bool = False,
    unlooked: bool = False,
) -> None:
    """Write a dataset into the empty folder `out`: data.yaml, images/GROUP and labels/GROUP.

    `segment`: outlines instead of boxes; `pictures` is one of MODES; `unlooked`: also unprocessed samples, as pictures
    without objects; `single_group`: also without pictures in group train or val, which then are the same. Raises
    UsageError, also without such pictures, DatasetError, StorageError.
    """
    check_mode(dataset, pictures)
    rows = LabelRows(dataset, report)
    chosen = iter_pictures(dataset, rows, report, unlooked=unlooked)
    grouped = any(picture.group is not None for picture in chosen)
    kept = [picture for picture in chosen if not grouped or picture.group is not None]
    report.count("samples without a group", "", "not exported, because others have one", len(chosen) - len(kept))
    missing = [name for name in GROUPS if not any(picture.group == name for picture in kept)]
    if missing and not single_group:
        remote, place = is_remote(dataset.container.path), dataset.paths.container
        raise UsageError(
            f"{dataset.container.path}: no picture is in group {' or '.join(missing)}: make groups"
            f"{' in a local copy' if remote else ''} with edgefirst-ros split {place.name if remote else place} "
            "--split train=0.8,val=0.2 (of a short drive also --set split_block=1), "
            "or use --single-group for the same pictures in both"
        )
    folders = {group: group_name(group) if group is not None else ALL for group in {p.group for p in kept}}
    lost, written = Counter[str](), 0
    classes = {index: place for place, index in enumerate(sorted(rows.labels.names))}
    lines = _Lines(rows, classes, lost, segment=segment)
    for picture in kept:
        target = out / LABELS / folders[picture.group] / f"{Path(picture.file).stem}.txt"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = lines.of(picture)
        written += len(text)
        target.write_text("".join(f"{line}\n" for line in text), encoding="ascii")
    put_pictures(kept, pictures, lambda picture: out / IMAGES / folders[picture.group] / picture.file, progress)
    _write_data(out / DATA, rows, sorted(folders.values()), report)
    _report(report, dataset, rows, written, lost, segment, pictures)


class _Lines:
    """Makes the lines of pictures; `lost` counts annotations without a line, or with another box than the table."""

    def __init__(self, rows: LabelRows, classes: dict[int, int], lost: Counter[str], *, segment: bool) -> None:
        self._rows, self._classes, self._lost, self._segment = rows, classes, lost, segment
        self._indices = rows.table["label_index"].to_list()
        self._labels = rows.table["label"].to_list()
        boxes = rows.boxes.astype(np.float32)
        self._texts = boxes.astype(str).tolist()  # the shortest decimals that read back as the same float32
        with np.errstate(invalid="ignore"):
            self._within: list[bool] = np.all((boxes >= 0) & (boxes <= 1), axis=1).tolist()

    def of(self, picture: LabelledPicture) -> list[str]:
        found = []
        for row in picture.rows:
            if self._labels[row] is None:
                self._lost["annotations without a label"] += 1
            elif self._rows.crowd[row]:
                self._lost["crowds, which YOLO does not know"] += 1
            else:
                numbers = self._ring(row) if self._segment else self._box(row)
                if numbers:
                    found.append(f"{self._classes[self._indices[row]]} {' '.join(numbers)}")
        return found

    def _box(self, row: int) -> list[str]:
        if self._within[row]:
            texts: list[str] = self._texts[row]
            return texts
        box = self._rows.extent(row)
        if box is None:
            self._lost["annotations without a box, polygon or mask in the picture"] += 1
            return []
        low, high = (np.clip(np.add(box[:2], np.multiply(box[2:], half)), 0, 1) for half in (-0.5, 0.5))
        if not (high > low).all():
            self._lost["boxes outside of the picture"] += 1
            return []
        clipped = [*((low + high) / 2), *(high - low)]
        if not np.allclose(clipped, box, rtol=0, atol=1e-7):
            self._lost[CUT_BOX] += 1
        return [str(value) for value in np.clip(np.asarray(clipped, np.float32), 0, 1)]

    def _ring(self, row: int) -> list[str]:
        rings: list[Ring] = list(self._rows.outline(row))
        mask = None if self._rows.rings(row) else self._rows.mask(row)
        if rings and mask is not None and (reason := describe_lost_scores(mask)):
            self._lost[reason] += 1
        if not rings:
            box = self._rows.extent(row)
            if box is None:
                self._lost["annotations without a box, polygon or mask in the picture"] += 1
                return []
            self._lost[RECTANGLE] += 1
            left, right, top, bottom = (box[n] + half * box[n + 2] for n in (0, 1) for half in (-0.5, 0.5))
            rings = [[left, top, right, top, right, bottom, left, bottom]]
        self._lost[JOINED] += len(rings) > 1
        joined = np.asarray(join(rings), np.float32)
        clipped = np.clip(joined, 0, 1)
        if not np.ptp(clipped.reshape(-1, 2), axis=0).all():
            self._lost["outlines outside of the picture"] += 1
            return []
        self._lost[CUT_RING] += bool((clipped != joined).any())
        return [str(value) for value in clipped]


def join(rings: Sequence[Ring]) -> list[float]:
    """Return several rings as one: each is gone round, and the way between two of them is gone back.

    It encloses the same area, a ring within another being a hole. `split_rings` returns the rings.
    """
    if len(rings) == 1:
        return list(rings[0])
    there = [value for ring in rings for value in (*ring, *ring[:2])]
    back = [value for ring in reversed(rings[:-1]) for value in ring[:2]]
    return [*there, *back]


def split_rings(ring: Ring) -> list[list[float]]:
    """Return the rings that `join` made one of; one that closes itself without its last point; any other as it is."""
    points = list(zip(ring[::2], ring[1::2], strict=True))
    found: list[list[tuple[float, float]]] = []
    place = 0
    while place < len(points):
        try:
            end = points.index(points[place], place + 3)
        except ValueError:
            break
        found.append(points[place:end])
        place = end + 1
    back = [one[0] for one in reversed(found[:-1])]
    if not found or points[place:] != back:
        return [list(ring)]
    return [[value for point in one for value in point] for one in found]


def _write_data(path: Path, rows: LabelRows, folders: list[str], report: LossReport) -> None:
    """Write data.yaml: it must have `train` and `val`, also if the dataset does not have these groups."""
    found = {group: group for group in folders if group != ALL}
    for name, other in (("train", "val"), ("val", "train")):
        if name not in found:
            found[name] = other if other in folders else folders[0]
            report.add(f"{name} of {DATA}", f"{IMAGES}/{found[name]}", f"no sample is in group {name}")
    indices = sorted(rows.labels.names)
    lines = [f"{_quote_text(group)}: {_quote_text(f'{IMAGES}/{folder}')}" for group, folder in found.items()]
    lines += ["names:", *(f"  {place}: {_quote_text(rows.labels.names[index])}" for place, index in enumerate(indices))]
    if indices != list(range(len(indices))):
        lines.append(f"{INDICES}: {indices}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _quote_text(text: str) -> str:
    """Text as YAML has it in quotes, which says the same in every reader."""
    plain = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08X}" for c in text)
    return f'"{"".join(plain)}"'


def _report(
    report: LossReport, dataset: Dataset, rows: LabelRows, written: int, lost: Counter[str], segment: bool, mode: str
) -> None:
    report.add("annotations", LABELS, number=written)
    for what, number in lost.items():
        changed = what in CHANGED
        report.count(what, LABELS if changed else "", "changed" if changed else "not exported", number)
    homes = HOMES | (OF_SEGMENTS if segment else {})
    for name in rows.columns:
        where = "" if segment and name == "box2d" and "polygon" in rows.columns else homes.get(name, "")
        report.add(f"column {name}", where, "" if where else "has no place in YOLO")
    report_pictures(report, dataset, mode)


def read_yolo(path: Path) -> ForeignLabels:
    """Read a file of class names, or the folder that holds it, and the labels below: labels/*.txt, train/labels/*.txt.

    Names are in data.yaml, dataset.yaml of FiftyOne, or by lines in classes.txt of Label Studio and obj.names of CVAT,
    whose labels are in obj_*_data. Raises DatasetError where it has another form, is too large, or a file is not a
    regular one.
    """
    there = (path / name for name in NAMES if os.path.lexists(path / name))
    file, found = next(there, None) if path.is_dir() else path, ForeignLabels(path)
    if file is None or file.suffix not in (".yaml", ".yml", ".txt", ".names"):
        raise DatasetError(f"{path}: expected one of the files {', '.join(NAMES)}")
    content = _read_yaml(file) if file.suffix in (".yaml", ".yml") else {"names": _read_lines(file)}
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not names:
        raise DatasetError(f"{file}: expected names, a list or a map of numbers and names")
    classes: dict[int, str] = {}
    indices = content.get(INDICES)
    listed = indices if isinstance(indices, list) and len(indices) == len(names) else None
    for place, (number, name) in enumerate(sorted(names.items(), key=lambda item: str(item[0]).zfill(20))):
        if type(number) is not int:
            raise DatasetError(f"{file}: class {str(number)[:80]!r} is not a number")
        text = name if isinstance(name, str) else str(name)  # names such as 7 or no are not text in YAML
        classes[number] = found.category(text, listed[place] if listed else number)
    left, labelled = LARGEST, set[str]()
    for label in _find_files(file.parent, OF_LABELS, (".txt",)):
        data = read_file(label, min(TEXT, left))
        left -= len(data)
        lines = sum(1 for line in data.splitlines() if line.strip())
        found.pictures.append(ForeignPicture(label.stem, lines, partial(_make_rows, data, classes, found)))
        labelled.add(label.stem)
    if not found.pictures:
        raise DatasetError(f"{file.parent}: holds no files {LABELS}/*.txt or obj_*_data/*.txt")
    unlabelled = (
        picture.stem for picture in _find_files(file.parent, OF_PICTURES, PICTURES) if picture.stem not in labelled
    )
    found.pictures += [ForeignPicture(stem, 0, lambda _: ()) for stem in unlabelled]
    return found


def _read_yaml(file: Path) -> Any:
    if file.is_symlink():
        raise DatasetError(f"{file}: is {NOT_FOLLOWED}; put its target there")
    try:
        return read_yaml(file)
    except UsageError as error:
        raise DatasetError(str(error)) from error


def _read_lines(file: Path) -> list[str]:
    """Return the names of classes, one a line. Raises DatasetError."""
    try:
        return [line.strip() for line in read_file(file, TEXT).decode().rstrip().splitlines()]
    except ValueError as error:
        raise DatasetError(f"{file}: cannot be read as UTF-8") from error


def _find_files(root: Path, within: re.Pattern[str], endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files with these endings below folders whose name is `within`, by name. Raises DatasetError."""
    waiting, number = [root], 0
    while waiting:
        folder = waiting.pop()
        refuse_deep(folder, root)
        inside = any(map(within.fullmatch, folder.relative_to(root).parts))
        with report_errors(folder, "list"), os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        waiting += [Path(entry.path) for entry in reversed(listed) if entry.is_dir(follow_symlinks=False)]
        for entry in listed if inside else ():
            number += 1
            if number > MOST_FILES:
                raise DatasetError(f"{root}: holds more than {MOST_FILES} files of labels or pictures")
            if entry.name.lower().endswith(endings) and not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _make_rows(data: bytes, classes: dict[int, str], found: ForeignLabels, _: tuple[int, int] | None) -> Iterator[Row]:
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        found.lost["label files that are not text"] += 1
        return
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        try:
            number, values = float(words[0]), [float(word) for word in words[1:]]
        except ValueError:
            found.lost["lines that are not numbers"] += 1
            continue
        name = classes.get(int(number)) if number.is_integer() and abs(number) < 1e9 else None
        if name is None:
            found.lost["lines of a class that has no name"] += 1
        elif not all(-FURTHEST <= value <= FURTHEST for value in values):
            found.lost["lines with numbers that are not finite"] += 1
        else:
            row = _parse_row(values)
            found.lost["score outside 0..1"] += row is not None and len(values) == 5 and not 0 <= values[4] <= 1
            if row is None:
                found.lost["lines that are neither a box nor the points of a ring"] += 1
            else:
                yield {"label": name, "label_index": found.categories[name]["id"], **row}


def _parse_row(values: list[float]) -> Row | None:
    if len(values) in (4, 5):
        if min(values[2:4]) < 0:
            return None
        score = {"box2d_score": values[4]} if len(values) == 5 and 0 <= values[4] <= 1 else {}
        return {"box2d": values[:4], **score}
    if len(values) < 6 or len(values) % 2:
        return None
    xs, ys = values[::2], values[1::2]
    box = [(min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2, max(xs) - min(xs), max(ys) - min(ys)]
    rings: Iterable[list[float]] = split_rings(values)
    return {"box2d": box, "polygon": [list(ring) for ring in rings]}
