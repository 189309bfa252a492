# SPDX-License-Identifier: Apache-2.0
"""Diagnostics of a capture, once a second: status of each topic and of the dataset, and the fault."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from statistics import median
from typing import Any

from edgefirst_ros.counts import LOSS
from edgefirst_ros.dataset.storage.space import count_free_bytes
from edgefirst_ros.dataset.verdict import (
    GAP_PERIODS,
    SILENT,
    THRESHOLDS,
    check_replaced_clocks,
    judge_coverage,
    judge_skew,
)
from edgefirst_ros.errors import StorageError, pluralize
from edgefirst_ros.messages import find_known_name
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.sources.live import TopicState
from edgefirst_ros.sources.topics import STATICS
from edgefirst_ros.streams import SENSORS

RATES_KEPT = 60
"""Measurements of a rate, one a second, whose median is the expected rate of a topic."""
FEWEST = 100
"""Fewest samples for which shares are judged."""
STEADY = 5
"""Seconds with messages after which their rate counts as known."""


@dataclass(slots=True)
class _Rate:
    """Rate of a topic, measured once a second."""

    received: int
    since: int
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RATES_KEPT))
    """Measured rates in Hz, except in seconds without messages."""

    def measure(self, received: int, now: int) -> float:
        """Return the rate in Hz since the last call; `now` in ns."""
        rate = (received - self.received) * 1e9 / (now - self.since) if now > self.since else 0.0
        self.received, self.since = received, now
        if rate:
            self.recent.append(rate)
        return rate

    @property
    def expected(self) -> float:
        """Return the usual rate in Hz; 0.0 if no message came yet."""
        return median(self.recent) if self.recent else 0.0


class HealthLevel(IntEnum):
    """Severity, as in diagnostic_msgs."""

    OK = 0
    WARN = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Status:
    """One DiagnosticStatus: `name` of the component, `message` with the fault."""

    level: HealthLevel
    name: str
    message: str
    values: Mapping[str, Any]


class Condition(IntEnum):
    """Condition of a capture, as exit code of `edgefirst-ros control status`."""

    OK = 0
    WAITING = 3
    FAILED = 4
    STALE = 5


class Health:
    """Makes the diagnostics of a capture, once a second, from the facts of its session.

    Call `judge` several times a second: it notes when the last sample came.
    """

    def __init__(self, node: str, clock: Callable[[], float] | None = None) -> None:
        """`node`: prefix of the statuses' names; `clock`: returns the time in s by which ages are reported.

        The monotonic clock always decides if samples are missing: a simulated one may stop.
        """
        self._node = node
        self._clock = clock or _read_monotonic
        self._shown = self._clock()
        self._rates: dict[str, _Rate] = {}
        self._hertz: dict[str, float] = {}
        self._newest: tuple[object, int] = (None, -1)
        self._came = time.monotonic()
        self._began = self._came

    def _update(self, facts: Mapping[str, Any]) -> None:
        newest = facts.get("sequence"), facts.get("samples", 0)
        if newest != self._newest:
            now = time.monotonic()
            if newest[0] != self._newest[0]:
                self._began = now
            self._newest, self._came, self._shown = newest, now, self._clock()
        if not (facts.get("recording") or facts.get("waiting")):
            self._came = time.monotonic()

    def judge(self, session: CaptureSession, facts: Mapping[str, Any]) -> tuple[Condition, str]:
        """Return the condition of the capture, also in words; idle by order counts as recording."""
        self._update(facts)
        if facts.get("bytes_needed"):
            needed = facts["bytes_needed"]
            return Condition.FAILED, f"the disk is full: recording begins again once {needed} bytes are free"
        if facts.get("failure"):
            return Condition.FAILED, f"{facts.get('state', 'idle')} after a failure: {facts['failure']}"
        if facts.get("broken_off"):
            names = ", ".join(facts["broken_off"])
            return Condition.FAILED, f"idle: the last capture ended in the middle of {names}; start records again"
        if "state" not in facts:
            wanted = facts["active"] and facts.get("wanted", True)
            words = facts["waiting_for"] or session.state.value
            return (Condition.WAITING, words) if wanted else (Condition.OK, f"idle: {words}")
        rate = session.settings.rate
        limit = max(session.live.stale_after, 3 / rate if rate else 0.0)
        age = time.monotonic() - self._came
        if (facts["recording"] or facts.get("waiting")) and age > limit:
            return Condition.STALE, f"{facts['state']}, but no sample for {age:.0f} s"
        return Condition.OK, str(facts["state"])

    def measure(self, session: CaptureSession, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the age of the newest sample, s, the minutes until the disk is full, and rates by sensor, Hz.

        Unknown age and minutes become None.
        """
        now = time.monotonic()
        room, size, since = _describe_room(Path(session.live.out)), facts.get("bytes", 0), now - self._began
        left = None
        if isinstance(room, int) and size and since > 1:
            left = round(max(0, room - session.live.min_free_bytes) / (size / since) / 60, 1)
        return {"newest_sample_age": self._age(facts), "free_minutes": left, "rates": dict(self._hertz)}

    def _age(self, facts: Mapping[str, Any]) -> float | None:
        """Return the age of the newest sample, s; None without one."""
        return round(max(0.0, self._clock() - self._shown), 3) if facts.get("samples") else None

    def statuses(self, session: CaptureSession) -> list[Status]:
        """Return the statuses of the dataset, of recorded topics, and of topics that could have been meant."""
        facts = session.status()
        states = sorted(session.source.states.items()) if session.source is not None else []
        topics = [self.topic(state, facts) for _, state in states]
        unused = sorted(facts.get("not_recorded", {}).items())
        others = [(f"{self._node}: {topic}", why) for topic, why in unused if topic not in facts["topics"]]
        topics += [Status(HealthLevel.WARN, name, why, {}) for name, why in others]
        self._update(facts)
        return [self.dataset(facts, topics, session.live.out), *topics]

    def topic(self, state: TopicState, facts: Mapping[str, Any]) -> Status:
        """Return the status of one topic; `facts` are those of the capture."""
        now = time.monotonic_ns()
        begun = state.name in self._rates
        known = self._rates.setdefault(state.name, _Rate(state.received, now))
        rate = known.measure(state.received, now)
        if begun:
            self._hertz[_find_sensor(state)] = round(rate, 2)
        counts = facts.get("counts", {}).get(state.delivered_as, {})
        dropped = counts.get("dropped", {})
        level, text = self._judge(state, rate, known, dropped, now)
        values = {
            "rate, Hz": round(rate, 2), "expected rate, Hz": round(known.expected, 2), "received": state.received,
            "lost": state.lost, "queue": facts.get("queues", {}).get(state.delivered_as, 0),
            "longest gap, s": round(state.gap / 1e9, 3), "written": counts.get("written", 0),
            "dropped": json.dumps(dropped), "reliability": "reliable" if state.reliable else "best effort",
        }  # fmt: skip
        return Status(level, f"{self._node}: {state.name}", text, values)

    @staticmethod
    def _judge(
        state: TopicState, rate: float, known: _Rate, dropped: Mapping[str, int], now: int
    ) -> tuple[HealthLevel, str]:
        if state.fault:
            return HealthLevel.ERROR, state.fault
        expected = known.expected
        faults = []
        if find_known_name(state.delivered_as, state.schema) not in STATICS and state.received:
            quiet = (now - state.last) / 1e9
            if quiet > max(SILENT, GAP_PERIODS[1] / expected if expected else 0.0):
                faults.append(f"no message for {quiet:.1f} s")
            elif len(known.recent) >= STEADY and rate < expected / 2 and expected >= STEADY:
                faults.append(f"{rate:.1f} messages a second came, {expected:.1f} are usual")
        if state.mixed:
            faults.append(state.mixed)
        if state.lost:
            faults.append(f"{pluralize(state.lost, 'message')} lost on the way")
        if state.guessed:
            faults.append(f"about {pluralize(state.guessed, 'message')} lost on the way, by gaps of their stamps")
        for reason, number in dropped.items():
            if reason in LOSS and THRESHOLDS["loss"].level(number / max(state.received, number, 1)):
                faults.append(f"{reason}: {number}")
        return (HealthLevel.WARN if faults else HealthLevel.OK), "; ".join(faults)

    def dataset(self, facts: Mapping[str, Any], topics: list[Status], out: str) -> Status:
        """Return the status of the dataset and the whole node; `topics` are the statuses of its topics."""
        paused = facts.get("state") == "paused"
        level, text = HealthLevel.OK, "recording" if facts.get("recording") else "paused" if paused else "listening"
        troubled = [topic.name.removeprefix(f"{self._node}: ") for topic in topics if topic.level != level]
        if facts.get("failure"):
            level, text = HealthLevel.ERROR, f"the dataset has ended: {facts['failure']}"
        elif not facts["active"]:
            text = "not active"
        elif "topics" not in facts:
            level, text = HealthLevel.WARN, facts["waiting_for"] or "looking for topics"
        elif facts.get("standstill_s", 0.0) > SILENT:
            level, wait = HealthLevel.WARN, facts["standstill_s"]
            text = f"no sample was written for {wait:.1f} s: is the disk slow?"
        else:
            failure = facts.get("upload", {}).get("failure")
            faults = [f"upload: {failure}"] if failure else []
            faults += [f"something is wrong with {', '.join(troubled)}"] if troubled else []
            checks = list(check_replaced_clocks(facts.get("time_base", {})))
            if facts.get("samples", 0) >= FEWEST:
                for sensor, one in facts.get("companions", {}).items():
                    checks.append(judge_coverage(sensor, one["coverage"]))
                    checks.append(judge_skew(sensor, one["p95_skew_s"], one["tolerance_s"]))
            faults += [f"{one.key} of {one.place}: {one.found}" for one in checks if one.level]
            if faults:
                level, text = HealthLevel.WARN, "; ".join([text, *faults])
        values = {
            "dataset": facts.get("sequence", ""), "samples": facts.get("samples", 0),
            "committed": facts.get("committed", 0), "bytes": facts.get("bytes", 0),
            "finished": len(facts.get("finished", [])), "to be uploaded": facts.get("upload", {}).get("waiting", ""),
            "queue": facts.get("queue", 0), "decoder backlog": facts.get("backlog", 0),
            "decoder": facts.get("decoder", ""),
            "age of the newest sample, s": "" if (age := self._age(facts)) is None else age,
            "age of the last flush, s": facts.get("flush_age_s", ""),
            "worst skew, ms": json.dumps({k: v / 1e6 for k, v in facts.get("worst_skew_ns", {}).items()}),
            "disk left, bytes": _describe_room(Path(out)),
            "clock": facts.get("time_base", {}).get("base", ""),
        }  # fmt: skip
        return Status(level, f"{self._node}: dataset", text, values)


def _read_monotonic() -> float:
    return time.monotonic()


def _find_sensor(state: TopicState) -> str:
    """Return the key of a topic's sensor; the topic's name without a sensor."""
    name = find_known_name(state.delivered_as, state.schema)
    keys = (sensor.key for sensor in SENSORS for topic in sensor.topics if topic.name == name)
    return next(keys, state.delivered_as)


def _describe_room(out: Path) -> int | str:
    """Return the free bytes of the output folder; empty if it does not exist, or its disk does not report them."""
    try:
        return count_free_bytes(out) if out.is_dir() else ""
    except (OSError, StorageError):
        return ""
