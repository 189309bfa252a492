# SPDX-License-Identifier: Apache-2.0
"""Checks of the drive itself by the thresholds of the verdict: a gap breaks no rule of the format, but is reported."""

from __future__ import annotations

import json
from typing import Any

from edgefirst_ros.dataset.sequences import faults
from edgefirst_ros.dataset.summary import summarize
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.dataset.verdict import Check, Timeline


def drive_of(subject: Subject) -> list[Check]:
    """Return the checks of the drive from its tables; none if they are broken, which rules report.

    The calibration has a rule of its own, CAL001.
    """
    if subject.frames is None:
        return []
    metadata: dict[str, Any] = {}
    for key, text in subject.frames.metadata.items():
        try:
            metadata[key] = json.loads(text)
        except (ValueError, RecursionError):
            return []
    if next(faults(metadata), None) is not None:
        return []
    timeline = Timeline.of_file(subject.frames)
    return summarize(timeline, metadata, {}).checks if len(timeline) else []
