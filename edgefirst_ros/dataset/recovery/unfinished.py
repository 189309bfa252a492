# SPDX-License-Identifier: Apache-2.0
"""Reopens an unfinished dataset without a writer: finds its whole members, to complete or to continue it."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import DatasetPaths, FrameSet, iter_keys, parse_member
from edgefirst_ros.dataset.recovery.journals import Journals
from edgefirst_ros.dataset.storage.folder import DirectoryWriter, list_files, list_present
from edgefirst_ros.dataset.storage.lock import give_back, refuse_planted, reopen_path, report_errors
from edgefirst_ros.dataset.storage.zip_read import Archive, Entry, convert_dos_time
from edgefirst_ros.dataset.storage.zip_write import ArchiveWriter, Lost, MemberWriter, count_missing
from edgefirst_ros.dataset.tables.rowlog import Checkpoint
from edgefirst_ros.errors import DatasetError, MessageError, TooLargeError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.png import check_png

_UNNAMED = "/.partial"
"""Suffix of a file that is being written, and not a member yet."""
_PAGE = 4096
"""Bytes that a disk writes at once: after a power cut such a piece of a file can be all zeros."""


@dataclass(frozen=True, slots=True)
class Found:
    """A whole member."""

    name: str
    stamp: int
    """Time of the member, ns since the epoch, with a resolution of 2 s in a ZIP."""
    head: Callable[[int], bytes]
    """Reads its first bytes, as many as asked for."""


def reopen(paths: DatasetPaths, members: Path) -> tuple[ArchiveMembers | FolderMembers, int]:
    """Open and lock the container at `members`; returns it, and a descriptor that holds the lock until it is closed.

    Raises InUseError where a living writer has it, DatasetError where it cannot be continued, and StorageError.
    """
    if paths.layout == "zip":
        archive = ArchiveWriter(members, reopen=True)
        return ArchiveMembers(archive), archive.hold()
    with report_errors(paths.folder_partial, "open"):
        lock = reopen_path(paths.folder_partial, folder=True)
    try:
        with report_errors(members, "create"):
            members.mkdir(exist_ok=True)
        return FolderMembers(DirectoryWriter(members, reopen=True)), lock
    except DatasetError:
        os.close(lock)
        raise


class ArchiveMembers:
    """Members in a ZIP without its end. Its `writer` appends to those that `whole` or `rewind` passed to it."""

    journals: Journals

    def __init__(self, writer: ArchiveWriter) -> None:
        self.writer = writer

    def is_complete(self, limits: Limits) -> bool:
        """Return True if the ZIP has its end, and every member in it is whole. Raises TooLargeError."""
        try:
            archive = Archive(self.writer.path, limits)
        except TooLargeError:
            raise
        except DatasetError:
            return False
        for found, listed in itertools.zip_longest(self.writer.scan(self._trusted), archive.entries):
            if not isinstance(found, Entry) or listed is None:
                return False
            if (found.text, found.start, found.packed, found.size, found.crc) != (
                listed.filename, listed.header_offset, listed.compress_size, listed.file_size, listed.CRC,
            ):  # fmt: skip
                return False
        return True

    def whole(self, *, verify: bool) -> Iterator[Found | Lost]:
        """Yield the whole members in their order, which the writer keeps, and the damage between them; once.

        Members up to the last synced commit are not compared with their checksums, unless `verify`.
        """
        archive, own = self.writer, self.journals.written_here
        for found in archive.scan(0 if verify else self._trusted):
            if isinstance(found, Lost):
                yield found
            elif own and parse_member(found.text) is None:  # a header has no checksum
                yield Lost(found.start, found.end, found.text, "no name of a member")
            elif archive.keep(found):
                yield Found(found.text, convert_dos_time(found.time, found.date), partial(archive.read, found.data))
            else:
                yield Lost(found.start, found.end, found.text, "exists twice")

    @property
    def _trusted(self) -> int:
        """Number of bytes that were synced; 0 if the file is shorter: the disk lost data that it had acknowledged."""
        synced = self.journals.synced.bytes
        with report_errors(self.writer.path, "read"):
            return synced if os.fstat(self.writer.fd).st_size >= synced else 0

    def rewind(self) -> Checkpoint:
        """Return to the last complete commit; the writer keeps only the members up to it."""
        archive, points, ends = self.writer, self.journals.points, {0: 0}
        wanted, rows = {p.samples for p in points}, self.journals.frames.rows(points[-1].samples)
        for number, end in enumerate(archive.sample_ends(self._trusted, rows), 1):
            ends.update({number: end} if number in wanted else {})
        point = next(p for p in reversed(points) if ends.get(p.samples) == p.bytes)
        for found in archive.scan(point.bytes):
            if isinstance(found, Lost) or found.end > point.bytes or not archive.keep(found):
                break
        archive.cut()
        return point

    def remove(self, lost: list[str]) -> None:
        """Cut the file after the last member; damage between others stays, without an entry in the directory."""
        self.writer.cut()


class FolderMembers:
    """Members in a folder, a file each, whose sizes and checksums are in the row log."""

    journals: Journals

    def __init__(self, writer: DirectoryWriter) -> None:
        self.writer = writer

    def is_complete(self, limits: Limits) -> bool:
        """Return True if every file is a whole member; that the folder ends is stated by the tables in it."""
        del limits
        known = _read_synced_samples(self.journals)
        return not any(_find_fault(*one, known, self.journals) for one in list_files(self.writer.path))

    def whole(self, *, verify: bool) -> Iterator[Found | Lost]:
        known = FrameSet() if verify else _read_synced_samples(self.journals)
        for name, file in list_files(self.writer.path):
            why = _find_fault(name, file, known, self.journals)
            with report_errors(file, "read"):
                status = file.lstat()
            if why:
                yield Lost(0, status.st_size, name, why)
                continue
            member = parse_member(name)
            if member is not None:
                self.writer.seen.add_member(member)
            yield Found(name, status.st_mtime_ns, partial(_read_head, file))

    def rewind(self) -> Checkpoint:
        journals, whole = self.journals, 0
        known = _read_synced_samples(journals)
        for row in journals.frames.rows(journals.points[-1].samples):
            found = list(list_present(self.writer.path, row))
            kinds = {member.kind for member, _, _ in found}
            if count_missing(row, kinds) or any(_find_fault(name, file, known, journals) for _, name, file in found):
                break
            whole += 1
        point = next(p for p in reversed(journals.points) if p.samples <= whole)
        kept = set()
        for row in journals.frames.rows(point.samples):
            for member, name, _ in list_present(self.writer.path, row):
                self.writer.seen.add_member(member)
                kept.add(name)
        self.remove([name for name, _ in list_files(self.writer.path) if name not in kept])
        return point

    def remove(self, lost: list[str]) -> None:
        for name in lost:
            with report_errors(self.writer.path / name, "remove"):
                (self.writer.path / name).unlink(missing_ok=True)


def _read_synced_samples(journals: Journals) -> FrameSet:
    known = FrameSet()
    for batch in journals.frames.batches(journals.synced.samples):
        known.update(iter_keys(batch))
    return known


def _read_head(file: Path, size: int) -> bytes:
    with report_errors(file, "read"), file.open("rb") as handle:
        return handle.read(size)


def _find_fault(name: str, file: Path, synced: FrameSet, journals: Journals) -> str:
    """Return why a file is not a whole member; empty if it is one. Raises StorageError if it cannot be read.

    Of a sample among those `synced` the size is compared, of others the checksum. A file that the log does not have is
    judged by its content.
    """
    member = parse_member(name)
    if member is None:
        return "cut: it was being written" if name.endswith(_UNNAMED) else "no name of a member"
    with report_errors(file, "read"):
        status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    logged = journals.members.get(name) if journals.members is not None else None
    if logged is not None and status.st_size != logged[0]:
        return f"has {status.st_size} bytes of {logged[0]}"
    if (member.sequence, member.frame) in synced:
        return ""
    with report_errors(file, "read"):
        data = file.read_bytes()
    if logged is not None:
        return "" if zlib_ng.crc32(data) == logged[1] else "its checksum is wrong"
    return _find_content_fault(data, member.kind)


def _find_content_fault(data: bytes, kind: str) -> str:
    """Return the fault with the content of a member that may be cut; empty without a fault."""
    try:
        if kind.endswith("png"):
            check_png(data)
            return ""
        if kind.endswith("jpeg"):
            check_jpeg(data)
        else:
            decode_cloud(data)
    except (MessageError, DatasetError) as error:
        return str(error)
    pages = (data[place : place + _PAGE] for place in range(0, len(data), _PAGE))
    return "" if all(map(any, pages)) else "a page of it is all zeros, and its checksum is not known"


class UnfinishedDataset:
    """Opens and locks an unfinished dataset, its `members`, and reads its `journals`.

    Owns: container and lock, until `hand_over` or `close`; used by one thread. Raises DatasetError where a living
    writer has it, or it cannot be read.
    """

    def __init__(self, paths: DatasetPaths, archive: Path | None = None) -> None:
        """`archive`: where the ZIP is, if not under its partial name."""
        self.paths = paths
        self._owns = True
        self.members, self._lock = reopen(paths, archive or paths.members_partial)
        try:
            if paths.layout == "zip":  # a folder was made by its writer; beside a ZIP others may have put files
                for path in (*paths.journals, paths.arrow_partial, paths.frames_partial):
                    with report_errors(path, "look it up"), suppress(FileNotFoundError):
                        refuse_planted(path, os.lstat(path))
            self.journals = self.members.journals = Journals(paths)
        except DatasetError:
            self.close()
            raise

    def hand_over(self) -> tuple[MemberWriter, int, Checkpoint]:
        """Return to the last complete commit; returns container, lock and that commit, for a writer that owns them.

        Raises DatasetError where rows cannot be handed over, and StorageError; the dataset is closed then.
        """
        try:
            for path, why in self.journals.not_understood.items():
                raise DatasetError(
                    f"{path}: is not understood ({why}); complete the dataset with edgefirst-ros recover, which keeps "
                    "this file, or use --overwrite to start over"
                )
            if self.journals.is_older:
                raise DatasetError(
                    f"{self.paths.members_partial}: was begun by version 0.1 of the software; complete the dataset "
                    "with edgefirst-ros recover, or use --overwrite to start over"
                )
            point = self.members.rewind()
        except DatasetError:
            self.close()
            raise
        self._owns = False
        return self.members.writer, self._lock, point

    def close(self) -> None:
        """Release the files and locks that it still owns; you may close twice."""
        if self._owns:
            self._owns = False
            self.members.writer.abandon()
            give_back(self._lock)
