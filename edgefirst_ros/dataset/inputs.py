# SPDX-License-Identifier: Apache-2.0
"""Inputs of a sample (camera, radar.cube, …) and the member names that hold them, of any writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from edgefirst_ros.dataset.names import MAX_FRAME, parse_member
from edgefirst_ros.errors import UsageError, nearest_first
from edgefirst_ros.streams import SENSORS

INPUTS: Mapping[str, tuple[str, ...]] = {sensor.input: sensor.kinds for sensor in SENSORS}
"""Sample input -> kinds of members that hold it, the preferred one first."""
ALIASES = {sensor.alias: sensor.input for sensor in SENSORS if sensor.alias is not None}

INPUT_OF = {kind: name for name, kinds in INPUTS.items() for kind in kinds}
_FLAT = re.compile(r"(?P<sequence>.+)_(?P<frame>[0-9]{1,10})", re.DOTALL)
"""A name in the flat folders of the vendor's client."""
_STANDALONE = {".jpeg": "camera.jpeg", ".jpg": "camera.jpeg", ".png": "camera.png"}


class Key(NamedTuple):
    """Key of a sample; `frame` is None for a picture that does not belong to a sequence."""

    name: str
    frame: int | None


def member_of(name: str) -> tuple[Key, str] | None:
    """Return (key, kind) of a member name, or None; single pictures without a frame number are samples too."""
    member = parse_member(name)
    if member is not None:
        return Key(member.sequence, member.frame), member.kind
    stem = name.rpartition("/")[2]
    for ending, kind in (*((f".{kind}", kind) for kind in INPUT_OF), *_STANDALONE.items()):
        if stem.endswith(ending) and len(stem) > len(ending):
            return Key(stem.removesuffix(ending), None), kind
    return None


def list_members(names: Sequence[str], keys: Callable[[], Collection[Key]]) -> list[tuple[Key, str] | None]:
    """Return (key, kind) of each member name, or None, also in folders without folders of sequences.

    There SEQUENCE_FRAME.jpeg is a frame of a sequence where the annotations have it; SEQUENCE_FRAME.camera.jpeg is one
    unless the annotations have the whole as a name. `keys` returns those of the annotations, and is called only then.
    """
    found = [member_of(name) for name in names]
    known: Collection[Key] | None = None
    for place, member in enumerate(found):
        match = _FLAT.fullmatch(member[0].name) if member and member[0].frame is None else None
        if member is None or match is None or int(match["frame"]) > MAX_FRAME:
            continue
        known = keys() if known is None else known
        framed = Key(match["sequence"], int(match["frame"]))
        if framed in known or (member[0] not in known and names[place].endswith(f".{member[1]}")):
            found[place] = framed, member[1]
    return found


def input_name(name: str) -> str:
    """Return the full name of an input, which may be an alias; raises UsageError for an unknown one."""
    found = ALIASES.get(name, name)
    if found not in INPUTS:
        raise UsageError(f"{name!r} is not an input of a sample; known: {nearest_first(name, (*INPUTS, *ALIASES))}")
    return found
