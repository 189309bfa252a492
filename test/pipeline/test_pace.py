# SPDX-License-Identifier: Apache-2.0
import math

import pytest

from edgefirst_ros.pipeline import samples
from edgefirst_ros.pipeline.samples import Backlog


@pytest.fixture
def clock(monkeypatch):
    """The monotonic clock as a list with one number, s."""
    now = [1000.0]
    monkeypatch.setattr(samples.time, "monotonic", lambda: now[0])
    return now


def test_a_recording_waits_as_long_as_it_takes(clock):
    offline = Backlog(None)
    clock[0] += 3600
    assert not offline.is_overdue(1000.0)
    assert not offline.is_stuck
    offline.drain()
    clock[0] += 3600
    assert not offline.is_over


def test_live_a_frame_waits_for_so_long_and_no_longer(clock):
    live = Backlog(0.0)
    clock[0] += samples.PATIENCE
    assert not live.is_overdue(1000.0)
    clock[0] += 0.01
    assert live.is_overdue(1000.0)


def test_frames_of_the_backlog_wait_longer_until_it_is_worked_off(clock):
    live = Backlog(10.0)
    clock[0] += 0.9
    assert not live.is_overdue(1000.5)  # one of the backlog itself says nothing of the others
    clock[0] += 11.0
    assert not live.is_overdue(1000.0)
    assert not live.is_overdue(1002.0)  # nor does a later one that waited for long
    assert not live.is_overdue(1000.0)
    assert not live.is_overdue(1011.8)  # came later, and its turn is soon: the backlog is worked off
    assert live.is_overdue(1000.0)


def test_what_comes_is_left_out_only_while_nothing_moves_on(clock):
    live = Backlog(0.0)
    clock[0] += samples.PATIENCE + 0.01
    assert live.is_stuck
    live.move()
    assert not live.is_stuck


def test_at_its_end_a_capture_leaves_nothing_out_until_the_time_is_over(clock):
    live = Backlog(0.0)
    live.drain()
    clock[0] += samples.LAST_WORK
    assert not live.is_overdue(1000.0)
    assert not live.is_over
    clock[0] += 0.01
    assert live.is_over


def test_a_frame_without_its_contents_is_always_overdue():
    assert Backlog(None).is_overdue(-math.inf)
