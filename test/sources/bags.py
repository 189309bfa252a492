# SPDX-License-Identifier: Apache-2.0
"""Recordings cut to pieces, and put together from others, by the mcap library."""

import heapq

from mcap.reader import make_reader
from mcap.writer import Writer


def messages(path):
    """(schema, channel, message) as they stand in a file."""
    with path.open("rb") as file:
        return list(make_reader(file).iter_messages(log_time_order=False))


def write(path, found, chunk_size=1 << 16):
    with path.open("wb") as file:
        writer = Writer(file, chunk_size=chunk_size)
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


def bag(folder, found, cuts, storage="mcap", begin=""):
    """A rosbag2 folder of messages cut before the positions `cuts`, as `ros2 bag record --max-bag-size` makes one."""
    folder.mkdir(parents=True)
    names = []
    for number, (first, last) in enumerate(zip([0, *cuts], [*cuts, len(found)], strict=True)):
        names.append(f"{folder.name}_{number}.mcap")
        write(folder / names[-1], found[first:last])
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
