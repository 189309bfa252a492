# SPDX-License-Identifier: Apache-2.0
"""Interface of all recordings: a file, or several joined files, in any container."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from zlib_ng import zlib_ng

from edgefirst_ros.errors import RecordingError, list_beside
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.messages import Message

ZSTD = b"\x28\xb5\x2f\xfd"
"""How a message begins that rosbag2 has compressed; CDR begins with 0."""

Note = Callable[[str], object]
"""Called with a note to the user."""
Convert = Callable[[bytes], bytes]
"""Turns a message into CDR; returns no bytes for one that does not parse, so that it counts as undecodable."""


@dataclass(slots=True)
class Channel:
    """One channel of a recording."""

    topic: str
    schema: str
    encoding: str
    definition: bytes
    seen: int = 0
    convert: Convert | None = None
    """None where messages are in CDR, or cannot be read."""
    notes: dict[str, None] = field(default_factory=dict)
    """Notes to the user on how its messages were turned, each once."""

    @property
    def readable(self) -> bool:
        """True if its messages are in CDR, or can be turned into it."""
        return self.encoding == "cdr" or self.convert is not None

    def to_cdr(self, data: bytes, largest: int) -> bytes:
        """Return a message in CDR: turned into it, or unpacked where rosbag2 has compressed it.

        It has no bytes if it is damaged, or would have more than `largest` bytes.
        """
        if self.convert is not None:
            return self.convert(data)
        if not data.startswith(ZSTD):
            return data
        import zstandard

        try:
            if zstandard.frame_content_size(data) > largest:
                return b""
            return zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError:
            return b""


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


def hash_message(message: Message) -> int:
    """Return a number of 64 bits that represents topic, `log_time` and bytes of a message."""
    return hash((message.topic, message.log_time, len(message.data), zlib_ng.crc32(message.data)))


class Repeats:
    """Finds messages that an earlier file of the recording has too: with equal topic, `log_time` and bytes.

    It takes 8 bytes a message. Owns: the thread that walks.
    """

    def __init__(self) -> None:
        self._file = 0
        self._here = array("q")  # keys of the messages of this file
        self._earlier = np.empty(0, np.int64)  # sorted keys of the messages of the files before it
        self._newest = self._newest_earlier = -1  # latest `log_time` of this file, and of those before it, ns

    def find(self, message: Message) -> int | None:
        """Note the next message; return its key if an earlier file has it, else None."""
        if message.file != self._file:
            self._file, self._newest_earlier = message.file, max(self._newest, self._newest_earlier)
            self._earlier = np.sort(np.concatenate([self._earlier, np.frombuffer(self._here, np.int64)]))
            self._here = array("q")
        key = hash_message(message)
        if message.log_time <= self._newest_earlier:
            place = int(self._earlier.searchsorted(key))
            if place < len(self._earlier) and self._earlier[place] == key:
                return key
        self._here.append(key)
        self._newest = max(self._newest, message.log_time)
        return None


@dataclass(eq=False)
class RecordedFile:
    """One file of a recording, and its facts, which a walk through it finds.

    Owns: the thread that walks; once `complete` any thread may read.
    """

    path: Path
    number: int
    """Its place among the files of the recording."""
    repeats: Repeats | None
    """The messages of the files before it, which are not used again; None of the only file."""
    size: int = 0
    """Bytes."""
    position: int = 0
    """Bytes that the walk has done."""
    complete: bool = False
    sha256: str | None = None
    """Hex digits, if the recording is hashed."""
    channels: dict[int, Channel] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    repeated: Counter[str] = field(default_factory=Counter)
    """{topic: messages that an earlier file has too}."""
    again: set[int] = field(default_factory=set)
    """Keys of these messages."""

    @property
    def plain(self) -> dict[str, Any]:
        """Entry of the dataset's metadata `sources`: {"file", "size", "sha256"}, and "damage" if it has any."""
        plain: dict[str, Any] = {"file": self.path.name, "size": self.size, "sha256": self.sha256}
        if self.damage:
            plain["damage"] = [damage.plain for damage in self.damage]
        return plain

    def add(self, message: Message) -> bool:
        """Note the next message of the walk; return False if an earlier file has it, so that it is not used."""
        if self.repeats is None or (again := self.repeats.find(message)) is None:
            return True
        self.again.add(again)
        self.repeated[message.topic] += 1
        return False

    def is_repeated(self, message: Message) -> bool:
        """True if an earlier file of the recording has the same message, as the walk found."""
        return bool(self.again) and hash_message(message) in self.again

    def select_channels(self, topics: Collection[str] | None) -> frozenset[int]:
        """Return the ids of its readable channels of some topics, as in `Recording.iter_messages`."""
        types = topics if isinstance(topics, Mapping) else {}
        found = {n: c for n, c in self.channels.items() if c.readable and (topics is None or c.topic in topics)}
        return frozenset(number for number, one in found.items() if types.get(one.topic, one.schema) == one.schema)


class Recording(ABC):
    """A source of CDR messages with topics and types, that can be read again and may be damaged."""

    path: Path
    """Path of its first file."""
    _files: Sequence[RecordedFile] = ()

    @property
    def files(self) -> Sequence[RecordedFile]:
        """The files it is made of, in order, as `walk()` found them."""
        return self._files

    @property
    def size(self) -> int:
        """Bytes of the recording, known once `walk()` has begun."""
        return sum(file.size for file in self.files)

    @property
    def position(self) -> int:
        """Bytes that `walk()` has done."""
        return sum(file.position for file in self.files)

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id, as `walk()` found them, of any encoding; those of one topic, type and encoding are one."""
        found: dict[tuple[str, str, str], Channel] = {}
        for channel in (channel for file in self.files for channel in file.channels.values()):
            known = found.setdefault((channel.topic, channel.schema, channel.encoding), replace(channel, seen=0))
            known.seen += channel.seen
        return dict(enumerate(found.values()))

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
        return sum((file.repeated for file in self.files), Counter())

    @abstractmethod
    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield messages in recorded order. Only a part of a large source is held in memory.

        `topics`: names, or a mapping {topic: type} that takes messages of these types only; None: every topic.
        `start` and `end`: log times in ns, from `start` to before `end`; None: no limit.
        Raises RecordingError where the source cannot be read.
        """

    @abstractmethod
    def walk(self) -> Iterator[Message]:
        """Read everything once and yield every CDR message in the order in which it is stored.

        Raises RecordingError where the recording cannot be read.
        """


def open_recording(path: Path) -> io.BufferedReader:
    """Open a recording as a buffered file. Raises RecordingError if it does not exist or cannot be read."""
    return io.BufferedReader(open_raw(path), 1 << 16)


def open_raw(path: Path) -> io.FileIO:
    """Open a recording without a buffer. Raises as `open_recording`."""
    try:
        if not path.is_file():
            there = "is a directory" if path.is_dir() else "is not a file"
            found = there if path.exists() else f"no such file or directory{list_beside(path)}"
            raise RecordingError(f"{path}: {found}; expected an MCAP recording")
        return io.FileIO(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordingError(f"{path}: cannot be opened: {why}") from error


def hash_file(path: Path) -> str:
    """Return the hash of a recording that is not walked, as hex digits. Raises RecordingError."""
    with open_recording(path) as file:
        try:
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
            return digest.hexdigest()
        except OSError as error:
            raise RecordingError(f"{path}: cannot be read: {error}") from error


class FileRecording(Recording):
    """A recording in a file, or in several that are parts of one, in order; each container has its own way to read one.

    Owns: one thread at a time; do not call `walk()` while another one reads.
    """

    def __init__(
        self, path: Path, limits: Limits = DEFAULT_LIMITS, *, hashed: bool = False, more: Iterable[Path] = ()
    ) -> None:
        """`more`: the files after the first; `hashed`: `walk()` makes the SHA-256 of each file on its way."""
        self.path = path
        self._paths = (path, *more)
        self._hashed = hashed
        self._largest = limits.chunk_bytes

    def walk(self) -> Iterator[Message]:
        """Read the recording from start to end and yield every CDR message once, in file order.

        A message that two files have is yielded once.
        Raises RecordingError where a file cannot be opened or is of another container.
        """
        self._files = self._begin(Repeats() if len(self._paths) > 1 else None)
        for file in self._files:
            with suppress(OSError, ValueError):
                file.size = file.path.stat().st_size
        for file in self._files:
            yield from self._walk(file)

    def _finish_walk(self) -> None:
        if not self._files or not self._files[-1].complete:
            for _ in self.walk():
                pass

    @abstractmethod
    def _begin(self, repeats: Repeats | None) -> Sequence[RecordedFile]:
        """Return the files, not walked."""

    @abstractmethod
    def _walk(self, file: Any) -> Iterator[Message]:
        """Yield the messages of one of these files, and complete it."""


def in_span(log_time: int, start: int | None, end: int | None) -> bool:
    """True if a log time is in the span from `start` to before `end`, ns; None: no limit."""
    return (start is None or log_time >= start) and (end is None or log_time < end)
