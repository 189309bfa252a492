# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset: under names that tell it is unfinished, until everything is complete and renamed into place."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from edgefirst_ros.dataset import schema as schemas
from edgefirst_ros.dataset.archive import ArchiveWriter, Container, DirectoryWriter
from edgefirst_ros.dataset.claim import claim_folder, reporting
from edgefirst_ros.dataset.names import DatasetPaths, Layout, check_name, member_name
from edgefirst_ros.dataset.tables import ANNOTATION_JOURNAL, Journal, seal_annotations, seal_frames
from edgefirst_ros.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(frozen=True)
class Sample:
    """One frame with all that belongs to it."""

    sequence: str
    frame: int
    timestamp: int
    """Nanoseconds since the epoch."""
    members: Sequence[tuple[str, Sequence[Buffer]]] = ()
    """(kind, buffers written one after the other), e.g. ("camera.jpeg", [header, body])."""
    frame_row: Mapping[str, object] = field(default_factory=dict)
    """Further columns of NAME.frames.arrow."""
    annotations: Sequence[Mapping[str, object]] = ()
    """One row of NAME.arrow each; none: one row without label and geometry."""
    common: Mapping[str, object] = field(default_factory=dict)
    """Columns of NAME.arrow equal on every row: size, location [lat, lon], pose [yaw, pitch, roll], group."""


class DatasetWriter:
    """Writes samples in the order given. Until `finish` only `*.partial` and `*.journal` names exist below `out`.

    Left by an error, it keeps what was written (or removes it, if that is nothing). Raises DatasetError when a
    finished output is there and not `overwrite`, when another writer is at work on it, or when `out` cannot be written.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        name: str,
        *,
        layout: Layout = "zip",
        schema: str = schemas.DEFAULT_VERSION,
        companions: Sequence[str] = schemas.DEFAULT_COMPANIONS,
        overwrite: bool = False,
        fsync: bool = False,
        flush_interval: float = 1.0,
    ) -> None:
        """`companions`: those with columns in the frames table; `fsync`: flush to the disk, not only to the system."""
        if layout not in ("zip", "directory"):
            raise UsageError(f"layout {layout!r}; known are zip, directory")
        if schema not in schemas.WRITABLE:
            raise UsageError(f"schema {schema!r}; can be written: {', '.join(schemas.WRITABLE)}")
        if "\0" in os.fspath(out):
            raise UsageError(f"{os.fspath(out)!r} is no path")
        self.paths = DatasetPaths(Path(os.path.abspath(out)), check_name(name), layout)
        self.samples = 0
        self._schema = schema
        self._overwrite = overwrite
        self._fsync = fsync
        self._interval = flush_interval
        self._frames_columns = schemas.frames_columns(companions)
        with reporting(self.paths.out, "write"):
            _make_folder(self.paths.out)
            self._refuse_existing()
        self._container, self._lock = _open_container(self.paths)
        self._open = True
        try:
            self._annotations = Journal(self.paths.arrow_journal, ANNOTATION_JOURNAL)
            self._frames = Journal(self.paths.frames_journal, schemas.journal_schema(self._frames_columns))
        except DatasetError:
            self._container.abandon()
            os.close(self._lock)
            raise
        self._flushed = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if self.samples:
            self._suspend()
        else:
            self.abort()

    def write(self, sample: Sample) -> None:
        """Append a sample: its members first, then its rows.

        Raises DatasetError for a row that breaks the format and when writing fails; nothing of the sample is kept then.
        """
        identity = {"name": sample.sequence, "frame": sample.frame, "timestamp": sample.timestamp}
        rows = [{**identity, **sample.common, **row} for row in sample.annotations or ({},)]
        for row in rows:
            self._annotations.check(row)
        frames_row = {**identity, **sample.frame_row}
        self._frames.check(frames_row)
        names = [member_name(sample.sequence, sample.frame, kind) for kind, _ in sample.members]
        self._container.begin()
        whole = False
        try:
            for name, (_, buffers) in zip(names, sample.members, strict=True):
                self._container.add(name, buffers, sample.timestamp)
            whole = True
        finally:
            if not whole:
                self._container.undo()
        for row in rows:
            self._annotations.append(row)
        self._frames.append(frames_row)
        self.samples += 1
        if time.monotonic() - self._flushed >= self._interval:
            self.flush()

    def flush(self) -> None:
        """Commit all samples so far: they survive the end of the process, and with `fsync` a power cut."""
        self._container.flush(self._fsync)
        self._annotations.flush(self._fsync)
        self._frames.flush(self._fsync)
        self._flushed = time.monotonic()

    @property
    def flush_age(self) -> float:
        """Seconds since the last flush."""
        return time.monotonic() - self._flushed

    def finish(
        self,
        frames_metadata: Mapping[str, object],
        labels: Sequence[str] | None = None,
        category_metadata: Mapping[str, object] | None = None,
    ) -> DatasetPaths:
        """Seal the tables, complete the container, rename all into place; returns where they are.

        The container goes last: while it has its partial name the dataset is unfinished, and nothing of it is lost.
        """
        paths = self.paths
        self._annotations.close()
        self._frames.close()
        for journal, rows in (
            (
                self._annotations,
                seal_annotations([paths.arrow_journal], paths.arrow_partial, self._schema, labels, category_metadata),
            ),
            (
                self._frames,
                seal_frames([paths.frames_journal], paths.frames_partial, self._frames_columns, frames_metadata),
            ),
        ):
            if rows != journal.rows:
                raise DatasetError(f"{journal.path}: {rows} rows can be read back of {journal.rows} written")
        self._container.close()
        with reporting(paths.container, "put in place"):
            self._refuse_existing()
            if paths.layout == "zip":
                self._place_files()
            else:
                self._place_folder()
            _sync_folder(paths.out)
        self._release()
        return paths

    def _place_files(self) -> None:
        paths = self.paths
        os.replace(paths.arrow_partial, paths.arrow)
        os.replace(paths.frames_partial, paths.frames)
        _sync_folder(paths.out)
        os.replace(paths.members_partial, paths.container)
        _sync_folder(paths.out)
        paths.arrow_journal.unlink()
        paths.frames_journal.unlink()

    def _place_folder(self) -> None:
        paths, building = self.paths, self.paths.folder_partial
        os.replace(paths.arrow_partial, building / paths.arrow.name)
        os.replace(paths.frames_partial, building / paths.frames.name)
        paths.arrow_journal.unlink()
        paths.frames_journal.unlink()
        _sync_folder(building)
        # A folder cannot replace one that is not empty: the old one steps aside, whole, and goes last.
        aside = paths.out / f"{paths.name}.replaced.partial"
        old = os.path.lexists(paths.folder)
        if old:
            _remove_tree(aside)
            os.rename(paths.folder, aside)
        os.rename(building, paths.folder)
        if old:
            _sync_folder(paths.out)
            _remove_tree(aside)

    def abort(self) -> None:
        """Remove everything that was written."""
        paths = self.paths
        try:
            self._annotations.close()
            self._frames.close()
        finally:
            with reporting(paths.container, "remove what is partial"):
                if paths.layout == "directory":
                    _remove_tree(paths.folder_partial)
                else:
                    for path in (paths.arrow_journal, paths.frames_journal, paths.arrow_partial, paths.frames_partial):
                        path.unlink(missing_ok=True)
                    paths.members_partial.unlink(missing_ok=True)
            self._release()

    def _suspend(self) -> None:
        """Close, keeping the partial files as they are."""
        try:
            self._annotations.close()
            self._frames.close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._open:
            self._open = False
            self._container.abandon()
            os.close(self._lock)

    def _refuse_existing(self) -> None:
        paths = self.paths
        finals = [paths.container] if paths.layout == "directory" else [paths.container, paths.arrow, paths.frames]
        for path in finals:
            if not os.path.lexists(path):
                continue
            if not self._overwrite:
                raise DatasetError(f"{path} exists; use --overwrite to replace it")
            if path.is_dir() and paths.layout == "zip":
                raise DatasetError(f"{path} is a folder and cannot be replaced by a file; remove it")
        if paths.layout == "directory" and os.path.lexists(paths.container):
            self._refuse_foreign_folder()

    def _refuse_foreign_folder(self) -> None:
        paths = self.paths
        if paths.folder.is_symlink() or not paths.folder.is_dir():
            raise DatasetError(f"{paths.folder} is no folder of a dataset; remove it")
        foreign = {entry.name for entry in paths.folder.iterdir()} - {
            paths.members.name,
            paths.arrow.name,
            paths.frames.name,
        }
        if foreign:
            raise DatasetError(f"{paths.folder} holds more than a dataset ({min(foreign)!r}) and is not replaced")


def _make_folder(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise DatasetError(f"{out} is a file; the output must be a folder")
    out.mkdir(parents=True, exist_ok=True)


def _open_container(paths: DatasetPaths) -> tuple[Container, int]:
    """Return the container and a descriptor that holds the lock until it is closed."""
    if paths.layout == "zip":
        archive = ArchiveWriter(paths.members_partial)
        return archive, archive.hold()
    with reporting(paths.folder_partial, "create"):
        held = claim_folder(paths.folder_partial)
    try:
        return DirectoryWriter(paths.members_partial), held
    except DatasetError:
        os.close(held)
        raise


def _remove_tree(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
