# SPDX-License-Identifier: Apache-2.0
"""Interface of buckets and folders: objects with sizes and ETags."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.patience import PATIENCE

BLOCK = 4 << 20
"""Bytes that are handed on at once."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as it is listed."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Changes whenever the object is replaced; without quotes."""


class Store(Protocol):
    """One bucket, or the file system. Threads may share it.

    Every method raises ObjectStoreError where storage refuses, or has given nothing for its patience.
    """

    def stat(self, key: str) -> StoredObject | None:
        """Return what is there under a key; None where there is nothing."""

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield all objects whose key begins with the parts of `prefix`, at any depth."""

    def read(self, key: str, start: int = 0, end: int | None = None, *, etag: str | None = None) -> bytes:
        """Return the bytes from `start` to before `end`; with `etag` only of the object that has it."""

    def tail(self, key: str, size: int) -> tuple[StoredObject, bytes] | None:
        """Return an object and at most `size` of its last bytes, by one request; None where there is nothing."""

    def stream(self, found: StoredObject) -> Iterator[bytes]:
        """Yield the bytes of an object in order; what breaks off is continued, as long as it has not been replaced."""

    def write(self, key: str, data: bytes) -> StoredObject:
        """Put a small object in place, whole or not at all."""

    def put(self, key: str, path: Path, *, scratch: bool = False) -> StoredObject:
        """Put a file in place, whole or not at all, and compare checksums: what is there is what the file holds.

        `scratch`: a regular file that nobody writes to or needs afterwards, so that on the same disk it is not copied.
        """

    def holds(self, found: StoredObject, path: Path) -> bool:
        """True if an object is what a file holds, byte for byte."""

    def delete(self, key: str) -> None:
        """Remove an object; nothing where there is none."""


def open_store(location: Location, *, patience: float = PATIENCE, rate: int = 0) -> Store:
    """Open the bucket or file system of a location; it is given up where it gives nothing for `patience`, s.

    `rate`: most bytes a second that are put into a bucket; 0: as many as the line takes.
    Nothing is asked of it yet. Raises ObjectStoreError where the library for it is not installed, UsageError where it
    does not take the bucket's name.
    """
    if location.local:
        from edgefirst_ros.dataset.objects.folder import FolderStore

        return FolderStore()
    from edgefirst_ros.dataset.objects.bucket import BucketStore

    return BucketStore(location.root, patience, rate)
