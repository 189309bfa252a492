# SPDX-License-Identifier: Apache-2.0
"""Opens files of a dataset, regular ones only; creates or takes over those of a writer; replaces files atomically."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from zlib_ng import zlib_ng

from edgefirst_ros.errors import DatasetError, InUseError, StorageError, explain_errors

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self


_LEFT_FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IOV_MAX = 1024
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ADVICE = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or have the quota raised",
    errno.EFBIG: "write to a disk that takes larger files, or have the limit raised",
    errno.EROFS: "have it mounted so that it can be written",
    errno.EACCES: "its folder, and the file that it replaces, must be writable for you",
    errno.EPERM: "it may belong to another user: name another folder",
    errno.EIO: "the disk may be broken: see the system's log",
    errno.ENOENT: "see whether its disk is still there, or name another folder",
    errno.ESTALE: "see whether its disk is still there",
    errno.ENOTCONN: "see whether its disk is still there",
}


@contextmanager
def report_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError inside into a StorageError that names `path`; the OSError stays as its cause."""
    try:
        yield
    except OSError as error:
        advice = f"; {_ADVICE[error.errno]}" if error.errno in _ADVICE else ""
        raise StorageError(f"{path}: cannot {action}: {error.strerror or error}{advice}") from error


def give_back(fd: int) -> None:
    """Close a descriptor, ignoring errors that some file systems report only now."""
    with suppress(OSError):
        os.close(fd)


def create_anew(path: Path) -> int:
    """Create `path`, replacing a dead writer's file; returns a descriptor to read and write. Raises StorageError.

    Only for files of a dataset whose lock the caller holds.
    """
    with report_errors(path, "create"):
        path.unlink(missing_ok=True)
        return os.open(path, NEW_FILE, 0o644)


def claim(path: Path, *, folder: bool = False) -> int:
    """Create and lock the file, or folder, `path`; returns the descriptor, of a file for reading and writing.

    That of a dead writer is removed, never written into: a file may have a second name elsewhere.
    Raises DatasetError when a living writer has it or it is not a regular file, and OSError.
    """
    while True:
        created, fd = True, -1
        try:
            if folder:
                os.mkdir(path, 0o755)
            else:
                fd = os.open(path, NEW_FILE, 0o644)
        except FileExistsError:
            created = False
        try:
            if not folder and not created and not stat.S_ISREG(os.lstat(path).st_mode):
                raise DatasetError(f"{path}: is not a regular file; remove it")
            fd = fd if fd >= 0 else os.open(path, OPEN_FOLDER if folder else _LEFT_FILE)
        except FileNotFoundError:
            continue  # removed by another writer just now
        except OSError:
            if created:
                os.rmdir(path)
            raise
        if _is_locked(fd, path):
            if created:
                return fd
            with _close_on_error(fd):
                shutil.rmtree(path) if folder else os.unlink(path)
        os.close(fd)


def reopen_path(path: Path, *, folder: bool = False) -> int:
    """Open and lock the file, or folder, that a dead writer left; returns the descriptor. Raises as `claim`."""
    if not folder and not stat.S_ISREG(os.lstat(path).st_mode):
        raise DatasetError(f"{path}: is not a regular file; remove it")
    fd = os.open(path, OPEN_FOLDER if folder else _LEFT_FILE)
    if not _is_locked(fd, path):
        os.close(fd)
        raise InUseError(f"{path}: another writer is at work on this dataset")
    with _close_on_error(fd):
        refuse_planted(path, os.fstat(fd))
    return fd


def refuse_planted(path: Path, status: os.stat_result) -> None:
    """Raise DatasetError where the file at `path` cannot come from a dead writer of this user.

    Every user may put files into a folder such as /tmp under the names that a dataset has while it is built; and
    writing to a file that has a second name changes it there, too.
    """
    folder = os.stat(path.parent)
    if folder.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), folder.st_uid):
        raise DatasetError(
            f"{path}: belongs to another user (uid {status.st_uid}) and is not continued in a folder that all may "
            "write to; name another folder"
        )
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise DatasetError(
            f"{path}: has {status.st_nlink} names (hard links), and writing would change all of them; "
            "replace it by a copy"
        )


@contextmanager
def open_synced(fd: int, path: Path, action: str = "write") -> Iterator[BinaryIO]:
    """Yield the open file `fd`, called `path` in messages, to write to; at the end it is synced to disk and closed.

    Raises StorageError where the disk refuses, DatasetError where Arrow does.
    """
    import pyarrow as pa  # and numpy, which the list of export systems does not need

    with report_errors(path, action), open(fd, "wb", buffering=1 << 20) as file:
        with explain_errors(f"{path}: cannot be rewritten", pa.ArrowException):
            yield file
        file.flush()
        os.fsync(fd)


@contextmanager
def _close_on_error(fd: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


def _is_locked(fd: int, path: Path) -> bool:
    """Lock; False when another writer has put its own in this place between opening and locking."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        os.close(fd)  # releases the lock
        if isinstance(error, BlockingIOError):
            raise InUseError(f"{path}: another writer is at work on this dataset") from None
        raise


def view_bytes(buffers: Sequence[Buffer]) -> tuple[list[memoryview], int]:
    """Return buffers as views of bytes for `write_at`, and their total size in bytes."""
    views = [memoryview(buffer) for buffer in buffers]
    views = [view.cast("B") for view in views if view.nbytes]
    return views, sum(map(len, views))


def sum_up(buffers: Sequence[Buffer]) -> tuple[int, int]:
    """Return size in bytes and CRC-32 of buffers one after the other."""
    crc, (views, size) = 0, view_bytes(buffers)
    for view in views:
        crc = zlib_ng.crc32(view, crc)
    return size, crc


def write_at(fd: int, views: Sequence[memoryview], offset: int) -> int:
    """Write all of `views` (bytes) from `offset` on; returns where they end.

    Raises OSError; the file then ends at `offset`, as far as the system still lets it be cut.
    """
    left = [view for view in views if len(view)]
    place, first = offset, 0
    try:
        while first < len(left):
            written = os.pwritev(fd, left[first : first + _IOV_MAX], place)
            if not written:
                raise OSError(errno.EIO, "the disk wrote 0 bytes")
            place += written
            while first < len(left) and written >= len(left[first]):
                written -= len(left[first])
                first += 1
            if written:
                left[first] = left[first][written:]
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, offset)
        raise
    return place


_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def is_plain_file(path: Path) -> bool:
    """Return True for an existing regular file, not a link, pipe or device. Raises StorageError if the disk refuses."""
    with report_errors(path, "look it up"):
        try:
            return stat.S_ISREG(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def open_file(path: Path, *, name: str | None = None, within: int | None = None, folder: bool = False) -> int:
    """Open a regular file, or a folder, of a dataset for reading; returns the descriptor.

    `within`: descriptor of the folder in which `name` is looked up; `path` is then what messages call it.
    Folders on the way to `path` may be links, the file may not.
    Raises DatasetError naming it where it is a link, a pipe, a device or a folder, or cannot be opened.
    """
    name = os.fspath(path) if name is None else name
    try:
        # Checked before it is opened: to open a device can have effects, and a socket cannot be opened at all.
        check_kind(path, os.stat(name, dir_fd=within, follow_symlinks=False).st_mode, folder=folder)
        fd = os.open(name, OPEN_FOLDER if folder else _FILE, dir_fd=within)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be opened: {getattr(error, 'strerror', error)}") from error
    with _close_on_error(fd):
        check_kind(path, os.fstat(fd).st_mode, folder=folder)
    return fd


def check_kind(path: Path, mode: int, *, folder: bool = False) -> None:
    """Raise DatasetError unless `mode`, of a file not followed, is that of a regular file (`folder`: of a folder)."""
    if stat.S_ISLNK(mode):
        raise DatasetError(f"{path}: is a link, which is not followed in a dataset; replace it by its target")
    if not folder and not stat.S_ISREG(mode):
        what = next((f" but {said}" for kind, said in _KINDS if kind(mode)), "")
        raise DatasetError(f"{path}: is not a regular file{what}; remove it")
    if folder and not stat.S_ISDIR(mode):
        raise DatasetError(f"{path}: is not a folder; remove it")


def sync_folder(path: Path) -> None:
    """Sync the names in a folder to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_disk(fd: int) -> None:
    """Sync everything on the disk of an open file or folder; for thousands of files cheaper than one by one.

    Raises OSError where it refused something since that file was opened (from Linux 5.8 on). `os.sync`, on other
    systems, waits for every disk and reports no error.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        os.sync()
    elif library.syncfs(fd):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class WriteBehind:
    """Has the disk begin to write appended bytes early, so that the sync at the end of a file is short."""

    def __init__(self, fd: int, piece: int = 16 << 20) -> None:
        """`piece`: new bytes that are worth a call."""
        self._fd, self._piece, self._told = fd, piece, 0

    def advance(self, end: int) -> None:
        """Take note that the file has been written up to `end`. Raises OSError."""
        new = end - self._told
        if new >= self._piece:
            os.posix_fadvise(self._fd, self._told, new, os.POSIX_FADV_DONTNEED)  # dirty pages are written instead
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
        with report_errors(path, action):
            self._fd = claim(self._partial)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._partial.unlink(missing_ok=True)
        give_back(self._fd)

    def writing(self) -> AbstractContextManager[BinaryIO]:
        """Return the file to write to, as `open_synced` does."""
        return open_synced(os.dup(self._fd), self._path, self._action)

    def put_in_place(self, *, overwrite: bool = True) -> None:
        """Rename the file to its final name. Raises DatasetError if another file has it and not `overwrite`."""
        with report_errors(self._path, self._action):
            place = os.replace if overwrite else os.link
            try:
                place(self._partial, self._path)
            except OSError as error:
                if not overwrite and os.path.lexists(self._path):
                    raise DatasetError(f"{self._path} exists; use --overwrite to replace it") from error
                os.replace(self._partial, self._path)  # for files that cannot have two names
            sync_folder(self._path.parent)


def keep_copy(path: Path, kept: Path) -> None:
    """Link a file under a second name, or copy it where links are impossible; the name is on the disk then.

    Raises DatasetError if another file has that name, and StorageError.
    """
    with report_errors(kept, "write"):
        try:
            os.link(path, kept)
        except FileExistsError as error:
            raise DatasetError(f"{kept} exists; remove it or move it away") from error
        except OSError:  # no second names on this file system
            with Replacement(kept, suffix=".partial", action="write") as replacement:
                with path.open("rb") as source, replacement.writing() as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
                replacement.put_in_place()
        sync_folder(kept.parent)


def keep_each(path: Path, ending: str) -> Path:
    """Keep a file as its name and `ending`; while an older file has that name, with `.2`, `.3`. Returns the path.

    Raises DatasetError and StorageError as `keep_copy`.
    """
    kept = first = path.with_name(f"{path.name}{ending}")
    number = 1
    while os.path.lexists(kept):
        if os.path.samestat(os.lstat(kept), os.lstat(path)):  # the replacement was interrupted after this step
            return kept
        number += 1
        kept = first.with_name(f"{first.name}.{number}")
    keep_copy(path, kept)
    return kept
