# SPDX-License-Identifier: Apache-2.0
"""Waits until the disk has the names in a folder, or everything written to it (fsync, syncfs)."""

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
