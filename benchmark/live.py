# SPDX-License-Identifier: Apache-2.0
"""What a live capture costs over ROS 2 and over Zenoh: processor, memory, latency, loss, in one table.

    python benchmark/live.py [REC.mcap] [--rate FACTOR] [--bus ros] [--bus zenoh] [--repeat N]

Plays a recording (by default 20 s of all topics: 1080p30 H.264 at 5 Mb/s, cubes of 1.6 MB at 18 Hz, lidar of 30k points
at 10 Hz, radar, GPS, IMU, model) into a capture in another process, first over the one, then over the other; Zenoh's
router is a third process. Latency is from the moment a frame was published to the moment its row can be read from the
journal or the log of rows: a kill leaves it then. `--repeat`: play the recording so many times, its stamps shifted.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import polars as pl

from edgefirst_ros.dataset.tables.rowlog import LoggedRows
from edgefirst_ros.messages import read_header_stamp
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.streams import MASK, VIDEO
from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

PROFILE = Path(__file__).resolve().parents[1] / "config" / "fastdds.xml"
UNHEARD = {"/radar/info", "/radar/clusters", "/model/boxes2d"}
"""Topics that the capture has no use for."""
ROUTER = """
import json, sys, threading, zenoh
config = zenoh.Config()
for key, value in {"mode": "router", "listen/endpoints": [sys.argv[1]], "scouting/multicast/enabled": False}.items():
    config.insert_json5(key, json.dumps(value))
session = zenoh.open(config)
sys.stdin.read()
session.close()
"""


class Ros:
    """A capture node, and publishers in this process."""

    name = "ROS 2, Fast DDS"

    def __init__(self, channels):
        import importlib

        import rclpy
        from rclpy.qos import QoSProfile

        os.environ |= {"FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        self._rclpy = rclpy
        rclpy.init()
        self._node = rclpy.create_node("benchmark")
        self._publishers = {}
        for topic, schema in channels.items():
            package, _, name = schema.partition("/msg/")
            kind = getattr(importlib.import_module(f"{package}.msg"), name, None)
            if kind is not None:
                self._publishers[topic] = self._node.create_publisher(kind, topic, QoSProfile(depth=20))

    def capture(self, settings):
        given = [part for key, value in settings.items() for part in ("-p", f"{key}:={value}")]
        return [sys.executable, "-m", "edgefirst_ros", "capture", "--ros-args", *given]

    def heard(self):
        return {topic for topic, publisher in self._publishers.items() if publisher.get_subscription_count()}

    def publish(self, message):
        if message.topic in self._publishers:
            self._publishers[message.topic].publish(message.data)

    def status(self):
        from std_srvs.srv import Trigger

        client = self._node.create_client(Trigger, "/capture/status")
        client.wait_for_service(5.0)
        answer = client.call_async(Trigger.Request())
        self._rclpy.spin_until_future_complete(self._node, answer, timeout_sec=10.0)
        return json.loads(answer.result().message)

    def close(self):
        self._rclpy.shutdown()


class Zenoh:
    """A capture on the device's bus, a router, and publishers in this process that leave out what cannot be sent."""

    name = "Zenoh, router"

    def __init__(self, channels):
        import zenoh

        from edgefirst_ros.nodes.zenoh import make_device_key, make_publisher
        from edgefirst_ros.sources.zenoh_session import open_session

        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            self.endpoint = f"tcp/127.0.0.1:{listening.getsockname()[1]}"
        self._router = subprocess.Popen([sys.executable, "-c", ROUTER, self.endpoint], stdin=subprocess.PIPE)
        zenoh.init_log_from_env_or("error")
        self._way = open_session(self.endpoint)
        self._bus = self._way.__enter__()
        self._publishers = {topic: make_publisher(self._bus, topic, schema) for topic, schema in channels.items()}
        self._key = make_device_key
        self.published = Counter()

    def capture(self, settings):
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "edgefirst_ros", "capture", "--zenoh", self.endpoint, *given]

    def heard(self):
        return {topic for topic, publisher in self._publishers.items() if publisher.matching_status.matching}

    def publish(self, message):
        self._publishers[message.topic].put(message.data)
        self.published[self._key(message.topic)] += 1

    def status(self):
        (reply,) = self._bus.get("capture/status", timeout=10.0)
        return json.loads(reply.ok.payload.to_bytes())

    def close(self):
        self._way.__exit__(None, None, None)
        self._router.communicate()


BUSES = {"ros": Ros, "zenoh": Zenoh}


def shifted(message, by):
    """A message with its header's stamp later by `by` seconds."""
    if not by or message.schema == MASK or read_header_stamp(message) is None:
        return message
    seconds = struct.unpack_from("<i", message.data, 4)[0]
    return message._replace(data=message.data[:4] + struct.pack("<i", seconds + by) + message.data[8:])


def play(bus, recording, rate, repeat, published):
    """Publish all messages at their pace; `published` gets {stamp of a frame: when it was published}."""
    topics = set(recording.topics) - UNHEARD
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and topics - bus.heard():
        time.sleep(0.05)
    time.sleep(1.0)
    for turn in range(repeat):
        began = first = None
        for message in recording.iter_messages():
            if began is None:
                began, first = time.monotonic(), message.log_time
            time.sleep(max(0.0, began + (message.log_time - first) / 1e9 / rate - time.monotonic()))
            whole = shifted(message, turn * round(recording_length(recording)))
            bus.publish(whole)
            if message.schema == VIDEO:
                published[read_header_stamp(whole)] = time.monotonic()


def recording_length(recording):
    if not hasattr(recording, "length_s"):
        times = [message.log_time for message in recording.iter_messages()]
        recording.length_s = (times[-1] - times[0]) / 1e9
    return recording.length_s


def watch(folder, seen, ended):
    """Note when each frame's row can first be read from the row log."""
    while not ended.is_set():
        now = time.monotonic()
        for log in folder.glob("*.rows.journal"):
            for batch in LoggedRows(log).frames.batches():
                for stamp in batch.column("timestamp").to_pylist():
                    seen.setdefault(stamp, now)
        time.sleep(0.05)


def resident(process, series, ended):
    """Note the memory of a process every second, MB."""
    while not ended.wait(1.0):
        try:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return
        series.append(pages * os.sysconf("SC_PAGESIZE") / 1e6)


def run(kind, path, options, out):
    """One capture over one bus: {what: value} of the table."""
    recording = McapRecording(path)
    messages = sum(1 for _ in recording.walk()) * options.repeat
    recording_length(recording)
    bus = BUSES[kind](dict(recording.topics))
    capture = subprocess.Popen(bus.capture({"out": out, "sequence": "live", "time_base": "header"}))
    published, seen, series, ended = {}, {}, [], threading.Event()
    helpers = [
        threading.Thread(target=watch, args=(out, seen, ended)),
        threading.Thread(target=resident, args=(capture, series, ended)),
    ]
    for helper in helpers:
        helper.start()
    play(bus, recording, options.rate, options.repeat, published)
    time.sleep(4.0)
    status = bus.status()
    ended.set()
    for helper in helpers:
        helper.join()
    capture.send_signal(signal.SIGINT)
    _, code, used = os.wait4(capture.pid, 0)
    bus.close()
    length = max(published.values()) - min(published.values())
    frames = pl.read_ipc(out / "live.frames.arrow")
    delays = sorted(seen[s] - published[s] for s in frames["timestamp"] if s in seen and s in published)
    topics = status["topics"].values()
    third = len(series) // 3
    return {
        "bus": bus.name,
        "length, s": f"{length:.0f}",
        "messages": messages,
        "samples of frames": f"{len(frames)} of {len(published)}",
        "lost on the way": sum(t["lost"] for t in topics),
        "the same, by stamps": sum(t["lost_by_stamps"] for t in topics),
        "left out under load": sum(c["dropped"].get("left out under load", 0) for c in status["counts"].values()),
        "cores": f"{(used.ru_utime + used.ru_stime) / length:.2f}",
        "peak memory, MB": round(used.ru_maxrss / 1024),
        "memory by thirds, MB": ", ".join(
            f"{statistics.mean(part):.0f}"
            for part in (series[:third], series[third : 2 * third], series[2 * third :])
            if part
        ),
        "latency p50, s": f"{statistics.median(delays):.2f}",
        "latency p99, s": f"{delays[len(delays) * 99 // 100]:.2f}",
        "exit code": os.waitstatus_to_exitcode(code),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", nargs="?", type=Path)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--bus", action="append", choices=[*BUSES])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        path = options.recording or Path(temporary) / make_recording_name("maivin-live", START)
        if options.recording is None:
            recipe = Recipe(
                seconds=20,
                size=(1920, 1080),
                cube_shape=(2, 200, 4, 512),
                lidar_points=30_000,
                noise=2.0,
                bitrate=5_000_000,
            )
            write_recording(path, recipe)
        results = [run(kind, path, options, Path(temporary) / kind) for kind in options.bus or BUSES]
    for what in results[0]:
        print(f"{what:22}", *(f"{result[what]!s:>18}" for result in results))


if __name__ == "__main__":
    main()
