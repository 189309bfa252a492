# SPDX-License-Identifier: Apache-2.0
"""Recordings in MCAP files, whole or damaged: read chunk by chunk, never seeking back, every loss reported."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.errors import RecordingError
from edgefirst_ros.messages import Message
from edgefirst_ros.sources.container import (
    MESSAGE_HEAD,
    Chunk,
    messages,
    open_raw,
    open_recording,
    read_messages,
    split_message,
    unpack,
)
from edgefirst_ros.sources.definitions import Channel
from edgefirst_ros.sources.digest import HashedFile
from edgefirst_ros.sources.mcap_walk import LATEST, McapWalk
from edgefirst_ros.sources.order import recorded_order
from edgefirst_ros.sources.source import Damage, Recording, in_span, type_wanted

HELD_CHUNKS = 64 << 20
"""Bytes of unpacked chunks kept while a file that is out of order is put in order."""


class McapRecording(Recording):
    """One MCAP file: a `Recording`.

    `walk()` reads the whole file once, checks every chunk, and leaves in `channels` what it has, in `damage` what
    could not be read. `iter_messages()` then reads the messages of some topics in recorded order, as often as wanted;
    a file that was not walked yet is walked first.
    Owns: one thread at a time; none may call `walk()` while another one reads.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS, *, hashed: bool = False) -> None:
        """`hashed`: `walk()` makes the SHA-256 of the file on its way."""
        self.path = path
        self.sha256: str | None = None
        """Of the whole file, damaged parts too, as hex digits; None before a walk that makes it."""
        self._hashed = hashed
        self._largest = limits.chunk_bytes
        self._walk = McapWalk(self._largest)

    @property
    def size(self) -> int:
        """Bytes of the file; 0 before the walk."""
        return self._walk.size

    @property
    def position(self) -> int:
        """Bytes that `walk()` has done."""
        return self._walk.position

    @property
    def channels(self) -> Mapping[int, Channel]:
        """The channels by their numbers, those of other encodings too."""
        return self._walk.channels

    @property
    def damage(self) -> Sequence[Damage]:
        """What could not be read."""
        return self._walk.damage

    @property
    def ended(self) -> bool:
        """True if the file says that its data ends, so that nothing was cut off."""
        return self._walk.ended

    @property
    def topics(self) -> dict[str, str]:
        """Topics with CDR messages -> type; a topic with several types has that of its first channel."""
        found: dict[str, str] = {}
        for channel in self.channels.values():
            if channel.encoding == "cdr" and channel.seen:
                found.setdefault(channel.topic, channel.schema)
        return found

    @property
    def notes(self) -> list[str]:
        """What could not be read, in words."""
        return [f"at byte {damage.offset}: {damage.what}" for damage in self.damage]

    def walk(self) -> Iterator[Message]:
        """Read the file from start to end and yield every CDR message once, in file order.

        Raises RecordingError where the file cannot be opened or is no MCAP file.
        """
        self._walk = walk = McapWalk(self._largest)
        if not self._hashed:
            with open_recording(self.path) as file:
                yield from walk.messages(file, self.path)
            return
        with open_raw(self.path, HashedFile) as raw, io.BufferedReader(raw, 1 << 16) as file:
            yield from walk.messages(file, self.path, raw.reach)
            self.sha256 = raw.sha256()

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield the CDR messages of some topics in recorded order, as `Source.iter_messages` says.

        Recorded order within a topic is that of the sequence numbers where these are all different, else that of
        `log_time`; between topics it is file order, or that of `log_time` where the file is out of order.
        Raises RecordingError where the file cannot be read, or has changed since it was walked.
        """
        if not self._walk.complete:
            for _ in self.walk():
                pass
        walk = self._walk
        wanted = frozenset(
            number
            for number, c in self.channels.items()
            if c.encoding == "cdr" and type_wanted(topics, c.topic, c.schema)
        )
        chunks = [chunk for chunk in walk.chunks if chunk.contents.counts.keys() & wanted]
        if walk.order.is_recorded_order:
            inside = [chunk for chunk in chunks if chunk.contents.overlaps(start, end)]
            found = self._file_order(inside, wanted)
        else:
            found = self._sorted(chunks, wanted, start, end)
        yield from (message for message in found if in_span(message.log_time, start, end))

    def _file_order(self, chunks: Iterable[Chunk], wanted: frozenset[int]) -> Iterator[Message]:
        with open_recording(self.path) as file:
            left = 0
            for chunk in chunks:
                left += chunk.contents.of(wanted)
                with self._unchanged():
                    for head, body in read_messages(file, chunk, wanted, self._largest):
                        left -= 1
                        yield self._walk.message(head, body)
            self._complete(left)

    def _complete(self, left: int) -> None:
        """Raise RecordingError where `left` messages of the first pass are not there any more."""
        if left:
            raise RecordingError(f"{self.path}: changed while it was read: {left} messages are gone")

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise RecordingError(f"{self.path}: changed while it was read: {error}") from error

    def _sorted(
        self, chunks: list[Chunk], wanted: frozenset[int], start: int | None, end: int | None
    ) -> Iterator[Message]:
        """Messages of a file that is out of order: by an index of 30 bytes a message."""
        with open_recording(self.path) as file:
            topics = sorted({self.channels[number].topic for number in wanted})
            rows = recorded_order(self._index(file, chunks, wanted, topics))
            self._complete(sum(chunk.contents.of(wanted) for chunk in chunks) - len(rows))
            held: OrderedDict[int, bytes] = OrderedDict()
            for log, place, at, length in zip(rows["log"], rows["chunk"], rows["at"], rows["length"], strict=True):
                if not in_span(min(int(log), LATEST), start, end):
                    continue
                key = int(place)
                if key not in held:
                    with self._unchanged():
                        held[key] = unpack(file, chunks[key], self._largest)
                    while len(held) > 1 and sum(map(len, held.values())) > HELD_CHUNKS:
                        held.popitem(last=False)
                held.move_to_end(key)
                yield self._walk.message(*split_message(held[key], int(at), int(length)))

    def _index(
        self, file: BinaryIO, chunks: list[Chunk], wanted: frozenset[int], topics: list[str]
    ) -> np.ndarray[Any, Any]:
        fields = ["topic", "channel", "sequence", "log", "chunk", "at", "length"]
        kind = np.dtype(list(zip(fields, ("u4", "u2", "u4", "u8", "u4", "u4", "u4"), strict=True)))
        parts = []
        for place, chunk in enumerate(chunks):
            with self._unchanged():
                data = unpack(file, chunk, self._largest)
            found = [
                (topics.index(self.channels[number].topic), *MESSAGE_HEAD.unpack_from(data, at)[:3], place, at, length)
                for number, at, length in messages(data, wanted)
            ]
            parts.append(np.array(found, kind))
        return np.concatenate(parts) if parts else np.empty(0, kind)
