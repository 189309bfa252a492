# SPDX-License-Identifier: Apache-2.0
"""REF: tables against members and against each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from edgefirst_ros.counts import PART_REASONS
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.inputs import Key
from edgefirst_ros.dataset.names import KIND_OF
from edgefirst_ros.dataset.sequences import SEQUENCES
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, key_of, place_of
from edgefirst_ros.errors import counted

LOCATION = 2e-5  # degrees: float32 has steps of 1.5e-5 at 180


@rule("REF001", "error", "every annotation belongs to a sample of the dataset")
def annotated(subject: Subject) -> Iterator[tuple[str, str]]:
    """By name and frame, exactly."""
    for key in dict.fromkeys(key_of(row) for row in subject.annotation_rows()):
        if key not in subject.samples:
            yield place_of(key), "is annotated but has no member"


@rule("REF002", "error", "every sample has a row in the annotations")
def listed(subject: Subject) -> Iterator[tuple[str, str]]:
    """Only where there is a frames table: to other tools no row means no annotation."""
    if subject.annotations is None or subject.frames is None:
        return
    found = {key_of(row) for row in subject.annotation_rows()}
    for key in subject.samples:
        if key not in found:
            yield place_of(key), "has no row in the annotations"


@rule("REF003", "error", "the frames table has one row for each sample, and no others")
def one_row(subject: Subject) -> Iterator[tuple[str, str]]:
    """By name and frame, exactly."""
    if subject.frames is None:
        return
    rows: dict[Key, int] = {}
    for row in subject.frames_rows():
        key = key_of(row)
        rows[key] = rows.get(key, 0) + 1
    for key, count in rows.items():
        if key not in subject.samples:
            yield place_of(key), "is in the frames table but has no member"
        if count > 1:
            yield place_of(key), f"has {count} rows in the frames table"
    for key in subject.samples:
        if key not in rows:
            yield place_of(key), "has no row in the frames table"


@rule("REF004", "error", "annotations have the stamp that the frames table has")
def stamps(subject: Subject) -> Iterator[tuple[str, str]]:
    """Nanoseconds, exactly."""
    for row in subject.annotation_rows("timestamp"):
        known = subject.rows.get(key_of(row))
        if known and row.get("timestamp") not in (None, known.timestamp):
            yield place_of(row), f"timestamp is {row['timestamp']}, in the frames table {known.timestamp}"


@rule("REF005", "error", "a companion has a stamp exactly where it has a member")
def companions(subject: Subject) -> Iterator[tuple[str, str]]:
    """Sensors without columns (the reference itself) are left alone."""
    there = {base for base in KIND_OF if subject.frames and f"{base}_timestamp" in subject.frames.schema.names}
    kinds = dict.fromkeys(KIND_OF[base] for base in KIND_OF if base in there)
    recovered = subject.frames is not None and "recovered" in subject.frames.metadata
    for key, row in subject.rows.items():
        stamped = {KIND_OF[base] for base in row.companions if base in KIND_OF}
        for kind in kinds:
            if recovered and kind not in stamped:
                continue  # the row may have been lost, and a cloud does not tell its stamp
            if (kind in stamped) != (kind in subject.samples.get(key, ())) and key in subject.samples:
                yield place_of(key), f"has {'a stamp but no' if kind in stamped else 'no stamp for its'} {kind}"


@rule("REF006", "error", "counts add up: seen = written + dropped where samples come from, never more elsewhere")
def counts(subject: Subject) -> Iterator[tuple[str, str]]:
    """Which topic gave the samples is told by what it wrote."""
    found = _stated(subject, "counts")
    if found is None:
        return
    if not isinstance(found, dict):
        yield "counts", f"is {found!r}, must be an object by topic"
        return
    faults = {topic: fault for topic, entry in found.items() if (fault := _count_fault(entry))}
    yield from ((f"counts of {topic}", fault) for topic, fault in faults.items())
    for name, its, samples in _counted(subject, found):
        whole = [entry["written"] for topic, entry in its.items() if topic not in faults and _is_whole(entry)]
        if samples not in whole and sum(whole) < samples:
            of = f"counts of {name!r}" if name else "counts"
            yield of, f"no topic has written {counted(samples, 'sample')} and dropped the rest of what was seen"


@rule("REF007", "error", "annotations have the size that the frames table has")
def sizes(subject: Subject) -> Iterator[tuple[str, str]]:
    """Width and height in pixels."""
    for row in subject.annotation_rows("size"):
        known, size = subject.rows.get(key_of(row)), row.get("size")
        if known and known.size and isinstance(size, list) and tuple(size) != known.size:
            yield place_of(row), f"size is {size}, in the frames table {list(known.size)}"


@rule("REF008", "error", "annotations have the position that the frames table has")
def locations(subject: Subject) -> Iterator[tuple[str, str]]:
    """As far as float32 goes."""
    swapped = schema.location_order(subject.version)[0] == "longitude"
    for row in subject.annotation_rows("location"):
        known, location = subject.rows.get(key_of(row)), row.get("location")
        if not known or not isinstance(location, list):
            continue
        found = location[::-1] if swapped else location
        if known.position is None or not all(
            value is not None and abs(value - wanted) <= LOCATION
            for value, wanted in zip(found, known.position, strict=False)
        ):
            yield place_of(row), f"location is {location}, in the frames table {known.position}"


RULES = (annotated, listed, one_row, stamps, companions, counts, sizes, locations)


def _counted(subject: Subject, counts: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], int]]:
    """Return (sequence, counts, samples): a topic that another sequence's samples come from is only seen in this one.

    Of a table that does not tell its sequences apart that is all in one, without a name.
    """
    known, samples = _stated(subject, SEQUENCES), Counter(key.name for key in subject.samples)
    if not isinstance(known, dict) or known.keys() != samples.keys() or not all(map(_is_counted, known.values())):
        return [("", counts, len(subject.samples))]
    return [(name, of["counts"], samples[name]) for name, of in known.items()]


def _stated(subject: Subject, key: str) -> Any:
    """Return metadata of the frames table; None where there is none, or (FRM002) no JSON."""
    text = subject.frames.metadata.get(key) if subject.frames else None
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _is_counted(of: Any) -> bool:
    counts = of.get("counts") if isinstance(of, dict) else None
    return isinstance(counts, dict) and not any(map(_count_fault, counts.values()))


def _is_whole(entry: Any) -> bool:
    return bool(entry["seen"] == entry["written"] + sum(_dropped(entry)))


def _dropped(entry: Any) -> list[Any]:
    """Messages dropped, by reason; boxes and masks are no messages."""
    return [number for reason, number in entry["dropped"].items() if reason not in PART_REASONS]


def _count_fault(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("dropped"), dict):
        return f"{entry!r} is not an object with seen, written and dropped"
    seen, written, dropped = entry.get("seen"), entry.get("written"), _dropped(entry)
    if not all(type(number) is int and number >= 0 for number in (seen, written, *dropped)):
        return f"{entry!r} has numbers that count nothing"
    if written + sum(dropped) > seen:
        return f"{written} written and {sum(dropped)} dropped of {seen} seen"
    return ""
