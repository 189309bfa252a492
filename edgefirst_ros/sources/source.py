# SPDX-License-Identifier: Apache-2.0
"""Interface of all recordings: a file, or several joined files, in any container."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mcap.opcode import Opcode

from edgefirst_ros.messages import Message, full_type
from edgefirst_ros.sources.protobuf import PROTOBUF, open_converter


@dataclass(slots=True)
class Channel:
    """One channel of a recording."""

    topic: str
    schema: str
    encoding: str
    definition: bytes
    seen: int = 0
    convert: Callable[[bytes], bytes] | None = None
    """Turns the bytes of a message into CDR; None where they are CDR, or cannot be read."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes to the user on how its messages were turned, each once."""

    @property
    def readable(self) -> bool:
        """True if its messages are in CDR, or can be turned into it."""
        return self.encoding == "cdr" or self.convert is not None


class Definitions:
    """Schemas and channels, from their records; of several with the same id the first counts."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self._schemas: dict[int, tuple[str, bytes]] = {}

    def take(self, opcode: int, body: bytes) -> bool:
        """Add the body of a schema or channel record; False if it is cut.

        Raises EdgeFirstError where its messages need an extra that is not installed.
        """
        try:
            if opcode == Opcode.SCHEMA:
                (number,) = struct.unpack_from("<H", body)
                name, at = _text(body, 2)
                _, at = _text(body, at)
                self._schemas.setdefault(number, (full_type(name.decode("utf-8", "replace")), _text(body, at)[0]))
                return True
            number, schema = struct.unpack_from("<HH", body)
            topic, at = _text(body, 4)
            encoding, _ = _text(body, at)
        except struct.error:
            return False
        kind, definition = self._schemas.get(schema, ("", b""))
        channel = Channel(topic.decode("utf-8", "replace"), kind, encoding.decode("utf-8", "replace"), definition)
        if number not in self.channels:
            self.channels[number] = self._converted(channel)
        return True

    def _converted(self, channel: Channel) -> Channel:
        """Return a channel with the type of the ROS messages into which its messages are turned."""
        if channel.encoding != PROTOBUF:
            return channel
        found = open_converter(channel.schema, channel.definition, channel.notes.setdefault)
        if found is None:
            return channel
        return replace(channel, schema=found.schema, convert=found.convert, definition=b"")


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    """Return a text with its length before it, and where it ends; raises struct.error when it ends early."""
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise struct.error(f"a text of {length} bytes")
    return body[at + 4 : end], end


class Damage(NamedTuple):
    """A part of a recording that could not be read; `loss` is False where it cannot have held messages."""

    offset: int
    what: str
    loss: bool = True

    def __str__(self) -> str:
        return f"at byte {self.offset}: {self.what}"

    @property
    def plain(self) -> dict[str, Any]:
        """Entry of `damage` in the dataset's metadata `sources`: {"offset", "what"}, "loss": False without loss."""
        plain: dict[str, Any] = {"offset": self.offset, "what": self.what}
        return plain if self.loss else {**plain, "loss": False}


class RecordedFile(NamedTuple):
    """One file of a recording."""

    path: Path
    size: int
    """Size in bytes."""
    sha256: str | None
    """Hex digits, if `walk()` was requested it."""
    damage: Sequence[Damage]

    @property
    def plain(self) -> dict[str, Any]:
        """Entry of the dataset's metadata `sources`: {"file", "size", "sha256"}, and "damage" if it has any."""
        plain: dict[str, Any] = {"file": self.path.name, "size": self.size, "sha256": self.sha256}
        if self.damage:
            plain["damage"] = [damage.plain for damage in self.damage]
        return plain


class Recording(Protocol):
    """A source of CDR messages with topics and types, that can be read again and may be damaged."""

    path: Path
    """Path of its first file."""

    @property
    def files(self) -> Sequence[RecordedFile]:
        """The files it is made of, in order, as `walk()` found them."""

    @property
    def size(self) -> int:
        """Bytes of the recording, known once `walk()` has begun."""

    @property
    def position(self) -> int:
        """Bytes that `walk()` has done."""

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id, as `walk()` found them; other encodings too."""

    @property
    def topics(self) -> Mapping[str, str]:
        """Topics with CDR messages -> type; a topic with several types has that of its first channel."""
        found: dict[str, str] = {}
        for channel in self.channels.values():
            if channel.readable and channel.seen:
                found.setdefault(channel.topic, channel.schema)
        return found

    @property
    def damage(self) -> Sequence[Damage]:
        """Parts that `walk()` could not read, in all files."""
        return [damage for file in self.files for damage in file.damage]

    @property
    def repeated(self) -> Mapping[str, int]:
        """{topic: messages that two of its files have}, as `walk()` found them; they are yielded once."""

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield messages in recorded order. Only a part of a large source is held in memory.

        `topics`: names, or a mapping {topic: type} that takes messages of these types only; None: every topic.
        `start` and `end`: log times in ns, from `start` to before `end`; None: no limit.
        Raises RecordingError where the source cannot be read.
        """

    def walk(self) -> Iterator[Message]:
        """Read everything once and yield every CDR message in the order in which it is stored.

        Raises RecordingError where the recording cannot be read.
        """


def join_channels(files: Iterable[Mapping[int, Channel]]) -> Mapping[int, Channel]:
    """Return the channels of all files by number; those of one topic, type and encoding are one."""
    found: dict[tuple[str, str, str], Channel] = {}
    for channel in (channel for channels in files for channel in channels.values()):
        known = found.setdefault((channel.topic, channel.schema, channel.encoding), replace(channel, seen=0))
        known.seen += channel.seen
    return dict(enumerate(found.values()))


def type_wanted(topics: Collection[str] | None, topic: str, schema: str) -> bool:
    """True if messages of a topic and type are needed; `topics` as in `Recording.iter_messages`."""
    if topics is None:
        return True
    return topics.get(topic) == schema if isinstance(topics, Mapping) else topic in topics


def in_span(log_time: int, start: int | None, end: int | None) -> bool:
    """True if a log time is in the span from `start` to before `end`, ns; None: no limit."""
    return (start is None or log_time >= start) and (end is None or log_time < end)
