# SPDX-License-Identifier: Apache-2.0
"""NAM: names of members. Source: EdgeFirst Dataset Format, "Dataset Hierarchy"."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from edgefirst_ros.dataset.inputs import INPUT_OF
from edgefirst_ros.dataset.names import parse_member
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject, place_of


@rule("NAM001", "warning", "names are SEQUENCE/SEQUENCE_FRAME.KIND")
def form(subject: Subject) -> Iterator[tuple[str, str]]:
    """The vendor's client also makes flat folders of SEQUENCE_FRAME.KIND; readers ignore other files."""
    for name, found in subject.members:
        flat = "/" not in name and found is not None and found[0].frame is not None
        if not flat and parse_member(name) is None:
            yield name, "is not SEQUENCE/SEQUENCE_FRAME.KIND"


@rule("NAM002", "error", "names stay inside the dataset when unpacked")
def safe(subject: Subject) -> Iterator[tuple[str, str]]:
    """No absolute paths, no way up, no drive, no control characters."""
    for name in subject.container.names:
        parts = name.replace("\\", "/").split("/")
        steered = any(unicodedata.category(character) in ("Cc", "Cs") for character in name)
        if name.startswith("/") or ".." in parts or "\\" in name or name[1:2] == ":" or steered:
            yield name, "is not a safe relative path"


@rule("NAM003", "error", "a sample has every input once")
def unique(subject: Subject) -> Iterator[tuple[str, str]]:
    """The same name twice, one frame number in two spellings, or a JPEG and a PNG of the same camera."""
    seen: dict[tuple[object, str], str] = {}
    for name, found in subject.members:
        if found is None:
            continue
        key, kind = found
        first = seen.get((key, INPUT_OF[kind]))
        if first is None:
            seen[key, INPUT_OF[kind]] = name
        else:
            yield name, f"repeats {first}: {INPUT_OF[kind]} of {place_of(key)}"


@rule("NAM004", "warning", "frame numbers are written with three digits at least, and no zeros before more")
def padding(subject: Subject) -> Iterator[tuple[str, str]]:
    """The one form that all versions of the vendor's client find."""
    for name in subject.container.names:
        member = parse_member(name)
        if member and not name.endswith(f"_{member.frame:03d}.{member.kind}"):
            yield name, f"frame {member.frame} is not written {member.frame:03d}"


@rule("NAM005", "warning", "sequences differ by more than upper and lower case")
def cases(subject: Subject) -> Iterator[tuple[str, str]]:
    """Some file systems cannot hold both."""
    seen: dict[str, str] = {}
    for sequence in dict.fromkeys(key.name for key in subject.samples):
        first = seen.setdefault(unicodedata.normalize("NFC", sequence).casefold(), sequence)
        if first != sequence:
            yield sequence, f"is {first} but for case"


RULES = (form, safe, unique, padding, cases)
