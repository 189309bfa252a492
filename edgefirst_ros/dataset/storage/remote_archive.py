# SPDX-License-Identifier: Apache-2.0
"""Random access to the members of a ZIP in a bucket: one request for the directory, one a member."""

from __future__ import annotations

import bisect
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros.config import Limits
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.storage.access import Archive
from edgefirst_ros.dataset.storage.zipformat import LOCAL, LOCAL_MARK
from edgefirst_ros.errors import DatasetError

if TYPE_CHECKING:
    from typing_extensions import Buffer

TAIL = 1 << 18
"""Bytes of the first request: enough for the directory of some 3,000 members."""
EXTRA = 64
"""Bytes that the extra field of a local header may have so that its member comes with one request."""


class RemoteArchive(Archive):
    """A ZIP in a bucket, indexed once. Threads share it, and their requests run side by side; it can be pickled.

    Only the object that was opened is read: one that is replaced meanwhile is an error. Raises DatasetError.
    """

    def __init__(self, path: Path, place: Location, limits: Limits) -> None:
        self.path, self._limits, self._place = path, limits, place
        self._store = open_store(place)
        answer = self._store.tail(place.key, TAIL)
        if answer is None:
            raise DatasetError(f"{place}: no dataset here")
        self._found, tail = answer
        self.file_size = self._found.size
        with io.BufferedReader(_Tail(self, tail), 1 << 16) as handle:
            self._index_members(handle)
        self._starts = sorted(
            {entry.header_offset for entry in (*self.entries, *self.folders)} | {self.directory_start}
        )

    def __reduce__(self) -> tuple[type[RemoteArchive], tuple[Path, Location, Limits]]:  # type: ignore[override]
        return RemoteArchive, (self.path, self._place, self._limits)

    def pread(self, size: int, offset: int) -> bytes:
        """Return `size` bytes of the object by one request. Raises DatasetError if it ends before, or was replaced."""
        if offset < 0 or offset + size > self.file_size:
            raise DatasetError(f"{self.path}: {size} bytes at {offset} reach past its end at {self.file_size}")
        if not size:
            return b""
        data = self._store.read(self._place.key, offset, offset + size, etag=self._found.etag)
        if len(data) != size:
            raise DatasetError(f"{self.path}: got {len(data)} of {size} bytes")
        return data

    def packed(self, entry: zipfile.ZipInfo, most: int | None = None) -> bytes:
        """Return the stored (packed) data of an entry, at most `most` bytes, by one request."""
        start = entry.header_offset
        size = entry.compress_size if most is None else min(most, entry.compress_size)
        near = start + LOCAL.size + len(os.fsencode(entry.orig_filename)) + EXTRA + size
        place = bisect.bisect_right(self._starts, start)
        behind = self._starts[place] if place < len(self._starts) else self.file_size
        data = self.pread(max(LOCAL.size, min(near, behind) - start), start)
        mark, *_, named, extended = LOCAL.unpack(data[: LOCAL.size])
        if mark != LOCAL_MARK:
            raise DatasetError(f"no local header at {start}")
        begins = LOCAL.size + named + extended
        if begins + size <= len(data):
            return data[begins : begins + size]
        return self.pread(size, start + begins)


class _Tail(io.RawIOBase):
    """File for `zipfile` to read the directory from: the fetched end, and more of the object if needed."""

    def __init__(self, archive: RemoteArchive, tail: bytes) -> None:
        self._archive, self._tail, self._at = archive, tail, 0
        self._begins = archive.file_size - len(tail)

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._archive.file_size}[whence]
        if base + offset < 0:
            raise OSError("a place before its start")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        size = max(0, min(len(view), self._archive.file_size - self._at))
        if self._at >= self._begins:
            data = self._tail[self._at - self._begins :][:size]
        else:
            data = self._archive.pread(size, self._at)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
