# SPDX-License-Identifier: Apache-2.0
"""What is told of a topic, second by second of a clock that the test sets."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgefirst_ros.config import LiveSettings
from edgefirst_ros.counts import NOT_SAMPLED, UNDECODABLE
from edgefirst_ros.pipeline.health import FEWEST, SILENT, STEADY, Health, HealthLevel, Status
from edgefirst_ros.sources.live import TopicState
from edgefirst_ros.streams import IMU

SECOND = 1_000_000_000


class Second:
    """A topic whose node looks at it once a second; the messages of a second come evenly within it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now, self._number = 1000 * SECOND, 0
        monkeypatch.setattr(time, "monotonic_ns", lambda: self._now)
        self._health = Health("/capture")
        self._state = TopicState("/imu", "/imu", IMU, publishers=1)
        self.passes(0)
        assert self.rates == {}, "no second has passed since it was first looked at"

    @property
    def rates(self) -> dict[str, float]:
        """Those of `control status`."""
        return self._health.measure(SimpleNamespace(live=LiveSettings(out="nowhere")), {})["rates"]  # type: ignore

    def passes(self, messages: int) -> Status:
        for n in range(messages):
            self._number += 1
            self._state.count_arrival(self._number, self._now + (n + 1) * SECOND // messages)
        self._now += SECOND
        return self._health.topic(self._state, {})


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Second:
    return Second(monkeypatch)


def value(status: Status, key: str) -> float:
    return float(status.values[key])


def test_the_rate_and_what_is_usual_are_told(second: Second) -> None:
    told = [second.passes(messages) for messages in (50, 50, 40, 50)]
    assert [(value(s, "rate, Hz"), value(s, "expected rate, Hz")) for s in told] == [
        (50, 50), (50, 50), (40, 50), (50, 50)
    ]  # fmt: skip
    assert value(told[-1], "longest gap, s") == 0.025
    assert second.rates == {"/imu": 50.0}
    assert {(s.level, s.message) for s in told} == {(HealthLevel.OK, "")}


def test_less_than_half_of_what_is_usual_is_a_warning(second: Second) -> None:
    for _ in range(STEADY):
        second.passes(30)
    told = second.passes(14)
    assert (told.level, told.message) == (HealthLevel.WARN, "14.0 messages a second came, 30.0 are usual")
    assert second.passes(15).level == HealthLevel.OK


def test_silence_is_a_warning_until_a_message_comes(second: Second) -> None:
    second.passes(30)
    told = [second.passes(0) for _ in range(int(SILENT) + 1)]
    assert [s.level for s in told[:-1]] == [HealthLevel.OK] * int(SILENT)
    assert (told[-1].level, told[-1].message) == (HealthLevel.WARN, "no message for 3.0 s")
    assert second.passes(30).level == HealthLevel.OK


def test_of_a_slow_topic_five_messages_time_is_silence(second: Second) -> None:
    for _ in range(STEADY):
        second.passes(1)
    assert [bool(second.passes(0).message) for _ in range(6)] == [False] * 5 + [True]


def test_the_dataset_is_judged_by_the_thresholds_of_the_verdict(second: Second) -> None:
    good = {"coverage": 0.96, "p95_skew_s": 0.074, "tolerance_s": 0.1}
    facts = {"active": True, "topics": {}, "recording": True, "samples": FEWEST, "companions": {"lidar.points": good}}

    def told(**change: object) -> tuple[HealthLevel, str]:
        one = Health("/capture").dataset({**facts, **change}, [], "nowhere")
        return one.level, one.message

    assert told() == (HealthLevel.OK, "recording")
    waiting = {"active": True, "topics": {}, "recording": False}
    assert Health("/capture").dataset(waiting, [], "nowhere").values["samples"] == 0
    far = {"lidar.points": {**good, "p95_skew_s": 0.076}}
    rare = {"lidar.points": {**good, "coverage": 0.95}}
    assert told(companions=far) == (HealthLevel.WARN, "recording; skew of lidar.points: 95 % within 76.0 ms of 100 ms")
    assert told(companions=rare) == (HealthLevel.WARN, "recording; coverage of lidar.points: in 95.0% of the samples")
    assert told(companions=rare, samples=FEWEST - 1) == (HealthLevel.OK, "recording")
    other = {"base": "header", "topics": {"/lidar/points": "log_time in place of header stamps"}}
    assert told(time_base=other)[1] == "recording; clock of /lidar/points: log_time in place of header stamps"
    assert "skew of lidar.points" in told(companions=far, upload={"failure": "refused"})[1]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"lost": 3}, "3 messages lost on the way"),
        ({"guessed": 2}, "about 2 messages lost on the way, by gaps of their stamps"),
        ({"mixed": "also published as x/Y"}, "also published as x/Y"),
        (
            {"mixed": "other types", "lost": 1, "guessed": 1},
            "other types; 1 message lost on the way; about 1 message lost on the way, by gaps of their stamps",
        ),
    ],
)
def test_what_a_topic_lost_and_who_else_publishes_it_is_a_warning(change: dict[str, object], told: str) -> None:
    state = TopicState("/imu", "/imu", IMU, publishers=1, **change)
    status = Health("/capture").topic(state, {})
    assert (status.level, status.message) == (HealthLevel.WARN, told)
    assert status.values["lost"] == state.lost


@pytest.mark.parametrize(("reason", "level"), [(NOT_SAMPLED, HealthLevel.OK), (UNDECODABLE, HealthLevel.WARN)])
def test_of_what_is_dropped_losses_alone_are_a_warning(reason: str, level: HealthLevel) -> None:
    facts = {"counts": {"/imu": {"dropped": {reason: 50}}}}
    assert Health("/capture").topic(TopicState("/imu", "/imu", IMU, publishers=1), facts).level == level


def test_a_topic_that_cannot_be_heard_is_an_error_whatever_else_there_is() -> None:
    state = TopicState("/imu", "/imu", IMU, lost=3, fault="its type is not installed")
    status = Health("/capture").topic(state, {})
    assert (status.level, status.name, status.message) == (
        HealthLevel.ERROR,
        "/capture: /imu",
        "its type is not installed",
    )


def test_a_dataset_to_which_nothing_is_written_is_a_warning() -> None:
    facts = {"active": True, "topics": {}, "recording": True}
    for standstill, level in ((SILENT, HealthLevel.OK), (SILENT + 0.5, HealthLevel.WARN)):
        status = Health("/capture").dataset({**facts, "standstill_s": standstill}, [], "nowhere")
        assert status.level == level
    assert status.message == "no sample was written for 2.5 s: is the disk slow?"


def test_the_room_on_the_disk_is_told_where_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def room(folder: Path) -> object:
        return Health("/capture").dataset({"active": False}, [], str(folder)).values["disk left, bytes"]

    disk = os.statvfs(tmp_path)
    assert 0 < room(tmp_path) <= disk.f_frsize * disk.f_blocks
    assert room(tmp_path / "nothing") == ""

    def refused(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", refused)
    monkeypatch.setattr(shutil, "disk_usage", refused)
    assert room(tmp_path) == ""
