# SPDX-License-Identifier: Apache-2.0
"""Disk space: reserved for completing a dataset, and monitored."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from pathlib import Path

from edgefirst_ros.dataset.storage.lock import create_anew, give_back, report_errors
from edgefirst_ros.errors import StorageError

_STEP = 1 << 20
_FAT = ("vfat", "msdos")
_FAT_LARGEST = (1 << 32) - 1
_AHEAD = 3.0
"""s of growth that the free space must cover in addition to `keep`: until the next check, and queued samples."""


class Reserve:
    """Space held by a file beside a dataset, so that it can be completed on a full disk."""

    def __init__(self, path: Path) -> None:
        """Create `path` again, replacing the file of a dead writer."""
        self.path = path
        self._bytes = 0
        self._fd = create_anew(path)

    def hold(self, size: int) -> None:
        """Have at least `size` bytes in reserve. Raises StorageError where the disk does not have them."""
        if size <= self._bytes or self._fd < 0:
            return
        size = -(-(size + size // 2) // _STEP) * _STEP
        with report_errors(self.path, f"reserve {size} bytes"):
            os.posix_fallocate(self._fd, self._bytes, size - self._bytes)
        self._bytes = size

    def release(self) -> None:
        """Release the space; you may release twice."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        give_back(self._fd)
        self._fd = -1


def find_largest_file(path: Path) -> int:
    """Return the most bytes of an existing file, by a limit of the process or of the file system."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = [] if soft == resource.RLIM_INFINITY else [soft]
    if _find_file_system(path) in _FAT:
        limits.append(_FAT_LARGEST)
    return min(limits, default=1 << 62)


def _find_file_system(path: Path) -> str:
    """Return the file system type of an existing file, as in /proc/self/mountinfo; empty if unknown."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            fields = line.split()
            if fields[2] == wanted:
                return fields[fields.index("-") + 1]
    return ""


def check_there(path: Path, fd: int) -> None:
    """Raise OSError if an open file or folder is no longer the one at its path: removed, replaced or unmounted."""
    if not os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd)):
        raise OSError(errno.ESTALE, "another file took its place")


class NoRoomError(StorageError):
    """Less space is free than is to stay."""


def is_full(error: BaseException | None) -> bool:
    """Return True if an error says that a disk, or a quota on it, is full."""
    while error is not None:
        if isinstance(error, NoRoomError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


class Headroom:
    """Compares the free space of a folder with the rate at which a dataset grows."""

    def __init__(self, out: Path, now: float) -> None:
        """`now`: monotonic time in s, as in `check`, when no file is written yet."""
        self._out = out
        self._before = 0, now

    def check(self, written: int, keep: int, now: float) -> None:
        """Raise StorageError early enough that queued samples can still be written.

        `written`: bytes of the dataset so far; `keep`: bytes that must stay free.
        """
        free = count_free_bytes(self._out)
        before, since = self._before
        self._before = written, now
        coming = round(max(0.0, (written - before) / (now - since)) * _AHEAD) if now > since else 0
        if free - coming < keep:
            raise NoRoomError(
                f"{self._out}: {free} bytes are free, {keep} must stay free, and {coming} are still to be written: "
                "free some space, or lower min_free_bytes"
            )


def count_free_bytes(path: Path) -> int:
    """Return the free bytes for unprivileged users on the disk of `path`, or of its nearest existing parent.

    Raises StorageError where the disk does not report it.
    """
    place = Path(os.path.abspath(path))
    with report_errors(path, "determine the free space"):
        status = os.statvfs(next(p for p in (place, *place.parents) if p.exists()))
    return status.f_bavail * status.f_frsize
