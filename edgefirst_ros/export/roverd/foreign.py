# SPDX-License-Identifier: Apache-2.0
"""Traces of roverd that others recorded, as far as a dataset has a place for what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.export.links import NOT_FOLLOWED, refuse_deep, refuse_links
from edgefirst_ros.export.report import Report
from edgefirst_ros.export.roverd.channels import META, STAMPS, Reader
from edgefirst_ros.export.roverd.clouds import LENGTH, XYZ, CloudReader, write_cloud
from edgefirst_ros.export.roverd.motion import LLA, ROT, from_euler
from edgefirst_ros.export.roverd.traces import SEGMENT, VIDEO
from edgefirst_ros.export.roverd.video import pictures
from edgefirst_ros.limits import Limits
from edgefirst_ros.progress import Progress
from edgefirst_ros.sensors.calibration import MISSING
from edgefirst_ros.sensors.grayscale import encode_gray
from edgefirst_ros.sensors.navigation import AttitudeTrack, Fix, FixTrack
from edgefirst_ros.sensors.picture_file import check_jpeg

TOLERANCE = 100_000_000
"""ns between a picture and what belongs to it, at most."""
HUFFMAN = b"\xff\xc4"
BLOCK = 1 << 16
"""Entries of a channel that are held as numbers of Python at a time."""
MOST_FIXES = 1 << 20
"""Positions of a trace that are read: 29 h at 10 Hz."""


@dataclass(frozen=True)
class _Companion:
    """A sensor beside the camera: when its entries were measured, and an entry as part of a sample."""

    what: str
    stamps: NDArray[np.int64]
    member: Callable[[int], bytes]
    kind: str = ""
    column: str = ""

    def nearest(self, stamp: int) -> int | None:
        """Return the entry nearest to a stamp (of two the earlier), within the tolerance."""
        if not len(self.stamps):
            return None
        place = int(np.searchsorted(self.stamps, stamp))
        near = min(
            (n for n in (place - 1, place) if 0 <= n < len(self.stamps)), key=lambda n: abs(self.stamps[n] - stamp)
        )
        return near if abs(int(self.stamps[near]) - stamp) <= TOLERANCE else None


def restore_foreign(source: Path, out: Path, limits: Limits, report: Report, progress: Progress) -> None:
    """Make a dataset of the traces below `source`: a sequence each, a sample for each picture of its camera.

    camera/video.avi becomes camera.jpeg; radar_points, lidar_points (xyz, length) PCD files; lidar/rng (u2, mm)
    lidar.png; _camera/segment a mask of classes: each the nearest entry within 100 ms. imu/rot becomes the orientation
    and gps/lla the position, interpolated. All else has no place: raw I/Q is no range-Doppler cube. Raises DatasetError
    where no trace has a camera, or one cannot be read or holds a link.
    """
    traces = sorted(_traces(source, report))
    if not traces:
        raise DatasetError(f"{source}: holds no trace of roverd, that is a folder with a config.yaml")
    name = safe_name(source.resolve().name)
    budget = Budget.of_import(source, sum(refuse_links(trace.resolve()) for trace in traces), limits)
    names = _names(traces)
    said: dict[str, Any] = {
        "sources": [{"file": trace.name} for trace in traces],
        "configuration": {"tolerance": TOLERANCE / 1e9},
        "software": None,
        "time_base": {"base": "roverd", "topics": {}},
        "camera_info": None,
        "static_transforms": [],
        "counts": {},
    }
    known = {key: said[key] for key in ("time_base", "camera_info", "static_transforms", "counts")}
    said["sequences"] = {
        sequence: {"sources": [place], **known, "calibration": MISSING, "topics": {}}
        for place, sequence in enumerate(names)
    }
    companions = ("radar_targets", "lidar_points")
    with DatasetWriter(out, name, companions=companions) as writer, ExitStack() as failing:
        failing.callback(writer.abort)
        for trace, sequence in zip(traces, names, strict=True):
            taken = _Trace(trace, budget)
            for number, sample in enumerate(taken.samples(sequence)):
                writer.write(sample)
                progress(f"importing {sequence}", number + 1, taken.total)
            taken.tell(report)
        if not writer.samples:
            raise DatasetError(f"{source}: no trace has a {VIDEO} of the format mjpg, nothing is written")
        failing.pop_all()
        writer.finish(said)


def _traces(folder: Path, report: Report) -> Iterator[Path]:
    """Yield the traces below a folder. Links to folders are not followed, which is said in the report."""
    if not folder.is_dir():
        raise DatasetError(f"{folder}: is a file; expected a folder with traces, or one of them")
    waiting = [folder]
    try:
        while waiting:
            place = waiting.pop()
            refuse_deep(place, folder)
            if (place / "config.yaml").exists():
                yield place
                continue
            for entry in sorted(place.iterdir()):
                if entry.is_dir() and entry.is_symlink():
                    report.add(entry.name, "", NOT_FOLLOWED)
                elif entry.is_dir():
                    waiting.append(entry)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error}") from error


def _names(traces: list[Path]) -> list[str]:
    """Return a name for each trace, those that are there before with a number."""
    found: list[str] = []
    taken: set[str] = set()
    tried: Counter[str] = Counter()
    """The last number by the name that it was put behind."""
    for trace in traces:
        base = name = safe_name(trace.resolve().name)
        while name.casefold() in taken:
            tried[base] = max(tried[base], 1) + 1
            name = safe_name(f"{base}-{tried[base]}")
        taken.add(name.casefold())
        found.append(name)
    return found


class _Trace:
    """One trace."""

    def __init__(self, folder: Path, budget: Budget) -> None:
        self._folder, self._budget = folder, budget
        self._readers: dict[str, Reader] = {}
        self._unread: dict[str, str] = {}
        for path in sorted(folder.glob(f"*/{META}")):
            try:
                self._readers[path.parent.name] = Reader(path.parent)
            except DatasetError as error:  # of a type that nothing here has, as of complex numbers
                self._unread[path.parent.name] = str(error)
        self._used: Counter[tuple[str, str]] = Counter()
        self._taken = 0
        self._beyond = 0
        """Pictures without a stamp."""
        self._companions = list(self._found())
        camera = self._readers.get("camera")
        self._video = camera is not None and VIDEO in camera.channels and camera.described(VIDEO)[0] == "mjpg"
        self._stamps = camera.stamps() if camera is not None and self._video else np.empty(0, np.int64)
        self.total = len(self._stamps)
        if (np.diff(self._stamps) <= 0).any():
            raise DatasetError(f"{folder / 'camera' / STAMPS}: the times do not rise")
        self._fixes, self._turns = FixTrack(), AttitudeTrack()
        self._read_fixes()
        self._read_turns()

    def _found(self) -> Iterator[_Companion]:
        """Yield the channels that can be imported, by their names in roverd and in `export`."""
        for sensor, kind, column in (
            ("radar_points", "radar.pcd", "radar_targets"),
            ("lidar_points", "lidar.pcd", "lidar_points"),
        ):
            reader = self._readers.get(sensor)
            if reader and {XYZ, LENGTH, STAMPS} <= reader.channels.keys():
                yield _companion(sensor, reader, (XYZ, LENGTH), partial(_pcd, CloudReader(reader)), kind, column)
        for sensor, channel, kind, dtype, make in (
            ("lidar", "rng", "lidar.png", "<u2", partial(encode_gray, smooth=True)),
            ("_camera", SEGMENT, "", "u1", encode_gray),
        ):
            reader = self._readers.get(sensor)
            if reader and {channel, STAMPS} <= reader.channels.keys():
                form, found, shape = reader.described(channel)
                if form == "lzmaf" and found == np.dtype(dtype) and len(shape) == 2:
                    taken = partial(_frame, reader, channel, make, self._budget)
                    yield _companion(f"{sensor}/{channel}", reader, (channel,), taken, kind)

    def _read_fixes(self) -> None:
        """Take over where the vehicle was. Raises DatasetError where it was said too often to be held."""
        for stamps, places in self._blocks("gps", LLA):
            for stamp, (latitude, longitude, altitude) in zip(stamps.tolist(), places.tolist(), strict=True):
                if abs(latitude) <= 90 and abs(longitude) <= 180:
                    self._fixes.add(Fix(stamp, latitude, longitude, altitude if isfinite(altitude) else nan, None))
        self._fixes.close()

    def _read_turns(self) -> None:
        """Take over how the vehicle was turned, right before and behind each picture: an IMU says it far more often."""
        known = [(stamps, np.isfinite(angles).all(1)) for stamps, angles in self._blocks("imu", ROT)]
        if not known:
            return
        sound = np.flatnonzero(np.concatenate([finite for _, finite in known]))
        stamps, first = np.unique(np.concatenate([stamps for stamps, _ in known])[sound], return_index=True)
        after = np.searchsorted(stamps, self._stamps)
        near = np.unique(np.concatenate([after - 1, after]))
        near = near[(near >= 0) & (near < len(stamps))]
        angles = self._readers["imu"].raw(ROT)[sound[first[near]]].astype(np.float64)
        for stamp, (x, y, z, w) in zip(stamps[near].tolist(), from_euler(angles).tolist(), strict=True):
            self._turns.add(stamp, (x, y, z, w))

    def _blocks(self, sensor: str, channel: str) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Stamps (M,) and entries (M, 3) of a channel, some at a time: files can be sparse."""
        reader = self._readers.get(sensor)
        if reader and {channel, STAMPS} <= reader.channels.keys():
            values = reader.raw(channel)
            if values.shape[1:] == (3,):
                stamps = reader.stamps()
                count = min(len(stamps), len(values))  # the last ones may lack their stamp, as after a power cut
                if sensor == "gps" and count > MOST_FIXES:
                    raise DatasetError(f"{reader.folder}: has {count} positions, up to {MOST_FIXES} are read")
                for start in range(0, count, BLOCK):
                    part = slice(start, min(start + BLOCK, count))
                    yield stamps[part], values[part].astype(np.float64)

    def samples(self, sequence: str) -> Iterator[Sample]:
        """Yield a sample for each picture that is a whole JPEG."""
        if not self._video:
            return
        path = self._folder / "camera" / VIDEO
        for number, jpeg in enumerate(pictures(path)):
            if number >= self.total:
                self._beyond += 1
                continue
            try:
                size = check_jpeg(jpeg)
                if HUFFMAN not in jpeg:
                    raise MessageError(UNDECODABLE, "JPEG without Huffman tables")
            except MessageError:
                continue
            self._taken += 1
            yield self._sample(sequence, number, jpeg, size)

    def _sample(self, sequence: str, number: int, jpeg: bytes, size: tuple[int, int]) -> Sample:
        stamp = int(self._stamps[number])
        self._budget.take(unpacked=len(jpeg))
        members: list[tuple[str, list[bytes]]] = [("camera.jpeg", [jpeg])]
        row: dict[str, Any] = {"size": size, "keyframe": True, "segment": 0}
        annotations: list[Mapping[str, object]] = []
        for companion in self._companions:
            entry = companion.nearest(stamp)
            if entry is None:
                continue
            data = companion.member(entry)
            self._budget.take(unpacked=len(data))
            self._used[companion.what, companion.kind] += 1
            if companion.kind:
                members.append((companion.kind, [data]))
                if companion.column:
                    measured = int(companion.stamps[entry])
                    row |= {f"{companion.column}_timestamp": measured, f"{companion.column}_skew": measured - stamp}
            else:
                annotations.append({"mask": data})
        position, turn = self._fixes.position(stamp), self._turns.orientation(stamp)
        if position is not None:
            row |= {key: getattr(position, key) for key in ("latitude", "longitude", "altitude")}
            self._used[f"gps/{LLA}", "latitude, longitude, altitude"] += 1
        if turn is not None:
            row["orientation"] = turn
            self._used[f"imu/{ROT}", "orientation"] += 1
        return Sample(sequence, number, stamp, members, row, annotations, {"size": size})

    def tell(self, report: Report) -> None:
        """Say what became of each channel."""
        name = self._folder.name
        taken = {what for what, _ in self._used}
        if self._video:
            lost = (
                "" if self._taken == self.total else f"{self.total} times: the others have no picture, or no whole JPEG"
            )
            report.add(f"{name}/camera/{VIDEO}", "camera.jpeg", lost, self._taken)
        if self._beyond:
            report.add(f"{name}/camera/{VIDEO}", "", "pictures without a stamp", self._beyond)
        for (what, kind), number in self._used.items():
            lost = f"only the nearest to each picture, within {TOLERANCE / 1e9} s"
            if what in (f"gps/{LLA}", f"imu/{ROT}"):
                lost = "interpolated to the pictures"
            report.add(f"{name}/{what}", kind or "mask", lost, number)
        for sensor, error in self._unread.items():
            report.add(f"{name}/{sensor}", "", error)
        for sensor, reader in self._readers.items():
            for channel in reader.channels:
                held = sensor in taken or f"{sensor}/{channel}" in taken or (sensor, channel) == ("camera", VIDEO)
                if channel != STAMPS and not held:
                    report.add(f"{name}/{sensor}/{channel}", "", "a dataset has no place for it")


def _companion(
    what: str,
    reader: Reader,
    channels: tuple[str, ...],
    member: Callable[[int], bytes],
    kind: str = "",
    column: str = "",
) -> _Companion:
    """Return a companion; entries that are not in all of its channels, as after a power cut, are left away."""
    stamps = reader.stamps()[: min(map(reader.count, channels))]
    if (np.diff(stamps) < 0).any():
        raise DatasetError(f"{reader.folder / STAMPS}: the times do not rise")
    return _Companion(what, stamps, lru_cache(maxsize=1)(member), kind, column)  # several pictures may share one


def _pcd(clouds: CloudReader, number: int) -> bytes:
    return write_cloud(clouds[number])


def _frame(reader: Reader, channel: str, make: Callable[[NDArray[Any]], bytes], budget: Budget, number: int) -> bytes:
    values = reader.frame(channel, number)
    budget.take(unpacked=values.nbytes)
    return make(values)
