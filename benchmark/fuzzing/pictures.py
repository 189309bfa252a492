# SPDX-License-Identifier: Apache-2.0
"""Mutations of PNG and JPEG files: chunks and segments, with their checksums and lengths put right for most."""

import json
import random
import struct
import zlib
from collections.abc import Callable, Sequence

Change = Callable[[random.Random, bytes, bytes], bytes]
SIGNATURE = b"\x89PNG\r\n\x1a\n"
FORMS = ((1, 0), (8, 0), (16, 0), (8, 2), (16, 2), (8, 3), (1, 3), (8, 6), (16, 6), (16, 4), (0, 0), (255, 255))
"""(depth, colour type), allowed ones and others."""
TEXTS = ([], [0], None, True, -1, 1e400, "x" * 1000, [1, 5], [6, 1, 5, 2], [1 << 40] * 4, {"a": 1}, 1 << 70, [None] * 9)
"""Values for the description of a cube."""
BOMB = zlib.compress(bytes(1 << 26), 1)
"""64 MiB in 0.3."""


def png(rng: random.Random, data: bytes, other: bytes, any_bytes: Change, lengths: Sequence[int]) -> bytes:
    """One change of a PNG."""
    chunks = _chunks(data)
    at = rng.randrange(len(chunks))
    kind, body = chunks[at]
    choice = rng.randrange(12)
    if choice < 3:
        head = bytearray(chunks[0][1])
        side = rng.choice((0, 4))
        if choice == 0:
            head[side : side + 4] = struct.pack(">I", rng.choice((*lengths, 16384, 11585, 8192)) & 0xFFFFFFFF)
        elif choice == 1:
            head[8:10] = bytes(rng.choice(FORMS))
        else:
            head[rng.randrange(8, 13)] = rng.choice((0, 1, 2, 255))
        chunks[0] = (b"IHDR", bytes(head))
    elif choice == 3:
        del chunks[at]
    elif choice == 4:
        chunks.insert(rng.randrange(len(chunks) + 1), rng.choice(_chunks(other)))
    elif choice == 5:
        chunks[at:at] = [chunks[at]] * rng.choice((1, 3, 200))
    elif choice == 6:
        chunks[at] = (rng.choice((b"IDAT", b"PLTE", b"tRNS", b"eXIf", b"iCCP", b"acTL", b"fdAT", b"tEXt")), body)
    elif choice == 7:
        chunks[at] = (kind, any_bytes(rng, body, other))
    elif choice == 8:
        chunks.insert(rng.randrange(1, len(chunks)), _text_chunk(rng))
    elif choice == 9:
        chunks = _repacked(rng, chunks, any_bytes, other)
    elif choice == 10:
        name = rng.choice((b"edgefirst:layout", b"edgefirst:shape", b"edgefirst:scales", b"edgefirst:timestamp",
                           b"edgefirst:is_complex", b"edgefirst:\xff", b"edgefirst:more"))  # fmt: skip
        value = json.dumps(rng.choice(TEXTS)) if rng.random() < 0.8 else "[" * rng.choice((10, 100_000))
        chunks = [chunk for chunk in chunks if not chunk[1].startswith(name + b"\0")]
        chunks.insert(1, (b"tEXt", name + b"\0" + value.encode()))
    else:
        length = struct.pack(">I", rng.choice(lengths) & 0xFFFFFFFF)
        return SIGNATURE + b"".join(map(_chunk, chunks[:at])) + length + b"".join(map(_chunk, chunks[at:]))[4:]
    whole = SIGNATURE + b"".join(map(_chunk, chunks))
    return whole if rng.random() < 0.9 else any_bytes(rng, whole, other)


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        found.append((kind, data[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    kind, body = chunk
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def _text_chunk(rng: random.Random) -> tuple[bytes, bytes]:
    packed = rng.choice((BOMB, zlib.compress(b"x" * 100), b"\x78\x9c", rng.randbytes(20)))
    return rng.choice(
        (
            (b"zTXt", b"Comment\0\0" + packed),
            (b"iTXt", b"Title\0\1\0en\0titel\0" + packed),
            (b"iCCP", b"profile\0\0" + packed),
            (b"eXIf", rng.choice((b"II*\0", b"MM\0*")) + rng.randbytes(60)),
            (b"eXIf", b"II*\0\x08\0\0\0\1\0\x69\x87\4\0\1\0\0\0\x08\0\0\0\0\0\0\0"),
            (b"acTL", struct.pack(">II", rng.choice((0, 2, 0xFFFFFFFF)), 0)),
            (b"pHYs", rng.randbytes(rng.choice((0, 9)))),
        )
    )


def _repacked(rng: random.Random, chunks: list[tuple[bytes, bytes]], any_bytes: Change, other: bytes):
    """The lines of the picture changed below their compression."""
    plain = zlib.decompressobj().decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"), 1 << 24)
    packed = BOMB if rng.random() < 0.1 else zlib.compress(any_bytes(rng, plain, other), 1)
    cut = rng.randrange(len(packed))
    rest = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    return [*rest[:-1], (b"IDAT", packed[:cut]), (b"IDAT", packed[cut:]), rest[-1]]


def jpeg(rng: random.Random, data: bytes, other: bytes, any_bytes: Change, lengths: Sequence[int]) -> bytes:
    """One change of a JPEG."""
    segments, scan = _segments(data)
    at = rng.randrange(len(segments))
    marker, body = segments[at]
    frame = next(
        (n for n, (kind, _) in enumerate(segments) if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC)), at
    )
    choice = rng.randrange(10)
    if choice < 2:
        head = bytearray(segments[frame][1])
        side = rng.choice((1, 3))
        head[side : side + 2] = struct.pack(">H", rng.choice((*lengths, 16384, 8192)) & 0xFFFF)
        segments[frame] = (segments[frame][0], bytes(head))
    elif choice == 2:
        segments[frame] = (rng.choice((0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC9, 0xCA, 0xCF)), segments[frame][1])
    elif choice == 3:
        head = bytearray(segments[frame][1])
        head[rng.randrange(len(head))] = rng.choice((0, 1, 4, 12, 255, 0x11, 0x44))
        segments[frame] = (segments[frame][0], bytes(head))
    elif choice == 4:
        del segments[at]
    elif choice == 5:
        segments.insert(at, rng.choice(_segments(other)[0]))
    elif choice == 6:
        segments[at] = (marker, any_bytes(rng, body, other)[:65000])
    elif choice == 7:
        segments.insert(
            0, (0xE1, b"Exif\0\0" + rng.choice((b"II*\0", b"MM\0*")) + rng.randbytes(rng.choice((0, 4, 90))))
        )
    elif choice == 8:
        scan = any_bytes(rng, scan, other)
        scan = scan if rng.random() < 0.4 else scan + b"\xff\xd9"
    else:
        scan = scan[:-2] + (b"\xff\xda" + struct.pack(">H", 8) + b"\1\1\0\0\x3f\0") * rng.choice((1, 500)) + b"\xff\xd9"
    parts = [struct.pack(">BBH", 0xFF, kind, len(text) + 2) + text for kind, text in segments]
    whole = b"\xff\xd8" + b"".join(parts) + scan
    return whole if rng.random() < 0.9 else any_bytes(rng, whole, other)


def _segments(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """(marker, body) of the segments up to the first scan's, and what is behind."""
    found, at = [], 2
    while not found or found[-1][0] != 0xDA:
        _, marker, length = struct.unpack_from(">BBH", data, at)
        found.append((marker, data[at + 4 : at + 2 + length]))
        at += 2 + max(2, length)
    return found, data[at:]
