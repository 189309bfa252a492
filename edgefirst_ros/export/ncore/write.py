# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset as NCore sequences: one a drive, in a folder of its own, with a summary beside its stores.

The library checks its rules by assertions, which `python -O` removes, so those that data can break are checked here.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros import streams
from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.dataset.objects.location import is_remote
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError, UsageError, pluralize
from edgefirst_ros.export.drive import Drive, describe_sources, list_drives, select_posed
from edgefirst_ros.export.ncore.components import (
    HALF,
    MILLIMETRE,
    Marks,
    Rays,
    make_camera_model,
    make_rays,
    mark,
    name_radar_fields,
    read_depth,
    select_columns,
)
from edgefirst_ros.export.ncore.library import CUBE, EARTH, OWN_CUBE, RIG, WORLD, load_components, load_library
from edgefirst_ros.export.output import LossReport, make_ahead
from edgefirst_ros.sensors.cloud import decode_cloud
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.png import check_png, iter_chunks

RIGID = 1e-6
"""Largest deviation of a rotation from orthonormal."""
CAMERA = "camera"
MICROSECOND = 1000
ANNOTATIONS = {
    "name": ("sequence_id", ""),
    "frame": ("cameras/camera: metadata of the frame", ""),
    "timestamp": ("cameras/camera: metadata of the frame, ns", ""),
    "label": ("class_id of cuboids; metadata of frames and instances", ""),
    "label_index": ("metadata of frames and instances", ""),
    "object_id": ("track_id of cuboids; metadata of frames and instances", ""),
    "group": ("metadata of frames and instances", ""),
    "box2d": ("cameras/camera: metadata of the frame", "NCore has no boxes in the picture"),
    "box2d_score": ("cameras/camera: metadata of the frame", "NCore has no boxes in the picture"),
    "box3d": ("cuboids/default", "the turn of a box is not in the dataset: 0 in the axes of the vehicle"),
    "box3d_score": ("cuboids/default: generic data score", ""),
    "mask": ("camera_labels segmentation.instance, segmentation.semantic", "where instances overlap, the last is seen"),
    "polygon": ("camera_labels segmentation.instance", "filled; where instances overlap, the last is seen"),
    "iscrowd": ("cameras/camera: metadata of the frame", ""),
    "ignore": ("cameras/camera: metadata of the frame", ""),
    "size": ("intrinsics/default: resolution", ""),
    "location": ("poses/default, from the frames table, which is finer", ""),
    "pose": ("poses/default, from the frames table, which is finer", ""),
}
"""Column of the annotations -> its place and its loss."""
FRAMES = {
    "timestamp": ("stamps of frames, µs; ns in the metadata of the frame", ""),
    "latitude": ("poses/default: rig to world to world_global (ECEF), and generic data", ""),
    "longitude": ("poses/default: rig to world to world_global (ECEF), and generic data", ""),
    "altitude": ("poses/default: rig to world to world_global (ECEF), and generic data", "interpolated where unknown"),
    "orientation": ("poses/default: rig to world, and generic data", ""),
    "pose_position": ("poses/default: rig to world, and generic data", ""),
    "pose_orientation": ("poses/default: rig to world, and generic data", ""),
    "size": ("intrinsics/default: resolution", ""),
}
"""Column of the frames table -> the same."""
Store = Literal["itar", "directory"]


def is_companion(kind: str) -> bool:
    """True for a member with a stamp of its own: a cube, a cloud, or a picture of another camera than the first."""
    sensor = streams.find_by_kind(kind)
    return sensor.form in ("cube", "cloud") or (sensor.form == "camera" and sensor.instance is not None)


def name_sensor(kind: str) -> str:
    """Return the name of a kind's sensor in NCore: `lidar`, or `lidar-rear` of a further one."""
    return kind.partition(".")[0]


def find_home(kind: str) -> str:
    """Return the home of a companion's messages in NCore."""
    sensor = name_sensor(kind)
    return CUBE if streams.find_by_kind(kind).form == "cube" else f"{sensor.partition('-')[0]}s/{sensor}"


def check_rigid(what: str, poses: NDArray[Any]) -> None:
    """Raise DatasetError unless (4, 4) or (N, 4, 4) are finite rigid poses."""
    if poses.shape[-2:] != (4, 4) or not np.isfinite(poses).all():
        raise DatasetError(f"{what}: poses of shape {poses.shape} that are not all finite")
    turn = poses[..., :3, :3]
    away = np.abs(turn @ np.swapaxes(turn, -1, -2) - np.eye(3)).max(initial=0)
    if away > RIGID or (np.linalg.det(turn) < 0).any() or (poses[..., 3, :] != (0, 0, 0, 1)).any():
        raise DatasetError(f"{what}: is not a rigid pose (off by {away:.2g}, or mirrored)")


def check_rising(what: str, stamps: NDArray[Any]) -> None:
    """Raise DatasetError unless stamps (N,) in µs rise strictly."""
    wrong = np.flatnonzero(np.diff(stamps.astype(np.int64)) <= 0)
    if len(wrong):
        raise DatasetError(f"{what}: two have the time {stamps[wrong[0] + 1]} µs or it goes back; each needs its own")


def check_inside(what: str, stamp: int, start: int, stop: int) -> None:
    """Raise DatasetError unless a stamp is in the half open interval."""
    if not start <= stamp < stop:
        raise DatasetError(f"{what}: {stamp} µs is outside the interval {start} to {stop} µs")


@dataclass(frozen=True, slots=True)
class SampleTask:
    """A sample to be made ready."""

    number: int
    """In its drive."""
    sample: Sample
    reached: bool
    """True if it is within the time of the sequence."""
    size: tuple[int, int] | None
    """(width, height) of its picture, where that is known already."""
    stamps: Mapping[str, int]
    """ns of each companion that there can be, by kind."""
    fits: frozenset[str]
    """The companions that can become frames: within the time of the sequence, later than the frame before."""


PreparedMember = tuple[str, bytes, Any]
"""Kind, data, and what is made of it: rays of a cloud, the description in a cube, metres of a depth, or None."""
PreparedSample = tuple[list[dict[str, Any]], list[PreparedMember], Marks | None]
"""Annotations, members, and marks: None outside of the sequence's time, or if the picture's size was unknown."""


def read_description(png: bytes) -> dict[str, Any]:
    """Return the description in a cube's picture: layout, shape, scales, is_complex, timestamp. Raises DatasetError."""
    found: dict[str, Any] = {}
    try:
        for kind, body in iter_chunks(png):
            if kind == b"IDAT":
                break
            keyword, _, value = bytes(body).partition(b"\0") if kind == b"tEXt" else (b"", b"", b"")
            if keyword.startswith(b"edgefirst:"):
                said = json.loads(value, parse_constant=str)
                json.dumps(said, allow_nan=False)  # as it is stored: 1e999 is not a number there
                found[keyword.removeprefix(b"edgefirst:").decode()] = said
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"radar cube cannot be read: {error}") from error
    return found


def report_losses(dataset: Dataset, found: Sequence[Drive], report: LossReport, tally: Counter[str]) -> None:
    """Add the lines of an NCore export to its report."""
    report.add(f"poses ({describe_sources(found)})", "poses/default")
    _report_sensors(report, tally)
    calibrations = [dataset.calibration(sequence) for sequence in dataset.sequences]
    if any(isinstance(known.camera_info, dict) for known in calibrations):
        report.add(
            "camera_info",
            "intrinsics/default",
            "float32; the shutter is not known, it is given as global; r, p and a skew have no place",
        )
    if any(known.static_transforms for known in calibrations):
        report.add("static_transforms", "poses/default, of each sensor to rig", "those of other frames have no place")
    for name in dataset.annotation_columns:
        where, lost = ANNOTATIONS.get(name, ("", "has no place in NCore"))
        report.add(f"annotations: {name}", where, lost)
    for name in dataset.frames.columns if dataset.frames is not None else ():
        if name not in ("name", "frame"):
            where, lost = FRAMES.get(name) or _find_column_home(name)
            if name in ("latitude", "longitude", "altitude", "orientation") and all(d.has_poses for d in found):
                where, lost = "", "not used: the dataset has poses"
            report.add(f"frames: {name}", where, lost)


def _find_column_home(name: str) -> tuple[str, str]:
    column, _, what = name.rpartition("_")
    with suppress(KeyError):
        sensor = streams.find_by_column(column)
        if what == "timestamp":
            exact = "among its attributes" if sensor.form == "cube" else "in the metadata of the frame"
            return f"{find_home(sensor.kind)}: stamps of frames, µs; ns {exact}", ""
        if what == "size":
            return "intrinsics/default: resolution", ""
    return "", "has no place in NCore"


def _report_sensors(report: LossReport, tally: Counter[str]) -> None:
    report.add("samples", "frames of the sensors", number=tally["samples"])
    report.count(
        "samples before the first and after the last position",
        "",
        "NCore needs poses to both ends: they are not in the sensors",
        tally["samples without a pose"],
    )
    report.count(
        "samples without a position between others",
        "cameras/camera",
        "readers interpolate their poses over the gap",
        tally["samples without a pose between others"],
    )
    cut = tally["bytes of NUL"]
    said = f"{cut} NUL bytes after the pictures are cut off" if cut else ""
    report.count("camera", "cameras/camera", said, tally["camera"])
    kinds = {kind for key in tally if streams.find_form(kind := key.partition(" ")[0]) is not None}
    for kind in sorted(kinds, key=lambda kind: streams.find_by_kind(kind).order):
        if is_companion(kind):
            _report_companion(report, tally, kind, find_home(kind))
        else:
            report.count(kind, "", "has no place in NCore", tally[kind])
    for what, where, lost in (
        ("depth", "camera_labels depth.z", "taken to be mm along z"),
        ("depth without a place", "", "no 16-bit grayscale"),
        ("instances", "camera_labels segmentation.instance", ""),
        ("masks of classes", "camera_labels segmentation.semantic", ""),
        ("masks without a place", "", "of another size than the picture, no grayscale PNG, or more than 65,535"),
        ("boxes", "cuboids/default", ""),
        ("boxes outside", "", "before the first or after the last position"),
        ("boxes not finite", "", "not finite"),
    ):
        report.count(what, where, lost, tally[what])


def _report_companion(report: LossReport, tally: Counter[str], kind: str, where: str) -> None:
    left = tally[f"{kind} points left"]
    said = f"{pluralize(left, 'point')} at the origin or not finite" if left else ""
    report.count(kind, where, said, tally[kind])
    mark = f"{kind} field "
    for name in sorted(key.removeprefix(mark) for key in tally if key.startswith(mark)):
        report.add(f"{kind}: {name}", f"{where}: generic data of the frame", "", tally[mark + name])
    for what, why in (
        ("outside", "measured before the first or after the last position, or not later than the one before"),
        ("without a place", "has no x, y and z"),
        ("empty", "only NUL bytes"),
        ("without CameraInfo", "not written: the intrinsics of the camera are unknown"),
    ):
        report.count(f"{kind} {what}", "", why, tally[f"{kind} {what}"])


def export(dataset: Dataset, out: Path, report: LossReport, progress: Progress, *, store: Store = "itar") -> None:
    """Write each drive of a dataset into OUT/SEQUENCE as an NCore V4 sequence, `out` being an empty folder.

    `store`: one file a component group (.zarr.itar), or a folder of many (.zarr). Raises UsageError without the
    library, DatasetError where stamps, poses, intrinsics or places of the sensors are missing, or break NCore's rules.
    """
    if store not in ("itar", "directory"):
        raise UsageError(f"--store: expected itar or directory, got {store!r}")
    load_library()
    tally: Counter[str] = Counter()
    done = 0
    found = select_posed(list_drives(dataset), report, least=2)
    for drive in found:
        folder = out / make_safe(drive.name)
        if folder.exists():
            raise DatasetError(f"{drive.name!r} and another sequence have the same folder name")
        with ExitStack() as leaving:
            sequence = _Sequence(drive, folder, store, tally)
            quick = not is_remote(dataset.paths.container)  # the library and numpy hold the interpreter's lock
            made = leaving.enter_context(closing(make_ahead(sequence.tasks(), sequence.make, quick=quick)))
            for task, ready in made:
                sequence.add(task, ready)
                done += 1
                progress("exporting to NCore", done, sum(map(len, found)))
            sequence.finish()
    report_losses(dataset, found, report, tally)


class _Sequence:
    """One drive on its way."""

    def __init__(self, drive: Drive, folder: Path, store: Store, tally: Counter[str]) -> None:
        lib = load_library()
        known = np.flatnonzero(drive.located)
        self._drive, self._folder, self._tally = drive, folder, tally
        self._stamps = drive.stamps // MICROSECOND
        check_rising(f"{drive.name!r}: samples", self._stamps)
        check_inside(f"{drive.name!r}: samples", int(self._stamps[0]), 0, int(self._stamps[-1]) + 1)
        self._start, self._stop = int(self._stamps[known[0]]), int(self._stamps[known[-1]]) + 1
        tally["samples without a pose between others"] += int((~drive.located[known[0] : known[-1]]).sum())
        described = {"source": "EdgeFirst dataset", "dataset": drive.dataset.paths.name, "sequence": drive.name}
        interval = lib.HalfClosedInterval(self._start, self._stop)
        self._groups = lib.SequenceComponentGroupsWriter(
            lib.UPath(folder), make_safe(drive.name), drive.name, interval, described, store
        )
        self._poses = self._register(lib.PosesComponent.Writer, "default")
        self._store_poses(known)
        self._intrinsics = self._register(lib.IntrinsicsComponent.Writer, "default")
        self._masks = self._register(lib.MasksComponent.Writer, "default")
        self._observations: list[Any] = []
        self._scores: list[float] = []
        self._level = HALF.get(str(drive.dataset.metadata.get("mask_interpretation")), 0)
        self._labels: dict[str, Any] = {}
        """Writers of camera labels."""
        table, self._places = drive.dataset.annotation_rows
        self._annotations = table.select(drive.dataset.annotation_columns)  # half a millisecond a sample otherwise
        self._sensors: dict[str, Any] = {}
        self._last: dict[tuple[str, bool], tuple[int, bytes]] = {}
        self._cubes: dict[str, list[int]] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        """(width, height) of the pictures of each camera."""

    # ---- what holds for the whole drive ------------------------------------------------------
    def _register(self, kind: Any, instance: str, group: str | None = None, **more: Any) -> Any:
        return self._groups.register_component_writer(kind, instance, group, None, **more)

    def _store_poses(self, known: Any) -> None:
        """Store the path of the rig at the located samples, and the poses or fixes of the dataset."""
        drive, stamps = self._drive, self._stamps[known].astype(np.uint64)
        way = drive.rig_to_world[known]
        what = f"{drive.name!r}: rig to world"
        check_rigid(what, way)
        self._poses.store_dynamic_pose(RIG, WORLD, way, stamps)
        if drive.has_poses:
            given = {
                f"pose_{what}": drive.values(f"pose_{what}", n)[known]
                for what, n in (("position", 3), ("orientation", 4))
            }
            self._poses.set_generic_data({"timestamp_ns": drive.stamps[known]} | given)
            return
        earth = drive.world_to_ecef
        check_rigid(what, earth)
        self._poses.store_static_pose(WORLD, EARTH, earth)
        self._poses.set_generic_data(
            {
                "timestamp_ns": drive.stamps[known],
                "latitude_deg": drive.geodetic[known, 0],
                "longitude_deg": drive.geodetic[known, 1],
                "altitude_m": drive.lla[known, 2],
                "orientation_xyzw": drive.values("orientation", 4)[known],
            }
        )

    def _sensor(self, kind: str) -> Any:
        """Return the writer of a kind of member, begun with its first frame."""
        form, sensor = streams.find_by_kind(kind).form, name_sensor(kind)
        key = sensor if form == "camera" else kind
        if key not in self._sensors:
            lib = load_library()
            if form == "cube" and self._drive.find_frame(kind) != self._drive.find_frame(f"{sensor}.pcd"):
                sensor += OWN_CUBE
            place = self._drive.place(kind)
            check_rigid(f"{sensor} to {RIG}", place)
            self._poses.store_static_pose(sensor, RIG, place)  # the points and cubes of one radar have one place
            if form == "cube":
                self._sensors[key] = self._register(load_components()[0], sensor, "radar_cube")
            else:
                writers = {CAMERA: lib.CameraSensorComponent, "lidar": lib.LidarSensorComponent}
                component = writers.get(sensor.partition("-")[0], lib.RadarSensorComponent)
                self._sensors[key] = self._register(component.Writer, sensor)
        return self._sensors[key]

    # ---- samples -----------------------------------------------------------------------------
    def tasks(self) -> Iterator[SampleTask]:
        """Yield the samples in their order."""
        drive, last = self._drive, dict[str, int]()
        for number, sample in enumerate(drive.samples):
            stamps, fits = {}, set()
            for kind in filter(is_companion, drive.dataset.members(sample.key)):
                at = stamps[kind] = drive.stamp_of(kind, number)
                if self._holds(at) and (kind not in last or at // MICROSECOND > last[kind] // MICROSECOND):
                    fits.add(kind)
                if kind in fits or kind not in last:
                    last[kind] = at
            size = drive.row(number).get("size") or self._sizes.get(CAMERA)
            reached = self._holds(int(drive.stamps[number]))
            yield SampleTask(number, sample, reached, (size[0], size[1]) if size else None, stamps, frozenset(fits))

    def _holds(self, stamp_ns: int) -> bool:
        return self._start <= stamp_ns // MICROSECOND < self._stop

    def make(self, task: SampleTask) -> PreparedSample:
        """Read a sample, and prepare its entries of the stores. Raises DatasetError. Threads may share this."""
        dataset = self._drive.dataset
        rows = self._annotations.slice(*self._places.get(task.sample.key, (0, 0))).to_dicts()
        members = []
        for kind, name in dataset.members(task.sample.key).items():
            data = dataset.container.read(name)
            made: Any = None
            try:
                form = streams.find_by_kind(kind).form
                if kind in task.fits and form == "cube":
                    made = read_description(data)
                elif kind in task.fits and form != "camera":
                    points = decode_cloud(data)
                    names = name_radar_fields(points.dtype.names or ()) if streams.is_radar(kind) else {}
                    made = make_rays(points, names)
                elif kind == "depth.png" and task.reached:
                    made = read_depth(data)
            except EdgeFirstError as error:
                raise DatasetError(f"{dataset.container.path}: {name!r}: {error}") from error
            members.append((kind, data, made))
        marks = mark(rows, task.size, self._level) if task.reached and task.size else None
        return rows, members, marks

    def add(self, task: SampleTask, ready: PreparedSample) -> None:
        n, reached = task.number, task.reached
        stamp, (rows, members, marks) = int(self._stamps[n]), ready
        self._tally["samples"] += 1
        self._tally["samples without a pose"] += not reached
        for kind, data, made in members:
            if kind.startswith("camera."):
                if reached:
                    annotations = {"annotations": told} if (told := select_columns(rows)) else {}
                    self._picture(n, kind, data, int(self._drive.stamps[n]), **annotations)
            elif self._drive.lacks_intrinsics(kind):
                self._tally[f"{kind} without CameraInfo"] += 1
            elif is_companion(kind):
                self._companion(task, kind, data, made)
            elif kind == "depth.png" and reached:
                self._tally["depth without a place" if made is None else "depth"] += 1
                if made is not None:
                    self._label("depth").store_label(made, stamp)
            else:
                self._tally[kind] += 1
        if reached:
            size = task.size or self._sizes.get(CAMERA)
            if size:
                self._mark(marks or mark(rows, size, self._level), stamp)
        self._boxes(n, rows)

    def _mark(self, marks: Marks, stamp: int) -> None:
        self._tally["masks without a place"] += marks.misplaced
        if marks.instances is not None:
            self._label("instance").store_label(marks.instances, stamp, {"instances": marks.told})
            self._tally["instances"] += len(marks.told)
        if marks.classes is not None:
            names = self._drive.dataset.metadata.get("labels")
            named = {"labels": names if isinstance(names, list) else []}
            self._label("semantic").store_label(marks.classes, stamp, named)
            self._tally["masks of classes"] += 1

    def _label(self, what: str) -> Any:
        """Return the writer of camera labels of a kind, begun with its first label."""
        if what not in self._labels:
            lib = load_library()
            if what == "depth":
                quantised = lib.QuantizationParams(np.dtype(np.uint16), MILLIMETRE, 0.0)
                schema = lib.LabelSchema(np.dtype(np.float32), (), lib.LabelEncoding.RAW, None, quantised)
                label, source = lib.LabelType.DEPTH_Z_M, lib.LabelSource.EXTERNAL
            else:
                kind = np.dtype(np.uint16 if what == "instance" else np.uint8)
                schema = lib.LabelSchema(kind, (), lib.LabelEncoding.IMAGE_ENCODED, "png", None)
                label = lib.LabelType(lib.LabelCategory.SEGMENTATION, what, lib.LabelUnit.UNITLESS)
                source = lib.LabelSource.AUTOLABEL
            of = lib.CameraLabelDescriptor(CAMERA, label, schema, source)
            writer = lib.CameraLabelsComponent.Writer
            self._labels[what] = self._register(writer, of.default_instance_name, descriptor=of)
        return self._labels[what]

    def _companion(self, task: SampleTask, kind: str, data: bytes, made: Any) -> None:
        """Store the data of a companion, once for all samples that have it."""
        at, fits = task.stamps[kind], kind in task.fits
        for last in (self._last.get((kind, True)), self._last.get((kind, False))):
            if last is not None and last[0] == at and last[1] == data:
                return
        self._last[kind, fits] = at, data
        if not fits:
            self._tally[f"{kind} outside"] += 1
        elif streams.find_by_kind(kind).form == "cube":
            stamp = at // MICROSECOND
            self._sensor(kind).store_cube(data, stamp, made)
            self._cubes.setdefault(kind, []).append(stamp)
            self._tally[kind] += 1
        elif streams.find_by_kind(kind).form == "camera":
            self._picture(task.number, kind, data, at)
        elif made is None:
            self._tally[f"{kind} without a place"] += 1
        else:
            self._points(kind, made, at)

    def _picture(self, n: int, kind: str, data: bytes, at: int, **meta: Any) -> None:
        """Store a picture of a sample without the NUL bytes at its end, which NCore would cut off."""
        row, picture, camera = self._drive.row(n), data.rstrip(b"\0"), name_sensor(kind)
        what = CAMERA if camera == CAMERA else kind
        if not picture:
            self._tally[f"{what} empty"] += what != CAMERA
            return
        sensor, form = streams.find_by_kind(kind), kind.rpartition(".")[2]
        place = f"{self._drive.name!r}: frame {row.get('frame')}" + (f" of {camera}" if camera != CAMERA else "")
        try:
            size = row.get(sensor.size_column) or (check_jpeg if form == "jpeg" else check_png)(picture)
        except MessageError as error:
            raise DatasetError(f"{place}: the picture cannot be read: {error}") from error
        known = self._sizes.get(camera)
        if known is None:
            known = self._sizes[camera] = (int(size[0]), int(size[1]))
            self._intrinsics.store_camera_intrinsics(camera, make_camera_model(self._drive.info_of(sensor.key), known))
            self._masks.store_camera_masks(camera, {})
        if tuple(size) != known:
            raise DatasetError(
                f"{place} has {size[0]} x {size[1]} pixels, those before it {known[0]} x {known[1]}; a camera of NCore "
                "has one size"
            )
        stamps = np.array([at // MICROSECOND] * 2, np.uint64)
        told = {"frame": row.get("frame"), "timestamp_ns": at, **meta}
        self._sensor(kind).store_frame(picture, form, stamps, {}, told)
        self._tally["bytes of NUL"] += len(data) - len(picture)
        self._tally[what] += 1

    def _points(self, kind: str, found: Rays, at: int) -> None:
        stamp = at // MICROSECOND
        each = np.broadcast_to(np.uint64(stamp), len(found.direction))
        both, meta = np.array([stamp, stamp], np.uint64), {"timestamp_ns": at}
        writer = self._sensor(kind)
        if streams.is_radar(kind):
            writer.store_frame(found.direction, each, found.distance, both, found.further, meta)
        else:
            writer.store_frame(found.direction, each, None, found.distance, found.intensity, both, found.further, meta)
        self._tally[kind] += 1
        self._tally[f"{kind} points left"] += found.left
        self._tally.update(f"{kind} field {name}" for name in found.further)

    def _boxes(self, n: int, rows: list[dict[str, Any]]) -> None:
        """Add the boxes of a sample, in the frame `rig`; one without an object_id is named by its sample and row."""
        lib, drive, stamp = load_library(), self._drive, int(self._stamps[n])
        for number, row in enumerate(rows):
            box = row.get("box3d")
            if box is None:
                continue
            if not self._start <= stamp < self._stop:
                self._tally["boxes outside"] += 1
                continue
            if len(box) != 6 or not all(map(math.isfinite, box)):
                self._tally["boxes not finite"] += 1
                continue
            x, y, z, length, width, height = drive.boxes(box)[0].tolist()
            self._observations.append(
                lib.CuboidTrackObservation(
                    track_id=str(row.get("object_id") or f"{drive.name}/{drive.samples[n].frame}/{number}"),
                    class_id=str(row.get("label") or "unknown"),
                    timestamp_us=stamp,
                    reference_frame_id=RIG,
                    reference_frame_timestamp_us=stamp,
                    bbox3=lib.BBox3((x, y, z), (length, width, height), (0.0, 0.0, 0.0)),
                    source=lib.LabelSource.AUTOLABEL,
                )
            )
            score = row.get("box3d_score")
            self._scores.append(math.nan if score is None else score)

    # ---- the end -----------------------------------------------------------------------------
    def finish(self) -> None:
        """Complete the stores, and write the library's summary beside them."""
        lib, drive = load_library(), self._drive
        writer = self._register(lib.CuboidsComponent.Writer, "default")
        writer.store_observations(self._observations)
        writer.set_generic_data({"score": np.array(self._scores, np.float32)})
        self._tally["boxes"] += len(self._observations)
        for kind, stamps in self._cubes.items():
            self._sensors[kind].store_timestamps(stamps)
        summary = lib.SequenceComponentGroupsReader(self._groups.finalize()).get_sequence_meta().to_dict()
        summary["component_stores"].sort(key=lambda store: store["path"])  # the library has them as they were hashed
        path = self._folder / f"{make_safe(drive.name)}.json"
        path.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
