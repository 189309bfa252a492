# SPDX-License-Identifier: Apache-2.0
"""TAB, continued: what the values of annotations may be. Source: EdgeFirst Annotation Schema 2026.04."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.tables.boxes import LAYOUTS, converted
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, key_of, place_of

ROUNDING = 1e-4
"""How far coordinates in parts of the picture may lie outside it: a fifth of a pixel of 2048."""
WORDS = {"category_frequency": ("f", "c", "r"), "degradation": ("none", "low", "medium", "high")}
RANDOM = re.compile("[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}")
INDICES = ("neg_label_indices", "not_exhaustive_label_indices")


@rule("TAB019", "warning", "coordinates of polygons lie within 0..1")
def coordinates(subject: Subject) -> Iterator[tuple[str, str]]:
    """They are parts of the picture, never pixels."""
    for row in subject.annotation_rows("polygon", "mask"):
        mask = row.get("mask")
        for ring in [*(row.get("polygon") or ()), *([mask] if isinstance(mask, list) else ())]:
            outside = [v for v in _finite(ring or ()) if not -ROUNDING <= v <= 1 + ROUNDING]
            if outside:
                yield place_of(row), f"a ring has {len(outside)} values outside, {outside[0]} for one"


@rule("TAB020", "warning", "sizes of boxes are not negative, and centres of 2D boxes lie in the picture")
def box_bounds(subject: Subject) -> Iterator[tuple[str, str]]:
    """In the layout and the unit that the file metadata say; boxes in pixels need the size of the picture."""
    said = subject.annotations.metadata if subject.annotations else {}
    layout = said.get("box2d_format", LAYOUTS[0])
    normalised = said.get("box2d_normalized", "true") == "true"
    for row in subject.annotation_rows("box2d", "box3d", "size"):
        box = _numbers(row.get("box2d"), 4)
        if box and layout in LAYOUTS:
            x, y, width, height = converted(np.array([box]), layout, "cxcywh")[0].tolist()
            limits = (1, 1) if normalised else _numbers(row.get("size"), 2) or (math.inf, math.inf)
            inside = all(-ROUNDING * most <= at <= most * (1 + ROUNDING) for at, most in _bounded((x, y), limits))
            if width < 0 or height < 0 or not inside:
                yield place_of(row), f"box2d is {box} ({layout}, {'parts' if normalised else 'pixels'})"
        solid = _numbers(row.get("box3d"), 6)
        if solid and min(solid[3:]) < 0:
            yield place_of(row), f"box3d is {solid}"


@rule("TAB021", "warning", "category_frequency is f, c or r, degradation is none, low, medium or high")
def words(subject: Subject) -> Iterator[tuple[str, str]]:
    """Evaluation and filters go by these words."""
    for row in subject.annotation_rows(*WORDS):
        for name, known in WORDS.items():
            if row.get(name) is not None and row[name] not in known:
                yield place_of(row), f"{name} is {row[name]!r}"


@rule("TAB022", "error", "size is positive, location on the earth, pose finite")
def places(subject: Subject) -> Iterator[tuple[str, str]]:
    """Pixels; degrees [latitude, longitude], in the first format the other way round; degrees."""
    order = schema.location_order(subject.version)
    for row in subject.annotation_rows("size", "location", "pose"):
        size, location, pose = (row.get(name) for name in ("size", "location", "pose"))
        if isinstance(size, list) and not all(size):
            yield place_of(row), f"size is {size}"
        if isinstance(location, list):
            known = _numbers(location, 2)
            here = dict(zip(order, known, strict=True)) if known else {}
            if not here or abs(here["latitude"]) > 90 or abs(here["longitude"]) > 180:
                yield place_of(row), f"location is {location}, must be [{', '.join(order)}]"
        if isinstance(pose, list) and not _numbers(pose, 3):
            yield place_of(row), f"pose is {pose}"


@rule("TAB023", "warning", "neg_label_indices and not_exhaustive_label_indices hold known label indices")
def known_indices(subject: Subject) -> Iterator[tuple[str, str]]:
    """Known from a row, from a place in `labels`, or from an id in `category_metadata`."""
    if not subject.annotations or not set(INDICES) & set(subject.annotations.schema.names):
        return
    known = _listed_indices(subject) | {row.get("label_index") for row in subject.annotation_rows("label_index")}
    for row in subject.annotation_rows(*INDICES):
        for name in INDICES:
            unknown = [index for index in row.get(name) or () if index not in known]
            if unknown:
                yield place_of(row), f"{name} has {unknown[0]}, which no row, label or category has"


@rule("TAB024", "error", "labels in neg_label_indices are not in the picture")
def really_absent(subject: Subject) -> Iterator[tuple[str, str]]:
    """They are verified to be absent."""
    if not subject.annotations or INDICES[0] not in subject.annotations.schema.names:
        return
    absent: dict[Key, set[int]] = {}
    for row in subject.annotation_rows(INDICES[0]):
        absent.setdefault(key_of(row), set()).update(row.get(INDICES[0]) or ())
    for row in subject.annotation_rows("label_index"):
        if row.get("label_index") in absent[key_of(row)]:
            yield place_of(row), f"label_index {row['label_index']} is annotated and in neg_label_indices"


@rule("TAB025", "warning", "an object id that was not made at random belongs to one sequence")
def one_sequence(subject: Subject) -> Iterator[tuple[str, str]]:
    """A random one (UUID version 4) is one track, wherever it comes; others are made of names that come again.

    Pictures that are no part of a sequence are left alone.
    """
    first: dict[str, str] = {}
    for row in subject.annotation_rows("object_id"):
        identity, name = row.get("object_id"), str(row.get("name"))
        if not isinstance(identity, str) or row.get("frame") is None or RANDOM.fullmatch(identity):
            continue
        if first.setdefault(identity, name) != name:
            yield place_of(row), f"object_id {identity!r} is in {first[identity]} too"


@rule("TAB026", "warning", "label and label_index are those of category_metadata, where it has ids")
def known_categories(subject: Subject) -> Iterator[tuple[str, str]]:
    """`category_metadata` names indices; they may have gaps."""
    found = _metadata_of(subject, "category_metadata")
    named = found if isinstance(found, dict) else {}
    ids = {name: one["id"] for name, one in named.items() if isinstance(one, dict) and type(one.get("id")) is int}
    names: dict[int, str] = {}
    for name, index in ids.items():
        if names.setdefault(index, name) != name:
            yield "category_metadata", f"id {index} is of {names[index]!r} and {name!r}"
    for row in subject.annotation_rows("label", "label_index") if ids else ():
        label, index = row.get("label"), row.get("label_index")
        if index is None:
            continue
        if index not in names:
            yield place_of(row), f"label_index {index} has no name in category_metadata"
        elif label is not None and ids.get(label) != index:
            yield (
                place_of(row),
                f"label {label!r} has label_index {index}, which category_metadata names {names[index]!r}",
            )


@rule("TAB027", "warning", "boxes in space of edgefirst-ros state their axes")
def axes(subject: Subject) -> Iterator[tuple[str, str]]:
    """Earlier versions wrote them in the optical axes of a sensor."""
    table, frames = subject.annotations, subject.frames
    software = _software_of(frames.metadata) if frames else None
    if table is not None and schema.lacks_axes(table.schema.names, table.metadata, software):
        yield "box3d_axes", "is missing; edgefirst-ros migrate --box3d-axes optical turns those of earlier versions"


RULES = (coordinates, box_bounds, words, places, known_indices, really_absent, one_sequence, known_categories, axes)


def _finite(values: Iterable[Any]) -> list[float]:
    return [v for v in values if isinstance(v, int | float) and math.isfinite(v)]


def _numbers(values: Any, length: int) -> list[float] | None:
    """Return `length` finite numbers; None for anything else, which other rules report."""
    return values if isinstance(values, list) and len(values) == len(_finite(values)) == length else None


def _bounded(values: Iterable[float], limits: Iterable[float]) -> list[tuple[float, float]]:
    return [(value, most) for value, most in zip(values, limits, strict=True) if math.isfinite(most)]


def _metadata_of(subject: Subject, key: str) -> Any:
    """Return a value of the file metadata; None where it is missing or not JSON (TAB005)."""
    try:
        return json.loads(subject.annotations.metadata.get(key, "null")) if subject.annotations else None
    except (ValueError, RecursionError):
        return None


def _listed_indices(subject: Subject) -> set[Any]:
    """Return the indices that the file metadata name."""
    labels, categories = (_metadata_of(subject, key) for key in ("labels", "category_metadata"))
    found: set[Any] = set(range(len(labels))) if isinstance(labels, list) else set()
    if isinstance(categories, dict):
        ids = (category.get("id") for category in categories.values() if isinstance(category, dict))
        found.update(one for one in ids if isinstance(one, int))
    return found


def _software_of(metadata: Mapping[str, str]) -> Any:
    try:
        return json.loads(metadata.get("software", "null"))
    except (ValueError, RecursionError):  # FRM002
        return None
