# SPDX-License-Identifier: Apache-2.0
"""Samples as NCore wants them: what depends on their order is decided first, all else is made side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.dataset.reader import Sample
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.export.drive import Drive, measured
from edgefirst_ros.export.ncore import checks
from edgefirst_ros.export.ncore.labels import Labels, Marks, depth
from edgefirst_ros.export.ncore.library import CUBE
from edgefirst_ros.export.ncore.points import RADAR_NAMES, Rays, rays
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.png import png_chunks

COMPANIONS = {"radar.png": CUBE, "radar.pcd": "radars/radar", "lidar.pcd": "lidars/lidar"}
"""Kind of a member with a stamp of its own -> its home in NCore."""
MICROSECOND = 1000


@dataclass(frozen=True, slots=True)
class Task:
    """A sample to be made ready."""

    number: int
    """In its drive."""
    sample: Sample
    reached: bool
    """True if it lies within the time of the sequence."""
    size: tuple[int, int] | None
    """(width, height) of its picture, where that is known already."""
    stamps: Mapping[str, int]
    """ns of each companion that there can be, by kind."""
    fits: frozenset[str]
    """The companions that can become frames: within the time of the sequence, later than the frame before."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a sample."""

    kind: str
    name: str
    data: bytes
    made: Any
    """Rays of a cloud, or None; what a cube says of itself; metres of a depth picture, or None."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared sample."""

    rows: list[dict[str, Any]]
    """Its annotations."""
    members: list[Member]
    marks: Marks | None
    """None where the size of its picture was not known, and outside the time of the sequence."""


class Preparation:
    """The samples of a drive for a sequence from `start` to before `stop`, µs."""

    def __init__(self, drive: Drive, labels: Labels, start: int, stop: int) -> None:
        self._drive, self._labels = drive, labels
        self._start, self._stop = start, stop
        table, self._places = drive.dataset.annotation_rows
        self._annotations = table.select(drive.dataset.annotation_columns)  # half a millisecond a sample otherwise
        self.size: tuple[int, int] | None = None
        """(width, height) of the pictures, as soon as it is known."""

    def tasks(self) -> Iterator[Task]:
        """Yield the samples in their order."""
        drive, last = self._drive, dict[str, int]()
        for number, (sample, row) in enumerate(zip(drive.samples, drive.rows, strict=True)):
            stamps, fits = {}, set()
            for kind in COMPANIONS.keys() & drive.dataset.members(sample.key).keys():
                at = stamps[kind] = measured(row, kind)
                if self._holds(at) and (kind not in last or at // MICROSECOND > last[kind] // MICROSECOND):
                    fits.add(kind)
                if kind in fits or kind not in last:
                    last[kind] = at
            size = row.get("size") or self.size
            reached = self._holds(int(drive.stamps[number]))
            yield Task(number, sample, reached, (size[0], size[1]) if size else None, stamps, frozenset(fits))

    def _holds(self, stamp_ns: int) -> bool:
        return self._start <= stamp_ns // MICROSECOND < self._stop

    def make(self, task: Task) -> Ready:
        """Read a sample, and make of it what goes into the stores. Raises DatasetError. Threads may share this."""
        dataset = self._drive.dataset
        rows = self._annotations.slice(*self._places.get(task.sample.key, (0, 0))).to_dicts()
        members = []
        for kind, name in dataset.members(task.sample.key).items():
            data = dataset.container.read(name)
            made: Any = None
            try:
                if kind in task.fits:
                    made = described(data) if kind == "radar.png" else self._rays(kind, data, task.stamps[kind])
                elif kind == "depth.png" and task.reached:
                    made = depth(data)
            except EdgeFirstError as error:
                raise DatasetError(f"{dataset.container.path}: {name!r}: {error}") from error
            members.append(Member(kind, name, data, made))
        marks = self._labels.prepared(rows, task.size) if task.reached and task.size else None
        return Ready(rows, members, marks)

    def _rays(self, kind: str, data: bytes, at: int) -> Rays | None:
        found = rays(decode_cloud(data), RADAR_NAMES if kind == "radar.pcd" else {})
        if found is not None:
            what = f"{self._drive.name!r}: {kind} of {at} ns"
            checks.inside(what, at // MICROSECOND, self._start, self._stop)
            checks.rays(what, found.direction, found.distance, found.intensity)
        return found


def described(png: bytes) -> dict[str, Any]:
    """Return the description in a cube's picture: layout, shape, scales, is_complex, timestamp. Raises DatasetError."""
    found: dict[str, Any] = {}
    try:
        for kind, body in png_chunks(png):
            if kind == b"IDAT":
                break
            keyword, _, value = bytes(body).partition(b"\0") if kind == b"tEXt" else (b"", b"", b"")
            if keyword.startswith(b"edgefirst:"):
                said = json.loads(value, parse_constant=str)
                json.dumps(said, allow_nan=False)  # as it is stored: 1e999 is no number there
                found[keyword.removeprefix(b"edgefirst:").decode()] = said
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"radar cube cannot be read: {error}") from error
    return found
