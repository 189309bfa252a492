# SPDX-License-Identifier: Apache-2.0
"""Recordings cut to pieces, and put together from others, by the mcap library."""

import heapq
from dataclasses import replace

from mcap.reader import make_reader
from mcap.writer import Writer


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
