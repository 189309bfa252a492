# SPDX-License-Identifier: Apache-2.0
"""Content of a page: the facts as plain values, which `--json` prints too, figures and pictures, section by section."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from edgefirst_ros.dataset.names import split_member
from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.dataset.schema import LACKING, UNUSED
from edgefirst_ros.dataset.summary import DatasetSummary, Summary, check_lacking, format_time
from edgefirst_ros.dataset.verdict import (
    THRESHOLDS,
    Check,
    Interval,
    Level,
    Timeline,
    find_tolerance,
    find_worst,
    measure_paces,
)
from edgefirst_ros.errors import pluralize
from edgefirst_ros.report import figures
from edgefirst_ros.report.content import (
    Track,
    Unreadable,
    make_tracks,
    measure_alignment,
    measure_exposure,
    summarize_labels,
    summarize_lidar,
    summarize_radar,
)
from edgefirst_ros.report.figures import Figure
from edgefirst_ros.report.sheet import Shown, draw_sheet
from edgefirst_ros.report.subject import ReportSubject

MOST_NAMED = 4
"""Checks that the sentence of the verdict names, of each level."""


def collect_quick(
    found: DatasetSummary,
    name: str,
    path: str,
    kind: str = "dataset",
    messages: Mapping[str, int] = MappingProxyType({}),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the facts in the tables, without reading members: a line of the table over several.

    `kind`: `dataset` or `recording`; `messages`: {topic: number of messages} of a recording.
    """
    checks, whole, metadata = found.checks, found.whole, found.metadata
    if not len(found.timeline) and whole.samples:
        number = pluralize(whole.samples, "sample")
        checks[0] = Check("samples", find_worst(()), f"{number}; the dataset has no table of frames")
    return {
        "name": name,
        "path": path,
        "kind": kind,
        "verdict": sort_checks(checks),
        "samples": whole.samples,
        "lost": whole.lost,
        "duration_s": round(found.timeline.duration, 3),
        "start": None if whole.start is None else format_time(whole.start),
        "sequences": {
            one.name: one.plain()
            | {
                "topics": list_topics(one.counts, {}),
                "paces": describe_paces(one.timeline, several=False),
                "skew": measure_skew(one, metadata),
            }
            for one in found.sequences
        },
        "topics": list_topics(whole.counts, messages),
        **{key: metadata.get(key) or [] for key in (UNUSED, LACKING)},
        "time": {"paces": describe_paces(found.timeline, several=found.is_several)},
        "skew": measure_skew(whole, metadata),
        "notes": [*notes],
    }


def collect_quick_of(subject: ReportSubject) -> dict[str, Any]:
    """Return the same of an open dataset or recording."""
    kind = "dataset" if subject.recorded is None else "recording"
    messages = {topic: len(one.times) for topic, one in (subject.recorded or {}).items()}
    return collect_quick(subject.summary, subject.name, subject.path, kind, messages, subject.notes)


def sort_checks(checks: list[Check]) -> dict[str, Any]:
    """Return the worst level, and every check; the worst ones first."""
    listed = sorted(checks, key=lambda check: -check.level)
    return {
        "level": find_worst(checks).word,
        "summary": summarize_checks(checks),
        "checks": [
            {
                "check": one.key,
                "level": one.level.word,
                "place": one.place,
                "sequence": one.sequence,
                "where": one.where,
                "found": one.found,
                "good": one.threshold.good,
                "section": one.threshold.section,
            }
            for one in listed
        ],
    }


def summarize_checks(checks: Collection[Check]) -> str:
    """Return the verdict in a sentence: the fault and where."""
    found = []
    for level, advice in ((Level.RED, "check it before you train on it"), (Level.AMBER, "check it")):
        places: dict[str, list[str]] = {}
        for one in checks:
            if one.level is level:
                places.setdefault(one.key, []).append(one.where)
        bad = [
            key if not its[0] else f"{key} of {its[0]}" if len(its) == 1 else f"{key} in {len(its)} places"
            for key, its in places.items()
        ]
        if bad:
            more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
            found.append(f"{level.word.capitalize()}: {', '.join(bad[:MOST_NAMED])}{more}; {advice}.")
    return " ".join(found) or f"All is well: {pluralize(len(checks), 'check')} passed."


def list_topics(counts: Mapping[str, Any] | None, messages: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return messages of each topic, seen, used, dropped by reason; `messages`: those of all topics of a recording."""
    found = [
        {
            "topic": topic,
            "seen": count["seen"],
            "used": count["written"],
            "dropped": {reason: n for reason, n in count["dropped"].items() if n},
        }
        for topic, count in (counts or {}).items()
    ]
    others = messages.keys() - (counts or {}).keys()
    found += [{"topic": topic, "seen": messages[topic], "used": 0, "dropped": {}} for topic in others]
    return sorted(found, key=lambda one: str(one["topic"]))


def measure_skew(found: Summary, metadata: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return |skew| of each sensor in ms, and its tolerance."""
    return {
        name: {f"{key}_ms": round(value, 3) for key, value in its.items()}
        | {
            "tolerance_ms": round(1e3 * find_tolerance(metadata, name), 3),
            "samples": int(found.timeline.companions[name].has.sum()),
        }
        for name, its in found.skew.items()
    }


def track(found: Mapping[str, Track]) -> dict[str, Any]:
    """Return the facts of the positions: in sum, and by sequence."""
    its = {name: one.facts for name, one in found.items()}
    if not its:
        return {"positions": 0}
    total = {
        "positions": sum(one["positions"] for one in its.values()),
        "length_m": round(sum(one["length_m"] for one in its.values()), 1),
    }
    return total | (next(iter(its.values())) if len(its) == 1 else {"sequences": its})


def check_positions(subject: ReportSubject, found: Mapping[str, Track]) -> list[Check]:
    """Judge in which share of its samples each sequence with positions has one."""
    summary, checks = subject.summary, []
    if not found:
        return []
    for one in summary.sequences:
        if one.name in found:
            there = len(found[one.name].seconds) / max(one.samples, 1)
            level = THRESHOLDS["position"].level(1 - there)
            name = one.name if summary.is_several else ""
            checks.append(Check("position", level, f"{there:.1%} of the samples have one", sequence=name))
    without = [one.name for one in summary.sequences if one.name not in found]
    return [*checks, *check_lacking("position", "", without, len(summary.sequences))]


def count_sizes(subject: ReportSubject) -> dict[str, Any]:
    """Bytes by kind of member, repeated members, sources, configuration and versions."""
    container, metadata = subject.dataset.container, subject.dataset.metadata
    members: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name in container.names:
        if found := split_member(name):
            members[found[1]] += 1
            sizes[found[1]] += container.size(name)
    repeats, repeated, sensors = subject.dataset.repeats, 0, subject.dataset.sensors
    for key, inputs in repeats.items():
        own = subject.dataset.members(key) if subject.has(key) else {}
        repeated += sum(container.size(member) for kind, member in own.items() if sensors[kind] in inputs)
    return {
        "kinds": {kind: {"members": members[kind], "bytes": sizes[kind]} for kind in sorted(members)},
        "repeats": {"members": sum(map(len, repeats.values())), "bytes": repeated},
        "sources": metadata.get("sources") or [],
        "configuration": metadata.get("configuration") or {},
        "software": metadata.get("software") or {},
        "schema_version": metadata.get("schema_version"),
    }


def describe_paces(timeline: Timeline, *, several: bool) -> dict[str, dict[str, Any]]:
    """Return number, rate, longest interval and gaps of the samples, and of the messages of each sensor."""
    found = {}
    for name, pace in measure_paces(timeline).items():
        longest = pace.longest
        found[name] = {
            "messages": pace.messages,
            "hz": round(1 / pace.period, 3) if pace.period else None,
            "longest_s": round(longest.length, 4),
            "at_s": round(longest.drive, 3),
            **({"sequence": longest.sequence, "at_s_of_sequence": round(longest.start, 3)} if several else {}),
            "gaps": len(pace.gaps),
            "missing_s": round(math.fsum(gap.length for gap in pace.gaps), 3),
        }
    return found


class Gathered(NamedTuple):
    """Content of a page."""

    facts: dict[str, Any]
    figures: dict[str, list[Figure]]
    """{section: figures}."""
    sheet: list[Shown]
    gaps: list[tuple[str, Interval]]
    """The longest gaps with their names."""
    tracks: Mapping[str, Track]


def gather(subject: ReportSubject, samples: int) -> Gathered:
    """Look at everything; raises DatasetError where the tables cannot be read."""
    unreadable = Unreadable()
    found = collect_quick_of(subject)
    bright, fits = measure_exposure(subject, unreadable), measure_alignment(subject, unreadable)
    seen, ranges = summarize_radar(subject, unreadable), summarize_lidar(subject, unreadable)
    shown = draw_sheet(subject, samples, unreadable)
    checks = subject.summary.checks
    if found["verdict"]["level"] != "red" and not len(subject.timeline):
        checks = checks[1:]
    ways = make_tracks(subject)
    checks += [*(one for look in bright.values() for one in look.checks), *fits.checks]
    checks += [*delay_checks(subject), *check_positions(subject, ways)]
    found["verdict"] = sort_checks(checks)
    whole, metadata = subject.summary.whole, subject.dataset.metadata
    found["sensors"], found["groups"] = dict(whole.sensors), dict(whole.groups)
    found["track"] = track(ways)
    found["time_check"] = None if subject.time_check is None else subject.time_check.plain()
    for name, one in found["sequences"].items():
        one["verdict"] = find_worst([check for check in checks if check.sequence in (name, "")]).word
    said = summarize_labels(subject)
    first, *others = bright.items()
    found["pictures"] = {**first[1].facts, **said, "alignment": fits.facts, "shown": len(shown)}
    if others:
        found["pictures"]["cameras"] = {camera: look.facts for camera, look in bright.items()}
    found["radar"] = {
        "cubes_looked_at": sum(len(one.seconds) for one in seen.cubes),
        "clouds_looked_at": sum(clouds for _, clouds in seen.targets.values()),
        "targets": sum(len(targets) for targets, _ in seen.targets.values()),
        "lidar_clouds_looked_at": sum(number for _, number in ranges.values()),
    }
    found["bytes"] = count_sizes(subject)
    judged = {one.found for one in checks}
    notes = [*subject.notes, *(f"{what}: {why}" for what, why in unreadable.items())]
    found["notes"] = [note for note in notes if note not in judged]
    tolerances = {name: one["tolerance_ms"] for name, one in found["skew"].items()}
    kinds = {kind: round(one["bytes"] / 1e6, 3) for kind, one in found["bytes"]["kinds"].items()}
    alt = f"Bars of the annotations of {len(said['labels'])} labels"
    by_sequence = {one.name: one.labels for one in subject.summary.sequences}
    drawn = {
        "time": [*figures.draw_rates(subject), *figures.draw_intervals(subject), *figures.draw_delays(subject)],
        "skew": [*figures.draw_skews(subject, tolerances)],
        "track": figures.draw_tracks(ways),
        "pictures": [
            *figures.draw_brightness(bright),
            *figures.draw_bars("labels", "Annotations by label", alt, by_sequence, "annotations"),
            *figures.draw_box_places(convert_boxes(subject.dataset.annotations, metadata)),
        ],
        "radar": [*figures.draw_radar(seen), *figures.draw_lidar(ranges)],
        "bytes": [
            *figures.draw_bars("kinds", "Bytes by kind", f"Bars of the bytes of {', '.join(kinds)}", {"": kinds}, "MB")
        ],
    }
    for one in (figure for several in drawn.values() for figure in several):
        figures.mark_sequences(one, subject.timeline)
    return Gathered(found, drawn, shown, figures.list_gaps(subject), ways)


STRETCH = 1.0
"""s of drive over which the median is used: one late message is not a late sensor."""


def delay_checks(subject: ReportSubject) -> list[Check]:
    """Compare the delay of every second with the usual one, by topic."""
    found: list[Check] = []
    threshold = THRESHOLDS["delay"]
    worst = 0.0
    for topic, one in sorted((subject.recorded or {}).items()):
        known = np.isfinite(one.delays)
        times, delays = one.times[known], one.delays[known]
        if len(delays) < 5:
            continue
        usual = float(np.median(delays))
        stretch = ((times - times[0]) // STRETCH).astype(int)
        edges = np.flatnonzero(np.diff(stretch)) + 1
        parts = np.split(delays, edges)
        off = np.array([np.median(part) - usual for part in parts])
        far = float(np.abs(off).max())
        worst = max(worst, far)
        if level := threshold.level(far):
            late = np.flatnonzero(np.abs(off) >= (threshold.amber or 0))
            begins = times[np.concatenate([[0], edges])[late[0]]]
            text = f"{off[np.abs(off).argmax()] * 1e3:+.0f} ms from the usual for {len(late)} s, from {begins:.0f} s on"
            found.append(Check("delay", level, text, topic))
    if subject.recorded is not None and not found:
        found.append(Check("delay", threshold.level(0), f"within {worst * 1e3:.0f} ms of the usual"))
    return found
