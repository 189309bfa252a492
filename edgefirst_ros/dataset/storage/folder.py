# SPDX-License-Identifier: Apache-2.0
"""The members of a dataset as plain files in folders."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.dataset.storage.lock import NEW_FILE, OPEN_FOLDER, byte_views, give_back, reporting, write_at
from edgefirst_ros.dataset.storage.member_index import MemberIndex
from edgefirst_ros.dataset.storage.space import StillThere
from edgefirst_ros.dataset.storage.syncing import sync_disk
from edgefirst_ros.errors import StorageError

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DirectoryWriter:
    """Writes each member as a file below `path`, a folder that must not exist yet; no link is followed.

    A member appears under its name only when it is whole.
    """

    announced = True
    _UNNAMED = ".partial"

    def __init__(self, path: Path, *, reopen: bool = False) -> None:
        """`reopen`: take over what a dead writer left; its members are made known by `seen`."""
        self.path = path
        self.seen = MemberIndex()
        self._bytes = 0
        self._sequence = ""
        self._folder = -1
        self._unwanted: list[str] = []
        self._doubtful = False
        with reporting(path, "open" if reopen else "create"):
            if not reopen:
                os.mkdir(path, 0o755)
            self._root = os.open(path, OPEN_FOLDER)
        self._there = StillThere(path, self._root)

    def begin(self) -> None:
        """Mark the beginning of a sample."""
        self.seen.recent.clear()

    def undo(self) -> None:
        """Remove the members added since `begin`."""
        self._unwanted += self.seen.undo()
        with contextlib.suppress(StorageError):
            self._clear()

    def _clear(self) -> None:
        """Remove files of samples that were undone."""
        while self._unwanted:
            name = self._unwanted[-1]
            with reporting(self.path / name, "remove"):
                (self.path / name).unlink(missing_ok=True)
            self._unwanted.pop()

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Write a member made of `buffers`, one after the other; `time_ns` becomes the file's time.

        Raises DatasetError for a name that is no member's or was added before, and when writing fails.
        """
        self._clear()
        sequence = self.seen.add(name).sequence
        views, size = byte_views(buffers)
        with reporting(self.path / name, "write"):
            if sequence != self._sequence:
                self._enter(sequence)
            fd = os.open(self._UNNAMED, NEW_FILE, 0o644, dir_fd=self._folder)
            try:
                write_at(fd, views, 0)
                os.utime(fd, ns=(time_ns, time_ns))
                os.rename(self._UNNAMED, name.partition("/")[2], src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except OSError:
                self._unwanted.append(f"{sequence}/{self._UNNAMED}")
                raise
            finally:
                os.close(fd)
        self._bytes += size

    def _enter(self, sequence: str) -> None:
        with contextlib.suppress(FileExistsError):  # one continued; a link in its place is refused by the next line
            os.mkdir(sequence, 0o755, dir_fd=self._root)
        folder = os.open(sequence, OPEN_FOLDER, dir_fd=self._root)
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._sequence = folder, sequence

    def flush(self, sync: bool) -> int:
        """Return the bytes so far, none of which are buffered here; `sync`: wait until the disk has them all."""
        with reporting(self.path, "write"):
            if self._doubtful and sync:  # the system tells it once, and forgets what the disk did not take
                raise OSError(errno.EIO, "the disk did not keep all that was written before")
            if sync:
                self._doubtful = True
                sync_disk(self._root)
                self._doubtful = False
            self._there.check()
        return self._bytes

    closing_bytes = 0

    def close(self) -> None:
        """Sync and close."""
        self._clear()
        self.flush(sync=True)
        self.abandon()

    def abandon(self) -> None:
        """Close without syncing; closing twice does nothing."""
        for fd in (self._folder, self._root):
            if fd >= 0:
                give_back(fd)
        self._folder = self._root = -1
