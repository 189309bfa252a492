# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset as traces of roverd: OUT/SEQUENCE with config.yaml, edgefirst.schema.yaml, a folder for each sensor.

Folders with `_` hold data interpolated from sensors. The radar cube is `radar_cube`: it has ranges and Doppler bins,
and is not a raw I/Q, as roverd's `radar` is.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np

import edgefirst_ros
from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import make_member_name
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError
from edgefirst_ros.export.drive import Drive, count_values, describe_sources, find_class_masks, list_drives
from edgefirst_ros.export.output import NO_HOME, LossReport, make_ahead
from edgefirst_ros.export.roverd.channels import (
    CUBE,
    EXTRINSICS,
    RADAR,
    FramesWriter,
    RawWriter,
    VideoWriter,
    count_most_points,
    describe_cube,
    has_channels,
    open_cloud_channels,
    pack_stored,
    split_channels,
    turn_cube,
    write_json,
    write_stamps,
)
from edgefirst_ros.sensors.cloud import decode_grid
from edgefirst_ros.sensors.cube import decode_cube
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.png import COLOUR, GRAY, decode_gray
from edgefirst_ros.sensors.transforms import BASE, Floats, make_rotation
from edgefirst_ros.streams import find_by_kind, find_form

VIDEO, SEGMENT = "video.avi", "segment"
SENSORS = {"camera.jpeg": "camera", "radar.png": "radar_cube", "radar.pcd": "radar_points", "lidar.pcd": "lidar_points"}
"""Kind of a member of a first instance -> its sensor."""
SEMANTIC, GPS, IMU = "_camera", "_gps", "_imu"
POSE = "_radar/pose.npz"
LLA, ROT = "lla", "rot"
OTHER, STEP, UNFIT = (
    "of another form than the first one",
    "not later than the one before",
    "roverd cannot hold its form",
)
"""Why a member is dropped."""


def name_folder(kind: str) -> str | None:
    """Return the folder of a kind's sensor: `lidar_points_rear` of `lidar-rear.pcd`; None for one without a home."""
    instance = find_by_kind(kind).instance
    first = SENSORS.get(kind if instance is None else kind.replace(f"-{instance}", "", 1))
    return first if first is None or instance is None else f"{first}_{instance}"


Entry = tuple[Any, Mapping[str, Any]]
"""A member as it is written: its form, which is the same for all of a sensor, and the values by channel."""
Ready = Callable[[bytes], Entry | None]
Begin = Callable[[Any], Mapping[str, Any]]


class SensorTrace:
    """A sensor's folder while it is written. It is created with its first entry."""

    def __init__(self, folder: Path, ready: Ready, begin: Begin, texts: Mapping[str, str]) -> None:
        """`ready`: returns a member as an entry, or None if roverd cannot hold its form; threads may share it.

        `begin`: creates the channels of a form: those with `described`, by name; `texts`: their descriptions.
        """
        self.folder, self.ready = folder, ready
        self.stamps: list[int] = []
        """Increasing stamps of the entries, ns since the epoch."""
        self.dropped: Counter[str] = Counter()
        """{reason: number of messages without an entry}."""
        self.closing = ExitStack()
        self._begin, self._texts, self._form = begin, texts, cast("Any", None)
        self._last: tuple[int, bytes] = (-1, b"")
        """Stamp and data of the last message."""

    def add(self, stamp: int, data: bytes, ready: Entry | None) -> None:
        """Add a member, or count why it is dropped. One message of several samples is one entry."""
        if (stamp, data) == self._last:
            return
        self._last = stamp, data
        if self.stamps and stamp <= self.stamps[-1]:
            self.dropped[STEP] += 1
        elif ready is None:
            self.dropped[UNFIT] += 1
        elif self._form is not None and ready[0] != self._form:
            self.dropped[OTHER] += 1
        else:
            if self._form is None:
                self.folder.mkdir(parents=True)
                self._form, self._channels = ready[0], self._begin(ready[0])
                for channel in self._channels.values():
                    self.closing.callback(channel.close)
            for name, channel in self._channels.items():
                channel.append(ready[1][name])
            self.stamps.append(stamp)

    def close(self) -> list[str]:
        """Complete the folder; returns the names of its channels, empty without an entry."""
        self.closing.close()
        if not self.stamps:
            return []
        return write_stamps(self.folder, self.stamps, self._channels, self._texts)


def make_picture_trace(folder: Path, rate: float) -> SensorTrace:
    """Return the trace of JPEG pictures of one size as a video; forms are (width, height)."""

    def ready(data: bytes) -> Entry | None:
        try:
            return check_jpeg(data), {VIDEO: data}
        except MessageError:
            return None

    def begin(size: tuple[int, int]) -> Mapping[str, Any]:
        return {VIDEO: VideoWriter(folder / VIDEO, size, rate)}

    return SensorTrace(folder, ready, begin, {VIDEO: "Pictures, each a whole JPEG file with its EXIF."})


def make_cube_trace(folder: Path) -> SensorTrace:
    """Return the trace of radar cubes; forms are what radar.json says, and the shape."""

    def ready(data: bytes) -> Entry | None:
        try:
            cube = decode_cube(data)
        except EdgeFirstError:
            return None
        values = turn_cube(cube.values)
        return (describe_cube(cube), values.shape), {CUBE: pack_stored(values)}

    def begin(form: tuple[Any, Any]) -> Mapping[str, Any]:
        write_json(folder / RADAR, form[0])
        return {CUBE: FramesWriter(folder / CUBE, "i2", form[1])}

    text = "Range-Doppler cube [sequence, rx, range, doppler, real and imaginary]; no raw I/Q of the antennas."
    return SensorTrace(folder, ready, begin, {CUBE: text})


def make_cloud_trace(folder: Path, most: int) -> SensorTrace:
    """Return the trace of point clouds of up to `most` points; forms are the types of their points."""

    def ready(data: bytes) -> Entry | None:
        try:
            cloud = decode_grid(data, writable=False)
        except DatasetError:
            return None
        return (cloud.dtype, split_channels(cloud)) if has_channels(cloud.dtype) and cloud.size <= most else None

    return SensorTrace(folder, ready, lambda form: open_cloud_channels(folder, form, most), {})


def make_class_trace(folder: Path) -> SensorTrace:
    """Return the trace of the class of every pixel; forms are (height, width), members the PNG of the annotations."""

    def ready(data: bytes) -> Entry | None:
        pixels = decode_gray(data)
        if pixels is None or pixels.dtype != np.uint8 or data[COLOUR] != GRAY:  # of a palette they are no classes
            return None
        # Large areas of one value: here LZMA is quick and gains nearly all.
        return pixels.shape, {SEGMENT: [lzma.compress(pixels.tobytes(), preset=0)]}

    def begin(shape: tuple[int, int]) -> Mapping[str, Any]:
        return {SEGMENT: FramesWriter(folder / SEGMENT, "u1", shape)}

    return SensorTrace(folder, ready, begin, {SEGMENT: "Class of each pixel, as in the annotations; 255: none."})


# ---- the export ----------------------------------------------------------------------------------
def export(dataset: Dataset, out: Path, report: LossReport, progress: Progress) -> None:
    """Write the traces of a dataset into the empty folder `out`.

    Raises DatasetError where stamps are missing or something cannot be read, StorageError where it cannot be written.
    """
    entries, dropped = Counter[str](), Counter[tuple[str, str]]()
    found = list_drives(dataset)
    for drive in found:
        make_member_name(drive.name, 0, "camera.jpeg")  # rejects a name that a folder cannot have
        with ExitStack() as leaving:
            trace = _Trace(drive, out, leaving)
            trace.write(progress)
        entries.update(trace.entries)
        dropped.update(trace.dropped)
    _report_losses(found, entries, dropped, report)


class _Trace:
    """One drive."""

    def __init__(self, drive: Drive, out: Path, leaving: ExitStack) -> None:
        self.entries = Counter[str]()
        """By kind."""
        self.dropped = Counter[tuple[str, str]]()
        """Messages by kind and reason."""
        self._drive = drive
        self._folder = out / drive.name
        self._folder.mkdir()
        container = drive.dataset.container
        found: dict[str, list[str]] = {}
        for sample in drive.samples:
            for kind, name in drive.dataset.members(sample.key).items():
                found.setdefault(kind, []).append(name)
        seconds = (int(drive.stamps[-1]) - int(drive.stamps[0])) / 1e9
        rate = (len(drive) - 1) / seconds if seconds else 1.0
        self._streams: dict[str, SensorTrace] = {}
        self._folders = {kind: home for kind in [*SENSORS, *sorted(found)] if (home := name_folder(kind)) is not None}
        for kind, name in self._folders.items():
            place, form = self._folder / name, find_by_kind(kind).form
            if form == "camera":
                self._streams[kind] = make_picture_trace(place, rate)
            elif form == "cube":
                self._streams[kind] = make_cube_trace(place)
            else:
                self._streams[kind] = make_cloud_trace(place, count_most_points(container, found.get(kind, ())))
        self._segments = make_class_trace(self._folder / SEMANTIC)
        for stream in (*self._streams.values(), self._segments):
            leaving.enter_context(stream.closing)
        self._masks = find_class_masks(drive.dataset)

    def write(self, progress: Progress) -> None:
        drive, total = self._drive, len(self._drive)
        with closing(make_ahead(self._list_wanted(), self._prepare)) as prepared:
            for number, ((sample, _), (members, mask)) in enumerate(prepared):
                for kind, data, ready in members:
                    if kind in self._streams:
                        self._streams[kind].add(drive.stamp_of(kind, number), data, ready)
                    else:
                        self.dropped[kind, NO_HOME] += 1
                if sample.key in self._masks:
                    self._segments.add(int(drive.stamps[number]), *mask)
                progress(f"exporting {drive.name}", number, total)
        self._finish()
        progress(f"exporting {drive.name}", total, total)

    def _list_wanted(self) -> Iterator[tuple[Sample, set[str]]]:
        """Yield the samples, each with the kinds of members that the one before does not have already."""
        before: dict[str, int] = {}
        for number, sample in enumerate(self._drive.samples):
            stamps = {kind: self._drive.stamp_of(kind, number) for kind in self._streams}
            yield sample, {kind for kind, stamp in stamps.items() if before.get(kind) != stamp}
            before |= {kind: stamps[kind] for kind in self._drive.dataset.members(sample.key) if kind in stamps}

    def _prepare(self, wanted: tuple[Sample, set[str]]) -> tuple[list[tuple[str, bytes, Entry | None]], Any]:
        """Read a sample: (kind, data, entry) of its members, and (data, entry) of its mask of classes."""
        sample, fresh = wanted
        members = []
        for kind in self._drive.dataset.members(sample.key):
            data = sample.read(kind) if kind in self._streams else b""
            members.append((kind, data, self._streams[kind].ready(data) if kind in fresh else None))
        mask: bytes | None = None
        if sample.key in self._masks:
            mask = self._drive.dataset.annotation_rows[0]["mask"][self._masks[sample.key]]
        return members, None if mask is None else (mask, self._segments.ready(mask))

    def _finish(self) -> None:
        drive = self._drive
        channels: dict[str, list[str]] = {}
        for kind, stream in self._streams.items():
            channels[self._folders[kind]] = stream.close()
            self.entries[kind] += len(stream.stamps)
            self.dropped.update({(kind, reason): number for reason, number in stream.dropped.items()})
        channels[SEMANTIC] = self._segments.close()
        self.entries[SEMANTIC] += len(self._segments.stamps)
        self.dropped["mask of classes", "more than one size, or no 8-bit PNG"] += self._segments.dropped.total()
        channels |= write_motion(drive, self._folder, self.entries)
        write_places(drive, self._folder, self._folders)
        known = {name: names for name, names in channels.items() if names}
        schema = "".join(f"{json.dumps(name)}: {json.dumps(names)}\n" for name, names in known.items())
        (self._folder / "edgefirst.schema.yaml").write_text(schema, encoding="utf-8")
        said = {
            "name": drive.name,
            "dataset": drive.dataset.paths.name,
            "software": f"edgefirst_ros {edgefirst_ros.__version__}",
            "sensors": [name for name in known if not name.startswith("_")],
        }
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in said.items())  # JSON is YAML
        (self._folder / "config.yaml").write_text(text, encoding="utf-8")


# ---- motion --------------------------------------------------------------------------------------
def write_motion(drive: Drive, folder: Path, entries: Counter[str]) -> dict[str, list[str]]:
    """Write _gps/lla, _imu/rot and _radar/pose.npz, as far as they are known; the channels by sensor, files under `_`.

    _gps/lla: latitude and longitude in degrees, altitude in m (NaN: unknown). _imu/rot: base_link to ENU as Euler
    angles in rad, turned about x, then the new y, then the new z. pose.npz: place `pos` (N, 3) in m, turn `rot`
    (N, 3, 3) of base_link in the world of the drive, `vel` and `acc` as differences, `t` in s.
    """
    written = {}
    placed, turned = (np.flatnonzero(known).tolist() for known in (drive.placed, drive.turned))
    text = "Latitude and longitude in degrees (WGS-84), altitude in metres."
    written[GPS] = _write_sensor(folder / GPS, drive, placed, LLA, "f8", drive.lla[placed], text)
    angles = find_euler(make_rotation(drive.values("orientation", 4)[turned])) if turned else np.empty((0, 3))
    text = f"Orientation of {BASE} in ENU: Euler angles XYZ, each about the axis turned by the one before, in rad."
    written[IMU] = _write_sensor(folder / IMU, drive, turned, ROT, "f4", angles, text)
    entries[GPS] += len(placed)
    entries[IMU] += len(turned)
    if drive.located.sum() > 1:
        entries["pose"] += int(drive.located.sum())
        known = drive.rig_to_world[drive.located]
        seconds = (drive.stamps[drive.located] - drive.stamps[drive.located][0]) / 1e9  # differences need small numbers
        velocity = np.gradient(known[:, :3, 3], seconds, axis=0)
        path = folder / POSE
        path.parent.mkdir(exist_ok=True)
        np.savez(
            path,
            pos=known[:, :3, 3],
            rot=known[:, :3, :3],
            vel=velocity,
            acc=np.gradient(velocity, seconds, axis=0),
            t=drive.stamps[drive.located] / 1e9,
        )
        written["_"] = [POSE]
    return written


def _write_sensor(
    folder: Path, drive: Drive, which: list[int], name: str, kind: str, values: Any, text: str
) -> list[str]:
    if not which:
        return []
    folder.mkdir()
    channel = RawWriter(folder / name, kind, (3,))
    for value in values:
        channel.append(value)
    channel.close()
    return write_stamps(folder, drive.stamps[which].tolist(), {name: channel}, {name: text})


def find_euler(turns: Floats) -> Floats:
    """(N, 3) angles a, b, c in rad of rotations (N, 3, 3) = Rx(a) Ry(b) Rz(c).

    c is 0 where both of them turn about one axis.
    """
    turns = np.asarray(turns, float).reshape(-1, 3, 3)
    b = np.arcsin(np.clip(turns[:, 0, 2], -1, 1))
    plain = np.hypot(turns[:, 0, 0], turns[:, 0, 1]) > 1e-9
    a = np.where(plain, np.arctan2(-turns[:, 1, 2], turns[:, 2, 2]), np.arctan2(turns[:, 2, 1], turns[:, 1, 1]))
    c = np.where(plain, np.arctan2(-turns[:, 0, 1], turns[:, 0, 0]), 0.0)
    return np.stack([a, b, c], -1)


def write_places(drive: Drive, trace: Path, folders: Mapping[str, str]) -> None:
    """Write intrinsics.json of each camera, and extrinsics.json of each sensor whose place on the vehicle is known."""
    for kind, name in folders.items():
        folder, sensor = trace / name, find_by_kind(kind)
        if not folder.is_dir():
            continue
        if sensor.form == "camera":
            with suppress(DatasetError):
                write_json(folder / "intrinsics.json", drive.info_of(sensor.key))
        with suppress(DatasetError):
            write_json(folder / EXTRINSICS, {"parent": BASE, "sensor_to_parent": drive.place(kind).tolist()})


# ---- losses --------------------------------------------------------------------------------------
def _report_losses(
    found: Sequence[Drive], entries: Counter[str], dropped: Counter[tuple[str, str]], report: LossReport
) -> None:
    dataset, stamps = found[0].dataset, "stamps to 0.1 us"
    lost = f"a message of several samples is one entry; {stamps}"
    for kind in [*SENSORS, *sorted(kind for kind in entries if find_form(kind) and kind not in SENSORS)]:
        folder, form = name_folder(kind), find_by_kind(kind).form
        where = {"camera": f"{folder}/{VIDEO}", "cube": f"{folder}/{CUBE}, {folder}/{RADAR}"}.get(form, f"{folder}/")
        report.count(kind, where, stamps if kind == "camera.jpeg" else lost, entries[kind])
    for (kind, reason), number in sorted(dropped.items()):
        report.count(kind, "", reason, number)
    what = "interpolated to the pictures, as in the dataset"
    report.count("latitude, longitude, altitude", f"{GPS}/{LLA}", what, entries[GPS])
    if entries[IMU]:
        report.add("orientation", f"{IMU}/{ROT}", "as Euler angles, float32", entries[IMU])
        report.add("acceleration, angular velocity", "", "not in the dataset, so the export has no sensor imu")
    what = "velocity and acceleration are differences"
    report.count(f"poses ({describe_sources(found)})", POSE, what, entries["pose"])
    report.count("mask of classes", f"{SEMANTIC}/{SEGMENT}", "", entries[SEMANTIC])
    frames = dataset.frames
    homes = {"latitude", "longitude", "altitude", "orientation", "timestamp"}
    if any(drive.has_poses for drive in found):
        homes |= {"pose_position", "pose_orientation"}
        report.add("pose_position, pose_orientation", POSE, "", entries["pose"])
    if frames is not None:
        report.add(", ".join(sorted(set(frames.columns) - homes)), "", NO_HOME)
    for name, number in count_values(dataset).items():
        masks = "but those of classes" if name == "mask" and entries[SEMANTIC] else NO_HOME
        report.add(f"annotations: {name}", "", masks, number)
