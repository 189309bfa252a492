# SPDX-License-Identifier: Apache-2.0
"""Traces of roverd as a dataset again: ours as they were, byte by byte, others as far as they go."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zlib_ng import zlib_ng

from edgefirst_ros.dataset.names import DatasetPaths, check_name, member_name
from edgefirst_ros.dataset.storage.archive import ArchiveWriter
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.storage.folder import DirectoryWriter
from edgefirst_ros.dataset.storage.lock import reporting
from edgefirst_ros.dataset.storage.opening import open_file
from edgefirst_ros.dataset.tables.forms.table import SUFFIXES
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.limits import read_file, read_json
from edgefirst_ros.export.links import refuse_links
from edgefirst_ros.export.report import Report
from edgefirst_ros.export.roverd.channels import FIELDS, Reader
from edgefirst_ros.export.roverd.clouds import CloudReader, write_cloud
from edgefirst_ros.export.roverd.cubes import restored
from edgefirst_ros.export.roverd.foreign import restore_foreign
from edgefirst_ros.export.roverd.traces import CUBE, VIDEO
from edgefirst_ros.export.roverd.tracing import FILES, FORM, HEAD, LIST, SENSORS, SIDE
from edgefirst_ros.export.roverd.video import VideoReader
from edgefirst_ros.limits import Limits
from edgefirst_ros.progress import Progress

LINE, MEMBER, TABLE = 1 << 20, 1 << 30, 1 << 34
"""Bytes of the largest line, member and table that is read."""
OPEN = 16
"""Most sequences of which files are open at a time."""


def restore(source: Path, out: Path, limits: Limits, report: Report, progress: Progress) -> None:
    """Make a dataset in `out`, a folder that is there and empty, of traces that `export` wrote, or of others.

    `source` is the folder of the traces or a trace. What `export` wrote comes back with the same name, layout and
    tables, each member compared by its CRC-32. Of other traces see `restore_foreign`. Raises DatasetError where
    something cannot be read, is not what it was or is a link, StorageError where it cannot be written.
    """
    if (source / SIDE / HEAD).is_file():
        _Own(source, out, Budget.of_import(source, refuse_links(source.resolve()), limits)).restore(report, progress)
        return
    if (source.parent / SIDE / HEAD).is_file() and (source / "config.yaml").is_file():
        raise DatasetError(f"{source}: is one of several parts; name {source.parent}, which holds all of the dataset")
    restore_foreign(source, out, limits, report, progress)


class _Own:
    """A dataset that `export` wrote."""

    def __init__(self, source: Path, out: Path, budget: Budget) -> None:
        self._source, self._side, self._budget = source, source / SIDE, budget
        self._said = read_json(self._side / HEAD)
        try:
            if self._said["form"] != FORM:
                raise DatasetError(f"{self._side / HEAD}: has the form {self._said['form']!r}, expected {FORM!r}")
            if self._said["layout"] not in ("zip", "directory"):
                raise DatasetError(f"{self._side / HEAD}: has the layout {self._said['layout']!r}")
            self._paths = DatasetPaths(out, check_name(self._said["name"]), self._said["layout"])
            self._tables = [self._said[key] for key in ("annotations", "frames") if self._said[key]]
            known = [self._paths.frames.name, *(f"{self._paths.name}{suffix}" for suffix in SUFFIXES)]
            if not all(table in known for table in self._tables):
                raise DatasetError(f"{self._side / HEAD}: has the tables {self._tables}; known: {known}")
        except (KeyError, TypeError, UsageError) as error:
            raise DatasetError(f"{self._side / HEAD}: cannot be read: {error!r}") from error
        self._sources: OrderedDict[str, dict[str, _Source]] = OrderedDict()
        """Of the sequences used last what was opened, by kind: each takes descriptors, and memory by its entries."""

    def restore(self, report: Report, progress: Progress) -> None:
        paths = self._paths
        with reporting(paths.folder, "create"):
            paths.folder.mkdir(exist_ok=True)
        container = ArchiveWriter(paths.container) if paths.layout == "zip" else DirectoryWriter(paths.members)
        kinds: Counter[str] = Counter()
        try:
            total = sum(1 for _ in self._lines())
            for number, line in enumerate(self._lines()):
                try:
                    key, stamp = (line["sequence"], line["frame"]), line["timestamp"]
                    for kind, noted in line["members"].items():
                        name = member_name(*key, kind)
                        data = self._member(name, kind, key[0], *noted)
                        self._budget.take(unpacked=len(data))
                        container.add(name, [data], stamp)
                        kinds[kind] += 1
                except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                    raise DatasetError(f"{self._side / LIST}: sample {number} cannot be read: {error!r}") from error
                progress(f"importing {paths.name}", number + 1, total)
            container.close()
        finally:
            container.abandon()
        for table in self._tables:
            self._copy(table)
            report.add(table, table)
        for kind, number in kinds.items():
            report.add(kind, paths.container.name, "", number)

    def _copy(self, table: str) -> None:
        path = self._side / table
        target = self._paths.folder / table
        with open(open_file(path), "rb") as source, reporting(target, "write"), target.open("xb") as file:
            if os.fstat(source.fileno()).st_size > TABLE:
                raise DatasetError(f"{path}: has more than {TABLE} bytes")
            shutil.copyfileobj(source, file, 1 << 20)

    def _lines(self) -> Iterator[dict[str, Any]]:
        path = self._side / LIST
        try:
            with open(open_file(path), "rb") as file:
                while line := file.readline(LINE + 1):
                    if len(line) > LINE:
                        raise ValueError(f"a line has more than {LINE} bytes")
                    yield json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            raise DatasetError(f"{path}: cannot be read: {error}") from error

    def _member(
        self, name: str, kind: str, sequence: str, size: int, crc: int, sensor: str = "", entry: int = 0, note: int = 0
    ) -> bytes:
        if sensor:
            opened = self._sources.setdefault(sequence, {})
            self._sources.move_to_end(sequence)
            if len(self._sources) > OPEN:
                self._sources.popitem(last=False)
            if kind not in opened:
                if SENSORS[kind] != sensor:
                    raise DatasetError(f"{self._side / LIST}: {kind} comes from {sensor!r}")
                opened[kind] = _Source(self._source / sequence / sensor, kind)
            data = opened[kind].member(entry, note)
        else:
            path = self._side / FILES / name
            data = read_file(path, min(size, MEMBER))
        if (len(data), zlib_ng.crc32(data)) != (size, crc):
            where = f"{self._source / sequence / sensor}, entry {entry}" if sensor else f"{self._side / FILES / name}"
            raise DatasetError(
                f"{where}: {name} is not what it was when it was exported: the trace was changed since, or other "
                "versions of the libraries that pack pictures are in use"
            )
        return data


class _Source:
    """The entries of a sensor as members."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._last: tuple[int, bytes] = (-1, b"")
        self._reader = Reader(folder)
        if kind == "camera.jpeg":
            self._video = VideoReader(folder / VIDEO)
        elif kind == "radar.png":
            self._said = read_json(folder / "radar.json")
        else:
            self._clouds = CloudReader(self._reader, read_json(folder / FIELDS))

    def member(self, entry: int, note: int) -> bytes:
        """Return the bytes of an entry's member."""
        if entry != self._last[0]:
            self._last = entry, self._made(entry, note)
        return self._last[1]

    def _made(self, entry: int, note: int) -> bytes:
        if self._kind == "camera.jpeg":
            return self._video[entry]
        if self._kind == "radar.png":
            return restored(self._reader.frame(CUBE, entry), self._said, note)
        return write_cloud(self._clouds[entry])
