# SPDX-License-Identifier: Apache-2.0
"""Finds existing members: in a ZIP by their local headers alone, without its central directory, and in a folder.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.9.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import KIND_OF, KINDS, Member, member_name, parse_member, safe_name
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.storage.opening import is_plain_file
from edgefirst_ros.dataset.storage.zipformat import (
    CENTRAL_MARK,
    DEFLATE_LIMIT,
    DEFLATED,
    DESCRIPTOR,
    DESCRIPTOR_MARK,
    END64_MARK,
    END_MARK,
    LOCAL_MARK,
    STORED,
    Entry,
    local_header,
    new_entry,
    read_local,
)

_HEAD = 1024
"""Bytes read for a local header: more only for a name or an extra field of unusual length."""
_LARGEST_HEAD = 30 + 2 * 65535
_BLOCK = 1 << 20
_FIRST_BLOCK = 1 << 14
_LARGEST_DESCRIPTOR = 24
_ENDS = (CENTRAL_MARK, END_MARK, END64_MARK)


class Lost(NamedTuple):
    """A range of the file that holds no whole member."""

    start: int
    end: int
    name: str
    """Name of the member it begins with; empty if unknown."""
    why: str


def scan(fd: int, trusted: int) -> Iterator[Entry | Lost]:
    """Yield what lies in the file from its beginning, in order; ends at a central directory or the end of the file.

    Members that end by the offset `trusted` are taken by their headers, of all others the checksum is compared. Behind
    a damaged stretch members are found again by the mark of their header, a name as datasets have it, and a checksum
    that is right.
    """
    size = os.fstat(fd).st_size
    position, checks = 0, _Checks(fd, 4 * size)
    while position < size:
        head = os.pread(fd, _HEAD, position)
        if head[:4] in _ENDS:
            return
        entry = _entry(fd, head, position, size, checks)
        if entry is not None and entry.end <= size and (entry.end <= trusted or checks.whole(entry)):
            yield entry
            position = entry.end
            continue
        name = "" if entry is None else entry.text
        if entry is None:
            begun = LOCAL_MARK.startswith(head[:4]) and len(head) < _HEAD
            why = "cut: its end is not there" if begun else "no header of a member"
            search = position + 1
        elif entry.end > size:
            why, search = f"cut: {size - position} bytes are there of {entry.end - position}", position + 4
        else:
            why, search = "its checksum is wrong", position + 4
            if os.pread(fd, 4, entry.end) in (LOCAL_MARK, *_ENDS):
                search = entry.end
        found = _search(fd, search, size, checks)
        yield Lost(position, found, name, why)
        position = found


def missing(row: Mapping[str, Any], kinds: Set[str]) -> int:
    """Return how many members of its frames row a sample with these `kinds` lacks."""
    camera = row["size"] is not None and not any(kind.startswith("camera.") for kind in kinds)
    expected = {kind for base, kind in KIND_OF.items() if row.get(f"{base}_timestamp") is not None}
    return len(expected - kinds) + camera


def whole_samples(fd: int, found: Iterable[Entry | Lost], rows: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the offset behind each of the samples that follow each other as their rows of the frames table do.

    Ends at the first that is not there exactly as it is written. A header has no checksum: it is compared.
    """
    entries = iter(found)
    entry, end = next(entries, None), 0
    for row in rows:
        kinds: set[str] = set()
        while isinstance(entry, Entry):
            member = parse_member(entry.text)
            if member is None or (member.sequence, member.frame) != (row["name"], row["frame"]):
                break
            header = local_header(new_entry(entry.text, entry.start, entry.size, entry.crc, row["timestamp"]))
            if member.kind in kinds or os.pread(fd, len(header), entry.start) != header:
                return
            kinds.add(member.kind)
            end = entry.end
            entry = next(entries, None)
        if missing(row, kinds):
            return
        yield end


def _entry(fd: int, head: bytes, position: int, size: int, checks: _Checks) -> Entry | None:
    """Return the member that begins here, with its real sizes; None without one, or if its size is unknown."""
    entry = read_local(head, position)
    if entry is None and head[:4] == LOCAL_MARK and len(head) == _HEAD:
        entry = read_local(os.pread(fd, _LARGEST_HEAD, position), position)
    if entry is None or not entry.flags & DESCRIPTOR or entry.packed:
        return entry
    return _described(fd, entry, size, checks)


def _described(fd: int, entry: Entry, size: int, checks: _Checks) -> Entry | None:
    """Return the sizes of a member that are stated behind its data only: the mark whose stated size leads to it."""
    place, length = entry.data, _FIRST_BLOCK
    while place < size and checks.left > 0:
        block = os.pread(fd, length + _LARGEST_DESCRIPTOR, place)
        at = block.find(DESCRIPTOR_MARK)
        while 0 <= at < length:
            stated = _stated(entry, block[at : at + _LARGEST_DESCRIPTOR], place + at - entry.data)
            if stated is not None:
                return stated
            at = block.find(DESCRIPTOR_MARK, at + 1)
        checks.left -= len(block)
        place += length
        length = min(2 * length, _BLOCK)
    return None


def _stated(entry: Entry, descriptor: bytes, packed: int) -> Entry | None:
    """Return the member with what its descriptor, which may be of ZIP64, says; None where that cannot be its own."""
    for width in (8, 4):
        first, second = descriptor[8 : 8 + width], descriptor[8 + width : 8 + 2 * width]
        unpacked = int.from_bytes(second, "little")
        limit = packed if entry.method == STORED else packed * DEFLATE_LIMIT
        if len(second) == width and int.from_bytes(first, "little") == packed and unpacked <= limit:
            crc = int.from_bytes(descriptor[4:8], "little")
            return entry._replace(packed=packed, size=unpacked, crc=crc, descriptor=8 + 2 * width)
    return None


def _search(fd: int, position: int, size: int, checks: _Checks) -> int:
    """Return the offset of the next whole member (or of the central directory), else of the end of the file."""
    while position < size:
        block = os.pread(fd, _BLOCK + 3, position)
        at = block.find(b"PK")
        while 0 <= at < _BLOCK:
            mark = block[at : at + 4]
            if mark == LOCAL_MARK and checks.left > 0:
                entry = _entry(fd, os.pread(fd, _HEAD, position + at), position + at, size, checks)
                known = entry is not None and parse_member(entry.text) is not None
                if known and entry is not None and entry.end <= size and checks.whole(entry):
                    return position + at
            elif mark == CENTRAL_MARK and _is_central(fd, position + at, size):
                return position + at
            at = block.find(b"PK", at + 1)
        position += _BLOCK
    return size


def _is_central(fd: int, position: int, size: int) -> bool:
    """True if a central directory begins here: the record after the first one has a mark as well."""
    head = os.pread(fd, 46, position)
    if len(head) < 46:
        return False
    lengths = (int.from_bytes(head[n : n + 2], "little") for n in (28, 30, 32))
    follows = position + 46 + sum(lengths)
    return follows < size and os.pread(fd, 4, follows) in _ENDS


class _Checks:
    """Compares checksums; `left` bounds the bytes read for headers that may be false."""

    def __init__(self, fd: int, left: int) -> None:
        self._fd = fd
        self._buffer = bytearray(_BLOCK)
        self.left = left

    def whole(self, entry: Entry) -> bool:
        """True if the data have the size and checksum of the header."""
        if entry.flags & 1 or entry.method not in (STORED, DEFLATED):
            return False
        if entry.method == STORED and entry.packed != entry.size:
            return False
        self.left -= entry.packed
        inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == DEFLATED else None
        crc = size = 0
        place, view = entry.data, memoryview(self._buffer)
        try:
            while place < entry.data + entry.packed:
                read = os.preadv(self._fd, [view[: min(_BLOCK, entry.data + entry.packed - place)]], place)
                if not read:
                    return False
                place += read
                for part in _parts(view[:read], inflate):
                    crc, size = zlib_ng.crc32(part, crc), size + len(part)
        except zlib.error:
            return False
        return crc == entry.crc and size == entry.size


def _parts(data: memoryview, inflate: zlib._Decompress | None) -> Iterator[memoryview | bytes]:
    """Yield the unpacked data in pieces of bounded size."""
    if inflate is None:
        yield data
        return
    yield inflate.decompress(data, _BLOCK)
    while inflate.unconsumed_tail:
        yield inflate.decompress(inflate.unconsumed_tail, _BLOCK)


# ---- folders ---------------------------------------------------------------------------------
def present(root: Path, sequence: str, frame: int) -> Iterator[tuple[Member, Path]]:
    """Yield (member, file) for the members of a frame in a folder."""
    for kind in KINDS if safe_name(sequence) == sequence else ():
        file = root / member_name(sequence, frame, kind)
        if is_plain_file(file):
            yield Member(sequence, frame, kind), file


def files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of everything one folder below that is not a folder itself, in frame order."""
    for folder in _listed(root, folders=True):
        found = [(f"{folder.name}/{file.name}", file) for file in _listed(folder, folders=False)]
        yield from sorted(found, key=lambda item: _order(item[0]))


def _listed(folder: Path, *, folders: bool) -> list[Path]:
    with reporting(folder, "list"), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) == folders]
    return [folder / name for name in sorted(names)]


def _order(name: str) -> tuple[int, int, str]:
    member = parse_member(name)
    return (member.frame, KINDS.index(member.kind), name) if member is not None else (-1, 0, name)
