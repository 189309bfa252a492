# SPDX-License-Identifier: Apache-2.0
"""Labels in the form of YOLO, read: data.yaml, and a text file for each picture in folders called labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from edgefirst_ros.config.yaml_file import read_yaml
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.importing import NOT_FOLLOWED, TEXT, read_file, refuse_deep
from edgefirst_ros.export.labels.foreign import LARGEST, ForeignLabels, ForeignPicture, Row
from edgefirst_ros.export.labels.pictures import IMAGES
from edgefirst_ros.export.labels.yolo import DATA, INDICES, LABELS, part

MOST_FILES = 1 << 20
PICTURES = (".jpeg", ".jpg", ".png")
FURTHEST = 1e6
"""From the picture that a place can lie, in pictures."""


def read_yolo(path: Path) -> ForeignLabels:
    """Read data.yaml, or the folder that holds it, and the labels below it: labels/*.txt, train/labels/*.txt and so on.

    Raises DatasetError where that is not what there is, too much, or a file is no regular one.
    """
    file = path / DATA if path.is_dir() else path
    found = ForeignLabels(path)
    content = _yaml(file)
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
        text = name if isinstance(name, str) else str(name)  # names such as 7 or no are no text in YAML
        classes[number] = found.category(text, listed[place] if listed else number)
    left, labelled = LARGEST, set[str]()
    for label in _files(file.parent, LABELS, (".txt",)):
        data = read_file(label, min(TEXT, left))
        left -= len(data)
        lines = sum(1 for line in data.splitlines() if line.strip())
        found.pictures.append(ForeignPicture(label.stem, lines, partial(_rows, data, classes, found)))
        labelled.add(label.stem)
    if not found.pictures:
        raise DatasetError(f"{file.parent}: holds no files {LABELS}/*.txt")
    unlabelled = (picture.stem for picture in _files(file.parent, IMAGES, PICTURES) if picture.stem not in labelled)
    found.pictures += [ForeignPicture(stem, 0, _nothing) for stem in unlabelled]
    return found


def _yaml(file: Path) -> Any:
    if file.is_symlink():
        raise DatasetError(f"{file}: is {NOT_FOLLOWED}; put its target there")
    try:
        return read_yaml(file)
    except UsageError as error:
        raise DatasetError(str(error)) from error


def _nothing(_: tuple[int, int] | None) -> tuple[Row, ...]:
    return ()


def _files(root: Path, within: str, endings: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files with these endings in folders called `within`, in order of name. Raises DatasetError."""
    waiting, number = [root], 0
    while waiting:
        folder = waiting.pop()
        refuse_deep(folder, root)
        inside = within in folder.relative_to(root).parts
        with reporting(folder, "list"), os.scandir(folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        waiting += [Path(entry.path) for entry in reversed(listed) if entry.is_dir(follow_symlinks=False)]
        for entry in listed if inside else ():
            number += 1
            if number > MOST_FILES:
                raise DatasetError(f"{root}: holds more than {MOST_FILES} files in folders called {within}")
            if entry.name.lower().endswith(endings) and not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _rows(data: bytes, classes: dict[int, str], found: ForeignLabels, _: tuple[int, int] | None) -> Iterator[Row]:
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
            row = _row(values)
            if row is None:
                found.lost["lines that are neither a box nor the points of a ring"] += 1
            else:
                yield {"label": name, "label_index": found.categories[name]["id"], **row}


def _row(values: list[float]) -> Row | None:
    if len(values) in (4, 5):
        if min(values[2:4]) < 0:
            return None
        score = {"box2d_score": values[4]} if len(values) == 5 and 0 <= values[4] <= 1 else {}
        return {"box2d": values[:4], **score}
    if len(values) < 6 or len(values) % 2:
        return None
    xs, ys = values[::2], values[1::2]
    box = [(min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2, max(xs) - min(xs), max(ys) - min(ys)]
    rings: Iterable[list[float]] = part(values)
    return {"box2d": box, "polygon": [list(ring) for ring in rings]}
