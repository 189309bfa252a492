# SPDX-License-Identifier: Apache-2.0
"""Captures that are killed lose nothing that they said was committed; benchmark/kill.py does many more."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from edgefirst_ros.synthetic import START, Recipe, recording_name, write_recording  # noqa: E402

KILL = Path(__file__).resolve().parents[2] / "benchmark" / "kill.py"
SMALL = {"size": (320, 192), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "gop": 15}


@pytest.fixture
def kill() -> Any:
    spec = importlib.util.spec_from_file_location("kill", KILL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Late(random.Random):
    """Moments of the last part: by then something is committed, also on a busy machine."""

    def uniform(self, a: float, b: float) -> float:
        return super().uniform(a + (b - a) * 0.7, b)


def test_killed_captures(kill: Any, tmp_path: Path) -> None:
    recording = tmp_path / recording_name("maivin-kill", START)
    write_recording(recording, Recipe(seconds=3, **SMALL))
    reference = kill.Reference(recording, tmp_path / "whole")
    tally = kill.kill_captures(reference, tmp_path, 1, Late(24), None)
    assert tally.faults == []
    assert sum(tally.outcomes.values()) == 1
    assert tally.outcomes["recovered"]
    assert tally.committed
