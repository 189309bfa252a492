# SPDX-License-Identifier: Apache-2.0
"""Validation: a dataset against the rules of its format, every rule with a code."""

from __future__ import annotations

import os
from typing import get_args

from edgefirst_ros.dataset.names import locate
from edgefirst_ros.dataset.validate import rules_cross, rules_members, rules_tables
from edgefirst_ros.dataset.validate.report import Finding, Report, Rule, Subject
from edgefirst_ros.errors import DatasetError, require_path
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.streams import Form

__all__ = ["RULES", "Finding", "Report", "Rule", "validate"]

_GROUPS = ("STR", "NAM", "HDR", "IMG", "CUB", "PCD", "TAB", "FRM", "REF", "CAL")
RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            one
            for of in (rules_members, rules_tables, rules_cross)
            for one in vars(of).values()
            if isinstance(one, Rule)
        ),
        key=lambda rule: (_GROUPS.index(rule.id[:3]), rule.id),
    )
)
"""All rules in the order of their codes."""


def validate(path: str | os.PathLike[str], *, strict: bool = False, limits: Limits = DEFAULT_LIMITS) -> Report:
    """Check a dataset by all rules of the format.

    Every member is read once. A dataset that cannot be opened has one finding, STR001.

    Args:
        path: OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.
        strict: Count warnings as errors.
        limits: Largest table and ZIP that is read.

    Returns:
        The findings, the number of checked samples, members and rows, and `ok`.

    Raises:
        UsageError: `path` is empty, or another object.
        OSError: The disk fails while the dataset is read.
    """
    report = Report(require_path(path), strict)
    try:
        subject = Subject(locate(path), limits)
    except DatasetError as error:
        text = str(error).removeprefix(f"{report.dataset}: ")
        report.add(rules_members.opens, os.path.basename(os.path.abspath(report.dataset)), text)
        return report
    of_form = {
        form: [
            (known, bad) for known in RULES if (bad := known.bad_member) and (not known.forms or form in known.forms)
        ]
        for form in (None, *get_args(Form))
    }
    for view in subject.views():
        for known, bad in of_form[view.sensor.form if view.sensor and view.data else None]:
            for message in bad(view):
                report.add(known, view.name, message)
    for known in RULES:  # some need what was read of the members
        for found in known.bad(subject) if known.bad else ():
            report.count(known, found) if isinstance(found, int) else report.add(known, *found)
    report.sort(RULES)
    report.drive = rules_cross.judge_drive(subject)
    report.checked = {
        "samples": len(subject.samples),
        "members": len(subject.members),
        "annotations": subject.annotations.rows if subject.annotations else 0,
        "frames": subject.frames.rows if subject.frames else 0,
    }
    return report
