# SPDX-License-Identifier: Apache-2.0
"""The records of a ZIP: local headers, central directory, end.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory, ZIP64, end), 4.5.3.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

LOCAL_MARK, CENTRAL_MARK, END_MARK, END64_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"
DESCRIPTOR_MARK, LOCATOR64_MARK = b"PK\x07\x08", b"PK\x06\x07"
DESCRIPTOR, UTF8 = 1 << 3, 1 << 11  # flags
STORED, DEFLATED = 0, 8
LARGEST_INFLATED = 1 << 30  # a point cloud beyond this is not one
DEFLATE_LIMIT = 1032  # deflate cannot do better: RFC 1951, 258 bytes from two bits
LOCAL = struct.Struct("<4s5H3I2H")
LIMIT32 = 0xFFFFFFFF  # a 32-bit field with this value says: look in the ZIP64 record
CENTRAL = struct.Struct("<4s6H3I5H2I")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
EXTRA64 = 0x0001
LIMIT16 = 0xFFFF
_PLAIN, _ZIP64 = 20, 45  # versions needed
_UNIX = 3 << 8
_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16
_DOS_FIRST = 315532800  # 1980-01-01T00:00:00Z
_DOS_LAST = 4354819198  # 2107-12-31T23:59:58Z


class Entry(NamedTuple):
    """One member: the fields of its headers, and its offsets in the file."""

    name: bytes
    start: int
    """Offset of its local header."""
    data: int
    """Offset of its data."""
    packed: int
    """Bytes of its data as stored."""
    size: int
    """Bytes when unpacked."""
    crc: int
    time: int
    date: int
    method: int = STORED
    flags: int = 0
    descriptor: int = 0
    """Bytes of the data descriptor behind the data."""

    @property
    def end(self) -> int:
        """Offset of the end of the member."""
        return self.data + self.packed + self.descriptor

    @property
    def text(self) -> str:
        """Its name; bytes that are no UTF-8 are kept as surrogates."""
        return self.name.decode("utf-8", "surrogateescape")


class Deflated(tuple["Buffer"]):
    """Deflated data of a member of another ZIP; `size` (under 4 GB) and `crc` are those of the unpacked data."""

    size: int
    crc: int

    def __new__(cls, data: Buffer, size: int, crc: int) -> Deflated:
        """Hold `data`."""
        made = super().__new__(cls, (data,))
        made.size, made.crc = size, crc
        return made


def new_entry(name: str, start: int, size: int, crc: int, time_ns: int, data: Sequence[Buffer] = ()) -> Entry:
    """Return a member at offset `start`, dated `time_ns` (since the epoch), with `data` of this size and checksum."""
    encoded = name.encode()
    time, date = dos_time(time_ns)
    place = start + LOCAL.size + len(encoded) + (20 if size >= LIMIT32 else 0)
    entry = Entry(encoded, start, place, size, size, crc, time, date, flags=0 if name.isascii() else UTF8)
    return entry._replace(size=data.size, crc=data.crc, method=DEFLATED) if isinstance(data, Deflated) else entry


def local_header(entry: Entry) -> bytes:
    """Return the local header with the name."""
    big = entry.size >= LIMIT32
    extra = struct.pack("<2H2Q", EXTRA64, 16, entry.size, entry.packed) if big else b""
    return (
        LOCAL.pack(
            LOCAL_MARK, _ZIP64 if big else _PLAIN, entry.flags, entry.method, entry.time, entry.date, entry.crc,
            LIMIT32 if big else entry.packed, LIMIT32 if big else entry.size, len(entry.name), len(extra),
        )
        + entry.name
        + extra
    )  # fmt: skip


def read_local(data: bytes, start: int) -> Entry | None:
    """Return the member whose local header `data` begins with, found at offset `start`; None where there is none.

    With a data descriptor its sizes are 0; `data` must hold the name and the extra field.
    """
    if len(data) < LOCAL.size:
        return None
    mark, _, flags, method, time, date, crc, packed, size, named, extended = LOCAL.unpack_from(data)
    place = LOCAL.size + named
    if mark != LOCAL_MARK or not named or len(data) < place + extended:
        return None
    end = place + extended
    begin = start + end
    while place + 4 <= end:
        kind, length = struct.unpack_from("<2H", data, place)
        if kind == EXTRA64 and length >= 16 and place + 20 <= end and LIMIT32 in (size, packed):
            size, packed = struct.unpack_from("<2Q", data, place + 4)
        place += 4 + length
    name = data[LOCAL.size : LOCAL.size + named]
    return Entry(name, start, begin, packed, size, crc, time, date, method, flags)


def central_record(entry: Entry) -> bytes:
    """Return the member's record in the central directory."""
    big, far = max(entry.size, entry.packed) >= LIMIT32, entry.start >= LIMIT32
    wide = ([entry.size, entry.packed] if big else []) + ([entry.start] if far else [])
    extra = struct.pack(f"<2H{len(wide)}Q", EXTRA64, 8 * len(wide), *wide) if wide else b""
    version = _ZIP64 if wide else _PLAIN
    return (
        CENTRAL.pack(
            CENTRAL_MARK, _UNIX | version, version, entry.flags, entry.method, entry.time, entry.date, entry.crc,
            LIMIT32 if big else entry.packed, LIMIT32 if big else entry.size, len(entry.name), len(extra),
            0, 0, 0, _ATTRIBUTES, LIMIT32 if far else entry.start,
        )
        + entry.name
        + extra
    )  # fmt: skip


def end_records(count: int, start: int, size: int) -> bytes:
    """Return the end records of a central directory of `count` records, `size` bytes long, at offset `start`."""
    tail = b""
    if count >= LIMIT16 or size >= LIMIT32 or start >= LIMIT32:
        tail = END64.pack(
            END64_MARK, END64.size - 12, _UNIX | _ZIP64, _ZIP64, 0, 0, count, count, size, start
        ) + LOCATOR64.pack(LOCATOR64_MARK, 0, start + size, 1)
    count = min(count, LIMIT16)
    return tail + END.pack(END_MARK, 0, 0, count, count, min(size, LIMIT32), min(start, LIMIT32), 0)


END_BYTES = END64.size + LOCATOR64.size + END.size
"""Largest size of `end_records`, bytes."""


def dos_time(time_ns: int) -> tuple[int, int]:
    """Return (time, date) of MS-DOS: UTC, rounded down to 2 s, kept within 1980..2107."""
    seconds = min(max(time_ns // 1_000_000_000, _DOS_FIRST), _DOS_LAST)
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.hour << 11 | at.minute << 5 | at.second >> 1, (at.year - 1980) << 9 | at.month << 5 | at.day


def date_time(time: int, date: int) -> tuple[int, int, int, int, int, int]:
    """Return year, month, day, hour, minute and second of an MS-DOS time, which may be an invalid one."""
    return 1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2


def unix_time(time: int, date: int) -> int:
    """Return ns since the epoch of an MS-DOS time in UTC; 0 for an invalid one."""
    try:
        at = datetime(*date_time(time, date), tzinfo=timezone.utc)
    except ValueError:
        return 0
    return int(at.timestamp()) * 1_000_000_000
