# SPDX-License-Identifier: Apache-2.0
"""MCAP files for the tests, written by the mcap library, and a record walk of our own to judge the reader by."""

import random
import struct
import zlib
from typing import NamedTuple

import lz4.frame
import zstandard
from mcap.writer import CompressionType, IndexType, Writer

COMPRESSIONS = {"": CompressionType.NONE, "lz4": CompressionType.LZ4, "zstd": CompressionType.ZSTD}
MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK, MESSAGE_INDEX, DATA_END = 3, 4, 5, 6, 7, 15
START = 1_700_000_000_000_000_000
STEP = 10_000_000


class Sent(NamedTuple):
    """One message to be written; `channel` names topic, encoding and a number that tells channels apart."""

    topic: str
    log_time: int
    sequence: int
    data: bytes
    publish_time: int = 0
    encoding: str = "cdr"
    channel: int = 0


class Record(NamedTuple):
    opcode: int
    start: int  # of the record
    body: int
    end: int


def series(topic="/a", number=30, size=40, seed=0, start=START, step=STEP, sequence=0):
    """Messages of a topic, with content that does not compress."""
    noise = random.Random(f"{seed}{topic}")
    return [Sent(topic, start + n * step, sequence + n, noise.randbytes(size), start + n) for n in range(number)]


def merged(*streams):
    return sorted((m for stream in streams for m in stream), key=lambda m: m.log_time)


def write(path, messages, *, compression="", chunk_size=512, chunked=True, crcs=True, indexed=True, schema="x/Y"):
    """Messages in the order given; a chunk is closed when it is over `chunk_size` bytes."""
    with open(path, "wb") as file:
        writer = Writer(
            file,
            chunk_size=chunk_size,
            compression=COMPRESSIONS[compression],
            index_types=IndexType.ALL if indexed else IndexType.NONE,
            repeat_channels=indexed,
            repeat_schemas=indexed,
            use_chunking=chunked,
            use_statistics=indexed,
            use_summary_offsets=indexed,
            enable_crcs=crcs,
            enable_data_crcs=crcs,
        )
        writer.start(profile="", library="test")
        kind, channels = writer.register_schema(schema, "ros2msg", b"uint8 x"), {}
        for m in messages:
            key = m.topic, m.encoding, m.channel
            if key not in channels:
                channels[key] = writer.register_channel(m.topic, m.encoding, kind)
            writer.add_message(channels[key], m.log_time, m.data, m.publish_time, m.sequence)
        writer.finish()
    return path.read_bytes()


def walk(data):
    """Whole records of a file, up to the first that is none."""
    at, found = 8, []
    while at + 9 <= len(data) and data[at:] != MAGIC:
        opcode, length = struct.unpack_from("<BQ", data, at)
        if opcode == 0 or at + 9 + length > len(data):
            break
        found.append(Record(opcode, at, at + 9, at + 9 + length))
        at += 9 + length
    return found


def chunks(data):
    return [r for r in walk(data) if r.opcode == CHUNK]


def contents(body):
    """Message data of the whole records in the content of a chunk, which begins with `body`."""
    at, found = 0, []
    while at + 9 <= len(body):
        opcode, length = struct.unpack_from("<BQ", body, at)
        if at + 9 + length > len(body):
            break
        if opcode == MESSAGE:
            found.append(body[at + 9 + 22 : at + 9 + length])
        at += 9 + length
    return found


def in_chunk(data, start, end):
    """Message data in the chunk record at `start`, of which the file holds what stands before `end`."""
    if end < start + 9 + 40:
        return []
    (length,) = struct.unpack_from("<I", data, start + 9 + 28)
    body = start + 9 + 32 + length + 8
    name, packed = data[start + 9 + 32 : start + 9 + 32 + length], data[body:end]
    if body > end:
        return []
    if name == b"zstd":
        packed = zstandard.ZstdDecompressor().decompressobj().decompress(packed) if packed else b""
    elif name == b"lz4":
        packed = lz4.frame.LZ4FrameDecompressor().decompress(packed) if packed else b""
    return contents(packed)


def whole_messages(data):
    """Data of all whole messages of a file that is cut anywhere, in file order."""
    found, at = [], 8
    for record in walk(data):
        at = record.end
        if record.opcode == DATA_END:
            return found
        if record.opcode == CHUNK:
            found += in_chunk(data, record.start, record.end)
        elif record.opcode == MESSAGE:
            found.append(data[record.body + 22 : record.end])
    if data[at : at + 1] == bytes([CHUNK]):
        found += in_chunk(data, at, len(data))
    return found


def chunk(body, *, compression=b"", packed=None, unpacked=None, crc=None, length=None, packed_size=None):
    """A chunk record around records, with any field lied about."""
    packed = body if packed is None else packed
    head = struct.pack(
        "<QQQII",
        0,
        0,
        len(body) if unpacked is None else unpacked,
        zlib.crc32(body) if crc is None else crc,
        len(compression),
    )
    inner = head + compression + struct.pack("<Q", len(packed) if packed_size is None else packed_size) + packed
    return struct.pack("<BQ", CHUNK, len(inner) if length is None else length) + inner


def record(opcode, body):
    return struct.pack("<BQ", opcode, len(body)) + body


def text(value):
    return struct.pack("<I", len(value)) + value


def defined(number=1, topic=b"/a", encoding=b"cdr", schema=1):
    """Records that define a channel and its schema."""
    return record(SCHEMA, struct.pack("<H", schema) + text(b"x/Y") + text(b"ros2msg") + text(b"uint8 x")) + record(
        CHANNEL, struct.pack("<HH", number, schema) + text(topic) + text(encoding) + struct.pack("<I", 0)
    )


def sent(data, number=1, sequence=0, log_time=START, publish_time=START):
    """A message record."""
    return record(MESSAGE, struct.pack("<HIQQ", number, sequence, log_time, publish_time) + data)
