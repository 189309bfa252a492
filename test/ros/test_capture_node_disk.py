# SPDX-License-Identifier: Apache-2.0
"""The capture node on a disk that refuses: the dataset is completed, diagnostics, status and exit code say so."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import SMALL, Bench, Capture, Player, adds_up, members  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402

from edgefirst_ros.dataset.recovery.recover import recover  # noqa: E402
from edgefirst_ros.dataset.validate import validate  # noqa: E402

CAMERA = "/camera/h264"
FEW = {"topics": ["camera", "radar/targets", "radar/cube"], **SMALL}
MUCH = {"topics": ["camera", "radar/targets", "radar/cube"], **SMALL, "size": (640, 360), "cube_shape": (2, 32, 4, 64)}
LIMIT = 2_500_000

Start = Callable[..., Any]


def told(bench: Bench, what: str) -> None:
    """Wait for a diagnostic of the dataset that is an error and says so."""
    bench.told("capture: dataset", lambda s: s.level == DiagnosticStatus.ERROR and what in s.message)


def record(node: Capture, player: Player) -> None:
    player.ready()
    player.play(end=1.5)
    node.until(lambda facts: facts.get("samples", 0) > 10)


def test_a_disk_that_refuses(capture: Start, bench: Bench, recording: Any) -> None:
    """No file can grow beyond what the first half takes."""
    player = Player(bench, recording(seconds=4, **MUCH))
    node = capture(sequence="limited", min_free_bytes=0)
    resource.prlimit(node.process.process.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    player.ready()
    player.play()
    facts = node.until(lambda facts: facts["failure"] and facts["finished"])
    assert "File too large" in facts["failure"]
    assert not facts["recording"]
    told(bench, "File too large")
    assert facts["finished"] == [str(node.out / "limited.zip")]
    node.finish(code=3)
    assert validate(node.out / "limited.zip").ok
    assert len(members(node.out / "limited.zip")) > 10
    count = node.counts("limited")[CAMERA]
    assert adds_up(count)
    assert count["dropped"]["refused by the disk"] > 0


def test_a_folder_that_vanishes(capture: Start, bench: Bench, recording: Any) -> None:
    """Nothing can be completed, which the exit code says; what was written is where the folder went."""
    player = Player(bench, recording(seconds=4, **FEW))
    node = capture(sequence="gone", min_free_bytes=0)
    record(node, player)
    elsewhere = node.out.with_name("elsewhere")
    node.out.rename(elsewhere)
    player.play(begin=1.5)
    facts = node.until(lambda facts: facts["failure"])
    assert "could not be completed" in facts["failure"]
    told(bench, "could not be completed")
    node.finish(code=1)
    assert not list(elsewhere.glob("*.zip"))
    assert recover(elsewhere / "gone").samples > 10
    assert validate(elsewhere / "gone.zip").ok
