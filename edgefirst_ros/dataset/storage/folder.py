# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the members of a dataset as plain files in folders."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefirst_ros.dataset.names import KINDS, Member, MemberIndex, make_member_name, make_safe, parse_member
from edgefirst_ros.dataset.storage.lock import (
    NEW_FILE,
    OPEN_FOLDER,
    check_kind,
    give_back,
    is_plain_file,
    open_file,
    report_errors,
    sync_disk,
    view_bytes,
    write_at,
)
from edgefirst_ros.dataset.storage.space import check_there
from edgefirst_ros.errors import DatasetError, StorageError, explain_errors
from edgefirst_ros.streams import find_by_columns, find_by_kind

if TYPE_CHECKING:
    from typing_extensions import Buffer


class DirectoryWriter:
    """Writes each member as a file below `path`, a folder that must not exist yet; no link is followed.

    A member appears under its name only when it is whole.
    """

    announced = True
    _UNNAMED = ".partial"

    def __init__(self, path: Path, *, reopen: bool = False) -> None:
        """`reopen`: take over the files of a dead writer; `seen` registers its members."""
        self.path = path
        self.seen = MemberIndex()
        self._bytes = 0
        self._sequence = ""
        self._folder = -1
        self._unwanted: list[str] = []
        self._doubtful = False
        with report_errors(path, "open" if reopen else "create"):
            if not reopen:
                os.mkdir(path, 0o755)
            self._root = os.open(path, OPEN_FOLDER)

    def begin(self) -> None:
        self.seen.recent.clear()

    def undo(self) -> None:
        self._unwanted += self.seen.undo()
        with contextlib.suppress(StorageError):
            self._clear()

    def _clear(self) -> None:
        while self._unwanted:
            name = self._unwanted[-1]
            with report_errors(self.path / name, "remove"):
                (self.path / name).unlink(missing_ok=True)
            self._unwanted.pop()

    def add(self, name: str, buffers: Sequence[Buffer], time_ns: int) -> None:
        """Write a member made of `buffers`, one after the other; `time_ns` becomes the file's time.

        Raises DatasetError for a name that is not a member's or was added before, and when writing fails.
        """
        self._clear()
        sequence = self.seen.add(name).sequence
        views, size = view_bytes(buffers)
        with report_errors(self.path / name, "write"):
            if sequence != self._sequence:
                self._enter(sequence)
            fd = os.open(self._UNNAMED, NEW_FILE, 0o644, dir_fd=self._folder)
            try:
                write_at(fd, views, 0)
                os.utime(fd, ns=(time_ns, time_ns))
                os.rename(self._UNNAMED, name.partition("/")[2], src_dir_fd=self._folder, dst_dir_fd=self._folder)
            except OSError:
                self._unwanted.append(f"{sequence}/{self._UNNAMED}")
                raise
            finally:
                os.close(fd)
        self._bytes += size

    def _enter(self, sequence: str) -> None:
        with contextlib.suppress(FileExistsError):  # a continued sequence; the next line rejects a link
            os.mkdir(sequence, 0o755, dir_fd=self._root)
        folder = os.open(sequence, OPEN_FOLDER, dir_fd=self._root)
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._sequence = folder, sequence

    def flush(self, sync: bool) -> int:
        with report_errors(self.path, "write"):
            if self._doubtful and sync:  # the system reports it once, and forgets the unwritten data
                raise OSError(errno.EIO, "the disk lost data that was written before")
            if sync:
                self._doubtful = True
                sync_disk(self._root)
                self._doubtful = False
            check_there(self.path, self._root)
        return self._bytes

    closing_bytes = 0

    def close(self) -> None:
        self._clear()
        self.flush(sync=True)
        self.abandon()

    def abandon(self) -> None:
        for fd in (self._folder, self._root):
            if fd >= 0:
                give_back(fd)
        self._folder = self._root = -1


class Folder:
    """Members as files: FOLDER/SEQUENCE/FILE. Raises DatasetError where one is a link, a pipe or a device."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = open_file(path, folder=True)
        with explain_errors(f"{path}: cannot be listed", OSError):
            self._sizes = dict(_walk_files(path, self._root, ""))
        self.names = list(self._sizes)

    def __reduce__(self) -> tuple[type[Folder], tuple[Path]]:
        return Folder, (self.path,)

    def __del__(self) -> None:
        if hasattr(self, "_root"):
            os.close(self._root)

    def expect(self, upcoming: object, loop: object = None) -> None:
        """Ignored: reads of a disk are cheap."""

    def size(self, name: str) -> int:
        try:
            return self._sizes[name]
        except KeyError:
            raise DatasetError(f"{self.path}: has no member {name!r}") from None

    def read(self, name: str) -> bytes:
        size = self.size(name)
        data = self.head(name, size + 1)
        if len(data) != size:
            raise DatasetError(f"{self.path}: {name!r} changed its size from {size} bytes while it was read")
        return data

    def head(self, name: str, size: int) -> bytes:
        self.size(name)
        folder, _, file = name.rpartition("/")
        root, place = self._root, self.path / folder
        within = open_file(place, name=folder, within=root, folder=True) if folder else root
        try:
            with os.fdopen(open_file(self.path / name, name=file, within=within), "rb") as handle:
                return handle.read(size)
        except OSError as error:
            raise DatasetError(f"{self.path}: {name!r}: {error}") from error
        finally:
            if folder:
                os.close(within)


def _walk_files(path: Path, folder: int, prefix: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda item: item.name):
            if entry.is_dir(follow_symlinks=False):
                if not prefix:
                    below = open_file(path / entry.name, name=entry.name, within=folder, folder=True)
                    try:
                        found += _walk_files(path / entry.name, below, f"{entry.name}/")
                    finally:
                        os.close(below)
                continue
            status = entry.stat(follow_symlinks=False)
            check_kind(path / entry.name, status.st_mode)
            found.append((prefix + entry.name, status.st_size))
    return found


def list_present(root: Path, row: Mapping[str, Any]) -> Iterator[tuple[Member, str, Path]]:
    """Yield (member, name, file) for the members in a folder of a frame, by its row of the frames table."""
    own = [kind for sensor in find_by_columns(row) if sensor.instance is not None for kind in sensor.kinds]
    for kind in (*KINDS, *own) if make_safe(row["name"]) == row["name"] else ():
        name = make_member_name(row["name"], row["frame"], kind)
        if is_plain_file(root / name):
            yield Member(row["name"], row["frame"], kind), name, root / name


def list_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name, file) of everything one folder below that is not a folder itself, in frame order."""
    for folder in _list_entries(root, folders=True):
        found = [(f"{folder.name}/{file.name}", file) for file in _list_entries(folder, folders=False)]
        yield from sorted(found, key=lambda item: _order(item[0]))


def _list_entries(folder: Path, *, folders: bool) -> list[Path]:
    with report_errors(folder, "list"), os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) == folders]
    return [folder / name for name in sorted(names)]


def _order(name: str) -> tuple[int, tuple[int, str], str]:
    member = parse_member(name)
    return (member.frame, find_by_kind(member.kind).order, name) if member is not None else (-1, (0, ""), name)
