# SPDX-License-Identifier: Apache-2.0
"""Recordings in MCAP files, whole or damaged: read chunk by chunk, never seeking back, nothing lost in silence."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from isal import isal_zlib
from mcap.opcode import Opcode

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.errors import RecordingError
from edgefirst_ros.messages import Message
from edgefirst_ros.sources.container import (
    HEAD,
    LONGEST_START,
    MAGIC,
    MESSAGE_HEAD,
    UNFINISHED,
    Chunk,
    ChunkHead,
    MessageHead,
    chunk_head,
    definitions,
    find_chunk,
    messages,
    open_recording,
    read_messages,
    records,
    split_message,
    unpack,
)
from edgefirst_ros.sources.definitions import Channel, Definitions
from edgefirst_ros.sources.order import FileOrder, recorded_order

LONGEST_TEXT = 1 << 24
"""Bytes a schema or channel record may have."""
LOOSE_CHUNK = 1 << 20
"""Bytes of messages outside of chunks that are kept as one."""
COMPRESSIONS = ("", "lz4", "zstd")
WITHOUT_MESSAGES = frozenset(Opcode) - {Opcode.MESSAGE, Opcode.CHUNK}
"""Types of records that may be cut off without a loss."""
HELD_CHUNKS = 64 << 20
"""Bytes of unpacked chunks kept while a file that is out of order is put in order."""
LATEST = 4_000_000_000_000_000_000
"""ns, in the year 2096: later stamps are cut to it, so that differences of stamps fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A part of the file that could not be read; `loss` is False where nothing can have been in it."""

    offset: int
    what: str
    loss: bool = True


class McapRecording:
    """One MCAP file.

    `survey()` must be called first: it walks the whole file once, checks every chunk, and leaves in `channels`
    what there is, in `damage` what could not be read. `messages()` then gives the messages of some topics in
    recorded order, as often as wanted.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._largest = limits.chunk_bytes
        self._definitions = Definitions()
        self.channels = self._definitions.channels
        self.damage: list[Damage] = []
        self.size = 0
        self.position = 0
        """Bytes the first pass has done."""
        self.ended = False
        self._chunks: list[Chunk] = []
        self._order = FileOrder()
        self._certain = len(MAGIC)
        """Where the last chunk or message ends that can be relied on: from here on the next one is looked for."""
        self._unknown: set[int] = set()

    # ---- first pass ----------------------------------------------------------------------
    def survey(self) -> Iterator[Message]:
        """Walk the file from start to end and give every CDR message once, in file order.

        Raises RecordingError when it is no MCAP file or cannot be opened.
        """
        with open_recording(self.path) as file:
            self.size = file.seek(0, 2)
            file.seek(0)
            start = file.read(len(MAGIC))
            if not self.size:
                raise RecordingError(f"{self.path}: the file is empty; expected an MCAP recording")
            if start != MAGIC:
                raise RecordingError(
                    f"{self.path}: begins with {start[:8]!r}, not with the MCAP magic; expected an MCAP recording"
                )
            self.position = len(MAGIC)
            while self.position < self.size:
                step = yield from self._record(file, self.position)
                if not step:
                    break
                self.position += step
            if not self.ended and not self.damage:
                self.damage.append(
                    Damage(self.size, "no end of data: the recording was cut between chunks", loss=False)
                )

    def _record(self, file: BinaryIO, position: int) -> Generator[Message, None, int]:
        """Handle the record at `position`; returns how far it is to the next one, 0 at the end of the data."""
        file.seek(position)
        head = file.read(LONGEST_START)
        left = self.size - position - HEAD.size
        opcode, length = HEAD.unpack_from(head) if left >= 0 else (head[0], 0)
        if opcode == 0:
            if self._zeros(file, position):
                self._damaged(position, "only zeros from here on", loss=False)
                return 0
            self._damaged(position, "no record here")
            return self._resume(file, position)
        if opcode == Opcode.CHUNK:
            step = yield from self._chunk(file, position, length, chunk_head(head))
            return step
        if length > left:
            step = self._resume(file, position)
            loss = step != 0 or opcode not in WITHOUT_MESSAGES or length > LONGEST_TEXT
            found = f"{left} of {length} bytes" if left >= 0 else "inside its head"
            self._damaged(position, f"a record of type {opcode} is cut: {found}", loss=loss)
            return step
        if opcode == Opcode.DATA_END:
            following = find_chunk(file, position + HEAD.size)
            if following is None:
                self.ended = True
                return 0
            self._damaged(position, "an end of data before the last chunk")
            return following - position
        file.seek(position + HEAD.size)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            if length > LONGEST_TEXT:
                self._damaged(position, f"a schema or channel of {length} bytes")
            else:
                self._define(opcode, file.read(length), position)
        elif opcode == Opcode.MESSAGE:
            if length > self._largest:
                self._damaged(
                    position, f"a message of {length} bytes, at most {self._largest} are read (limits.chunk_bytes)"
                )
            else:
                yield from self._loose(file, position, head[: HEAD.size] + file.read(length))
        elif (mistaken := chunk_head(head)) is not None and mistaken.agrees and mistaken.compression in COMPRESSIONS:
            self._damaged(position, f"a chunk with the type {opcode}: none of its messages is used")
        return int(HEAD.size + length)

    def _damaged(self, position: int, what: str, *, loss: bool = True) -> None:
        self.damage.append(Damage(position, what, loss))

    def _zeros(self, file: BinaryIO, position: int) -> bool:
        file.seek(position)
        while block := file.read(1 << 20):
            if block.strip(b"\0"):
                return False
        return True

    def _resume(self, file: BinaryIO, position: int) -> int:
        """How far it is from `position` to the next chunk behind what was read for certain; 0 where there is none."""
        following = find_chunk(file, self._certain)
        return 0 if following is None else following - position

    def _chunk(
        self, file: BinaryIO, position: int, length: int, head: ChunkHead | None
    ) -> Generator[Message, None, int]:
        """Handle a chunk record; returns as `_record`."""
        left = self.size - position - HEAD.size
        whole = length <= left
        if head is None or (not whole and not head.agrees and length != UNFINISHED):
            self._damaged(position, "a chunk that is cut in its head, or whose head makes no sense")
            return self._resume(file, position)
        if length == UNFINISHED and (step := self._resume(file, position)):
            self._damaged(position, "a chunk that is not finished before others")
            return step
        body = position + HEAD.size + head.size
        packed = position + HEAD.size + min(length, left) - body
        chunk = Chunk(body, max(packed, 0), head.unpacked, head.compression, whole, frozenset())
        try:
            unpacked = unpack(file, chunk, self._largest)
            if whole and head.crc and isal_zlib.crc32(unpacked) != head.crc:
                raise ValueError("wrong CRC")
        except ValueError as error:
            self._damaged(position, f"a chunk that cannot be read, none of its messages is used: {error}")
            if not head.agrees:
                return self._resume(file, position)
            self._certain = position + HEAD.size + length
            return HEAD.size + length if whole else 0
        if not whole:
            self._damaged(position, f"the last chunk is cut: {left} bytes of it are there")
        elif not head.crc and head.unpacked != len(unpacked):
            self._damaged(position, f"a chunk without CRC that gives {len(unpacked)} of {head.unpacked} bytes")
        channels: set[int] = set()
        end = yield from self._walk(file, unpacked, position, channels)
        if whole and end != len(unpacked):
            self._damaged(position, f"a chunk whose records end after {end} of {len(unpacked)} bytes")
        self._chunks.append(replace(chunk, channels=frozenset(channels)))
        if whole and not head.agrees:
            self._damaged(position, "a chunk whose lengths differ", loss=not head.crc)
            self._certain = body + min(packed, head.packed)
            return self._resume(file, position)
        self._certain = position + HEAD.size + length
        return HEAD.size + length if whole else 0

    def _loose(self, file: BinaryIO, position: int, record: bytes) -> Iterator[Message]:
        """A message outside of all chunks; those that follow one another are kept as one chunk without compression."""
        channels: set[int] = set()
        yield from self._walk(file, record, position, channels)
        last = self._chunks[-1] if self._certain == position and self._chunks else None
        if last is not None and last.loose and last.packed < LOOSE_CHUNK:
            size = last.packed + len(record)
            channels |= last.channels
            offset = last.offset
            del self._chunks[-1]
        else:
            offset, size = position, len(record)
        self._chunks.append(Chunk(offset, size, size, "", True, frozenset(channels), loose=True))
        self._certain = position + len(record)

    def _walk(self, file: BinaryIO, data: bytes, position: int, channels: set[int]) -> Generator[Message, None, int]:
        """Give the CDR messages among the records of one chunk; returns where the last whole record ends."""
        end = 0
        for opcode, at, length in records(data):
            end = at + length
            if opcode == Opcode.MESSAGE:
                if length < MESSAGE_HEAD.size:
                    self._damaged(position, f"a message record of {length} bytes")
                    continue
                number = data[at] | data[at + 1] << 8
                channel = self.channels.get(number) or self._repeated(file, number, position)
                if channel is not None:
                    channel.seen += 1
                    channels.add(number)
                    if channel.encoding == "cdr":
                        head, body = split_message(data, at, length)
                        self._order.note(channel.topic, *head[1:3])
                        yield self._message(head, body)
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                self._define(opcode, data[at : at + length], position)
        return end

    def _repeated(self, file: BinaryIO, number: int, position: int) -> Channel | None:
        """A channel whose definition was in a damaged part: a whole file repeats them at its end."""
        if number in self._unknown:
            return None
        if not self._unknown:
            for opcode, body in definitions(file, self.size, self._largest):
                self._define(opcode, body, position)
        channel = self.channels.get(number)
        if channel is None:
            self._unknown.add(number)
            self._damaged(position, f"messages on the unknown channel {number}, here and perhaps later")
        return channel

    def _define(self, opcode: int, body: bytes, position: int) -> None:
        if not self._definitions.take(opcode, body):
            self._damaged(position, "a schema or channel record that ends early")

    # ---- second pass ---------------------------------------------------------------------
    def messages(self, topics: Collection[str], types: Mapping[str, str] | None = None) -> Iterator[Message]:
        """The CDR messages of some topics in recorded order; with `types` (by topic) only those of that type.

        Recorded order within a topic is that of the sequence numbers where these are all different, else that of
        `log_time`; between topics it is file order, or that of `log_time` where the file is out of order.
        """
        wanted = frozenset(
            number
            for number, c in self.channels.items()
            if c.topic in topics and c.encoding == "cdr" and (types is None or types.get(c.topic) == c.schema)
        )
        left = sum(self.channels[number].seen for number in wanted)
        for message in self._file_order(wanted) if self._order.is_recorded_order else self._sorted(wanted):
            left -= 1
            yield message
        if left:
            raise RecordingError(f"{self.path}: changed while it was read: {left} messages are gone")

    def _file_order(self, wanted: frozenset[int]) -> Iterator[Message]:
        with open_recording(self.path) as file:
            for chunk in self._chunks:
                if chunk.channels & wanted:
                    with self._unchanged():
                        for head, body in read_messages(file, chunk, wanted, self._largest):
                            yield self._message(head, body)

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise RecordingError(f"{self.path}: changed while it was read: {error}") from error

    def _message(self, head: MessageHead, body: bytes) -> Message:
        number, sequence, log_time, publish_time = head
        channel = self.channels[number]
        stamps = min(log_time, LATEST), min(publish_time, LATEST)
        return Message(channel.topic, channel.schema, *stamps, sequence, body, channel.definition)

    def _sorted(self, wanted: frozenset[int]) -> Iterator[Message]:
        """Messages of a file that is out of order: by an index of 30 bytes a message."""
        with open_recording(self.path) as file:
            topics = sorted({self.channels[number].topic for number in wanted})
            rows = recorded_order(self._index(file, wanted, topics))
            held: OrderedDict[int, bytes] = OrderedDict()
            for place, at, length in zip(rows["chunk"], rows["at"], rows["length"], strict=True):
                key = int(place)
                if key not in held:
                    with self._unchanged():
                        held[key] = unpack(file, self._chunks[key], self._largest)
                    while len(held) > 1 and sum(map(len, held.values())) > HELD_CHUNKS:
                        held.popitem(last=False)
                held.move_to_end(key)
                yield self._message(*split_message(held[key], int(at), int(length)))

    def _index(self, file: BinaryIO, wanted: frozenset[int], topics: list[str]) -> np.ndarray[Any, Any]:
        fields = ["topic", "channel", "sequence", "log", "chunk", "at", "length"]
        kind = np.dtype(list(zip(fields, ("u4", "u2", "u4", "u8", "u4", "u4", "u4"), strict=True)))
        parts = []
        for place, chunk in enumerate(self._chunks):
            if chunk.channels & wanted:
                with self._unchanged():
                    data = unpack(file, chunk, self._largest)
                found = [
                    (
                        topics.index(self.channels[number].topic),
                        *MESSAGE_HEAD.unpack_from(data, at)[:3],
                        place,
                        at,
                        length,
                    )
                    for number, at, length in messages(data, wanted)
                ]
                parts.append(np.array(found, kind))
        return np.concatenate(parts) if parts else np.empty(0, kind)
