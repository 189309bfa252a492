# SPDX-License-Identifier: Apache-2.0
"""Appends members to a ZIP, and finds them again by their local headers in one without a central directory.

Every member is written whole after a complete local header, so a ZIP without its end can be read up to the cut.
Source: APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.9.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import MemberIndex, parse_member
from edgefirst_ros.dataset.storage.lock import (
    WriteBehind,
    claim,
    give_back,
    reopen_path,
    report_errors,
    sum_up,
    view_bytes,
    write_at,
)
from edgefirst_ros.dataset.storage.space import check_there, find_largest_file
from edgefirst_ros.dataset.storage.zip_read import (
    CENTRAL,
    CENTRAL_MARK,
    DEFLATED,
    DESCRIPTOR,
    END64_MARK,
    END_BYTES,
    END_MARK,
    LOCAL_MARK,
    STORED,
    Entry,
    make_central_record,
    make_end_records,
    make_entry,
    make_local_header,
    read_local,
)
from edgefirst_ros.streams import CAMERA, find_by_columns

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MemberWriter(Protocol):
    """Writes the members of a dataset, into a ZIP or a folder. Owned by the thread that owns the dataset's writer."""

    path: Path

    seen: MemberIndex

    announced: bool
    """True if the row log must have sizes and checksums of members before they are written: they have neither here."""

    def begin(self) -> None:
        """Mark the beginning of a sample."""

    def undo(self) -> None:
        """Remove the members added since `begin`: a sample exists as a whole or not at all.

        Members that the disk cannot remove now are removed at the end; never raises.
        """

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Append a member made of `buffers`, one after the other."""

    def flush(self, sync: bool) -> int:
        """Hand everything to the system and return the bytes so far; `sync`: also wait for the disk."""

    @property
    def closing_bytes(self) -> int:
        """Bytes that completing the container takes."""

    def close(self) -> None:
        """Complete the container and sync it to disk."""

    def abandon(self) -> None:
        """Close without completing."""


class ArchiveWriter:
    """Writes a ZIP of stored members, with sizes and CRC in local headers; written bytes never change.

    The file is created and locked: it replaces that of a dead writer, and raises DatasetError for one in use.
    Memory does not grow with the members but for a bit per member, which shows repeated names.
    """

    announced = False

    def __init__(self, path: Path, *, reopen: bool = False) -> None:
        """`reopen`: take over the file of a dead writer; `keep` registers its members."""
        self.path = path
        self.seen = MemberIndex()
        self._offset = 0
        self._count = 0
        self._begun = (0, 0, 0)
        self._synced = 0
        self._doubtful = False
        with report_errors(path, "open" if reopen else "create"):
            self.fd = reopen_path(path) if reopen else claim(path)
            try:
                self._largest = find_largest_file(path)
                self._central = _Spill(path.parent)
                if reopen:  # the system may cache data that the disk has rejected since
                    os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                os.close(self.fd)
                if not reopen:
                    path.unlink(missing_ok=True)
                raise
        self._behind = WriteBehind(self.fd, piece=1)

    def begin(self) -> None:
        self.seen.recent.clear()
        self._begun = self._offset, self._count, self._central.size

    def undo(self) -> None:
        self.seen.undo()
        self._offset, self._count, directory = self._begun
        self._central.truncate(directory)
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, self._offset)

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Append a member made of `buffers`, one after the other, dated `time_ns` (since the epoch).

        Raises DatasetError for a name that is not a member's or was added before, and StorageError when writing fails;
        the archive then ends with the member before.
        """
        self.seen.add(name)
        views, _ = view_bytes(buffers)
        size, crc = sum_up(buffers)
        entry = make_entry(name, self._offset, size, crc, time_ns)
        record = make_central_record(entry)
        with report_errors(self.path, f"write {name}"):
            if entry.end + self._central.size + len(record) + END_BYTES > self._largest:  # the directory must still fit
                why = f"{os.strerror(errno.EFBIG)}: no file here can pass {self._largest} bytes"
                raise OSError(errno.EFBIG, why)
            write_at(self.fd, [memoryview(make_local_header(entry)), *views], self._offset)
            self._add_entry(entry, record)

    def scan(self, trusted: int) -> Iterator[Entry | Lost]:
        """Yield the content of a reopened file, by `scan`; it believes headers of members that end by `trusted`."""
        with report_errors(self.path, "read"):
            yield from scan(self.fd, trusted)

    def sample_ends(self, trusted: int, rows: Iterable[Mapping[str, Any]]) -> Iterator[int]:
        """Yield the offset after each sample of a reopened file that exists exactly as its row of frames says."""
        with report_errors(self.path, "read"):
            yield from find_whole_samples(self.fd, scan(self.fd, trusted), rows)

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of the file."""
        with report_errors(self.path, "read"):
            return os.pread(self.fd, size, offset)

    def keep(self, entry: Entry) -> bool:
        """Take over a member that is in the file already; False for a member that exists twice."""
        member = parse_member(entry.text)
        if member is not None and not self.seen.add_member(member):
            return False
        with report_errors(self.path, "read"):
            self._add_entry(entry, make_central_record(entry))
        return True

    def _add_entry(self, entry: Entry, record: bytes) -> None:
        self._central.append(record)
        self._offset = entry.end
        self._count += 1

    def cut(self) -> None:
        """Remove the bytes after the last member."""
        with report_errors(self.path, "truncate"):
            os.ftruncate(self.fd, self._offset)

    def flush(self, sync: bool) -> int:
        """Return the bytes so far, all handed to the system; `sync`: wait until the disk has them all.

        Otherwise the disk begins to write new bytes, so that the last sync is short.
        """
        with report_errors(self.path, "write"):
            if not sync:
                self._behind.advance(self._offset)
            else:
                self._begin_sync()
                os.fdatasync(self.fd)
                self._synced, self._doubtful = self._offset, False
            check_there(self.path, self.fd)
        return self._offset

    def _begin_sync(self) -> None:
        """After a failed sync the system forgets data that the disk did not write: read it back from the disk."""
        if self._doubtful:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            chunks = iter(self._central)
            listed = bytearray(next(chunks))
            for found in scan(self.fd, self._synced):
                record = b"" if isinstance(found, Lost) else make_central_record(found)  # lost bytes are not listed
                while len(listed) < len(record) and (chunk := next(chunks, b"")):
                    listed += chunk
                if listed.startswith(record):
                    del listed[: len(record)]
            if listed or any(chunks):
                raise OSError(errno.EIO, "the new archive cannot be read back")
        self._doubtful = True

    def hold(self) -> int:
        """Return a descriptor that keeps the lock on the file for as long as it is open."""
        return os.dup(self.fd)

    @property
    def closing_bytes(self) -> int:
        return self._central.size + END_BYTES

    def close(self) -> None:
        with report_errors(self.path, "finish"):
            start = end = self._offset
            os.ftruncate(self.fd, start)
            self._begin_sync()
            os.fdatasync(self.fd)  # an end whose members are not all on the disk would vouch for damaged ones
            try:
                for chunk in self._central:
                    end = write_at(self.fd, [memoryview(chunk)], end)
                write_at(self.fd, [memoryview(make_end_records(self._count, start, end - start))], end)
                os.fsync(self.fd)
                check_there(self.path, self.fd)
            except OSError:
                os.ftruncate(self.fd, self._offset)
                raise
        self.abandon()

    def abandon(self) -> None:
        if self.fd >= 0:
            give_back(self.fd)
            self.fd = -1
        self._central.close()


class _Spill:
    """The central directory so far, in an unnamed file as it may outgrow memory; a crash leaves no file."""

    _PENDING = 1 << 16

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._written = 0
        self._pending = bytearray()

    @property
    def size(self) -> int:
        return self._written + len(self._pending)

    def append(self, record: bytes) -> None:
        """Add a record; where the disk refuses it (OSError) only the earlier ones remain."""
        if len(self._pending) >= self._PENDING:
            self._written = write_at(self._file.fileno(), [memoryview(bytes(self._pending))], self._written)
            self._pending.clear()
        self._pending += record

    def truncate(self, size: int) -> None:
        del self._pending[max(0, size - self._written) :]
        self._written = min(self._written, size)  # later bytes of the file are overwritten

    def __iter__(self) -> Iterator[bytes]:
        place = 0
        while place < self._written:
            chunk = os.pread(self._file.fileno(), min(1 << 18, self._written - place), place)
            if not chunk:
                raise OSError(errno.EIO, "the directory so far cannot be read back")
            place += len(chunk)
            yield chunk
        yield bytes(self._pending)

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        with contextlib.suppress(OSError):
            self._file.close()


_HEAD = 1024
"""Bytes read for a local header: more only for a name or an extra field of unusual length."""
_LARGEST_HEAD = 30 + 2 * 65535
_BLOCK = 1 << 20
_ENDS = (CENTRAL_MARK, END_MARK, END64_MARK)


class Lost(NamedTuple):
    """A range of the file that holds no whole member."""

    start: int
    end: int
    name: str
    """Name of the member it begins with; empty if unknown."""
    why: str


def scan(fd: int, trusted: int) -> Iterator[Entry | Lost]:
    """Yield members and damage from the beginning, in order; ends at a central directory or the end of the file.

    Members that end by the offset `trusted` are believed by their headers, others by their checksums. After a damaged
    stretch members are found again by the mark of their header, a name as datasets have it, and a right checksum.
    A member whose size is only after its data is damage.
    """
    size = os.fstat(fd).st_size
    position, checks = 0, _Checks(fd, 4 * size)
    while position < size:
        head = os.pread(fd, _HEAD, position)
        if head[:4] in _ENDS:
            return
        entry = _parse_entry(fd, head, position)
        if entry is not None and entry.end <= size and (entry.end <= trusted or checks.whole(entry)):
            yield entry
            position = entry.end
            continue
        name = "" if entry is None else entry.text
        if entry is None:
            begun = LOCAL_MARK.startswith(head[:4]) and len(head) < _HEAD
            why = "cut: its end is missing" if begun else "no header of a member"
            search = position + 1
        elif entry.end > size:
            why, search = f"cut: {size - position} bytes of {entry.end - position}", position + 4
        else:
            why, search = "its checksum is wrong", position + 4
            if os.pread(fd, 4, entry.end) in (LOCAL_MARK, *_ENDS):
                search = entry.end
        found = _search(fd, search, size, checks)
        yield Lost(position, found, name, why)
        position = found


def count_missing(row: Mapping[str, Any], kinds: Set[str]) -> int:
    """Return how many members of its frames row a sample with these `kinds` does not have."""
    stamped = [name for name, value in row.items() if value is not None and name.endswith("_timestamp")]
    expected = {sensor.kinds for sensor in (*find_by_columns(stamped), *([CAMERA] if row["size"] is not None else []))}
    return sum(kinds.isdisjoint(any_of) for any_of in expected)


def find_whole_samples(fd: int, found: Iterable[Entry | Lost], rows: Iterable[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the offset after each of the samples that follow each other as their rows of the frames table do.

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
            header = make_local_header(make_entry(entry.text, entry.start, entry.size, entry.crc, row["timestamp"]))
            if member.kind in kinds or os.pread(fd, len(header), entry.start) != header:
                return
            kinds.add(member.kind)
            end = entry.end
            entry = next(entries, None)
        if count_missing(row, kinds):
            return
        yield end


def _parse_entry(fd: int, head: bytes, position: int) -> Entry | None:
    """Return the member that begins here; None without one, or if its header does not have its size."""
    entry = read_local(head, position)
    if entry is None and head[:4] == LOCAL_MARK and len(head) == _HEAD:
        entry = read_local(os.pread(fd, _LARGEST_HEAD, position), position)
    return None if entry is None or (entry.flags & DESCRIPTOR and not entry.packed) else entry


def _search(fd: int, position: int, size: int, checks: _Checks) -> int:
    """Return the offset of the next whole member (or of the central directory), else of the end of the file."""
    while position < size:
        block = os.pread(fd, _BLOCK + 3, position)
        at = block.find(b"PK")
        while 0 <= at < _BLOCK:
            mark = block[at : at + 4]
            if mark == LOCAL_MARK and checks.left > 0:
                entry = _parse_entry(fd, os.pread(fd, _HEAD, position + at), position + at)
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
    head = os.pread(fd, CENTRAL.size, position)
    if len(head) < CENTRAL.size:
        return False
    follows = position + CENTRAL.size + sum(CENTRAL.unpack(head)[10:13])
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
        self.left -= entry.packed
        inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.method == DEFLATED else None
        crc = size = 0
        place, view = entry.data, memoryview(self._buffer)
        try:
            while place < entry.end:
                read = os.preadv(self._fd, [view[: min(_BLOCK, entry.end - place)]], place)
                if not read:
                    return False
                place += read
                for part in _iter_parts(view[:read], inflate):
                    crc, size = zlib_ng.crc32(part, crc), size + len(part)
        except zlib.error:
            return False
        return crc == entry.crc and size == entry.size


def _iter_parts(data: memoryview, inflate: zlib._Decompress | None) -> Iterator[memoryview | bytes]:
    if inflate is None:
        yield data
        return
    yield inflate.decompress(data, _BLOCK)
    while inflate.unconsumed_tail:
        yield inflate.decompress(inflate.unconsumed_tail, _BLOCK)
