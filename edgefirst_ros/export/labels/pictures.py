# SPDX-License-Identifier: Apache-2.0
"""The pictures that labels go out with: which they are, how they are called, and where they are put."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.dataset import schema
from edgefirst_ros.errors import DatasetError, UsageError, text_of
from edgefirst_ros.export.ahead import ahead
from edgefirst_ros.export.importing import check_member_name

if TYPE_CHECKING:
    from edgefirst_ros.dataset.names import Key
    from edgefirst_ros.dataset.reader import Dataset, Sample
    from edgefirst_ros.export.labels.rows import LabelRows
    from edgefirst_ros.export.report import Report

IMAGES = "images"
"""Name of the folder of pictures."""
MODES = ("copy", "link", "none")
"""Pictures written beside the labels; links to the files of a dataset that is a folder; left where they are."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture with its labels."""

    sample: Sample
    file: str
    """SEQUENCE_FRAME with the suffix of the picture, as the files of the form are called."""
    size: tuple[int, int]
    """Width and height in pixels."""
    group: str | None
    rows: range
    """Rows of `LabelRows` that are annotations of it."""


def stem_of(key: Key) -> str:
    """Return the name of a picture without its suffix."""
    return key.name if key.frame is None else f"{key.name}_{key.frame:03d}"


def pictures_of(dataset: Dataset, rows: LabelRows, report: Report, *, unlooked: bool) -> list[Picture]:
    """Return the pictures that labels go out with, in the order of the samples.

    Those that nobody looked at are left out, unless `unlooked`: without labels they would say that there is nothing.
    Looked at is what has a stamp of the model, an annotation, or labels that are verified to be absent.
    Raises DatasetError where a picture cannot be read, or its name would lead elsewhere.
    """
    looked = _looked(dataset, rows)
    found, without, left = [], 0, 0
    sizes, groups = _sizes(dataset, rows), rows.column("group")
    for sample in dataset:
        if "camera" not in sample.inputs:
            without += 1
        elif not unlooked and sample.key not in looked:
            left += 1
        else:
            member = sample.member("camera")
            suffix = ".png" if member.endswith(".png") else ".jpeg"
            place = rows.first.get(sample.key)
            file = _safe(dataset, stem_of(sample.key) + suffix)
            group = None if place is None else groups[place]
            size = sizes.get(sample.key) or _size(sample)
            found.append(Picture(sample, file, size, group, rows.of(sample.key)))
    report.add("samples", "pictures", number=len(found))
    if without:
        report.add("samples without a picture", "", "left out", without)
    if left:
        report.add("samples that the model never looked at", "", "left out; unlooked takes them as empty", left)
    if not found:
        why = f": {left} were never looked at by the model (unlooked takes them as empty)" if left else ""
        raise DatasetError(f"{dataset.container.path}: no picture has labels{why}")
    return found


def check_mode(dataset: Dataset, mode: str) -> None:
    """Raise UsageError for a mode that is not known, or links to what are no files."""
    if mode not in MODES:
        raise UsageError(f"unknown mode of pictures {mode!r}; known: {', '.join(MODES)}")
    if mode == "link" and dataset.paths.layout == "zip":
        raise UsageError(f"{dataset.container.path} is a ZIP, its pictures cannot be linked; copy them, or choose none")


def put_pictures(
    pictures: Sequence[Picture], mode: str, place: Callable[[Picture], Path], tell: Callable[[int], None]
) -> None:
    """Copy or link pictures to where `place` says; `tell` gets the number of those done. Raises DatasetError."""
    if mode == "none":
        return
    items: Iterable[tuple[Picture, bytes]] = ((picture, b"") for picture in pictures)
    if mode == "copy":
        items = ahead(pictures, lambda picture: picture.sample.read("camera"))
    for number, (picture, data) in enumerate(items):
        target = place(picture)
        target.parent.mkdir(parents=True, exist_ok=True)
        if mode == "copy":
            target.write_bytes(data)
        else:
            container = picture.sample.dataset.container
            os.symlink(os.path.abspath(container.path / picture.sample.member("camera")), target)
        tell(number + 1)


def report_pictures(report: Report, dataset: Dataset, mode: str) -> None:
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


def _looked(dataset: Dataset, rows: LabelRows) -> set[Key]:
    frames, found = dataset.frames, set(rows.annotated)
    if frames is not None and schema.MODEL_TIMESTAMP in frames.columns:
        stamps = frames[schema.MODEL_TIMESTAMP].to_list()
        found |= {key for key, row in dataset.frame_rows.items() if stamps[row] is not None}
    absent = rows.column("neg_label_indices")
    return found | {key for key, row in rows.first.items() if absent[row] is not None}


def _sizes(dataset: Dataset, rows: LabelRows) -> dict[Key, tuple[int, int]]:
    """Return the sizes of pictures that the tables state."""
    found: dict[Key, tuple[int, int]] = {}
    known = rows.column("size")
    sources = [({key: known[row] for key, row in rows.first.items()})]
    if dataset.frames is not None and "size" in dataset.frames.columns:
        values = dataset.frames["size"].to_list()
        sources.append({key: values[row] for key, row in dataset.frame_rows.items()})
    for source in sources:
        for key, value in source.items():
            if isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) and v > 0 for v in value):
                found[key] = (value[0], value[1])
    return found


def size_of(sample: Sample) -> tuple[int, int] | None:
    """Return width and height of the picture of a sample: what the table of frames says, else the picture itself.

    None where neither is there.
    """
    size = sample.row.get("size")
    if isinstance(size, list) and len(size) == 2 and all(isinstance(value, int) and value > 0 for value in size):
        return size[0], size[1]
    return _size(sample) if "camera" in sample.inputs else None


def _size(sample: Sample) -> tuple[int, int]:
    """Return the size that the picture itself states."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(sample.read("camera")), formats=("JPEG", "PNG")) as picture:
            return picture.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        place = f"{sample.dataset.container.path}: {sample.member('camera')!r}"
        raise DatasetError(f"{place}: not a readable picture: {text_of(error)}") from error


def _safe(dataset: Dataset, name: str) -> str:
    try:
        return check_member_name(name)
    except ValueError as error:
        raise DatasetError(f"{dataset.container.path}: {error}; a picture cannot be called so") from error
