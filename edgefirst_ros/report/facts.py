# SPDX-License-Identifier: Apache-2.0
"""The facts of a report as plain values: what the page says in words and what `--json` gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timezone
from typing import Any

import numpy as np

from edgefirst_ros.dataset.inputs import INPUT_OF, member_of
from edgefirst_ros.dataset.timeline import MODEL, Pace
from edgefirst_ros.dataset.verdict import Check, Level, checks_of, paces, tolerance, worst
from edgefirst_ros.errors import DatasetError, counted
from edgefirst_ros.report.subject import Floats, Subject
from edgefirst_ros.report.tables import Told
from edgefirst_ros.sensors.geodesy import ecef, world_to_ecef

MOST_NAMED = 4
"""Checks that the sentence of the verdict names, of each level."""


def quick(subject: Told) -> dict[str, Any]:
    """Return what the tables alone tell, without reading members: a line of the table over several."""
    words = subject.words
    checks = checks_of(subject.timeline, subject.metadata, words)
    if not len(subject.timeline) and subject.samples:
        checks[0] = Check("samples", worst(()), f"{counted(subject.samples, 'sample')}; there is no table of frames")
    return {
        "name": subject.name,
        "path": str(subject.path),
        "kind": subject.kind,
        "verdict": verdict(checks),
        "samples": subject.samples,
        "duration_s": round(subject.timeline.duration, 3),
        "start": _start(subject),
        "sequences": {
            name: {"samples": number, "calibration": words[name]} for name, number in subject.by_sequence.items()
        },
        "topics": topics(subject),
        "time": {"paces": {name: _pace(subject, pace) for name, pace in paces(subject.timeline).items()}},
        "skew": skew(subject),
        "notes": subject.notes,
    }


def verdict(checks: list[Check]) -> dict[str, Any]:
    """Return the worst level, and every check; the worst ones first."""
    listed = sorted(checks, key=lambda check: -check.level)
    return {
        "level": worst(checks).word,
        "summary": summary(checks),
        "checks": [
            {
                "check": one.key,
                "level": one.level.word,
                "place": one.place,
                "found": one.found,
                "good": one.threshold.good,
                "section": one.threshold.section,
            }
            for one in listed
        ],
    }


def summary(checks: Collection[Check]) -> str:
    """Return the verdict in a sentence: what is wrong and where."""
    found = []
    for level, advice in ((Level.RED, "do not train on it before somebody has looked"), (Level.AMBER, "worth a look")):
        bad = dict.fromkeys(
            f"{one.key}{f' of {one.place}' if one.place else ''}" for one in checks if one.level is level
        )
        if bad:
            more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
            found.append(f"{level.word.capitalize()}: {', '.join([*bad][:MOST_NAMED])}{more}; {advice}.")
    return " ".join(found) or f"Nothing is wrong: {counted(len(checks), 'check')} passed."


def topics(subject: Told) -> list[dict[str, Any]]:
    """Messages of each topic: seen, used, dropped by reason."""
    counts = subject.metadata.get("counts") or {}
    found = [
        {
            "topic": topic,
            "seen": count["seen"],
            "used": count["written"],
            "dropped": {reason: n for reason, n in count["dropped"].items() if n},
        }
        for topic, count in counts.items()
    ]
    others = subject.messages.keys() - counts.keys()
    found += [{"topic": topic, "seen": subject.messages[topic], "used": 0, "dropped": {}} for topic in others]
    return sorted(found, key=lambda one: str(one["topic"]))


def skew(subject: Told) -> dict[str, dict[str, float]]:
    """|skew| of each sensor in ms, and its tolerance."""
    found = {}
    for name, one in subject.timeline.companions.items():
        if name != MODEL:
            found[name] = {
                "p50_ms": round(one.within(0.5) / 1e6, 3),
                "p95_ms": round(one.within(0.95) / 1e6, 3),
                "max_ms": round(float(one.off[-1]) / 1e6, 3),
                "tolerance_ms": round(1e3 * tolerance(subject.metadata, name), 3),
                "samples": int(one.has.sum()),
            }
    return found


def track(subject: Subject) -> tuple[dict[str, Any], Floats, Floats]:
    """Facts of the positions, (N, 2) m east and north of the first one, and s of drive of each."""
    frames, nothing = subject.dataset.frames, ({"positions": 0}, np.zeros((0, 2)), np.zeros(0))
    if frames is None or not {"latitude", "longitude"} <= set(frames.columns) or not len(subject.timeline):
        return nothing
    if not all(frames.schema[name].is_numeric() for name in ("latitude", "longitude")):
        return nothing
    rows = subject.timeline.rows
    degrees = np.column_stack([frames[name].to_numpy().astype(float)[rows] for name in ("latitude", "longitude")])
    known = np.isfinite(degrees).all(1) & (np.abs(degrees) <= (90, 360)).all(1)
    if not known.any():
        return nothing
    places, seconds = degrees[known], subject.timeline.seconds[known]
    origin = places[0]
    metres = ecef(places[:, 0], places[:, 1], np.zeros(len(places)))
    local = world_to_ecef(origin[0], origin[1], 0.0)
    flat = ((metres - local[:3, 3]) @ local[:3, :3])[:, :2]
    steps = np.hypot(*np.diff(flat, axis=0).T)
    together = np.diff(subject.timeline.sequence[known]) == 0
    facts = {
        "positions": int(known.sum()),
        "length_m": round(float(steps[together].sum()), 1),
        "extent_m": [round(float(length), 1) for length in np.ptp(flat, axis=0)],
    }
    return facts, flat, seconds


def sizes(subject: Subject) -> dict[str, Any]:
    """Bytes by kind of member, what repeats, sources, configuration and versions."""
    container = subject.dataset.container
    members: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name in container.names:
        if found := member_of(name):
            members[found[1]] += 1
            sizes[found[1]] += container.size(name)
    repeats = subject.dataset.repeats
    repeated = 0
    for key, inputs in repeats.items():
        if subject.has(key):
            own = subject.dataset.members(key)
            repeated += sum(container.size(member) for kind, member in own.items() if INPUT_OF[kind] in inputs)
    return {
        "kinds": {kind: {"members": members[kind], "bytes": sizes[kind]} for kind in sorted(members)},
        "repeats": {"members": sum(map(len, repeats.values())), "bytes": repeated},
        "sources": subject.metadata.get("sources") or [],
        "configuration": subject.metadata.get("configuration") or {},
        "software": subject.metadata.get("software") or {},
        "schema_version": subject.metadata.get("schema_version"),
    }


def inputs(subject: Subject) -> dict[str, int]:
    """Samples by sensor that they have; of a recording by its messages, as most members are not made."""
    if subject.recorded is not None:
        found = {name: int(one.has.sum()) for name, one in subject.timeline.companions.items() if name != MODEL}
        roles = {place.sample.inputs & {"camera"} for place in subject.places[:1]}
        return ({"camera": subject.samples} if any(roles) else {}) | found
    there: Counter[str] = Counter()
    for place in subject.places:
        there.update(place.sample.inputs)
    return dict(sorted(there.items()))


def _pace(subject: Told, pace: Pace) -> dict[str, Any]:
    longest, several = pace.longest, len(subject.timeline.names) > 1
    return {
        "messages": pace.messages,
        "hz": round(1 / pace.period, 3) if pace.period else None,
        "longest_s": round(longest.length, 4),
        "at_s": round(longest.drive, 3),
        **({"sequence": longest.sequence, "at_s_of_sequence": round(longest.start, 3)} if several else {}),
        "gaps": len(pace.gaps),
        "missing_s": round(math.fsum(gap.length for gap in pace.gaps), 3),
    }


def _start(subject: Told) -> str | None:
    if not len(subject.timeline):
        return None
    first = int(subject.timeline.stamps.min()) // 10**9  # of 64 bits in ns: of the years 1677 to 2262
    return f"{datetime.fromtimestamp(first, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def groups(subject: Subject) -> dict[str, int]:
    """Samples by group."""
    rows = subject.annotations
    try:
        own = rows.select("name", "frame", "group").drop_nulls("group").unique()
        return dict(sorted(own["group"].cast(str).value_counts().iter_rows()))
    except Exception as error:  # a column of a type that is no text
        raise DatasetError(f"{subject.dataset.paths.arrow}: the column group cannot be read: {error}") from error
