# SPDX-License-Identifier: Apache-2.0
"""Links in what is imported: it may come from anybody, and a link would take other files of this machine along."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.errors import DatasetError

NOT_FOLLOWED = "a symbolic link, which an import does not follow"


def refuse_links(path: Path) -> None:
    """Raise DatasetError where a path, or anything below it, is neither a folder nor a regular file."""
    with reporting(path, "read"):
        _refuse(path, path.lstat().st_mode)
        waiting = [path] if path.is_dir() else []
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif not entry.is_file(follow_symlinks=False):
                        _refuse(Path(entry.path), entry.stat(follow_symlinks=False).st_mode)


def _refuse(path: Path, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise DatasetError(f"{path}: is {NOT_FOLLOWED}; put there what it leads to")
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise DatasetError(f"{path}: is neither a file nor a folder")
