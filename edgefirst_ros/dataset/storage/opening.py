# SPDX-License-Identifier: Apache-2.0
"""Opens files and folders of a dataset: regular ones only, without following links or waiting for pipes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.errors import DatasetError

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_plain_file(path: Path) -> bool:
    """Return True for an existing regular file, not a link, pipe or device. Raises StorageError if the disk refuses."""
    with reporting(path, "look it up"):
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def open_file(path: Path, *, name: str | None = None, within: int | None = None) -> int:
    """Open a regular file of a dataset for reading; returns the descriptor.

    `within`: descriptor of the folder in which `name` is looked up; `path` is then what messages call it.
    Folders on the way to `path` may be links, the file may not.
    Raises DatasetError naming it where it is a link, a pipe, a device or a folder, or cannot be opened.
    """
    return _open(path, os.fspath(path) if name is None else name, within, _FILE)


def open_folder(path: Path, *, name: str | None = None, within: int | None = None) -> int:
    """Open a folder of a dataset; as `open_file`."""
    return _open(path, os.fspath(path) if name is None else name, within, _FOLDER)


def check_kind(path: Path, mode: int, *, folder: bool = False) -> None:
    """Raise DatasetError where `mode`, of a file not followed, is none of a regular file (`folder`: of a folder)."""
    if stat.S_ISLNK(mode):
        raise DatasetError(f"{path}: is a link, which is not followed in a dataset; put its target in its place")
    if not folder and not stat.S_ISREG(mode):
        what = next((f" but {said}" for kind, said in _KINDS if kind(mode)), "")
        raise DatasetError(f"{path}: is not a regular file{what}; remove it")
    if folder and not stat.S_ISDIR(mode):
        raise DatasetError(f"{path}: is not a folder; remove it")


def _open(path: Path, name: str, within: int | None, flags: int) -> int:
    folder = flags == _FOLDER
    try:
        # Looked at before it is opened: to open a device can do something, and a socket cannot be opened at all.
        check_kind(path, os.stat(name, dir_fd=within, follow_symlinks=False).st_mode, folder=folder)
        fd = os.open(name, flags, dir_fd=within)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be opened: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{path}: cannot be opened: {error}") from error
    try:
        check_kind(path, os.fstat(fd).st_mode, folder=folder)
    except OSError as error:
        os.close(fd)
        raise DatasetError(f"{path}: cannot be accessed: {error}") from error
    except DatasetError:
        os.close(fd)
        raise
    return fd
