# SPDX-License-Identifier: Apache-2.0
"""The capture node among publishers that come, go and differ; in other processes, over real ROS 2."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import SMALL, Bench, Player, adds_up, assert_same_dataset, frames, members  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402

from edgefirst_ros import convert  # noqa: E402

CAMERA = "/camera/h264"
FEW = {"topics": ["camera", "radar/targets", "gps", "imu"], **SMALL}
ALONE = {"topics": ["camera"], **SMALL}

Start = Callable[..., Any]


def test_late_join_in_mid_gop(capture: Start, bench: Bench, recording: Any) -> None:
    """The camera runs already: what comes before its next keyframe is counted, the rest is written."""
    player = Player(bench, recording(seconds=3, **ALONE))
    begun = 8  # of a group of 15
    for message in player.messages[:begun]:
        player._publishers[CAMERA].publish(message.data)
    node = capture(sequence="late")
    player.ready()
    player.play(begin=(begun - 0.5) / 30)
    node.has_received(player.sent)
    node.finish()
    count = node.counts("late")[CAMERA]
    assert adds_up(count)
    assert count["seen"] == player.sent[CAMERA] == 90 - begun
    assert count["dropped"] == {"before the first keyframe": 15 - begun}
    assert frames(node.out / "late.frames.arrow")["frame"].to_list() == list(range(15 - begun, 90 - begun))


def test_publisher_restarts(capture: Start, bench: Bench, recording: Any) -> None:
    """In mid-GOP; the new one begins with a keyframe and is written whole, and nothing counts as lost on the way."""
    path = recording(seconds=3, **ALONE)
    first = Player(bench, path)
    node = capture(sequence="again")
    first.ready()
    first.play(end=1.3)
    node.has_received(first.sent)
    first.close()
    node.until(lambda facts: facts["recording"])
    second = Player(bench, path)
    second.ready()
    second.play(begin=1.48)  # 1.5 s are 45 pictures, three groups
    sent = first.sent[CAMERA] + second.sent[CAMERA]
    facts = node.has_received({CAMERA: sent})
    assert facts["topics"][CAMERA]["lost"] == 0
    node.finish()
    count = node.counts("again")[CAMERA]
    assert count == {"seen": sent, "written": sent, "dropped": {}}


def test_topics_appear_late_and_vanish(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """GPS comes after a second, the radar goes after two; lidar and cube never come, and that is no trouble."""
    path = recording(seconds=4, **FEW)
    player = Player(bench, path)
    radar = Player(bench, path, ["/radar/targets"])
    player.close("/gps", "/radar/targets")
    node = capture(sequence="parts")
    player.ready()
    radar.ready()
    late = Player(bench, path, ["/gps"])
    start = time.monotonic()
    first = player.messages[0].log_time
    for message in player.messages:
        at = (message.log_time - first) / 1e9
        time.sleep(max(0.0, start + at - time.monotonic()))
        if message.topic == "/gps":
            if at >= 1.0:
                late._publishers["/gps"].publish(message.data)
        elif message.topic == "/radar/targets":
            if at < 2.0:
                radar._publishers["/radar/targets"].publish(message.data)
            elif radar._publishers:
                radar.close()
        else:
            player._publishers[message.topic].publish(message.data)
    camera = sum(message.topic == CAMERA for message in player.messages)
    node.has_received({CAMERA: camera})
    node.finish()
    rows = frames(node.out / "parts.frames.arrow").with_columns(at=(pl.col("timestamp") - pl.col("timestamp").min()))
    assert node.counts("parts")[CAMERA] == {"seen": camera, "written": camera, "dropped": {}}
    early, middle, end = (rows.filter((pl.col("at") > a * 1e9) & (pl.col("at") < b * 1e9))
                          for a, b in ((0.2, 0.8), (1.3, 1.7), (2.3, 3.7)))  # fmt: skip
    assert early["latitude"].is_null().all()
    assert early["radar_targets_timestamp"].is_not_null().all()
    assert middle["latitude"].is_not_null().all()
    assert end["radar_targets_timestamp"].is_null().all()
    assert end["latitude"].is_not_null().all()
    assert rows["lidar_points_timestamp"].is_null().all()


@pytest.mark.parametrize("reliability", ["best_effort", "reliable"])
def test_reliability_is_the_publishers(
    reliability: str, capture: Start, bench: Bench, recording: Any, tmp_path: Path
) -> None:
    path = recording(seconds=2, **FEW)
    player = Player(bench, path, reliability=reliability)
    node = capture(sequence=path.stem)
    player.ready()
    player.play()
    facts = node.has_received(player.sent)
    assert {state["reliable"] for state in facts["topics"].values()} == {reliability == "reliable"}
    node.finish()
    convert(path, tmp_path / "offline")
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def test_a_best_effort_publisher_comes_later(capture: Start, bench: Bench, recording: Any) -> None:
    """A reliable subscription would never hear it."""
    path = recording(seconds=2, **ALONE)
    reliable = Player(bench, path)
    node = capture()
    reliable.ready()
    reliable.play(end=0.48)
    facts = node.has_received(reliable.sent)
    assert facts["topics"][CAMERA]["reliable"]
    other = Player(bench, path, reliability="best_effort")
    other.ready()
    other.play(begin=0.48)
    node.has_received({CAMERA: 60})
    assert not node.status()["topics"][CAMERA]["reliable"]
    node.finish()


def test_another_definition_of_a_type_is_named(
    capture: Start, start: Start, bench: Bench, recording: Any, newer_types: dict[str, str]
) -> None:
    """Its messages never come; the log and the diagnostics say so, and the others are written."""
    talker = start(Path(__file__).parent / "newer_talker.py", **newer_types)
    player = Player(bench, recording(seconds=2, **FEW))
    node = capture(sequence="types")
    player.ready()
    facts = node.until(lambda facts: facts.get("topics", {}).get("/model/info", {}).get("fault"))
    fault = facts["topics"]["/model/info"]["fault"]
    assert "/newer_talker uses another definition of edgefirst_msgs/msg/ModelInfo" in fault
    assert fault.count("RIHS01_") == 2
    assert f"/model/info: {fault}" in node.process.log
    player.play()
    node.has_received(player.sent)
    seen = bench.statuses("capture: /model/info")
    assert seen[-1].level == DiagnosticStatus.ERROR
    assert seen[-1].message == fault
    assert bench.statuses("capture: dataset")[-1].level == DiagnosticStatus.WARN
    assert talker.process.poll() is None
    node.finish()
    assert node.counts("types")[CAMERA] == {"seen": 60, "written": 60, "dropped": {}}


@pytest.mark.parametrize("step", [20.0, -1.5])
def test_clock_steps(step: float, capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """The device's clock is set while it runs: another segment, and every frame keeps its companions."""
    path = recording(seconds=3, clock_steps=[(1.5, round(step * 1e9))], **FEW)
    player = Player(bench, path)
    node = capture(sequence=path.stem, time_base="header")
    player.ready()
    player.play(steady=True)
    node.has_received(player.sent)
    node.finish()
    rows = frames(node.out / f"{path.stem}.frames.arrow")
    assert rows["segment"].unique().sort().to_list() == [0, 1]
    assert rows.height == 90
    convert(path, tmp_path / "offline", time_base="header")
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def test_simulated_time(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """Stamps are the messages' own whatever /clock says; with and without it the node goes on."""
    path = recording(seconds=2, **FEW)
    player = Player(bench, path)
    node = capture(sequence=path.stem, use_sim_time=True)
    player.ready()  # without /clock so far
    clock = bench.node.create_publisher(Clock, "/clock", 10)
    timer = bench.node.create_timer(0.05, lambda: clock.publish(Clock()))
    player.play()
    node.has_received(player.sent)
    assert bench.statuses("capture: dataset")
    bench.node.destroy_timer(timer)
    node.finish()
    convert(path, tmp_path / "offline")
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


@pytest.mark.parametrize("prefix", ["/maivin_1", "/rt/maivin_1"])
def test_prefixed_topics(prefix: str, capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    path = recording(seconds=1.5, **FEW)
    topics = [CAMERA, "/radar/targets", "/gps", "/imu"]
    player = Player(bench, path, names={topic: prefix + topic for topic in topics})
    node = capture(sequence=path.stem)
    player.ready()
    player.play()
    node.has_received(player.sent)
    node.finish()
    convert(path, tmp_path / "offline")
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def test_two_cameras_are_two_nodes(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """One by its namespace, one by remapping; the radar and the position are common to both."""
    one, other = recording(seconds=2, **FEW), recording(seconds=2, seed=1, **{**FEW, "size": (256, 128)})
    front = Player(bench, one, names={CAMERA: "/front/camera/h264"})
    rear = Player(bench, other, [CAMERA], names={CAMERA: "/rear/video"})
    first = capture(name="/front/capture", ros=("-r", "__ns:=/front"), sequence=one.stem)
    renaming = ("-r", "__node:=rear_capture", "-r", "camera/h264:=/rear/video")
    second = capture(name="/rear_capture", ros=renaming, sequence="rear")
    front.ready(without=[CAMERA], subscribers=2)
    front.ready()
    rear.ready()
    rear_thread = threading.Thread(target=rear.play)
    rear_thread.start()
    front.play()
    rear_thread.join()
    first.has_received(front.sent)
    second.has_received({**rear.sent, "/imu": front.sent["/imu"]})
    for node in (first, second):
        node.finish()
    convert(one, tmp_path / "offline")
    assert_same_dataset(first.out, tmp_path / "offline", one.stem)
    rows = frames(second.out / "rear.frames.arrow")
    assert rows.height == 60
    assert rows["size"].to_list() == [[256, 128]] * 60
    assert rows["radar_targets_timestamp"].is_not_null().all()
    assert "rear/rear_000.camera.jpeg" in members(second.out / "rear.zip")


def test_the_publisher_is_killed(capture: Start, start: Start, bench: Bench, recording: Any) -> None:
    """In mid-stream; the node says that nothing comes, and what came is a whole dataset."""
    path = recording(seconds=60, **{**ALONE, "size": (128, 64)})
    node = capture(sequence="killed")
    player = start("-m", "edgefirst_ros.cli", "play", "--ros-args", "-p", f"recording:={path}")
    node.until(lambda facts: facts.get("topics", {}).get(CAMERA, {}).get("received", 0) > 30)
    player.process.kill()
    player.process.wait()
    quiet = "nothing came for"
    deadline = time.monotonic() + 8
    while not any(quiet in status.message for status in bench.statuses(f"capture: {CAMERA}")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    received = node.status()["topics"][CAMERA]["received"]
    node.finish(signal.SIGTERM)
    assert node.counts("killed")[CAMERA] == {"seen": received, "written": received, "dropped": {}}
