# SPDX-License-Identifier: Apache-2.0
"""One capture, two front ends: whatever the bus, orders, status, settings, events and signals act alike."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import stat
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from bags import messages, together, write, write_two_of_each
from pose_recordings import POSE, add_messages, poses
from same_dataset import assert_same_dataset, frame_of, members, rows_by_frame

from edgefirst_ros import convert
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.synthetic import START, Recipe, write_recording

LONG = 120.0
"""s that something may take on a machine that is very busy."""
CAMERA = "/camera/h264"
RECIPE = {"seconds": 1.5, "size": (160, 96), "gop": 15, "topics": ("camera", "gps")}


def until(happened, process=None):
    deadline = time.monotonic() + LONG
    while not (found := happened()):
        assert time.monotonic() < deadline, "it did not happen"
        assert process is None or process.poll() is None, "the capture has ended"
        time.sleep(0.05)
    return found


IMPATIENT = """
from edgefirst_ros.cli import main
from edgefirst_ros.nodes import service
service.ASKING = 0.5
main()
"""
"""The command, which gives up sooner where nobody answers."""


class FrontEnd:
    """A capture as a process on its bus, and this process beside it."""

    def __init__(self, folder, start):
        self.out = folder / "live"
        self.log = folder / "log"
        self.events = []
        self._start = start

    def begin(self, path, unused=(), **settings):
        """`unused`: topics of the recording that the capture does not subscribe."""
        recording = McapRecording(path)
        for _ in recording.walk():
            pass
        self.messages = list(recording.iter_messages())
        self.topics = {(c.topic, c.schema) for c in recording.channels.values()}
        self.used = {topic for topic, _ in self.topics} - {*unused}
        settings = {"out": self.out, "min_free_bytes": 0, "stale_after": 1.0, "lookahead": 0.5, **settings}
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.process = self.command("capture", *given)
        until(self.status, self.process)

    def command(self, *arguments, code=None):
        return self._start([*arguments, *self.arguments()], self.log, code=code)

    def code(self):
        """Exit code that the status tells."""
        return self.status()["exit_code"]

    def control(self, verb, code=None):
        """Exit code of `control VERB`."""
        return self.command("control", verb, code=code).wait(LONG)

    def end(self, how):
        self.process.send_signal(how)
        return self.process.wait(LONG)


class Zenoh(FrontEnd):
    """On the device's bus, through a router in this process."""

    known_unused: ClassVar[list] = []  # services do not announce topics

    def __init__(self, folder, start):
        super().__init__(folder, start)
        zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")
        from zenoh_network import encoding_of, free_port, open_bus

        self._encoding = encoding_of
        self._endpoint = f"tcp/127.0.0.1:{free_port()}"
        self._router = open_bus("router", listen=self._endpoint)
        self._bus = open_bus("client", self._endpoint)
        heard = zenoh.handlers.Callback(lambda sample: self.events.append(sample.payload.to_string()), indirect=False)
        self._events = self._bus.declare_subscriber("car/capture/finished", heard)

    def arguments(self):
        return ["--zenoh", self._endpoint, "--namespace", "car"]

    def order(self, verb):
        replies = list(self._bus.get(f"car/capture/{verb}", timeout=LONG))
        return json.loads(replies[0].ok.payload.to_bytes()) if replies else None

    def status(self):
        return self.order("status")

    def publish(self):
        kinds = {topic: self._encoding(schema) for topic, schema in self.topics}
        made = {topic: self._bus.declare_publisher(f"rt{topic}", encoding=kind) for topic, kind in kinds.items()}
        until(lambda: all(made[topic].matching_status.matching for topic in self.used), self.process)
        return lambda message: made[message.topic].put(message.data), lambda: [one.undeclare() for one in made.values()]

    def close(self):
        self._bus.close()
        self._router.close()


class Ros(FrontEnd):
    """A ROS 2 node."""

    known_unused: ClassVar[list] = [("/radar/clusters", None)]

    def __init__(self, folder, start):
        super().__init__(folder, start)
        rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
        for package in ("edgefirst_msgs", "foxglove_msgs"):
            pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")
        from capturing import Bench
        from domains import Domains
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from std_msgs.msg import String

        self._domains, self._patch = Domains(), pytest.MonkeyPatch()
        self._domains.enter(self._patch)
        self._rclpy = rclpy
        rclpy.init()
        self._bench = Bench()
        self._kept = QoSProfile(depth=1000, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        heard = lambda message: self.events.append(message.data)  # noqa: E731
        self._bench.node.create_subscription(String, "/car/capture/finished", heard, self._kept)

    def arguments(self):
        return ["--ros-args", "-r", "__ns:=/car"]

    def order(self, verb):
        from std_srvs.srv import Trigger

        answer = self._bench.call(Trigger, f"/car/capture/{verb}", Trigger.Request())
        told = {"success": answer.success, "message": answer.message}
        return json.loads(answer.message) if verb == "status" else told

    def status(self):
        return self.order("status")

    def publish(self):
        import importlib

        made = {}
        for topic, schema in self.topics:
            package, _, name = schema.partition("/msg/")
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
            made[topic] = self._bench.node.create_publisher(kind, topic, self._kept)
        until(lambda: all(made[topic].get_subscription_count() for topic in self.used), self.process)
        destroy = self._bench.node.destroy_publisher
        return lambda message: made[message.topic].publish(message.data), lambda: [*map(destroy, made.values())]

    def close(self):
        self._bench.close()
        self._rclpy.try_shutdown()
        self._domains.leave()
        self._patch.undo()


@pytest.fixture(params=[Ros, Zenoh], ids=["ros2", "zenoh"])
def front(request, tmp_path, start_command):
    made = request.param(tmp_path, start_command)
    yield made
    print(made.log.read_text() if made.log.is_file() else "")
    made.close()


def test_a_capture_from_the_first_order_to_the_copy(front, recording, tmp_path):
    """Idle on purpose, started, waiting, recording, paused, publishers gone and back, split, stopped, ended, copied."""
    front.begin(recording(**RECIPE), autostart="false")
    assert front.code() == 0, "idle on purpose"
    assert [front.order(verb)["success"] for verb in ("split", "pause", "resume")] == [False] * 3
    assert front.order("start")["success"]
    assert front.code() == 3, "it waits for a camera"
    put, vanish = front.publish()
    half = len(front.messages) // 2
    for message in front.messages[:half]:
        put(message)
    until(lambda: front.status().get("samples"), front.process)
    assert front.status()["newest_sample_age"] is not None
    assert front.control("pause") == 0
    until(lambda: front.status()["newest_sample_age"] > 1.5, front.process)
    assert (front.code(), front.status()["message"]) == (0, "paused")
    assert front.order("resume")["success"]
    assert front.status()["state"] == "recording"
    vanish()
    until(lambda: front.code() == 5, front.process)
    assert front.control("status") == 5
    put, vanish = front.publish()
    assert front.order("split")["success"]
    for message in front.messages[half:]:
        put(message)
    until(lambda: front.status().get("sequence") and len(front.status()["finished"]) == 1, front.process)
    told = front.order("stop")
    assert told["success"]
    until(lambda: len(front.events) == 2, front.process)
    datasets = json.loads(told["message"])["datasets"]
    events = [json.loads(event) for event in front.events]
    assert [event["dataset"] for event in events] == datasets
    found = [Dataset(path) for path in datasets]
    assert [event["samples"] for event in events] == [len(one) for one in found]
    cameras = sum(message.topic == CAMERA for message in front.messages)
    assert sum(map(len, found)) == cameras
    assert {one.metadata["namespace"] for one in found} == {"car"}
    assert all("-car_" in os.path.basename(path) for path in datasets)
    assert front.code() == 0, "idle by order"
    assert front.end(signal.SIGTERM) == 0
    os.umask(umask := os.umask(0))
    assert {stat.S_IMODE(path.stat().st_mode) for path in front.out.iterdir()} == {0o666 & ~umask}, "others read them"
    copy = shutil.copytree(front.out, tmp_path / "laptop", ignore=shutil.ignore_patterns("*.partial", "*.journal"))
    assert all(validate(copy / os.path.basename(path)).ok for path in datasets)


TWO_OF_EACH = {"camera.jpeg", "camera-left.jpeg", "lidar.pcd", "lidar-rear.pcd", "radar.pcd"}
"""Kinds of the members."""


def test_a_killed_capture_of_a_rig_is_recovered_with_all_that_was_committed(front, tmp_path):
    """The next capture says that it broke off, recovers it, and records the rest in a dataset of its own."""
    source, rig = write_two_of_each(tmp_path, also=("radar/targets", "radar/clusters"), seconds=2.0)
    path = add_messages(source, tmp_path / "in" / "drive.mcap", poses(POSE, drive_on, START, 2.0))
    rig |= {"radar.cube.rear": "/absent", "pose": "/odom"}
    chosen = {"rig": json.dumps(rig), "time_base": "header", "lookahead": 3.0, "flush_interval": 0.1}
    convert(path, tmp_path / "offline", **{name: chosen[name] for name in ("rig", "time_base")})
    first, rest, offline = (
        DatasetPaths(folder, name)
        for folder, name in ((front.out, "drive"), (front.out, "rest"), (tmp_path / "offline", "drive"))
    )

    def play(messages):
        for before, message in itertools.pairwise([messages[0], *messages]):
            time.sleep(max(0, message.log_time - before.log_time) / 1e9)
            put(message)

    front.begin(path, {"/radar/clusters"}, sequence="drive", **chosen)
    put, vanish = front.publish()
    half = len(front.messages) // 2
    play(front.messages[:half])
    committed = until(lambda: max(front.status().get("committed", 0) - 9, 0), front.process) + 9
    front.process.kill()
    assert front.process.wait(LONG) == -signal.SIGKILL
    vanish()
    front.begin(path, {"/radar/clusters"}, sequence="rest", autostart=False, **chosen)
    assert front.code() == 4
    assert front.status()["message"] == "idle: the last capture ended in the middle of drive; start records again"
    assert front.order("start")["success"]
    assert front.code() == 3
    until(lambda: first.frames.is_file() and not first.unfinished, front.process)
    put, vanish = front.publish()
    play(front.messages[half:])
    until(lambda: front.status().get("samples"), front.process)
    assert front.order("stop")["success"]
    assert front.end(signal.SIGTERM) in (0, 3)
    rows, expected = (rows_by_frame(paths.frames) for paths in (first, offline))
    remade = {frame for frame in rows if rows[frame] != expected[frame]}
    assert remade <= {max(rows)}, "only of the sample that was being written"
    assert len(rows) - len(remade) >= committed
    found, whole = members(first.container), members(offline.container)
    assert {name for name, data in found.items() if whole[name] != data} == set()
    assert {name for name in whole if frame_of(name) in rows.keys() - remade} <= found.keys()
    for paths in (first, rest):
        metadata = Dataset(paths.container).metadata
        assert validate(paths.container).errors == 0
        assert {name.partition(".")[2] for name in members(paths.container)} == TWO_OF_EACH
        assert metadata["missing"] == ["radar.cube.rear"]
        assert [(of["topic"], of["count"]) for of in metadata.get("unused_topics", [])] == front.known_unused
        assert metadata["camera_infos"]["camera.left"]["width"] == 128
        assert metadata["pose_frame"] == "odom"
    assert facts_of(first) == facts_of(offline)


NAMED = {
    "camera": "/front/camera/h264", "camera.left": {"topic": "/left/camera/jpeg", "info": "/left/camera/info"},
    "camera.car": "/car/camera/h264",
    "lidar.points": "/car/lidar/points", "lidar.points.front": "/front/lidar/points",
    "radar.cube": "/left/radar/cube", "imu": "/left/imu", "gps": "/left/gps",
    "model": {"topic": "/car/model/output", "info": "/front/model/info"},
}  # fmt: skip
"""A rig of topics of several hosts: of the capture's namespace too, whose topics come first elsewhere."""


@pytest.mark.parametrize(
    ("hosts", "chosen", "unused"),
    [
        pytest.param(
            {
                "/car": ("h264", ("camera", "lidar/points", "model/output")),
                "/front": ("h264", ("camera", "lidar/points", "model/output", "model/info", "imu")),
                "/left": ("jpeg", ("camera", "radar/cube", "camera/info", "imu", "gps")),
            },
            {"rig": json.dumps(NAMED)},
            {"/front/model/output", "/front/imu"},
            id="a rig names them",
        ),
        pytest.param(
            {"/car": ("h264", ("camera", "imu")), "/left": ("h264", ("camera", "camera/info", "model/output"))},
            {"reference_topic": "/car/camera/h264"},
            {"/left/camera/h264", "/left/camera/info", "/left/model/output"},
            id="results of another host's camera",
        ),
    ],
)
def test_topics_of_several_hosts_are_captured_as_they_are_converted(front, tmp_path, hosts, chosen, unused):
    sent = []
    for host, (codec, topics) in hosts.items():
        small = {"seconds": 1.5, "size": (160, 96), "fps": 10.0, "gop": 5, "cube_shape": (2, 16, 4, 32)}
        made = Recipe(**small, lidar_points=50, codec=codec, topics=topics, seed=len(host), prefix=f"{host}/")
        sent.append(messages(write_recording(tmp_path / f"{host[1:]}.mcap", made).path))
    path = write(tmp_path / "drive.mcap", together(*sent))
    chosen = {**chosen, "lookahead": 3.0}
    convert(path, tmp_path / "offline", **chosen)
    front.begin(path, unused, sequence="drive", **chosen)
    put, _ = front.publish()
    for before, message in itertools.pairwise([front.messages[0], *front.messages]):
        time.sleep(max(0, message.log_time - before.log_time) / 1e9)
        put(message)
    count = Counter(message.topic for message in front.messages if message.topic not in unused)

    def heard():
        return {topic.removeprefix("rt"): of["received"] for topic, of in front.status()["topics"].items()}

    until(lambda: heard() == count, front.process)
    assert front.order("stop")["success"]
    assert front.end(signal.SIGTERM) == 0
    assert_same_dataset(front.out, tmp_path / "offline", "drive")


def facts_of(paths):
    """What the metadata state of the sensors of the sequence."""
    (own,) = Dataset(paths.container).metadata["sequences"].values()
    return {key: own[key] for key in ("camera_info", "camera_infos", "sensor_frames", "static_transforms", "missing")}


def drive_on(stamp):
    """A vehicle at 10 m/s along x."""
    return ((stamp - START) / 1e9 * 10, 2.0, 0.5), (0.0, 0.0, 0.6, 0.8)


def test_a_full_disk_is_a_failure_and_a_capture_without_a_dataset_ends_with_1(front, recording):
    front.begin(recording(**RECIPE), min_free_bytes=1 << 60)
    assert front.code() == 3
    put, _ = front.publish()
    for message in front.messages:
        put(message)
    until(lambda: front.code() == 4, front.process)
    assert front.status()["message"].startswith("the disk is full: recording begins again once ")
    assert front.end(signal.SIGINT) == 1


def test_on_a_terminal_each_status_is_written_over_the_one_before(front, recording):
    master, slave = os.openpty()
    os.set_blocking(master, False)
    front.log, shown = Path(os.ttyname(slave)), bytearray()
    front.begin(recording(**RECIPE), autostart="false")

    def read():
        with contextlib.suppress(BlockingIOError):
            shown.extend(os.read(master, 4096))
        return re.search(rb"idle: [^\r\n]+\ridle: [^\r\n]+\r(?!\n)", shown)

    until(read, front.process)
    assert front.end(signal.SIGTERM) == 0
    os.close(master)
    os.close(slave)


def test_control_without_a_capture_ends_with_1(front):
    assert front.control("status", IMPATIENT) == 1
    assert "no capture answers to status" in front.log.read_text()


@pytest.mark.parametrize(
    ("setting", "says"),
    [("rate=-1", "rate"), ("out=/proc/nope", "out: /proc/nope: cannot be made")],
)
def test_wrong_settings_end_it_at_once(front, setting, says):
    process = front.command("capture", "--set", setting)
    assert (process.wait(LONG), says in front.log.read_text()) == (2, True), front.log.read_text()
