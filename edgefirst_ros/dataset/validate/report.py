# SPDX-License-Identifier: Apache-2.0
"""Rules, findings, and the report of a validation."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgefirst_ros.dataset.verdict import Check, Level, worst
from edgefirst_ros.errors import counted, printable

if TYPE_CHECKING:
    from edgefirst_ros.dataset.validate.subject import Subject, View

Severity = Literal["error", "warning"]
KEPT = 100
"""Findings of one rule that are kept; all are counted."""
LONGEST = 1000
"""Characters of a finding that are kept: names and values can be of any length."""


Found = Iterable["tuple[str, str] | int"]
"""(place, message) of each place that breaks a rule; a number stands for that many more."""


@dataclass(frozen=True)
class Repair:
    """What `--fix` does for a rule, a column at a time."""

    said: str
    """What was done, with {} for the column."""
    mend: Mapping[str, Callable[[Any], tuple[Any, int]]]
    """{column: function}: an Arrow array with broken values made good or null, and how many; others stay bit by bit."""
    fits: Callable[[Any], bool] = lambda _: True
    """Whether it is for a column of this Arrow type."""


@dataclass(frozen=True)
class Rule:
    """One rule of the format: what breaks it, and how that is repaired where no guess is needed."""

    id: str
    severity: Severity
    description: str
    bad: Callable[..., Found] | None
    """Of a dataset; None: the validation itself reports it."""
    bad_member: Callable[[View], Iterable[str]] | None = None
    """Messages on one member."""
    fix: Repair | None = None


def rule(
    rule_id: str, severity: Severity, description: str, fix: Repair | None = None
) -> Callable[[Callable[[Subject], Found]], Rule]:
    """Make a rule of a function of the dataset."""
    return lambda bad: Rule(rule_id, severity, description, bad, fix=fix)


def member_rule(
    rule_id: str, severity: Severity, description: str
) -> Callable[[Callable[[View], Iterable[str]]], Rule]:
    """Make a rule of a function of one member."""
    return lambda bad: Rule(rule_id, severity, description, None, bad)


@dataclass(frozen=True)
class Finding:
    """One place that violates a rule."""

    rule: str
    severity: Severity
    place: str
    message: str


@dataclass
class Report:
    """All findings on one dataset, in the order of the rules.

    At most KEPT findings of a rule are kept, `counts` has the number of all; `checked` says how much was looked at.
    """

    dataset: str
    strict: bool = False
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    warnings: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    drive: list[Check] = field(default_factory=list)
    """Checks of the drive from the tables, green ones too; they are not findings."""

    @property
    def ok(self) -> bool:
        """True without errors; when strict, without warnings either."""
        return not self.errors and not (self.strict and self.warnings)

    def add(self, broken: Rule, place: str, message: str) -> None:
        """Count a finding; the text of one that is longer than LONGEST is cut."""
        place, message = (text if len(text) <= LONGEST else f"{text[:LONGEST]}..." for text in (place, message))
        self.count(broken, 1)
        if self.counts[broken.id] <= KEPT:
            self.findings.append(Finding(broken.id, broken.severity, place, message))

    def count(self, broken: Rule, number: int) -> None:
        """Count findings whose text is not kept."""
        self.counts[broken.id] += number
        if broken.severity == "error":
            self.errors += number
        else:
            self.warnings += number

    def sort(self, rules: Iterable[Rule]) -> None:
        """Sort the findings by the order of the rules."""
        rank = {known.id: number for number, known in enumerate(rules)}
        self.findings.sort(key=lambda finding: rank[finding.rule])

    def to_json(self) -> str:
        """Return the report as a JSON object."""
        return json.dumps(
            {
                "dataset": self.dataset,
                "ok": self.ok,
                "strict": self.strict,
                "errors": self.errors,
                "warnings": self.warnings,
                "checked": self.checked,
                "counts": dict(self.counts),
                "findings": [vars(finding) for finding in self.findings],
                "drive": {
                    "level": worst(self.drive).word,
                    "checks": [
                        {
                            "check": one.key,
                            "level": one.level.word,
                            "place": one.place,
                            "sequence": one.sequence,
                            "found": one.found,
                        }
                        for one in self.drive
                    ],
                },
            },
            indent=2,
        )

    def to_text(self, most: int = 5) -> str:
        """Return one line per finding, at most `most` of a rule, drive checks that are not green, and the outcome."""
        lines, shown = [], Counter[str]()
        for number, finding in enumerate(self.findings):
            shown[finding.rule] += 1
            if shown[finding.rule] <= most:
                lines.append(_line(f"{finding.rule} {finding.severity}: {finding.place}: {finding.message}"))
            last = number + 1 == len(self.findings) or self.findings[number + 1].rule != finding.rule
            if last and self.counts[finding.rule] > most:
                lines.append(f"{finding.rule} +{self.counts[finding.rule] - most} more")
        for one in self.drive:
            if one.level is not Level.GREEN:
                of = f" of {one.where}" if one.where else ""
                lines.append(_line(f"drive {one.level.word}: {one.key}{of}: {one.found}"))
        checked = ", ".join(counted(count, what.removesuffix("s")) for what, count in self.checked.items())
        verdict = "ok" if self.ok else "not ok"
        lines.append(
            _line(f"{self.dataset}: {verdict}, {counted(self.errors, 'error')}, {counted(self.warnings, 'warning')}")
            + (f" ({checked})" if checked else "")
        )
        return "\n".join(lines)


def _line(text: str) -> str:
    """Return text as one line without characters that would control a terminal."""
    return printable(text).replace("\n", "\\n")
