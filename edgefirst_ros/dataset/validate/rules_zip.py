# SPDX-License-Identifier: Apache-2.0
"""HDR: the headers of the ZIP. Source: PKWARE APPNOTE 4.3.7, 4.4.4, 4.5.3."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from edgefirst_ros.dataset.storage.zip_format import (
    DEFLATED,
    DESCRIPTOR,
    DESCRIPTOR_MARK,
    END,
    END_MARK,
    EXTRA64,
    LIMIT32,
    LOCAL,
    LOCAL_MARK,
    STORED,
    UTF8,
    date_time,
)
from edgefirst_ros.dataset.storage.zip_read import Archive
from edgefirst_ros.dataset.validate.report import Rule, rule
from edgefirst_ros.dataset.validate.subject import Subject
from edgefirst_ros.errors import DatasetError

FIRST_DOS, LAST_DOS = 315532800, 4354819198  # 1980-01-01 00:00:00, 2107-12-31 23:59:58


@dataclass(frozen=True)
class Local:
    """A local header, sizes from its ZIP64 field where they are there; `start` is where the data begin."""

    flags: int
    method: int
    date_time: tuple[int, int, int, int, int, int]
    crc: int
    packed: int
    size: int
    name: bytes
    start: int


def read_local(archive: Archive, offset: int) -> Local:
    """The local header at `offset`. Raises DatasetError."""
    fields = LOCAL.unpack(archive.pread(LOCAL.size, offset))
    signature, _, flags, method, time, date, crc, packed, size, name_length, extra_length = fields
    if signature != LOCAL_MARK:
        raise DatasetError(f"no local header at {offset}")
    start = offset + LOCAL.size + name_length + extra_length
    tail = archive.pread(name_length + extra_length, offset + LOCAL.size)
    for kind, body in _extras(tail[name_length:]):
        if kind == EXTRA64:
            values = list(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
            size = values.pop(0) if size == LIMIT32 and values else size
            packed = values.pop(0) if packed == LIMIT32 and values else packed
    return Local(flags, method, date_time(time, date), crc, packed, size, tail[:name_length], start)


def _extras(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position + 4 <= len(data):
        kind, length = struct.unpack_from("<HH", data, position)
        yield kind, data[position + 4 : position + 4 + length]
        position += 4 + length


@rule("HDR001", "error", "local headers say what the central directory says")
def agree(subject: Subject) -> Iterator[tuple[str, str]]:
    """Repair after a cut needs them; sizes and CRC of entries with a descriptor are not in the header."""
    archive = subject.archive
    for entry in archive.entries if archive else ():
        try:
            local = read_local(archive, entry.header_offset)  # type: ignore[arg-type]
        except DatasetError as error:
            yield entry.filename, str(error)
            continue
        pairs = {
            "name": (local.name, raw_name(entry)),
            "method": (local.method, entry.compress_type),
            "flags": (local.flags, entry.flag_bits),
            "time": (local.date_time, entry.date_time),
        }
        if not local.flags & DESCRIPTOR:
            pairs |= {
                "CRC": (local.crc, entry.CRC),
                "packed size": (local.packed, entry.compress_size),
                "size": (local.size, entry.file_size),
            }
        for what, (found, wanted) in pairs.items():
            if found != wanted:
                yield entry.filename, f"{what} is {found!r} in the local header, {wanted!r} in the directory"


@rule("HDR002", "warning", "members are stored (clouds may be deflated)")
def stored(subject: Subject) -> Iterator[tuple[str, str]]:
    """Pictures are compressed already; packing them again costs readers time."""
    for entry in subject.archive.entries if subject.archive else ():
        allowed = (STORED, DEFLATED) if entry.filename.endswith(".pcd") else (STORED,)
        if entry.compress_type not in allowed:
            yield entry.filename, f"is packed by method {entry.compress_type}"


@rule("HDR003", "warning", "sizes and CRC are in the local header, not in a data descriptor")
def no_descriptor(subject: Subject) -> Iterator[tuple[str, str]]:
    """An archive that was cut cannot be repaired with them."""
    for entry in subject.archive.entries if subject.archive else ():
        if entry.flag_bits & DESCRIPTOR:
            yield entry.filename, "has a data descriptor"


@rule("HDR004", "error", "members do not overlap each other or the directory")
def apart(subject: Subject) -> Iterator[tuple[str, str]]:
    """Overlapping entries are how ZIP bombs are made."""
    end, last = 0, ""
    for entry, _, stop in _spans(subject):
        if entry.header_offset < end:
            yield entry.filename, f"begins at {entry.header_offset} within {last}"
        end, last = max(end, stop), entry.filename
    if subject.archive and end > subject.archive.directory_start:
        yield last, f"reaches to {end}, into the directory at {subject.archive.directory_start}"


@rule("HDR005", "warning", "no bytes lie between the members, before them or after the end record")
def no_gaps(subject: Subject) -> Iterator[tuple[str, str]]:
    """Bytes that belong to nothing: left by a repair, or hidden."""
    archive, end = subject.archive, 0
    if archive is None:
        return
    for entry, start, stop in _spans(subject):
        if entry.header_offset > end:
            yield entry.filename, f"{entry.header_offset - end} bytes before it belong to nothing"
        end = max(stop, start) + (_descriptor_size(archive, entry, stop) if entry.flag_bits & DESCRIPTOR else 0)
    if archive.entries and archive.directory_start > end:
        yield subject.paths.members.name, f"{archive.directory_start - end} bytes before the directory are of nothing"
    tail = archive.pread(END.size, archive.file_size - END.size)
    if tail[:4] != END_MARK:
        yield subject.paths.members.name, "does not end with its end record: a comment, or bytes after it"


@rule("HDR006", "warning", "names that are not ASCII are marked as UTF-8")
def marked(subject: Subject) -> Iterator[tuple[str, str]]:
    """Without the mark they are code page 437."""
    for entry in subject.archive.entries if subject.archive else ():
        if not entry.filename.isascii() and not entry.flag_bits & UTF8:
            yield entry.filename, "is not marked as UTF-8"


@rule("HDR007", "error", "the time of a member is that of its sample, UTC, rounded down to 2 s")
def times(subject: Subject) -> Iterator[tuple[str, str]]:
    """Only where the frames table knows the time."""
    archive = subject.archive
    for entry, (_, found) in zip(archive.entries if archive else (), subject.members, strict=False):
        row = subject.rows.get(found[0]) if found else None
        if row and row.timestamp is not None:
            seconds = min(max(row.timestamp // 1_000_000_000, FIRST_DOS), LAST_DOS) // 2 * 2
            wanted = datetime.fromtimestamp(seconds, timezone.utc).timetuple()[:6]
            if entry.date_time != wanted:
                yield entry.filename, f"time {entry.date_time}, must be {wanted}"


RULES = tuple(one for one in list(globals().values()) if isinstance(one, Rule))


def raw_name(entry: zipfile.ZipInfo) -> bytes:
    """The bytes of a name as the directory has them."""
    return entry.orig_filename.encode("utf-8" if entry.flag_bits & UTF8 else "cp437")


def _spans(subject: Subject) -> Iterator[tuple[zipfile.ZipInfo, int, int]]:
    """(entry, first byte of its data, byte behind them) in the order of the file, those with a local header."""
    archive = subject.archive
    everything = [*archive.entries, *archive.folders] if archive else []
    for entry in sorted(everything, key=lambda item: item.header_offset):
        try:
            start = read_local(archive, entry.header_offset).start  # type: ignore[arg-type]
        except DatasetError:
            continue
        yield entry, start, start + entry.compress_size


def _descriptor_size(archive: Archive, entry: zipfile.ZipInfo, stop: int) -> int:
    signed = archive.pread(4, stop) == DESCRIPTOR_MARK if stop + 4 <= archive.file_size else False
    return (16 if signed else 12) + (8 if entry.file_size > LIMIT32 else 0)
