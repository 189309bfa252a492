# SPDX-License-Identifier: Apache-2.0
"""Validation: a dataset against the rules of its format, every rule with a code."""

from __future__ import annotations

import os

from edgefirst_ros.dataset.names import (
    find,
)
from edgefirst_ros.dataset.validate import (
    calibration,
    cross,
    frames,
    headers,
    images,
    names,
    sensors,
    structure,
    tables,
    values,
)
from edgefirst_ros.dataset.validate.drive import drive_of
from edgefirst_ros.dataset.validate.report import Finding, Report, Rule
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

__all__ = ["RULES", "Finding", "Report", "Rule", "validate"]

_MEMBER_RULES: tuple[Rule, ...] = (*structure.MEMBER_RULES, *images.MEMBER_RULES, *sensors.MEMBER_RULES)
_DATASET_RULES: tuple[Rule, ...] = (
    *structure.RULES,
    *names.RULES,
    *headers.RULES,
    *tables.RULES,
    *values.RULES,
    *frames.RULES,
    *cross.RULES,
    *calibration.RULES,
)
RULES: tuple[Rule, ...] = (
    *structure.RULES,
    *structure.MEMBER_RULES,
    *names.RULES,
    *headers.RULES,
    *images.MEMBER_RULES,
    *sensors.MEMBER_RULES,
    *tables.RULES,
    *values.RULES,
    *frames.RULES,
    *cross.RULES,
    *calibration.RULES,
)
"""All rules in the order of their codes."""


def validate(path: str | os.PathLike[str], *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Report:
    """Check the dataset at `path` (OUT/NAME.zip, OUT/NAME, OUT/NAME.arrow alike) by all rules.

    Never raises for what is in the files: a dataset that cannot be opened gives a report with one finding, STR001.
    Every member is read once, one at a time; tables batch by batch.
    """
    report = Report(os.fspath(path), strict)
    try:
        subject = Subject(find(path), limits)
    except DatasetError as error:
        text = str(error).removeprefix(f"{report.dataset}: ")
        report.add(structure.opens, os.path.basename(os.path.abspath(report.dataset)), text)
        return report
    for known in _DATASET_RULES:
        for place, message in known.check(subject):
            report.add(known, place, message)
    for view in subject.views():
        subject.view = view
        for known in _MEMBER_RULES:
            for place, message in known.check(subject):
                report.add(known, place, message)
    report.sort(RULES)
    report.drive = drive_of(subject)
    report.checked = {
        "samples": len(subject.samples),
        "members": len(subject.members),
        "annotations": subject.annotations.rows if subject.annotations else 0,
        "frames": subject.frames.rows if subject.frames else 0,
    }
    return report
