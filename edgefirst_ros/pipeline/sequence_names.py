# SPDX-License-Identifier: Apache-2.0
"""Names of the sequences and of the dataset that recordings become."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.names import camera_names, safe_name, with_camera
from edgefirst_ros.errors import UsageError
from edgefirst_ros.sources.inputs import RecordingInput


def cameras_of(settings: Settings) -> Mapping[str | None, str]:
    """Return {reference topic: what its camera adds to sequence names}; a single camera adds nothing."""
    topics = [topic for topic in settings.references if topic is not None]
    return {settings.references[0]: ""} if len(topics) < 2 else camera_names(topics)  # type: ignore[return-value]


def sequence_name(drive: str, camera: str) -> str:
    """Return the name of the sequence of a camera of a drive."""
    return with_camera(drive, camera) if camera else drive


def drive_names(inputs: Sequence[RecordingInput], cameras: Mapping[str | None, str]) -> list[str]:
    """Return the name of each recording; raises UsageError if two of them would give the same sequence."""
    if not inputs:
        raise UsageError("no recording is given")
    drives = [safe_name(recording.name) for recording in inputs]
    known: dict[str, Path] = {}
    for recording, drive in zip(inputs, drives, strict=True):
        for sequence in (sequence_name(drive, camera) for camera in cameras.values()):
            folded = sequence.casefold()  # not every disk tells large letters from small ones
            if folded in known:
                other = f"{known[folded]} and {recording.path} would both become the sequence {sequence}"
                raise UsageError(f"{other}: name one of them with --sequence NAME={recording.path}")
            known[folded] = recording.path
    return drives


def default_name(drives: Sequence[str], out: Path) -> str:
    """Return the name of a dataset that was given none: that of the only drive, else that of the folder."""
    return drives[0] if len(drives) == 1 else safe_name(Path(os.path.abspath(out)).name)
