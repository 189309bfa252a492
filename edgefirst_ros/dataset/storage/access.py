# SPDX-License-Identifier: Apache-2.0
"""Random access to the members of a dataset, in a ZIP or in a folder, without unpacking."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol, cast

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.storage.byte_stream import ByteStream
from edgefirst_ros.dataset.storage.directory import read_directory
from edgefirst_ros.dataset.storage.opening import check_kind, open_file, open_folder
from edgefirst_ros.dataset.storage.zipformat import (
    DEFLATE_LIMIT,
    DEFLATED,
    LARGEST_INFLATED,
    LOCAL,
    LOCAL_MARK,
    STORED,
    UTF8,
)
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

# What zipfile raises on bytes that are not an archive.
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OSError, IndexError)


class Container(Protocol):
    """Random access to members by name."""

    path: Path
    names: list[str]
    """All member names in stored order, with duplicates."""

    def size(self, name: str) -> int:
        """Bytes of a member, unpacked."""

    def read(self, name: str) -> bytes:
        """Return a whole member, its checksum compared. Raises DatasetError."""

    def head(self, name: str, size: int) -> bytes:
        """At most `size` bytes a member begins with, not checked. Raises DatasetError."""


def open_container(path: Path, limits: Limits = DEFAULT_LIMITS) -> Container:
    """Open the ZIP or folder at `path`. Raises DatasetError."""
    return Folder(path) if path.is_dir() else Archive(path, limits)


class Archive:
    """A ZIP, indexed once; members are read with `pread`, so threads can share it, and it can be pickled.

    Raises DatasetError, also where the members together unpack to more than `limits` let them.
    """

    def __init__(self, path: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path, self._limits = path, limits
        self._fd = open_file(path)
        try:
            self.file_size = os.fstat(self._fd).st_size
        except OSError as error:
            raise DatasetError(f"{path}: cannot be accessed: {error}") from error
        with self._reader() as handle:
            self._index_members(handle)

    def _reader(self) -> IO[bytes]:
        """Return the whole file as a stream."""
        return cast("IO[bytes]", io.BufferedReader(ByteStream(self), 1 << 16))

    def _index_members(self, handle: IO[bytes]) -> None:
        """Read the directory: that of a plain ZIP as columns, which take a fraction of the time and memory."""
        try:
            self._plain = read_directory(handle)
        except OSError as error:
            raise DatasetError(f"{self.path}: not a readable ZIP archive: {error}") from error
        self._others: list[zipfile.ZipInfo] = []
        """Entries of a ZIP that is not plain, folders too."""
        if self._plain is not None:
            self.names, self.directory_start = self._plain.names, self._plain.start
            takes = int(self._plain.sizes.sum())
        else:
            self._others, self.directory_start = self._listed(handle)
            self.names = [entry.filename for entry in self.entries]
            takes = sum(map(self._takes, self._others))
        self._index = {name: number for number, name in enumerate(self.names)}
        Budget.of_file(self.path, self.file_size, self._limits).take(unpacked=takes)

    def _listed(self, handle: IO[bytes]) -> tuple[list[zipfile.ZipInfo], int]:
        """Return all entries and the offset of the directory."""
        try:
            with zipfile.ZipFile(handle) as archive:
                return archive.infolist(), archive.start_dir
        except _ZIP_ERRORS as error:
            raise DatasetError(f"{self.path}: not a readable ZIP archive: {error}") from error

    @cached_property
    def entries(self) -> list[zipfile.ZipInfo]:
        """All members in stored order, with duplicates; an object each, for those who need more than to read them."""
        if self._plain is not None:
            return [self._plain.entry(number) for number in range(len(self.names))]
        # Not ZipInfo.is_dir: that looks at the last character of a name that may have none.
        return [entry for entry in self._others if not entry.filename.endswith("/")]

    @property
    def folders(self) -> list[zipfile.ZipInfo]:
        """Entries that are folders."""
        return [entry for entry in self._others if entry.filename.endswith("/")]

    @property
    def starts(self) -> list[int]:
        """Offsets of all local headers, in stored order."""
        if self._plain is not None:
            return list(map(int, self._plain.starts))
        return [entry.header_offset for entry in self._others]

    def __reduce__(self) -> tuple[type[Archive], tuple[Path, Limits]]:
        return Archive, (self.path, self._limits)

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            os.close(self._fd)

    def pread(self, size: int, offset: int) -> bytes:
        """Return `size` bytes of the file from `offset` on. Raises DatasetError if it ends before, or is not given."""
        if offset < 0 or offset + size > self.file_size:
            raise DatasetError(f"{self.path}: {size} bytes at {offset} reach past its end at {self.file_size}")
        parts, missing = [], size
        while missing:
            try:
                part = os.pread(self._fd, missing, offset + size - missing)
            except OSError as error:
                text = f"{self.path}: {size} bytes at {offset} cannot be read: {error.strerror}"
                raise DatasetError(text) from error
            if not part:
                raise DatasetError(f"{self.path}: became shorter while it was read")
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self, name: str) -> int:
        """Bytes of a member, unpacked."""
        return int(self._plain.sizes[self._number(name)]) if self._plain is not None else self.entry(name).file_size

    def read(self, name: str) -> bytes:
        """Return a whole member, its checksum compared. Raises DatasetError."""
        return self.read_entry(self.entry(name))

    def read_entry(self, entry: zipfile.ZipInfo) -> bytes:
        """Return the data of an entry, also of one of several with the same name. Raises DatasetError."""
        place = f"{self.path}: {entry.filename!r}"
        try:
            data = _unpacked(self.packed(entry), entry)
        except (DatasetError, zlib.error) as error:
            raise DatasetError(f"{place}: {error}") from error
        crc = zlib_ng.crc32(data)
        if crc != entry.CRC:
            raise DatasetError(f"{place}: CRC is {crc:08x}, must be {entry.CRC:08x}")
        return data

    def _takes(self, entry: zipfile.ZipInfo) -> int:
        """Return the unpacked size of a member, 0 for one whose sizes are impossible: it is refused when read."""
        most = _most_inflated(entry.compress_size) if entry.compress_type == DEFLATED else entry.compress_size
        return entry.file_size if entry.compress_size <= self.file_size and entry.file_size <= most else 0

    def refuse_overlaps(self) -> None:
        """Raise DatasetError where the bytes of two members overlap: one of them is not what it says."""
        if self._plain is not None:
            return
        end, last = 0, ""
        for entry in sorted([*self.entries, *self.folders], key=lambda item: item.header_offset):
            if entry.header_offset < end:
                raise DatasetError(
                    f"{self.path}: {entry.filename!r} begins at {entry.header_offset} within {last!r}, which ends at "
                    f"{end} or later; see edgefirst-ros validate"
                )
            # The least that it takes: the extra field of its local header may be longer than none.
            stop = entry.header_offset + LOCAL.size + _name_size(entry) + entry.compress_size
            if stop <= self.file_size:  # else it is refused by itself
                end, last = stop, entry.filename
        if end > self.directory_start:
            raise DatasetError(f"{self.path}: {last!r} reaches to {end}, into the directory at {self.directory_start}")

    def damaged(self) -> Iterator[tuple[zipfile.ZipInfo, str]]:
        """Yield the entries that cannot be read whole, and why."""
        for entry in self.entries:
            try:
                self.read_entry(entry)
            except DatasetError as error:
                yield entry, str(error)

    def packed(self, entry: zipfile.ZipInfo, most: int | None = None) -> bytes:
        """Return the stored (packed) data of an entry, at most `most` bytes. Raises DatasetError."""
        mark, *_, named, extended = LOCAL.unpack(self.pread(LOCAL.size, entry.header_offset))
        if mark != LOCAL_MARK:
            raise DatasetError(f"no local header at {entry.header_offset}")
        size = entry.compress_size if most is None else min(most, entry.compress_size)
        return self.pread(size, entry.header_offset + LOCAL.size + named + extended)

    def head(self, name: str, size: int) -> bytes:
        """Return the first `size` bytes of a member; of a stored one nothing else is read. Raises DatasetError."""
        entry = self.entry(name)
        return self.packed(entry, size) if entry.compress_type == STORED else self.read_entry(entry)[:size]

    def entry(self, name: str) -> zipfile.ZipInfo:
        """Return a member, of several with the name the last. Raises DatasetError."""
        number = self._number(name)
        return self._plain.entry(number) if self._plain is not None else self.entries[number]

    def _number(self, name: str) -> int:
        try:
            return self._index[name]
        except KeyError:
            raise DatasetError(f"{self.path}: has no member {name!r}") from None


def _most_inflated(packed: int) -> int:
    return min(LARGEST_INFLATED, packed * DEFLATE_LIMIT)


def _name_size(entry: zipfile.ZipInfo) -> int:
    return len(entry.orig_filename.encode("utf-8" if entry.flag_bits & UTF8 else "cp437"))


def _unpacked(packed: bytes, entry: zipfile.ZipInfo) -> bytes:
    if entry.flag_bits & 1:
        raise DatasetError("is encrypted")
    if entry.compress_type == STORED:
        if len(packed) != entry.file_size:
            raise DatasetError(f"stored in {len(packed)} bytes, must be {entry.file_size}")
        return packed
    if entry.compress_type != DEFLATED:
        raise DatasetError(f"packed by method {entry.compress_type}, expected stored (0) or deflated (8)")
    if entry.file_size > _most_inflated(len(packed)):
        raise DatasetError(f"{len(packed)} bytes that claim to unpack to {entry.file_size}")
    data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, entry.file_size + 1)
    if len(data) != entry.file_size:
        raise DatasetError(f"unpacks to {len(data)} bytes or more, must be {entry.file_size}")
    return data


class Folder:
    """Members as files: FOLDER/SEQUENCE/FILE. Raises DatasetError where one is a link, a pipe or a device."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = open_folder(path)
        try:
            self._sizes = dict(_files(path, self._root, ""))
        except OSError as error:
            raise DatasetError(f"{path}: cannot be listed: {error}") from error
        self.names = list(self._sizes)

    def __reduce__(self) -> tuple[type[Folder], tuple[Path]]:
        return Folder, (self.path,)

    def __del__(self) -> None:
        if hasattr(self, "_root"):
            os.close(self._root)

    def size(self, name: str) -> int:
        """Bytes of a member."""
        try:
            return self._sizes[name]
        except KeyError:
            raise DatasetError(f"{self.path}: has no member {name!r}") from None

    def read(self, name: str) -> bytes:
        """Return a whole member. Raises DatasetError."""
        size = self.size(name)
        data = self.head(name, size + 1)
        if len(data) != size:
            raise DatasetError(f"{self.path}: {name!r} changed its size from {size} bytes while it was read")
        return data

    def head(self, name: str, size: int) -> bytes:
        """At most `size` bytes a member begins with. Raises DatasetError."""
        self.size(name)
        folder, _, file = name.rpartition("/")
        within = open_folder(self.path / folder, name=folder, within=self._root) if folder else self._root
        try:
            with os.fdopen(open_file(self.path / name, name=file, within=within), "rb") as handle:
                return handle.read(size)
        except OSError as error:
            raise DatasetError(f"{self.path}: {name!r}: {error}") from error
        finally:
            if folder:
                os.close(within)


def _files(path: Path, folder: int, prefix: str) -> list[tuple[str, int]]:
    """Return (name, size in bytes) of the files in a folder and one level below, sorted by name."""
    found: list[tuple[str, int]] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            if entry.is_dir(follow_symlinks=False):
                if not prefix:
                    below = open_folder(path / entry.name, name=entry.name, within=folder)
                    try:
                        found += _files(path / entry.name, below, f"{entry.name}/")
                    finally:
                        os.close(below)
                continue
            status = entry.stat(follow_symlinks=False)
            check_kind(path / entry.name, status.st_mode)
            found.append((prefix + entry.name, status.st_size))
    return found
