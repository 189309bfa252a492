# SPDX-License-Identifier: Apache-2.0
"""FRM: the frames table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.sequences import SEQUENCES, faults, parsed
from edgefirst_ros.dataset.validate.columns import is_same
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, place_of

UNIT = 1e-6  # how far the length of a quaternion may be from 1


@rule("FRM001", "error", "all columns are there, with their types")
def columns(subject: Subject) -> Iterator[tuple[str, str]]:
    """Of companions those that the table has, each with stamp and skew; earlier versions say nothing of the model."""
    if subject.frames is None:
        return
    found = {field.name: field.type for field in subject.frames.schema}
    companions = [base for base in schema.COMPANIONS if {f"{base}_timestamp", f"{base}_skew"} & set(found)]
    for name, column in schema.frames_columns(companions).items():
        if name not in found and name != schema.MODEL_TIMESTAMP:
            yield name, "there is no such column"
        elif name in found and not is_same(found[name], column.type):
            yield name, f"is {found[name]}, must be {column.type}"


@rule("FRM002", "error", "file metadata are there and are JSON")
def metadata(subject: Subject) -> Iterator[tuple[str, str]]:
    """Sources, configuration, counts and so on; those by sequence where they are there."""
    given = subject.frames.metadata if subject.frames else {}
    for key in (*schema.FRAMES_METADATA, *({SEQUENCES} & given.keys())) if subject.frames else ():
        text = subject.frames.metadata.get(key) if subject.frames else None
        try:
            json.loads(text or "")
        except (ValueError, RecursionError):
            yield key, "is not there" if text is None else "is no JSON"


@rule("FRM006", "error", "file metadata have the form of the format")
def formed(subject: Subject) -> Iterator[tuple[str, str]]:
    """The same model as of every reader: `merge`, `info` and exports refuse what breaks it. REF006 looks at counts."""
    found = subject.frames.metadata if subject.frames else {}
    values = {key: parsed(text) for key, text in found.items() if key != "counts"}
    for key, what in faults(values):
        if values[key] is not found[key]:  # else FRM002
            yield key, what


@rule("FRM003", "error", "every row has name, frame and timestamp")
def identified(subject: Subject) -> Iterator[tuple[str, str]]:
    """The columns that nothing can stand in for."""
    for number, row in enumerate(subject.frames_rows()):
        missing = [name for name in ("name", "frame", "timestamp") if row.get(name) is None]
        if missing:
            yield f"row {number}", f"has no {', '.join(missing)}"


@rule("FRM004", "error", "positions are on the earth, orientations of length 1")
def navigation(subject: Subject) -> Iterator[tuple[str, str]]:
    """Degrees within ±90 and ±180; quaternions x, y, z, w."""
    for row in subject.frames_rows():
        latitude, longitude, turn = (row.get(name) for name in ("latitude", "longitude", "orientation"))
        known = [value for value in (latitude, longitude) if value is not None]
        if len(known) == 1 or (known and not (abs(known[0]) <= 90 and abs(known[1]) <= 180)):
            yield place_of(row), f"latitude {latitude}, longitude {longitude}"
        if isinstance(turn, list) and (None in turn or not abs(math.hypot(*turn) - 1) <= UNIT):
            yield place_of(row), f"orientation {turn}"


@rule("FRM005", "error", "skew is the companion's stamp less that of the sample")
def skew(subject: Subject) -> Iterator[tuple[str, str]]:
    """Null exactly where there is no companion."""
    for row in subject.frames_rows():
        for base in schema.COMPANIONS:
            stamp, found = row.get(f"{base}_timestamp"), row.get(f"{base}_skew")
            wanted = None if stamp is None or row.get("timestamp") is None else stamp - row["timestamp"]
            if found != wanted:
                yield place_of(row), f"{base}_skew is {found}, must be {wanted}"


RULES = (columns, metadata, identified, navigation, skew, formed)
