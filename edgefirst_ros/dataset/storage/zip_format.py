# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the records of a ZIP: local headers, central directory, end.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory, ZIP64, end), 4.5.3.
"""

from __future__ import annotations

import itertools
import re
import stat
import struct
import zipfile
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


LATEST = 45
"""Version needed for ZIP64; archives that need a later one are not plain."""
_CENTRAL = np.dtype(
    [
        ("mark", "S4"), ("made", "<u2"), ("needed", "<u2"), ("flags", "<u2"), ("method", "<u2"), ("time", "<u2"),
        ("date", "<u2"), ("crc", "<u4"), ("packed", "<u4"), ("size", "<u4"), ("named", "<u2"), ("extended", "<u2"),
        ("commented", "<u2"), ("disk", "<u2"), ("internal", "<u2"), ("external", "<u4"), ("start", "<u4"),
    ]
)  # fmt: skip


class Directory(NamedTuple):
    """Members of a plain ZIP in stored order."""

    names: list[str]
    starts: NDArray[np.int64]
    """Offsets of the local headers."""
    packed: NDArray[np.int64]
    """Bytes as stored."""
    sizes: NDArray[np.int64]
    """Bytes when unpacked."""
    records: NDArray[np.void]
    """The records, with flags, method, time, date and crc."""
    start: int
    """Offset of the directory."""

    def entry(self, number: int) -> zipfile.ZipInfo:
        """Return a member as `zipfile` describes it, but for what says nothing of its data."""
        record = self.records[number]
        entry = zipfile.ZipInfo(self.names[number])
        entry.date_time = date_time(int(record["time"]), int(record["date"]))
        entry.flag_bits, entry.compress_type, entry.CRC = (int(record[key]) for key in ("flags", "method", "crc"))
        entry.header_offset, entry.compress_size = int(self.starts[number]), int(self.packed[number])
        entry.file_size = int(self.sizes[number])
        return entry


def read_directory(file: IO[bytes]) -> Directory | None:
    """Return the directory of a plain ZIP; None for any other, which `zipfile` may still read.

    Plain: as this package writes them. Nothing lies before the first member, between directory and end or behind it;
    no comments, no folders, nothing encrypted; names are ASCII, or marked as UTF-8; sizes are possible, and members
    overlap neither each other nor the directory.
    """
    found = find_directory(file)
    if found is None:
        return None
    count, start, size = found
    file.seek(start)
    data = file.read(size)
    if not 0 < count * _CENTRAL.itemsize <= len(data) == size:
        return None
    marks = itertools.islice(re.finditer(re.escape(CENTRAL_MARK), data), count + 1)
    places = np.array([mark.start() for mark in marks], np.int64)
    if len(places) != count or int(places[-1]) + _CENTRAL.itemsize > size:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), _CENTRAL.itemsize)
    records = windows[places].view(_CENTRAL)[:, 0]
    named, extended = records["named"].astype(np.int64), records["extended"].astype(np.int64)
    begins = places + _CENTRAL.itemsize
    chained = places[0] == 0 and (begins + named + extended == np.append(places[1:], size)).all()
    known = np.isin(records["flags"], (0, UTF8)) & np.isin(records["method"], (STORED, DEFLATED))
    plain = known & (records["needed"] <= LATEST) & (records["commented"] == 0) & (records["disk"] == 0) & (named > 0)
    if not chained or not plain.all():
        return None
    names = _names(data, begins, named, records["flags"])
    wide = _wide(data, records, begins + named, extended)
    if names is None or wide is None:
        return None
    sizes, packed, starts = wide
    if not all(((column >= 0) & (column <= start)).all() for column in (packed, starts)):
        return None
    most = np.where(records["method"] == DEFLATED, np.minimum(LARGEST_INFLATED, packed * DEFLATE_LIMIT), packed)
    stops = starts + LOCAL.size + named + packed
    order = np.argsort(starts, kind="stable")
    apart = (starts[order] >= np.append(0, stops[order][:-1])).all() and stops[order[-1]] <= start
    if not apart or not ((sizes >= 0) & (sizes <= most)).all():
        return None
    return Directory(names, starts, packed, sizes, records, start)


def find_directory(file: IO[bytes]) -> tuple[int, int, int] | None:
    """Return number of members, offset and size of the directory of a ZIP that ends plainly; None for any other."""
    length = file.seek(0, 2)
    file.seek(max(0, length - END_BYTES))
    tail = file.read()
    if len(tail) < END.size:
        return None
    mark, disk, first, here, count, size, start, comment = END.unpack(tail[-END.size :])
    place = length - END.size
    if mark != END_MARK or disk or first or here != count or comment:
        return None
    if count == LIMIT16 or LIMIT32 in (size, start) or tail[-END.size - LOCATOR64.size :].startswith(LOCATOR64_MARK):
        if len(tail) < END_BYTES:
            return None
        place = length - END_BYTES
        mark, own, _, _, disk, first, here, count, size, start = END64.unpack(tail[: END64.size])
        located = LOCATOR64.unpack(tail[END64.size : -END.size])
        if mark != END64_MARK or own != END64.size - 12 or disk or first or here != count:
            return None
        if located != (LOCATOR64_MARK, 0, place, 1):
            return None
    return (count, start, size) if start + size == place else None


def _names(
    data: bytes, begins: NDArray[np.int64], named: NDArray[np.int64], flags: NDArray[np.uint16]
) -> list[str] | None:
    """Return the names; None where one is no text of its kind, holds a NUL, or is a folder's."""
    text = data.decode("latin-1")
    names = [text[begin:end] for begin, end in zip(begins.tolist(), (begins + named).tolist(), strict=True)]
    for number in np.flatnonzero(flags):
        try:
            names[number] = names[number].encode("latin-1").decode()
        except UnicodeDecodeError:
            return None
    told = all(name.isascii() or flag for name, flag in zip(names, flags.tolist(), strict=True))
    joined = "\n".join((*names, ""))
    return names if told and "\0" not in joined and "/\n" not in joined else None


def _wide(
    data: bytes, records: NDArray[np.void], places: NDArray[np.int64], extended: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Return sizes, packed sizes and starts, those of ZIP64 from the extra fields; None where these hold more."""
    columns = [records[key].astype(np.int64) for key in ("size", "packed", "start")]
    over = np.array([column == LIMIT32 for column in columns])
    number = over.sum(axis=0)
    if (extended != np.where(number > 0, 4 + 8 * number, 0)).any():
        return None
    for row in np.flatnonzero(number):
        place, fields = int(places[row]), int(number[row])
        if struct.unpack_from("<2H", data, place) != (EXTRA64, 8 * fields):
            return None
        values = struct.unpack_from(f"<{fields}q", data, place + 4)
        for column, value in zip(np.flatnonzero(over[:, row]), values, strict=True):
            columns[column][row] = value
    return columns[0], columns[1], columns[2]
