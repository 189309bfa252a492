# SPDX-License-Identifier: Apache-2.0
"""The capture node among publishers that mean harm: what they send is counted and costs nothing else."""

from __future__ import annotations

import importlib
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import CAMERA, SMALL, Bench, Player, frames  # noqa: E402
from rclpy.qos import QoSProfile  # noqa: E402

from edgefirst_ros import Dataset  # noqa: E402
from edgefirst_ros.dataset.validate import validate  # noqa: E402

Start = Callable[..., Any]
TOPICS = {
    "/radar/cube": "edgefirst_msgs/RadarCube",
    "/lidar/points": "sensor_msgs/PointCloud2",
    "/camera/info": "sensor_msgs/CameraInfo",
    "/tf_static": "geometry_msgs/TransformStamped",
    "/model/output": "edgefirst_msgs/Model",
    "/imu": "sensor_msgs/Imu",
}
CDR = b"\0\1\0\0"
HUGE = struct.pack("<I", 0xFFFFFFFF)
MESSAGES = [
    CDR,
    CDR + bytes(4),
    b"\xff" * 64,
    b"\0\7\0\0" + bytes(64),
    CDR + HUGE * 64,
    CDR + bytes(8) + struct.pack("<I", 1) + b"\0" * 4 + HUGE * 8,
    CDR + bytes(6 << 20),
    *(CDR + random.Random(n).randbytes(300) for n in range(8)),
]
"""As CDR: cut, of another kind, lengths that lie, large and empty, noise."""
FLOOD = 20
LARGEST = 1 << 30


def memory_of(process: Any) -> int:
    """Largest memory of a process so far, bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def test_wrong_messages_and_a_flood_of_topics(capture: Start, bench: Bench, recording: Any) -> None:
    path = recording(seconds=2, topics=["camera", "gps"], **SMALL)
    camera = Player(bench, path)
    qos = QoSProfile(depth=100)
    hostile = {
        topic: bench.node.create_publisher(
            getattr(importlib.import_module(f"{kind.partition('/')[0]}.msg"), kind.partition("/")[2]), topic, qos
        )
        for topic, kind in TOPICS.items()
    }
    video = importlib.import_module("foxglove_msgs.msg").CompressedVideo
    flood = [bench.node.create_publisher(video, f"/h{n}/camera/h264", 1) for n in range(FLOOD)]
    node = capture(sequence="told")
    camera.ready()
    node.until(lambda facts: hostile.keys() <= facts.get("topics", {}).keys())
    camera.play(end=0.5)
    node.has_received(camera.sent)
    for message in MESSAGES:
        for publisher in hostile.values():
            publisher.publish(message)
    camera.play(begin=0.5)
    sent = dict.fromkeys(hostile, len(MESSAGES))
    node.has_received(camera.sent | sent)
    assert memory_of(node.process.process) < LARGEST
    node.finish(code=3)  # messages of sensors were lost
    counts = node.counts("told")
    for topic, number in sent.items():
        assert (counts[topic]["seen"], counts[topic]["written"]) == (number, 0), topic
        assert counts[topic]["dropped"]["undecodable"] >= number - 1, topic  # zeros are a message
    assert len(frames(node.out / "told.frames.arrow")) == camera.sent[CAMERA]
    assert validate(node.out / "told.zip").ok
    assert len(Dataset(node.out / "told.zip")) == camera.sent[CAMERA]
    assert not [topic for topic in counts if topic.startswith("/h")], f"{len(flood)} topics of no part"
