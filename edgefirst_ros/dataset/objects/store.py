# SPDX-License-Identifier: Apache-2.0
"""Interface of buckets and folders, and the file system as one: keys are absolute paths without the first slash."""

from __future__ import annotations

import fcntl
import filecmp
import hashlib
import io
import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.objects.location import BAG, BLOCK, PATIENCE, Location, ReplacedError, StoredObject
from edgefirst_ros.dataset.storage.lock import report_errors, sync_folder
from edgefirst_ros.errors import DatasetError, ObjectStoreError, UsageError

PARTIAL = ".partial"
"""End of the names of files that are being written: they are not objects yet."""
_LEFT = re.compile(rf"\.\d+-\d+{re.escape(PARTIAL)}$")
_numbers = itertools.count()


class Store(Protocol):
    """One bucket, or the file system. Threads may share it.

    Every method raises ObjectStoreError where storage refuses, or does not answer within its patience.
    """

    def stat(self, key: str) -> StoredObject | None:
        """Return the object under a key; None if absent."""

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield all objects whose key begins with the parts of `prefix`, at any depth."""

    def read(self, key: str, start: int = 0, end: int | None = None, *, etag: str | None = None) -> bytes:
        """Return the bytes from `start` to before `end`; with `etag` only of the object that has it."""

    def tail(self, key: str, size: int) -> tuple[StoredObject, bytes] | None:
        """Return an object and at most `size` of its last bytes, by one request; None if absent."""

    def stream(self, found: StoredObject) -> Iterator[bytes]:
        """Yield the bytes of an object in order; what breaks off is continued, as long as it has not been replaced."""

    def write(self, key: str, data: bytes) -> StoredObject:
        """Put a small object in place, whole or not at all."""

    def put(self, key: str, path: Path, *, scratch: bool = False) -> StoredObject:
        """Put a file in place, whole or not at all, and compare checksums: the object equals the file.

        `scratch`: a regular file without other writers or later use, so that on the same disk it is not copied.
        """

    def holds(self, found: StoredObject, path: Path) -> bool:
        """True if an object equals a file byte for byte."""

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""


def open_store(location: Location, *, patience: float = PATIENCE, rate: int = 0) -> Store:
    """Open the bucket or file system of a location; it gets `patience`, in s, to answer.

    `rate`: most bytes a second that are put into a bucket; 0: as many as the line takes.
    No request is sent yet. Raises ObjectStoreError where the library for it is not installed, UsageError where it
    does not take the bucket's name.
    """
    if location.local:
        return FolderStore()
    from edgefirst_ros.dataset.objects.bucket import BucketStore

    return BucketStore(location.root, patience, rate)


class FolderStore:
    """Files as objects; an ETag is made of time of change, size and inode. Written objects are on the disk."""

    def stat(self, key: str) -> StoredObject | None:
        """Return the file under a key; None for a folder, a pipe or a device."""
        with _convert_errors(key):
            try:
                status = os.stat(f"/{key}")
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _make_object(key, status) if stat.S_ISREG(status.st_mode) else None

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the files below a folder in order of name, at any depth; of links only those to rosbag2 are entered."""
        failed: list[OSError] = []
        for folder, folders, files in os.walk(f"/{prefix}", onerror=failed.append, followlinks=True):
            folders[:] = sorted(name for name in folders if _is_entered(os.path.join(folder, name)))
            for name in sorted(files):
                key = f"{folder}/{name}".lstrip("/")
                if not name.endswith(PARTIAL) and (found := self.stat(key)) is not None:
                    yield found
                elif os.path.islink(f"/{key}") and not os.path.exists(f"/{key}"):
                    yield StoredObject(key, 0, "")  # who opens it is told that it is not there
            if failed:
                break
        if failed and not isinstance(failed[0], FileNotFoundError):
            with _convert_errors(str(failed[0].filename).lstrip("/")):
                raise failed[0]

    def read(self, key: str, start: int = 0, end: int | None = None, *, etag: str | None = None) -> bytes:
        with _convert_errors(key), open(f"/{key}", "rb") as file:
            if etag is not None and _make_object(key, os.fstat(file.fileno())).etag != etag:
                raise ReplacedError(f"/{key}: was replaced during the work")
            file.seek(start)
            return file.read(-1 if end is None else max(0, end - start))

    def tail(self, key: str, size: int) -> tuple[StoredObject, bytes] | None:
        found = self.stat(key)
        return None if found is None else (found, self.read(key, max(0, found.size - size)))

    def stream(self, found: StoredObject) -> Iterator[bytes]:
        with _convert_errors(found.key), open(f"/{found.key}", "rb") as file:
            while block := file.read(BLOCK):
                yield block

    def write(self, key: str, data: bytes) -> StoredObject:
        return self._place(key, io.BytesIO(data))

    def put(self, key: str, path: Path, *, scratch: bool = False) -> StoredObject:
        """Copy a file into place, or link it there; the disk has it when this returns."""
        with path.open("rb") as source:
            return self._place(key, source, linked=path if scratch else None)

    def holds(self, found: StoredObject, path: Path) -> bool:
        with _convert_errors(found.key):
            return filecmp.cmp(f"/{found.key}", path, shallow=False)

    def delete(self, key: str) -> None:
        with _convert_errors(key), suppress(FileNotFoundError):
            os.unlink(f"/{key}")

    def _place(self, key: str, source: BinaryIO, *, linked: Path | None = None) -> StoredObject:
        """Make a file beside the name, sync, rename, sync the folder."""
        final = f"/{key}"
        partial = f"{final}.{os.getpid()}-{next(_numbers)}{PARTIAL}"
        with _convert_errors(key):
            os.makedirs(os.path.dirname(final), exist_ok=True)
            try:
                with _make_file(partial, source, linked) as fd:
                    status = os.fstat(fd)
                    os.replace(partial, final)
            except BaseException:
                with suppress(OSError):
                    os.unlink(partial)
                raise
            sync_folder(Path(final).parent)
        return _make_object(key, status)


@contextmanager
def _make_file(partial: str, source: BinaryIO, linked: Path | None) -> Iterator[int]:
    """Make a new, synced file and yield it locked: a link to `linked` where the disk allows that, else a copy."""
    there = False
    with suppress(OSError):  # another disk, or one without links
        if linked is not None:
            os.link(linked, partial)
            there = True
    with open(partial, "r+b" if there else "xb") as file:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not there:
            shutil.copyfileobj(source, file, BLOCK)
            file.flush()
        os.fsync(file.fileno())
        yield file.fileno()


def remove_partials(folder: Path, *, deep: bool = True) -> None:
    """Remove what writers left that were ended in the middle; what one is writing is locked and stays.

    `deep`: in the folders below too. A file that cannot be locked or removed stays.
    """
    for parent, below, files in os.walk(folder):
        if not deep:
            below.clear()
        for path in (os.path.join(parent, name) for name in files if _LEFT.search(name)):
            with suppress(OSError):
                lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(path)
                finally:
                    os.close(lock)


def _is_entered(folder: str) -> bool:
    """Return whether a walk enters a folder: a link may lead to where it is, and anywhere."""
    if not os.path.islink(folder):
        return True
    own, target = os.path.realpath(os.path.dirname(folder)), os.path.realpath(folder)
    return os.path.isfile(os.path.join(target, BAG)) and os.path.commonpath([own, target]) != target


def _make_object(key: str, status: os.stat_result) -> StoredObject:
    return StoredObject(key, status.st_size, f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}")


@contextmanager
def _convert_errors(key: str) -> Iterator[None]:
    """Turn an OSError or ValueError inside into an ObjectStoreError that names the file of a key."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ObjectStoreError(f"/{key}: {getattr(error, 'strerror', None) or error}") from error


def download(store: Store, found: StoredObject, path: Path, *, again: bool = False) -> tuple[StoredObject, str]:
    """Bring an object to a new file, and compare its ETag again at the end.

    Args:
        store: Where it is.
        found: The object as it was listed.
        path: The new file.
        again: True to bring the new object, once, where it was replaced in the meantime.

    Returns:
        The object whose bytes the file has, and their SHA-256 as hex digits.

    Raises:
        ObjectStoreError: Storage refuses, or the object was replaced.
        StorageError: The disk refuses.
    """
    digest = hashlib.sha256()
    try:
        with report_errors(path, "write"), path.open("xb") as file:
            for block in store.stream(found):
                digest.update(block)
                file.write(block)
        now = store.stat(found.key)
        if now == found:
            return found, digest.hexdigest()
        replaced = ReplacedError(f"{found.key}: was replaced or removed while it was fetched")
    except ReplacedError as error:
        now, replaced = store.stat(found.key), error
    if now is None or not again:
        raise replaced
    path.unlink(missing_ok=True)
    return download(store, now, path)


def list_dataset_files(paths: DatasetPaths) -> Sequence[Path]:
    """Return the files of a dataset in the order in which they are put, the container last: once it exists, all exist.

    Raises UsageError for a dataset that is a folder.
    """
    if paths.layout != "zip":
        raise UsageError(f"{paths.container}: is a folder; only datasets that are one ZIP (layout zip) are uploaded")
    return paths.arrow, paths.frames, paths.container


def upload_dataset(
    paths: DatasetPaths,
    to: str | os.PathLike[str] | Location,
    *,
    overwrite: bool = False,
    progress: Progress = ignore_progress,
    store: Store | None = None,
) -> list[StoredObject]:
    """Put a finished dataset below a prefix, as PREFIX/NAME.arrow and so on; returns its objects, the container last.

    Checksums are compared before it returns, so that the files may be deleted then. Objects that
    exist with the same bytes stay, so that an interrupted upload continues. `store`: that of the prefix, if open.
    Raises DatasetError where another object has one of the names, unless `overwrite`; ObjectStoreError; UsageError.
    """
    place = to if isinstance(to, Location) else Location.of(to)
    store, files = store or open_store(place), list_dataset_files(paths)
    done: list[StoredObject] = []
    total, sent = sum(file.stat().st_size for file in files), 0
    for file in files:
        key = (place / file.name).key
        found = store.stat(key)
        if found is None or not store.holds(found, file):
            if found is not None and not overwrite:
                raise DatasetError(f"{place / file.name} exists and is another one; use --overwrite to replace it")
            found = store.put(key, file)
        done.append(found)
        sent += found.size
        progress(f"uploading {paths.name}", sent, total)
    return done
