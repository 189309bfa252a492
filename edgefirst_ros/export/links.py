# SPDX-License-Identifier: Apache-2.0
"""Refuses links in imports: a link in a foreign store could include other files of this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.errors import DatasetError

DEEPEST = 64
"""Deepest nesting of folders in an import."""
BLOCK, INLINE = 512, 4096
"""Bytes of a block as the system counts them, and of the largest file that some file systems keep without any."""
NOT_FOLLOWED = "a symbolic link, which an import does not follow"


def refuse_links(path: Path) -> int:
    """Return the bytes that a path and all files below it have on the disk: holes hold nothing.

    Raises DatasetError where one of them is neither a folder nor a regular file, or folders lie too deep.
    """
    with reporting(path, "read"):
        known = path.lstat()
        _refuse(path, known.st_mode)
        if not path.is_dir():
            return _held(known)
        total, waiting = 0, [path]
        while waiting:
            folder = waiting.pop()
            refuse_deep(folder, path)
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                        continue
                    known = entry.stat(follow_symlinks=False)
                    _refuse(Path(entry.path), known.st_mode)
                    total += _held(known)
        return total


def refuse_deep(folder: Path, top: Path) -> None:
    """Raise DatasetError where a folder lies too deep below another."""
    if len(folder.parts) - len(top.parts) > DEEPEST:
        raise DatasetError(f"{top}: holds folders in each other, more than {DEEPEST} deep")


def _held(known: os.stat_result) -> int:
    return min(known.st_size, known.st_blocks * BLOCK + INLINE)


def _refuse(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise DatasetError(f"{path}: is {NOT_FOLLOWED}; put its target there")
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise DatasetError(f"{path}: is neither a file nor a folder")
