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

    def __init__(self, fd: int, piece: int = 16 << 20) -> None:
        """`piece`: new bytes that are worth a call."""
        self._fd, self._piece, self._told = fd, piece, 0

    def reached(self, end: int) -> None:
        """Take note that the file has been written up to `end`. Raises OSError."""
        new = end - self._told
        if new >= self._piece:
            os.posix_fadvise(self._fd, self._told, new, os.POSIX_FADV_DONTNEED)  # what is dirty is written instead
            self._told = end
