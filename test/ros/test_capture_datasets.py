# SPDX-License-Identifier: Apache-2.0
"""The capture node among publishers that come, go and differ; in other processes, over real ROS 2."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import (  # noqa: E402
    ALONE,
    CAMERA,
    FEW,
    PATIENT,
    Bench,
    Player,
    adds_up,
    assert_same_dataset,
    frames,
    members,
    received,
)
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from test_encodings import as_ffmpeg_packet, wrapped  # noqa: E402

from edgefirst_ros import convert  # noqa: E402

Start = Callable[..., Any]


def test_late_join_in_mid_gop(capture: Start, bench: Bench, recording: Any) -> None:
    """The camera runs already: what comes before its next keyframe is counted, the rest is written."""
    player = Player(bench, recording(seconds=3, **ALONE), volatile=True)
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


def test_publishers_come_and_go(capture: Start, bench: Bench, recording: Any) -> None:
    """The next one begins with a keyframe and is written whole, and nothing counts as lost on the way between them.

    The last one is of best effort: a reliable subscription would never hear it.
    """
    path = recording(seconds=3, **ALONE)
    first = Player(bench, path, volatile=True)
    node = capture(sequence="again")
    first.ready()
    first.play(end=1.3)  # in mid-GOP
    node.has_received(first.sent)
    first.close()
    node.until(lambda facts: facts["recording"])
    second = Player(bench, path, volatile=True)
    second.ready()
    second.play(begin=1.48, end=2.48)  # 1.5 s are 45 pictures, three groups
    sent = first.sent[CAMERA] + second.sent[CAMERA]
    facts = node.has_received({CAMERA: sent})
    assert facts["topics"][CAMERA]["lost"] == 0
    assert facts["topics"][CAMERA]["reliable"]
    third = Player(bench, path, reliability="best_effort")
    third.ready()
    third.play(begin=2.48)
    everything = sent + third.sent[CAMERA]
    facts = node.until(lambda facts: facts["topics"][CAMERA]["received"] > sent)
    assert not facts["topics"][CAMERA]["reliable"]
    facts = node.has_heard({CAMERA: everything})
    node.finish(code=3 if facts["topics"][CAMERA]["lost"] else 0)
    count = node.counts("again")[CAMERA]
    assert adds_up(count)
    assert count["written"] >= sent
    if facts["topics"][CAMERA]["received"] == everything == 84:  # best effort may lose some
        assert count == {"seen": everything, "written": everything, "dropped": {}}


@pytest.mark.parametrize(
    ("prefix", "reliability", "simulated"), [("/maivin_1", "best_effort", False), ("/rt/maivin_1", "reliable", True)]
)
def test_names_reliability_and_simulated_time(
    prefix: str, reliability: str, simulated: bool, capture: Start, bench: Bench, recording: Any, tmp_path: Path
) -> None:
    """Topics have a prefix; they are heard as reliably as they are sent; stamps are the messages' own whatever /clock
    says, and with and without it the node goes on. The dataset is that of the conversion.
    """
    path = recording(seconds=2, **FEW)
    topics = [CAMERA, "/radar/targets", "/gps", "/imu"]
    player = Player(bench, path, names={topic: prefix + topic for topic in topics}, reliability=reliability)
    node = capture(sequence=path.stem, use_sim_time=simulated, **PATIENT)
    player.ready()  # without /clock so far
    if simulated:
        clock = bench.node.create_publisher(Clock, "/clock", 10)
        timer = bench.node.create_timer(0.05, lambda: clock.publish(Clock()))
    player.play()
    facts = node.has_received(player.sent) if reliability == "reliable" else node.has_heard(player.sent)
    assert {state["reliable"] for state in facts["topics"].values()} == {reliability == "reliable"}
    if simulated:
        bench.diagnostics.clear()
        bench.told("capture: dataset", lambda status: status.message.startswith("recording"))
        bench.node.destroy_timer(timer)
    whole = received(facts, player.sent) == player.sent
    lost = bool(sum(state["lost"] for state in facts["topics"].values()))
    node.finish(code=3 if lost else 0)
    assert adds_up(node.counts(path.stem)[prefix + CAMERA])
    assert frames(node.out / f"{path.stem}.frames.arrow").height > 20
    if whole:  # best effort may lose some where the machine is busy
        convert(path, tmp_path / "offline", **PATIENT)
        assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def test_another_definition_of_a_type_is_named(
    capture: Start, start: Start, bench: Bench, recording: Any, newer_types: dict[str, str]
) -> None:
    """Its messages never come; the log and the diagnostics say so, and the others are written."""
    talker = start(Path(__file__).parent / "newer_talker.py", **newer_types)
    player = Player(bench, recording(seconds=2, **FEW))
    node = capture(sequence="types")
    player.ready()
    says = (
        "/newer_talker uses another definition of edgefirst_msgs/msg/ModelInfo"  # its name may be known a little later
    )
    facts = node.until(lambda facts: says in facts.get("topics", {}).get("/model/info", {}).get("fault", ""))
    fault = facts["topics"]["/model/info"]["fault"]
    assert fault.count("RIHS01_") == 2
    assert f"/model/info: {fault}" in node.process.log
    player.play()
    node.has_received(player.sent)
    told = bench.told("capture: /model/info", lambda status: status.message == fault)
    assert told.level == DiagnosticStatus.ERROR
    told = bench.told("capture: dataset", lambda status: "something is wrong with" in status.message)
    assert "/model/info" in told.message
    assert told.level == DiagnosticStatus.WARN
    assert talker.process.poll() is None
    node.finish()
    assert node.counts("types")[CAMERA] == {"seen": 60, "written": 60, "dropped": {}}


@pytest.mark.parametrize("step", [-1.5])
def test_clock_steps(step: float, capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """The device's clock is set while it runs: another segment, and every frame keeps its companions."""
    path = recording(seconds=3, clock_steps=[(1.5, round(step * 1e9))], **FEW)
    player = Player(bench, path)
    node = capture(sequence=path.stem, time_base="header", **PATIENT)
    player.ready()
    # Topics have no order among them; only a frame tells that the clock was set, and no companion is to overtake it.
    parts = [0.0, player.when(CAMERA, 45), player.when(CAMERA, 46), 1e9]
    for begin, end in itertools.pairwise(parts):
        player.play(begin, end, steady=True)
        node.has_received(player.sent)
    node.finish()
    rows = frames(node.out / f"{path.stem}.frames.arrow")
    assert rows["segment"].unique().sort().to_list() == [0, 1]
    assert rows.height == 90
    convert(path, tmp_path / "offline", time_base="header", **PATIENT)
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def test_video_in_ffmpeg_packets_is_what_a_conversion_makes(
    capture: Start, bench: Bench, recording: Any, tmp_path: Path
) -> None:
    pytest.importorskip("ffmpeg_image_transport_msgs", reason="no FFMPEGPacket: see test/ros_environment.py")
    path = wrapped(tmp_path / "packets.mcap", recording(seconds=2, **ALONE), as_ffmpeg_packet)
    player = Player(bench, path)
    node = capture(sequence=path.stem, **PATIENT)
    player.ready()
    player.play()
    node.has_received(player.sent)
    node.finish()
    convert(path, tmp_path / "offline", **PATIENT)
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)
    assert frames(node.out / f"{path.stem}.frames.arrow").height == 60


def test_two_cameras_are_two_nodes(capture: Start, bench: Bench, recording: Any, tmp_path: Path) -> None:
    """One by its namespace, one by remapping; the radar and the position are common to both."""
    one, other = recording(seconds=2, **FEW), recording(seconds=2, seed=1, **{**FEW, "size": (256, 128)})
    front = Player(bench, one, names={CAMERA: "/front/camera/h264"})
    rear = Player(bench, other, [CAMERA], names={CAMERA: "/rear/video"})
    first = capture(name="/front/capture", ros=("-r", "__ns:=/front"), sequence=one.stem, **PATIENT)
    renaming = ("-r", "__node:=rear_capture", "-r", "camera/h264:=/rear/video")
    second = capture(name="/rear_capture", ros=renaming, sequence="rear", **PATIENT)
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
    convert(one, tmp_path / "offline", **PATIENT)
    assert_same_dataset(first.out, tmp_path / "offline", one.stem)
    rows = frames(second.out / "rear.frames.arrow")
    assert rows.height == 60
    assert rows["size"].to_list() == [[256, 128]] * 60
    assert rows["radar_targets_timestamp"].is_not_null().all()
    assert "rear/rear_000.camera.jpeg" in members(second.out / "rear.zip")
