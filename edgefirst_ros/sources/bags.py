# SPDX-License-Identifier: Apache-2.0
"""Recordings in rosbag2 databases (*.db3) and ROS 1 bags (*.bag), read by `rosbags`; damage is reported."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs

from edgefirst_ros.errors import RecordingError, need
from edgefirst_ros.messages import Message, expand_type
from edgefirst_ros.sources import source
from edgefirst_ros.sources.protobuf import write_cdr
from edgefirst_ros.sources.source import Channel, Convert, Damage, FileRecording, Note, RecordedFile, Repeats, in_span
from edgefirst_ros.streams import CLOUD, FFMPEG, TF_MESSAGE

BAG, DATABASE = ".bag", ".db3"
BESIDE = ("-wal", "-journal")
"""Name endings of a database's files with data not yet merged into it."""
LONGEST_TEXT = 1 << 17
"""Bytes of a definition of ROS 1; a longer one is not read: the time for it grows with the square of its length."""
HEADER = "builtin_interfaces/Time stamp\nstring frame_id"
"""std_msgs/Header of ROS 2, which has no seq."""
TEXTS = """
CREATE TEMP VIEW message_definitions AS
SELECT id, topic_type, iif(encoding = 'ros2idl', encoding, 'ros2msg') AS encoding,
encoded_message_definition, type_description_hash FROM main.message_definitions
"""
"""A view in place of the table of the same name, in which every text of a type has a form that `rosbags` knows."""
IN_URI = str.maketrans({"%": "%25", "?": "%3f", "#": "%23"})
"""What letters of a path become, which `rosbags` puts into a URI as it is."""
FLOAT32 = 7
"""PointField.datatype of the numbers of a PointCloud."""
OLDER = {"tf/msg/tfMessage": TF_MESSAGE, "sensor_msgs/msg/PointCloud": CLOUD}
"""ROS 1 type -> ROS 2 type that has taken its place."""


class _Bag(RecordedFile):
    whole = 0  # messages before the first that cannot be read


class BagRecording(FileRecording):
    """Recording in *.db3 or *.bag files; messages of ROS 1 are turned into CDR.

    Messages come in the order of their log times, and have no sequence numbers. Messages from the first unreadable one
    on are lost, and reported.
    """

    _files: Sequence[_Bag]

    def _begin(self, repeats: Repeats | None) -> Sequence[_Bag]:
        return [_Bag(path, number, repeats) for number, path in enumerate(self._paths)]

    def _walk(self, file: _Bag) -> Iterator[Message]:
        file.sha256 = source.hash_file(file.path) if self._hashed else None
        with self._open_bag(file.path) as reader:
            file.channels = {connection.id: _make_channel(connection) for connection in reader.connections}
            try:
                for connection, log_time, data in reader.messages(reader.connections):
                    file.whole += 1
                    file.position = file.size * file.whole // max(1, reader.message_count)
                    channel = file.channels[connection.id]
                    channel.seen += 1
                    if channel.readable:
                        message = self._message(file, channel, log_time, data)
                        if file.add(message):
                            yield message
            except Exception as error:  # noqa: BLE001  any error of sqlite and rosbags on damaged data
                what = f"cannot be read after message {file.whole}, the rest is lost: {error or type(error).__name__}"
                file.damage.append(Damage(file.size * file.whole // max(1, reader.message_count), what))
        for end in BESIDE:
            beside = file.path.with_name(file.path.name + end)
            if file.path.suffix == DATABASE and beside.exists() and beside.stat().st_size:
                what = f"messages in {beside.name} are not read: end the recorder, or open it once with sqlite3"
                file.damage.append(Damage(file.size, what))
        file.complete = True

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield the CDR messages of some topics in the order of their log times, as `Recording.iter_messages` says."""
        self._finish_walk()
        files = [self._messages_of(bag, topics, start, end) for bag in self._files]
        return heapq.merge(*files, key=attrgetter("log_time"))

    def _messages_of(
        self, bag: _Bag, topics: Collection[str] | None, start: int | None, end: int | None
    ) -> Iterator[Message]:
        if not (wanted := bag.select_channels(topics)):
            return
        with self._open_bag(bag.path) as reader:
            if bag.damage:  # all is read as in the first pass, up to the place where it cannot be
                found = islice(reader.messages(reader.connections), bag.whole)
            else:
                found = reader.messages([c for c in reader.connections if c.id in wanted], start, end)
            for connection, log_time, data in found:
                if connection.id in wanted and in_span(log_time, start, end):
                    message = self._message(bag, bag.channels[connection.id], log_time, data)
                    if not bag.is_repeated(message):
                        yield message

    @contextmanager
    def _open_bag(self, path: Path) -> Iterator[Any]:
        """Open a file by `rosbags`; yields its reader. Raises RecordingError."""
        import apsw  # by which `rosbags` reads databases
        from rosbags import rosbag1, rosbag2

        source.open_recording(path).close()
        reader: Any = (rosbag1.Reader if path.suffix == BAG else rosbag2.Reader)(path)
        if path.suffix == DATABASE:
            reader.storage.path = Path(str(path).translate(IN_URI))
        apsw.connection_hooks.append(_hide_unknown)
        try:
            reader.open()
        except Exception as error:  # any error of sqlite and rosbags on another kind of file
            what = error or type(error).__name__
            raise RecordingError(f"{path}: cannot be opened as {path.suffix}: {what}") from error
        finally:
            apsw.connection_hooks.remove(_hide_unknown)
        try:
            yield reader
        finally:
            reader.close()

    def _message(self, bag: _Bag, channel: Channel, log_time: int, data: bytes) -> Message:
        data = channel.to_cdr(data, self._largest)
        return Message(channel.topic, channel.schema, log_time, log_time, 0, data, channel.definition, bag.number)


def _hide_unknown(database: Any) -> None:
    """Let `rosbags` read types whose text has the form `unknown`, as rosbag2 writes those of services and actions."""
    database.execute(TEXTS)


def _make_channel(connection: Any) -> Channel:
    schema = expand_type(connection.msgtype)
    encoding = getattr(connection.ext, "serialization_format", "ros1")
    definition = b"" if encoding == "cdr" and not connection.digest else str(connection.msgdef.data).encode()
    channel = Channel(connection.topic, schema, encoding, definition)
    if encoding == "ros1":
        channel.schema, channel.convert = open_converter(schema, definition, channel.notes.setdefault)
    return channel


def open_converter(kind: str, definition: bytes, note: Note) -> tuple[str, Convert]:
    """Return the type of the ROS 2 messages for a type of ROS 1, and what turns messages into them.

    Args:
        kind: The type, `sensor_msgs/msg/Image`.
        definition: Its definition of ROS 1, with those of all types in it.
        note: Not called.

    Raises:
        EdgeFirstError: The extra is not installed.
    """
    need("a recording of ROS 1", "bags", "rosbags")
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    new = OLDER.get(kind, kind)
    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(HEADER, "std_msgs/msg/Header"))
    with suppress(Exception):  # its messages do not decode, and are counted
        found = get_types_from_msg(definition.decode() if len(definition) <= LONGEST_TEXT else "", kind)
        store.register({name: fields for name, fields in found.items() if name not in store.types})

    older = _convert_packet if kind == FFMPEG and b"img_width" in definition else None
    renew = _convert_cloud if new == CLOUD != kind else older

    def convert(data: bytes) -> bytes:
        try:
            made = bytes(store.ros1_to_cdr(data, kind))
            return made if renew is None else renew(store.deserialize_cdr(made, kind))
        except Exception:  # noqa: BLE001  any error of rosbags on bad bytes
            return b""

    return new, convert


def _convert_packet(sent: Any) -> bytes:
    """Return an FFMPEGPacket of ROS 1, whose fields have another order and other names, as one of ROS 2."""
    stamp, data = sent.header.stamp, bytes(sent.data)
    head = ("i", stamp.sec), ("I", stamp.nanosec), ("s", sent.header.frame_id)
    size = ("i", sent.img_width), ("i", sent.img_height)
    rest = ("s", sent.encoding), ("Q", sent.pts), ("B", sent.flags), ("B", 0), ("I", len(data))
    return write_cdr([*head, *size, *rest]) + data


def _convert_cloud(sent: Any) -> bytes:
    """Return a PointCloud of ROS 1 as a PointCloud2 whose fields are its channels, as ROS converts it."""
    columns = [("x", [p.x for p in sent.points]), ("y", [p.y for p in sent.points]), ("z", [p.z for p in sent.points])]
    columns += [(channel.name, channel.values) for channel in sent.channels]
    points = np.stack([np.asarray(values, "<f4") for _, values in columns], axis=1)
    fields = [sensor_msgs.PointField(name, 4 * n, FLOAT32, 1) for n, (name, _) in enumerate(columns)]
    stamp, (width, step) = sent.header.stamp, (len(points), 4 * len(columns))
    header = std_msgs.Header(builtin_interfaces.Time(stamp.sec, stamp.nanosec), sent.header.frame_id)
    made = sensor_msgs.PointCloud2(header, 1, width, fields, False, step, step * width, points.tobytes(), False)
    return bytes(made.to_bytes())
