# SPDX-License-Identifier: Apache-2.0
"""The metadata of a frames table, which any tool may have written, checked by one model for all who read them.

Source: dataset.md 6, 9 ("Frames") and 10 ("By sequence").
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefirst_ros.dataset.schema import FRAMES_METADATA
from edgefirst_ros.errors import DatasetError

KNOWN = (*FRAMES_METADATA, "sequences", "merged")
"""Keys that are checked; others may have any value."""
DEEPEST = 64
MOST_SHOWN = 80
"""Characters of an invalid value that a message shows."""

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Numbers = list[float | None]
"""Numbers, null for one that is not finite."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Source(_Form):
    """One recording."""

    file: str | None = None
    size: Count | None = None
    sha256: str | None = None
    damage: list[dict[str, Any]] | None = None


class TimeBase(_Form):
    """Which stamps are used as time, and for which topics others."""

    base: str | None = None
    topics: dict[str, Any] | None = None


class TimeBases(TimeBase):
    """Time base of the first sequence, and of all by sequence."""

    sequences: dict[str, TimeBase | None] | None = None


class CameraInfo(_Form):
    """Camera intrinsics as in sensor_msgs/CameraInfo, pixels."""

    frame_id: str | None = None
    width: Count | None = None
    height: Count | None = None
    distortion_model: str | None = None
    d: Numbers | None = None
    k: Annotated[Numbers, Field(min_length=9, max_length=9)] | None = None
    r: Annotated[Numbers, Field(min_length=9, max_length=9)] | None = None
    p: Annotated[Numbers, Field(min_length=12, max_length=12)] | None = None


class Transform(_Form):
    """Rigid transform: translation in m, rotation as quaternion x, y, z, w."""

    parent: str
    child: str
    translation: Annotated[Numbers, Field(min_length=3, max_length=3)]
    rotation: Annotated[Numbers, Field(min_length=4, max_length=4)]


Transforms = Annotated[list[Transform], Field(max_length=4096)]


class TopicCounts(_Form):
    """Messages of a topic: seen, written, dropped by reason."""

    seen: Count
    written: Count
    dropped: dict[str, Count]


class OfSequence(_Form):
    """Metadata of one sequence."""

    sources: list[Count] | None = None
    camera_info: CameraInfo | None = None
    static_transforms: Transforms | None = None
    calibration: str | None = None
    time_base: TimeBase | None = None
    counts: dict[str, TopicCounts] | None = None


class FramesMetadata(_Form):
    """All metadata of a frames table; None for absent keys."""

    sources: list[Source] | None = None
    configuration: dict[str, Any] | list[Any] | None = None
    software: dict[str, Any] | None = None
    time_base: TimeBases | None = None
    camera_info: CameraInfo | None = None
    static_transforms: Transforms | None = None
    counts: dict[str, TopicCounts] | None = None
    sequences: dict[str, OfSequence] | None = None
    merged: list[dict[str, Any]] | None = None


def frames_metadata(path: Path, stored: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of the frames table at `path` as plain values; text that is no JSON stays text.

    Raises DatasetError naming the first of `KNOWN` that has not the form of the format.
    """
    found = {key: parsed(text) for key, text in stored.items()}
    for key, what in faults(found):
        raise DatasetError(f"{path}: metadata {key}: {what}")
    return found


def faults(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong) for metadata that have not the form of the format."""
    for key in KNOWN:
        if key not in found:
            continue
        if _is_deep(found[key]):
            yield key, f"nested more than {DEEPEST} times"
            continue
        try:
            FramesMetadata.model_validate({key: found[key]})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(ascii(str(step))[1:-1][:MOST_SHOWN] for step in first["loc"][1:])
            yield key, f"{place + ': ' if place else ''}found {_shown(first['input'])}, {first['msg'].lower()}"


def parsed(text: str) -> Any:
    """The JSON value of a text of metadata, or the text itself when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for one in level
            for item in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True
