# SPDX-License-Identifier: Apache-2.0
"""Stamps that come before the camera: kept to judge a clock by, but not for ever."""

from dataclasses import dataclass

import numpy as np
import pytest
from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs

from edgefirst_ros.messages import Message
from edgefirst_ros.streams import FIX, IMAGE
from edgefirst_ros.sync import clock as clocks
from edgefirst_ros.sync.clock import LISTEN, LiveClock

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
CAMERA, GPS = "/camera/image", "/gps"


@dataclass
class Parts:
    reference: str = CAMERA
    aligned: frozenset[str] = frozenset({GPS})


def message(topic, at, header=None):
    """A message that came at `at` ns of the test, with that stamp or another."""
    stamp = NOW + at if header is None else header
    head = std_msgs.Header(builtin_interfaces.Time(*divmod(stamp, SECOND)), "x")
    if topic == CAMERA:
        return Message(
            topic,
            IMAGE,
            NOW + at,
            NOW + at,
            0,
            bytes(sensor_msgs.Image(head, 1, 1, "mono8", 0, 1, np.zeros(1, np.uint8)).to_bytes()),
        )
    fix = sensor_msgs.NavSatFix(head, sensor_msgs.NavSatStatus(0, 1), 1.0, 2.0, 3.0, [0.0] * 9, 0)
    return Message(topic, FIX, NOW + at, NOW + at, 0, bytes(fix.to_bytes()))


def chosen(clock, begin):
    """The clock once the camera has come for a second from `begin` on."""
    for n in range(11):
        at = begin + n * SECOND // 10
        assert clock.due(at) == (n == 10 and clock.heard is not None)
        clock.add(message(CAMERA, at), at)
    assert clock.due(begin + LISTEN)
    return clock.choose("auto")


@pytest.mark.parametrize(("wrong", "replaced"), [(6, True), (10, False)])
def test_stamps_of_long_before_the_camera_are_forgotten(monkeypatch, wrong, replaced):
    """A GPS receiver that had no time of day for `wrong` messages, and then has it; ten are kept."""
    monkeypatch.setattr(clocks, "MANY", 10)
    clock = LiveClock(Parts())
    for n in range(wrong + 3):
        at = n * SECOND
        assert clock.add(message(GPS, at, header=n * SECOND if n < wrong else None), at) is None
    base = chosen(clock, (wrong + 3) * SECOND)
    assert base.by_header
    assert (GPS in base.replaced) == replaced


@pytest.mark.parametrize(("offset", "replaced"), [(0, True), (-37 * SECOND, False)])
@pytest.mark.parametrize("late", [False, True])
def test_an_offset_may_correct_the_clock_of_a_topic(offset, replaced, late):
    clock = LiveClock(Parts(), {GPS: offset, CAMERA: 0}.__getitem__)
    base = chosen(clock, 0) if late else None
    for at in range(0, 2 * LISTEN + 1, LISTEN // 4):
        clock.add(message(GPS, at, header=at + NOW + 37 * SECOND), at)
    base = base or chosen(clock, 3 * SECOND)
    assert (GPS in base.replaced) == replaced
