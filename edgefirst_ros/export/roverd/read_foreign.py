# SPDX-License-Identifier: Apache-2.0
"""Reads traces of roverd as a dataset, as far as it has a place for their data."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.export.importing import (
    NOT_FOLLOWED,
    TOLERANCE,
    SensorEntries,
    list_companion_columns,
    make_counts,
    make_metadata,
    name_kinds,
    name_sequences,
    read_json,
    refuse_deep,
    refuse_links,
    stamp_picture,
)
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.export.roverd.channels import (
    CUBE,
    LENGTH,
    META,
    RADAR,
    STAMPS,
    XYZ,
    ChannelReader,
    CloudReader,
    decode_pictures,
    write_cube,
)
from edgefirst_ros.export.roverd.write import GPS, IMU, LLA, POSE, ROT, SEGMENT, VIDEO
from edgefirst_ros.limits import Budget, Limits
from edgefirst_ros.sensors.calibration import MISSING
from edgefirst_ros.sensors.jpeg import HUFFMAN, Buffer, check_jpeg
from edgefirst_ros.sensors.navigation import Fix, FixTrack, ValueTrack, interpolate
from edgefirst_ros.sensors.png import encode_gray
from edgefirst_ros.sensors.transforms import Floats
from edgefirst_ros.streams import INSTANCE, find_by_kind

MOST_FIXES = 1 << 20
"""Positions of a trace that are read: 29 h at 10 Hz."""
CAMERAS = "camera", "_camera"
"""Folders of the pictures, and of those with blurred faces, published in their place: the stamps are the same."""
QUALITY = 95
"""JPEG quality of reflectivities."""


def restore(source: Path, out: Path, limits: Limits, report: LossReport, progress: Progress) -> None:
    """Make a dataset of the traces below `source`: a sequence each, a sample for each picture of its camera.

    camera/video.avi, else _camera/video.avi, becomes camera.jpeg; radar_points, lidar_points (xyz, length) PCD files;
    lidar/rng (u2, mm) lidar.png; lidar/rfl (u1) lidar.jpeg; radar_cube of an export radar.png; _camera/segment a mask
    of classes: each the nearest entry within 100 ms. Further sensors, such as lidar_points_rear, become instances.
    imu/rot becomes the orientation and gps/lla the position, interpolated. All else has no place: raw I/Q is not a
    range-Doppler cube.

    `source`: a trace, or a folder that holds traces at any depth. Raises DatasetError where no trace has a camera, or
    one cannot be read or holds a link.
    """
    traces = sorted(_find_traces(source, report))
    if not traces:
        raise DatasetError(f"{source}: contains no roverd trace, a folder of sensors with a {META} each")
    name = make_safe(source.resolve().name)
    budget = Budget.of_import(source, sum(refuse_links(trace.resolve()) for trace in traces), limits)
    names = name_sequences(trace.resolve().name for trace in traces)
    sequences: dict[str, dict[str, Any]] = {}
    # Each is opened twice, one at a time: open ones hold files and stamps.
    companions = list_companion_columns(
        companion for trace in traces for companion in _ForeignTrace(trace, budget).companions
    )
    with DatasetWriter(out, name, companions=companions) as writer, ExitStack() as failing:
        failing.callback(writer.abort)
        for place, (trace, sequence) in enumerate(zip(traces, names, strict=True)):
            read = _ForeignTrace(trace, budget)
            for number, sample in enumerate(read.samples(sequence)):
                writer.write(sample)
                progress(f"importing {sequence}", number + 1, read.total)
            if read.written:
                sequences[sequence] = {"sources": [place], **read.facts}
            read.report_losses(report)
        if not writer.samples:
            raise DatasetError(f"{source}: no trace has a {VIDEO} of the format mjpg, so no dataset is written")
        failing.pop_all()
        writer.finish(make_metadata([trace.name for trace in traces], sequences))


def _find_traces(folder: Path, report: LossReport) -> Iterator[Path]:
    """Yield the traces below a folder: those with a config.yaml, or with sensors in them.

    Links to folders are not followed; the report says which.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder}: is a file; expected a folder with traces, or one of them")
    waiting = [folder]
    try:
        while waiting:
            place = waiting.pop()
            refuse_deep(place, folder)
            inside = sorted(entry for entry in place.iterdir() if entry.is_dir())
            plain = [entry for entry in inside if not entry.is_symlink()]
            if (place / "config.yaml").exists() or any((entry / META).is_file() for entry in plain):
                yield place
                continue
            waiting += plain
            for entry in inside:
                if entry.is_symlink():
                    report.add(entry.name, "", NOT_FOLLOWED)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be listed: {error}") from error


class _ForeignTrace:
    def __init__(self, folder: Path, budget: Budget) -> None:
        self._folder, self._budget = folder, budget
        self._readers: dict[str, ChannelReader] = {}
        self._unread: dict[str, str] = {}
        for path in sorted(folder.glob(f"*/{META}")):
            try:
                self._readers[path.parent.name] = ChannelReader(path.parent)
            except DatasetError as error:  # of an unsupported type, such as complex numbers
                self._unread[path.parent.name] = str(error)
        self._used: Counter[tuple[str, str]] = Counter()
        self.written = 0
        """Samples so far."""
        self._beyond = 0
        """Pictures without a stamp."""
        self.companions = list(self._find_channels())
        self._camera = next((name for name in CAMERAS if name in self._readers and _is_video(self._readers[name])), "")
        timed = self._readers.get(CAMERAS[0], self._readers.get(self._camera))
        self._stamps = timed.stamps() if timed is not None and self._camera else np.empty(0, np.int64)
        self.total = len(self._stamps)
        if (np.diff(self._stamps) <= 0).any():
            raise DatasetError(f"{folder / CAMERAS[0] / STAMPS}: the times do not rise")
        self._gps = "gps" if "gps" in self._readers else GPS
        self._imu = "imu" if "imu" in self._readers else IMU
        self._fixes, self._turns = FixTrack(), ValueTrack(interpolate)

    def _find_channels(self) -> Iterator[SensorEntries]:
        """Yield the channels that can be imported, by their names in roverd and in `export`."""
        for first, kind in (("radar_points", "radar.pcd"), ("lidar_points", "lidar.pcd"), ("radar_cube", "radar.png")):
            for sensor, own in name_kinds(kind, self._list_sensors(first), first).items():
                reader = self._readers[sensor]
                cubes = first == "radar_cube" and (reader.folder / RADAR).is_file()
                if first != "radar_cube" and {XYZ, LENGTH, STAMPS} <= reader.channels.keys():
                    yield _make_companion(sensor, reader, (XYZ, LENGTH), CloudReader(reader).__getitem__, own)
                elif cubes and {CUBE, STAMPS} <= reader.channels.keys():
                    make_cube = partial(_make_cube, reader, reader.stamps(), self._budget)
                    yield _make_companion(f"{sensor}/{CUBE}", reader, (CUBE,), make_cube, own)
        for sensor, own in name_kinds("camera.jpeg", self._list_sensors("camera"), "camera").items():
            reader = self._readers[sensor]
            if sensor != "camera" and {VIDEO, STAMPS} <= reader.channels.keys() and _is_video(reader):
                numbered = enumerate(decode_pictures(reader.folder / VIDEO))
                yield _make_companion(f"{sensor}/{VIDEO}", reader, (), partial(_get_picture, numbered), own)
        for sensor, channel, kind, dtype, make in (
            ("lidar", "rng", "lidar.png", "<u2", partial(encode_gray, smooth=True)),
            ("lidar", "rfl", "lidar.jpeg", "u1", _encode_reflect),
            ("_camera", SEGMENT, "", "u1", encode_gray),
        ):
            other = self._readers.get(sensor)
            if other and {channel, STAMPS} <= other.channels.keys():
                form, found, shape = other.describe_channel(channel)
                if form == "lzmaf" and found == np.dtype(dtype) and len(shape) == 2:
                    taken = partial(_read_frame, other, channel, make, self._budget)
                    yield _make_companion(f"{sensor}/{channel}", other, (channel,), taken, kind)

    def _list_sensors(self, first: str) -> list[str]:
        """Return the sensors of a kind: `lidar_points`, and as an export names further ones."""
        further = re.compile(f"{first}(_{INSTANCE})?")
        return [name for name in self._readers if further.fullmatch(name)]

    def _read_fixes(self) -> None:
        """Read where the vehicle was. Raises DatasetError for more positions than can be held."""
        stamps, places = self._entries(self._gps, LLA)
        if len(stamps) > MOST_FIXES:
            where = self._folder / self._gps
            raise DatasetError(f"{where}: has {len(stamps)} positions, up to {MOST_FIXES} are read")
        for stamp, (latitude, longitude, altitude) in zip(stamps.tolist(), places.astype(float).tolist(), strict=True):
            if abs(latitude) <= 90 and abs(longitude) <= 180:
                self._fixes.add(Fix(stamp, latitude, longitude, altitude if isfinite(altitude) else nan, None))
        self._fixes.close()

    def _read_turns(self) -> None:
        """Read how the vehicle was turned right before and after each picture: an IMU measures far more often."""
        stamps, angles = self._entries(self._imu, ROT)
        sound = np.flatnonzero(np.isfinite(angles).all(1))
        stamps, first = np.unique(stamps[sound], return_index=True)
        after = np.searchsorted(stamps, self._stamps)
        near = np.unique(np.concatenate([after - 1, after]))
        near = near[(near >= 0) & (near < len(stamps))]
        turns = from_euler(angles[sound[first[near]]])
        for stamp, (x, y, z, w) in zip(stamps[near].tolist(), turns.tolist(), strict=True):
            self._turns.add(stamp, (x, y, z, w))

    def _entries(self, sensor: str, channel: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Return stamps (M,) and entries (M, 3), mapped, of a channel; none of one that is missing or of another form.

        The last ones may be without a stamp, as after a power cut.
        """
        reader = self._readers.get(sensor)
        if reader and {channel, STAMPS} <= reader.channels.keys():
            values = reader.raw(channel)
            if values.shape[1:] == (3,):
                stamps = reader.stamps()[: len(values)]
                return stamps, values[: len(stamps)]
        return np.empty(0, np.int64), np.empty((0, 3))

    def samples(self, sequence: str) -> Iterator[NewSample]:
        """Yield a sample for each picture that is a whole JPEG."""
        if not self._camera:
            return
        self._read_fixes()
        self._read_turns()
        path = self._folder / self._camera / VIDEO
        for number, jpeg in enumerate(decode_pictures(path)):
            if number >= self.total:
                self._beyond += 1
                continue
            if _is_whole(jpeg):
                self.written += 1
                yield self._sample(sequence, number, jpeg, check_jpeg(jpeg))

    def _sample(self, sequence: str, number: int, jpeg: bytes, size: tuple[int, int]) -> NewSample:
        stamp = int(self._stamps[number])
        self._budget.spend(unpacked=len(jpeg))
        members: list[tuple[str, Sequence[Buffer]]] = []
        row: dict[str, Any] = {"size": size, "keyframe": True, "segment": 0}
        annotations: list[Mapping[str, object]] = []
        for companion in self.companions:
            data = companion.near(stamp, stamp, row)
            if not data:
                continue
            self._budget.spend(unpacked=len(data))
            self._used[companion.what, companion.kind] += 1
            if not companion.kind:
                annotations.append({"mask": data})
            elif companion.kind.startswith("camera"):
                own = row[f"{find_by_kind(companion.kind).column}_timestamp"]
                picture = stamp_picture(companion.kind, data, sequence, number, own, self._place(own))
                members.append((companion.kind, picture))
            else:
                members.append((companion.kind, [data]))
        place, turn = self._place(stamp), self._turns.at(stamp)
        if place:
            row |= place
            self._used[f"{self._gps}/{LLA}", "latitude, longitude, altitude"] += 1
        if turn is not None:
            row["orientation"] = turn
            self._used[f"{self._imu}/{ROT}", "orientation"] += 1
        members.insert(0, ("camera.jpeg", stamp_picture("camera.jpeg", jpeg, sequence, number, stamp, row)))
        return NewSample(sequence, number, stamp, members, row, annotations, {"size": size})

    def _place(self, stamp: int) -> dict[str, float | None]:
        """Return latitude, longitude and altitude at a stamp; empty where unknown."""
        found = self._fixes.position(stamp)
        names = ("latitude", "longitude", "altitude")
        return {} if found is None else {name: getattr(found, name) for name in names}

    @property
    def facts(self) -> dict[str, Any]:
        """Metadata of the sequence, once all of its samples are made."""
        return {
            "camera_info": None,
            "static_transforms": [],
            "calibration": MISSING,
            "topics": {"reference": "camera"},
            "counts": make_counts("camera", self.total, self.written, "no picture, or no whole JPEG"),
        }

    def report_losses(self, report: LossReport) -> None:
        name = self._folder.name
        taken = {what for what, _ in self._used}
        if self._camera:
            less = f"{self.total} times: the others have no picture, or no whole JPEG"
            lost = less if self.written != self.total else ""
            report.add(f"{name}/{self._camera}/{VIDEO}", "camera.jpeg", lost, self.written)
        report.count(f"{name}/{self._camera}/{VIDEO}", "", "pictures without a stamp", self._beyond)
        for (what, kind), number in self._used.items():
            lost = f"only the nearest to each picture, within {TOLERANCE / 1e9} s"
            if what in (f"{self._gps}/{LLA}", f"{self._imu}/{ROT}"):
                lost = "interpolated to the pictures"
            report.add(f"{name}/{what}", kind or "mask", lost, number)
        for sensor, error in self._unread.items():
            report.add(f"{name}/{sensor}", "", error)
        for path in sorted(self._folder.glob(f"_*/{Path(POSE).name}")):
            report.add(f"{name}/{path.parent.name}/{path.name}", "", "poses of a map are not read")
        why = "a dataset has no place for it" if self._camera else f"no samples: no camera/{VIDEO} of the format mjpg"
        for sensor, reader in self._readers.items():
            for channel in reader.channels:
                pictures = self._camera and channel == VIDEO and sensor in (CAMERAS[0], self._camera)
                held = pictures or sensor in taken or f"{sensor}/{channel}" in taken
                if channel != STAMPS and not held:
                    report.add(f"{name}/{sensor}/{channel}", "", why)


def _make_companion(
    what: str, reader: ChannelReader, channels: tuple[str, ...], make: Callable[[int], bytes], kind: str
) -> SensorEntries:
    """Return a companion; entries that are not in all of its channels, as after a power cut, are dropped."""
    stamps = reader.stamps()[: min(map(reader.count, channels), default=None)]
    if (np.diff(stamps) < 0).any():
        raise DatasetError(f"{reader.folder / STAMPS}: the times do not rise")
    return SensorEntries(what, kind, stamps, lru_cache(maxsize=1)(make))  # several pictures may share one


def _is_video(reader: ChannelReader) -> bool:
    found = VIDEO in reader.channels and reader.describe_channel(VIDEO)[0] == "mjpg"
    return found and (reader.folder / VIDEO).exists()


def _is_whole(jpeg: bytes) -> bool:
    try:
        check_jpeg(jpeg)
    except MessageError:
        return False
    return HUFFMAN.search(jpeg) is not None


def _get_picture(numbered: Iterator[tuple[int, bytes]], number: int) -> bytes:
    """Return a picture of a video, by rising numbers; empty without it, or if it is not a whole JPEG."""
    found = next((jpeg for place, jpeg in numbered if place == number), b"")
    return found if _is_whole(found) else b""


def _read_frame(
    reader: ChannelReader, channel: str, make: Callable[[NDArray[Any]], bytes], budget: Budget, number: int
) -> bytes:
    values = reader.frame(channel, number)
    budget.spend(unpacked=values.nbytes)
    return make(values)


def _encode_reflect(values: NDArray[Any]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(values).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def _make_cube(reader: ChannelReader, stamps: NDArray[np.int64], budget: Budget, number: int) -> bytes:
    values = reader.frame(CUBE, number)
    budget.spend(unpacked=values.nbytes)
    return write_cube(values, read_json(reader.folder / RADAR), int(stamps[number]))


def from_euler(angles: Floats) -> Floats:
    """Return (N, 4) quaternions x, y, z, w of angles (N, 3) as the exporter's `euler` makes them, rad."""
    half = np.asarray(angles, float).reshape(-1, 3) / 2
    (sa, sb, sc), (ca, cb, cc) = np.sin(half).T, np.cos(half).T
    return np.stack(
        [
            sa * cb * cc + ca * sb * sc,
            ca * sb * cc - sa * cb * sc,
            ca * cb * sc + sa * sb * cc,
            ca * cb * cc - sa * sb * sc,
        ],
        -1,
    )
