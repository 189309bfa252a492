# SPDX-License-Identifier: Apache-2.0
"""Nodes that meet what they do not expect: a callback that fails, topics of several faults, time that stands still."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import SMALL, Bench, Player, frames  # noqa: E402
from mcap.writer import Writer  # noqa: E402

FAILING = """
import sys
from edgefirst_ros.nodes import capture

def fail(node):
    if node.service.session.status().get("samples", 0) > 20:
        raise RuntimeError("surprise")

capture.CaptureNode._diagnose = fail
sys.exit(capture.main(sys.argv[1:]))
"""


def test_a_callback_that_fails_ends_the_node_with_a_complete_dataset(
    start: Callable[..., Any], bench: Bench, recording: Any, tmp_path: Path
) -> None:
    player = Player(bench, recording(seconds=3, topics=["camera"], **SMALL))
    out = tmp_path / "out"
    node = start("-c", FAILING, "--ros-args", "-p", f"out:={out}", "-p", "fsync:=false", "-p", "sequence:=failed")
    player.ready()
    player.play()
    assert node.wait() == 1
    assert "RuntimeError: surprise" in node.log
    assert frames(out / "failed.frames.arrow").height > 20
    assert not list(out.glob("*.partial"))


def test_topics_that_cannot_be_played_for_different_reasons(start: Callable[..., Any], tmp_path: Path) -> None:
    """One is a warning and one is not; a logger does not take both from one place."""
    path = tmp_path / "two.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        lacking = "/tf", "cdr", "no_such_msgs/msg/Thing"
        for topic, encoding, kind in (("/fine", "cdr", "std_msgs/msg/Header"), lacking, ("/text", "json", "")):
            channel = writer.register_channel(topic, encoding, writer.register_schema(kind, "ros2msg", b""))
            writer.add_message(channel, 10**9, bytes([0, 1, 0, 0, *range(12)]), 10**9)
        writer.finish()
    arguments = "-p", f"recording:={path}", "-p", "wait_for_subscribers:=0"
    node = start("-m", "edgefirst_ros", "play", "--ros-args", *arguments)
    assert node.wait() == 0, node.log
    assert "/tf is not published, 1 message: no package no_such_msgs here" in node.log
    assert "/text is not published, 1 message: its encoding is json, not cdr" in node.log


def test_a_replay_tells_its_progress_while_ros_time_stands_still(
    start: Callable[..., Any], bench: Bench, recording: Any, tmp_path: Path
) -> None:
    path = recording(seconds=10, size=(640, 360), topics=["camera"])
    names = [str(tmp_path / f"drive{number}.mcap") for number in range(100)]  # more than it can convert meanwhile
    for name in names:
        os.link(path, name)
    slow = "-p", "use_sim_time:=true", "-p", "camera_format:=png", "-p", "jobs:=1"
    arguments = "-p", f"recordings:={json.dumps(names)}", "-p", f"out:={tmp_path / 'out'}"
    node = start("-m", "edgefirst_ros", "replay", "--ros-args", *arguments, *slow)
    told: set[str] = set()
    while len(told) <= 2:
        status = bench.told("replay: conversion", lambda status: status.message not in told)
        told.add(status.message)
    assert node.stop() in (0, 128 + signal.SIGINT), node.log
