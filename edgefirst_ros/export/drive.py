# SPDX-License-Identifier: Apache-2.0
"""One sequence of a dataset for an export: samples with stamps, poses of the vehicle, extrinsics of the sensors.

Frames: `rig` is base_link (x forward, y left, z up). The world has its origin at the first pose; its axes are those of
the dataset's `pose_frame`, or without poses ENU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import Key
from edgefirst_ros.dataset.query import KEY, Samples, list_labels, select_keys, with_all_columns
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.errors import DatasetError, explain_errors
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.sensors.calibration import find_frame
from edgefirst_ros.sensors.transforms import (
    BASE,
    Floats,
    chain_frames,
    convert_to_ecef,
    invert_poses,
    make_pose,
    make_rotation,
    make_world_to_ecef,
    move_boxes,
)
from edgefirst_ros.streams import CAMERA, find_by_columns, find_by_key, find_by_kind, list_keys

WAYS = (
    "convert the recording again with a topic of poses (pose_topic: /odom), two frames of /tf (in a rig pose: {tf: "
    "[map, base_link]}), or messages of GPS and IMU"
)
"""Ways to have poses, for messages."""


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

    @property
    def tracks(self) -> list[str]:
        """Names of the tracks: objects; of several in a frame the n-th. A box without one has its own."""
        seen: Counter[tuple[str, int]] = Counter()
        found = []
        for number, (thing, frame) in enumerate(zip(self.objects, self.frame.tolist(), strict=True)):
            if thing is not None:
                seen[thing, frame] += 1
            again = seen[thing or "", frame]
            found.append(f"#{number}" if thing is None else f"{thing}#{again}" if again > 1 else thing)
        return found


@dataclass(frozen=True)
class Drive:
    """One sequence. Access to missing data raises DatasetError that names them."""

    dataset: Dataset
    name: str
    samples: Samples
    """Samples sorted by stamp."""
    stamps: NDArray[np.int64]
    """(N,) ns since the epoch, strictly rising."""
    table: pl.DataFrame
    """Frames row of each sample."""

    def __len__(self) -> int:
        return len(self.samples)

    def row(self, number: int) -> dict[str, Any]:
        """Return the frames row of a sample."""
        return self.table.row(number, named=True)

    def stamp_of(self, kind: str, number: int) -> int:
        """Return the stamp of a member of a sample, ns since the epoch: its own, else that of the sample."""
        return int(self._stamps.get(kind, self.stamps)[number])

    @cached_property
    def _stamps(self) -> dict[str, NDArray[np.int64]]:
        """{kind of member: its stamps, (N,)}, where it has a column of them."""
        found: dict[str, list[str]] = {}
        for sensor in find_by_columns(self.table.columns):
            column = f"{sensor.column}_timestamp"
            for kind in sensor.kinds if column in self.table.columns else ():
                found.setdefault(kind, []).append(column)
        stamps = {kind: pl.coalesce(*names, "timestamp").cast(pl.Int64) for kind, names in found.items()}
        return {kind: self.table.select(of).to_series().to_numpy() for kind, of in stamps.items()}

    # ---- where the vehicle was -------------------------------------------------------------
    @cached_property
    def placed(self) -> NDArray[np.bool_]:
        """(N,) bool: the position of a sample is known; its altitude may be unknown."""
        return np.asarray(np.isfinite(self.lla[:, :2]).all(1))

    @cached_property
    def lla(self) -> Floats:
        """(N, 3) latitude and longitude in degrees, altitude in m; NaN where unknown."""
        return np.column_stack([self.values(name, 1) for name in ("latitude", "longitude", "altitude")])

    @cached_property
    def turned(self) -> NDArray[np.bool_]:
        """(N,) bool: the attitude of a sample is known."""
        found = self.values("orientation", 4)
        return np.asarray(np.isfinite(found).all(1) & (found != 0).any(1))

    @cached_property
    def posed(self) -> NDArray[np.bool_]:
        """(N,) bool: the frames table has a pose of a sample."""
        place, turn = (self.values(name, width) for name, width in (("pose_position", 3), ("pose_orientation", 4)))
        return np.asarray(np.isfinite(place).all(1) & np.isfinite(turn).all(1) & (turn != 0).any(1))

    def values(self, name: str, width: int) -> Floats:
        """Return (N, width) values of a column of the frames table, NaN where unknown."""
        given = self.table[name].to_list() if name in self.table.columns else [None] * len(self)
        unknown = np.nan if width == 1 else [np.nan] * width
        return np.array([unknown if value is None else value for value in given], float).reshape(-1, width)

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

        An unknown altitude is interpolated, so that a fix without one is not a jump; 0 where all are unknown.
        """
        found = self.lla.copy()
        known = np.isfinite(found[:, 2])
        found[:, 2] = np.interp(self.stamps, self.stamps[known], found[known, 2]) if known.any() else 0.0
        found[~self.located] = np.nan
        return found

    @cached_property
    def first_located(self) -> int:
        """Number of the first located sample."""
        return int(np.argmax(self.located))

    @cached_property
    def world_to_ecef(self) -> Floats:
        """(4, 4) float64: the world, ENU at the first located sample."""
        return make_world_to_ecef(*self.geodetic[self.first_located])

    @property
    def rig_to_world(self) -> Floats:
        """(N, 4, 4) float64; NaN for samples that are not located."""
        if not self.has_poses:
            return self.rig_in(self.world_to_ecef)
        found = np.full((len(self), 4, 4), np.nan)
        places = self.values("pose_position", 3)
        turns = make_rotation(self.values("pose_orientation", 4)[self.posed])
        found[self.posed] = make_pose(turns, (places - self.origin)[self.posed])
        return found

    @cached_property
    def origin(self) -> Floats:
        """(3,) float64: origin of the world in `pose_frame`, m."""
        return np.asarray(self.values("pose_position", 3)[self.first_located])

    @property
    def place_of_world(self) -> dict[str, Any]:
        """Place of the world on the earth, or in the frame of the poses: ready for JSON."""
        if self.has_poses:
            return {"frame": self.pose_frame, "position": self.origin.tolist()}
        latitude, longitude, altitude = self.geodetic[self.first_located].tolist()
        known = {"latitude": latitude, "longitude": longitude, "altitude": altitude}
        return {**known, "ecef": self.world_to_ecef.tolist()}

    def rig_in(self, world: Floats) -> Floats:
        """(N, 4, 4) float64: rig to a world given as (4, 4) to ECEF; NaN for samples that are not located."""
        first, poses = self.first_located, np.full((len(self), 4, 4), np.nan)
        known = first + np.flatnonzero(self.located[first:])
        antenna, imu = (self._mount(role) for role in ("gps", "imu"))
        places, turns = self.geodetic[known].T, make_rotation(self.values("orientation", 4)[known]) @ imu[:3, :3].T
        poses[known] = invert_poses(world) @ (make_world_to_ecef(*places) @ make_pose(turns, np.zeros(3)))
        poses[known, :3, 3] = (convert_to_ecef(*places) - world[:3, 3]) @ world[:3, :3]  # without large products
        poses[known, :3, 3] -= poses[known, :3, :3] @ antenna[:3, 3]
        return poses

    def _mount(self, role: str) -> Floats:
        """(4, 4) from the axes of GPS or IMU to the rig, which are its own where no transform joins them."""
        return self.statics.get(find_frame(role, self.calibration.sensor_frames), np.eye(4))

    # ---- where the sensors are -------------------------------------------------------------
    @cached_property
    def calibration(self) -> SequenceCalibration:
        """Calibration of only this sequence."""
        return self.dataset.calibration(self.name)

    @cached_property
    def statics(self) -> dict[str, Floats]:
        """(4, 4) sensor to rig, by the sensor's frame: those that transforms of the recording join to base_link."""
        try:
            return chain_frames(self.calibration.static_transforms, BASE)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DatasetError(
                f"{self.dataset.paths.frames}: the static_transforms in its metadata cannot be read: {error!r}"
            ) from error

    def lacks_intrinsics(self, kind: str) -> bool:
        """True for the pictures of a further camera of a rig that has no CameraInfo."""
        sensor = find_by_kind(kind)
        further = sensor.form == "camera" and sensor.instance is not None
        return further and self.calibration.info_of(sensor.key) is None

    def find_frame(self, sensor: str) -> str:
        """Return the frame of a sensor by any of its names, such as a kind. Raises DatasetError if it is unknown."""
        keys, named = list_keys(sensor), self.calibration.sensor_frames
        if keys[0].partition(".")[0] == CAMERA.key:
            return str(self.info_of(keys[0])["frame_id"])
        return next((named[key] for key in keys if key in named), find_frame(keys[0], named))

    def place(self, sensor: str) -> Floats:
        """Return (4, 4) sensor to rig of a sensor by any of its names. Raises DatasetError if it is unknown."""
        frame = self.find_frame(sensor)
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

    def info_of(self, camera: str) -> dict[str, Any]:
        """Return the camera_info of a camera, such as `camera.left` of several. Raises DatasetError without one.

        It has frame_id, width, height, distortion_model, d, k (9), r (9), p (12) in pixels.
        """
        info = self.calibration.info_of(camera)
        if not isinstance(info, dict):
            own = "" if camera == CAMERA.key else f" for {camera}"
            raise DatasetError(
                f"{self.dataset.paths.frames}: no camera_info of {self.name!r}{own} in its metadata, "
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

    def picture_info(self, camera: str) -> dict[str, Any]:
        """Return the camera_info of a camera for its pictures: one of another size and the same proportions is scaled.

        Raises DatasetError as `info_of`, and for other proportions.
        """
        info, column = self.info_of(camera), find_by_key(camera).size_column
        said = info.get("width"), info.get("height")
        known = self.table.get_column(column, default=pl.Series([])).drop_nulls()
        if not len(known) or not all(type(length) is int and length > 0 for length in said):
            return info
        width, height = map(int, known[0])
        with explain_errors(str(self.dataset.paths.frames), DatasetError):
            scale = find_scale(said, (width, height))
        k = np.array(info["k"], float) * np.repeat((*scale, 1.0), 3)
        return info | {"width": width, "height": height, "k": k.tolist()}


def find_scale(said: Sequence[Any], size: tuple[int, int]) -> Floats:
    """Return (2,) how many times as wide and high pictures of `size` are as camera_info says, both in pixels.

    Raises DatasetError for other proportions.
    """
    scale: Floats = np.divide(size, said)
    if abs(scale[0] / scale[1] - 1) > 0.01:
        raise DatasetError(f"camera_info is of {said[0]} x {said[1]} pixels, the pictures have {size[0]} x {size[1]}")
    return scale


def read_batches(dataset: Dataset, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield some columns of `annotations`, some rows at a time: a table of masks need not fit into the memory."""
    file = None if "annotations" in dataset.__dict__ else dataset.table_files[0]  # None: absent, or read already
    tables = file.frames([name for name in file.schema.names if name in columns]) if file else [dataset.annotations]
    for table in tables:
        yield with_all_columns(table, schema.VERSIONS[-1]).select(columns)  # null for those that its own lacks


def read_boxes(wanted: Sequence[tuple[Drive, Iterable[int]]]) -> list[Boxes]:
    """Return the boxes in space of some samples of each drive, all of one dataset.

    The annotations are read once, batch by batch. Raises DatasetError for boxes of another form.
    """
    dataset, boxes = wanted[0][0].dataset, ("box3d", "box3d_score", "label", "object_id")
    asked = [
        {"drive": number, "place": place, "name": drive.name, "frame": drive.samples[n].frame}
        for number, (drive, kept) in enumerate(wanted)
        for place, n in enumerate(kept)
    ]
    kinds = {"drive": pl.Int64, "place": pl.Int64, "name": pl.String, "frame": pl.Int64}
    keys, found = pl.DataFrame(asked, kinds), []
    for table in read_batches(dataset, (*KEY, *boxes)):
        texts = pl.col("label", "object_id").cast(pl.String)
        given = select_keys(table, dataset.paths.arrow).with_columns(table.select(boxes).with_columns(texts))
        found.append(keys.join(given.drop_nulls("box3d"), KEY, nulls_equal=True, maintain_order="left_right"))
    rows = pl.concat(found).sort("drive", "place", maintain_order=True)
    return [_collect_boxes(drive, rows.filter(drive=number)) for number, (drive, _) in enumerate(wanted)]


def _collect_boxes(drive: Drive, rows: pl.DataFrame) -> Boxes:
    box = np.array(rows["box3d"].to_list(), float)
    if len(box) and box.shape[1:] != (6,):
        raise DatasetError(f"{drive.dataset.paths.arrow}: box3d must have 6 numbers")
    box = box.reshape(-1, 6)
    sound = np.isfinite(box).all(1)
    rows = rows.filter(sound)
    score = rows["box3d_score"].fill_null(1.0).to_numpy().astype(np.float32)
    labels, objects = (rows[name].to_list() for name in ("label", "object_id"))
    return Boxes(rows["place"].to_numpy(), drive.boxes(box[sound]), score, labels, objects, int((~sound).sum()))


def read_groups(dataset: Dataset, keys: Collection[Key]) -> dict[Key, str]:
    """Return the groups of some samples, of those that have one."""
    found: dict[Key, str | None] = {}
    for table in read_batches(dataset, (*KEY, "group")):
        groups = table["group"].cast(pl.String).to_list()
        for key, group in zip(select_keys(table, dataset.paths.arrow).iter_rows(), groups, strict=True):
            if key in keys:
                found.setdefault(Key(*key), group)
    return {key: group for key, group in found.items() if group is not None}


def count_values(dataset: Dataset) -> Counter[str]:
    """Return the number of values of each column of the annotations, in file order."""
    found: Counter[str] = Counter()
    for table in read_batches(dataset, dataset.annotation_columns):
        found.update({name: table.height - table[name].null_count() for name in table.columns})
    return found


def collect_labels(parts: Sequence[Dataset]) -> list[str]:
    """Return the labels of several datasets, those of annotations and those that are listed only, sorted."""
    found = {label for part in parts for label in list_labels(part.metadata)}
    for part in (one for one in parts if "label" in one.annotation_columns):
        for table in read_batches(part, ["label"]):
            found.update(table["label"].cast(pl.String).drop_nulls().unique())
    return sorted(found)


def describe_sources(found: Sequence[Drive]) -> str:
    """Return the sources of the poses of several sequences in words, each once."""
    return ", ".join(dict.fromkeys(drive.source for drive in found))


def list_drives(dataset: Dataset) -> list[Drive]:
    """Return the sequences of a dataset. Raises DatasetError without stamps, or if they are not increasing."""
    if dataset.frames is None:
        raise DatasetError(
            f"{dataset.paths.frames}: missing, so the stamps of the samples are unknown; convert the recording "
            "with edgefirst-ros"
        )
    by_name: dict[str, list[Key]] = {}
    for sample in dataset.samples():
        by_name.setdefault(sample.name, []).append(sample.key)
    if not by_name:
        raise DatasetError(f"{dataset.container.path}: has no samples")
    return [_make_drive(dataset, dataset.frames, name, keys) for name, keys in by_name.items()]


def select_posed(found: Sequence[Drive], report: LossReport, least: int = 1) -> list[Drive]:
    """Return the sequences with poses of at least so many samples; the others are lines of the report.

    Raises DatasetError if no sequence has them.
    """
    kept = [drive for drive in found if drive.located.sum() >= least]
    if not kept:
        first, number = found[0], found[0].located.sum() or "no"
        raise DatasetError(
            f"{first.dataset.paths.frames}: {number} samples of {first.name!r} have a pose, or both a position and an "
            f"attitude; {least} must, or the vehicle's poses are unknown; {WAYS}"
        )
    for drive in (one for one in found if one.located.sum() < least):
        report.add(f"sequence {drive.name}", "", "not written: the vehicle's poses are unknown", len(drive))
    return kept


def _make_drive(dataset: Dataset, frames: pl.DataFrame, name: str, keys: list[Key]) -> Drive:
    rows = pl.Series([dataset.frame_rows.get(key) for key in keys], dtype=pl.UInt32)
    given = frames.get_column("timestamp", default=pl.Series([None] * frames.height)).gather(rows)
    without = given.is_null().arg_true()
    if len(without):
        first = keys[without[0]].frame
        raise DatasetError(f"{dataset.paths.frames}: {len(without)} samples of {name!r} have no stamp, as {first}")
    stamps = given.cast(pl.Int64).to_numpy()
    order = np.argsort(stamps, kind="stable")
    stamps = stamps[order]
    if len(stamps) > 1 and (np.diff(stamps) <= 0).any():
        twice = int(stamps[1:][np.diff(stamps) <= 0][0])
        raise DatasetError(
            f"{dataset.paths.frames}: two samples of {name!r} have the stamp {twice}; a time must be one"
        )
    rows = rows.gather(order)
    table = frames.slice(rows[0], len(rows)) if (rows.diff().drop_nulls() == 1).all() else frames[rows]
    return Drive(dataset, name, Samples(dataset, [keys[n] for n in order]), stamps, table)


def is_class_mask(row: Mapping[str, Any]) -> bool:
    """True for a row that holds a semantic mask: a mask without label and object."""
    return isinstance(row.get("mask"), bytes) and all(row.get(name) is None for name in ("label", "object_id", "box2d"))


def find_class_masks(dataset: Dataset) -> dict[Key, int]:
    """Return {sample: first annotation row that `is_class_mask`}, for samples that have one."""
    table, _ = dataset.annotation_rows
    if table.schema.get("mask") != pl.Binary:
        return {}
    without_name = pl.col("label", "object_id", "box2d").is_null()
    is_mask = table.select(pl.all_horizontal(pl.col("mask").is_not_null(), without_name)).to_series()
    rows = select_keys(table, dataset.paths.arrow).with_row_index().filter(is_mask)
    return {Key(name, frame): row for row, name, frame in rows.unique(KEY, keep="first").iter_rows()}
