# SPDX-License-Identifier: Apache-2.0
"""The player in a process of its own: what it publishes is what the recording holds, at the recorded pace."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcap.writer import Writer

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from hearing import Listener, content, none_early, ordered_part, same  # noqa: E402
from rclpy.qos import DurabilityPolicy, ReliabilityPolicy  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from waiting import LONG, spin_until, wait_printed  # noqa: E402

from edgefirst_ros import convert  # noqa: E402
from edgefirst_ros.errors import EdgeFirstError, RecordingError, UsageError  # noqa: E402
from edgefirst_ros.nodes import player  # noqa: E402
from edgefirst_ros.nodes.dataset_messages import open_playable  # noqa: E402
from edgefirst_ros.nodes.play import make_ros_name  # noqa: E402
from edgefirst_ros.nodes.player import find_message_type, make_profile  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
SECOND = 1_000_000_000
SMALL = {"seconds": 3, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "foreign_channel": True}
IMU = {"seconds": 1, "topics": ("imu", "gps")}


@pytest.fixture
def listener(ros_domain: int) -> Iterator[Listener]:
    made = Listener()
    yield made
    made.node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def play(start: Callable[..., Any]) -> Callable[..., Any]:
    """Function that starts the player with parameters."""

    def begin(**parameters: object) -> Any:
        given = [f"{name}:={value}" for name, value in parameters.items()]
        arguments = [word for one in given for word in ("-p", one)]
        paths = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        return start("-m", "edgefirst_ros", "play", "--ros-args", *arguments, PYTHONPATH=paths)

    return begin


def finish(listener: Listener, node: Any, heard: Callable[[], object]) -> None:
    """Listen until everything is played and heard; the player waits for the latter too, which a signal cuts short."""
    ended = lambda: node.process.poll() is not None  # noqa: E731
    spin_until(listener.node, lambda: ended() or ("played to the end" in node.log and heard()))
    if not ended():
        node.process.send_signal(signal.SIGINT)
    assert node.wait() == 0, node.log


# ---- what is published -------------------------------------------------------------------------
@pytest.mark.parametrize(("reliability", "rate"), [("reliable", 1.0), ("best_effort", 4.0)])
def test_every_message_arrives_as_it_is_in_order_and_in_time(
    reliability: str, rate: float, listener: Listener, play: Callable[..., Any], recording: Callable[..., Path]
) -> None:
    path = recording(**SMALL)
    expected: dict[str, list[bytes]] = {}
    times: list[int] = []
    for topic, kind, log_time, data in content(path):
        if topic not in expected:
            listener.hear(topic, find_message_type(kind), reliability)
        expected.setdefault(topic, []).append(data)
        if topic == "/imu":
            times.append(log_time)
    began = time.monotonic()
    node = play(recording=path, rate=rate, wait_for_subscribers=len(expected), wait_timeout=LONG)
    spin_until(listener.node, lambda: node.process.poll() is not None)
    assert node.process.returncode == 0, node.log
    assert len(expected) > 9
    recorded = (np.array(times) - times[0]) / SECOND
    if reliability == "reliable":
        for topic, sent in expected.items():
            assert same(listener.bytes(topic), sent), topic
        assert none_early([at for at, _ in listener.got["/imu"]], recorded / rate, began)
    else:  # which may lose some where the machine is busy
        for topic, sent in expected.items():
            assert ordered_part(listener.bytes(topic), sent), topic
        assert any(listener.got.values())
    assert "/clock_step is not published, 3 messages: its encoding is json, not cdr" in node.log
    assert f"played to the end: {sum(map(len, expected.values()))} messages" in node.log
    took = float(re.search(r"topics in ([0-9.]+) s", node.log)[1])  # type: ignore[index]
    assert took >= 0.95 * recorded[-1] / rate


def test_a_dataset_is_played_as_messages_of_ros(
    listener: Listener, play: Callable[..., Any], recording: Callable[..., Path], tmp_path: Path
) -> None:
    path = convert(recording(**{**SMALL, "seconds": 1}), tmp_path).paths.container
    played = open_playable(path)
    assert [*played.walk()]
    expected: dict[str, list[bytes]] = {}
    for message in played.iter_messages():
        if message.topic not in expected:
            listener.hear(message.topic, find_message_type(message.schema))
        expected.setdefault(message.topic, []).append(message.data)
    node = play(recording=path, wait_for_subscribers=len(expected), wait_timeout=LONG)
    finish(listener, node, lambda: all(len(listener.got[topic]) >= len(sent) for topic, sent in expected.items()))
    assert set(expected) >= {"/camera/jpeg", "/radar/cube", "/lidar/points", "/gps", "/imu", "/model/boxes2d"}
    for topic, sent in expected.items():
        assert same(listener.bytes(topic), sent), topic


def test_the_part_asked_for_of_the_topics_asked_for(
    listener: Listener, play: Callable[..., Any], recording: Callable[..., Path]
) -> None:
    path = recording(seconds=2, topics=("imu", "gps"), prefix="/maivin-7/")
    everything = content(path)
    begin = everything[0][2] + SECOND // 2
    wanted = [data for topic, _, at, data in everything if topic.endswith("imu") and begin <= at < begin + SECOND]
    for topic, kind in {(make_ros_name(topic), kind) for topic, kind, _, _ in everything}:
        listener.hear(f"/{topic}", find_message_type(kind))
    node = play(recording=path, rate=5, start=0.5, duration=1.0, topics="['imu']")
    finish(listener, node, lambda: len(listener.got["/maivin_7/imu"]) >= len(wanted))
    assert same(listener.bytes("/maivin_7/imu"), wanted)
    assert len(wanted) > 20
    assert listener.bytes("/maivin_7/gps") == []
    assert "/maivin-7/imu is published as /maivin_7/imu" in node.log


def test_loop_diagnostics_and_late_subscribers(
    listener: Listener, play: Callable[..., Any], recording: Callable[..., Path]
) -> None:
    path = recording(**IMU)
    once = [data for topic, _, _, data in content(path) if topic == "/imu"]
    told: list[DiagnosticArray] = []
    listener.node.create_subscription(DiagnosticArray, "/diagnostics", told.append, 10)
    node = play(recording=path, rate=4, loop="true", topics="['/imu']", wait_timeout=LONG)
    spin_until(listener.node, lambda: told and told[-1].status[0].message == "waiting for subscribers")
    began = time.monotonic()
    listener.hear("/imu", find_message_type("sensor_msgs/msg/Imu"))
    spin_until(listener.node, lambda: len(listener.got["/imu"]) > 8 * len(once))
    spin_until(listener.node, lambda: "playing" in told[-1].status[0].message)
    assert node.stop(signal.SIGINT) == 0
    got = listener.bytes("/imu")
    assert same(got, (once * (len(got) // len(once) + 1))[: len(got)])
    at, _ = zip(*listener.got["/imu"], strict=True)
    passes = np.array(at[: len(at) // len(once) * len(once) : len(once)])  # the first message of each
    assert none_early(passes, np.arange(len(passes)) * 0.95 / 4, began)  # the last message of a second comes before it
    assert {array.status[0].hardware_id for array in told} == {socket.gethostname()}
    values = {pair.key: pair.value for pair in told[-1].status[0].values}
    assert values["rate"] == "4"
    assert int(values["passes"]) >= 1
    assert told[0].status[0].message == "waiting for subscribers" or told[0].status[0].message.startswith("reading")


def test_the_clock_is_that_of_the_recording(
    listener: Listener, play: Callable[..., Any], recording: Callable[..., Path]
) -> None:
    path = recording(**IMU)
    begin = content(path)[0][2]
    times = [at for topic, _, at, _ in content(path) if topic == "/gps"]
    seen: list[tuple[float, int]] = []
    listener.node.create_subscription(
        Clock, "/clock", lambda m: seen.append((time.monotonic(), m.clock.sec * SECOND + m.clock.nanosec)), 100
    )
    listener.hear("/gps", find_message_type("sensor_msgs/msg/NavSatFix"))
    began = time.monotonic()
    node = play(recording=path, clock="true", topics="['gps']")
    finish(listener, node, lambda: len(listener.got["/gps"]) >= len(times))
    at, shown = map(np.array, zip(*seen, strict=True))
    assert set(shown.tolist()) - set(times)  # it runs on between messages
    assert (np.diff(shown) >= 0).all()
    assert shown[0] >= begin
    assert shown[-1] <= times[-1]
    assert none_early(at, (shown - begin) / SECOND, began)


def test_a_recording_that_was_cut_is_played_up_to_there(
    listener: Listener, play: Callable[..., Any], recording: Callable[..., Path], tmp_path: Path
) -> None:
    whole = recording(**IMU, chunk_size=4096)
    sent = [data for topic, _, _, data in content(whole) if topic == "/imu"]
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole.read_bytes()[:20_000])
    listener.hear("/imu", find_message_type("sensor_msgs/msg/Imu"))
    node = play(recording=cut, rate=10)
    finish(listener, node, lambda: len(listener.got["/imu"]) > 10)
    got = listener.bytes("/imu")
    assert 10 < len(got) < len(sent)
    assert same(got, sent[: len(got)])
    assert "cut.mcap: damage at byte" in node.log


def test_what_cannot_be_published_is_said(listener: Listener, play: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "strange.mcap"
    known, missing = "std_msgs/msg/Header", "tf2_msgs/msg/TFMessage"
    types = {"/fine": known, "/tf": missing, "/newer": "sensor_msgs/msg/Smell", "/evil": "os/msg/path"}
    with path.open("wb") as file:
        writer = Writer(file)
        writer.start()
        for topic, kind in types.items():
            channel = writer.register_channel(topic, "cdr", writer.register_schema(kind, "ros2msg", b""))
            for n in range(3):
                writer.add_message(channel, SECOND + n, bytes([0, 1, 0, 0, n, *range(11)]), SECOND)
        writer.finish()
    listener.hear("/fine", find_message_type(known))
    node = play(recording=path)
    finish(listener, node, lambda: len(listener.got["/fine"]) >= 3)
    assert [data[4] for data in listener.bytes("/fine")] == [0, 1, 2]
    assert "/tf is not published, 3 messages: no package tf2_msgs here" in node.log
    assert "/newer is not published, 3 messages: the package sensor_msgs here has no type Smell" in node.log
    assert "/evil is not published, 3 messages: " in node.log


# ---- how it ends -------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_cleanly(
    number: signal.Signals, play: Callable[..., Any], recording: Callable[..., Path]
) -> None:
    node = play(recording=recording(**IMU), rate=0.01, wait_for_subscribers=0)
    wait_printed(node, "playing")
    assert node.stop(number) == 0, node.log
    assert f"stopped by {number.name}" in node.log
    assert "Traceback" not in node.log


@pytest.mark.parametrize(("parameter", "code"), [("rate:=0.0", 2), ("recording:=/nowhere/drive.mcap", 1)])
def test_errors_become_exit_codes(parameter: str, code: int, start: Callable[..., Any]) -> None:
    node = start("-m", "edgefirst_ros", "play", "--ros-args", "-p", parameter, PYTHONPATH=str(ROOT))
    assert node.wait() == code
    assert f"edgefirst-ros: {'/player: rate' if code == 2 else '/nowhere/drive.mcap: no such file'}" in node.log
    assert "Traceback" not in node.log


@pytest.fixture
def run(ros_domain: int) -> Iterator[Callable[..., int]]:
    """Runs the node in this process."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield lambda *arguments: player.main(["--ros-args", *arguments])
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("rate:=0.0", "rate: expected a number at least 0.01, at most 100, got 0.0"),
        ("rate:=-1.0", "rate: expected a number at least 0.01, at most 100, got -1.0"),
        ("rate:=fast", "rate: expected a number at least 0.01, at most 100, got 'fast'"),
        ("loop:=1", "loop: expected true or false, got 1"),
        ("start:=-1.0", "start: expected a number at least 0, at most 1000000 s, got -1.0"),
        ("start:=99.0", "start: 99 s is after the end"),
        ("duration:=-2.0", "duration: expected a number above 0, at most 1000000 s; unset: 0.0, got -2.0"),
        ("topics:=imu", "topics: expected a list of texts"),
        ("topics:=['lidar/points']", "topics: 'lidar/points' is not in the recording; it has /gps, /imu"),
        ("wait_for_subscribers:=-1", "wait_for_subscribers: expected a whole number at least 0, at most 1000, got -1"),
        ("wait_timeout:=-1.0", "wait_timeout: expected a number at least 0, at most 3600 s, got -1.0"),
        ("recordin:=x", "unknown parameter 'recordin'; did you mean 'recording'"),
        (
            "qqqq:=1",
            "unknown parameter 'qqqq'; expected recording, rate, loop, clock, start, duration, topics, wait_for",
        ),
        ("recording:=''", "recording is not set"),
    ],
)
def test_a_bad_parameter_is_named(
    given: str, says: str, run: Callable[..., int], recording: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError) as caught:
        run("-p", f"recording:={recording(**IMU)}", "-p", given)
    assert says in str(caught.value)


@pytest.mark.parametrize("arguments", [("-r", "__ns:=/bad-ns"), ("-p", "recording"), ("--unknown",)])
def test_bad_arguments_are_no_traceback(arguments: tuple[str, ...], run: Callable[..., int]) -> None:
    with pytest.raises(UsageError, match="ROS arguments"):
        run(*arguments)


def test_what_is_no_argument_of_ros_is_refused(run: Callable[..., int]) -> None:
    with pytest.raises(UsageError, match=r"'drive.mcap'"):
        run("-p", "rate:=2.0", "--", "drive.mcap")


@pytest.mark.parametrize(
    ("data", "says"),
    [(b"", "is empty"), (b"PK\3\4 and more of it", "not with the MCAP magic"), (b"\x89MCAP0\r\n", "it has no message")],
)
def test_a_bad_recording_is_named(data: bytes, says: str, run: Callable[..., int], tmp_path: Path) -> None:
    path = tmp_path / "bad.mcap"
    path.write_bytes(data)
    with pytest.raises(RecordingError, match=says) as caught:
        run("-p", f"recording:={path}")
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 1


def test_nothing_to_publish_is_an_error(run: Callable[..., int], recording: Callable[..., Path]) -> None:
    path = recording(seconds=1, topics=("imu",), foreign_channel=True)
    with pytest.raises(EdgeFirstError, match=r"no message can be published; /clock_step: .* json"):
        run("-p", f"recording:={path}", "-p", "topics:=['clock_step']")


# ---- names, types, quality of service ----------------------------------------------------------
@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("/camera/h264", "camera/h264"),
        ("rt/camera/h264", "camera/h264"),
        ("/rt/imu", "imu"),
        ("/maivin-7/imu", "maivin_7/imu"),
        ("/2024 drive//imu/", "_2024_drive/imu"),
        ("/größe/~x{y}", "gr__e/_x_y_"),
        ("", "_"),
    ],
)
def test_names_are_those_of_ros(topic: str, name: str, listener: Listener) -> None:
    assert make_ros_name(topic) == name
    publisher = listener.node.create_publisher(find_message_type("std_msgs/msg/Header"), name, 1)
    assert publisher.topic_name == f"/{name}"


@pytest.mark.parametrize(
    "schema", ["", "Imu", "os/msg/path", "antigravity/msg/Fly", "sensor_msgs.msg/msg/Imu", "a/b/C"]
)
def test_what_is_no_message_is_not_imported(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.import_module", lambda name: pytest.fail(f"{name} is imported"))
    with pytest.raises(LookupError):
        find_message_type(schema)


def test_only_transforms_of_tf2_are_kept_for_those_who_come_late() -> None:
    kept = {
        kind: make_profile(kind).durability for kind in ("tf2_msgs/msg/TFMessage", "geometry_msgs/msg/TransformStamped")
    }
    assert list(kept.values()) == [DurabilityPolicy.TRANSIENT_LOCAL, DurabilityPolicy.VOLATILE]
    assert make_profile("sensor_msgs/msg/Imu").reliability == ReliabilityPolicy.RELIABLE
