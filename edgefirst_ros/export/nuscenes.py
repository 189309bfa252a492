# SPDX-License-Identifier: Apache-2.0
"""A dataset as nuScenes v1.0: tables as JSON, keyframes under `samples`, all other messages under `sweeps`.

Frames: `ego` is base_link (x forward, y left, z up); the map has its origin at the first sample with a
pose and the axes of the poses' frame, or without poses ENU, in m.
Source: the schema of nuScenes v1.0, and nuscenes-devkit 1.2 (NuScenes, LidarPointCloud, RadarPointCloud).
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import host_of
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export.drive import Drive, describe_sources, drives, measured
from edgefirst_ros.export.output import NO_HOME, LossReport, ahead
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.transforms import Floats, between, quaternion
from edgefirst_ros.streams import of_kind

VERSION = "v1.0-trainval"
"""Name of the folder of tables: the one that training frameworks ask for."""
TABLES = (
    "category", "attribute", "visibility", "instance", "sensor", "calibrated_sensor", "ego_pose", "log", "scene",
    "sample", "sample_data", "sample_annotation", "map",
)  # fmt: skip
MAP, ORIGIN, SPLITS = "maps/none.png", "origin.json", "splits.json"
KEYFRAME_RATE = 2.0
"""Hz; nuScenes annotates keyframes at this rate."""
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
DYN_UNKNOWN, UNAMBIGUOUS = 4, 3
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


CHANNELS = {
    "camera.jpeg": SensorChannel("CAM_FRONT", "camera", "camera", ".jpg"),
    "camera.png": SensorChannel("CAM_FRONT", "camera", "camera", ".png"),
    "lidar.pcd": SensorChannel("LIDAR_TOP", "lidar", "lidar", ".pcd.bin"),
    "radar.pcd": SensorChannel("RADAR_FRONT", "radar", "radar", ".pcd"),
}
"""Channels by kind of member, of the first instance of each sensor."""


@lru_cache(1024)
def channel_of(kind: str) -> SensorChannel | None:
    """Return the channel of a kind of member: LIDAR_REAR of `lidar-rear.pcd`; None for one without."""
    try:
        found = of_kind(kind)
    except KeyError:
        return None
    first = CHANNELS.get(kind.replace(f"-{found.instance}", "", 1))
    if first is None or found.instance is None:
        return first
    name = f"{first.name.partition('_')[0]}_{found.instance.upper()}"
    return replace(first, name=f"{name}_2" if name == first.name else name, sensor=found.key)


@dataclass(frozen=True)
class SceneMessage:
    """One message of a sensor, which several samples may hold."""

    stamp: int
    """ns since the epoch."""
    sample: int
    """Index of the sample whose member is read."""
    kind: str
    keyframe: int | None
    """Index of the keyframe that it belongs to; None for a sweep."""


@dataclass
class SceneCounts:
    """Counts collected over all sequences."""

    written: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    categories: dict[str, str] = field(default_factory=dict)
    """Token by category."""
    labels: Counter[str] = field(default_factory=Counter)
    """Labels that kept their own name."""


class RecordTables:
    """The tables of nuScenes, written record by record: a drive of hours needs no more memory than one of seconds."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self._files: dict[str, IO[str]] = {
            name: stack.enter_context((folder / f"{name}.json").open("w", encoding="utf-8")) for name in TABLES
        }
        self._started: set[str] = set()

    def add(self, table: str, record: Mapping[str, Any]) -> None:
        """Append a record."""
        self._files[table].write(",\n" if table in self._started else "[\n")
        self._started.add(table)
        self._files[table].write(json.dumps(record, ensure_ascii=False))

    def close(self) -> None:
        """Write the ends of the tables."""
        for name, file in self._files.items():
            file.write("\n]\n" if name in self._started else "[]\n")


def export(
    dataset: Dataset,
    out: Path,
    report: LossReport,
    progress: Progress,
    keyframe_rate: float | None = None,
    scene_seconds: float | None = None,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Write a dataset into the empty folder `out` as nuScenes v1.0.

    Args:
        dataset: the dataset, or several as one; sequences need stamps, poses of the vehicle and places of the sensors.
        out: empty folder.
        report: gets a line for every sensor and column.
        progress: is called with the samples written so far.
        keyframe_rate: keyframes a second (Hz), 2 by default; all other messages become sweeps.
        scene_seconds: length of a scene in s; by default a sequence is one scene.
        labels: nuScenes categories by label, over the usual ones.

    Raises:
        DatasetError: a sequence has no poses or a sensor has no known place, and the message names how to get them; or
            two datasets have a sequence of the same name.
        UsageError: a rate or a length is not above 0.
        StorageError: a file cannot be read or written.
    """
    rate = KEYFRAME_RATE if keyframe_rate is None else keyframe_rate
    for flag, value in (("--keyframe-rate", rate), ("--scene-seconds", scene_seconds)):
        if value is not None and not 0 < value < 1e9:
            raise UsageError(f"{flag} {value:g}: must be above 0")
    names = {**USUAL, **{label.casefold(): name for label, name in (labels or {}).items()}}
    found, counts = [drive for part in dataset.parts for drive in drives(part)], SceneCounts()
    twice = [name for name, number in Counter(drive.name for drive in found).items() if number > 1]
    if twice:
        raise DatasetError(f"{dataset.title}: several datasets have a sequence {twice[0]!r}; export only one of them")
    writers = [_SequenceWriter(drive, rate, scene_seconds, names, counts) for drive in found]
    for writer in writers:
        writer.check()
    splits: dict[str, list[str]] = {}
    with ExitStack() as stack:
        tables = RecordTables(out / VERSION, stack)
        for name in ("visibility", "attribute"):
            key = "level" if name == "visibility" else "name"
            tables.add(name, {"token": UNKNOWN, key: UNKNOWN, "description": "the dataset does not say"})
        done = 0
        for writer in writers:
            writer.write(tables, out, partial(_shift, progress, done, sum(map(len, found))))
            done += len(writer.drive)
            for scene, group in writer.groups.items():
                splits.setdefault(group, []).append(scene)
        for category, token in counts.categories.items():
            tables.add("category", {"token": token, "name": category, "description": ""})
        for channel in {name: channel for writer in writers for name, channel in writer.channels.items()}.values():
            if counts.written[channel.name]:
                token = _token("sensor", channel.name)
                tables.add("sensor", {"token": token, "channel": channel.name, "modality": channel.modality})
        logs = [_token(drive.name, "log") for drive in found]
        tables.add("map", {"token": _token("map"), "log_tokens": logs, "category": "semantic_prior", "filename": MAP})
        tables.close()
    _write_map(out / MAP)
    _write_json(out / ORIGIN, {drive.name: drive.place_of_world for drive in found})
    _write_json(out / VERSION / SPLITS, splits)
    _report(report, dataset, counts, found)


class _SequenceWriter:
    """Writes one sequence: its log, scenes, samples, messages and boxes."""

    def __init__(
        self, drive: Drive, rate: float, scene_seconds: float | None, names: Mapping[str, str], counts: SceneCounts
    ) -> None:
        self.drive, self._rate, self._length = drive, rate, scene_seconds
        self._names, self._counts = names, counts
        self.groups: dict[str, str] = {}
        """Group of each scene that has one."""

    # ---- what there is -------------------------------------------------------------------
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
        """Interpolate (N, 4, 4) ego to map at stamps in ns."""
        return between(self._poses, self._stamps, stamps)

    @cached_property
    def _keyframes(self) -> list[int]:
        """Return the samples nearest to the grid, which starts at the first sample with a pose; the earlier of two."""
        start, end, step = int(self._stamps[0]), int(self._stamps[-1]), 1e9 / self._rate
        ticks = start + np.round(np.arange(int((end - start) / step) + 1) * step).astype(np.int64)
        after = np.clip(np.searchsorted(self._stamps, ticks), 1, max(1, len(self._stamps) - 1))
        if len(self._stamps) == 1:
            return [int(self._kept[0])]
        nearer = ticks - self._stamps[after - 1] <= self._stamps[after] - ticks
        return [int(n) for n in self._kept[np.unique(np.where(nearer, after - 1, after))]]

    @cached_property
    def _channels(self) -> dict[str, list[SceneMessage]]:
        """Messages of each channel, by stamp. Each message is there once, with its keyframe if it has one."""
        keys = {sample: number for number, sample in enumerate(self._keyframes)}
        found: dict[str, dict[int, SceneMessage]] = {}
        for sample in self._kept.tolist():
            for kind in self.drive.dataset.members(self.drive.samples[sample].key):
                channel = channel_of(kind)
                if channel is None:
                    continue
                stamp = measured(self.drive.rows[sample], kind)
                known = found.setdefault(channel.name, {}).get(stamp)
                number = keys.get(sample)
                if known is None or (known.keyframe is None and number is not None):
                    found[channel.name][stamp] = SceneMessage(stamp, sample, kind, number)
                elif number is not None:
                    self._counts.lost[f"{channel.name} of a keyframe: the message belongs to the keyframe before"] += 1
        return {name: [messages[stamp] for stamp in sorted(messages)] for name, messages in sorted(found.items())}

    @cached_property
    def channels(self) -> dict[str, SensorChannel]:
        found = {name: channel_of(messages[0].kind) for name, messages in self._channels.items()}
        return {name: channel for name, channel in found.items() if channel is not None}

    @cached_property
    def _of_keyframes(self) -> dict[tuple[str, int], SceneMessage]:
        """Return the message of each channel and keyframe (its sample)."""
        return {
            (name, self._keyframes[message.keyframe]): message
            for name, messages in self._channels.items()
            for message in messages
            if message.keyframe is not None
        }

    @cached_property
    def _scenes(self) -> list[list[int]]:
        """Numbers of the keyframes of each scene."""
        if self._length is None:
            return [list(range(len(self._keyframes)))]
        first = int(self.drive.stamps[self._keyframes[0]])
        pieces: dict[int, list[int]] = {}
        for number, sample in enumerate(self._keyframes):
            pieces.setdefault(int((self.drive.stamps[sample] - first) / 1e9 // self._length), []).append(number)
        return list(pieces.values())

    def check(self) -> None:
        """Raise DatasetError where poses, places of sensors or intrinsics are unknown, before anything is written."""
        _ = self._poses
        for channel in self.channels.values():
            self.drive.place(channel.sensor)

    # ---- writing -------------------------------------------------------------------------
    def write(self, tables: RecordTables, out: Path, progress: Callable[[int], None]) -> None:
        """Write the sequence into the tables and the folders of `out`."""
        drive = self.drive
        start = datetime.fromtimestamp(int(drive.stamps[0]) / 1e9, timezone.utc)
        origin = drive.place_of_world
        log = {"token": self._token("log"), "logfile": drive.name, "vehicle": host_of(drive.name)}
        place = "{latitude:.6f},{longitude:.6f}".format(**origin) if "ecef" in origin else str(origin["frame"])
        tables.add("log", log | {"date_captured": start.strftime("%Y-%m-%d"), "location": place})
        self._counts.lost["samples without a pose"] += len(drive) - len(self._kept)
        self._write_samples(tables)
        for name, messages in self._channels.items():
            tables.add("calibrated_sensor", self._calibrated(self.channels[name]))
            self._write_messages(tables, out, self.channels[name], messages, progress)
        self._write_boxes(tables)

    def _token(self, *what: object) -> str:
        return _token(self.drive.name, *what)

    def _sample_token(self, number: int) -> str:
        return self._token("sample", self.drive.samples[self._keyframes[number]].frame)

    def _write_samples(self, tables: RecordTables) -> None:
        for piece, numbers in enumerate(self._scenes):
            scene, tokens = self._token("scene", piece), [self._sample_token(n) for n in numbers]
            name = self.drive.name if self._length is None else f"{self.drive.name}-{piece:04}"
            tables.add(
                "scene",
                {
                    "token": scene, "log_token": self._token("log"), "nbr_samples": len(numbers), "name": name,
                    "first_sample_token": tokens[0], "last_sample_token": tokens[-1], "description": "",
                },
            )  # fmt: skip
            group = self._group(self._keyframes[numbers[0]])
            if group is not None:
                self.groups[name] = group
            for number, before, token, after in zip(numbers, ["", *tokens], tokens, [*tokens[1:], ""], strict=False):
                stamp = int(self.drive.stamps[self._keyframes[number]])
                links = {"prev": before, "next": after, "scene_token": scene}
                tables.add("sample", {"token": token, "timestamp": _micro(stamp)} | links)
            self._counts.written["samples"] += len(numbers)
            self._counts.written["scenes"] += 1

    def _group(self, sample: int) -> str | None:
        table = self.drive.samples[sample].annotations
        group = table["group"][0] if "group" in table.columns and table.height else None
        return None if group is None else str(group)

    def _calibrated(self, channel: SensorChannel) -> dict[str, Any]:
        place, intrinsic = self.drive.place(channel.sensor), []
        if channel.modality == "camera":
            intrinsic = np.array(self.drive.info_of(channel.sensor)["k"], float).reshape(3, 3).tolist()
        return {
            "token": self._token("calibrated", channel.name), "sensor_token": _token("sensor", channel.name),
            "translation": place[:3, 3].tolist(), "rotation": _turned(place), "camera_intrinsic": intrinsic,
        }  # fmt: skip

    def _write_messages(
        self,
        tables: RecordTables,
        out: Path,
        channel: SensorChannel,
        messages: list[SceneMessage],
        progress: Callable[[int], None],
    ) -> None:
        """Write the files of a channel, and their records with prev and next in each scene."""
        for folder in ("samples", "sweeps"):
            (out / folder / channel.name).mkdir(parents=True, exist_ok=True)
        stamps = np.array([message.stamp for message in messages], np.int64)
        poses = self._pose_at(stamps)
        keys = self.drive.stamps[self._keyframes]
        following = np.minimum(np.searchsorted(keys, stamps), len(keys) - 1)  # a sweep belongs to the keyframe after it
        owners = [m.keyframe if m.keyframe is not None else int(n) for m, n in zip(messages, following, strict=True)]
        scene_of = {number: piece for piece, numbers in enumerate(self._scenes) for number in numbers}
        make = partial(self._make, channel)
        waiting: dict[str, Any] | None = None
        for index, (message, data) in enumerate(self._prepare(messages, make, poses)):
            if data is None:
                self._counts.lost[f"{channel.name} without points"] += 1
                continue
            kind = "samples" if message.keyframe is not None else "sweeps"
            name = f"{kind}/{channel.name}/{self.drive.name}__{channel.name}__{_micro(message.stamp)}{channel.suffix}"
            (out / name).write_bytes(data)
            token, row = self._token(channel.name, message.stamp), self.drive.rows[message.sample]
            tables.add("ego_pose", {"token": token, "timestamp": _micro(message.stamp)} | _placed(poses[index]))
            size = "size" if channel.sensor == "camera" else f"{channel.sensor.replace('.', '_')}_size"
            width, height = (row.get(size) or (0, 0)) if channel.modality == "camera" else (0, 0)
            record = {
                "token": token, "sample_token": self._sample_token(owners[index]), "ego_pose_token": token,
                "calibrated_sensor_token": self._token("calibrated", channel.name),
                "timestamp": _micro(message.stamp), "fileformat": channel.suffix.split(".")[1],
                "is_key_frame": message.keyframe is not None, "height": height, "width": width, "filename": name,
                "prev": "", "next": "", "scene": scene_of[owners[index]],
            }  # fmt: skip
            if waiting is not None:
                if waiting["scene"] == record["scene"]:
                    waiting["next"], record["prev"] = token, waiting["token"]
                tables.add("sample_data", _without(waiting, "scene"))
            waiting = record
            self._counts.written[channel.name] += 1
            progress(message.sample)
        if waiting is not None:
            tables.add("sample_data", _without(waiting, "scene"))

    def _prepare(
        self, messages: list[SceneMessage], make: Callable[[tuple[SceneMessage, Floats]], bytes | None], poses: Floats
    ) -> Iterator[tuple[SceneMessage, bytes | None]]:
        for (message, _), data in ahead(zip(messages, poses, strict=True), make):
            yield message, data

    def _points(self, channel: str, sample: int) -> Floats:
        """Return the finite points of a channel in a keyframe, (N, 3) m in the map; none without a message."""
        found = self._of_keyframes.get((channel, sample))
        if found is None:
            return np.zeros((0, 3))
        points = _finite(decode_cloud(self.drive.samples[found.sample].read(found.kind)))
        place = self._pose_at(np.array([found.stamp], np.int64))[0] @ self.drive.place(self.channels[channel].sensor)
        placed: Floats = (
            np.column_stack([points[axis].astype(float) for axis in "xyz"]) @ place[:3, :3].T + place[:3, 3]
        )
        return placed

    def _make(self, channel: SensorChannel, given: tuple[SceneMessage, Floats]) -> bytes | None:
        """Return the bytes of a message's file; None for a cloud without points."""
        message, _ = given
        sample = self.drive.samples[message.sample]
        data = sample.read(message.kind)
        if channel.modality == "camera":
            return data
        try:
            points = _finite(decode_cloud(data))
        except DatasetError as error:
            path = self.drive.dataset.container.path
            raise DatasetError(f"{path}: {sample.member(message.kind)!r}: {error}") from error
        if not len(points):
            return None
        if channel.modality == "lidar":
            return pack_lidar(points)
        return pack_radar(points, self._velocity(channel, message.stamp))

    def _velocity(self, channel: SensorChannel, stamp: int) -> Floats:
        """Return the velocity of a sensor over ground in its own axes, (3,) m/s."""
        place = self.drive.place(channel.sensor)
        before, now, after = self._pose_at(np.array([stamp - STEP, stamp, stamp + STEP], np.int64)) @ place
        moved: Floats = now[:3, :3].T @ (after[:3, 3] - before[:3, 3]) / (2 * STEP / 1e9)
        return moved

    # ---- boxes ---------------------------------------------------------------------------
    def _write_boxes(self, tables: RecordTables) -> None:
        """Write the boxes of the keyframes, at the keyframes' stamps, as annotations of instances."""
        drive, kept, counts = self.drive, self._keyframes, self._counts
        every = drive.read_boxes(self._kept.tolist())
        counts.lost["box3d that is not finite"] += every.broken
        axes = self._poses[every.frame]
        centres = np.einsum("nij,nj->ni", axes[:, :3, :3], every.box[:, :3]) + axes[:, :3, 3]
        tracks = self._name_tracks(every.objects, every.frame)
        number_of = {sample: number for number, sample in enumerate(kept)}
        chosen = [n for n, frame in enumerate(every.frame.tolist()) if int(self._kept[frame]) in number_of]
        counts.lost["box3d between keyframes"] += len(every.frame) - len(chosen)
        sightings: dict[tuple[str, str], list[int]] = {}
        for n in chosen:
            sightings.setdefault((tracks[n], self._category(every.labels[n])), []).append(n)
        chosen_samples = {n: int(self._kept[every.frame[n]]) for n in chosen}
        inside = self._count_points(chosen_samples, axes[:, :3, :3], centres, every.box[:, 3:])
        for (track, category), places in sightings.items():
            instance = self._token("instance", track, category)
            tokens = [self._token("annotation", track, category, int(every.frame[n])) for n in places]
            tables.add(
                "instance",
                {
                    "token": instance, "category_token": self._category_token(category),
                    "nbr_annotations": len(places),
                    "first_annotation_token": tokens[0], "last_annotation_token": tokens[-1],
                },
            )  # fmt: skip
            for n, before, token, after in zip(places, ["", *tokens], tokens, [*tokens[1:], ""], strict=False):
                long, wide, high = np.abs(every.box[n, 3:]).tolist()
                lidar, radar = inside[n]
                tables.add(
                    "sample_annotation",
                    {
                        "token": token, "sample_token": self._sample_token(number_of[int(self._kept[every.frame[n]])]),
                        "instance_token": instance, "visibility_token": UNKNOWN, "attribute_tokens": [],
                        "translation": centres[n].tolist(), "size": [wide, long, high],
                        "rotation": _turned(axes[n]), "prev": before, "next": after,
                        "num_lidar_pts": lidar, "num_radar_pts": radar,
                    },
                )  # fmt: skip
            counts.written["boxes"] += len(places)
            counts.written["instances"] += 1

    def _names_of(self, modality: str) -> list[str]:
        return [channel.name for channel in self.channels.values() if channel.modality == modality]

    def _name_tracks(self, objects: list[str | None], frames: NDArray[np.intp]) -> list[str]:
        """Return the track of each box; without an object, or as the second of one in a frame, its own."""
        seen: set[tuple[str, int]] = set()
        found = []
        for number, (thing, frame) in enumerate(zip(objects, frames.tolist(), strict=True)):
            known = thing is not None and (thing, frame) not in seen
            found.append(str(thing) if known else f"#{number}")
            seen.add((str(thing), frame))
        return found

    def _category(self, label: str | None) -> str:
        known = self._names.get((label or UNKNOWN).casefold())
        if known is None:
            self._counts.labels[label or UNKNOWN] += 1
        return known or label or UNKNOWN

    def _category_token(self, category: str) -> str:
        return self._counts.categories.setdefault(category, _token("category", category))

    def _count_points(
        self, boxes: Mapping[int, int], turned: Floats, centres: Floats, extents: Floats
    ) -> dict[int, tuple[int, int]]:
        """Return how many lidar and radar points are in each box; `boxes`: {number: sample of its keyframe}."""
        found = {}
        for sample, numbers in _group(boxes).items():
            clouds = [
                np.vstack([np.zeros((0, 3)), *(self._points(name, sample) for name in self._names_of(modality))])
                for modality in ("lidar", "radar")
            ]
            for n in numbers:
                half = np.abs(extents[n]) / 2
                inside = [(np.abs((cloud - centres[n]) @ turned[n]) <= half).all(1).sum() for cloud in clouds]
                found[n] = int(inside[0]), int(inside[1])
        return found


def pack_lidar(points: NDArray[np.void]) -> bytes:
    """Return points as x, y, z, intensity (0 to 255), ring: (N, 5) float32.

    An intensity of 8 bits stays, one of 16 bits is scaled, a float is cut to 0..255; without any it is 0.
    """
    names = points.dtype.names or ()
    packed = np.zeros((len(points), 5), "<f4")
    for column, axis in enumerate("xyz"):
        packed[:, column] = points[axis]
    for name in ("intensity", "reflect", "reflectivity"):
        if name in names:
            scale = 257 if points[name].dtype == np.uint16 else 1
            packed[:, 3] = np.clip(np.nan_to_num(points[name].astype(float) / scale), 0, 255)
            break
    if "ring" in names:
        packed[:, 4] = points["ring"]
    return packed.tobytes()


def pack_radar(points: NDArray[np.void], velocity: Floats) -> bytes:
    """Return points as a PCD file of nuScenes' 18 fields.

    Args:
        points: structured (N,), m in the sensor's axes, `speed` along the ray in m/s, away is positive.
        velocity: (3,) m/s of the sensor over ground, in its own axes; compensates `vx_comp` and `vy_comp`.
    """
    names = points.dtype.names or ()
    found = np.zeros(len(points), RADAR)
    place = np.column_stack([points[axis].astype(float) for axis in "xyz"])
    for column, axis in enumerate("xyz"):
        found[axis] = place[:, column]
    length = np.linalg.norm(place, axis=1, keepdims=True)
    ray = np.divide(place, length, out=np.zeros_like(place), where=length > 0)
    speed = points["speed"].astype(float) if "speed" in names else np.zeros(len(points))
    for suffix, along in (("", speed), ("_comp", speed + ray @ velocity)):
        found[f"vx{suffix}"], found[f"vy{suffix}"] = along * ray[:, 0], along * ray[:, 1]
    if "rcs" in names:
        found["rcs"] = points["rcs"]
    found["dyn_prop"], found["ambig_state"], found["is_quality_valid"] = DYN_UNKNOWN, UNAMBIGUOUS, 1
    found["id"] = np.arange(len(points)) % (1 << 15)
    fields = [(name, RADAR[name]) for name in RADAR.names or ()]
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {' '.join(name for name, _ in fields)}\n"
        f"SIZE {' '.join(str(kind.itemsize) for _, kind in fields)}\n"
        f"TYPE {' '.join('F' if kind.kind == 'f' else 'I' for _, kind in fields)}\n"
        f"COUNT {' '.join('1' for _ in fields)}\nWIDTH {len(points)}\nHEIGHT 1\n"
        f"VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(points)}\nDATA binary\n"
    )
    return header.encode() + found.tobytes() + b"\n"  # the official reader wants one byte after the last point


def _shift(progress: Progress, done: int, total: int, number: int) -> None:
    progress("samples", done + number, total)


def _group(keys: Mapping[int, Any]) -> dict[Any, list[int]]:
    found: dict[Any, list[int]] = {}
    for number, key in keys.items():
        found.setdefault(key, []).append(number)
    return found


def _finite(points: NDArray[np.void]) -> NDArray[np.void]:
    flat = points.reshape(-1)
    finite: NDArray[np.void] = flat[np.isfinite(np.column_stack([flat[axis].astype(float) for axis in "xyz"])).all(1)]
    return finite


def _token(*what: object) -> str:
    """Return the token of a record: the same for the same dataset, whatever else is exported."""
    return uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, what))).hex


def _micro(stamp: int) -> int:
    """Return a stamp in us, which is what nuScenes counts."""
    return (stamp + 500) // 1000


def _placed(pose: Floats) -> dict[str, Any]:
    return {"translation": pose[:3, 3].tolist(), "rotation": _turned(pose)}


def _turned(turn: Floats) -> list[float]:
    """Return the quaternion of a pose or rotation as nuScenes orders it: w, x, y, z."""
    x, y, z, w = quaternion(turn[:3, :3])
    return [w, x, y, z]


def _without(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_map(path: Path) -> None:
    """Write an empty map of one pixel: the official reader needs a file."""
    from PIL import Image

    path.parent.mkdir()
    Image.new("L", (1, 1)).save(path)


def _report(report: LossReport, dataset: Dataset, counts: SceneCounts, found: Sequence[Drive]) -> None:
    written = counts.written
    report.add("sequences", "log, scene", "", len(found))
    report.add("samples", "sample", "between keyframes only their messages, as sweeps", written["samples"])
    report.add(f"poses ({describe_sources(found)})", f"ego_pose; {ORIGIN}")
    parts = dataset.parts
    present = Counter(kind for part in parts for sample in part.samples() for kind in part.members(sample.key))
    for kind, number in sorted(present.items()):
        channel = channel_of(kind)
        if channel is None:
            report.add(kind, "", NO_HOME, number)
        else:
            lost = {"radar": "power, noise", "lidar": "fields beside x, y, z, intensity, ring"}.get(
                channel.modality, ""
            )
            twice = number - written[channel.name] - counts.lost[f"{channel.name} without points"]
            again = f"{twice} members that repeat a message or have no pose" if twice else ""
            where = f"samples/{channel.name}, sweeps/{channel.name}"
            report.add(kind, where, "; ".join(filter(None, (lost, again))), written[channel.name])
    for what, number in sorted(counts.lost.items()):
        if number:
            report.add(what, "", "not written", number)
    homes = dict.fromkeys(("name", "frame", "timestamp", "location", "pose"), ("log, sample, ego_pose", ""))
    homes["group"] = (f"{VERSION}/{SPLITS}", "")
    columns: Counter[str] = Counter()
    for part in parts:
        table = part.annotations
        columns.update({name: table.height - table[name].null_count() for name in part.annotation_columns})
    if "box3d" in columns:
        homes["box3d"] = ("sample_annotation", "the heading: boxes are turned as the vehicle is")
        own = ", ".join(f"{label} ({number})" for label, number in counts.labels.most_common(8))
        homes["label"] = ("category", f"labels that nuScenes does not have keep their name: {own}" if own else "")
        homes["object_id"] = ("instance", "the id")
    for name, number in columns.items():
        report.add(name, *homes.get(name, ("", NO_HOME)), number)
    infos = [part.calibration(name).camera_info or {} for part in parts for name in part.sequences]
    bent = sum(any(info.get("d") or ()) for info in infos)
    report.add("camera intrinsics", "calibrated_sensor", "the distortion" if bent else "", len(infos))
    report.add("static transforms", "calibrated_sensor")
