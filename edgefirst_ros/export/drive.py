# SPDX-License-Identifier: Apache-2.0
"""One sequence of a dataset for an export: samples with stamps, poses of the vehicle, extrinsics of the sensors.

Frames: `rig` is base_link (x forward, y left, z up). The world has its origin at the first pose; its axes are those of
the dataset's `pose_frame`, or without poses ENU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.sequences import SequenceCalibration
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.sensors.transforms import (
    BASE,
    Floats,
    ecef,
    frames_from,
    inverse,
    move_boxes,
    pose,
    rotation,
    world_to_ecef,
)
from edgefirst_ros.streams import CAMERA, of_columns

WAYS = (
    "convert the recording again with a topic of poses (pose_topic: /odom), two frames of /tf (in a rig pose: {tf: "
    "[map, base_link]}), or messages of GPS and IMU"
)
"""Ways to have poses, for messages."""


def measured(row: Mapping[str, Any], kind: str) -> int:
    """Return the stamp of a member, ns since the epoch: its own in the frames row, else that of the sample."""
    columns = [f"{sensor.column}_timestamp" for sensor in of_columns(row) if kind in sensor.kinds]
    return int(next((row[name] for name in columns if row.get(name) is not None), row["timestamp"]))


@dataclass(frozen=True)
class Boxes:
    """Boxes in space of some samples, (M, ...), in the order of the samples."""

    frame: NDArray[np.intp]
    """Index of the sample among those asked for."""
    box: Floats
    """(M, 6) in the axes of rig, m: centre and extents."""
    score: NDArray[np.float32]
    labels: list[str | None]
    objects: list[str | None]
    broken: int = 0
    """Number of boxes that are not finite, which are not here."""


@dataclass(frozen=True)
class Drive:
    """One sequence. Raises DatasetError naming what is missing when it is accessed."""

    dataset: Dataset
    name: str
    samples: Sequence[Sample]
    """Samples sorted by stamp."""
    stamps: NDArray[np.int64]
    """(N,) ns since the epoch, strictly rising."""
    rows: Sequence[Mapping[str, Any]]
    """Frames row of each sample."""

    def __len__(self) -> int:
        return len(self.samples)

    # ---- where the vehicle was -------------------------------------------------------------
    @cached_property
    def placed(self) -> NDArray[np.bool_]:
        """(N,) bool: the position of a sample is known; its altitude may be unknown."""
        found = np.array([[row.get(name) for name in ("latitude", "longitude")] for row in self.rows], float)
        known: NDArray[np.bool_] = np.isfinite(found).all(1)  # None is NaN
        return known

    @cached_property
    def turned(self) -> NDArray[np.bool_]:
        """(N,) bool: the attitude of a sample is known."""
        found = self._values("orientation", 4)
        known: NDArray[np.bool_] = np.isfinite(found).all(1) & (found != 0).any(1)
        return known

    @cached_property
    def posed(self) -> NDArray[np.bool_]:
        """(N,) bool: the frames table has a pose of a sample."""
        place, turn = (self._values(name, width) for name, width in (("pose_position", 3), ("pose_orientation", 4)))
        known: NDArray[np.bool_] = np.isfinite(place).all(1) & np.isfinite(turn).all(1) & (turn != 0).any(1)
        return known

    def _values(self, name: str, width: int) -> Floats:
        """Return (N, width) values of a column of the frames table, NaN where unknown."""
        given = [row.get(name) for row in self.rows]
        return np.array([[np.nan] * width if value is None else value for value in given], float)

    @cached_property
    def has_poses(self) -> bool:
        """True if the poses of the vehicle are those of the frames table, False if GPS and IMU have them."""
        return bool(self.posed.any())

    @property
    def pose_frame(self) -> str:
        """Frame of the poses of the frames table."""
        return str(self.dataset.sequence_facts(self.name).get("pose_frame") or "pose")

    @property
    def source(self) -> str:
        """Source of the poses in words."""
        if not self.has_poses:
            return "GPS and IMU"
        source = self.dataset.sequence_facts(self.name).get("pose_source")
        topic = source.get("topic") if isinstance(source, dict) else None
        return f"{topic or 'poses'} in {self.pose_frame}"

    @cached_property
    def located(self) -> NDArray[np.bool_]:
        """(N,) bool: the pose of a sample is known, from the frames table or, without any, from GPS and IMU."""
        return self.posed if self.has_poses else self.placed & self.turned

    @cached_property
    def geodetic(self) -> Floats:
        """(N, 3) latitude and longitude in degrees, altitude in m; NaN for samples that are not located.

        An unknown altitude is between its neighbours', so that a fix without one is not a jump; 0 where none is known.
        """
        names = ("latitude", "longitude", "altitude")
        found = np.array([[row.get(name) for name in names] for row in self.rows], float)  # None is NaN
        known = np.isfinite(found[:, 2])
        found[:, 2] = np.interp(self.stamps, self.stamps[known], found[known, 2]) if known.any() else 0.0
        found[~self.located] = np.nan
        return found

    @cached_property
    def rig_to_ecef(self) -> Floats:
        """(N, 4, 4) float64 from GPS and IMU; NaN for samples that are not located. Raises DatasetError if all are."""
        if not self.located.any():
            raise DatasetError(
                f"{self.dataset.paths.frames}: no sample of {self.name!r} has a pose, or both a position and an "
                f"attitude, so the vehicle's poses are unknown; {WAYS}"
            )
        found = np.full((len(self), 4, 4), np.nan)
        known = np.flatnonzero(self.located)
        turns = rotation([self.rows[n]["orientation"] for n in known.tolist()])
        found[known] = world_to_ecef(*self.geodetic[known].T) @ pose(turns, np.zeros(3))
        return found

    @cached_property
    def world_to_ecef(self) -> Floats:
        """(4, 4) float64: the world, ENU at the first located sample."""
        _ = self.rig_to_ecef
        return world_to_ecef(*self.geodetic[int(np.argmax(self.located))])

    @cached_property
    def rig_to_world(self) -> Floats:
        """(N, 4, 4) float64; NaN for samples that are not located. Raises DatasetError if all are."""
        if not self.has_poses:
            return self.rig_in(self.world_to_ecef)
        found = np.full((len(self), 4, 4), np.nan)
        places = self._values("pose_position", 3)
        turns = rotation(self._values("pose_orientation", 4)[self.posed])
        found[self.posed] = pose(turns, (places - self.origin)[self.posed])
        return found

    @cached_property
    def origin(self) -> Floats:
        """(3,) float64: origin of the world in `pose_frame`, m."""
        first: Floats = self._values("pose_position", 3)[int(np.argmax(self.posed))]
        return first

    @property
    def place_of_world(self) -> dict[str, Any]:
        """Place of the world on the earth, or in the frame of the poses: ready for JSON."""
        if self.has_poses:
            return {"frame": self.pose_frame, "position": self.origin.tolist()}
        latitude, longitude, altitude = self.geodetic[int(np.argmax(self.located))].tolist()
        known = {"latitude": latitude, "longitude": longitude, "altitude": altitude}
        return {**known, "ecef": self.world_to_ecef.tolist()}

    def rig_in(self, world: Floats) -> Floats:
        """(N, 4, 4) float64: rig to a world given as (4, 4) to ECEF; NaN for samples that are not located."""
        poses = inverse(world) @ self.rig_to_ecef
        places = ecef(*self.geodetic.T)
        poses[:, :3, 3] = (places - world[:3, 3]) @ world[:3, :3]  # without large products
        return poses

    # ---- where the sensors are -------------------------------------------------------------
    @cached_property
    def calibration(self) -> SequenceCalibration:
        """Calibration of only this sequence."""
        return self.dataset.calibration(self.name)

    @cached_property
    def statics(self) -> dict[str, Floats]:
        """(4, 4) sensor to rig, by the sensor's frame: those that transforms of the recording join to base_link."""
        try:
            return frames_from(self.calibration.static_transforms, BASE)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{self.dataset.paths.frames}: the static_transforms in its metadata cannot be read: {error!r}"
            ) from error

    def place(self, sensor: str) -> Floats:
        """Return (4, 4) sensor to rig of `camera`, `radar`, `lidar` or an instance. Raises DatasetError if unknown."""
        kind, _, key = sensor.partition(".")
        instance = key.rpartition(".")[2]
        named = {of: frame for of, frame in self.calibration.sensor_frames.items() if of.partition(".")[0] == kind}
        own = [frame for of, frame in named.items() if (of.split(".")[2:] or [""]) == [instance]]
        frame = self.info_of(sensor)["frame_id"] if kind == "camera" else next(iter(own), kind)
        if frame in self.statics:
            return self.statics[frame]
        if frame in {entry["child"] for entry in self.calibration.static_transforms}:
            raise DatasetError(
                f"{self.dataset.paths.frames}: its static transform from {BASE} to {frame!r} is invalid: "
                "a quaternion of length 0, or numbers that are not finite; it comes from tf_static of the recording"
            )
        raise DatasetError(
            f"{self.dataset.paths.frames}: its metadata has no static transform from {BASE} to {frame!r}, only to "
            f"{', '.join(sorted(self.statics.keys() - {BASE})) or 'none'}; it comes from tf_static of the recording"
        )

    def boxes(self, boxes: ArrayLike) -> Floats:
        """Return boxes in space (N, 6), as in the dataset, in the axes of rig; m.

        Those of a sensor whose place is unknown stay in its axes.
        """
        frame = self.dataset.metadata.get("box3d_frame", BASE)
        return move_boxes(boxes, self.statics.get(frame, np.eye(4)))

    def read_boxes(self, kept: Sequence[int]) -> Boxes:
        """Return the boxes in space of the samples `kept`. Raises DatasetError for boxes of another form."""
        table, places = self.dataset.annotation_rows
        if "box3d" not in self.dataset.annotation_columns:
            return Boxes(np.zeros(0, np.intp), np.zeros((0, 6)), np.zeros(0, np.float32), [], [])
        spans = [places.get(self.samples[n].key, (0, 0)) for n in kept]
        rows = np.concatenate([np.arange(start, start + count) for start, count in spans])
        frame = np.repeat(np.arange(len(kept)), [count for _, count in spans])
        there = table["box3d"].is_not_null().to_numpy()[rows]
        part, frame = table[rows[there]], frame[there]
        box = np.array(part["box3d"].to_list(), float)
        if len(box) and box.shape[1:] != (6,):
            raise DatasetError(f"{self.dataset.paths.arrow}: box3d must have 6 numbers")
        box = box.reshape(-1, 6)
        sound = np.isfinite(box).all(1)
        part = part.filter(sound)
        score = part["box3d_score"].fill_null(1.0).to_numpy().astype(np.float32)
        labels, objects = (part[name].cast(str).to_list() for name in ("label", "object_id"))
        return Boxes(frame[sound], self.boxes(box[sound]), score, labels, objects, int((~sound).sum()))

    @property
    def camera(self) -> dict[str, Any]:
        """camera_info: frame_id, width, height, distortion_model, d, k (9), r (9), p (12) in pixels."""
        return self.info_of(CAMERA.key)

    def info_of(self, camera: str) -> dict[str, Any]:
        """Return the same of a camera, such as `camera.left` of several. Raises DatasetError without one."""
        info = self.calibration.info_of(camera)
        if not isinstance(info, dict):
            own = "" if camera == CAMERA.key else f" for {camera}"
            raise DatasetError(
                f"{self.dataset.paths.frames}: there is no camera_info of {self.name!r}{own} in its metadata, "
                "so the camera's intrinsics are unknown; it comes from camera/info of the recording"
            )
        try:
            shapes = [np.array(info[name], float).shape for name in ("k", "d")]
            if shapes[0] != (9,) or len(shapes[1]) != 1 or not isinstance(info["frame_id"], str):
                raise ValueError(f"k of {shapes[0]}, d of {shapes[1]}, frame_id {info['frame_id']!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{self.dataset.paths.frames}: the camera_info in its metadata cannot be read: {error!r}"
            ) from error
        return info


def describe_sources(found: Sequence[Drive]) -> str:
    """Return the sources of the poses of several sequences in words, each once."""
    return ", ".join(dict.fromkeys(drive.source for drive in found))


def drives(dataset: Dataset) -> list[Drive]:
    """Return the sequences of a dataset. Raises DatasetError without stamps, or if they are not increasing."""
    if dataset.frames is None:
        raise DatasetError(
            f"{dataset.paths.frames}: not there, so the stamps of the samples are unknown; convert the recording "
            "with edgefirst-ros to have it"
        )
    by_name: dict[str, list[Sample]] = {}
    for sample in dataset.samples():
        by_name.setdefault(sample.name, []).append(sample)
    if not by_name:
        raise DatasetError(f"{dataset.container.path}: has no samples")
    return [_drive(dataset, name, samples) for name, samples in by_name.items()]


def _drive(dataset: Dataset, name: str, samples: list[Sample]) -> Drive:
    rows = [sample.row for sample in samples]
    without = [sample.frame for sample, row in zip(samples, rows, strict=True) if row.get("timestamp") is None]
    if without:
        raise DatasetError(f"{dataset.paths.frames}: {len(without)} samples of {name!r} have no stamp, as {without[0]}")
    stamps = np.array([row["timestamp"] for row in rows], np.int64)
    order = np.argsort(stamps, kind="stable")
    stamps = stamps[order]
    if len(stamps) > 1 and (np.diff(stamps) <= 0).any():
        twice = int(stamps[1:][np.diff(stamps) <= 0][0])
        raise DatasetError(
            f"{dataset.paths.frames}: two samples of {name!r} have the stamp {twice}; a time must be one"
        )
    return Drive(dataset, name, [samples[n] for n in order], stamps, [rows[n] for n in order])


def is_class_mask(row: Mapping[str, Any]) -> bool:
    """True for a row that holds a semantic mask: a mask without label and object."""
    return isinstance(row.get("mask"), bytes) and all(row.get(name) is None for name in ("label", "object_id", "box2d"))


def class_masks(dataset: Dataset) -> dict[Key, int]:
    """Return {sample: first annotation row that `is_class_mask`}, for samples that have one."""
    import polars as pl

    table, rows = dataset.annotation_rows
    if table.schema.get("mask") != pl.Binary:
        return {}
    named = pl.col("label", "object_id", "box2d").is_null()
    numbers = table.select(pl.all_horizontal(pl.col("mask").is_not_null(), named).arg_true()).to_series().to_numpy()
    found = {}
    for key, (start, count) in rows.items():
        first = numbers[np.searchsorted(numbers, start) :][:1]
        if len(first) and first[0] < start + count:
            found[key] = int(first[0])
    return found
