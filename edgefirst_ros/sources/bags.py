# SPDX-License-Identifier: Apache-2.0
"""Recordings in rosbag2 databases (*.db3) and ROS 1 bags (*.bag), read by `rosbags`; damage is reported."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.messages import Message, full_type
from edgefirst_ros.sources.mcap import sha256
from edgefirst_ros.sources.mcap_walk import Repeats, key_of, open_raw
from edgefirst_ros.sources.source import Channel, Damage, RecordedFile, Recording, in_span, join_channels, type_wanted
from edgefirst_ros.streams import TF_MESSAGE

BAG, DATABASE = ".bag", ".db3"
ZSTD = b"\x28\xb5\x2f\xfd"
"""How a message begins that rosbag2 has compressed; CDR begins with 0."""
BESIDE = ("-wal", "-journal")
"""Name endings of a database's files with data not yet merged into it."""
HEADER = "builtin_interfaces/Time stamp\nstring frame_id"
"""std_msgs/Header of ROS 2, which has no seq."""
OLDER = {"tf/msg/tfMessage": TF_MESSAGE}
"""ROS 1 type -> ROS 2 type of the same fields."""


@dataclass(slots=True)
class _Bag:
    """One file of a recording, and its facts of the first pass."""

    path: Path
    number: int
    size: int = 0
    sha256: str | None = None
    channels: dict[int, Channel] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    whole: int = 0
    """Messages before the first that cannot be read."""
    repeated: Counter[str] = field(default_factory=Counter)
    again: set[int] = field(default_factory=set)
    """Keys of the messages that an earlier file has too."""


class BagRecording(Recording):
    """Recording in *.db3 or *.bag files; messages of ROS 1 are turned into CDR.

    Messages come in the order of their log times, and have no sequence numbers. Messages from the first unreadable one
    on are lost, and reported.
    """

    def __init__(
        self, path: Path, limits: Limits = DEFAULT_LIMITS, *, hashed: bool = False, more: Iterable[Path] = ()
    ) -> None:
        """`hashed`: make the SHA-256 of each file; `more`: the files that follow the first one."""
        self.path = path
        self._largest = limits.chunk_bytes
        self._hashed = hashed
        self._bags = [_Bag(file, number) for number, file in enumerate((path, *more))]
        self._read = 0
        self._messages = 0
        self._walked = False

    @property
    def files(self) -> Sequence[RecordedFile]:
        return [RecordedFile(bag.path, bag.size, bag.sha256, bag.damage) for bag in self._bags]

    @property
    def size(self) -> int:
        return sum(bag.size for bag in self._bags)

    @property
    def position(self) -> int:
        return self.size * self._read // max(1, self._messages)

    @property
    def channels(self) -> Mapping[int, Channel]:
        return join_channels(bag.channels for bag in self._bags)

    @property
    def repeated(self) -> Counter[str]:
        return sum((bag.repeated for bag in self._bags), Counter())

    def walk(self) -> Iterator[Message]:
        repeats = Repeats() if len(self._bags) > 1 else None
        for bag in self._bags:
            with open_raw(bag.path) as file:
                bag.size = file.seek(0, 2)
        self._walked, self._read, self._messages = True, 0, 0
        for bag in self._bags:
            bag.channels, bag.damage, bag.whole = {}, [], 0
            bag.repeated, bag.again = Counter(), set()
            bag.sha256 = sha256(bag.path) if self._hashed else None
            with _opened(bag.path) as (reader, turn):
                self._messages += reader.message_count
                for connection in reader.connections:
                    bag.channels[connection.id] = _channel(connection)
                found = reader.messages(reader.connections)
                try:
                    for connection, log_time, data in found:
                        bag.whole += 1
                        self._read += 1
                        channel = bag.channels[connection.id]
                        channel.seen += 1
                        if channel.encoding != "cdr":
                            continue
                        message = _message(bag, channel, log_time, turn(connection, data))
                        if repeats is not None and (again := repeats.find(message)) is not None:
                            bag.again.add(again)
                            bag.repeated[channel.topic] += 1
                            continue
                        yield message
                except Exception as error:  # noqa: BLE001  any error of sqlite and rosbags on damaged data
                    what = (
                        f"cannot be read after message {bag.whole}, the rest is lost: {error or type(error).__name__}"
                    )
                    bag.damage.append(Damage(bag.size * bag.whole // max(1, reader.message_count), what))
            for end in BESIDE:
                beside = bag.path.with_name(bag.path.name + end)
                if bag.path.suffix == DATABASE and beside.exists() and beside.stat().st_size:
                    what = f"messages in {beside.name} are not read: end the recorder, or open it once with sqlite3"
                    bag.damage.append(Damage(bag.size, what))

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield the CDR messages of some topics in the order of their log times, as `Recording.iter_messages` says."""
        if not self._walked:
            for _ in self.walk():
                pass
        files = [self._messages_of(bag, topics, start, end) for bag in self._bags]
        return heapq.merge(*files, key=attrgetter("log_time"))

    def _messages_of(
        self, bag: _Bag, topics: Collection[str] | None, start: int | None, end: int | None
    ) -> Iterator[Message]:
        wanted = {
            number
            for number, c in bag.channels.items()
            if c.encoding == "cdr" and type_wanted(topics, c.topic, c.schema)
        }
        with _opened(bag.path) as (reader, turn):
            if not wanted:
                return
            if bag.damage:  # all is read as in the first pass, up to the place where it cannot be
                found = islice(reader.messages(reader.connections), bag.whole)
            else:
                found = reader.messages([c for c in reader.connections if c.id in wanted], start, end)
            for connection, log_time, data in found:
                if connection.id in wanted and in_span(log_time, start, end):
                    message = _message(bag, bag.channels[connection.id], log_time, turn(connection, data))
                    if not bag.again or key_of(message) not in bag.again:
                        yield message


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Callable[[Any, bytes], bytes]]]:
    """Open a file by `rosbags`; yields its reader and its converter of a message to CDR. Raises RecordingError."""
    from rosbags import rosbag1, rosbag2

    reader = (rosbag1.Reader if path.suffix == BAG else rosbag2.Reader)(path)
    try:
        reader.open()
    except Exception as error:  # any error of sqlite and rosbags on another kind of file
        raise RecordingError(f"{path}: cannot be opened as {path.suffix}: {error or type(error).__name__}") from error
    try:
        yield reader, partial(_ros1_to_cdr, _types(reader)) if path.suffix == BAG else _unpacked
    finally:
        reader.close()


def _channel(connection: Any) -> Channel:
    schema = full_type(connection.msgtype)
    encoding = getattr(connection.ext, "serialization_format", "cdr")
    definition = b"" if encoding == "cdr" and not connection.digest else str(connection.msgdef.data).encode()
    return Channel(connection.topic, OLDER.get(schema, schema), encoding, definition)


def _message(bag: _Bag, channel: Channel, log_time: int, data: bytes) -> Message:
    return Message(channel.topic, channel.schema, log_time, log_time, 0, data, channel.definition, bag.number)


def _unpacked(connection: Any, data: bytes) -> bytes:
    if data.startswith(ZSTD):
        import zstandard

        return zstandard.ZstdDecompressor().decompress(data)
    return data


def _types(reader: Any) -> Any:
    """Return the types of a ROS 1 bag by its own definitions, as `rosbags` knows them."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(HEADER, "std_msgs/msg/Header"))
    for connection in reader.connections:
        try:
            found = get_types_from_msg(connection.msgdef.data, connection.msgtype)
            store.register({name: kind for name, kind in found.items() if name not in store.types})
        except Exception:  # noqa: BLE001, S112  its messages do not decode, and are counted
            continue
    return store


def _ros1_to_cdr(store: Any, connection: Any, data: bytes) -> bytes:
    """Return a message of ROS 1 in CDR; no bytes for one that does not fit its definition."""
    try:
        return bytes(store.ros1_to_cdr(data, connection.msgtype))
    except Exception:  # noqa: BLE001  any error of rosbags on bad bytes
        return b""
