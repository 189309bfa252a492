# SPDX-License-Identifier: Apache-2.0
"""Reads the files of a dataset in place in a bucket."""

from __future__ import annotations

import bisect
import os
import threading
import zipfile
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import cast

from edgefirst_ros.dataset.names import DatasetPaths, Member, parse_member
from edgefirst_ros.dataset.objects.location import Location, ObjectPath
from edgefirst_ros.dataset.objects.store import Store, open_store
from edgefirst_ros.dataset.storage.lock import report_errors
from edgefirst_ros.dataset.storage.zip_read import (
    LOCAL,
    LOCAL_MARK,
    Archive,
    Loop,
    Upcoming,
    find_directory,
    iter_directory,
)
from edgefirst_ros.dataset.tables.arrow_file import TableFile, list_annotation_paths
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.limits import Limits

AT_ONCE = 8 << 20
"""Bytes of a table fetched by one request."""
SUFFIXES = (".zip", ".frames.arrow", ".arrow")


def open_objects(
    place: Location, limits: Limits
) -> tuple[DatasetPaths, RemoteArchive, TableFile | None, TableFile | None]:
    """Return paths, archive, annotations and frames of a dataset in a bucket, opened by three requests.

    One more if the directory of the ZIP is large. Raises DatasetError.
    """
    name = place.name
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    if not name:
        raise DatasetError(f"{place}: names no dataset; expected s3://BUCKET/PREFIX/NAME.zip")
    paths = DatasetPaths(cast("Path", ObjectPath(str(place.parent))), name)
    store = open_store(place)
    container = RemoteArchive(paths.container, place.parent / f"{name}.zip", limits)
    container.refuse_overlaps()
    return paths, container, _fetch_annotations(store, paths, limits), _fetch_table(store, paths.frames, limits)


def _fetch_annotations(store: Store, paths: DatasetPaths, limits: Limits) -> TableFile | None:
    """Return the annotations in the first form that exists. Raises DatasetError for nested JSON."""
    forms = list_annotation_paths(paths.arrow)
    for path in forms[:-1]:
        if (found := _fetch_table(store, path, limits)) is not None:
            return found
    if store.stat(Location.of(forms[-1]).key) is not None:
        raise DatasetError(
            f"{forms[-1]}: JSON cannot be read from a bucket; download the dataset, or upload NAME.arrow"
        )
    return None


def _fetch_table(store: Store, path: Path, limits: Limits) -> TableFile | None:
    """Return a table, held in memory; None if it does not exist."""
    place = Location.of(path)
    if (answer := store.tail(place.key, AT_ONCE)) is None:
        return None
    found, data = answer
    with report_errors(path, "hold it in memory"), os.fdopen(os.memfd_create(place.name), "wb") as file:
        for block in [data] if len(data) == found.size else store.stream(found):
            file.write(block)
        file.flush()
        fd = os.dup(file.fileno())
    return TableFile(path, limits, fd=fd)


TAIL, LARGEST_TAIL = 1 << 18, 1 << 24
"""Bytes of the first request, enough for some 3,000 members; most that are read of a ZIP that does not end plainly."""
GAP, AHEAD = 1 << 18, 8 << 20
"""Most bytes between members that one request fetches, and most bytes of such a request, and of members held."""
MOST_AHEAD = 64
"""Most samples of a loop that one request covers."""
EXTRA = 64
"""Bytes that the extra field of a local header may have so that its member comes with one request."""


@dataclass
class _Reads(threading.local):
    """Members that a thread reads of an archive, each thread its own."""

    held: dict[str, bytes] = field(default_factory=dict)
    """Members that were fetched with another one, with their local headers."""
    upcoming: Upcoming | None = None
    loop: Loop = field(default_factory=Loop)
    misses: int = 0
    """Requests since a member was in `held`."""


class RemoteArchive(Archive):
    """A ZIP in a bucket, indexed once. Threads share it, and their requests run side by side; it can be pickled.

    Only the object that was opened is read: one that is replaced in the meantime is an error. Raises DatasetError.
    """

    def __init__(self, path: Path, place: Location, limits: Limits) -> None:
        self.path, self._limits, self._place = path, limits, place
        self._store = open_store(place)
        answer = self._store.tail(place.key, TAIL)
        if answer is None:
            raise DatasetError(f"{place}: no dataset here")
        self._found, tail = answer
        self.file_size = self._found.size
        # The object, empty where it is not fetched.
        with report_errors(path, "hold it in memory"), os.fdopen(os.memfd_create(place.name), "w+b") as held:
            begins = self.file_size - len(tail)
            held.truncate(self.file_size)
            held.seek(begins)
            held.write(tail)
            found = find_directory(held)
            start = found[1] if found is not None else max(0, self.file_size - LARGEST_TAIL)
            with explain_errors(f"{path}: not a readable ZIP archive", zipfile.BadZipFile):
                for offset, block in iter_directory(self.pread, start, begins, dense=found is not None):
                    held.seek(offset)
                    held.write(block)
            self._index_members(held)
        self._starts = sorted({*self.starts, self.directory_start})
        self._reads = _Reads()

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

    def expect(self, upcoming: Upcoming | None, loop: Loop | None = None) -> None:
        """Note the samples that this thread reads next; a loop over them fetches several by one request."""
        reads = self._reads
        reads.upcoming = upcoming
        if loop is not reads.loop:
            reads.loop = loop or Loop()
            reads.held.clear()

    def read(self, name: str) -> bytes:
        """Return a whole member, its checksum compared.

        Members that are near it and are probably read next come by the same request: those of the sample whose sensors
        this thread read of the sample before, in a loop those of the samples after it too. Raises DatasetError.
        """
        reads, member = self._reads, parse_member(name)
        if member is not None:
            reads.loop.add(member[:2], member.kind)
            if name in reads.held:
                reads.misses = 0
            else:
                self._fetch_near(reads, name, member)
        return super().read(name)

    def _fetch_near(self, reads: _Reads, name: str, member: Member) -> None:
        """Fetch a member with its neighbours, as long as the bytes between them are few.

        In a loop members stay until they are read, so that random order fetches each only once.
        """
        reads.misses += 1
        if reads.upcoming is None or reads.misses > MOST_AHEAD:
            reads.held.clear()
        loop, most = reads.loop, AHEAD // reads.loop.among
        room, wanted = most - sum(map(len, reads.held.values())), loop.before | loop.kinds
        stem = name.removesuffix(member.kind)
        names = {name, *(other for kind in wanted if (other := stem + kind) in self._index)}
        if reads.upcoming is not None and loop.before and room >= most // 2:
            names |= {its[kind] for its in islice(reads.upcoming(), loop.ahead) for kind in wanted if kind in its}
            loop.ahead = min(2 * loop.ahead, MOST_AHEAD)
        spans = sorted((*self._span(self.entry(one)), one) for one in names - reads.held.keys())
        place = next(n for n, span in enumerate(spans) if span[2] == name)
        near = [spans[place]]
        begin, end, _ = near[0]
        room = max(room, most // 2) - (end - begin)
        for start, stop, one in (*reversed(spans[:place]), *spans[place + 1 :]):
            room -= stop - start
            if max(start - end, begin - stop) <= GAP and max(end, stop) - min(begin, start) <= AHEAD and room >= 0:
                near.append((start, stop, one))
                begin, end = min(begin, start), max(end, stop)
        if len(near) > 1:
            data = self.pread(end - begin, begin)
            reads.held |= {one: data[start - begin : stop - begin] for start, stop, one in near}

    def _span(self, entry: zipfile.ZipInfo) -> tuple[int, int]:
        """Return the bytes in which an entry is with its local header, if that has the usual extra field."""
        start = entry.header_offset
        near = start + LOCAL.size + len(os.fsencode(entry.orig_filename)) + EXTRA + entry.compress_size
        place = bisect.bisect_right(self._starts, start)
        return start, max(start + LOCAL.size, min(near, self._starts[place] if place < len(self._starts) else near))

    def read_packed(self, entry: zipfile.ZipInfo, most: int | None = None) -> bytes:
        """Return the stored (packed) data of an entry, at most `most` bytes, by one request if it is not held."""
        start, end = self._span(entry)
        size = entry.compress_size if most is None else min(most, entry.compress_size)
        held = self._reads.held.pop(entry.filename, None) if most is None else None
        data = (
            held if held is not None else self.pread(max(LOCAL.size, end - start - (entry.compress_size - size)), start)
        )
        mark, *_, named, extended = LOCAL.unpack(data[: LOCAL.size])
        if mark != LOCAL_MARK:
            raise DatasetError(f"no local header at {start}")
        begins = LOCAL.size + named + extended
        if begins + size <= len(data):
            return data[begins : begins + size]
        return self.pread(size, start + begins)
