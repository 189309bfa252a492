# SPDX-License-Identifier: Apache-2.0
"""Live = offline: a recording played at its own pace gives the dataset that its conversion gives, byte for byte."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from capturing import adds_up, assert_part_of_dataset, assert_same_dataset  # noqa: E402
from mcap.reader import make_reader  # noqa: E402
from mcap.writer import Writer  # noqa: E402
from shared_data import SHARED  # noqa: E402
from waiting import LONG  # noqa: E402

from edgefirst_ros import convert  # noqa: E402
from edgefirst_ros.sources.mcap import McapRecording  # noqa: E402

SECONDS = float(os.environ.get("EDGEFIRST_LIVE_SECONDS", "0"))
"""Of a recording as large as those of a Raivin; 0: four of a small one (large messages: test_environment.py)."""
PATIENT = {"time_base": "header", "lookahead": 5.0}
"""A busy machine may hold up large messages at will; what comes too late is tested elsewhere."""
WHOLE = {"seconds": 4, "size": (320, 180), "cube_shape": (2, 32, 4, 64), "lidar_points": 1000}
if SECONDS:
    WHOLE = {"seconds": SECONDS, "size": (1280, 720), "cube_shape": (2, 200, 4, 512), "lidar_points": 20_000}
UNDER_LOAD = "left out under load"
REAL = ("verdin-imx8mp-00000001_2018_08_02_16_15_20",)
LENGTH = SECONDS or 4.5
"""s of a real recording that are played."""


def begin_of(path: Path, folder: Path) -> Path:
    """Write the first seconds of a recording under its name."""
    target = folder / path.name
    with path.open("rb") as source, target.open("wb") as file:
        reader, writer = make_reader(source), Writer(file)
        writer.start()
        end = reader.get_summary().statistics.message_start_time + round(LENGTH * 1e9)  # type: ignore[union-attr]
        channels: dict[int, int] = {}
        for schema, channel, message in reader.iter_messages():
            if message.log_time > end:
                break
            if channel.id not in channels:
                assert schema is not None
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.id] = writer.register_channel(channel.topic, channel.message_encoding, number)
            times = message.log_time, message.data, message.publish_time, message.sequence
            writer.add_message(channels[channel.id], *times)
        writer.finish()
    return target


@pytest.mark.parametrize("name", ["every topic", *REAL])
def test_the_dataset_is_that_of_convert(
    name: str, capture: Callable[..., Any], start: Callable[..., Any], recording: Any, tmp_path: Path
) -> None:
    if name in REAL and not (SHARED / "data" / f"{name}.mcap").is_file():
        pytest.skip(f"{name} is not at hand")
    path = begin_of(SHARED / "data" / f"{name}.mcap", tmp_path) if name in REAL else recording(**WHOLE)
    source = McapRecording(path)
    for _ in source.walk():
        pass
    counts: dict[str, int] = {}
    for channel in source.channels.values():
        counts[channel.topic] = counts.get(channel.topic, 0) + channel.seen
    node = capture(sequence=path.stem, fsync=True, **PATIENT)
    camera = next(topic for topic in counts if topic in ("/camera/h264", "/camera/h265"))
    used = {camera, "/camera/info", "/radar/cube", "/radar/targets", "/lidar/points", "/gps", "/imu", "/model/output",
            "/model/info", "/tf_static"} & counts.keys()  # fmt: skip
    play = ("-m", "edgefirst_ros", "play", "--ros-args", "-p", f"recording:={path}")
    player = start(*play, "-p", f"wait_for_subscribers:={len(used)}", "-p", f"wait_timeout:={LONG}")
    assert player.wait() == 0, player.log

    facts = node.has_received({topic: counts[topic] for topic in used})
    assert {t: state["lost"] for t, state in facts["topics"].items() if state["lost"]} == {}
    offline = convert(path, tmp_path / "offline", **PATIENT)
    # encoding is not to be hurried where other tests run beside this one; the decoder holds the last pictures back
    node.until(lambda facts: settled(facts["counts"][camera]) > offline.samples - 20)
    node.finish(signal.SIGINT, code=None)
    count = node.counts(path.stem)[camera]
    assert adds_up(count)
    assert count["seen"] == counts[camera]
    assert offline.samples > 100
    if count["dropped"].keys() - offline.counts.topics[camera].dropped.keys() == {UNDER_LOAD}:
        # this machine has not the time for all pictures, which is no fault: the others must be right
        assert node.process.process.returncode == 3
        assert count["written"] > 0
        assert_part_of_dataset(node.out, tmp_path / "offline", path.stem)
        return
    assert node.process.process.returncode == 0
    assert count["written"] == offline.samples
    assert_same_dataset(node.out, tmp_path / "offline", path.stem)


def settled(count: dict[str, Any]) -> int:
    """Of how many messages is known what became of them."""
    return int(count["written"] + sum(count["dropped"].values()))
