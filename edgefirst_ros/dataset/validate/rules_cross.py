# SPDX-License-Identifier: Apache-2.0
"""FRM, REF and CAL: the frames table, what must agree between tables and members, and calibrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from edgefirst_ros.counts import PART_REASONS
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.schema import SEQUENCES, find_faults, select_sequence
from edgefirst_ros.dataset.summary import summarize
from edgefirst_ros.dataset.validate.report import (
    KEY,
    Found,
    Subject,
    is_same,
    list_places,
    place_of,
    read_position,
    rule,
)
from edgefirst_ros.dataset.verdict import Check, Timeline
from edgefirst_ros.errors import DatasetError, pluralize
from edgefirst_ros.sensors.calibration import IDENTITY, MISSING
from edgefirst_ros.streams import find_by_column

UNIT = 1e-6  # how far the length of a quaternion may be from 1
LOCATION = 2e-5  # degrees: float32 has steps of 1.5e-5 at 180
WHY = {
    IDENTITY: "is a placeholder: its transforms from a sensor to the optical frame of the camera do not rotate",
    MISSING: "is missing: no usable camera_info, or no transforms that join a sensor to the camera",
}


@rule("FRM001", "error", "all columns exist, with their types")
def check_columns(subject: Subject) -> Found:
    """Check the companions that the table has, each with stamp and skew; earlier versions have no model and pose."""
    if subject.frames is None:
        return
    found = {field.name: field.type for field in subject.frames.schema}
    for name, column in schema.list_frames_columns(subject.companions).items():
        if name not in found and name not in schema.LATER:
            yield name, "the table has no such column"
        elif name in found and not is_same(found[name], column.type):
            yield name, f"is {found[name]}, must be {column.type}"


@rule("FRM002", "error", "file metadata exist and are JSON")
def check_metadata(subject: Subject) -> Found:
    """Sources, configuration, counts and so on; those by sequence if the file has them."""
    given = subject.frames.metadata if subject.frames else {}
    for key in (*schema.FRAMES_METADATA, *({SEQUENCES} & given.keys())) if subject.frames else ():
        if key not in subject.frames_metadata:
            yield key, "is not JSON" if key in given else "is missing"


@rule("FRM003", "error", "every row has name, frame and timestamp")
def check_identity(subject: Subject) -> Found:
    """Columns without a substitute."""
    needed = (*KEY, "timestamp")
    yield from list_places(
        subject.framed.with_row_index("row"),
        pl.any_horizontal(pl.col(needed).is_null()),
        lambda row: f"has no {', '.join(name for name in needed if row[name] is None)}",
        "row {row}",
    )


@rule("FRM004", "error", "positions are on the earth, poses finite and whole, orientations of length 1")
def check_navigation(subject: Subject) -> Found:
    """Degrees within ±90 and ±180; quaternions x, y, z, w."""
    latitude, longitude = pl.col("latitude"), pl.col("longitude")
    both = latitude.is_not_null() & longitude.is_not_null()
    on_earth = (latitude.abs() <= 90) & latitude.is_not_nan() & (longitude.abs() <= 180) & longitude.is_not_nan()
    bad = (latitude.is_null() != longitude.is_null()) | (both & ~on_earth)
    yield from list_places(subject.framed, bad, "latitude {latitude}, longitude {longitude}")
    for name in ("orientation", "pose_orientation"):
        turn = pl.col(name)
        length = turn.list.eval(pl.element() ** 2).list.sum() ** 0.5
        lacking = turn.list.drop_nulls().list.len() < turn.list.len()
        off = ~(((length - 1).abs() <= UNIT) & length.is_not_nan())
        yield from list_places(subject.framed, turn.is_not_null() & (lacking | off), f"{name} {{{name}}}")
    place, turn = pl.col("pose_position"), pl.col("pose_orientation")
    finite = place.list.drop_nulls().list.eval(pl.element().is_finite()).list.all() & (place.list.len() == 3)
    finite &= place.list.drop_nulls().list.len() == place.list.len()
    bad = (place.is_null() != turn.is_null()) | (place.is_not_null() & ~finite)
    yield from list_places(subject.framed, bad, "pose_position {pose_position}")


@rule("FRM005", "error", "skew is the companion's stamp less that of the sample")
def check_skew(subject: Subject) -> Found:
    """Null exactly without a companion."""
    for base in subject.companions:
        wanted = pl.col(f"{base}_timestamp") - pl.col("timestamp")
        rows = subject.framed.select(*KEY, pl.col(f"{base}_skew").alias("found"), wanted.alias("wanted"))
        yield from list_places(
            rows, pl.col("found").ne_missing(pl.col("wanted")), f"{base}_skew is {{found}}, must be {{wanted}}"
        )


@rule("FRM006", "error", "file metadata have the form of the format")
def check_forms(subject: Subject) -> Found:
    """The model of every reader: `merge`, `info` and exports reject metadata that break it. REF006 checks counts."""
    yield from find_faults({key: value for key, value in subject.frames_metadata.items() if key != "counts"})


# ---- tables against members and each other -----------------------------------------------------
@rule("REF001", "error", "every annotation belongs to a sample of the dataset")
def check_annotations(subject: Subject) -> Found:
    """By name and frame, exactly."""
    keys = subject.annotated.select(KEY).unique(maintain_order=True)
    yield from list_places(_without(keys, subject.keys), pl.lit(True), "is annotated but has no member")


@rule("REF002", "error", "every sample has a row in the annotations")
def check_rows(subject: Subject) -> Found:
    """Only with a frames table: to other tools no row means no annotation."""
    if subject.annotations is not None and subject.frames is not None:
        rest = _without(subject.keys, subject.annotated)
        yield from list_places(rest, pl.lit(True), "has no row in the annotations")


@rule("REF003", "error", "the frames table has one row for each sample, and no others")
def check_one_row(subject: Subject) -> Found:
    """By name and frame, exactly."""
    if subject.frames is None:
        return
    rows = subject.framed.group_by(KEY, maintain_order=True).len("rows")
    yield from list_places(_without(rows, subject.keys), pl.lit(True), "is in the frames table but has no member")
    yield from list_places(rows, pl.col("rows") > 1, "has {rows} rows in the frames table")
    yield from list_places(_without(subject.keys, rows), pl.lit(True), "has no row in the frames table")


@rule("REF004", "error", "annotations have the stamp that the frames table has")
def check_stamps(subject: Subject) -> Found:
    """Nanoseconds, exactly."""
    yield from list_places(
        subject.compared,
        pl.col("timestamp").is_not_null() & pl.col("timestamp").ne_missing(pl.col("timestamp_frames")),
        "timestamp is {timestamp}, in the frames table {timestamp_frames}",
    )


@rule("REF005", "error", "a companion has a stamp exactly where it has a member")
def check_companions(subject: Subject) -> Found:
    """Sensors without columns (the reference itself) are not checked."""
    names = subject.frames.schema.names if subject.frames else ()
    kinds = dict.fromkeys(find_by_column(base).kinds for base in subject.companions if f"{base}_timestamp" in names)
    recovered = subject.frames is not None and "recovered" in subject.frames.metadata
    for key, row in subject.rows.items():
        stamped = {find_by_column(base).kinds for base in subject.companions if row[f"{base}_timestamp"] is not None}
        for any_of in kinds:
            if recovered and any_of not in stamped:
                continue  # the row may have been lost, and a cloud does not contain its stamp
            there = next((kind for kind in any_of if kind in subject.samples.get(key, ())), None)
            if (any_of in stamped) != (there is not None) and key in subject.samples:
                has = "a stamp but no" if any_of in stamped else "no stamp for its"
                yield place_of(key), f"has {has} {there or any_of[0]}"


@rule("REF006", "error", "counts add up: seen = written + dropped where samples come from, never more elsewhere")
def check_counts(subject: Subject) -> Found:
    """The topic of the samples is recognised by its written count."""
    found = subject.frames_metadata.get("counts")
    if found is None:
        return
    if not isinstance(found, dict):
        yield "counts", f"is {found!r}, must be an object by topic"
        return
    faults = {topic: fault for topic, entry in found.items() if (fault := _count_fault(entry))}
    yield from ((f"counts of {topic}", fault) for topic, fault in faults.items())
    for name, its, samples in _list_counts(subject, found):
        good = [entry for topic, entry in its.items() if topic not in faults]
        whole = [one["written"] for one in good if one["seen"] == one["written"] + sum(_list_dropped(one))]
        if samples not in whole and sum(whole) < samples:
            of = f"counts of {name!r}" if name else "counts"
            yield of, f"no topic has written {pluralize(samples, 'sample')} and dropped the rest of what was seen"


@rule("REF007", "error", "annotations have the size that the frames table has")
def check_sizes(subject: Subject) -> Found:
    """Width and height in pixels."""
    yield from list_places(
        subject.compared, pl.col("size") != pl.col("size_frames"), "size is {size}, in the frames table {size_frames}"
    )


@rule("REF008", "error", "annotations have the position that the frames table has")
def check_locations(subject: Subject) -> Found:
    """As far as float32 goes."""
    bad = pl.col("latitude").is_null() | pl.col("longitude").is_null()
    for number, name in enumerate(schema.get_location_order(subject.version)):
        value = pl.col("location").list.get(number, null_on_oob=True)
        bad |= ~((value - pl.col(name)).abs() <= LOCATION).fill_null(False) | value.is_nan()
    yield from list_places(
        subject.compared,
        pl.col("location").is_not_null() & bad,
        lambda row: f"location is {row['location']}, in the frames table {read_position(row)}",
    )


@rule("CAL001", "warning", "every sequence has a calibration by which its sensors can be projected into the picture")
def check_calibration(subject: Subject) -> Found:
    """One warning a sequence, also where the metadata do not say it in words."""
    if subject.frames is None:
        return
    kinds: dict[str, set[str]] = {}
    for key, of_sample in subject.samples.items():
        kinds.setdefault(key.name, set()).update(of_sample)
    for name, its in kinds.items():
        try:
            said = str(select_sequence(subject.frames_metadata, name, kinds, its)["calibration"])
        except DatasetError as error:
            yield name, str(error)
            continue
        if said in WHY:
            yield name, f"the calibration {WHY[said]}"


def judge_drive(subject: Subject) -> list[Check]:
    """Return the checks of the drive from its tables; empty if they are broken, which rules report.

    The calibration has a rule of its own, CAL001.
    """
    if subject.frames is None:
        return []
    metadata = subject.frames_metadata
    if len(metadata) < len(subject.frames.metadata) or next(find_faults(metadata), None) is not None:
        return []
    timeline = Timeline.of_file(subject.frames)
    return summarize(timeline, metadata, {}).checks if len(timeline) else []


def _without(left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    return left.join(right.select(KEY), on=KEY, how="anti", nulls_equal=True, maintain_order="left")


def _list_counts(subject: Subject, counts: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any], int]]:
    """Return (sequence, counts, samples): a topic that another sequence's samples come from is only seen in this one.

    Sequences without counts were recovered. For a table that does not separate its sequences it is one tuple, without a
    name.
    """
    known, samples = subject.frames_metadata.get(SEQUENCES), Counter(key.name for key in subject.samples)
    if isinstance(known, dict) and known.keys() == samples.keys():
        named = {name: of for name, of in known.items() if not isinstance(of, dict) or of.get("counts") is not None}
        if named and all(map(_is_counted, named.values())):
            return [(name, of["counts"], samples[name]) for name, of in named.items()]
    return [("", counts, len(subject.samples))]


def _is_counted(of: Any) -> bool:
    counts = of.get("counts") if isinstance(of, dict) else None
    return isinstance(counts, dict) and not any(map(_count_fault, counts.values()))


def _list_dropped(entry: Any) -> list[Any]:
    """Messages dropped, by reason; boxes and masks are not messages."""
    return [number for reason, number in entry["dropped"].items() if reason not in PART_REASONS]


def _count_fault(entry: Any) -> str:
    if not isinstance(entry, dict) or not isinstance(entry.get("dropped"), dict):
        return f"{entry!r} is not an object with seen, written and dropped"
    seen, written, dropped = entry.get("seen"), entry.get("written"), _list_dropped(entry)
    if not all(type(number) is int and number >= 0 for number in (seen, written, *dropped)):
        return f"{entry!r} has numbers that are not counts"
    if written + sum(dropped) > seen:
        return f"{written} written and {sum(dropped)} dropped of {seen} seen"
    return ""
