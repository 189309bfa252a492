# SPDX-License-Identifier: Apache-2.0
"""The capture on the device's bus as a process of its own: datasets, orders, diagnostics, signals, systemd."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")

from bags import write_two_of_each  # noqa: E402
from same_dataset import adds_up, assert_same_dataset, counts_of, frames  # noqa: E402
from zenoh_network import LONG, encoding_of, free_port, open_bus, until  # noqa: E402

from edgefirst_ros import convert  # noqa: E402
from edgefirst_ros.counts import BEFORE_KEYFRAME, BY_STAMPS  # noqa: E402
from edgefirst_ros.sources.mcap import McapRecording  # noqa: E402

SMALL = {"seconds": 2.0, "size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "gop": 15}
PATIENT = {"lookahead": 3.0}
"""For what is compared with conversions: processes of a busy machine do not run for a second at times."""
CAMERA = "/camera/h264"
UNUSED = "/radar/info"
"""Topic that a capture does not subscribe."""


class Network:
    """A router, processes of the command beside it, and a session of this process."""

    def __init__(self, folder, start):
        self.folder = folder
        self._start = start
        self.endpoint = f"tcp/127.0.0.1:{free_port()}"
        self.router = open_bus("router", listen=self.endpoint)
        self.bus = open_bus("client", self.endpoint)
        self.logs, self.cold = [], []

    def start(self, *arguments, cold=False, **variables):
        """Start the command; `cold`: with an interpreter of its own."""
        self.logs.append(self.folder / f"log-{len(self.logs)}")
        line = [*map(str, arguments), "--zenoh", self.endpoint]
        if not cold:
            return self._start(line, self.logs[-1], os.environ | variables)
        with self.logs[-1].open("wb") as log:
            command = [sys.executable, "-m", "edgefirst_ros", *line]
            self.cold.append(subprocess.Popen(command, stdout=log, stderr=log))
        return self.cold[-1]

    def capture(self, name, *arguments, **options):
        """A capture that listens."""
        settings = {"out": self.folder / "live", "sequence": name, "min_free_bytes": 0, **PATIENT}
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        process = self.start("capture", *given, *arguments, **options)
        space = arguments[arguments.index("--namespace") + 1] if "--namespace" in arguments else ""
        until(lambda: process.poll() is not None or self.answers("status", space), step=0.1)
        assert process.poll() is None, self.log()
        return process

    def answers(self, verb, namespace=""):
        replies = self.bus.get(f"{namespace.strip('/')}/capture/{verb}".lstrip("/"), timeout=LONG)
        return [json.loads(reply.ok.payload.to_bytes()) for reply in replies]

    def ask(self, verb, namespace=""):
        (answer,) = self.answers(verb, namespace)
        return answer

    def received(self, namespace=""):
        """Messages that came so far, by the topics' own names."""
        return {key: topic["received"] for key, topic in self.ask("status", namespace).get("topics", {}).items()}

    def log(self):
        return "\n".join(log.read_text() for log in self.logs)

    def finish(self, process, how=signal.SIGTERM):
        """End it by a signal; its exit code. Asking for more than a moment is a fault."""
        process.send_signal(how)
        return process.wait(LONG)

    def close(self):
        for process in self.cold:
            process.kill()
            process.wait()
        self.bus.close()
        self.router.close()


@pytest.fixture
def network(tmp_path, start_command):
    made = Network(tmp_path, start_command)
    yield made
    print(made.log())
    made.close()


def messages_of(path):
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    return list(recording.iter_messages())


class Services:
    """The device's services in this process: messages of a recording, at its pace.

    Nothing of them is lost by itself, as the capture has subscribed all that it uses by then.
    """

    def __init__(self, bus, path):
        self.messages = messages_of(path)
        control = zenoh.CongestionControl.BLOCK
        self._publishers = {
            topic: bus.declare_publisher(f"rt{topic}", encoding=encoding_of(schema), congestion_control=control)
            for topic, schema in {m.topic: m.schema for m in self.messages}.items()
        }
        used = [publisher for topic, publisher in self._publishers.items() if topic != UNUSED]
        until(lambda: all(publisher.matching_status.matching for publisher in used))

    def send(self, begin=0.0, end=1e9, without=lambda number, message: False):
        """Send what was recorded from `begin` to `end` s, but for some; returns how many of each key were sent."""
        first, sent, counted = self.messages[0].log_time, {}, {}
        started = time.monotonic() - begin
        for message in self.messages:
            elapsed = (message.log_time - first) / 1e9
            number = counted[message.topic] = counted.get(message.topic, -1) + 1
            if not begin <= elapsed < end or without(number, message):
                continue
            time.sleep(max(0.0, started + elapsed - time.monotonic()))
            self._publishers[message.topic].put(message.data)
            sent[f"rt{message.topic}"] = sent.get(f"rt{message.topic}", 0) + 1
        return sent


def heard_all(network, sent, namespace=""):
    """Wait until a capture has all messages of the topics that it uses."""

    def heard():
        came.update(network.received(namespace))
        return came and all(came[key] >= sent[key] for key in came if key in sent)

    came = {}
    try:
        until(heard, step=0.1)
    except AssertionError:
        pytest.fail(f"sent: {sent}; came: {came}")


def libraries_of(process):
    """Python packages whose compiled parts a process has loaded."""
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    return set(re.findall(r"/(?:site|dist)-packages/_?([A-Za-z]+)[^\n]*\.so", maps))


def test_a_played_recording_is_captured_as_it_is_converted(network, recording, tmp_path):
    path = recording(**SMALL)
    name = path.stem
    capture = network.capture(name, cold=True)
    assert network.ask("status")["recording"] is False
    player = network.start("play", path)
    assert player.wait(LONG) == 0, network.log()
    sent = {}
    for message in messages_of(path):
        sent[f"rt{message.topic}"] = sent.get(f"rt{message.topic}", 0) + 1
    heard_all(network, sent)
    until(lambda: network.ask("status")["recording"], step=0.1)  # messages that came wait in a queue
    facts = network.ask("status")
    assert (facts["success"], facts["message"]) == (True, "recording")
    assert network.ask("stop")["success"]
    loaded = libraries_of(capture)
    assert {"numpy", "pyarrow", "av"} <= loaded
    assert not loaded & {"polars", "PIL", "zstandard", "obstore"}
    assert network.finish(capture) == 0, network.log()
    convert(path, tmp_path / "offline", **PATIENT)
    assert_same_dataset(tmp_path / "live", tmp_path / "offline", name)
    counts = counts_of(tmp_path / "live" / f"{name}.frames.arrow")
    assert not any(BY_STAMPS in count["dropped"] for count in counts.values())


def test_two_cameras_and_lidars_of_a_rig_are_captured_as_they_are_converted(network, tmp_path):
    path, rig = write_two_of_each(tmp_path, seconds=2.0, codec="h264")
    capture = network.capture(path.stem, "--rig", json.dumps(rig))
    player = network.start("play", path)
    assert player.wait(LONG) == 0, network.log()
    sent = Counter(f"rt{message.topic}" for message in messages_of(path))
    heard_all(network, sent)
    until(lambda: network.ask("status")["recording"], step=0.1)
    assert network.ask("stop")["success"]
    assert network.finish(capture) == 0, network.log()
    convert(path, tmp_path / "offline", rig=rig, **PATIENT)
    assert_same_dataset(tmp_path / "live", tmp_path / "offline", path.stem)
    rows = frames(tmp_path / "live" / f"{path.stem}.frames.arrow")
    assert rows["camera_left_timestamp"].null_count() < len(rows)
    assert rows["lidar_points_rear_timestamp"].null_count() < len(rows)


def test_what_is_lost_on_the_way_is_counted_by_its_stamps(network, recording, tmp_path):
    """Of a camera that is joined in mid-GOP."""
    path = recording(**SMALL)
    capture = network.capture("joined")
    services = Services(network.bus, path)
    lost = {CAMERA: {40, 41, 42}, "/imu": set(range(60, 70))}
    sent = services.send(begin=0.35, without=lambda number, m: number in lost.get(m.topic, ()))
    heard_all(network, sent)
    told = network.ask("status")["topics"]
    assert {key: told[f"rt{key}"]["lost_by_stamps"] for key in lost} == {key: len(n) for key, n in lost.items()}
    assert network.finish(capture, signal.SIGHUP) == 3, network.log()
    counts = counts_of(tmp_path / "live" / "joined.frames.arrow")
    assert {key: counts[key]["dropped"][BY_STAMPS] for key in lost} == {key: len(n) for key, n in lost.items()}
    assert counts[CAMERA]["seen"] == sent[f"rt{CAMERA}"] + 3
    before = 60 - 3 - sent[f"rt{CAMERA}"]
    assert counts[CAMERA]["dropped"][BEFORE_KEYFRAME] == 15 - before, "the rest of the first GOP"
    assert adds_up(counts[CAMERA])


def test_the_service_manager_and_who_looks_are_told_how_it_is(network, tmp_path):
    place = os.fspath(tmp_path / "notify")
    heard = []
    subscription = network.bus.declare_subscriber("capture/diagnostics", heard.append)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(place)
        manager.settimeout(LONG)
        capture = network.capture("none", NOTIFY_SOCKET=place, WATCHDOG_USEC="2000000")
        assert manager.recv(1000).startswith(b"READY=1\nSTATUS=waiting")
        assert manager.recv(1000) == b"WATCHDOG=1"
        until(lambda: heard)
        told = json.loads(heard[0].payload.to_bytes())
        assert str(heard[0].encoding) == "application/json"
        assert [(s["name"], s["level"]) for s in told["status"]] == [("capture: dataset", 1)]
        assert told["status"][0]["message"].startswith("waiting: no camera topic")
        assert abs(told["stamp"] / 1e9 - time.time()) < LONG
        assert network.finish(capture) == 1, "nothing was recorded"
        until(lambda: manager.recv(1000) == b"STOPPING=1")
    subscription.undeclare()


def test_wrong_orders_and_settings_are_said(network, command, tmp_path):
    def run(*arguments):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    at = ("--zenoh", network.endpoint)
    code, said = run("control", "status", *at)
    assert (code, "no capture answers to status at" in said) == (1, True)
    assert run("control", "begin", *at) == (
        2,
        "edgefirst-ros: expected one of start, stop, split, pause, resume, status, watch, got 'begin'\n",
    )
    assert run("control", "status", *at, "--namespace", "a b")[0] == 2
    code, said = run("capture", *at, "--set", "dpeth=3")
    assert (code, "dpeth" in said) == (2, True)
    assert (
        run("capture", *at, "--set", "depth=0")[1]
        == "edgefirst-ros: --set depth: expected a whole number at least 1, at most 10000, got '0'\n"
    )
    assert run("capture", *at, "-p", "out:=x")[0] == 2
    assert run("capture", "--config", "x.yaml")[0] == 2
    assert run("play", *at)[0] == 2
    assert run("play", "x.mcap", *at, "--rate", "0")[0] == 2
    code, said = run("play", os.fspath(tmp_path / "none.mcap"), *at)
    assert (code, "none.mcap" in said) == (1, True)
