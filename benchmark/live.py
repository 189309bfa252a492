# SPDX-License-Identifier: Apache-2.0
"""What a live capture costs: processor, memory, latency, loss. Needs ROS 2.

    python benchmark/live.py [REC.mcap] [--rate FACTOR]

Plays a recording (by default 20 s of all topics: 1080p30 H.264 at 5 Mb/s, cubes of 1.6 MB at 18 Hz, lidar of 30k points
at 10 Hz, radar, GPS, IMU, model) into a capture node in another process. Latency is from the moment a frame was
published to the moment its row can be read from the journal on disk: that is, committed.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import polars as pl
import rclpy
from rclpy.qos import QoSProfile
from std_srvs.srv import Trigger

from edgefirst_ros.dataset.tables.journal import read_journal
from edgefirst_ros.messages import header_stamp
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.streams import VIDEO
from edgefirst_ros.synthetic import START, Recipe, recording_name, write_recording

PROFILE = Path(__file__).resolve().parents[1] / "config" / "fastdds.xml"


def play(node, recording, rate, published):
    """Publish all messages at their pace; `published` gets {stamp of a frame: when it was published}."""
    import importlib

    publishers = {}
    for channel in recording.channels.values():
        package, _, name = channel.schema.partition("/msg/")
        kind = getattr(importlib.import_module(f"{package}.msg"), name, None)
        if kind is not None:
            publishers[channel.topic] = node.create_publisher(kind, channel.topic, QoSProfile(depth=20))
    unheard = {"/radar/info", "/radar/clusters"}  # the capture has no use for them
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and any(
        not p.get_subscription_count() for topic, p in publishers.items() if topic not in unheard
    ):
        time.sleep(0.05)
    time.sleep(1.0)
    began = first = None
    for message in recording.iter_messages(set(publishers)):
        if began is None:
            began, first = time.monotonic(), message.log_time
        time.sleep(max(0.0, began + (message.log_time - first) / 1e9 / rate - time.monotonic()))
        publishers[message.topic].publish(message.data)
        if message.schema == VIDEO:
            published[header_stamp(message)] = time.monotonic()


def watch(journal, seen, ended):
    """Note when each frame's row can first be read."""
    while not ended.is_set():
        if journal.exists():
            now = time.monotonic()
            for batch in read_journal(journal):
                for stamp in batch.column("timestamp").to_pylist():
                    seen.setdefault(stamp, now)
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", nargs="?", type=Path)
    parser.add_argument("--rate", type=float, default=1.0)
    options = parser.parse_args()
    os.environ |= {"FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    with tempfile.TemporaryDirectory() as temporary:
        path = options.recording or Path(temporary) / recording_name("maivin-live", START)
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
        recording = McapRecording(path)
        messages = sum(1 for _ in recording.walk())
        out = Path(temporary) / "out"
        command = [sys.executable, "-m", "edgefirst_ros", "capture", "--ros-args", "-p", f"out:={out}"]
        capture = subprocess.Popen([*command, "-p", "sequence:=live", "-p", "time_base:=header"])
        rclpy.init()
        node = rclpy.create_node("benchmark")
        published, seen, ended = {}, {}, threading.Event()
        watcher = threading.Thread(target=watch, args=(out / "live.frames.arrow.journal", seen, ended))
        watcher.start()
        play(node, recording, options.rate, published)
        time.sleep(4.0)
        client = node.create_client(Trigger, "/capture/status")
        client.wait_for_service(5.0)
        answer = client.call_async(Trigger.Request())
        rclpy.spin_until_future_complete(node, answer, timeout_sec=5.0)
        ended.set()
        watcher.join()
        capture.send_signal(signal.SIGINT)
        code = capture.wait(30)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        rclpy.shutdown()
        status = json.loads(answer.result().message)
        length = max(published.values()) - min(published.values())
        frames = pl.read_ipc(out / "live.frames.arrow")
        delays = sorted(seen[s] - published[s] for s in frames["timestamp"] if s in seen and s in published)
        lost = {topic: facts["lost"] for topic, facts in status["topics"].items() if facts["lost"]}
        print(f"messages {messages}, length {length:.1f} s, exit code {code}")
        print(f"samples {len(frames)} of {len(published)} frames; lost on the way {lost or 'none'}")
        print(
            f"processor {(used.ru_utime + used.ru_stime) / length:.2f} cores, "
            f"peak memory {used.ru_maxrss / 1024:.0f} MB"
        )
        print(
            f"published to committed: p50 {statistics.median(delays):.2f} s, "
            f"p99 {delays[len(delays) * 99 // 100]:.2f} s; queue {status['queue']}, backlog {status['backlog']}"
        )
        print(f"counts of the camera: {status['counts'][next(t for t in status['counts'] if 'camera/h26' in t)]}")


if __name__ == "__main__":
    main()
