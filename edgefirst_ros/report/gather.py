# SPDX-License-Identifier: Apache-2.0
"""Everything a page shows of one subject: facts, figures and pictures, section by section."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from edgefirst_ros.dataset.verdict import Interval, worst
from edgefirst_ros.report import facts, figures, more_figures
from edgefirst_ros.report.alignment import alignment
from edgefirst_ros.report.delay import delay_checks
from edgefirst_ros.report.figures import Figure
from edgefirst_ros.report.labels import boxes, labels
from edgefirst_ros.report.look import Unreadable, exposure, lidar, radar
from edgefirst_ros.report.sheet import Shown, sheet
from edgefirst_ros.report.subject import Subject


@dataclass
class Gathered:
    """Content of a page."""

    facts: dict[str, Any]
    figures: dict[str, list[Figure]] = field(default_factory=dict)
    """{section: figures}."""
    sheet: list[Shown] = field(default_factory=list)
    gaps: list[tuple[str, Interval]] = field(default_factory=list)
    """The longest gaps with their names."""


def gather(subject: Subject, samples: int) -> Gathered:
    """Look at everything; raises DatasetError where the tables cannot be read."""
    unreadable = Unreadable()
    found = facts.quick(subject)
    bright, fits = exposure(subject, unreadable), alignment(subject, unreadable)
    seen, ranges = radar(subject, unreadable), lidar(subject, unreadable)
    shown = sheet(subject, samples, unreadable)
    checks = subject.summary.checks
    if found["verdict"]["level"] != "red" and not len(subject.timeline):
        checks = checks[1:]
    ways = facts.tracks(subject)
    checks += [*bright.checks, *fits.checks, *delay_checks(subject), *facts.position_checks(subject, ways)]
    found["verdict"] = facts.verdict(checks)
    whole = subject.summary.whole
    found["sensors"], found["groups"] = dict(whole.sensors), dict(whole.groups)
    found["track"] = facts.track(ways)
    for name, one in found["sequences"].items():
        one["verdict"] = worst([check for check in checks if check.sequence in (name, "")]).word
    said = labels(subject)
    found["pictures"] = {**bright.facts, **said, "alignment": fits.facts, "shown": len(shown)}
    found["radar"] = {
        "cubes_looked_at": sum(len(one.seconds) for one in seen.cubes),
        "clouds_looked_at": seen.clouds,
        "targets": len(seen.targets),
        "lidar_clouds_looked_at": sum(number for _, number in ranges.values()),
    }
    found["bytes"] = facts.sizes(subject)
    found["notes"] = [*subject.notes, *(f"{what}: {why}" for what, why in unreadable.notes.items())]
    tolerances = {name: one["tolerance_ms"] for name, one in found["skew"].items()}
    kinds = {kind: round(one["bytes"] / 1e6, 3) for kind, one in found["bytes"]["kinds"].items()}
    drawn = {
        "time": _some([figures.rates(subject), figures.intervals(subject), figures.delays(subject)]),
        "skew": figures.skew_lines(subject, tolerances),
        "track": figures.tracks(ways),
        "pictures": [
            *_some(
                [
                    figures.brightness(bright),
                    more_figures.bars(
                        "labels",
                        "Annotations by label",
                        _said(said["labels"]),
                        {one.name: one.labels for one in subject.summary.sequences},
                        "annotations",
                    ),
                ]
            ),
            *more_figures.box_places(boxes(subject)),
        ],
        "radar": [*more_figures.radar(seen), *_some([more_figures.lidar(ranges)])],
        "bytes": _some(
            [more_figures.bars("kinds", "Bytes by kind", f"Bars of the bytes of {', '.join(kinds)}", {"": kinds}, "MB")]
        ),
    }
    for one in (figure for several in drawn.values() for figure in several):
        figures.mark_sequences(one, subject.timeline)
    return Gathered(found, drawn, shown, figures.gap_rows(subject))


def _some(found: Iterable[Figure | None]) -> list[Figure]:
    return [one for one in found if one is not None]


def _said(counted: dict[str, int]) -> str:
    return f"Bars of the annotations of {len(counted)} labels"
