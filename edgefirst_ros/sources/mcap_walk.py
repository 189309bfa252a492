# SPDX-License-Identifier: Apache-2.0
"""The first pass through an MCAP file: every chunk is checked, and what cannot be read is reported."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mcap.opcode import Opcode
from zlib_ng import zlib_ng

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.messages import Message, expand_type
from edgefirst_ros.sources.order import FileOrder
from edgefirst_ros.sources.source import Channel, Convert, Damage, RecordedFile, Repeats

MAGIC = b"\x89MCAP0\r\n"
HEAD = struct.Struct("<BQ")
MESSAGE_HEAD = struct.Struct("<HIQQ")
MessageHead = tuple[int, int, int, int]
"""Channel, sequence number, `log_time`, `publish_time`."""
CHUNK_HEAD = struct.Struct("<QQQII")
UNFINISHED = (1 << 64) - 1
"""Length field of a chunk that is still being written; the recorder fixes it when the chunk is full."""
LONGEST_NAME = 32
PIECE = 1 << 20
CHUNK_START = re.compile(rb"\x06(?=.{4}\0{4}.{28}(?:\0{4}|\x03\0{3}lz4|\x04\0{3}zstd))", re.DOTALL)
LONGEST_START = HEAD.size + CHUNK_HEAD.size + LONGEST_NAME + 8


@dataclass(slots=True)
class Contents:
    """Messages of a chunk: number by channel, first and last `log_time` in ns."""

    counts: dict[int, int] = field(default_factory=dict)
    first: int = 0
    last: int = 0

    def add(self, channel: int, log_time: int) -> None:
        """Count a message."""
        if not self.counts or log_time < self.first:
            self.first = log_time
        self.last = max(self.last, log_time)
        self.counts[channel] = self.counts.get(channel, 0) + 1

    def of(self, channels: frozenset[int]) -> int:
        """Return the number of messages of some channels."""
        return sum(self.counts[channel] for channel in self.counts.keys() & channels)

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """True if a message may be in the span from `start` to before `end`, ns; None: no limit."""
        return (start is None or self.last >= start) and (end is None or self.first < end)


class Chunk(NamedTuple):
    """Location of the records of one chunk in the file."""

    offset: int
    packed: int
    unpacked: int
    compression: str
    whole: bool
    contents: Contents
    loose: bool = False
    """True for messages outside of any chunk."""


class ChunkHead(NamedTuple):
    """Header of a chunk; `length` is that of the record, `size` that of the header after the record's own."""

    length: int
    unpacked: int
    crc: int
    compression: str
    packed: int
    size: int

    @property
    def agrees(self) -> bool:
        """True if its two lengths agree, so that the next record can be found by them."""
        return self.length == self.size + self.packed


def chunk_head(data: bytes) -> ChunkHead | None:
    """Return the header of the chunk record that begins with `data`, or None if it is cut or invalid."""
    if len(data) < HEAD.size + CHUNK_HEAD.size:
        return None
    length = HEAD.unpack_from(data)[1]
    _, _, unpacked, crc, named = CHUNK_HEAD.unpack_from(data, HEAD.size)
    end = HEAD.size + CHUNK_HEAD.size + named
    if named > LONGEST_NAME or len(data) < end + 8:
        return None
    (packed,) = struct.unpack_from("<Q", data, end)
    name = data[end - named : end].decode("utf-8", "replace")
    return ChunkHead(length, unpacked, crc, name, packed, CHUNK_HEAD.size + named + 8)


def find_chunk(file: BinaryIO, start: int) -> int | None:
    """Return the offset of the first record from `start` on that can only be a chunk, or None."""
    file.seek(start)
    data = b""
    while piece := file.read(PIECE):
        data += piece
        for match in CHUNK_START.finditer(data):
            head = chunk_head(data[match.start() : match.start() + LONGEST_START])
            if head is not None and head.agrees:
                return start + match.start()
        kept = min(len(data), LONGEST_START)
        start += len(data) - kept
        data = data[len(data) - kept :]
    return None


def iter_records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (opcode, offset, length) of the records in the body of a chunk, up to the first incomplete one."""
    at, end = 0, len(data)
    while at + HEAD.size <= end:
        opcode, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        if opcode == 0 or length > end - at:
            return
        yield opcode, at, length
        at += length


def iter_messages(data: bytes, wanted: frozenset[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (channel, offset, length) of the messages of some channels in the body of a chunk."""
    for opcode, at, length in iter_records(data):
        if opcode == Opcode.MESSAGE and length >= MESSAGE_HEAD.size:
            number = data[at] | data[at + 1] << 8
            if number in wanted:
                yield number, at, length


def split_message(data: bytes, at: int, length: int) -> tuple[MessageHead, bytes]:
    """Return header and body of the message record at an offset in the body of a chunk."""
    return MESSAGE_HEAD.unpack_from(data, at), data[at + MESSAGE_HEAD.size : at + length]


def read_messages(
    file: BinaryIO, chunk: Chunk, wanted: frozenset[int], largest: int
) -> Iterator[tuple[MessageHead, bytes]]:
    """(head, body) of the messages of some channels; where the chunk is not compressed, it reads only these.

    Raises ValueError as `unpack` does.
    """
    if chunk.compression:
        data = unpack(file, chunk, largest)
        for _, at, length in iter_messages(data, wanted):
            yield split_message(data, at, length)
        return
    at, end = chunk.offset, chunk.offset + chunk.packed
    while at + HEAD.size + MESSAGE_HEAD.size <= end:
        file.seek(at)
        start = file.read(HEAD.size + MESSAGE_HEAD.size)
        if len(start) < HEAD.size + MESSAGE_HEAD.size:
            raise ValueError("it ends early")
        at += HEAD.size
        opcode, length = HEAD.unpack_from(start)
        if opcode == 0 or length > end - at:
            return
        head: MessageHead = MESSAGE_HEAD.unpack_from(start, HEAD.size)
        if opcode == Opcode.MESSAGE and length >= MESSAGE_HEAD.size and head[0] in wanted:
            body = file.read(length - MESSAGE_HEAD.size)
            if len(body) < length - MESSAGE_HEAD.size:
                raise ValueError("it ends early")
            yield head, body
        at += length


def iter_definitions(file: BinaryIO, size: int, largest: int) -> list[tuple[int, bytes]]:
    """(opcode, body) of the schemas and channels that a whole file of `size` bytes repeats after its data.

    They are not read where they take more than `largest` bytes.
    """
    footer = HEAD.size + 20 + len(MAGIC)
    file.seek(max(0, size - footer))
    end = file.read(footer)
    if len(end) < footer or end[0] != Opcode.FOOTER or not end.endswith(MAGIC):
        return []
    (start,) = struct.unpack_from("<Q", end, HEAD.size)
    if not len(MAGIC) < start < size - footer or size - footer - start > largest:
        return []
    file.seek(start)
    data = file.read(size - footer - start)
    kinds = (Opcode.SCHEMA, Opcode.CHANNEL)
    return [(opcode, data[at : at + length]) for opcode, at, length in iter_records(data) if opcode in kinds]


def unpack(file: BinaryIO, chunk: Chunk, largest: int) -> bytes:
    """Return the unpacked records of a chunk, at most `largest` bytes; of a cut one as far as they go.

    Raises ValueError where they cannot be unpacked.
    """
    if chunk.whole and chunk.unpacked > largest:
        raise ValueError(f"{chunk.unpacked} bytes are announced, at most {largest} are read (limits.chunk_bytes)")
    file.seek(chunk.offset)
    if chunk.compression == "":
        if chunk.packed > largest:
            raise ValueError(f"{chunk.packed} bytes, at most {largest} are read (limits.chunk_bytes)")
        return file.read(chunk.packed)
    data = file.read(min(chunk.packed, largest))
    try:
        if chunk.compression == "zstd":
            return _unpack_zstd(data, chunk, largest)
        if chunk.compression == "lz4":
            import lz4.frame

            most = chunk.unpacked if chunk.whole else largest
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=most))
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    raise ValueError(f"unknown compression {chunk.compression!r}; expected none, lz4 or zstd")


def _unpack_zstd(data: bytes, chunk: Chunk, largest: int) -> bytes:
    import zstandard

    try:
        if chunk.whole:
            # the size in the frame decides how much memory is allocated, regardless of `max_output_size`
            announced = zstandard.frame_content_size(data)
            if announced > chunk.unpacked:
                raise ValueError(f"{announced} bytes in place of {chunk.unpacked}")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=chunk.unpacked or 1)
        return zstandard.ZstdDecompressor().stream_reader(data).read(largest)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


LONGEST_TEXT = 1 << 24
"""Largest schema or channel record, bytes."""
LOOSE_CHUNK = 1 << 20
"""Bytes of consecutive messages outside of chunks that stay as one chunk."""
COMPRESSIONS = ("", "lz4", "zstd")
OTHERS = {
    b"PK": "it is a ZIP, such as a dataset; expected the recording",
    b"\x28\xb5\x2f\xfd": "it is compressed; unpack it with zstd -d",
    b"\x1f\x8b": "it is compressed; unpack it with gunzip",
    b"SQLite f": "it is a file of rosbag2; rename it to NAME.db3",
    b"#ROSBAG ": "it is a recording of ROS 1; rename it to NAME.bag",
}
"""What files begin with that users take for MCAP files, and what to do."""
WITHOUT_MESSAGES = frozenset(Opcode) - {Opcode.MESSAGE, Opcode.CHUNK}
"""Opcodes of records that may be cut off without a loss."""
LATEST = 4_000_000_000_000_000_000
"""ns, in the year 2096: later stamps are clamped to it, so that differences fit into 64 bits."""


class McapWalk(RecordedFile):
    """One walk through a file from start to end, and its results: channels, chunks, damage, order."""

    def __init__(self, path: Path, number: int, repeats: Repeats | None, order: FileOrder, largest: int) -> None:
        """`order`: that of the files before it; `largest`: most bytes of a chunk, or of a message outside of one."""
        super().__init__(path, number, repeats)
        self._largest = largest
        self._schemas: dict[int, tuple[str, bytes]] = {}
        self.ended = False
        """True if the file says that its data ends there."""
        self.chunks: list[Chunk] = []
        self.order = order
        self._certain = len(MAGIC)
        """Where the last chunk or message ends that can be relied on: from here on the next one is looked for."""
        self._unknown: set[int] = set()

    def messages(self, file: BinaryIO, reach: Callable[[int], None] | None = None) -> Iterator[Message]:
        """Yield every message once, in CDR and file order; raises RecordingError where it is not a MCAP file.

        `reach` is reported the offset of every record before it is read.
        """
        self.size = file.seek(0, 2)
        file.seek(0)
        start = file.read(len(MAGIC))
        if not self.size:
            raise RecordingError(f"{self.path}: the file is empty; expected an MCAP recording")
        if start != MAGIC:
            hint = next((f"; {what}" for begins, what in OTHERS.items() if start.startswith(begins)), "")
            what = f"it begins with {start[:8]!r}, not with the MCAP magic{hint}"
            raise RecordingError(f"{self.path}: not an MCAP recording: {what}")
        self.position = len(MAGIC)
        while self.position < self.size:
            if reach is not None:
                reach(self.position)
            step = yield from self._record(file)
            if not step:
                break
            self.position += step
        if not self.ended and not self.damage:
            self.damage.append(Damage(self.size, "no end of data: the recording was cut between chunks", loss=False))
        self.complete = True

    def message(self, head: MessageHead, body: bytes) -> Message:
        """Return the message with this header and body."""
        number, sequence, log_time, publish_time = head
        channel = self.channels[number]
        stamps = min(log_time, LATEST), min(publish_time, LATEST)
        body = channel.to_cdr(body, self._largest)
        return Message(channel.topic, channel.schema, *stamps, sequence, body, channel.definition, self.number)

    def _record(self, file: BinaryIO) -> Generator[Message, None, int]:
        """Handle the record at the position; returns how far it is to the next one, 0 at the end of the data."""
        position = self.position
        file.seek(position)
        head = file.read(LONGEST_START)
        left = self.size - position - HEAD.size
        opcode, length = HEAD.unpack_from(head) if left >= 0 else (head[0], 0)
        if opcode == 0:
            file.seek(position)
            if not any(block.strip(b"\0") for block in iter(partial(file.read, 1 << 20), b"")):
                self._report_damage("only zeros from here on", loss=False)
                return 0
            self._report_damage("no record here")
            return self._resume(file)
        if opcode == Opcode.CHUNK:
            step = yield from self._chunk(file, length, chunk_head(head))
            return step
        if length > left:
            step = self._resume(file)
            loss = step != 0 or opcode not in WITHOUT_MESSAGES or length > LONGEST_TEXT
            found = f"{left} of {length} bytes" if left >= 0 else "inside its head"
            self._report_damage(f"a record of type {opcode} is cut: {found}", loss=loss)
            return step
        if opcode == Opcode.DATA_END:
            following = find_chunk(file, position + HEAD.size)
            if following is None:
                self.ended = True
                return 0
            self._report_damage("an end of data before the last chunk")
            return following - position
        file.seek(position + HEAD.size)
        if opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
            if length > LONGEST_TEXT:
                self._report_damage(f"a schema or channel of {length} bytes")
            else:
                self._define(opcode, file.read(length))
        elif opcode == Opcode.MESSAGE:
            if length > self._largest:
                most = f"at most {self._largest} are read (limits.chunk_bytes)"
                self._report_damage(f"a message of {length} bytes, {most}")
            else:
                yield from self._loose(file, head[: HEAD.size] + file.read(length))
        elif (mistaken := chunk_head(head)) is not None and mistaken.agrees and mistaken.compression in COMPRESSIONS:
            self._report_damage(f"a chunk with the type {opcode}: none of its messages is used")
        return int(HEAD.size + length)

    def _report_damage(self, what: str, *, loss: bool = True) -> None:
        self.damage.append(Damage(self.position, what, loss))

    def _resume(self, file: BinaryIO) -> int:
        """Return the distance to the next chunk after the data read for certain; 0 without one."""
        following = find_chunk(file, self._certain)
        return 0 if following is None else following - self.position

    def _chunk(self, file: BinaryIO, length: int, head: ChunkHead | None) -> Generator[Message, None, int]:
        position, left = self.position, self.size - self.position - HEAD.size
        whole = length <= left
        if head is None or (not whole and not head.agrees and length != UNFINISHED):
            self._report_damage("a chunk that is cut in its head, or whose head makes no sense")
            return self._resume(file)
        if length == UNFINISHED and (step := self._resume(file)):
            self._report_damage("a chunk that is not finished before others")
            return step
        body = position + HEAD.size + head.size
        packed = position + HEAD.size + min(length, left) - body
        chunk = Chunk(body, max(packed, 0), head.unpacked, head.compression, whole, Contents())
        try:
            unpacked = unpack(file, chunk, self._largest)
            if whole and head.crc and zlib_ng.crc32(unpacked) != head.crc:
                raise ValueError("wrong CRC")
        except ValueError as error:
            self._report_damage(f"a chunk that cannot be read, none of its messages is used: {error}")
            if not head.agrees:
                return self._resume(file)
            self._certain = position + HEAD.size + length
            return HEAD.size + length if whole else 0
        if not whole:
            self._report_damage(f"the last chunk is cut: {left} bytes of it are there")
        elif not head.crc and head.unpacked != len(unpacked):
            self._report_damage(f"a chunk without CRC that gives {len(unpacked)} of {head.unpacked} bytes")
        end = yield from self._read(file, unpacked, chunk.contents)
        if whole and end != len(unpacked):
            self._report_damage(f"a chunk whose records end after {end} of {len(unpacked)} bytes")
        self.chunks.append(chunk)
        if whole and not head.agrees:
            self._report_damage("a chunk whose lengths differ", loss=not head.crc)
            self._certain = body + min(packed, head.packed)
            return self._resume(file)
        self._certain = position + HEAD.size + length
        return HEAD.size + length if whole else 0

    def _loose(self, file: BinaryIO, record: bytes) -> Iterator[Message]:
        """A message outside of all chunks; those that follow one another stay as one chunk without compression."""
        last = self.chunks[-1] if self._certain == self.position and self.chunks else None
        if last is None or not last.loose or last.packed >= LOOSE_CHUNK:
            last = Chunk(self.position, 0, 0, "", True, Contents(), loose=True)
            self.chunks.append(last)
        yield from self._read(file, record, last.contents)
        size = last.packed + len(record)
        self.chunks[-1] = last._replace(packed=size, unpacked=size)
        self._certain = self.position + len(record)

    def _read(self, file: BinaryIO, data: bytes, contents: Contents) -> Generator[Message, None, int]:
        """Yield the CDR messages among the records of one chunk; returns where the last whole record ends."""
        end = 0
        for opcode, at, length in iter_records(data):
            end = at + length
            if opcode == Opcode.MESSAGE:
                if length < MESSAGE_HEAD.size:
                    self._report_damage(f"a message record of {length} bytes")
                    continue
                number = data[at] | data[at + 1] << 8
                channel = self.channels.get(number) or self._find_definition(file, number)
                if channel is not None:
                    channel.seen += 1
                    head, body = split_message(data, at, length)
                    if channel.readable:
                        message = self.message(head, body)
                        if not self.add(message):
                            continue
                        self.order.add(channel.topic, self.number, *head[1:3])
                        contents.add(number, message.log_time)
                        yield message
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL):
                self._define(opcode, data[at : at + length])
        return end

    def _find_definition(self, file: BinaryIO, number: int) -> Channel | None:
        """Return a channel whose definition was in a damaged part: a whole file repeats them at its end."""
        if number in self._unknown:
            return None
        if not self._unknown:
            for opcode, body in iter_definitions(file, self.size, self._largest):
                self._define(opcode, body)
        channel = self.channels.get(number)
        if channel is None:
            self._unknown.add(number)
            self._report_damage(f"messages on the unknown channel {number}, here and perhaps later")
        return channel

    def _define(self, opcode: int, body: bytes) -> None:
        """Add a schema or channel from its record; of several with the same id the first counts.

        Raises EdgeFirstError where its messages need an extra that is not installed.
        """
        try:
            if opcode == Opcode.SCHEMA:
                (number,) = struct.unpack_from("<H", body)
                name, at = _read_text(body, 2)
                _, at = _read_text(body, at)
                self._schemas.setdefault(
                    number, (expand_type(name.decode("utf-8", "replace")), _read_text(body, at)[0])
                )
                return
            number, schema = struct.unpack_from("<HH", body)
            topic, at = _read_text(body, 4)
            encoding, _ = _read_text(body, at)
        except struct.error:
            self._report_damage("a schema or channel record that ends early")
            return
        kind, definition = self._schemas.get(schema, ("", b""))
        channel = Channel(topic.decode("utf-8", "replace"), kind, encoding.decode("utf-8", "replace"), definition)
        if self.channels.setdefault(number, channel) is channel and (found := _find_converter(channel)) is not None:
            channel.schema, channel.convert, channel.definition = *found, b""


def _find_converter(channel: Channel) -> tuple[str, Convert] | None:
    """Return the type of the ROS 2 messages, and what turns the messages of a channel into them; None: nothing does."""
    given = channel.schema, channel.definition, channel.notes.setdefault
    if channel.encoding == "protobuf":
        from edgefirst_ros.sources import protobuf

        return protobuf.open_converter(*given)
    if channel.encoding == "ros1":
        from edgefirst_ros.sources import bags

        return bags.open_converter(*given)
    return None


def _read_text(body: bytes, at: int) -> tuple[bytes, int]:
    """Return a text with its length before it, and where it ends; raises struct.error when it ends early."""
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise struct.error(f"a text of {length} bytes")
    return body[at + 4 : end], end
