# SPDX-License-Identifier: Apache-2.0
"""Has the disk begin with what is written, or waits until it has names or everything (fsync, syncfs)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


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

    _PIECE = 16 << 20
    """Bytes that are worth the call."""

    def __init__(self, fd: int) -> None:
        self._fd, self._told = fd, 0

    def reached(self, end: int) -> None:
        """Take note that the file has been written up to `end`; what is dirty begins to be written, and is not kept."""
        if end - self._told >= self._PIECE:
            os.posix_fadvise(self._fd, self._told, end - self._told, os.POSIX_FADV_DONTNEED)
            self._told = end
