# SPDX-License-Identifier: Apache-2.0
"""A dataset as NCore sequences: one a drive, in a folder of its own, with a summary beside its stores."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import DatasetError, MessageError, UsageError
from edgefirst_ros.export.ahead import ahead
from edgefirst_ros.export.drive import Drive, drives
from edgefirst_ros.export.ncore import checks
from edgefirst_ros.export.ncore.calibration import camera_model
from edgefirst_ros.export.ncore.labels import Cuboids, Labels, plain
from edgefirst_ros.export.ncore.library import EARTH, RIG, WORLD, components, library
from edgefirst_ros.export.ncore.losses import losses
from edgefirst_ros.export.ncore.points import Rays
from edgefirst_ros.export.ncore.preparing import COMPANIONS, MICROSECOND, Member, Preparation, Ready, Task
from edgefirst_ros.export.report import Report
from edgefirst_ros.progress import Progress
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.png import check_png

Store = Literal["itar", "directory"]


def export(dataset: Dataset, out: Path, report: Report, progress: Progress, *, store: Store = "itar") -> None:
    """Write each drive of a dataset into OUT/SEQUENCE as an NCore V4 sequence, `out` being an empty folder.

    `store`: one file a component group (.zarr.itar), or a folder of many (.zarr). Raises UsageError without the
    library, DatasetError where stamps, poses, intrinsics or places of the sensors are missing, or break NCore's rules.
    """
    if store not in ("itar", "directory"):
        raise UsageError(f"store {store!r}; NCore has itar and directory")
    library()
    tally: Counter[str] = Counter()
    done = 0
    for drive in drives(dataset):
        folder = out / safe_name(drive.name)
        if folder.exists():
            raise DatasetError(f"{drive.name!r} and another sequence have the same folder name")
        with ExitStack() as leaving:
            sequence = _Sequence(drive, folder, store, tally)
            preparation = sequence.preparation
            for task, ready in leaving.enter_context(closing(ahead(preparation.tasks(), preparation.make))):
                sequence.add(task, ready)
                done += 1
                progress("exporting to NCore", done, len(dataset))
            sequence.finish()
    losses(dataset, report, tally)


class _Sequence:
    """One drive on its way."""

    def __init__(self, drive: Drive, folder: Path, store: Store, tally: Counter[str]) -> None:
        lib = library()
        known = np.flatnonzero(drive.located)
        if len(known) < 2:
            raise DatasetError(
                f"{drive.dataset.paths.frames}: {len(known)} samples of {drive.name!r} have position and attitude; "
                "NCore needs two at least, which come from GPS and IMU messages of the recording"
            )
        self._drive, self._folder, self._tally = drive, folder, tally
        self._stamps = drive.stamps // MICROSECOND
        checks.rising(f"{drive.name!r}: samples", self._stamps)
        checks.inside(f"{drive.name!r}: samples", int(self._stamps[0]), 0, int(self._stamps[-1]) + 1)
        self._start, self._stop = int(self._stamps[known[0]]), int(self._stamps[known[-1]]) + 1
        tally["samples without a pose between others"] += int((~drive.located[known[0] : known[-1]]).sum())
        described = {"source": "EdgeFirst dataset", "dataset": drive.dataset.paths.name, "sequence": drive.name}
        interval = lib.HalfClosedInterval(self._start, self._stop)
        self._groups = lib.SequenceComponentGroupsWriter(
            lib.UPath(folder), safe_name(drive.name), drive.name, interval, described, store
        )
        self._tree = checks.Tree()
        self._poses = self._register(lib.PosesComponent.Writer, "default")
        self._store_poses(known)
        self._intrinsics = self._register(lib.IntrinsicsComponent.Writer, "default")
        self._masks = self._register(lib.MasksComponent.Writer, "default")
        self._cuboids = Cuboids(drive, tally)
        metadata = drive.dataset.metadata
        labels = metadata.get("labels") if isinstance(metadata.get("labels"), list) else []
        self._labels = Labels(
            self._register_labels, "camera", labels or [], str(metadata.get("mask_interpretation")), tally
        )
        self.preparation = Preparation(drive, self._labels, self._start, self._stop)
        self._sensors: dict[str, Any] = {}
        self._last: dict[tuple[str, bool], tuple[int, bytes]] = {}
        self._cubes: list[int] = []

    # ---- what holds for the whole drive ------------------------------------------------------
    def _register(self, kind: Any, instance: str, group: str | None = None, **more: Any) -> Any:
        return self._groups.register_component_writer(kind, instance, group, None, **more)

    def _register_labels(self, descriptor: Any) -> Any:
        writer = library().CameraLabelsComponent.Writer
        return self._register(writer, descriptor.default_instance_name, descriptor=descriptor)

    def _store_poses(self, known: Any) -> None:
        """The way of the rig at the located samples, and what they were made from."""
        drive, stamps = self._drive, self._stamps[known].astype(np.uint64)
        way, earth = drive.rig_to_world[known], drive.world_to_ecef
        what = f"{drive.name!r}: rig to world"
        checks.rigid(what, way)
        checks.rigid(what, earth)
        checks.covering(what, stamps, self._start, self._stop)
        self._tree.join(RIG, WORLD)
        self._poses.store_dynamic_pose(RIG, WORLD, way, stamps)
        self._tree.join(WORLD, EARTH)
        self._poses.store_static_pose(WORLD, EARTH, earth)
        rows = [drive.rows[n] for n in known]
        altitudes = [np.nan if row.get("altitude") is None else row["altitude"] for row in rows]
        self._poses.set_generic_data(
            {
                "timestamp_ns": drive.stamps[known],
                "latitude_deg": drive.geodetic[known, 0],
                "longitude_deg": drive.geodetic[known, 1],
                "altitude_m": np.array(altitudes, np.float64),
                "orientation_xyzw": np.array([row["orientation"] for row in rows], np.float64),
            }
        )

    def _place(self, sensor: str) -> None:
        """The static pose of a sensor; once."""
        place = self._drive.place(sensor)
        checks.rigid(f"{sensor} to {RIG}", place)
        self._tree.join(sensor, RIG)
        self._poses.store_static_pose(sensor, RIG, place)

    def _sensor(self, kind: str) -> Any:
        """Return the writer of a kind of member, begun with its first frame."""
        if kind not in self._sensors:
            lib = library()
            sensor = kind.partition(".")[0]
            if not any(other.startswith(f"{sensor}.") for other in self._sensors):
                self._place(sensor)
            if kind == "radar.png":
                self._sensors[kind] = self._register(components()[0], sensor, "radar_cube")
            else:
                writers = {"camera": lib.CameraSensorComponent, "lidar": lib.LidarSensorComponent}
                self._sensors[kind] = self._register(writers.get(sensor, lib.RadarSensorComponent).Writer, sensor)
        return self._sensors[kind]

    # ---- samples -----------------------------------------------------------------------------
    def add(self, task: Task, ready: Ready) -> None:
        """Put a sample."""
        n, reached = task.number, task.reached
        stamp = int(self._stamps[n])
        self._tally["samples"] += 1
        self._tally["samples without a pose"] += not reached
        for member in ready.members:
            kind, data = member.kind, member.data
            if kind.startswith("camera."):
                rest = len(data) - len(data.rstrip(b"\0"))
                if reached and rest < len(data):
                    self._camera(n, kind, data[: len(data) - rest], ready.rows)
                    self._tally["bytes of NUL"] += rest
            elif kind in COMPANIONS:
                self._companion(task, member)
            elif kind == "depth.png" and reached:
                self._labels.add_depth(member.made, stamp)
            else:
                self._tally[kind] += 1
        if reached:
            size = task.size or self.preparation.size
            if size:
                self._labels.add(ready.marks or self._labels.prepared(ready.rows, size), stamp)
        self._boxes(n, ready.rows)

    def _camera(self, n: int, kind: str, picture: bytes, rows: list[dict[str, Any]]) -> None:
        """Store a picture, without the NUL bytes at its end, which NCore would cut off."""
        row, stamp = self._drive.rows[n], int(self._stamps[n])
        try:
            size = row.get("size") or (check_jpeg if kind == "camera.jpeg" else check_png)(picture)
        except MessageError as error:
            text = f"{self._drive.name!r}: frame {row.get('frame')}: the picture cannot be read: {error}"
            raise DatasetError(text) from error
        known = self.preparation.size
        if known is None:
            known = self.preparation.size = (int(size[0]), int(size[1]))
            self._intrinsics.store_camera_intrinsics("camera", camera_model(self._drive.camera, known))
            self._masks.store_camera_masks("camera", {})
        if tuple(size) != known:
            raise DatasetError(
                f"{self._drive.name!r}: frame {row.get('frame')} has {size[0]} x {size[1]} pixels, those before it "
                f"{known[0]} x {known[1]}; a camera of NCore has one size"
            )
        meta: dict[str, Any] = {"frame": row.get("frame"), "timestamp_ns": int(self._drive.stamps[n])}
        told = plain(rows)
        if told:
            meta["annotations"] = told
        both = np.array([stamp, stamp], np.uint64)
        form = "jpeg" if kind == "camera.jpeg" else "png"
        self._sensor("camera").store_frame(picture, form, both, {}, meta)
        self._tally["camera"] += 1

    def _companion(self, task: Task, member: Member) -> None:
        """Store what a companion measured, once for all samples that have it."""
        kind, data = member.kind, member.data
        at, fits = task.stamps[kind], kind in task.fits
        for last in (self._last.get((kind, True)), self._last.get((kind, False))):
            if last is not None and last[0] == at and last[1] == data:
                return
        self._last[kind, fits] = at, data
        if not fits:
            self._tally[f"{kind} outside"] += 1
        elif kind == "radar.png":
            stamp = at // MICROSECOND
            self._sensor(kind).store_cube(data, stamp, member.made)
            self._cubes.append(stamp)
            self._tally[kind] += 1
        elif member.made is None:
            self._tally[f"{kind} without a place"] += 1
        else:
            self._points(kind, member.made, at)

    def _points(self, kind: str, found: Rays, at: int) -> None:
        """Store the rays of a cloud."""
        stamp = at // MICROSECOND
        each = np.broadcast_to(np.uint64(stamp), len(found.direction))
        both, meta = np.array([stamp, stamp], np.uint64), {"timestamp_ns": at}
        writer = self._sensor(kind)
        if kind == "radar.pcd":
            writer.store_frame(found.direction, each, found.distance, both, found.further, meta)
        else:
            writer.store_frame(found.direction, each, None, found.distance, found.intensity, both, found.further, meta)
        self._tally[kind] += 1
        self._tally[f"{kind} points left"] += found.left
        self._tally.update(f"{kind} field {name}" for name in found.further)

    def _boxes(self, n: int, rows: list[dict[str, Any]]) -> None:
        if not any(row.get("box3d") is not None for row in rows):
            return
        stamp = int(self._stamps[n])
        if self._start <= stamp < self._stop:
            self._cuboids.add(rows, f"{self._drive.name}/{self._drive.rows[n].get('frame')}", stamp)
        else:
            self._tally["boxes outside"] += sum(row.get("box3d") is not None for row in rows)

    # ---- the end -----------------------------------------------------------------------------
    def finish(self) -> None:
        """Complete the stores, and write the library's summary beside them."""
        lib, drive = library(), self._drive
        writer = self._register(lib.CuboidsComponent.Writer, "default")
        writer.store_observations(self._cuboids.observations)
        writer.set_generic_data({"score": np.array(self._cuboids.scores, np.float32)})
        self._tally["boxes"] += len(self._cuboids.observations)
        if "radar.png" in self._sensors:
            self._sensors["radar.png"].store_timestamps(self._cubes)
        summary = lib.SequenceComponentGroupsReader(self._groups.finalize()).get_sequence_meta().to_dict()
        summary["component_stores"].sort(key=lambda store: store["path"])  # the library has them as they were hashed
        path = self._folder / f"{safe_name(drive.name)}.json"
        path.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
