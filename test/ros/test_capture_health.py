# SPDX-License-Identifier: Apache-2.0
"""What the capture node tells when all is well, and what it tells and does under load and without space."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import CAMERA, FEW, PATIENT, Bench, Player, adds_up, members  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402

OK = DiagnosticStatus.OK

Start = Callable[..., Any]


def values(status: Any) -> dict[str, str]:
    return {pair.key: pair.value for pair in status.values}


def test_diagnostics(capture: Start, bench: Bench, recording: Any) -> None:
    """What figures they have at which pace: test_health.py."""
    player = Player(bench, recording(seconds=5, **FEW))
    node = capture(sequence="told", **PATIENT)
    player.ready()
    player.play()
    node.has_received(player.sent)
    whole = bench.told("capture: dataset", lambda s: int(values(s)["samples"]) > 30)
    came = [(array.header.stamp.sec, array.header.stamp.nanosec) for array in bench.diagnostics]
    assert came == sorted({*came})
    facts = values(whole)
    assert whole.hardware_id == socket.gethostname()
    assert facts["dataset"] == "told"
    assert abs(int(facts["disk left, bytes"]) - shutil.disk_usage(node.out).free) < 1 << 30
    assert facts["clock"] == "header"
    assert facts["decoder"] == "software"
    assert 0 < json.loads(facts["worst skew, ms"])["radar_targets_skew"] <= 100
    bench.told("capture: dataset", lambda s: float(values(s)["age of the last flush, s"] or "nan") >= 0)
    bench.told("capture: dataset", lambda s: s.level == OK and s.message == "recording")
    for topic in (CAMERA, "/radar/targets", "/imu"):
        told = bench.told(f"capture: {topic}", lambda s: s.level == OK and float(values(s)["expected rate, Hz"]) > 0)
        assert not told.message
        assert float(values(told)["longest gap, s"]) > 0
        assert {"rate, Hz", "queue", "dropped", "lost"} <= values(told).keys()
    node.finish()


SLOW = """
import sys, time
from edgefirst_ros.nodes import capture
from edgefirst_ros.pipeline.encoding import SampleEncoder

encode = SampleEncoder._image

def slowly(self, picture):
    time.sleep(0.06)
    return encode(self, picture)

SampleEncoder._image = slowly
sys.exit(capture.main(sys.argv[1:]))
"""
"""A capture that takes 60 ms more for each picture, so that the quickest machine falls behind."""


def test_overload_thins_samples_and_counts_them(capture: Start, bench: Bench, recording: Any) -> None:
    """Large pictures at twenty times the pace: no message is lost, and none in silence."""
    path = recording(seconds=3, noise=2.0, gop=15, topics=["camera"], size=(1920, 1080))
    player = Player(bench, path)
    node = capture(sequence="much", camera_format="png", jobs=1, program=("-c", SLOW, "--ros-args"))
    player.ready()
    player.play(rate=20.0)
    facts = node.has_received(player.sent)
    memory = int(Path(f"/proc/{node.process.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])
    assert facts["topics"][CAMERA]["lost"] == 0
    node.until(lambda facts: facts.get("counts", {}).get(CAMERA, {}).get("dropped"))
    node.finish(code=3)
    count = node.counts("much")[CAMERA]
    assert adds_up(count)
    assert count["seen"] == player.sent[CAMERA] == 90
    assert count["dropped"].keys() == {"left out under load"}
    assert count["written"] == len(members(node.out / "much.zip")) > 0
    assert memory < 900_000, f"{memory} kB"
    troubled = [s for s in bench.statuses(f"capture: {CAMERA}") if "left out under load" in s.message]
    assert not troubled or troubled[-1].level == DiagnosticStatus.WARN
