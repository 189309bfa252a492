# SPDX-License-Identifier: Apache-2.0
"""Verdict on a drive: thresholds, and the checks of a dataset against them.

The one table of thresholds, for the report, `validate` and /diagnostics alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import LOSS
from edgefirst_ros.dataset.sequences import LEFT_OUT
from edgefirst_ros.dataset.timeline import MODEL, Pace, Timeline
from edgefirst_ros.errors import counted
from edgefirst_ros.sensors.calibration import GIVEN, IDENTITY, MISSING


class Level(IntEnum):
    """Severity of a check, from good to bad."""

    GREEN = 0
    AMBER = 1
    RED = 2

    @property
    def word(self) -> str:
        """`green`, `amber` or `red`."""
        return self.name.lower()


@dataclass(frozen=True)
class Threshold:
    """Values from which on a check is amber, and red; None: never."""

    key: str
    good: str
    """The good case, in a sentence that states the amber threshold."""
    amber: float | None
    red: float | None
    unit: str
    section: str = "verdict"
    """Section of the report that shows it."""

    def level(self, value: float) -> Level:
        """Return the level of a value."""
        if self.red is not None and value >= self.red:
            return Level.RED
        return Level.AMBER if self.amber is not None and value >= self.amber else Level.GREEN


# fmt: off
THRESHOLDS: dict[str, Threshold] = {one.key: one for one in (
    Threshold("samples", "There is at least one sample.", None, 1.0, "datasets without samples"),
    Threshold("loss", "No topic loses a message.", 1e-12, 0.01, "share of a topic's messages", "topics"),
    Threshold("calibration", "No sequence has a calibration that is missing or a placeholder.", 1.0, None, "sequences"),
    Threshold("alignment", "Less than 50 % of the boxes lack a radar target, and less than 50 % of the lidar clouds a "
              "point in the picture.", 0.5, 0.9, "share of boxes without a target, or of clouds without a point in the "
              "picture", "pictures"),
    Threshold("clock", "No clock is set or stands still, and no topic has stamps of another clock.", 1.0, None,
              "steps, and topics whose stamps were replaced", "time"),
    Threshold("delay", "The delay from a topic's stamp to the recorder differs by less than 0.1 s from the usual one.",
              0.1, 1.0, "s from the usual", "time"),
    Threshold("gaps", "No interval is 0.25 s or longer, unless it is shorter than 2.5 usual ones.", 0.25, 2.0, "s",
              "time"),
    Threshold("coverage", "A sensor is in more than 95 % of the samples of a sequence that has it.", 0.05, 0.5,
              "share of samples without a sensor", "time"),
    Threshold("skew", "95 % of a sensor's skews are below 75 % of the tolerance.", 0.75, None,
              "share of the tolerance that 95 % of the samples keep", "skew"),
    Threshold("position", "More than 95 % of the samples have a position.", 0.05, None, "share of samples without",
              "track"),
    Threshold("exposure", "Less than 10 % of the pictures are dark (mean luma below 40), and less than 10 % are "
              "glaring (above 215).", 0.1, None, "share of pictures", "pictures"),
)}
# fmt: on
"""Every threshold by its key."""
GAP_PERIODS = (2.5, 5.0)
"""An amber and a red gap are also so many times as long as the usual interval."""
DARK, GLARING = 40.0, 215.0
"""Mean luma (0 to 255) below and above which a picture counts as badly exposed."""
SILENT = THRESHOLDS["gaps"].red or 0.0
"""s without a message after which a topic is silent, unless it is slower than that: a red gap."""


@dataclass(frozen=True)
class Check:
    """Result of one check: the value found, and its level."""

    key: str
    level: Level
    found: str
    place: str = ""
    """A sensor, topic or sequence; empty: the whole."""

    @property
    def threshold(self) -> Threshold:
        """Its entry in `THRESHOLDS`."""
        return THRESHOLDS[self.key]


def worst(checks: Collection[Check]) -> Level:
    """Return the worst level of the checks; green without any."""
    return max((check.level for check in checks), default=Level.GREEN)


def wide_gap() -> tuple[float, float]:
    """Periods and s from which an interval is an amber gap."""
    return GAP_PERIODS[0], THRESHOLDS["gaps"].amber or 0.0


def gap_level(length: float, period: float | None) -> Level:
    """Return the level of an interval between messages that come every `period`, both in s."""
    limits = THRESHOLDS["gaps"]
    for level, periods, least in ((Level.RED, GAP_PERIODS[1], limits.red), (Level.AMBER, GAP_PERIODS[0], limits.amber)):
        if length >= max(periods * (period or 0.0), least or 0.0) * (1 - 1e-9):
            return level
    return Level.GREEN


def checks_of(timeline: Timeline, metadata: Mapping[str, Any], calibrations: Mapping[str, str]) -> list[Check]:
    """Return all checks from the tables of a dataset, green ones too.

    `metadata`: those of the frames; `calibrations`: the word of each sequence.
    """
    found = [Check("samples", Level.GREEN if len(timeline) else Level.RED, counted(len(timeline), "sample"))]
    found += losses(metadata)
    found += _calibrations(calibrations)
    found += clock(timeline, metadata)
    found += gaps(timeline)
    found += coverage(timeline)
    found += skews(timeline, metadata)
    return found


def losses(metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield what was lost of each topic, and the damage of recordings in which something can have been."""
    counts, threshold, none = metadata.get("counts") or {}, THRESHOLDS["loss"], True
    for topic, count in counts.items():
        lost = {reason: n for reason, n in count["dropped"].items() if reason in LOSS and n}
        if lost:
            none = False
            share = sum(lost.values()) / max(count["seen"], 1)
            what = ", ".join(f"{n} {reason}" for reason, n in lost.items())
            text = f"{share:.2%} of {counted(count['seen'], 'message')} lost: {what}"
            yield Check("loss", threshold.level(share), text, topic)
    for source in metadata.get("sources") or ():
        damaged = sum(damage.get("loss") is not False for damage in source.get("damage") or ())
        if damaged:
            none = False
            yield Check("loss", Level.AMBER, counted(damaged, "damaged place"), str(source.get("file")))
    for one in metadata.get(LEFT_OUT) or ():
        none = False
        yield Check("loss", Level.AMBER, f"not converted: {one['why']}", one["file"])
    if none:
        yield Check("loss", Level.GREEN, "nothing lost" if counts else "the dataset does not say what was lost")


def _calibrations(words: Mapping[str, str]) -> Iterator[Check]:
    said = {IDENTITY: "a placeholder: transforms that turn nothing (identity)", MISSING: "missing"}
    for word, what in said.items():
        names = [name for name, its in words.items() if its == word]
        if names:
            of = f"{len(names)} of {len(words)} sequences" if len(words) > 1 else ""
            yield Check("calibration", Level.AMBER, what, of)
    if words and set(words.values()) == {GIVEN}:
        yield Check("calibration", Level.GREEN, "given")


def clock(timeline: Timeline, metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield whether a clock was set, and topics that took another one."""
    threshold, steps = THRESHOLDS["clock"], timeline.steps
    if steps:
        yield Check("clock", threshold.level(steps), f"set, or stood still, {counted(steps, 'time')}")
    base = metadata.get("time_base") or {}
    others = list(replaced_clocks(base))
    yield from others
    if not steps and not others:
        yield Check("clock", Level.GREEN, f"one clock ({base.get('base') or 'not said'}), never set")


def replaced_clocks(base: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the topics whose stamps were replaced, which keep another clock; `base`: the metadata `time_base`."""
    bases = base.get("sequences") or {"": base}
    replaced = {topic: str(what) for one in bases.values() for topic, what in ((one or {}).get("topics") or {}).items()}
    for topic, what in replaced.items():
        yield Check("clock", THRESHOLDS["clock"].level(1), what, topic)


def gaps(timeline: Timeline) -> Iterator[Check]:
    """Yield how regularly samples, sensors and the model came."""
    for name, pace in paces(timeline).items():
        longest = pace.longest
        level = gap_level(longest.length, pace.period) if pace.period is not None else Level.GREEN
        found = f"longest {longest.length:.3g} s, at {longest.start:z.1f} s"
        if len(timeline.names) > 1:
            found += f" of {longest.sequence}"
        if level:
            found = f"{counted(len(pace.gaps), 'gap')}, {found}"
        yield Check("gaps", level, found, name)


def paces(timeline: Timeline) -> dict[str, Pace]:
    """Return how regularly samples, sensors and the model came, by name.

    A sequence that lacks one altogether has no gap of it: `coverage` tells that.
    """
    if not len(timeline):
        return {}
    found = {"samples": timeline.pace(timeline.samples(), wide_gap(), edges=())}
    for name in timeline.companions:
        messages = timeline.messages(name)
        edges = {block.sequence for block, one in zip(timeline.blocks, messages, strict=True) if len(one)}
        found[name] = timeline.pace(messages, wide_gap(), edges)
    return found


def coverage(timeline: Timeline) -> Iterator[Check]:
    """Yield in how many samples each sensor is."""
    for name, one in timeline.companions.items():
        if name != MODEL:
            yield coverage_of(name, float(one.has.mean()))


def coverage_of(name: str, there: float) -> Check:
    """Judge in which share of the samples a sensor is."""
    return Check("coverage", THRESHOLDS["coverage"].level(1 - there), f"in {there:.1%} of the samples", name)


def skews(timeline: Timeline, metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield how far off companions were, against their tolerance."""
    for name, one in timeline.companions.items():
        if name != MODEL:
            yield skew_of(name, one.within(0.95) / SECOND, tolerance(metadata, name))


def skew_of(name: str, far: float, allowed: float) -> Check:
    """Judge how far off 95 % of a sensor's messages are, against their tolerance, both in s."""
    level = THRESHOLDS["skew"].level(far / allowed if allowed else 0.0)
    return Check("skew", level, f"95 % within {far * 1e3:.1f} ms of {allowed * 1e3:.0f} ms", name)


def tolerance(metadata: Mapping[str, Any], sensor: str) -> float:
    """Return the tolerance of a sensor in s, as the dataset's configuration has it; the default where it has none."""
    made = metadata.get("configuration")
    made = made if isinstance(made, dict) else {}
    streams = made.get("streams")
    own = streams.get(sensor) if isinstance(streams, dict) else None
    for value in ((own or {}).get("tolerance") if isinstance(own, dict) else None, made.get("tolerance")):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return float(Settings.model_fields["tolerance"].default)
