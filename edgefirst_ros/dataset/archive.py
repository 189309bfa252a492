# SPDX-License-Identifier: Apache-2.0
"""Containers of members: a ZIP that is only ever appended to, and a plain folder.

Every member lies whole behind a complete local header, so that a ZIP without its end can be read up to the cut.
Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 to 4.3.16 (central directory, ZIP64, end), 4.5.3.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from isal import isal_zlib

from edgefirst_ros.dataset.claim import NEW_FILE, OPEN_FOLDER, claim_file, reporting
from edgefirst_ros.dataset.names import KINDS, Member, member_name, parse_member
from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
_EXTRA64 = 0x0001
_LIMIT32 = 0xFFFFFFFF  # a 32-bit field with this value says: look in the ZIP64 record
_LIMIT16 = 0xFFFF
_PLAIN, _ZIP64 = 20, 45  # versions needed
_UNIX = 3 << 8
_UTF8 = 0x800
_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16
_DOS_FIRST = 315532800  # 1980-01-01T00:00:00Z
_DOS_LAST = 4354819198  # 2107-12-31T23:59:58Z
_IOV_MAX = 1024


class Container(Protocol):
    """What the dataset writer needs of either form."""

    def begin(self) -> None:
        """Mark the beginning of a sample."""

    def undo(self) -> None:
        """Remove the members added since `begin`: a sample is there as a whole or not at all."""

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Append a member made of `buffers`, one after the other."""

    def flush(self, sync: bool) -> None:
        """Hand everything to the system; `sync`: and wait for the disk."""

    def close(self) -> None:
        """Complete the container and sync it to disk."""

    def abandon(self) -> None:
        """Close without completing."""


class ArchiveWriter:
    """Writes a ZIP of stored members; sizes and CRC are in the local headers, nothing written is touched again.

    The file is created anew and locked: one that a dead writer left is replaced, one in use is refused (DatasetError).
    Memory does not grow with the members but for one byte per frame, which tells repeated names.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _Seen()
        self._offset = 0
        self._count = 0
        self._begun = (0, 0, 0)
        with reporting(path, "create"):
            self._fd = claim_file(path)
            # Unnamed, beside the archive: the directory may outgrow memory, and nothing is left of it after a crash.
            self._central = tempfile.TemporaryFile(dir=path.parent, buffering=1 << 16)  # noqa: SIM115

    def begin(self) -> None:
        """Mark the beginning of a sample."""
        self._seen.recent.clear()
        self._begun = self._offset, self._count, self._central.tell()

    def undo(self) -> None:
        """Remove the members added since `begin`."""
        self._seen.undo()
        self._offset, self._count, start = self._begun
        with reporting(self.path, "truncate"):
            self._central.seek(start)
            self._central.truncate()
            os.ftruncate(self._fd, self._offset)

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Append a member made of `buffers`, one after the other, dated `time_ns` (since the epoch).

        Raises DatasetError for a name that is no member's or was added before, and when writing fails;
        the archive then ends with the member before.
        """
        self._seen.add(name)
        views, size = _views(buffers)
        crc = 0
        for view in views:
            crc = isal_zlib.crc32(view, crc)
        encoded = name.encode()
        flags = 0 if name.isascii() else _UTF8
        time, date = dos_time(time_ns)
        big, far = size >= _LIMIT32, self._offset >= _LIMIT32
        stated = _LIMIT32 if big else size
        extra = struct.pack("<2H2Q", _EXTRA64, 16, size, size) if big else b""
        version = _ZIP64 if big else _PLAIN
        header = _LOCAL.pack(
            b"PK\x03\x04", version, flags, 0, time, date, crc, stated, stated, len(encoded), len(extra)
        )
        with reporting(self.path, f"write {name}"):
            try:
                end = _write_at(self._fd, [memoryview(header + encoded + extra), *views], self._offset)
            except OSError:
                os.ftruncate(self._fd, self._offset)
                raise
            wide = ([size, size] if big else []) + ([self._offset] if far else [])
            extra = struct.pack(f"<2H{len(wide)}Q", _EXTRA64, 8 * len(wide), *wide) if wide else b""
            version = _ZIP64 if wide else _PLAIN
            start = _LIMIT32 if far else self._offset
            record = _CENTRAL.pack(
                b"PK\x01\x02", _UNIX | version, version, flags, 0, time, date, crc, stated, stated,
                len(encoded), len(extra), 0, 0, 0, _ATTRIBUTES, start,
            )  # fmt: skip
            self._central.write(record + encoded + extra)
        self._offset = end
        self._count += 1

    def flush(self, sync: bool) -> None:
        """Nothing is held back in the process; `sync`: wait until the disk has it all."""
        if sync:
            with reporting(self.path, "write"):
                os.fdatasync(self._fd)

    def hold(self) -> int:
        """Return a descriptor that keeps the lock on the file for as long as it is open."""
        return os.dup(self._fd)

    def close(self) -> None:
        """Write central directory and end record, sync, close."""
        with reporting(self.path, "finish"):
            start, end = self._offset, self._offset
            self._central.seek(0)
            try:
                while chunk := self._central.read(1 << 18):
                    end = _write_at(self._fd, [memoryview(chunk)], end)
                _write_at(self._fd, [memoryview(self._end(start, end - start))], end)
                os.fsync(self._fd)
            except OSError:
                os.ftruncate(self._fd, self._offset)
                raise
        self.abandon()

    def _end(self, start: int, size: int) -> bytes:
        count, tail = self._count, b""
        if count >= _LIMIT16 or size >= _LIMIT32 or start >= _LIMIT32:
            tail = _END64.pack(
                b"PK\x06\x06", _END64.size - 12, _UNIX | _ZIP64, _ZIP64, 0, 0, count, count, size, start
            ) + _LOCATOR64.pack(b"PK\x06\x07", 0, start + size, 1)
        count = min(count, _LIMIT16)
        return tail + _END.pack(b"PK\x05\x06", 0, 0, count, count, min(size, _LIMIT32), min(start, _LIMIT32), 0)

    def abandon(self) -> None:
        """Close without completing; closing twice does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(OSError):  # a full disk: it cannot write what it holds back, and nobody needs it
            self._central.close()


class DirectoryWriter:
    """Writes each member as a file below `path`, a folder that must not exist yet; no link is followed.

    A member appears under its name only when it is whole.
    """

    _UNNAMED = ".partial"

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = _Seen()
        self._sequence = ""
        self._folder = -1
        with reporting(path, "create"):
            os.mkdir(path, 0o755)
            self._root = os.open(path, OPEN_FOLDER)

    def begin(self) -> None:
        """Mark the beginning of a sample."""
        self._seen.recent.clear()

    def undo(self) -> None:
        """Remove the members added since `begin`."""
        for name in self._seen.undo():
            with reporting(self.path / name, "remove"):
                (self.path / name).unlink(missing_ok=True)

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Write a member made of `buffers`, one after the other; `time_ns` becomes the file's time.

        Raises DatasetError for a name that is no member's or was added before, and when writing fails.
        """
        sequence = self._seen.add(name).sequence
        views, _ = _views(buffers)
        with reporting(self.path / name, "write"):
            if sequence != self._sequence:
                self._enter(sequence)
            fd = os.open(self._UNNAMED, NEW_FILE, 0o644, dir_fd=self._folder)
            try:
                _write_at(fd, views, 0)
                os.utime(fd, ns=(time_ns, time_ns))
                os.rename(self._UNNAMED, name.partition("/")[2], src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except OSError:
                os.unlink(self._UNNAMED, dir_fd=self._folder)
                raise
            finally:
                os.close(fd)

    def _enter(self, sequence: str) -> None:
        with suppress(FileExistsError):  # one continued; a link in its place is refused by the next line
            os.mkdir(sequence, 0o755, dir_fd=self._root)
        folder = os.open(sequence, OPEN_FOLDER, dir_fd=self._root)
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._sequence = folder, sequence

    def flush(self, sync: bool) -> None:
        """Nothing is held back in the process; `sync`: wait until the disk has it all."""
        if sync:
            os.sync()  # thousands of small files: one call for all is cheaper than one for each

    def close(self) -> None:
        """Sync and close."""
        self.flush(sync=True)
        self.abandon()

    def abandon(self) -> None:
        """Close without syncing; closing twice does nothing."""
        for fd in (self._folder, self._root):
            if fd >= 0:
                os.close(fd)
        self._folder = self._root = -1


class _Seen:
    """The members added so far, one bit for each kind in one byte for each frame."""

    _PAGE = 512

    def __init__(self) -> None:
        self.recent: list[str] = []
        self._pages: dict[tuple[str, int], bytearray] = {}

    def add(self, name: str) -> Member:
        member = parse_member(name)
        if member is None or member_name(member.sequence, member.frame, member.kind) != name:
            raise DatasetError(f"{name!r} is no member name; expected SEQUENCE/SEQUENCE_FRAME.KIND")
        page, place, bit = self._place(member)
        bits = self._pages.setdefault(page, bytearray(self._PAGE))
        if bits[place] & bit:
            raise DatasetError(f"{name} was written before; frame numbers must not repeat")
        bits[place] |= bit
        self.recent.append(name)
        return member

    def undo(self) -> list[str]:
        names, self.recent = self.recent, []
        for member in filter(None, map(parse_member, names)):
            page, place, bit = self._place(member)
            self._pages[page][place] &= ~bit
        return names

    def _place(self, member: Member) -> tuple[tuple[str, int], int, int]:
        page, place = divmod(member.frame, self._PAGE)
        return (member.sequence, page), place, 1 << KINDS.index(member.kind)


def dos_time(time_ns: int) -> tuple[int, int]:
    """Return (time, date) of MS-DOS: UTC, rounded down to 2 s, kept within 1980..2107."""
    seconds = min(max(time_ns // 1_000_000_000, _DOS_FIRST), _DOS_LAST)
    at = datetime.fromtimestamp(seconds, UTC)
    return at.hour << 11 | at.minute << 5 | at.second >> 1, (at.year - 1980) << 9 | at.month << 5 | at.day


def _views(buffers: Sequence[Buffer]) -> tuple[list[memoryview], int]:
    views = [memoryview(buffer) for buffer in buffers]
    views = [view.cast("B") for view in views if view.nbytes]
    return views, sum(map(len, views))


def _write_at(fd: int, views: list[memoryview], offset: int) -> int:
    """Write all of `views` from `offset` on; returns where they end."""
    first = 0
    while first < len(views):
        written = os.pwritev(fd, views[first : first + _IOV_MAX], offset)
        if not written:
            raise OSError(errno.EIO, "nothing was written")
        offset += written
        while first < len(views) and written >= len(views[first]):
            written -= len(views[first])
            first += 1
        if written:
            views[first] = views[first][written:]
    return offset
