# SPDX-License-Identifier: Apache-2.0
"""Waiting for the disk: until it has the names in a folder, or all that was written to it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path


def sync_folder(path: Path) -> None:
    """Make the disk keep the names in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_disk(fd: int) -> None:
    """Make the disk on which an open file or folder lies keep everything; for thousands of files cheaper than each.

    Raises OSError where it refused something since that file was opened (from Linux 5.8 on). `os.sync`, which other
    systems have, waits for every disk there is and tells nothing.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(fd):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
