# SPDX-License-Identifier: Apache-2.0
"""TAB: the annotations. Source: EdgeFirst Annotation Schema 2026.04."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.tables.rings import separated
from edgefirst_ros.dataset.validate.columns import is_readable, is_same
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, key_of, place_of
from edgefirst_ros.errors import EdgeFirstError, counted
from edgefirst_ros.sensors.grayscale import decode_gray
from edgefirst_ros.sensors.masks import VOID
from edgefirst_ros.sensors.picture_file import check_png

BOXES = {"box2d": 4, "box3d": 6}
SCORES = tuple(name for name in schema.columns(schema.VERSIONS[-1]) if name.endswith("_score"))
SAMPLE_LEVEL = tuple(c.name for c in schema.columns(schema.VERSIONS[-1]).values() if c.level == "sample")
UUID = re.compile("-".join(f"[0-9a-fA-F]{{{length}}}" for length in (8, 4, 4, 4, 12)))
PNG_HEADER = struct.Struct(">8xI4sIIBB")
GRAY = 0


@rule("TAB001", "error", "columns have types that can be read as those of the schema version")
def readable_types(subject: Subject) -> Iterator[tuple[str, str]]:
    """A file without schema_version is of 2025.10: masks of later files fail there."""
    known = schema.columns(subject.version)
    for field in subject.annotations.schema if subject.annotations else ():
        column = known.get(field.name)
        if column and not is_readable(field.type, column.type):
            yield field.name, f"is {field.type}, must be {column.type} in {subject.version}"


@rule("TAB002", "warning", "columns have exactly the types of the schema version")
def exact_types(subject: Subject) -> Iterator[tuple[str, str]]:
    """Columns that no version knows are allowed."""
    known, every = schema.columns(subject.version), {column.name for column in schema.COLUMNS}
    for field in subject.annotations.schema if subject.annotations else ():
        column = known.get(field.name)
        if column is None and field.name in every:
            yield field.name, f"is not a column of {subject.version}"
        elif column and is_readable(field.type, column.type) and not is_same(field.type, column.type):
            yield field.name, f"is {field.type}, should be {column.type} in {subject.version}"


@rule("TAB003", "error", "every row names its sample")
def named(subject: Subject) -> Iterator[tuple[str, str]]:
    """`frame` may be null: a picture that is no part of a sequence."""
    if subject.annotations and "name" not in subject.annotations.schema.names:
        yield "name", "there is no such column"
        return
    for number, row in enumerate(subject.annotation_rows()):
        frame = row.get("frame")
        if not row.get("name") or (frame is not None and (type(frame) is not int or frame < 0)):
            yield f"row {number}", f"name {row.get('name')!r}, frame {frame!r}"


@rule("TAB004", "warning", "the schema version is a known one")
def known_version(subject: Subject) -> Iterator[tuple[str, str]]:
    """What is there of a later version is read all the same."""
    said = subject.annotations.metadata.get("schema_version") if subject.annotations else None
    if said is not None and said not in schema.VERSIONS:
        yield "schema_version", f"is {said!r}; known: {', '.join(schema.VERSIONS)}"


@rule("TAB005", "error", "file metadata have values of the format")
def metadata(subject: Subject) -> Iterator[tuple[str, str]]:
    """All are text; `labels` and `category_metadata` are JSON."""
    found = subject.annotations.metadata if subject.annotations else {}
    for key in schema.METADATA:
        if key.name in found and key.values and found[key.name] not in key.values:
            yield key.name, f"is {found[key.name]!r}, must be one of {', '.join(key.values)}"
    labels, categories = _parsed(found.get("labels", "[]")), _parsed(found.get("category_metadata", "{}"))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        yield "labels", "is no JSON array of texts"
    if not isinstance(categories, dict):
        yield "category_metadata", "is no JSON object"
        return
    for name, category in categories.items():
        wrong = _wrong_fields(category) if isinstance(category, dict) else ["all of it"]
        if wrong:
            yield "category_metadata", f"{name!r}: {', '.join(wrong)} cannot be what the format says"


@rule("TAB006", "warning", "columns that nobody filled are left out")
def filled(subject: Subject) -> Iterator[tuple[str, str]]:
    """An absent score means "not applicable", a null one that it is missing."""
    table = subject.annotations
    if table is None or not table.rows:
        return
    empty = set(table.schema.names)
    for batch in table.batches():
        empty = {name for name in empty if batch.column(name).null_count == batch.num_rows}
    for name in sorted(empty):
        yield name, "is null in every row"


@rule("TAB007", "error", "rings of polygons have three points at least, as finite pairs")
def rings(subject: Subject) -> Iterator[tuple[str, str]]:
    """In 2025.10 polygons are in `mask`, separated by NaN."""
    for row in subject.annotation_rows("polygon", "mask"):
        mask = row.get("mask")
        for ring in [*(row.get("polygon") or ()), *(separated(mask) if isinstance(mask, list) else ())]:
            values = ring or []
            if len(values) < 6 or len(values) % 2 or not _finite(values):
                yield place_of(row), f"a ring of {len(values)} values, or not all of them finite"


@rule("TAB008", "error", "scores lie within 0..1")
def scores(subject: Subject) -> Iterator[tuple[str, str]]:
    """Null where there is none."""
    for row in subject.annotation_rows(*SCORES):
        for name in SCORES:
            value = row.get(name)
            if isinstance(value, float) and not 0 <= value <= 1:
                yield place_of(row), f"{name} is {value}"


@rule("TAB009", "error", "boxes are finite and have 4 (box2d) or 6 (box3d) numbers")
def boxes(subject: Subject) -> Iterator[tuple[str, str]]:
    """Nulls within a box are no numbers either."""
    for row in subject.annotation_rows(*BOXES):
        for name, length in BOXES.items():
            box = row.get(name)
            if isinstance(box, list) and (len(box) != length or not _finite(box)):
                yield place_of(row), f"{name} is {box}"


@rule("TAB010", "error", "timings are not negative")
def timings(subject: Subject) -> Iterator[tuple[str, str]]:
    """Durations in nanoseconds."""
    for row in subject.annotation_rows("timing"):
        timing = row.get("timing")
        for what, value in timing.items() if isinstance(timing, dict) else ():
            if isinstance(value, int) and value < 0:
                yield place_of(row), f"timing.{what} is {value} ns"


@rule("TAB011", "error", "columns of the sample have one value in all its rows")
def sample_level(subject: Subject) -> Iterator[tuple[str, str]]:
    """Size, place, attitude, group and so on belong to the picture, not to an object in it."""
    first: dict[Key, tuple[str, ...]] = {}
    for row in subject.annotation_rows(*SAMPLE_LEVEL, "timestamp"):
        values = tuple(repr(row.get(name)) for name in (*SAMPLE_LEVEL, "timestamp"))
        others = first.setdefault(key_of(row), values)
        for name, value, other in zip((*SAMPLE_LEVEL, "timestamp"), values, others, strict=True):
            if value != other:
                yield place_of(row), f"{name} is {other} and {value}"


@rule("TAB012", "error", "a label has one label_index, and the other way round")
def one_index(subject: Subject) -> Iterator[tuple[str, str]]:
    """In the whole dataset."""
    of_label: dict[str, int] = {}
    of_index: dict[int, str] = {}
    for row in subject.annotation_rows("label", "label_index"):
        label, index = row.get("label"), row.get("label_index")
        if label is None or index is None:
            continue
        if of_label.setdefault(label, index) != index:
            yield place_of(row), f"label {label!r} has label_index {of_label[label]} and {index}"
        elif of_index.setdefault(index, label) != label:
            yield place_of(row), f"label_index {index} stands for {of_index[index]!r} and {label!r}"


@rule("TAB013", "error", "masks are grayscale PNG files")
def masks(subject: Subject) -> Iterator[tuple[str, str]]:
    """Chunks and their CRC; the pixels are not decoded."""
    for row, mask in _masks(subject):
        try:
            check_png(mask)
        except EdgeFirstError as error:
            yield place_of(row), f"mask: {error}"
            continue
        *_, colour = PNG_HEADER.unpack_from(mask)
        if colour != GRAY:
            yield place_of(row), f"mask has colour type {colour}, must be grayscale (0)"


@rule("TAB014", "warning", "instance masks have the depth of mask_interpretation: 1 bit when binary, else 8 or 16")
def mask_depth(subject: Subject) -> Iterator[tuple[str, str]]:
    """Masks without a box are class indices, whatever the interpretation."""
    said = subject.annotations.metadata.get("mask_interpretation", "binary") if subject.annotations else ""
    allowed = (1,) if said == "binary" else (8, 16)
    for row, mask in _masks(subject):
        if row.get("box2d") is not None and len(mask) >= PNG_HEADER.size:
            depth = PNG_HEADER.unpack_from(mask)[-2]
            if depth not in allowed:
                yield place_of(row), f"mask has {depth} bits, mask_interpretation is {said!r}"


@rule("TAB015", "error", "a row without label and geometry is the only one of its sample")
def lone_rows(subject: Subject) -> Iterator[tuple[str, str]]:
    """It says that there is nothing."""
    rows: dict[Key, int] = {}
    empty: dict[Key, int] = {}
    columns = ("label", *schema.GEOMETRY)
    for row in subject.annotation_rows(*columns):
        key = key_of(row)
        rows[key] = rows.get(key, 0) + 1
        if all(row.get(name) is None for name in columns):
            empty[key] = empty.get(key, 0) + 1
    for key, count in empty.items():
        if rows[key] > 1:
            yield place_of(key), f"{count} of {rows[key]} rows have neither label nor geometry"


@rule("TAB016", "warning", "all samples have a group, or none has")
def groups(subject: Subject) -> Iterator[tuple[str, str]]:
    """Readers that go by groups would never see the others."""
    grouped: dict[Key, bool] = {}
    for row in subject.annotation_rows("group"):
        grouped[key_of(row)] = row.get("group") is not None
    without = [key for key, there in grouped.items() if not there]
    if len(without) < len(grouped):
        for key in without:
            yield place_of(key), "has no group"


@rule("TAB017", "warning", "pixels of semantic masks have a name in labels")
def named_pixels(subject: Subject) -> Iterator[tuple[str, str]]:
    """Pixel value i is labels[i], 255 is no class; without `labels` the order is the model's own."""
    labels = _parsed(subject.annotations.metadata.get("labels", "null")) if subject.annotations else None
    if not isinstance(labels, list):
        return
    for row in subject.annotation_rows("mask", "label", "object_id", "box2d"):
        mask = row.get("mask")
        if isinstance(mask, bytes) and all(row.get(name) is None for name in ("label", "object_id", "box2d")):
            values = decode_gray(mask)
            if values is None:
                continue  # TAB013
            unnamed = values[(values.astype(np.uint16, copy=False) >= len(labels)) & (values != VOID)]
            if len(unnamed):
                yield place_of(row), f"mask has pixels of {unnamed.min()}, there are {counted(len(labels), 'label')}"


@rule("TAB018", "warning", "object ids are UUIDs")
def object_ids(subject: Subject) -> Iterator[tuple[str, str]]:
    """In the usual form, of either case."""
    for row in subject.annotation_rows("object_id"):
        identity = row.get("object_id")
        if isinstance(identity, str) and not UUID.fullmatch(identity):
            yield place_of(row), f"object_id {identity!r}"


RULES = (
    readable_types,
    exact_types,
    named,
    known_version,
    metadata,
    filled,
    rings,
    scores,
    boxes,
    timings,
    sample_level,
    one_index,
    masks,
    mask_depth,
    lone_rows,
    groups,
    named_pixels,
    object_ids,
)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _wrong_fields(category: dict[str, Any]) -> list[str]:
    """The fields of a category with a value of the wrong kind; null stands for none."""
    good = {name: isinstance(category.get(name), str) for name in ("supercategory", "synset", "definition")}
    good["id"] = type(category.get("id")) is int
    synonyms = category.get("synonyms")
    good["synonyms"] = isinstance(synonyms, list) and all(isinstance(one, str) for one in synonyms)
    return [name for name, right in good.items() if category.get(name) is not None and not right]


def _finite(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _masks(subject: Subject) -> Iterator[tuple[dict[str, Any], bytes]]:
    for row in subject.annotation_rows("mask", "box2d"):
        if isinstance(row.get("mask"), bytes):
            yield row, row["mask"]
