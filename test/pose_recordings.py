# SPDX-License-Identifier: Apache-2.0
"""Recordings with poses: those of another recording, and messages of a vehicle that moves as a function says."""

import heapq
import struct
from operator import itemgetter

from edgefirst.schemas import builtin_interfaces, geometry_msgs, nav_msgs, std_msgs
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

S = 1_000_000_000
ODOMETRY, POSE, COVARIANCE = (
    "nav_msgs/msg/Odometry",
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
)
TF, STATIC = "tf2_msgs/msg/TFMessage", "geometry_msgs/msg/TransformStamped"
LATENCY = 4_000_000
"""ns from the stamp of a pose to its recording."""


def head(stamp, frame):
    return std_msgs.Header(builtin_interfaces.Time(*divmod(stamp, S)), frame)


def pose_message(schema, stamp, place, turn, frame="odom", child="base_link"):
    """A pose as CDR; metres, quaternion x, y, z, w."""
    pose = geometry_msgs.Pose(geometry_msgs.Point(*place), geometry_msgs.Quaternion(*turn))
    if schema == POSE:
        return geometry_msgs.PoseStamped(head(stamp, frame), pose).to_bytes()
    whole = geometry_msgs.PoseWithCovariance(pose, [0.0] * 36)
    if schema == COVARIANCE:
        return geometry_msgs.PoseWithCovarianceStamped(head(stamp, frame), whole).to_bytes()
    return nav_msgs.Odometry(head(stamp, frame), child, whole).to_bytes()


def static_message(stamp, parent, child, place, turn):
    moved = geometry_msgs.Transform(geometry_msgs.Vector3(*place), geometry_msgs.Quaternion(*turn))
    return geometry_msgs.TransformStamped(head(stamp, parent), child, moved).to_bytes()


def transforms_message(transforms, order="<"):
    """A TFMessage as CDR of (stamp, parent, child, place, turn) each; `order`: of the bytes of its numbers."""
    data = struct.pack(f"{order}I", len(transforms))
    for stamp, parent, child, place, turn in transforms:
        data += bytes(-len(data) % 4) + struct.pack(f"{order}iI", *divmod(stamp, S))
        for name in (parent, child):
            data += bytes(-len(data) % 4) + struct.pack(f"{order}I", len(name) + 1) + name.encode() + b"\0"
        data += bytes(-len(data) % 8) + struct.pack(f"{order}7d", *place, *turn)
    return (b"\0\1\0\0" if order == "<" else b"\0\0\0\0") + data


def add_messages(source, path, messages, leave=()):
    """Write a recording again with further (log_time, topic, schema, CDR) in their places, without topics `leave`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as old, path.open("wb") as new:
        writer = Writer(new, compression=CompressionType.NONE)
        writer.start(profile="ros2")
        schemas, channels, numbers = {}, {}, {}
        before = (
            (m.log_time, c.topic, s.name, m.data, m.publish_time, m.sequence, s.data)
            for s, c, m in make_reader(old).iter_messages(log_time_order=False)
            if c.topic not in leave
        )
        ours = ((at, topic, schema, data, at - LATENCY, None, b"") for at, topic, schema, data in messages)
        for at, topic, schema, data, publish, number, text in heapq.merge(before, ours, key=itemgetter(0)):
            if schema not in schemas:
                schemas[schema] = writer.register_schema(schema, "ros2msg", text)
            if topic not in channels:
                channels[topic] = writer.register_channel(topic, "cdr", schemas[schema])
            own = numbers[topic] = numbers.get(topic, -1) + 1
            writer.add_message(channels[topic], at, data, publish, own if number is None else number)
        writer.finish()
    return path


def poses(schema, way, start, seconds, rate=20.0, topic="/odom", **frames):
    """Messages of `way(stamp) -> (place, turn)` from `start`, ns, for `add_messages`."""
    stamps = [start + round(n * S / rate) for n in range(int(seconds * rate) + 1)]
    return [(at + LATENCY, topic, schema, pose_message(schema, at, *way(at), **frames)) for at in stamps]
