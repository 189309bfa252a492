# SPDX-License-Identifier: Apache-2.0
"""Mutations of MCAP and ZIP files: records, chunks and directories, with checksums and lengths put right for most."""

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import lz4.frame
import zstandard

Change = Callable[[random.Random, bytes, bytes], bytes]
MAGIC = b"\x89MCAP0\r\n"
CHUNK, MESSAGE, SCHEMA, CHANNEL = 6, 5, 3, 4
LOCAL, CENTRAL, END, END64 = b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6"
BOMBS = {"zstd": zstandard.compress(bytes(1 << 27)), "lz4": lz4.frame.compress(bytes(1 << 27))}
"""128 MiB of zeros."""


def mcap(
    rng: random.Random, data: bytes, other: bytes, any_bytes: Change, lengths: Sequence[int], texts: Sequence[str]
) -> bytes:
    """One change of a recording."""
    records = _records(data[8:])
    at = rng.randrange(len(records))
    chunks = [n for n, (kind, _) in enumerate(records) if kind == CHUNK]
    choice = rng.randrange(12)
    if choice < 6 and chunks:
        at = rng.choice(chunks)
        records[at] = (CHUNK, _chunk(rng, records[at][1], other, any_bytes, lengths, texts))
    elif choice == 6:
        del records[at]
    elif choice == 7:
        records.insert(at, rng.choice(_records(other[8:])))
    elif choice == 8:
        records[at:at] = [records[at]] * rng.choice((1, 2, 30))
    elif choice == 9:
        records[at] = (rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 9, 12, 15, 0x7F, 0xFF)), records[at][1])
    elif choice == 10:
        records[at] = (records[at][0], any_bytes(rng, records[at][1], other))
    else:
        parts = [struct.pack("<BQ", kind, len(body)) + body for kind, body in records]
        parts[at] = parts[at][:1] + struct.pack("<Q", rng.choice(lengths)) + parts[at][9:]
        return MAGIC + b"".join(parts) + MAGIC
    return MAGIC + b"".join(struct.pack("<BQ", kind, len(body)) + body for kind, body in records) + MAGIC


def _records(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at + 9 <= len(data):
        kind, length = struct.unpack_from("<BQ", data, at)
        if length > len(data):
            break
        found.append((kind, data[at + 9 : at + 9 + length]))
        at += 9 + length
    return found


def _chunk(
    rng: random.Random, body: bytes, other: bytes, any_bytes: Change, lengths: Sequence[int], texts: Sequence[str]
) -> bytes:
    """A chunk changed below its compression, or in its head."""
    start, end, size, crc, named = struct.unpack_from("<QQQII", body)
    name, packed = body[32 : 32 + named].decode(), body[40 + named :]
    plain = packed
    if name == "zstd":
        plain = zstandard.ZstdDecompressor().decompress(packed, max_output_size=1 << 26)
    elif name == "lz4":
        plain = lz4.frame.decompress(packed)
    choice = rng.randrange(10)
    if choice == 0 and name in BOMBS:
        size, crc = rng.choice((size, 1 << 27, *lengths)), rng.choice((0, crc, zlib.crc32(bytes(1 << 27))))
        return _joined(start, end, size, crc, name, BOMBS[name])
    if choice == 1:
        return _joined(start, end, rng.choice(lengths), crc, rng.choice((name, "lz4", "zstd", "", "zip")), packed)
    if choice == 2:
        return _joined(start, end, size, crc, name, any_bytes(rng, packed, other))
    if choice == 3:
        body = bytearray(_joined(start, end, size, 0, name, packed))
        body[28:32] = struct.pack("<I", rng.choice(lengths) & 0xFFFFFFFF)
        return bytes(body)
    plain = _inner(rng, _records(plain), any_bytes, lengths, texts) if choice < 9 else any_bytes(rng, plain, other)
    packed = plain
    if name == "zstd":
        packed = zstandard.compress(plain)
    elif name == "lz4":
        packed = lz4.frame.compress(plain)
    return _joined(start, end, len(plain), rng.choice((zlib.crc32(plain), 0)), name, packed)


def _joined(start: int, end: int, size: int, crc: int, name: str, packed: bytes) -> bytes:
    head = struct.pack("<QQQII", start, end, size, crc & 0xFFFFFFFF, len(name)) + name.encode()
    return head + struct.pack("<Q", len(packed)) + packed


def _inner(
    rng: random.Random,
    records: list[tuple[int, bytes]],
    any_bytes: Change,
    lengths: Sequence[int],
    texts: Sequence[str],
) -> bytes:
    """Records of a chunk with one of them changed."""
    at = rng.randrange(len(records))
    kind, body = records[at]
    choice = rng.randrange(8)
    if choice == 0:
        del records[at]
    elif choice == 1:
        records[at:at] = [rng.choice(records)] * rng.choice((1, 5, 50))
    elif choice == 2:
        rng.shuffle(records)
    elif kind == MESSAGE and choice < 6:
        head, cdr = bytearray(body[:22]), bytearray(body[22:])
        if choice == 3:  # channel, sequence, log time, publish time
            place, size = rng.choice(((0, 2), (2, 4), (6, 8), (14, 8)))
            head[place : place + size] = (rng.choice(lengths) & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif choice == 4 and len(cdr) > 8:  # the stamp of the header, or some length
            place = rng.choice((4, 8, 4 * rng.randrange(1, len(cdr) // 4)))
            cdr[place : place + 4] = struct.pack("<I", rng.choice(lengths) & 0xFFFFFFFF)
        else:
            cdr = bytearray(any_bytes(rng, bytes(cdr), bytes(cdr)))
        records[at] = (kind, bytes(head + cdr))
    elif kind in (SCHEMA, CHANNEL):
        text = rng.choice(texts).encode()
        fixed = 2 if kind == SCHEMA else 4
        (length,) = struct.unpack_from("<I", body, fixed)
        records[at] = (kind, body[:fixed] + struct.pack("<I", len(text)) + text + body[fixed + 4 + length :])
    else:
        records[at] = (kind, any_bytes(rng, body, body))
    return b"".join(struct.pack("<BQ", kind, len(body)) + body for kind, body in records)


def archive(
    rng: random.Random, data: bytes, other: bytes, any_bytes: Change, lengths: Sequence[int], texts: Sequence[str]
) -> bytes:
    """One change of a ZIP."""
    marks = {mark: _places(data, mark) for mark in (LOCAL, CENTRAL, END, END64)}
    choice = rng.randrange(8)
    changed = bytearray(data)
    if choice < 4 and marks[CENTRAL]:
        at = rng.choice(marks[CENTRAL])
        place, size = rng.choice(((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)))
        value = rng.choice((*lengths, 8, 12, 14, 93, 99)) & (1 << 8 * size) - 1
        changed[at + place : at + place + size] = value.to_bytes(size, "little")
    elif choice == 4:
        at = rng.choice(marks[END] + marks[END64])
        size = rng.choice((2, 4, 8))
        place = at + rng.randrange(4, 20)
        changed[place : place + size] = (rng.choice(lengths) & (1 << 8 * size) - 1).to_bytes(size, "little")
    elif choice == 5 and marks[CENTRAL]:
        at = rng.choice(marks[CENTRAL])  # another name of the same length, there and in front of the member
        (length,) = struct.unpack_from("<H", data, at + 28)
        name = data[at + 46 : at + 46 + length]
        text = (rng.choice(texts).encode() + name)[:length]
        return data.replace(name, text)
    elif choice == 6 and marks[LOCAL]:
        return _member(rng, changed, marks, any_bytes)
    else:
        at = rng.choice(marks[LOCAL])
        place = at + rng.randrange(4, 30)
        changed[place : place + 2] = (rng.choice(lengths) & 0xFFFF).to_bytes(2, "little")
    return bytes(changed)


def _places(data: bytes, mark: bytes) -> list[int]:
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 4)
    return found


def _member(rng: random.Random, data: bytearray, marks: dict[bytes, list[int]], any_bytes: Change) -> bytes:
    """A member with other bytes of the same number, and the CRC that they have."""
    central = rng.choice(marks[CENTRAL])
    method, packed, (start,) = (
        struct.unpack_from("<H", data, central + 10)[0],
        struct.unpack_from("<I", data, central + 20)[0],
        struct.unpack_from("<I", data, central + 42),
    )
    begin = start + 30 + sum(struct.unpack_from("<HH", data, start + 26))
    old = bytes(data[begin : begin + packed])
    new = any_bytes(rng, old, old)[:packed].ljust(packed, b"\0")
    data[begin : begin + packed] = new
    if method == 0:
        data[central + 16 : central + 20] = struct.pack("<I", zlib.crc32(new))
    return bytes(data)
