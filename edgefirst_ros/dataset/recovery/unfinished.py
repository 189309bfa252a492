# SPDX-License-Identifier: Apache-2.0
"""An unfinished dataset that nobody writes to any more: what its journals say, and which of its members are whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from isal import isal_zlib

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import DatasetPaths, parse_member, safe_name
from edgefirst_ros.dataset.storage.archive import ArchiveWriter, Container
from edgefirst_ros.dataset.storage.folder import DirectoryWriter
from edgefirst_ros.dataset.storage.lock import reopen_folder, reporting
from edgefirst_ros.dataset.storage.member_index import FrameSet, keys_of
from edgefirst_ros.dataset.storage.scan import Lost, files, missing, present, scan, whole_samples
from edgefirst_ros.dataset.storage.zipformat import Entry, unix_time
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL, read_checkpoints
from edgefirst_ros.dataset.tables.rowlog import is_plain_file, read_log
from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.picture_file import check_jpeg, check_png

_UNNAMED = "/.partial"
"""End of the name of a file that is no member yet."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state of the dataset that was handed over to the system as a whole."""

    samples: int = 0
    rows: int = 0
    """Of annotations."""
    bytes: int = 0
    """Of the ZIP."""
    synced: bool = True
    """Whether the disk had all of it before the journal said so."""


@dataclass(frozen=True, slots=True)
class Found:
    """A whole member."""

    name: str
    stamp: int
    """ns since the epoch, to 2 s."""
    head: Callable[[int], bytes]
    """Reads so many of its first bytes."""


class UnfinishedDataset:
    """Opens and locks an unfinished dataset; raises DatasetError where a living writer has it, or it cannot be read.

    `container` keeps no member before `members` or `rewind` made them known to it; `lock` is a descriptor.
    """

    def __init__(self, paths: DatasetPaths, archive: Path | None = None) -> None:
        """`archive`: where the ZIP is, if not under its partial name."""
        self.paths = paths
        self.container, self.lock = _open(paths, archive or paths.members_partial)
        self.description: dict[str, Any] = {}
        self.companions: list[str] = list(schema.DEFAULT_COMPANIONS)
        self._logged_frames: list[pa.RecordBatch] = []
        self._logged_annotations: list[pa.RecordBatch] = []
        self.points: list[Checkpoint] = [Checkpoint()]
        try:
            self._read_journals()
        except DatasetError:
            self.close()
            raise

    def _read_journals(self) -> None:
        rows = order = 0
        ends = {0: 0}  # rows up to the end of each batch of annotations, and the checksum of their samples
        for batch in _first(self.paths.arrow_journal, None):
            order, rows = _order_of(batch, order), rows + batch.num_rows
            ends[rows] = order
        samples = order = 0
        for batch, checkpoint in _batches(self.paths.frames_journal):
            self.companions = _companions(batch.schema)
            order, samples = _order_of(batch, order), samples + batch.num_rows
            if checkpoint is None:
                continue
            point = _point(checkpoint)
            if point is not None and point.samples == samples and ends.get(point.rows) == order:
                self.points.append(point)
                description = checkpoint.get("description")
                self.description.update(description if isinstance(description, dict) else {})
        self._read_log(samples, rows)

    def _read_log(self, samples: int, rows: int) -> None:
        """Take the rows that no journal has; they follow upon those of the journals without a gap."""
        frames = schema.journal_schema(schema.frames_columns(self.companions))
        for logged in read_log(self.paths.row_log):
            try:
                if logged.samples == samples:
                    self._logged_frames.append(_batch([logged.frame], frames))
                    samples += 1
                if logged.rows == rows:
                    self._logged_annotations.append(_batch(logged.annotations, ANNOTATION_JOURNAL))
                    rows += len(logged.annotations)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return

    @property
    def journalled(self) -> bool:
        """Whether there are journals: without them it is another tool's."""
        return is_plain_file(self.paths.frames_journal) or is_plain_file(self.paths.arrow_journal)

    def annotations(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the annotations' journal, or the first of them."""
        return _first(self.paths.arrow_journal, rows, self._logged_annotations)

    def frames(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of the frames' journal, or the first of them."""
        return _first(self.paths.frames_journal, rows, self._logged_frames)

    def close(self) -> None:
        """Let go of it; closing twice does nothing."""
        self.container.abandon()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    # ---- all that is whole ---------------------------------------------------------------
    def members(self, *, verify: bool) -> Iterator[Found | Lost]:
        """Yield whole members in their order, which the container keeps from then on, and what lies between them.

        What the disk had for certain is taken as it is, unless `verify`.
        """
        if isinstance(self.container, ArchiveWriter):
            yield from self._in_archive(self.container, 0 if verify else self._trusted(self.container))
        else:
            yield from self._in_folder(0 if verify else max(p.samples if p.synced else 0 for p in self.points))

    def _trusted(self, archive: ArchiveWriter) -> int:
        """How many bytes the disk has for certain: none where a shorter file shows that it did not keep its word."""
        synced = max(p.bytes if p.synced else 0 for p in self.points)
        with reporting(archive.path, "read"):
            return synced if os.fstat(archive.fd).st_size >= synced else 0

    def _in_archive(self, archive: ArchiveWriter, trusted: int) -> Iterator[Found | Lost]:
        own = self.journalled
        for found in _scan(archive, trusted):
            if isinstance(found, Lost):
                yield found
            elif own and parse_member(found.text) is None:  # a header has no checksum
                yield Lost(found.start, found.end, found.text, "no name of a member")
            elif archive.keep(found):
                yield Found(found.text, unix_time(found.time, found.date), partial(_head, archive, found.data))
            else:
                yield Lost(found.start, found.end, found.text, "is there twice")

    def _in_folder(self, trusted: int) -> Iterator[Found | Lost]:
        known = FrameSet()
        for batch in self.frames(trusted):
            for key in keys_of(batch):
                known.add(*key)
        for name, file in files(self.paths.members_partial):
            member = parse_member(name)
            with reporting(file, "read"):
                status = file.lstat()
            if member is None:
                why = "cut: it was being written" if name.endswith(_UNNAMED) else "no name of a member"
            elif not stat.S_ISREG(status.st_mode):
                why = "no regular file"
            else:
                why = "" if (member.sequence, member.frame) in known else _fault(file, member.kind)
            if member is None or why:
                yield Lost(0, status.st_size, name, why)
                continue
            self.container.seen.note(member)
            yield Found(name, status.st_mtime_ns, partial(_head_of_file, file))

    # ---- what was committed --------------------------------------------------------------
    def rewind(self) -> Checkpoint:
        """Go back to the last commit of which all is there; the container keeps what belongs to it, and no more."""
        if isinstance(self.container, ArchiveWriter):
            return self._rewind_archive(self.container)
        return self._rewind_folder()

    def _rewind_archive(self, archive: ArchiveWriter) -> Checkpoint:
        trusted, ends = self._trusted(archive), {0: 0}
        wanted, rows = {p.samples for p in self.points}, _rows(self.frames(self.points[-1].samples))
        with reporting(archive.path, "read"):
            for number, end in enumerate(whole_samples(archive.fd, scan(archive.fd, trusted), rows), 1):
                ends.update({number: end} if number in wanted else {})
        point = next(p for p in reversed(self.points) if ends.get(p.samples) == p.bytes)
        for found in _scan(archive, point.bytes):
            if isinstance(found, Lost) or found.end > point.bytes or not archive.keep(found):
                break
        archive.cut()
        return point

    def _rewind_folder(self) -> Checkpoint:
        synced, whole = max(p.samples if p.synced else 0 for p in self.points), 0
        for row in _rows(self.frames(self.points[-1].samples)):
            found = list(present(self.paths.members_partial, row["name"], row["frame"]))
            if missing(row, {member.kind for member, _ in found}):
                break
            if whole >= synced and any(_fault(file, member.kind) for member, file in found):
                break
            whole += 1
        point = next(p for p in reversed(self.points) if p.samples <= whole)
        for row in _rows(self.frames(point.samples)):
            for member, _ in present(self.paths.members_partial, row["name"], row["frame"]):
                self.container.seen.note(member)
        return point


def _open(paths: DatasetPaths, members: Path) -> tuple[Container, int]:
    """The container that was left, and a descriptor that holds the lock."""
    if paths.layout == "zip":
        archive = ArchiveWriter(members, reopen=True)
        return archive, archive.hold()
    with reporting(paths.folder_partial, "open"):
        lock = reopen_folder(paths.folder_partial)
    try:
        with reporting(members, "create"):
            members.mkdir(exist_ok=True)
        return DirectoryWriter(members, reopen=True), lock
    except DatasetError:
        os.close(lock)
        raise


def _batches(path: Path) -> Iterator[tuple[pa.RecordBatch, dict[str, object] | None]]:
    """The batches of a journal with their checkpoints, up to the first that no writer can have made."""
    known, before = None, FrameSet()
    for batch, checkpoint in read_checkpoints(path) if is_plain_file(path) else ():
        known = _is_journal(batch.schema) if known is None else known
        if not known or not _is_sound(batch):
            return
        keys = set(keys_of(batch))
        if any(key in before for key in keys):  # the rows of a sample are never divided: it is there twice
            return
        for key in keys:
            before.add(*key)
        yield batch, checkpoint


def _order_of(batch: pa.RecordBatch, order: int) -> int:
    """The checksum of the samples before, `order`, continued by those of a batch of either journal."""
    for name, frame in dict.fromkeys(keys_of(batch)):
        order = isal_zlib.crc32(f"{name}/{frame}".encode(), order)
    return order


def _companions(columns: pa.Schema) -> list[str]:
    return [base for base in schema.COMPANIONS if f"{base}_skew" in columns.names]


def _is_journal(columns: pa.Schema) -> bool:
    """Whether these are the columns of either journal."""
    frames = schema.journal_schema(schema.frames_columns(_companions(columns)))
    return bool(columns.equals(ANNOTATION_JOURNAL) or columns.equals(frames))


def _is_sound(batch: pa.RecordBatch) -> bool:
    """Whether every row names a sample."""
    if any(batch[name].null_count for name in ("name", "frame", "timestamp")):
        return False
    return all(safe_name(name) == name for name in batch["name"].unique().to_pylist())


def _point(checkpoint: Mapping[str, object]) -> Checkpoint | None:
    samples, rows, size = (checkpoint.get(key) for key in ("samples", "rows", "bytes"))
    if not (isinstance(samples, int) and isinstance(rows, int) and isinstance(size, int)):
        return None
    if min(samples, rows, size) < 0:
        return None
    return Checkpoint(samples, rows, size, checkpoint.get("synced") is True)


def _batch(rows: list[dict[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    batch.validate(full=True)
    if not _is_sound(batch):
        raise ValueError("no rows of samples")
    return batch


def _first(path: Path, rows: int | None, further: Sequence[pa.RecordBatch] = ()) -> Iterator[pa.RecordBatch]:
    left = rows
    for batch in chain((batch for batch, _ in _batches(path)), further):
        if left is not None and left < batch.num_rows:
            if left:
                yield batch.slice(0, left)
            return
        left = None if left is None else left - batch.num_rows
        yield batch


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    return (row for batch in batches for row in batch.to_pylist())


def _scan(archive: ArchiveWriter, trusted: int) -> Iterator[Entry | Lost]:
    """As `scan`, of a file whose path is known. Raises StorageError."""
    with reporting(archive.path, "read"):
        yield from scan(archive.fd, trusted)


def _head(archive: ArchiveWriter, offset: int, size: int) -> bytes:
    with reporting(archive.path, "read"):
        return os.pread(archive.fd, size, offset)


def _head_of_file(file: Path, size: int) -> bytes:
    with reporting(file, "read"), file.open("rb") as handle:
        return handle.read(size)


def _fault(file: Path, kind: str) -> str:
    """What is wrong with a file that may have been cut; empty when nothing is. Raises where it cannot be read now."""
    with reporting(file, "read"):
        data = file.read_bytes()
    try:
        if kind.endswith("jpeg"):
            check_jpeg(data)
        elif kind.endswith("png"):
            check_png(data)
        else:
            decode_cloud(data)
    except (MessageError, DatasetError) as error:
        return str(error)
    return ""
