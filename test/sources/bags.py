# SPDX-License-Identifier: Apache-2.0
"""Recordings cut to pieces, and put together from others, by the mcap library."""

import heapq
import struct
from dataclasses import replace

from mcap.reader import make_reader
from mcap.writer import Writer

from edgefirst_ros.synthetic import Recipe, write_recording
from edgefirst_ros.synthetic.scene import LIDAR


def messages(path):
    """(schema, channel, message) as they stand in a file."""
    with path.open("rb") as file:
        return list(make_reader(file).iter_messages(log_time_order=False))


def write(path, found, chunk_size=1 << 16, **options):
    """`options`: of the library's writer."""
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size, **options)
        writer.start(profile="ros2", library="test")
        known = {}
        for schema, channel, message in found:
            if channel.topic not in known:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                known[channel.topic] = writer.register_channel(channel.topic, channel.message_encoding, number)
            writer.add_message(
                known[channel.topic], message.log_time, message.data, message.publish_time, message.sequence
            )
        writer.finish()
    return path


def renumbered(found, first=0):
    """The same messages with sequence numbers of each topic from `first` on, as a recorder gives them to a new file."""
    numbers, changed = {}, []
    for schema, channel, message in found:
        number = numbers[channel.topic] = numbers.get(channel.topic, first - 1) + 1
        changed.append((schema, channel, replace(message, sequence=number)))
    return changed


def bag(folder, found, cuts, storage="mcap", begin="", *, overlap=0, fresh=False):
    """A rosbag2 folder of messages cut before the positions `cuts`, as `ros2 bag record --max-bag-size` makes one.

    `overlap`: messages at the end of a file that the next one has too; `fresh`: numbers of each file begin with 0.
    """
    folder.mkdir(parents=True)
    names = []
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(found)], strict=True)):
        names.append(f"{folder.name}_{number}.mcap")
        part = found[max(0, first - overlap) : last]
        write(folder / names[-1], renumbered(part) if fresh else part)
    lines = "".join(f"    - {begin}{name}\n" for name in names)
    (folder / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n"
        "  version: 5\n"
        f"  storage_identifier: {storage}\n"
        "  duration:\n    nanoseconds: 1\n"
        '  compression_format: ""\n  compression_mode: ""\n'
        f"  relative_file_paths:\n{lines}"
    )
    return folder


def together(*streams):
    """Messages of several recordings in one, in the order in which they were recorded."""
    return list(heapq.merge(*streams, key=lambda item: item[2].log_time))


REAR = (-1.5, 0.25, 1.75)
"""Place of the second lidar of `write_two_of_each` in base_link, m."""


def write_two_of_each(folder, also=(), **options):
    """Write a drive with a second camera, of another size, and a second lidar, in a frame of its own.

    `also`: topics of the first vehicle beside these. Returns the path and the rig.
    """
    small = {"seconds": 3.0, "codec": "jpeg", "lidar_points": 100} | options
    pictures = {"camera", "camera/info", "lidar/points"}
    topics = {"camera": "/left/jpeg", "camera/info": "/left/camera_info", "lidar/points": "/rear/points"}
    front, other = (
        write_recording(folder / f"{name}.mcap", Recipe(**small, **own)).path
        for name, own in (
            ("front", {"size": (160, 96), "topics": {*pictures, "gps", "imu", "tf_static", *also}}),
            ("other", {"size": (128, 64), "topics": pictures, "seed": 3, "rename": topics}),
        )
    )
    moved = [(schema, channel, replace(m, data=_in_frame(m.data))) for schema, channel, m in messages(other)]
    here, there = (struct.pack("<3d", *place) for place in (LIDAR, REAR))
    placed = [
        (schema, channel, replace(message, data=_in_frame(message.data).replace(here, there)))
        for schema, channel, message in messages(front)
        if channel.topic == "/tf_static" and b"lidar\0" in message.data
    ]
    rig = {
        "camera": {"topic": f"/camera/{small['codec']}", "info": "/camera/info"},
        "camera.left": {"topic": topics["camera"], "info": topics["camera/info"]},
        "lidar.points": "/lidar/points",
        "lidar.points.rear": topics["lidar/points"],
    }
    return write(folder / "rigged.mcap", together(messages(front), moved, placed)), rig


def _in_frame(data):
    return data.replace(b"\6\0\0\0lidar\0", b"\6\0\0\0aft_l\0")
