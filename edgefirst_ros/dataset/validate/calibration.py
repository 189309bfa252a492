# SPDX-License-Identifier: Apache-2.0
"""CAL: the calibration of each sequence."""

from __future__ import annotations

import json
from collections.abc import Iterator

from edgefirst_ros.dataset.sequences import of_sequence
from edgefirst_ros.dataset.validate.report import rule
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.calibration import IDENTITY, MISSING

WHY = {
    IDENTITY: "is a placeholder: a chain of transforms from a sensor to the camera's optical frame turns nothing",
    MISSING: "is missing: no usable camera_info, or no transforms that join a sensor to the camera",
}


@rule("CAL001", "warning", "every sequence has a calibration by which its sensors can be projected into the picture")
def calibrated(subject: Subject) -> Iterator[tuple[str, str]]:
    """One warning a sequence, also where the metadata do not say it in words."""
    if subject.frames is None:
        return
    metadata = {}
    for key, text in subject.frames.metadata.items():
        try:
            metadata[key] = json.loads(text)
        except (ValueError, RecursionError):
            continue  # FRM002 tells of it
    kinds: dict[str, set[str]] = {}
    for key, of_sample in subject.samples.items():
        kinds.setdefault(key.name, set()).update(of_sample)
    for name, its in kinds.items():
        try:
            said = str(of_sequence(metadata, name, kinds, its)["calibration"])
        except DatasetError as error:
            yield name, str(error)
            continue
        if said in WHY:
            yield name, f"the calibration {WHY[said]}"


RULES = (calibrated,)
