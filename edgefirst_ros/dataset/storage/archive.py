# SPDX-License-Identifier: Apache-2.0
"""An append-only ZIP writer, and the interface it shares with the writer of plain folders (folder.py).

Every member lies whole behind a complete local header, so that a ZIP without its end can be read up to the cut.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgefirst_ros.dataset.names import parse_member
from edgefirst_ros.dataset.storage.lock import (
    byte_views,
    claim_file,
    give_back,
    reopen_file,
    reporting,
    sum_up,
    write_at,
)
from edgefirst_ros.dataset.storage.member_index import MemberIndex
from edgefirst_ros.dataset.storage.scan import Lost, scan, whole_samples
from edgefirst_ros.dataset.storage.space import StillThere, largest_file
from edgefirst_ros.dataset.storage.syncing import WriteBehind
from edgefirst_ros.dataset.storage.zipformat import (
    END_BYTES,
    Entry,
    central_record,
    end_records,
    local_header,
    new_entry,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MemberWriter(Protocol):
    """Writes the members of a dataset, into a ZIP or a folder. Owned by the thread that owns the dataset's writer."""

    path: Path

    seen: MemberIndex
    """Index of the written members."""

    announced: bool
    """True if the row log must have sizes and checksums of members before they are written: they have none here."""

    def begin(self) -> None:
        """Mark the beginning of a sample."""

    def undo(self) -> None:
        """Remove the members added since `begin`: a sample is there as a whole or not at all.

        What the disk does not let go of now is removed at the end; never raises.
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
    """Writes a ZIP of stored (or `Deflated`) members; sizes and CRC are in the local headers, nothing written changes.

    The file is created anew and locked: one that a dead writer left is replaced, one in use is refused (DatasetError).
    Memory does not grow with the members but for one byte per frame, which tells repeated names.
    """

    announced = False

    def __init__(self, path: Path, *, reopen: bool = False) -> None:
        """`reopen`: take over what a dead writer left; its members are made known by `keep`."""
        self.path = path
        self.seen = MemberIndex()
        self._offset = 0
        self._count = 0
        self._begun = (0, 0, 0)
        self._synced = 0
        self._doubtful = False
        with reporting(path, "open" if reopen else "create"):
            self.fd = reopen_file(path) if reopen else claim_file(path)
            try:
                self._largest = largest_file(path)
                self._central = _Spill(path.parent)
                if reopen:  # what the system remembers may have been refused by the disk since
                    os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                os.close(self.fd)
                if not reopen:
                    path.unlink(missing_ok=True)
                raise
        self._there = StillThere(path, self.fd)
        self._behind = WriteBehind(self.fd, piece=1)

    def begin(self) -> None:
        """Mark the beginning of a sample."""
        self.seen.recent.clear()
        self._begun = self._offset, self._count, self._central.size

    def undo(self) -> None:
        """Remove the members added since `begin`."""
        self.seen.undo()
        self._offset, self._count, directory = self._begun
        self._central.truncate(directory)
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, self._offset)

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Append a member made of `buffers`, one after the other, dated `time_ns` (since the epoch).

        Raises DatasetError for a name that is no member's or was added before, and StorageError when writing fails;
        the archive then ends with the member before.
        """
        self.seen.add(name)
        views, _ = byte_views(buffers)
        size, crc = sum_up(buffers)
        entry = new_entry(name, self._offset, size, crc, time_ns, buffers)
        record = central_record(entry)
        with reporting(self.path, f"write {name}"):
            self._largest.check(entry.end + self._central.size + len(record) + END_BYTES)
            write_at(self.fd, [memoryview(local_header(entry)), *views], self._offset)
            self._note(entry, record)

    def scan(self, trusted: int) -> Iterator[Entry | Lost]:
        """Yield what lies in a reopened file (scan.py); members that end by `trusted` are taken by their headers."""
        with reporting(self.path, "read"):
            yield from scan(self.fd, trusted)

    def sample_ends(self, trusted: int, rows: Iterable[Mapping[str, Any]]) -> Iterator[int]:
        """Yield the offset behind each sample of a reopened file that is there exactly as its row of frames says."""
        with reporting(self.path, "read"):
            yield from whole_samples(self.fd, scan(self.fd, trusted), rows)

    def read(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes of the file."""
        with reporting(self.path, "read"):
            return os.pread(self.fd, size, offset)

    def file_bytes(self) -> int:
        """Return the size of the file, with what lies behind the last member."""
        with reporting(self.path, "read"):
            return os.fstat(self.fd).st_size

    def keep(self, entry: Entry) -> bool:
        """Take over a member that lies in the file already; False for a member that is there twice."""
        member = parse_member(entry.text)
        if member is not None and not self.seen.note(member):
            return False
        with reporting(self.path, "read"):
            self._note(entry, central_record(entry))
        return True

    def _note(self, entry: Entry, record: bytes) -> None:
        self._central.append(record)
        self._offset = entry.end
        self._count += 1

    def cut(self) -> None:
        """Remove what lies behind the last member."""
        with reporting(self.path, "truncate"):
            os.ftruncate(self.fd, self._offset)

    def flush(self, sync: bool) -> int:
        """Return the bytes so far, none of which are buffered here; `sync`: wait until the disk has them all.

        Otherwise the disk begins to write what is new, so that the last sync finds little to do.
        """
        with reporting(self.path, "write"):
            if not sync:
                self._behind.reached(self._offset)
            else:
                self._begin_sync()
                os.fdatasync(self.fd)
                self._synced, self._doubtful = self._offset, False
            self._there.check()
        return self._offset

    def _begin_sync(self) -> None:
        """After a sync that failed the system forgets what the disk did not take: read it back from the disk."""
        if self._doubtful:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            chunks = iter(self._central)
            listed = bytearray(next(chunks))
            for found in scan(self.fd, self._synced):
                record = b"" if isinstance(found, Lost) else central_record(found)  # what lies between is not listed
                while len(listed) < len(record) and (chunk := next(chunks, b"")):
                    listed += chunk
                if listed.startswith(record):
                    del listed[: len(record)]
            if listed or any(chunks):
                raise OSError(errno.EIO, "what was written cannot be read back")
        self._doubtful = True

    def hold(self) -> int:
        """Return a descriptor that keeps the lock on the file for as long as it is open."""
        return os.dup(self.fd)

    @property
    def closing_bytes(self) -> int:
        """Bytes of central directory and end record."""
        return self._central.size + END_BYTES

    def close(self) -> None:
        """Write central directory and end record, sync, close."""
        with reporting(self.path, "finish"):
            start = end = self._offset
            os.ftruncate(self.fd, start)
            self._begin_sync()
            os.fdatasync(self.fd)  # an end whose members are not all on the disk would vouch for damaged ones
            try:
                for chunk in self._central:
                    end = write_at(self.fd, [memoryview(chunk)], end)
                write_at(self.fd, [memoryview(end_records(self._count, start, end - start))], end)
                os.fsync(self.fd)
                self._there.check()
            except OSError:
                os.ftruncate(self.fd, self._offset)
                raise
        self.abandon()

    def abandon(self) -> None:
        """Close without completing; closing twice does nothing."""
        if self.fd >= 0:
            give_back(self.fd)
            self.fd = -1
        self._central.close()


class _Spill:
    """The central directory so far: it may outgrow memory, so it goes to an unnamed file; a crash leaves nothing."""

    _PENDING = 1 << 16

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._written = 0
        self._pending = bytearray()

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._written + len(self._pending)

    def append(self, record: bytes) -> None:
        """Add a record; where the disk refuses it (OSError) only those before it are there."""
        if len(self._pending) >= self._PENDING:
            self._written = write_at(self._file.fileno(), [memoryview(bytes(self._pending))], self._written)
            self._pending.clear()
        self._pending += record

    def truncate(self, size: int) -> None:
        """Drop all but the first `size` bytes."""
        del self._pending[max(0, size - self._written) :]
        self._written = min(self._written, size)  # what lies behind it in the file is written over

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
        """Give the file back; closing twice does nothing."""
        with contextlib.suppress(OSError):
            self._file.close()
