# SPDX-License-Identifier: Apache-2.0
"""Local scratch space for recordings: a folder per process; those of dead processes are removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefirst_ros.errors import StorageError

PREFIX, LOCK = "edgefirst-ros-fleet-", "lock"


class Scratch:
    """The folder of one process. A lock on it shows that the process lives; the system lets go of it with the process.

    Owns: any thread may ask for `folder`.
    """

    def __init__(self, root: Path) -> None:
        """Sweep what dead processes left in `root`, and make a folder there. Raises StorageError."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            _sweep(root)
            while (made := _locked_folder(root)) is None:
                pass
            self._folder, self._lock = made
        except OSError as error:
            raise StorageError(f"{root}: cannot be used as scratch: {error.strerror or error}") from error

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Yield a new folder, and remove it with its content. Raises StorageError if it cannot be made."""
        try:
            made = Path(tempfile.mkdtemp(dir=self._folder))
        except OSError as error:
            raise StorageError(f"{self._folder}: {error.strerror or error}") from error
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)


def _locked_folder(root: Path) -> tuple[Path, int] | None:
    """Return a new folder and its lock; None where another process took it for a dead one's before it was locked."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits for one that is removing it
    if (folder / LOCK).exists():
        return folder, lock
    os.close(lock)
    return None


_here: dict[tuple[int, Path], Scratch] = {}
_guard = threading.Lock()


def scratch_of(root: str | None) -> Scratch:
    """Return the scratch of this process in `root`, by default where temporary files go; made when first asked for."""
    place = Path(root or tempfile.gettempdir())
    with _guard:
        if (key := (os.getpid(), place)) not in _here:
            _here[key] = Scratch(place)
        return _here[key]


def sweep(root: str | None) -> None:
    """Remove what workers left that were ended in the middle, on this machine; that of living ones stays."""
    _sweep(Path(root or tempfile.gettempdir()))


def _sweep(root: Path) -> None:
    """Remove the folders of processes that are no more; what cannot be accessed or removed stays."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: it lives
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
