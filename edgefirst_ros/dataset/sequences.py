# SPDX-License-Identifier: Apache-2.0
"""Metadata of a frames table: checked by one model for all readers, and by sequence: calibration, clock, counts.

Datasets of earlier versions say it of only the whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from edgefirst_ros.dataset.schema import FRAMES_METADATA
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.calibration import WORDS, frames_of, judge
from edgefirst_ros.streams import CAMERA, of_kind

SEQUENCES = "sequences"
"""Key of the metadata."""
REFERENCE = "reference"
"""Key of the reference topic among the topics of a sequence; companions have the names of their columns."""
MODEL, WITHOUT_STAMPS = "model", ("model_mask", "boxes3d")
"""Keys of the model's topics beside them; columns do not show the messages of its masks and 3D boxes."""
LEFT_OUT = "left_out"
"""Key of the recordings that could not be converted: [{"file", "size", "why"}]."""
CALIBRATION = ("camera_info", "static_transforms")
POSE = ("pose_frame", "pose_source")
"""Keys that only sequences with poses have."""
CAMERA_INFOS = "camera_infos"
"""Key of the CameraInfo of other cameras of a rig, by their keys; only if it has any."""
UNUSED, LACKING = "unused_topics", "missing"
"""Keys of usable topics without a role, and of keys of the rig without a topic; only if it has any."""
SOME = (LEFT_OUT, *POSE, CAMERA_INFOS, UNUSED, LACKING, "namespace")
"""Keys that only some datasets have."""
KNOWN = (*FRAMES_METADATA, *POSE, CAMERA_INFOS, UNUSED, LACKING, "sequences", "merged", "left_out")
"""Keys that are checked; others may have any value."""
DEEPEST = 64
MOST_SHOWN = 80
"""Characters of an invalid value that a message shows."""


class SequenceCalibration(NamedTuple):
    """Calibration of one sequence; that of another sequence is never used for it."""

    camera_info: Any
    """frame_id, width, height, distortion_model, d, k, r, p as in sensor_msgs/CameraInfo, pixels; None: unknown."""
    static_transforms: Any
    """[{"parent", "child", "translation": [x, y, z] m, "rotation": [x, y, z, w]}]."""
    calibration: str
    """`given`, `identity` (a placeholder: transforms without rotation) or `missing`."""
    camera_infos: Mapping[str, Any] = MappingProxyType({})
    """The same of each other camera of the rig, by its key: `camera.left`."""
    sensor_frames: Mapping[str, str] = MappingProxyType({})
    """{sensor: its frame}, where that is not `lidar` or `radar`."""

    def info_of(self, camera: str) -> Any:
        """Return the CameraInfo of a camera.

        Args:
            camera: Its key, such as `camera.left`.

        Returns:
            As `camera_info`; None if unknown.
        """
        return self.camera_info if camera == CAMERA.key else self.camera_infos.get(camera)


def frames_metadata(path: Path, stored: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of the frames table at `path` as plain values; text that is not a JSON stays text.

    Raises DatasetError naming the first of `KNOWN` that has not the form of the format.
    """
    found = {key: parsed(text) for key, text in stored.items()}
    for key, what in faults(found):
        raise DatasetError(f"{path}: metadata {key}: {what}")
    return found


def faults(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, the fault) for metadata that have not the form of the format."""
    if not found.keys() & {*KNOWN}:
        return
    from pydantic import ValidationError

    from edgefirst_ros.dataset.frames_forms import FramesMetadata

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
    """Return the JSON value of a text of metadata, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def combined(sequences: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return what all sequences have in common of calibration and source of poses, and notes of differences.

    Values that differ become None.
    """
    common: dict[str, Any] = {}
    notes = []
    some = [key for key in (*POSE, CAMERA_INFOS) if any(of.get(key) is not None for of in sequences.values())]
    for key in (*CALIBRATION, *some):
        values = [known.get(key) for known in sequences.values()]
        agreed = all(repr(value) == repr(values[0]) for value in values)
        common[key] = values[0] if values and agreed else None
        if not agreed:
            notes.append(f"the sequences differ in {key}: each has its own in the metadata, under {SEQUENCES}")
    return common, notes


def unite_topics(sequences: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the unused topics and the missing keys of all sequences, each once."""
    unused = {of["topic"]: of for known in sequences.values() for of in known.get(UNUSED) or ()}
    missing = sorted({key for known in sequences.values() for key in known.get(LACKING) or ()})
    return {**({UNUSED: list(unused.values())} if unused else {}), **({LACKING: missing} if missing else {})}


def of_sequence(
    metadata: Mapping[str, Any], name: str, names: Collection[str], kinds: Collection[str]
) -> dict[str, Any]:
    """Return the metadata of one sequence; from earlier versions only the values certain to belong to it.

    `names`: all sequences that have samples; `kinds`: of the members this one has. Raises DatasetError where it is
    not as the format says.
    """
    stored = metadata.get(SEQUENCES)
    if stored is None:
        return _derived(metadata, name, names, kinds)
    known = stored.get(name, {}) if isinstance(stored, dict) else None
    if not isinstance(known, dict):
        raise DatasetError(f"the metadata {SEQUENCES} cannot be read: expected facts of {name!r}, found {known!r:.80}")
    return {**known, "calibration": _word(known, kinds)}


def calibration_of(known: Mapping[str, Any]) -> SequenceCalibration:
    """Return the calibration among the facts of a sequence."""
    transforms = known.get("static_transforms")
    return SequenceCalibration(
        known.get("camera_info"),
        [] if transforms is None else transforms,
        known["calibration"],
        known.get(CAMERA_INFOS) or {},
        known.get("sensor_frames") or {},
    )


def _word(known: Mapping[str, Any], kinds: Collection[str]) -> str:
    said = known.get("calibration")
    if isinstance(said, str) and said in WORDS:
        return said
    frames = frames_of({of_kind(kind).key for kind in kinds}, known.get("sensor_frames") or {})
    return judge(known.get("camera_info"), known.get("static_transforms"), frames)


def _derived(metadata: Mapping[str, Any], name: str, names: Collection[str], kinds: Collection[str]) -> dict[str, Any]:
    """Return metadata from the keys of the whole dataset, where it has no other sequence."""
    base, sources = metadata.get("time_base"), metadata.get("sources")
    bases = base.get(SEQUENCES) if isinstance(base, dict) else None
    several = bool({*names, *(bases if isinstance(bases, dict) else ())} - {name})
    whole = {} if several else metadata
    known = {key: whole.get(key) for key in CALIBRATION}
    return {
        "sources": list(range(len(sources))) if isinstance(sources, list) and not several else [],
        **known,
        "calibration": _word(known, kinds),
        "time_base": bases.get(name) if isinstance(bases, dict) else base,
        "topics": {},
        "counts": whole.get("counts"),
    }


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _is_deep(value: Any, left: int = DEEPEST) -> bool:
    if not isinstance(value, dict | list):
        return False
    return not left or any(_is_deep(one, left - 1) for one in (value.values() if isinstance(value, dict) else value))
