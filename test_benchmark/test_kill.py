# SPDX-License-Identifier: Apache-2.0
"""The killing in small: what is killed loses nothing that it said was committed, and what is planted is found."""

import random

import pytest

from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

SMALL = {"size": (160, 96), "gop": 15, "cube_shape": (2, 16, 4, 32), "lidar_points": 50}


@pytest.fixture
def kill():
    import kill

    return kill


@pytest.fixture
def reference(kill, tmp_path):
    """Function that gives the reference of a drive of so many seconds."""

    def make(seconds):
        recording = tmp_path / make_recording_name("maivin-kill", START)
        write_recording(recording, Recipe(seconds=seconds, **SMALL))
        return kill.Reference(recording, tmp_path / "whole")

    return make


def test_killed_conversions(kill, reference, tmp_path):
    tally = kill.kill_conversions(reference(4), tmp_path, 3, random.Random(3), None)
    assert tally.faults == []
    assert sum(tally.outcomes.values()) == 3


@pytest.mark.usefixtures("ros_domain")
def test_killed_captures(kill, reference, tmp_path):
    """What is there by the time of the kill depends on the machine, which may hold up messages for a second."""
    pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
    for package in ("edgefirst_msgs", "foxglove_msgs"):
        pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")
    tally = kill.kill_captures(reference(6), tmp_path, 1, random.Random(24), None, lookahead=3.0)
    assert tally.faults == []
    assert sum(tally.outcomes.values()) == 1


def test_what_is_missing_or_differs_is_found(reference, tmp_path):
    """A sample that was reported committed and is not there, and a member of other bytes."""
    whole = reference(2)
    samples = len(whole.frames)
    assert list(whole.faults(tmp_path / "whole", samples, 0)) == []
    assert [fault for fault in whole.faults(tmp_path / "whole", samples + 1, 0) if "were committed" in fault]
    name = next(iter(whole.members))
    whole.members[name] = b"other"
    assert [fault for fault in whole.faults(tmp_path / "whole", samples, 0) if "differ" in fault]
