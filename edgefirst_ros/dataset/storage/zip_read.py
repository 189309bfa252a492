# SPDX-License-Identifier: Apache-2.0
"""Records of a ZIP; reads its index and single members, local or in a bucket, without unpacking; opens folders alike.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory, ZIP64, end), 4.5.3.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.dataset.storage.folder import Folder
from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.limits import DEFAULT_LIMITS, Budget, Limits

LOCAL_MARK, CENTRAL_MARK, END_MARK, END64_MARK = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06"
DESCRIPTOR_MARK, LOCATOR64_MARK = b"PK\x07\x08", b"PK\x06\x07"
DESCRIPTOR, UTF8 = 1 << 3, 1 << 11  # flags
STORED, DEFLATED = 0, 8
LARGEST_INFLATED = 1 << 30  # a point cloud beyond this is not one
DEFLATE_LIMIT = 1032  # deflate cannot do better: RFC 1951, 258 bytes from two bits
LOCAL = struct.Struct("<4s5H3I2H")
LIMIT32 = 0xFFFFFFFF  # a 32-bit field with this value refers to the ZIP64 record
CENTRAL = struct.Struct("<4s6H3I5H2I")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
EXTRA64 = 0x0001
_USUAL_LOCAL = 256
"""Bytes that hold nearly every local header."""
LIMIT16 = 0xFFFF
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

    @property
    def end(self) -> int:
        """Offset of the end of the member."""
        return self.data + self.packed

    @property
    def text(self) -> str:
        """Its name; bytes that are not UTF-8 stay as surrogates."""
        return self.name.decode("utf-8", "surrogateescape")


def read_local(data: bytes, start: int) -> Entry | None:
    """Return the member whose local header `data` begins with, found at offset `start`; None if absent.

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


END_BYTES = END64.size + LOCATOR64.size + END.size
"""Largest size of `make_end_records`, bytes."""


def decode_dos_time(time: int, date: int) -> tuple[int, int, int, int, int, int]:
    """Return year, month, day, hour, minute and second of an MS-DOS time, which may be an invalid one."""
    return 1980 + (date >> 9), date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, (time & 31) * 2


def encode_dos_time(time_ns: int) -> tuple[int, int]:
    """Return (time, date) of MS-DOS: UTC, rounded down to 2 s, kept within 1980..2107."""
    seconds = min(max(time_ns // 1_000_000_000, _DOS_FIRST), _DOS_LAST)
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.hour << 11 | at.minute << 5 | at.second >> 1, (at.year - 1980) << 9 | at.month << 5 | at.day


def convert_dos_time(time: int, date: int) -> int:
    """Return ns since the epoch of an MS-DOS time in UTC; 0 for an invalid one."""
    try:
        at = datetime(*decode_dos_time(time, date), tzinfo=timezone.utc)
    except ValueError:
        return 0
    return int(at.timestamp()) * 1_000_000_000


_PLAIN, _ZIP64 = 20, 45  # versions needed
_UNIX = 3 << 8
_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16


def make_entry(name: str, start: int, size: int, crc: int, time_ns: int) -> Entry:
    """Return a stored member at offset `start`, dated `time_ns` (since the epoch), with data of this size and CRC."""
    encoded = name.encode()
    time, date = encode_dos_time(time_ns)
    place = start + LOCAL.size + len(encoded) + (20 if size >= LIMIT32 else 0)
    return Entry(encoded, start, place, size, size, crc, time, date, flags=0 if name.isascii() else UTF8)


def make_local_header(entry: Entry) -> bytes:
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


def make_central_record(entry: Entry) -> bytes:
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


def make_end_records(count: int, start: int, size: int) -> bytes:
    """Return the end records of a central directory of `count` records, `size` bytes long, at offset `start`."""
    tail = b""
    if count >= LIMIT16 or size >= LIMIT32 or start >= LIMIT32:
        tail = END64.pack(
            END64_MARK, END64.size - 12, _UNIX | _ZIP64, _ZIP64, 0, 0, count, count, size, start
        ) + LOCATOR64.pack(LOCATOR64_MARK, 0, start + size, 1)
    count = min(count, LIMIT16)
    return tail + END.pack(END_MARK, 0, 0, count, count, min(size, LIMIT32), min(start, LIMIT32), 0)


BLOCK, LARGEST_RECORD = 1 << 23, 1 << 12
"""Bytes of a directory that are read at once, and the most that one of its records has on the average."""
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

    def entries(self, chosen: slice = slice(None)) -> Iterator[zipfile.ZipInfo]:
        """Yield members as `zipfile` describes them, without fields that do not concern their data."""
        keys = ("time", "date", "flags", "method", "crc")
        columns = [*(self.records[key] for key in keys), self.starts, self.packed, self.sizes]
        for name, *values in zip(self.names[chosen], *(column[chosen].tolist() for column in columns), strict=True):
            time, date, flags, method, crc, start, packed, size = values
            entry = zipfile.ZipInfo(name, decode_dos_time(time, date))
            entry.flag_bits, entry.compress_type, entry.CRC = flags, method, crc
            entry.header_offset, entry.compress_size, entry.file_size = start, packed, size
            yield entry


def read_directory(file: IO[bytes]) -> Directory | None:
    """Return the directory of a plain ZIP; None for any other, which `zipfile` may still read.

    Plain: as this package writes them. No bytes before the first member, between directory and end or after it; no
    comments, no folders, no encryption; names are ASCII, or marked as UTF-8; sizes are possible, and members
    overlap neither each other nor the directory.
    """
    found = find_directory(file)
    if found is None:
        return None
    count, start, size = found

    def read(size: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(size)

    data = b"".join(block for _, block in iter_directory(read, start, start + size))
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
    names = _decode_names(data, begins, named, records["flags"])
    wide = _read_wide(data, records, begins + named, extended)
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


def iter_directory(
    read: Callable[[int, int], bytes], start: int, end: int, *, dense: bool = True
) -> Iterator[tuple[int, bytes]]:
    """Yield the directory of a ZIP as (offset, block); `read` returns so many bytes at an offset.

    A false end record can name the whole file: `dense` raises BadZipFile for a block with too few records.
    """
    for place in range(start, end, BLOCK):
        block = read(min(BLOCK, end - place), place)
        if dense and (block.count(CENTRAL_MARK) + 1) * LARGEST_RECORD < len(block):
            raise zipfile.BadZipFile("its end record names a directory that is not one")
        yield place, block


class _Blocks:
    """A file for `zipfile`, which reads the directory at once: it comes by `iter_directory`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.seek, self.tell = file, file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        if size <= BLOCK:
            return self._file.read(size)
        place = self.tell()
        blocks = iter_directory(lambda size, _: self._file.read(size), place, place + size)
        return b"".join(block for _, block in blocks)


def _decode_names(
    data: bytes, begins: NDArray[np.int64], named: NDArray[np.int64], flags: NDArray[np.uint16]
) -> list[str] | None:
    """Return the names; None where one is not a text of its kind, holds a NUL, or is a folder's."""
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


def _read_wide(
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


# Errors of zipfile for bytes that are not an archive.
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OSError, IndexError)


Upcoming: TypeAlias = "Callable[[], Iterator[Mapping[str, str]]]"
"""Returns {kind: member} of the samples that are read next."""


@dataclass
class Loop:
    """A loop of a thread over samples, of one container or of several in turns."""

    sample: tuple[str, int | None] | None = None
    kinds: set[str] = field(default_factory=set)
    """Kinds of members read of this sample."""
    before: set[str] = field(default_factory=set)
    """The same of the sample before it."""
    ahead: int = 1
    """Samples that the next request covers."""
    among: int = 1
    """Containers that take turns; each holds that much less."""

    def add(self, sample: tuple[str, int | None], kind: str) -> None:
        """Note that a member is read."""
        if sample != self.sample:
            self.sample, self.before, self.kinds = sample, self.kinds, set()
        self.kinds.add(kind)


class Container(Protocol):
    """Random access to members by name."""

    path: Path
    names: list[str]
    """All member names in stored order, with duplicates."""

    def size(self, name: str) -> int:
        """Bytes of a member, unpacked."""

    def read(self, name: str) -> bytes:
        """Return a whole member, its checksum compared. Raises DatasetError."""

    def head(self, name: str, size: int) -> bytes:
        """At most `size` bytes a member begins with, not checked. Raises DatasetError."""

    def expect(self, upcoming: Upcoming | None, loop: Loop | None = None) -> None:
        """Note the samples that a loop of this thread reads next; those of a bucket are fetched together.

        None at the end of the loop.
        """


def open_container(path: Path, limits: Limits = DEFAULT_LIMITS) -> Container:
    """Open the ZIP or folder at `path`. Raises DatasetError."""
    return Folder(path) if path.is_dir() else Archive(path, limits)


class Archive:
    """A ZIP, indexed once; members are read with `pread`, so threads can share it, and it can be pickled.

    Raises DatasetError, also where the members together unpack to more than `limits` let them.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path, self._limits = path, limits
        self._fd = open_file(path)
        self.file_size = os.fstat(self._fd).st_size
        with open(self._fd, "rb", closefd=False) as handle:
            self._index_members(handle)

    def _index_members(self, handle: IO[bytes]) -> None:
        """Read the directory: that of a plain ZIP as columns, which take a fraction of the time and memory."""
        with explain_errors(f"{self.path}: not a readable ZIP archive", OSError, zipfile.BadZipFile):
            self._plain = read_directory(handle)
        self._others: list[zipfile.ZipInfo] = []
        """Entries of a ZIP that is not plain, folders too."""
        if self._plain is not None:
            self.names, self.directory_start = self._plain.names, self._plain.start
            takes = int(self._plain.sizes.sum())
        else:
            try:
                with zipfile.ZipFile(cast("IO[bytes]", _Blocks(handle))) as archive:
                    self._others, self.directory_start = archive.infolist(), archive.start_dir
            except _ZIP_ERRORS as error:
                hint = "if it was cut, edgefirst-ros recover completes it"
                raise DatasetError(f"{self.path}: not a readable ZIP archive: {error}; {hint}") from error
            self.names = [entry.filename for entry in self.entries]
            takes = sum(map(self._find_size, self._others))
        self._index = {name: number for number, name in enumerate(self.names)}
        Budget.of_file(self.path, self.file_size, self._limits).spend(unpacked=takes)

    @cached_property
    def entries(self) -> list[zipfile.ZipInfo]:
        """All members in stored order, with duplicates; an object each, for those who need more than to read them."""
        if self._plain is not None:
            return list(self._plain.entries())
        # Not ZipInfo.is_dir: that reads the last character of a name that may be empty.
        return [entry for entry in self._others if not entry.filename.endswith("/")]

    @property
    def folders(self) -> list[zipfile.ZipInfo]:
        """Entries that are folders."""
        return [entry for entry in self._others if entry.filename.endswith("/")]

    @property
    def starts(self) -> list[int]:
        """Offsets of all local headers, in stored order."""
        if self._plain is not None:
            return list(map(int, self._plain.starts))
        return [entry.header_offset for entry in self._others]

    def __reduce__(self) -> tuple[type[Archive], tuple[Path, Limits]]:
        return Archive, (self.path, self._limits)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def pread(self, size: int, offset: int) -> bytes:
        """Return `size` bytes of the file from `offset` on. Raises DatasetError if it ends before, or is not given."""
        if offset < 0 or offset + size > self.file_size:
            raise DatasetError(f"{self.path}: {size} bytes at {offset} reach past its end at {self.file_size}")
        parts, missing = [], size
        while missing:
            try:
                part = os.pread(self._fd, missing, offset + size - missing)
            except OSError as error:
                text = f"{self.path}: {size} bytes at {offset} cannot be read: {error.strerror}"
                raise DatasetError(text) from error
            if not part:
                raise DatasetError(f"{self.path}: became shorter while it was read")
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def expect(self, upcoming: Upcoming | None, loop: Loop | None = None) -> None:
        """Ignored: reads of a disk are cheap."""

    def size(self, name: str) -> int:
        return int(self._plain.sizes[self._number(name)]) if self._plain is not None else self.entry(name).file_size

    def read(self, name: str) -> bytes:
        return self.read_entry(self.entry(name))

    def read_entry(self, entry: zipfile.ZipInfo, local: Entry | None = None) -> bytes:
        """Return the data of an entry, also of one of several with the same name. Raises DatasetError.

        `local`: its local header, where that was read before.
        """
        try:
            packed = self.pread(entry.compress_size, local.data) if local else self.read_packed(entry)
            data = _unpack_entry(packed, entry)
        except (DatasetError, zlib.error) as error:
            raise DatasetError(f"{self.path}: {entry.filename!r}: {error}") from error
        crc = zlib_ng.crc32(data)
        if crc != entry.CRC:
            text = f"CRC mismatch: computed {crc:08x}, stored {entry.CRC:08x}"
            raise DatasetError(f"{self.path}: {entry.filename!r}: {text}")
        return data

    def read_local(self, offset: int) -> Entry:
        """Return the member whose local header is at `offset`. Raises DatasetError."""
        size = max(LOCAL.size, min(_USUAL_LOCAL, self.file_size - offset))
        head = self.pread(size, offset)
        size = LOCAL.size + sum(LOCAL.unpack_from(head)[-2:])
        if size > len(head):
            head = head[: LOCAL.size] + self.pread(size - LOCAL.size, offset + LOCAL.size)
        found = read_local(head, offset)
        if found is None:
            raise DatasetError(f"no local header at {offset}")
        return found

    def _find_size(self, entry: zipfile.ZipInfo) -> int:
        """Return the unpacked size of a member, 0 for one whose sizes are impossible: it is rejected when read."""
        most = _bound_inflated(entry.compress_size) if entry.compress_type == DEFLATED else entry.compress_size
        return entry.file_size if entry.compress_size <= self.file_size and entry.file_size <= most else 0

    def refuse_overlaps(self) -> None:
        """Raise DatasetError where the bytes of two members overlap: one of their headers is false."""
        if self._plain is not None:
            return
        end, last = 0, ""
        for entry in sorted([*self.entries, *self.folders], key=lambda item: item.header_offset):
            if entry.header_offset < end:
                raise DatasetError(
                    f"{self.path}: {entry.filename!r} begins at {entry.header_offset} within {last!r}, which ends at "
                    f"{end} or later; see edgefirst-ros validate"
                )
            # The earliest end: its local header may also have an extra field.
            stop = entry.header_offset + LOCAL.size + len(encode_name(entry)) + entry.compress_size
            if stop <= self.file_size:  # else it is rejected by itself
                end, last = stop, entry.filename
        if end > self.directory_start:
            raise DatasetError(f"{self.path}: {last!r} reaches to {end}, into the directory at {self.directory_start}")

    def find_damaged(self) -> Iterator[tuple[zipfile.ZipInfo, str]]:
        """Yield the entries that cannot be read whole, and why."""
        for entry in self.entries:
            try:
                self.read_entry(entry)
            except DatasetError as error:
                yield entry, str(error)

    def read_packed(self, entry: zipfile.ZipInfo, most: int | None = None) -> bytes:
        """Return the stored (packed) data of an entry, at most `most` bytes. Raises DatasetError."""
        mark, *_, named, extended = LOCAL.unpack(self.pread(LOCAL.size, entry.header_offset))
        if mark != LOCAL_MARK:
            raise DatasetError(f"no local header at {entry.header_offset}")
        size = entry.compress_size if most is None else min(most, entry.compress_size)
        return self.pread(size, entry.header_offset + LOCAL.size + named + extended)

    def head(self, name: str, size: int) -> bytes:
        """Return the first `size` bytes of a member; of a stored one only these are read. Raises DatasetError."""
        entry = self.entry(name)
        return self.read_packed(entry, size) if entry.compress_type == STORED else self.read_entry(entry)[:size]

    def entry(self, name: str) -> zipfile.ZipInfo:
        """Return a member, of several with the name the last. Raises DatasetError."""
        number = self._number(name)
        if self._plain is not None:
            return next(self._plain.entries(slice(number, number + 1)))
        return self.entries[number]

    def _number(self, name: str) -> int:
        try:
            return self._index[name]
        except KeyError:
            raise DatasetError(f"{self.path}: has no member {name!r}") from None


def _bound_inflated(packed: int) -> int:
    return min(LARGEST_INFLATED, packed * DEFLATE_LIMIT)


def encode_name(entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a name as the directory has them."""
    name = entry.orig_filename
    return name.encode("utf-8" if name.isascii() or entry.flag_bits & UTF8 else "cp437")


def _unpack_entry(packed: bytes, entry: zipfile.ZipInfo) -> bytes:
    if entry.flag_bits & 1:
        raise DatasetError("is encrypted")
    if entry.compress_type == STORED:
        if len(packed) != entry.file_size:
            raise DatasetError(f"stored in {len(packed)} bytes, must be {entry.file_size}")
        return packed
    if entry.compress_type != DEFLATED:
        raise DatasetError(f"packed by method {entry.compress_type}, expected stored (0) or deflated (8)")
    if entry.file_size > _bound_inflated(len(packed)):
        raise DatasetError(f"{len(packed)} bytes that claim to unpack to {entry.file_size}")
    data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, entry.file_size + 1)
    if len(data) != entry.file_size:
        raise DatasetError(f"unpacks to {len(data)} bytes or more, must be {entry.file_size}")
    return data


def count_members(root: Path, wanted: Callable[[str], bool]) -> tuple[int, int]:
    """Return how many members under `DatasetPaths.members` are needed, by their names, and their bytes unpacked.

    For a ZIP of this package one record of the directory is held at a time; for others and folders all of them.
    Raises DatasetError.
    """
    if not root.is_dir():
        try:
            return _count(_iter_records(root), wanted)
        except (ValueError, struct.error):  # another program has written it since
            pass
    container = open_container(root)
    return _count(((name, container.size(name)) for name in container.names), wanted)


def _count(sizes: Iterable[tuple[str, int]], wanted: Callable[[str], bool]) -> tuple[int, int]:
    members = total = 0
    for name, size in sizes:
        if wanted(name):
            members, total = members + 1, total + size
    return members, total


def _iter_records(path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and unpacked size of the members. Raises ValueError or struct.error for a ZIP of another form."""
    with os.fdopen(open_file(path), "rb") as file:
        found = find_directory(file)
        if found is None:
            raise ValueError("no plain end")
        count, start, _ = found
        file.seek(start)
        for _ in range(count):
            mark, *_, size, named, extended, commented, _, _, _, _ = CENTRAL.unpack(file.read(CENTRAL.size))
            name, extra = file.read(named).decode(), file.read(extended)
            if mark != CENTRAL_MARK or commented:
                raise ValueError("no plain record")
            if size == LIMIT32:
                kind, _, size = struct.unpack_from("<2HQ", extra)
                if kind != EXTRA64:
                    raise ValueError("no size")
            yield name, size
