# SPDX-License-Identifier: Apache-2.0
"""The MCAP container: records, chunks, and resynchronisation after damage."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mcap.opcode import Opcode

from edgefirst_ros.errors import RecordingError

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

    def note(self, channel: int, log_time: int) -> None:
        """Count a message."""
        if not self.counts or log_time < self.first:
            self.first = log_time
        self.last = max(self.last, log_time)
        self.counts[channel] = self.counts.get(channel, 0) + 1

    def of(self, channels: frozenset[int]) -> int:
        """Return the number of messages of some channels."""
        return sum(self.counts[channel] for channel in self.counts.keys() & channels)

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """True if a message may lie in the span from `start` to before `end`, ns; None: no limit."""
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


def open_recording(path: Path) -> io.BufferedReader:
    """Open a recording as a buffered file. Raises RecordingError if it does not exist or cannot be read."""
    return io.BufferedReader(open_raw(path), 1 << 16)


def open_raw(path: Path) -> io.FileIO:
    """Open a recording without a buffer. Raises as `open_recording`."""
    try:
        if not path.is_file():
            found = "is a directory" if path.is_dir() else "does not exist" if not path.exists() else "is not a file"
            raise RecordingError(f"{path}: {found}; expected an MCAP recording")
        return io.FileIO(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RecordingError(f"{path}: cannot be opened: {why}") from error


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


def records(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (opcode, offset, length) of the records in the body of a chunk, up to the first incomplete one."""
    at, end = 0, len(data)
    while at + HEAD.size <= end:
        opcode, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        if opcode == 0 or length > end - at:
            return
        yield opcode, at, length
        at += length


def messages(data: bytes, wanted: frozenset[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (channel, offset, length) of the messages of some channels in the body of a chunk."""
    for opcode, at, length in records(data):
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
    """(head, body) of the messages of some channels; where the chunk is not compressed, nothing else is read.

    Raises ValueError as `unpack` does.
    """
    if chunk.compression:
        data = unpack(file, chunk, largest)
        for _, at, length in messages(data, wanted):
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


def definitions(file: BinaryIO, size: int, largest: int) -> list[tuple[int, bytes]]:
    """(opcode, body) of the schemas and channels that a whole file of `size` bytes repeats behind its data.

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
    return [(opcode, data[at : at + length]) for opcode, at, length in records(data) if opcode in kinds]


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
            return _zstd(data, chunk, largest)
        if chunk.compression == "lz4":
            return _lz4(data, chunk, largest)
    except (RuntimeError, EOFError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    raise ValueError(f"unknown compression {chunk.compression!r}; expected none, lz4 or zstd")


def _zstd(data: bytes, chunk: Chunk, largest: int) -> bytes:
    import zstandard

    try:
        if chunk.whole:
            # the size in the frame decides how much memory is taken, whatever `max_output_size` says
            announced = zstandard.frame_content_size(data)
            if announced > chunk.unpacked:
                raise ValueError(f"{announced} bytes in place of {chunk.unpacked}")
            return zstandard.ZstdDecompressor().decompress(data, max_output_size=chunk.unpacked or 1)
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        found = bytearray()
        while len(found) < largest and (piece := reader.read(PIECE)):
            found += piece
        return bytes(found)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def _lz4(data: bytes, chunk: Chunk, largest: int) -> bytes:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    if chunk.whole:
        return bytes(decompressor.decompress(data, max_length=chunk.unpacked))
    found = bytearray()
    while len(found) < largest and (piece := decompressor.decompress(data, max_length=PIECE)):
        found += piece
        data = b""
        if decompressor.eof or decompressor.needs_input:
            break
    return bytes(found)
