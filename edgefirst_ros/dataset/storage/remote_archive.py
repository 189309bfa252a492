# SPDX-License-Identifier: Apache-2.0
"""Random access to the members of a ZIP in a bucket: one request for the directory, one a member."""

from __future__ import annotations

import bisect
import io
import os
import zipfile
from pathlib import Path
from typing import IO, cast

from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.storage.access import Archive
from edgefirst_ros.dataset.storage.byte_stream import ByteStream
from edgefirst_ros.dataset.storage.zipformat import LOCAL, LOCAL_MARK
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits

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
            self._index_members(cast("IO[bytes]", handle))
        self._starts = sorted({*self.starts, self.directory_start})

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


class _Tail(ByteStream):
    """The object as a stream whose end, which was fetched, needs no further request."""

    def __init__(self, archive: RemoteArchive, tail: bytes) -> None:
        super().__init__(archive)
        self._tail, self._begins = tail, archive.file_size - len(tail)

    def _fetch(self, size: int, offset: int) -> bytes:
        if offset >= self._begins:
            return self._tail[offset - self._begins :][:size]
        return super()._fetch(size, offset)
