# SPDX-License-Identifier: Apache-2.0
"""Hostile inputs out of valid ones: mutations of any bytes, and by format. The same generator gives the same input."""

import random
import struct
from collections.abc import Callable, Sequence

from fuzzing import containers, foreign, leftover, pictures, places
from fuzzing.seeds import packed, unpacked

LENGTHS = (0, 1, 2, 127, 255, 4096, 65535, 65536, (1 << 24) + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1,
           (1 << 63) - 1, (1 << 64) - 1)  # fmt: skip
TEXTS = ("../../../../../../escape", "/tmp/escape", "..", ".", "", "a/b", "\\\\host\\share", "a\0b", "x" * 300,
         "CON", "\u202ex", "camera/h264", "/rt/radar/cube", "é" * 100, "lidar/points", "\x1b[31m")  # fmt: skip
WORDS = ("-1", "1e999", ".nan", "nan", "&a [*a, *a]", "!!python/name:os.system", "{", "]", "*x", "<<", "~", "\t",
         "0x1f", "9" * 400, "2026-13-45", "? ", "- " * 200, "[" * 300, "{a: " * 300, "'", '"\\ud800"', "\u2028",
         "limits:", "!!timestamp 1", "!!float x", "!!int _", "!!binary é", "!!set", "!!pairs [1]", "1:99:99",
         "radar.cube")  # fmt: skip

TYPE = "\n" + "=" * 80 + "\nMSG: x/"
DEFINITIONS = (
    f"x/A[] transforms{TYPE}A\nuint8[0] b",
    f"x/A[] transforms{TYPE}A\nuint8[3] b",
    f"x/A a{TYPE}A\nx/A a",
    f"x/A[] transforms{TYPE}A\nx/B header\nstring child_frame_id\nx/B transform{TYPE}B\nx/D rotation{TYPE}D\nstring x",
    "uint8[4000000000] a",
    "\n".join(f"uint8[] f{n}" for n in range(3000)),
    f"x/A[4000000000] transforms{TYPE}A\nint64 K=1",
    "wstring[] a",
    "string<=3[<=4] a",
    "float64[] transforms",
    "x/" + "A" * 70_000 + "[] a",
    "\0",
    "[" * 900,
)
"""Texts of types that are made to hurt."""


def hostile(kind: str, number: int, seed: int, seeds: Sequence[bytes]) -> bytes:
    """Input `number` of a kind."""
    rng = random.Random(f"{seed}/{kind}/{number}")
    data, other = rng.choice(seeds), rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = any_bytes if rng.random() < 0.3 and kind not in ("cdr", "left", "store", "place") else MUTATIONS[kind]
        try:
            data = change(rng, data, other)
        except Exception:  # noqa: BLE001  after an earlier change it need no longer be of its format
            data = other if kind == "store" else any_bytes(rng, data, other)
    return data


def any_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One change that knows nothing of formats."""
    if not data:
        return other[: rng.randrange(len(other) + 1)]
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.choice((1, 4, 16, 256, len(data))))
    choice = rng.randrange(9)
    if choice == 0:
        flipped = bytearray(data)
        for _ in range(rng.choice((1, 2, 8, 32))):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    if choice == 1:
        return data[:at]
    if choice == 2:
        return data[:at] + other[rng.randrange(len(other) or 1) :]
    if choice == 3:
        return data[:at] + data[end:]
    if choice == 4:
        return data[:end] + data[at:end] * rng.choice((1, 2, 20)) + data[end:]
    if choice == 5:
        return data[:at] + rng.randbytes(end - at if end - at < 300 else 8) + data[end:]
    if choice == 6:
        second = rng.randrange(len(data))
        return data[:at] + data[second : second + end - at] + data[end:]
    if choice == 7:
        return data[:at] + bytes((rng.choice((0, 255, 32, 10)),)) * (end - at) + data[end:]
    return length_at(rng, data, at)


def length_at(rng: random.Random, data: bytes, at: int) -> bytes:
    """A number of 1, 2, 4 or 8 bytes replaced by one that is hostile as a length."""
    size = rng.choice((1, 2, 4, 4, 4, 8))
    value = rng.choice((*LENGTHS, len(data), rng.randrange(1 << 16)))
    order = rng.choice(("little", "little", "big"))
    return data[:at] + (value & (1 << 8 * size) - 1).to_bytes(size, order) + data[at + size :]


def _cdr(rng: random.Random, data: bytes, other: bytes) -> bytes:
    schema, definition, cdr = unpacked(data)
    choice = rng.random()
    if choice < 0.1:
        schema, definition, _ = unpacked(other)
    elif choice < 0.15:
        schema, definition = rng.choice(("tf2_msgs/msg/TFMessage", "x/msg/Own")), rng.choice(DEFINITIONS).encode()
    elif choice < 0.2 and definition:
        definition = any_bytes(rng, definition, unpacked(other)[1])
    elif choice < 0.75 and len(cdr) > 8:
        at = 4 + rng.randrange((len(cdr) - 4) // 4) * 4
        size = rng.choice((1, 2, 4, 4))
        cdr = cdr[:at] + (rng.choice(LENGTHS) & (1 << 8 * size) - 1).to_bytes(size, "little") + cdr[at + size :]
    elif choice < 0.8:
        cdr = rng.choice((b"\0\0", b"\0\2", b"\0\3", b"\0\6", b"\0\7", b"\xff\xff")) + cdr[2:]
    else:
        cdr = any_bytes(rng, cdr, unpacked(other)[2])
    return packed(schema, definition, cdr)


def units(data: bytes) -> list[bytes]:
    """The access units of an input of the kinds `h264` and `h265`."""
    found, at = [], 0
    while at + 4 <= len(data):
        length = struct.unpack_from("<I", data, at)[0]
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + min(length, len(data))
    return found


def _video(rng: random.Random, data: bytes, other: bytes) -> bytes:
    found, others = units(data), units(other)
    at = rng.randrange(len(found))
    choice = rng.randrange(10)
    if choice == 0:
        del found[at]
    elif choice == 1:
        second = rng.randrange(len(found))
        found[at], found[second] = found[second], found[at]
    elif choice == 2:
        found[at:at] = others[: rng.randrange(1, 9)]
    elif choice == 3:
        found[at:at] = [found[at]] * rng.choice((1, 2, 10))
    elif choice == 4:
        found[at] = any_bytes(rng, found[at], rng.choice(others))
    else:
        nals = [b"\0\0\1" + nal for nal in found[at].split(b"\0\0\1")]
        which = min(rng.randrange(len(nals)), rng.randrange(len(nals)))
        nal = bytearray(nals[which])
        if choice == 5:
            nals.insert(which, rng.choice(nals))
        elif choice == 6:
            nals[which] = b"\0\0\1" + bytes((rng.randrange(256),)) + bytes(nal[4:])
        else:  # in the head, where parameter sets and slice headers have their numbers
            for _ in range(rng.choice((1, 2, 6))):
                place = rng.randrange(min(3, len(nal) - 1), min(len(nal), rng.choice((8, 16, 60))) + 1)
                nal[min(place, len(nal) - 1)] = rng.choice((0, 1, 255, 0x80, rng.randrange(256)))
            nals[which] = bytes(nal)
        found[at] = b"".join(nals)
    return b"".join(struct.pack("<I", len(unit)) + unit for unit in found)


def _pcd(rng: random.Random, data: bytes, other: bytes) -> bytes:
    head, mark, body = data.partition(b"\nDATA ")
    lines = [line.split(b" ") for line in head.split(b"\n")]
    choice = rng.randrange(8)
    line = rng.choice(lines)
    if choice < 4:
        number = str(rng.choice((*LENGTHS, -1, "nan", "1e9", "0x10", "\u0665", 3, 7))).encode()
        line[rng.randrange(1, len(line)) if len(line) > 1 else 0] = number
    elif choice == 4:
        lines.append(rng.choice(lines))
        rng.shuffle(lines)
    elif choice == 5:
        line *= rng.choice((2, 50))
    elif choice == 6:
        body = rng.choice((b"ascii\n", b"binary\n", b"binary_compressed\n")) + body.partition(b"\n")[2]
    else:
        body = body[:18] + length_at(rng, body[18:], 0) if rng.random() < 0.5 else any_bytes(rng, body, other)
    return b"\n".join(map(b" ".join, lines)) + mark + body


def _arrow(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """A number in the footer or in the head of a batch: counts, offsets and lengths of everything."""
    heads = [at for at in range(8, len(data) - 8, 8) if data[at : at + 4] == b"\xff\xff\xff\xff"]
    footer = len(data) - 10 - min(len(data) // 2, struct.unpack_from("<I", data, len(data) - 10)[0])
    at = rng.choice((*heads, footer, footer))
    place = min(len(data) - 8, at + rng.randrange(0, 60) * 4)
    if rng.random() < 0.3:
        return any_bytes(rng, data, other)
    if rng.random() < 0.3:
        return data[:place] + bytes((data[place] ^ 1 << rng.randrange(8),)) + data[place + 1 :]
    return length_at(rng, data, place)


def _yaml(rng: random.Random, data: bytes, other: bytes) -> bytes:
    lines = data.decode("utf-8", "replace").split("\n")
    at = rng.randrange(len(lines))
    choice = rng.randrange(5)
    if choice == 0:
        lines[at:at] = other.decode("utf-8", "replace").split("\n")[: rng.randrange(1, 6)]
    elif choice == 1:
        lines[at] = " " * rng.randrange(5) + lines[at].lstrip()
    elif choice == 2:
        _, mark, value = lines[at].partition(":")
        lines[at] = rng.choice((*WORDS, *TEXTS)) + mark + value
    else:
        lines[at] = lines[at].partition(":")[0] + ": " + rng.choice((*WORDS, *TEXTS, *map(str, LENGTHS)))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


MUTATIONS: dict[str, Callable[[random.Random, bytes, bytes], bytes]] = {
    "mcap": lambda rng, data, other: containers.mcap(rng, data, other, any_bytes, LENGTHS, TEXTS),
    "zip": lambda rng, data, other: containers.archive(rng, data, other, any_bytes, LENGTHS, TEXTS),
    "png": lambda rng, data, other: pictures.png(rng, data, other, any_bytes, LENGTHS),
    "jpeg": lambda rng, data, other: pictures.jpeg(rng, data, other, any_bytes, LENGTHS),
    "cdr": _cdr,
    "h264": _video,
    "h265": _video,
    "pcd": _pcd,
    "arrow": _arrow,
    "yaml": _yaml,
    "meta": lambda rng, data, other: foreign.changed_json(rng, data),
    "store": lambda rng, data, other: foreign.changed_file(rng, data, any_bytes),
    "place": places.changed,
    "left": lambda rng, data, other: leftover.damaged(rng, data, other, any_bytes, length_at),
}
