# SPDX-License-Identifier: Apache-2.0
"""Replaces files atomically, and syncs files, names and whole disks (fsync, syncfs)."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

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
    systems have, waits for every disk there is and shows nothing.
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
    """A file that replaces another one, or is new; without `put_in_place` it is removed.

    Claimed before the old file is read, it keeps two programs from changing one file at a time. Raises InUseError
    where another one is at it, and StorageError.
    """

    def __init__(self, path: Path, *, suffix: str = ".new.partial", action: str = "rewrite it") -> None:
        """Create the file `path` plus `suffix`; messages say that the program cannot `action`."""
        self._path, self._action = path, action
        self._partial = path.with_name(path.name + suffix)
        with reporting(path, action):
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
        """Yield the file to write to; at the end it is synced to disk. Raises DatasetError if Arrow refuses."""
        import pyarrow as pa

        with reporting(self._path, self._action), open(self._fd, "wb", buffering=1 << 20, closefd=False) as file:
            try:
                yield file
            except pa.ArrowException as error:
                raise DatasetError(f"{self._path}: cannot be rewritten: {error}") from error
            file.flush()
            os.fsync(self._fd)

    def put_in_place(self, *, overwrite: bool = True) -> None:
        """Rename the file to its final name. Raises DatasetError if another file has it and not `overwrite`."""
        with reporting(self._path, self._action):
            if overwrite or not self._is_linked():
                os.replace(self._partial, self._path)
            sync_folder(self._path.parent)

    def _is_linked(self) -> bool:
        """Give the file its final name unless another one has it; False where files cannot have two names."""
        try:
            os.link(self._partial, self._path)
        except OSError as error:
            if os.path.lexists(self._path):
                raise DatasetError(f"{self._path} exists; use --overwrite to replace it") from error
            return False
        return True


def keep_copy(path: Path, kept: Path, *, overwrite: bool) -> None:
    """Link a file under a second name, or copy it where links are impossible.

    Raises DatasetError if another file has that name and not `overwrite`, and StorageError.
    """
    name = kept.with_name(f"{kept.name}.partial") if overwrite else kept
    with reporting(kept, "write"):
        if overwrite:
            name.unlink(missing_ok=True)
        try:
            os.link(path, name)
        except FileExistsError as error:
            raise DatasetError(f"{kept} exists; remove it or move it away") from error
        except OSError:  # no second names on this file system
            with path.open("rb") as source, name.open("xb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
                copy.flush()
                os.fsync(copy.fileno())
        if overwrite:
            os.replace(name, kept)
