# SPDX-License-Identifier: Apache-2.0
"""A dataset as nuScenes v1.0: tables as JSON, keyframes under `samples`, all other messages under `sweeps`.

Frames: `ego` is base_link (x forward, y left, z up); the map has its origin at the first sample with a
pose and the axes of the poses' frame, or without poses ENU, in m.
Source: the schema of nuScenes v1.0, and nuscenes-devkit 1.2 (NuScenes, LidarPointCloud, RadarPointCloud).
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import Key, find_host
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.drive import (
    Boxes,
    Drive,
    count_values,
    describe_sources,
    list_drives,
    read_boxes,
    read_groups,
    select_posed,
)
from edgefirst_ros.export.output import NO_HOME, LossReport, make_ahead, write_files
from edgefirst_ros.sensors.cloud import decode_grid, find_speed_field
from edgefirst_ros.sensors.lens import Straightener
from edgefirst_ros.sensors.transforms import Floats, interpolate_poses, make_quaternion
from edgefirst_ros.streams import CAMERA, find_by_kind

VERSION = "v1.0-trainval"
"""Name of the folder of tables: the one that training frameworks ask for."""
TABLES = (
    "category", "attribute", "visibility", "instance", "sensor", "calibrated_sensor", "ego_pose", "log", "scene",
    "sample", "sample_data", "sample_annotation", "map",
)  # fmt: skip
MAP, ORIGIN, SPLITS = "maps/none.png", "origin.json", "splits.json"
KEYFRAME_RATE = 2.0
"""Hz; nuScenes annotates keyframes at this rate."""
BLOCK = 1024
"""Messages of a channel whose poses are worked out together."""
STEP = 50_000_000
"""ns to each side over which the speed of a sensor is measured."""
UNKNOWN = "unknown"
RADAR = np.dtype(
    [(name, "<f4") for name in ("x", "y", "z")]
    + [("dyn_prop", "<i1"), ("id", "<i2")]
    + [(name, "<f4") for name in ("rcs", "vx", "vy", "vx_comp", "vy_comp")]
    + [(name, "<i1") for name in ("is_quality_valid", "ambig_state", "x_rms", "y_rms", "invalid_state", "pdh0")]
    + [(name, "<i1") for name in ("vx_rms", "vy_rms")]
)
"""One radar return as nuScenes stores it."""
_KINDS = [RADAR[name] for name in RADAR.names or ()]
_RADAR_HEADER = (
    f"# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS {' '.join(RADAR.names or ())}\n"
    f"SIZE {' '.join(str(kind.itemsize) for kind in _KINDS)}\n"
    f"TYPE {' '.join('F' if kind.kind == 'f' else 'I' for kind in _KINDS)}\n"
    f"COUNT {' '.join('1' for _ in _KINDS)}\n"
    "WIDTH {0}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {0}\nDATA binary\n"
)
_RETURN = np.zeros((), RADAR)
_RETURN["dyn_prop"], _RETURN["ambig_state"], _RETURN["is_quality_valid"] = 4, 3, 1  # unknown, unambiguous, valid
USUAL = {
    "person": "human.pedestrian.adult", "pedestrian": "human.pedestrian.adult", "people": "human.pedestrian.adult",
    "car": "vehicle.car", "van": "vehicle.car", "truck": "vehicle.truck", "lorry": "vehicle.truck",
    "bus": "vehicle.bus.rigid", "trailer": "vehicle.trailer", "bicycle": "vehicle.bicycle", "bike": "vehicle.bicycle",
    "motorcycle": "vehicle.motorcycle", "motorbike": "vehicle.motorcycle", "construction vehicle":
    "vehicle.construction", "traffic cone": "movable_object.trafficcone", "barrier": "movable_object.barrier",
    "animal": "animal", "dog": "animal", "cat": "animal",
}  # fmt: skip
"""nuScenes categories by label in lower case; other labels keep their own name as category."""


@dataclass(frozen=True)
class SensorChannel:
    """A sensor of nuScenes: its name, kind of member and how its file is made."""

    name: str
    modality: str
    sensor: str
    """Sensor whose place in the vehicle `Drive.place` knows: `lidar`, `lidar.points.rear`."""
    suffix: str
    size: str = CAMERA.size_column
    """Column of the size of its pictures."""


CHANNELS = {
    "camera.jpeg": SensorChannel("CAM_FRONT", "camera", "camera", ".jpg"),
    "camera.png": SensorChannel("CAM_FRONT", "camera", "camera", ".png"),
    "lidar.pcd": SensorChannel("LIDAR_TOP", "lidar", "lidar", ".pcd.bin"),
    "radar.pcd": SensorChannel("RADAR_FRONT", "radar", "radar", ".pcd"),
}
"""Channels by kind of member, of the first instance of each sensor."""


@lru_cache(1024)
def name_channel(kind: str) -> SensorChannel | None:
    """Return the channel of a kind of member: LIDAR_REAR of `lidar-rear.pcd`; None for one without."""
    try:
        found = find_by_kind(kind)
    except KeyError:
        return None
    first = CHANNELS.get(kind.replace(f"-{found.instance}", "", 1))
    if first is None or found.instance is None:
        return first
    name = f"{first.name.partition('_')[0]}_{found.instance.upper()}"
    return replace(first, name=f"{name}_2" if name == first.name else name, sensor=found.key, size=found.size_column)


@dataclass(frozen=True)
class ChannelMessages:
    """The messages of a channel by stamp, each once, though several samples may hold it."""

    channel: SensorChannel
    stamps: NDArray[np.int64]
    """(N,) ns since the epoch."""
    samples: NDArray[np.intp]
    """(N,) indices of the samples whose members are read."""
    keyframes: NDArray[np.intp]
    """(N,) numbers of the keyframes that they belong to; -1 for a sweep."""


@dataclass(frozen=True)
class PlacedBoxes:
    """The boxes of a sequence in the map, with the points inside."""

    boxes: Boxes
    turns: Floats
    """(M, 3, 3) axes of the vehicle to those of the map."""
    centres: Floats
    """(M, 3) m."""
    inside: dict[str, NDArray[np.int64]]
    """{modality: (M,) number of points inside of each}."""

    def count(self, modality: str, keyframe: int, points: NDArray[np.void], place: Floats) -> None:
        """Count points of a sensor at `place`, (4, 4) to the map. Threads may share this, each with other keyframes."""
        first, last = np.searchsorted(self.boxes.frame, [keyframe, keyframe + 1]).tolist()
        if first == last:
            return
        mapped = np.column_stack([points[axis].astype(float) for axis in "xyz"]) @ place[:3, :3].T + place[:3, 3]
        mapped = mapped[np.argsort(mapped[:, 0])]
        for n in range(first, last):
            half = np.abs(self.boxes.box[n, 3:]) / 2
            reach = float(np.linalg.norm(half)) + 1e-6  # more than rounding can be off
            start, stop = np.searchsorted(mapped[:, 0], self.centres[n, 0] + np.array([-reach, reach]))
            near = mapped[start:stop] - self.centres[n]
            self.inside[modality][n] += int((np.abs(near @ self.turns[n]) <= half).all(1).sum())


@dataclass
class SceneCounts:
    """Counts collected over all sequences."""

    written: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    categories: dict[str, str] = field(default_factory=dict)
    """Token by category."""
    labels: Counter[str] = field(default_factory=Counter)
    """Labels that kept their own name."""


_EMPTY_MAP = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c636000000002000148afa4710000000049454e44ae426082"
)
"""A PNG of one pixel: the official reader needs a file."""
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


class RecordTables:
    """The tables of nuScenes, written record by record: a drive of hours needs no more memory than one of seconds.

    Their files are under `out` too.
    """

    def __init__(self, out: Path, stack: ExitStack) -> None:
        folder = out / VERSION
        folder.mkdir()
        self.out, self.write_file = out, stack.enter_context(write_files())
        self._tables: dict[str, IO[str]] = {
            name: stack.enter_context((folder / f"{name}.json").open("w", encoding="utf-8")) for name in TABLES
        }
        self._before = dict.fromkeys(TABLES, "[\n")

    def add(self, table: str, record: Mapping[str, Any]) -> None:
        """Append a record."""
        self._tables[table].write(self._before[table] + _encode(record))
        self._before[table] = ",\n"

    def close(self) -> None:
        """Write the ends of the tables."""
        for name, file in self._tables.items():
            file.write("[]\n" if self._before[name] == "[\n" else "\n]\n")


def export(
    dataset: Dataset,
    out: Path,
    report: LossReport,
    progress: Progress,
    keyframe_rate: float | None = None,
    scene_seconds: float | None = None,
    labels: Mapping[str, str] | None = None,
    undistort: bool = False,
) -> None:
    """Write a dataset, or several as one, into the empty folder `out` as nuScenes v1.0; options as in `SYSTEMS`.

    Raises:
        DatasetError: no sequence has poses or a sensor has no known place, and the message names how to get them; or
            two datasets have a sequence of the same name.
        UsageError: a rate or a length is not above 0.
        StorageError: a file cannot be read or written.
    """
    rate = KEYFRAME_RATE if keyframe_rate is None else keyframe_rate
    for flag, value in (("--keyframe-rate", rate), ("--scene-seconds", scene_seconds)):
        if value is not None and not 0 < value < 1e9:
            raise UsageError(f"{flag} {value:g}: must be above 0")
    names = {**USUAL, **{label.casefold(): name for label, name in (labels or {}).items()}}
    found, counts = [drive for part in dataset.parts for drive in list_drives(part)], SceneCounts()
    twice = [name for name, number in Counter(drive.name for drive in found).items() if number > 1]
    if twice:
        raise DatasetError(f"{dataset.title}: several datasets have a sequence {twice[0]!r}; export only one of them")
    found = select_posed(found, report)
    writers = [_SequenceWriter(drive, rate, scene_seconds, names, counts, undistort) for drive in found]
    for writer in writers:
        writer.check()
    splits: dict[str, list[str]] = {}
    with ExitStack() as stack:
        tables = RecordTables(out, stack)
        for name in ("visibility", "attribute"):
            key = "level" if name == "visibility" else "name"
            tables.add(name, {"token": UNKNOWN, key: UNKNOWN, "description": "the dataset does not say"})
        done, total = 0, sum(map(len, found))
        for part in dict.fromkeys(writer.drive.dataset for writer in writers):  # those with poses
            own = [writer for writer in writers if writer.drive.dataset is part]
            groups = read_groups(part, {key for writer in own for key in writer.scene_keys.values()})
            every = read_boxes([(writer.drive, writer.keyframes) for writer in own])
            for writer, boxes in zip(own, every, strict=True):
                writer.write(tables, boxes, partial(_shift, progress, done, total))
                done += len(writer.drive)
                for scene, first in writer.scene_keys.items():
                    if first in groups:
                        splits.setdefault(groups[first], []).append(scene)
        for category, token in counts.categories.items():
            tables.add("category", {"token": token, "name": category, "description": ""})
        for name, of in {name: of.channel for writer in writers for name, of in writer.channels.items()}.items():
            if counts.written[name]:
                token = _hash("sensor", name)
                tables.add("sensor", {"token": token, "channel": name, "modality": of.modality})
        logs = [_hash(drive.name, "log") for drive in found]
        tables.add("map", {"token": _hash("map"), "log_tokens": logs, "category": "semantic_prior", "filename": MAP})
        tables.close()
    (out / MAP).parent.mkdir()
    (out / MAP).write_bytes(_EMPTY_MAP)
    _write_json(out / ORIGIN, {drive.name: drive.place_of_world for drive in found})
    _write_json(out / VERSION / SPLITS, splits)
    _report(report, dataset, counts, found, undistort)


class _SequenceWriter:
    """Writes one sequence: its log, scenes, samples, messages and boxes."""

    def __init__(
        self,
        drive: Drive,
        rate: float,
        scene_seconds: float | None,
        names: Mapping[str, str],
        counts: SceneCounts,
        undistort: bool,
    ) -> None:
        self.drive, self._rate, self._length, self._undistort = drive, rate, scene_seconds, undistort
        self._names, self._counts = names, counts

    # ---- contents -----------------------------------------------------------------------
    @cached_property
    def _kept(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.drive.located)

    @cached_property
    def _stamps(self) -> NDArray[np.int64]:
        return self.drive.stamps[self._kept]

    @cached_property
    def _poses(self) -> Floats:
        """(K, 4, 4) ego to map of the samples with a pose."""
        return self.drive.rig_to_world[self._kept]

    def _pose_at(self, stamps: NDArray[np.int64]) -> Floats:
        """Return the poses at stamps (N,), (N, 4, 4) ego to map, in blocks to need little memory."""
        blocks = [stamps[start : start + BLOCK] for start in range(0, len(stamps), BLOCK)]
        found = (interpolate_poses(self._poses, self._stamps, one) for one in blocks)
        return np.concatenate([np.zeros((0, 4, 4)), *found])

    @cached_property
    def keyframes(self) -> list[int]:
        """Return the samples nearest to the grid, which starts at the first sample with a pose; the earlier of two."""
        start, end, step = int(self._stamps[0]), int(self._stamps[-1]), 1e9 / self._rate
        ticks = start + np.round(np.arange(int((end - start) / step) + 1) * step).astype(np.int64)
        after = np.clip(np.searchsorted(self._stamps, ticks), 1, max(1, len(self._stamps) - 1))
        if len(self._stamps) == 1:
            return [int(self._kept[0])]
        nearer = ticks - self._stamps[after - 1] <= self._stamps[after] - ticks
        return [int(n) for n in self._kept[np.unique(np.where(nearer, after - 1, after))]]

    @cached_property
    def channels(self) -> dict[str, ChannelMessages]:
        """Messages of each channel. Each message comes once, with its keyframe if it has one."""
        number = np.full(len(self.drive), -1, np.intp)
        number[self.keyframes] = np.arange(len(self.keyframes))
        held: dict[str, tuple[SensorChannel, array[int], array[int]]] = {}
        for sample in self._kept.tolist():
            for kind in self.drive.dataset.members(self.drive.samples[sample].key):
                channel = name_channel(kind)
                if channel is not None and self.drive.lacks_intrinsics(kind):
                    self._counts.lost[f"{kind} without CameraInfo"] += 1
                elif channel is not None:
                    _, when, where = held.setdefault(channel.name, (channel, array("q"), array("q")))
                    when.append(self.drive.stamp_of(kind, sample))
                    where.append(sample)
        found = {}
        for name, (channel, *columns) in sorted(held.items()):
            stamps, samples = (np.array(column) for column in columns)
            keyed = number[samples] >= 0
            order = np.lexsort((~keyed, stamps))  # of each stamp the first of a keyframe, else the first
            once = order[np.append(True, np.diff(stamps[order]) > 0)]
            found[name] = ChannelMessages(channel, stamps[once], samples[once], number[samples[once]])
            again = int(keyed.sum() - keyed[once].sum())
            self._counts.lost[f"{name} of a keyframe: the message belongs to the keyframe before"] += again
        return found

    @cached_property
    def scene_keys(self) -> dict[str, Key]:
        """{name of a scene: its first keyframe}."""
        keys = [self.drive.samples[self.keyframes[numbers[0]]].key for numbers in self._scenes]
        name = self.drive.name
        return {name if self._length is None else f"{name}-{piece:04}": key for piece, key in enumerate(keys)}

    @cached_property
    def _scenes(self) -> list[list[int]]:
        """Numbers of the keyframes of each scene."""
        if self._length is None:
            return [list(range(len(self.keyframes)))]
        first = int(self.drive.stamps[self.keyframes[0]])
        pieces: dict[int, list[int]] = {}
        for number, sample in enumerate(self.keyframes):
            pieces.setdefault(int((self.drive.stamps[sample] - first) / 1e9 // self._length), []).append(number)
        return list(pieces.values())

    @cached_property
    def _straighteners(self) -> dict[str, Straightener]:
        cameras = [of.channel for of in self.channels.values() if self._undistort and of.channel.modality == "camera"]
        infos = {channel.name: self.drive.picture_info(channel.sensor) for channel in cameras}
        return {name: Straightener(info) for name, info in infos.items() if np.any(info["d"])}

    def check(self) -> None:
        """Raise DatasetError where places of sensors or intrinsics are unknown, before anything is written."""
        _ = self._straighteners
        for messages in self.channels.values():
            matrix = self._write_calibration(messages.channel)["camera_intrinsic"]
            if not np.isfinite(matrix).all():
                what = f"camera_info of {messages.channel.sensor}: k {matrix} are not the intrinsics of a camera"
                raise DatasetError(f"{self.drive.dataset.paths.frames}: {what}")

    # ---- writing -------------------------------------------------------------------------
    def write(self, tables: RecordTables, boxes: Boxes, progress: Callable[[int], None]) -> None:
        """Write the sequence, with the boxes of its keyframes, into the tables and the folders beside them."""
        drive = self.drive
        start = datetime.fromtimestamp(int(drive.stamps[0]) / 1e9, timezone.utc)
        origin = drive.place_of_world
        log = {"token": self._token("log"), "logfile": drive.name, "vehicle": find_host(drive.name)}
        place = "{latitude:.6f},{longitude:.6f}".format(**origin) if "ecef" in origin else str(origin["frame"])
        tables.add("log", log | {"date_captured": start.strftime("%Y-%m-%d"), "location": place})
        self._counts.lost["samples without a pose"] += len(drive) - len(self._kept)
        self._write_samples(tables)
        placed = self._place_boxes(boxes)
        for messages in self.channels.values():
            tables.add("calibrated_sensor", self._write_calibration(messages.channel))
            self._write_messages(tables, messages, placed, progress)
        self._write_boxes(tables, placed)

    def _token(self, *what: object) -> str:
        return _hash(self.drive.name, *what)

    @cached_property
    def _sample_tokens(self) -> list[str]:
        return [self._token("sample", self.drive.samples[sample].frame) for sample in self.keyframes]

    def _write_samples(self, tables: RecordTables) -> None:
        for piece, (name, numbers) in enumerate(zip(self.scene_keys, self._scenes, strict=True)):
            scene, tokens = self._token("scene", piece), [self._sample_tokens[n] for n in numbers]
            record = {
                "token": scene, "log_token": self._token("log"), "nbr_samples": len(numbers), "name": name,
                "first_sample_token": tokens[0], "last_sample_token": tokens[-1], "description": "",
            }  # fmt: skip
            tables.add("scene", record)
            for number, before, token, after in zip(numbers, ["", *tokens], tokens, [*tokens[1:], ""], strict=False):
                stamp = int(self.drive.stamps[self.keyframes[number]])
                links = {"prev": before, "next": after, "scene_token": scene}
                tables.add("sample", {"token": token, "timestamp": _to_micro(stamp)} | links)
            self._counts.written["samples"] += len(numbers)
            self._counts.written["scenes"] += 1

    def _write_calibration(self, channel: SensorChannel) -> dict[str, Any]:
        place, intrinsic = self.drive.place(channel.sensor), []
        if channel.modality == "camera":
            intrinsic = np.array(self.drive.picture_info(channel.sensor)["k"], float).reshape(3, 3).tolist()
        return {
            "token": self._token("calibrated", channel.name), "sensor_token": _hash("sensor", channel.name),
            "translation": place[:3, 3].tolist(), "rotation": _to_wxyz(place).tolist(), "camera_intrinsic": intrinsic,
        }  # fmt: skip

    def _write_messages(
        self, tables: RecordTables, messages: ChannelMessages, placed: PlacedBoxes, progress: Callable[[int], None]
    ) -> None:
        """Write the files of a channel, and their records with prev and next in each scene; count points in boxes."""
        channel = messages.channel
        for folder in ("samples", "sweeps"):
            (tables.out / folder / channel.name).mkdir(parents=True, exist_ok=True)
        keys = self.drive.stamps[self.keyframes]
        following = np.minimum(np.searchsorted(keys, messages.stamps), len(keys) - 1)  # of a sweep
        owners = np.where(messages.keyframes < 0, following, messages.keyframes)
        scenes = np.repeat(np.arange(len(self._scenes)), [len(numbers) for numbers in self._scenes])[owners]
        sizes = np.nan_to_num(self.drive.values(channel.size, 2)).astype(int)
        calibrated = self._token("calibrated", channel.name)
        waiting: dict[str, Any] | None = None
        scene, velocities = -1, self._velocities(messages) if channel.modality == "radar" else np.zeros((0, 3))
        poses = self._pose_at(messages.stamps)
        turns = _to_wxyz(poses)
        make = partial(self._make_file, messages, poses, velocities, placed)
        quick = channel.name not in self._straighteners and not is_remote(self.drive.dataset.paths.container)
        with closing(make_ahead(range(len(messages.stamps)), make, quick=quick)) as made:
            for index, data in made:
                if data is None:
                    self._counts.lost[f"{channel.name} without points"] += 1
                    continue
                name, stamp = self._file_name(messages, index), int(messages.stamps[index])
                tables.write_file(f"{tables.out}/{name}", data)
                token, sample = self._token(channel.name, stamp), int(messages.samples[index])
                place = {"translation": poses[index, :3, 3].tolist(), "rotation": turns[index].tolist()}
                tables.add("ego_pose", {"token": token, "timestamp": _to_micro(stamp)} | place)
                width, height = sizes[sample].tolist() if channel.modality == "camera" else (0, 0)
                record = {
                    "token": token, "sample_token": self._sample_tokens[owners[index]], "ego_pose_token": token,
                    "calibrated_sensor_token": calibrated,
                    "timestamp": _to_micro(stamp), "fileformat": channel.suffix.split(".")[1],
                    "is_key_frame": bool(messages.keyframes[index] >= 0), "height": height, "width": width,
                    "filename": name, "prev": "", "next": "",
                }  # fmt: skip
                if waiting is not None:
                    if scenes[index] == scene:
                        waiting["next"], record["prev"] = token, waiting["token"]
                    tables.add("sample_data", waiting)
                waiting, scene = record, int(scenes[index])
                self._counts.written[channel.name] += 1
                progress(sample)
        if waiting is not None:
            tables.add("sample_data", waiting)

    def _file_name(self, messages: ChannelMessages, index: int) -> str:
        name, folder = messages.channel.name, "sweeps" if messages.keyframes[index] < 0 else "samples"
        stamp = _to_micro(int(messages.stamps[index]))
        return f"{folder}/{name}/{self.drive.name}__{name}__{stamp}{messages.channel.suffix}"

    def _find(self, messages: ChannelMessages, index: int) -> tuple[Sample, str]:
        """Return the sample and kind of member of a message."""
        sample = self.drive.samples[int(messages.samples[index])]
        kinds = ((kind, name_channel(kind)) for kind in self.drive.dataset.members(sample.key))
        return sample, next(kind for kind, channel in kinds if channel and channel.name == messages.channel.name)

    def _read_cloud(self, messages: ChannelMessages, index: int) -> NDArray[np.void]:
        """Return the finite points of a message."""
        sample, kind = self._find(messages, index)
        data = sample.read(kind)
        try:
            return _select_finite(decode_grid(data, writable=False))
        except DatasetError as error:
            raise DatasetError(f"{self.drive.dataset.container.path}: {sample.member(kind)!r}: {error}") from error

    def _make_file(
        self, messages: ChannelMessages, poses: Floats, velocities: Floats, placed: PlacedBoxes, index: int
    ) -> bytes | None:
        """Return the file of a message; None for a cloud without points, which has no file."""
        channel = messages.channel
        if channel.modality == "camera":
            sample, kind = self._find(messages, index)
            data = sample.read(kind)
            if channel.name in self._straighteners:
                data = _encode_picture(self._straighteners[channel.name].straighten(sample.decode(kind)), kind)
        else:
            points = self._read_cloud(messages, index)
            if not len(points):
                return None
            if messages.keyframes[index] >= 0:
                place = poses[index] @ self.drive.place(channel.sensor)
                placed.count(channel.modality, int(messages.keyframes[index]), points, place)
            data = pack_lidar(points) if channel.modality == "lidar" else pack_radar(points, velocities[index])
        return data

    def _velocities(self, messages: ChannelMessages) -> Floats:
        """Return the velocity of a sensor over ground in its own axes at each message, (N, 3) m/s."""
        place = self.drive.place(messages.channel.sensor)
        before, now, after = (self._pose_at(messages.stamps + step) @ place for step in (-STEP, 0, STEP))
        moved = np.swapaxes(now[:, :3, :3], 1, 2) @ (after[:, :3, 3] - before[:, :3, 3])[..., None]
        return moved[..., 0] / (2 * STEP / 1e9)

    # ---- boxes ---------------------------------------------------------------------------
    def _place_boxes(self, boxes: Boxes) -> PlacedBoxes:
        """Return the boxes of the keyframes as they are at the keyframes' stamps."""
        axes = self._poses[np.searchsorted(self._stamps, self.drive.stamps[self.keyframes])][boxes.frame]
        centres = np.einsum("nij,nj->ni", axes[:, :3, :3], boxes.box[:, :3]) + axes[:, :3, 3]
        inside = {modality: np.zeros(len(centres), np.int64) for modality in ("lidar", "radar")}
        return PlacedBoxes(boxes, axes[:, :3, :3], centres, inside)

    def _write_boxes(self, tables: RecordTables, placed: PlacedBoxes) -> None:
        """Write the boxes as annotations of instances."""
        counts, boxes, rotations = self._counts, placed.boxes, _to_wxyz(placed.turns)
        counts.lost["box3d that is not finite"] += boxes.broken
        sightings: dict[tuple[str, str], list[int]] = {}
        for n, track in enumerate(boxes.tracks):
            sightings.setdefault((track, self._category(boxes.labels[n])), []).append(n)
        for (track, category), places in sightings.items():
            instance, token = self._token("instance", track, category), _hash("category", category)
            counts.categories.setdefault(category, token)
            tokens = [self._token("annotation", track, category, int(boxes.frame[n])) for n in places]
            tables.add(
                "instance",
                {
                    "token": instance, "category_token": token,
                    "nbr_annotations": len(places),
                    "first_annotation_token": tokens[0], "last_annotation_token": tokens[-1],
                },
            )  # fmt: skip
            for n, before, token, after in zip(places, ["", *tokens], tokens, [*tokens[1:], ""], strict=False):
                long, wide, high = np.abs(boxes.box[n, 3:]).tolist()
                tables.add(
                    "sample_annotation",
                    {
                        "token": token, "sample_token": self._sample_tokens[boxes.frame[n]],
                        "instance_token": instance, "visibility_token": UNKNOWN, "attribute_tokens": [],
                        "translation": placed.centres[n].tolist(), "size": [wide, long, high],
                        "rotation": rotations[n].tolist(), "prev": before, "next": after,
                        "num_lidar_pts": int(placed.inside["lidar"][n]),
                        "num_radar_pts": int(placed.inside["radar"][n]),
                    },
                )  # fmt: skip
            counts.written["boxes"] += len(places)
            counts.written["instances"] += 1

    def _category(self, label: str | None) -> str:
        known = self._names.get((label or UNKNOWN).casefold())
        if known is None:
            self._counts.labels[label or UNKNOWN] += 1
        return known or label or UNKNOWN


def pack_lidar(points: NDArray[np.void]) -> bytes:
    """Return points as x, y, z, intensity (0 to 255), ring: (N, 5) float32.

    An intensity of 8 bits stays, one of 16 bits is scaled, a float is cut to 0..255; without any it is 0.
    """
    names = points.dtype.names or ()
    packed = np.zeros((len(points), 5), "<f4")
    for column, axis in enumerate("xyz"):
        packed[:, column] = points[axis]
    for name in ("intensity", "reflect", "reflectivity", "i"):
        if name in names:
            values = points[name]
            if values.dtype != np.uint8:
                scale = 257 if values.dtype == np.uint16 else 1
                values = np.clip(np.nan_to_num(values.astype(float) / scale), 0, 255)
            packed[:, 3] = values
            break
    for name in (name for name in ("line", "channel", "ring") if name in names):  # of Livox, Autoware, others
        packed[:, 4] = points[name]
    return packed.tobytes()


def pack_radar(points: NDArray[np.void], velocity: Floats) -> bytes:
    """Return points as a PCD file of nuScenes' 18 fields.

    Args:
        points: structured (N,), m in the sensor's axes, with the speed along the ray as `find_speed_field` finds it.
        velocity: (3,) m/s of the sensor over ground, in its own axes; compensates `vx_comp` and `vy_comp`.
    """
    names = points.dtype.names or ()
    found = np.frombuffer(bytearray(_RETURN.tobytes() * len(points)), RADAR)
    place = np.empty((len(points), 3))
    for column, axis in enumerate("xyz"):
        place[:, column] = found[axis] = points[axis]
    length = np.sqrt(np.add.reduce(place * place, 1, keepdims=True))
    ray = np.divide(place, length, out=np.zeros(place.shape), where=length > 0)
    name = find_speed_field(names)
    speed = points[name].astype(float) if name is not None else np.zeros(len(points))
    for suffix, along in (("", speed), ("_comp", speed + ray @ velocity)):
        found[f"vx{suffix}"], found[f"vy{suffix}"] = along * ray[:, 0], along * ray[:, 1]
    same = ("rcs", "vx", "vy", "vx_comp", "vy_comp") if "vx_comp" in names else ("rcs",)
    for name in names:
        if name.lower() in same:
            found[name.lower()] = points[name]
    found["id"] = np.arange(len(points)) % (1 << 15)
    return _RADAR_HEADER.format(len(points)).encode() + found.tobytes() + b"\n"  # official reader: one byte more


def _shift(progress: Progress, done: int, total: int, number: int) -> None:
    progress("samples", done + number, total)


def _select_finite(points: NDArray[np.void]) -> NDArray[np.void]:
    flat = points.reshape(-1)
    finite = np.logical_and.reduce([np.isfinite(flat[axis]) for axis in "xyz"])
    return flat if finite.all() else flat[finite]


def _hash(*what: object) -> str:
    """Return the token of a record: the same for the same dataset in every export."""
    text = hashlib.sha1(uuid.NAMESPACE_URL.bytes + "/".join(map(str, what)).encode(), usedforsecurity=False).hexdigest()
    return f"{text[:12]}5{text[13:16]}{'89ab'[int(text[16], 16) & 3]}{text[17:32]}"  # a UUID of version 5


def _to_micro(stamp: int) -> int:
    """Return a stamp in us, which is what nuScenes counts."""
    return (stamp + 500) // 1000


def _to_wxyz(poses: Floats) -> Floats:
    """Return (..., 4) quaternions of poses as nuScenes orders them: w, x, y, z."""
    return np.roll(make_quaternion(poses[..., :3, :3]), 1, -1)


def _encode_picture(pixels: NDArray[np.uint8], kind: str) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind.rpartition(".")[2], quality=95)
    return data.getvalue()


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _report(report: LossReport, dataset: Dataset, counts: SceneCounts, found: Sequence[Drive], undistort: bool) -> None:
    written = counts.written
    report.add("sequences", "log, scene", "", len(found))
    report.add("samples", "sample", "between keyframes only their messages, as sweeps", written["samples"])
    report.add(f"poses ({describe_sources(found)})", f"ego_pose; {ORIGIN}")
    parts = dataset.parts
    present = Counter(kind for part in parts for sample in part.samples() for kind in part.members(sample.key))
    for kind, number in sorted(present.items()):
        channel = name_channel(kind)
        if channel is None:
            report.add(kind, "", NO_HOME, number)
        else:
            fields = {"radar": "fields beside x, y, z, speed, rcs", "lidar": "fields beside x, y, z, intensity, ring"}
            left = counts.lost[f"{channel.name} without points"] + counts.lost[f"{kind} without CameraInfo"]
            twice = number - written[channel.name] - left
            again = f"{twice} members that repeat a message or have no pose" if twice else ""
            lost = "; ".join(filter(None, (fields.get(channel.modality), again)))
            report.add(kind, f"samples/{channel.name}, sweeps/{channel.name}", lost, written[channel.name])
    columns: Counter[str] = Counter()
    for part in parts:
        columns.update(count_values(part))
    others = columns["box3d"] - written["boxes"] - counts.lost["box3d that is not finite"]
    counts.lost["box3d between keyframes, or without a pose"] = others
    for what, number in sorted(counts.lost.items()):
        report.count(what, "", "not written", number)
    homes = dict.fromkeys(("name", "frame", "timestamp", "location", "pose"), ("log, sample, ego_pose", ""))
    homes["group"] = (f"{VERSION}/{SPLITS}", "")
    if "box3d" in columns:
        homes["box3d"] = ("sample_annotation", "the heading: boxes are turned as the vehicle is")
        own = ", ".join(f"{label} ({number})" for label, number in counts.labels.most_common(8))
        homes["label"] = ("category", f"labels that nuScenes does not have keep their name: {own}" if own else "")
        homes["object_id"] = ("instance", "the id")
    for name, number in columns.items():
        report.add(name, *homes.get(name, ("", NO_HOME)), number)
    infos = [part.calibration(name).camera_info or {} for part in parts for name in part.sequences]
    lost = "the pictures' first encoding and EXIF" if undistort else "the distortion; undistort takes it out"
    bent = any(any(info.get("d") or ()) for info in infos)
    report.add("camera intrinsics", "calibrated_sensor", lost if bent else "", len(infos))
    report.add("static transforms", "calibrated_sensor")
