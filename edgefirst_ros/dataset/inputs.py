# SPDX-License-Identifier: Apache-2.0
"""Inputs of a sample (camera, radar.cube, …) and the member names that hold them, of any writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from edgefirst_ros.dataset.names import parse_member
from edgefirst_ros.errors import UsageError, nearest_first
from edgefirst_ros.streams import SENSORS

INPUTS: Mapping[str, tuple[str, ...]] = {sensor.input: sensor.kinds for sensor in SENSORS}
"""Sample input -> kinds of members that hold it, the preferred one first."""
ALIASES = {sensor.alias: sensor.input for sensor in SENSORS if sensor.alias is not None}

INPUT_OF = {kind: name for name, kinds in INPUTS.items() for kind in kinds}
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


def input_name(name: str) -> str:
    """Return the full name of an input, which may be an alias; raises UsageError for an unknown one."""
    found = ALIASES.get(name, name)
    if found not in INPUTS:
        raise UsageError(f"{name!r} is not an input of a sample; known: {nearest_first(name, (*INPUTS, *ALIASES))}")
    return found
