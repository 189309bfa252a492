# SPDX-License-Identifier: Apache-2.0
"""Recordings and datasets for the cases of an extended package: with a thermal camera, and left by a killed process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs
from mcap.reader import make_reader
from mcap.writer import Writer

import edgefirst_ros
from edgefirst_ros.synthetic.definitions import make_definition

assert Path(edgefirst_ros.__file__).parent == Path(os.environ["EXTENDED"]), "not the extended package"

SMALL = {"seconds": 2.0, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "cube_shape": (1, 16, 2, 16)}
SMALL |= {"lidar_points": 100, "model_every": 1, "topics": {"camera", "camera/info", "radar/cube", "radar/targets"}}
SMALL["topics"] |= {"lidar/points", "gps", "imu", "tf_static", "model/boxes2d", "model/info", "fusion/boxes3d"}
TOPIC, IMAGE = "/thermal/image", "sensor_msgs/msg/Image"
LATER = 7_000_000
"""ns of a thermal picture behind the camera's."""


def heat(number):
    """Values of a thermal picture, (24, 32) uint16."""
    return np.random.default_rng(number).integers(28_000, 32_000, (24, 32), np.uint16)


def with_thermal(recording, path):
    """Write a recording with a thermal picture 7 ms behind each of its camera's; returns {stamp: values}."""
    found = {}
    with open(recording, "rb") as source, open(path, "wb") as file:
        writer = Writer(file)
        writer.start(profile="", library="test")
        channels, schemas = {}, {}
        kind = writer.register_schema(IMAGE, "ros2msg", make_definition(IMAGE))
        thermal = writer.register_channel(TOPIC, "cdr", kind)
        for schema, channel, message in make_reader(source).iter_messages():
            if schema.id not in schemas:
                schemas[schema.id] = writer.register_schema(schema.name, schema.encoding, schema.data)
            if channel.id not in channels:
                channels[channel.id] = writer.register_channel(channel.topic, "cdr", schemas[schema.id])
            times = message.log_time, message.data, message.publish_time, message.sequence
            writer.add_message(channels[channel.id], *times)
            if channel.topic == "/camera/jpeg":
                stamp = message.publish_time + LATER
                found[stamp] = heat(len(found))
                head = std_msgs.Header(builtin_interfaces.Time(*divmod(stamp, 10**9)), "thermal")
                height, width = found[stamp].shape
                data = sensor_msgs.Image(head, height, width, "mono16", 0, 2 * width, found[stamp].tobytes()).to_bytes()
                writer.add_message(thermal, message.log_time, data, stamp, len(found))
        writer.finish()
    return found


KILLED = """
import os, signal, sys
from edgefirst_ros import convert
from edgefirst_ros.dataset.writer import DatasetWriter
write = DatasetWriter.write
DatasetWriter.flush_age = property(lambda _: 1e9)
def killed(self, sample):
    write(self, sample)
    if self.samples == 12:
        os.kill(os.getpid(), signal.SIGKILL)
DatasetWriter.write = killed
convert(sys.argv[1], sys.argv[2], name="drive", layout=sys.argv[3], jobs=1)
"""


def kill_conversion(path, out, layout, package=os.environ["EXTENDED"]):
    """Convert in a process that is killed when twelve samples are committed; `package` is the folder of its code."""
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(package).parent)}
    command = [sys.executable, "-c", KILLED, path, out, layout]
    done = subprocess.run(command, env=environment, cwd=path.parent, check=False)
    assert done.returncode == -signal.SIGKILL


def contents(out):
    """{name: bytes} of all files of datasets."""
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
