# SPDX-License-Identifier: Apache-2.0
"""STR: the files of a dataset, and whether every member can be read."""

from __future__ import annotations

from collections.abc import Iterator

from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject


@rule("STR001", "error", "the dataset is there and its members can be listed")
def opens(_: Subject) -> Iterator[tuple[str, str]]:
    """Reported by the validation itself: without it there is no subject."""
    yield from ()


@rule("STR002", "error", "there is at least one sample")
def has_samples(subject: Subject) -> Iterator[tuple[str, str]]:
    """A dataset that holds nothing is none."""
    if not subject.samples:
        yield subject.paths.members.name, f"{len(subject.members)} files, none of them a member of a sample"


@rule("STR003", "error", "the tables are Arrow IPC (annotations also Parquet or JSON) and every row can be read")
def tables_open(subject: Subject) -> Iterator[tuple[str, str]]:
    """Found on opening."""
    yield from subject.table_faults


@rule("STR004", "warning", "there is an annotation table")
def has_annotations(subject: Subject) -> Iterator[tuple[str, str]]:
    """Readers can do without."""
    if subject.annotations is None and not subject.table_faults:
        yield subject.paths.arrow.name, "is not there"


@rule("STR005", "warning", "there is a frames table")
def has_frames(subject: Subject) -> Iterator[tuple[str, str]]:
    """Other tools write none; stamps and navigation are unknown then."""
    if not subject.paths.frames.exists():
        yield subject.paths.frames.name, "is not there: no stamps, no alignment"


@rule("STR006", "warning", "nothing unfinished lies beside")
def finished(subject: Subject) -> Iterator[tuple[str, str]]:
    """What a capture leaves behind when it is cut."""
    paths = subject.paths
    for path in (paths.members_partial, *paths.journals):
        if path.exists():
            yield path.name, "left by writing that was not finished"


RULES = (opens, has_samples, tables_open, has_annotations, has_frames, finished)


@rule("STR007", "error", "every member can be read whole and its CRC is right")
def readable(subject: Subject) -> Iterator[tuple[str, str]]:
    """The checksum is that of the central directory."""
    view = subject.view
    if view and view.fault:
        yield view.name, view.fault


@rule("STR008", "error", "no member is empty")
def not_empty(subject: Subject) -> Iterator[tuple[str, str]]:
    """Even a cloud without points has a header."""
    view = subject.view
    if view and view.kind and not view.data and not view.fault:
        yield view.name, "has no bytes"


MEMBER_RULES = (readable, not_empty)
