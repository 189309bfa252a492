# SPDX-License-Identifier: Apache-2.0
"""Replaces files atomically, and syncs files, names and whole disks (fsync, syncfs)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from edgefirst_ros.dataset.storage.lock import claim_file, give_back, reporting
from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    from typing_extensions import Self


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_disk(fd: int) -> None:
    """Sync everything on the disk of an open file or folder; for thousands of files cheaper than one by one.

    Raises OSError where it refused something since that file was opened (from Linux 5.8 on). `os.sync`, which other
    systems have, waits for every disk there is and tells nothing.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(fd):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class WriteBehind:
    """Has the disk begin with what is appended to a file, so that the sync at its end finds little to do."""

    def __init__(self, fd: int, piece: int = 16 << 20) -> None:
        """`piece`: new bytes that are worth a call."""
        self._fd, self._piece, self._told = fd, piece, 0

    def reached(self, end: int) -> None:
        """Take note that the file has been written up to `end`. Raises OSError."""
        new = end - self._told
        if new >= self._piece:
            os.posix_fadvise(self._fd, self._told, new, os.POSIX_FADV_DONTNEED)  # what is dirty is written instead
            self._told = end


class Replacement:
    """A file that replaces a table; without `put_in_place` it is removed.

    Claimed before the old table is read, it keeps two programs from changing one table at a time. Raises InUseError
    where another one is at it, and StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.new.partial")
        with reporting(path, "rewrite it"):
            self._fd = claim_file(self._partial)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._partial.unlink(missing_ok=True)
        give_back(self._fd)

    @contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Give the file to write to; at the end it is synced to disk. Raises DatasetError if Arrow refuses."""
        with reporting(self._path, "rewrite it"), open(self._fd, "wb", buffering=1 << 20, closefd=False) as file:
            try:
                yield file
            except pa.ArrowException as error:
                raise DatasetError(f"{self._path}: cannot be rewritten: {error}") from error
            file.flush()
            os.fsync(self._fd)

    def put_in_place(self) -> None:
        """Replace the table."""
        with reporting(self._path, "rewrite it"):
            os.replace(self._partial, self._path)
            sync_folder(self._path.parent)
