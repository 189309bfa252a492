# SPDX-License-Identifier: Apache-2.0
"""NCore sequences of others as datasets, as far as they map: one dataset for each camera of each sequence."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import edgefirst_ros
from edgefirst_ros.dataset.names import MAX_FRAME, safe_name
from edgefirst_ros.dataset.storage.budget import Budget
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export.importing import clean_text
from edgefirst_ros.export.ncore.calibration import camera_info
from edgefirst_ros.export.ncore.library import EARTH, RIG, WORLD, library, reading
from edgefirst_ros.export.ncore.pictures import Pictures
from edgefirst_ros.export.ncore.points import RADAR_NAMES, cloud
from edgefirst_ros.export.report import Report
from edgefirst_ros.progress import Progress
from edgefirst_ros.sensors.calibration import judge
from edgefirst_ros.sensors.geodesy import geodetic, world_to_ecef
from edgefirst_ros.sensors.transforms import BASE, move_boxes, pose, rotation

TOLERANCE = 100_000
"""Largest skew of a companion against a picture, µs."""
EARTH_RADIUS = (6.3e6, 6.5e6)
"""Between these (m) a place in world_global is one on the earth, so that it is ECEF; NCore does not say."""
KINDS = {"jpeg": "camera.jpeg", "jpg": "camera.jpeg", "png": "camera.png"}
FIELDS = {new: old for old, new in RADAR_NAMES.items()}


def bring(readers: Iterable[Any], out: Path, budget: Budget, report: Report, progress: Progress) -> None:
    """Write a dataset for each camera of each sequence into `out`. Raises DatasetError where there is no camera."""
    tally: Counter[str] = Counter()
    for reader in readers:
        with reading(f"NCore sequence {reader.sequence_id!r}"):
            loader = _loader(reader)
        for camera in loader.camera_ids:
            name = loader.sequence_id if len(loader.camera_ids) == 1 else f"{loader.sequence_id}-{camera}"
            with reading(name):
                taken = _Import(loader, camera, safe_name(name), tally)
            taken.write(out, budget, progress)
        for ids in (loader.lidar_ids[1:], loader.radar_ids[1:]):
            for sensor in ids:
                report.add(sensor, "", "a dataset has one lidar and one radar")
        for source in loader.point_clouds_ids:
            report.add(source, "", "point clouds without a sensor have no home")
    if not tally["camera"]:
        raise DatasetError("the NCore sequences have no camera with JPEG or PNG pictures: there would be no sample")
    for what, where, lost in _LINES:
        if tally[what]:
            report.add(what, where, lost, tally[what])


_LINES = (
    ("camera", "camera.jpeg, camera.png", ""),
    ("pictures", "", "neither JPEG nor PNG"),
    ("broken pictures", "", "no picture can be read there"),
    ("without a position", "frames", "world_global is not there, or is not ECEF: neither position nor attitude"),
    ("lidar", "lidar.pcd", "of several returns the first; the nearest within 100 ms of a picture"),
    ("radar", "radar.pcd", "of several returns the first; the nearest within 100 ms of a picture"),
    ("cuboids", "box3d", "those turned by over 10 degrees against the vehicle become the hull around them"),
    ("cuboids again", "", "a picture has one box of a track, the nearest in time"),
    ("cuboids without a picture", "", "no picture within 100 ms, or no pose"),
    ("instances", "mask", ""),
    ("classes", "mask", ""),
    ("depth", "depth.png", "whole mm up to 65.535 m"),
    ("labels", "", "camera labels of other kinds, or with values over 255"),
    ("broken labels", "", "they cannot be read"),
    ("camera models", "", "f-theta and windshields are unknown to ROS: no camera_info"),
)


def _loader(reader: Any) -> Any:
    lib = library()
    named = {}
    for argument, component in (
        ("poses", lib.PosesComponent),
        ("intrinsics", lib.IntrinsicsComponent),
        ("masks", lib.MasksComponent),
        ("cuboids", lib.CuboidsComponent),
    ):
        there = list(reader.open_component_readers(component.Reader))
        name = "default" if "default" in there else next(iter(sorted(there)), None)
        if name is None and argument in ("poses", "intrinsics"):
            raise DatasetError(f"NCore sequence {reader.sequence_id!r} has no component {argument}")
        named[f"{argument}_component_group_name"] = name
    return lib.SequenceLoaderV4(reader, **named)


class _Import:
    """One camera of one sequence."""

    def __init__(self, loader: Any, camera: str, name: str, tally: Counter[str]) -> None:
        self._loader, self._camera, self._name, self._tally = loader, camera, name, tally
        self._sensor = loader.get_camera_sensor(camera)
        self._stamps: NDArray[np.int64] = self._sensor.frames_timestamps_us[:, 1].astype(np.int64)
        self._companions: dict[str, tuple[Any, NDArray[np.int64]]] = {}
        for kind, ids, get in (
            ("lidar", loader.lidar_ids, loader.get_lidar_sensor),
            ("radar", loader.radar_ids, loader.get_radar_sensor),
        ):
            if ids and len(stamps := (sensor := get(ids[0])).frames_timestamps_us[:, 1].astype(np.int64)):
                self._companions[kind] = sensor, stamps
        self._clouds: dict[str, tuple[int, bytes]] = {}

    def write(self, out: Path, budget: Budget, progress: Progress) -> None:
        """Write its dataset."""
        with reading(self._name):
            rows, boxes, numbers = self._positions(), self._boxes(), self._numbers()
            pictures = Pictures(self._loader, self._camera, self._name, budget, self._tally)
        with DatasetWriter(out, self._name, companions=("radar_targets", "lidar_points")) as writer:
            for n in range(len(self._stamps)):
                with reading(f"{self._name}: picture {n}"):
                    sample = self._sample(n, numbers[n], rows[n], boxes.get(n, {}), pictures)
                    if sample is None:
                        continue
                    budget.take(unpacked=sum(memoryview(part).nbytes for _, parts in sample.members for part in parts))
                    writer.write(sample)
                self._tally["camera"] += 1
                progress("importing from NCore", n + 1, len(self._stamps))
            if writer.samples:
                with reading(self._name):
                    metadata = self._metadata(writer.samples)
                writer.finish(metadata, pictures.labels, box3d_frame=BASE)

    def _sample(
        self, n: int, number: int, row: dict[str, Any], boxes: Mapping[str, dict[str, Any]], pictures: Pictures
    ) -> Sample | None:
        """Return the sample of a picture; None if it is not a picture."""
        stamp, told = int(self._stamps[n]), self._sensor.get_frame_generic_meta_data(n)
        time = exact(told, stamp)
        data = self._sensor.get_frame_handle(n).get_data()
        kind = KINDS.get(data.get_encoded_image_format())
        if kind is None:
            self._tally["pictures"] += 1
            return None
        size = pictures.size(data)
        if size is None:
            return None
        members: list[tuple[str, list[bytes]]] = [(kind, [bytes(data.get_encoded_image_data())])]
        frame_row: dict[str, Any] = {**row, "keyframe": True, "segment": 0, "size": size}
        self._nearest(stamp, time, members, frame_row)
        depth = pictures.depth(stamp)
        if depth is not None:
            members.append(("depth.png", [depth]))
        annotations = pictures.rows(stamp, told)
        for track, box in boxes.items():
            annotations.setdefault(track, {"object_id": track}).update(box)
        common: dict[str, object] = {"size": size}
        if frame_row.get("latitude") is not None:
            common["location"] = (frame_row["latitude"], frame_row["longitude"])
        return Sample(self._name, number, time, members, frame_row, [*annotations.values()], common)

    def _numbers(self) -> list[int]:
        """Return the frame numbers that `export` put into the metadata of the frames, else 0, 1, 2 and so on."""
        count = len(self._stamps)
        told = [self._sensor.get_frame_generic_meta_data(n).get("frame") for n in range(count)]
        own = all(type(number) is int and 0 <= number <= MAX_FRAME for number in told) and len(set(told)) == count
        return told if own else list(range(count))

    # ---- where ---------------------------------------------------------------------------------
    def _pose(self, source: str, target: str, stamps: NDArray[Any]) -> NDArray[np.float64] | None:
        """(N, 4, 4), or None where nothing joins the two or it does not reach so far."""
        try:
            found = self._loader.pose_graph.evaluate_poses(source, target, stamps.astype(np.uint64))
        except Exception:  # noqa: BLE001  # the library's own kinds of KeyError, assertion and ValueError
            return None
        return np.asarray(found, np.float64)

    def _positions(self) -> list[dict[str, Any]]:
        """Columns of the frames table by picture."""
        poses = self._pose(RIG, EARTH, self._stamps)
        rows: list[dict[str, Any]] = [{} for _ in self._stamps]
        for row, there in zip(rows, () if poses is None else poses, strict=False):
            if EARTH_RADIUS[0] < np.linalg.norm(there[:3, 3]) < EARTH_RADIUS[1]:
                latitude, longitude, altitude = map(float, geodetic(there[:3, 3]))
                turn = world_to_ecef(latitude, longitude, altitude)[:3, :3].T @ there[:3, :3]
                row |= {"latitude": latitude, "longitude": longitude, "altitude": altitude}
                row["orientation"] = quaternion(turn)
        self._tally["without a position"] += sum(not row for row in rows)
        return rows

    def _metadata(self, written: int) -> dict[str, Any]:
        """Metadata of the frames table."""
        transforms = []
        places = {self._camera: self._camera} | {kind: s.sensor_id for kind, (s, _) in self._companions.items()}
        for child, sensor in places.items():
            pose = self._pose(sensor, RIG, self._stamps[:1])
            if pose is not None:
                transforms.append(
                    {
                        "parent": BASE,
                        "child": child,
                        "translation": list(map(float, pose[0, :3, 3])),
                        "rotation": list(quaternion(pose[0, :3, :3])),
                    }
                )
        count = len(self._stamps)
        dropped = {"neither JPEG nor PNG, or broken": count - written} if count > written else {}
        info = camera_info(self._sensor.model_parameters, self._camera)
        self._tally["camera models"] += info is None
        sources = [{"file": path.name} for path in self._loader.sequence_paths]
        known = {
            "time_base": {"base": "header", "topics": {}},
            "camera_info": info,
            "static_transforms": transforms,
            "counts": {self._camera: {"seen": count, "written": written, "dropped": dropped}},
        }
        own = {
            "sources": list(range(len(sources))),
            "calibration": judge(info, transforms, self._companions),
            "topics": {"reference": self._camera},
        }
        return {
            "sources": sources,
            "configuration": {},
            "software": {"name": "edgefirst-ros", "version": edgefirst_ros.__version__},
            **known,
            "sequences": {self._name: {**known, **own}},
        }

    # ---- companions ----------------------------------------------------------------------------
    def _nearest(self, stamp: int, time: int, members: list[tuple[str, list[bytes]]], row: dict[str, Any]) -> None:
        """Add the clouds nearest to a picture, and their stamps."""
        for kind, column in (("lidar", "lidar_points"), ("radar", "radar_targets")):
            if kind not in self._companions:
                continue
            sensor, stamps = self._companions[kind]
            n = int(np.argmin(np.abs(stamps - stamp)))
            if abs(stamps[n] - stamp) > TOLERANCE:
                continue
            if self._clouds.get(kind, (-1, b""))[0] != n:
                self._clouds[kind] = n, self._cloud(sensor, n, radar=kind == "radar")
                self._tally[kind] += 1
            members.append((f"{kind}.pcd", [self._clouds[kind][1]]))
            row[f"{column}_timestamp"] = exact(sensor.get_frame_generic_meta_data(n), int(stamps[n]))
            row[f"{column}_skew"] = row[f"{column}_timestamp"] - time

    def _cloud(self, sensor: Any, n: int, *, radar: bool) -> bytes:
        points = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
        valid = sensor.get_frame_ray_bundle_return_valid_mask(n)
        further: dict[str, NDArray[Any]] = {}
        for name in sensor.get_frame_generic_data_names(n):
            further[FIELDS.get(name, name) if radar else name] = sensor.get_frame_generic_data(n, name)
        if not radar:
            further.setdefault("intensity", sensor.get_frame_ray_bundle_return_intensity(n))
        kept = {name: values[valid] for name, values in further.items() if values.shape[:1] == valid.shape}
        return cloud(points[valid], kept)

    # ---- boxes ---------------------------------------------------------------------------------
    def _boxes(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Columns of boxes by picture and object_id; of several of one track those nearest in time."""
        found: dict[int, dict[str, dict[str, Any]]] = {}
        nearest: dict[tuple[int, str], int] = {}
        for seen in self._loader.get_cuboid_track_observations():
            n = int(np.argmin(np.abs(self._stamps - seen.timestamp_us))) if len(self._stamps) else -1
            away = abs(int(self._stamps[n]) - seen.timestamp_us) if n >= 0 else TOLERANCE + 1
            box = self._box(seen, int(self._stamps[n])) if away <= TOLERANCE else None
            track = identity(self._name, seen.track_id)
            if box is None:
                self._tally["cuboids without a picture"] += 1
                continue
            again = (n, track) in nearest
            self._tally["cuboids again" if again else "cuboids"] += 1
            if not again or away < nearest[n, track]:
                nearest[n, track] = away
                found.setdefault(n, {})[track] = {"label": clean_text(str(seen.class_id)), "box3d": box}
        return found

    def _box(self, seen: Any, stamp: int) -> list[float] | None:
        """Return box3d of a cuboid in the axes of the vehicle at `stamp`, µs; None where no pose leads there."""
        graph = self._loader.pose_graph
        for time, anchor in ((stamp, WORLD), (seen.reference_frame_timestamp_us, RIG)):  # without poses: where it was
            try:
                box = seen.transform(RIG, time, graph, anchor).bbox3
            except Exception:  # noqa: BLE001, S112  # the library's own kinds of KeyError, assertion and ValueError
                continue
            way = pose(about_axes(box.rot), np.array(box.centroid, float))
            if np.isfinite([*way.flat, *box.dim]).all():
                return list(map(float, move_boxes([0, 0, 0, *box.dim], way)[0]))
        return None


def exact(told: dict[str, Any], stamp_us: int) -> int:
    """Return the stamp in ns that `export` put into the metadata of a frame, else that of NCore."""
    said = told.get("timestamp_ns")
    return said if type(said) is int and said // 1000 == stamp_us else stamp_us * 1000


def about_axes(angles: Sequence[float]) -> NDArray[np.float64]:
    """(3, 3) turn about x, then y, then z, each by its angle in rad."""
    found = np.eye(3)
    for n, angle in enumerate(angles):
        axis = np.zeros(3)
        axis[n] = np.sin(angle / 2)
        found = rotation([*axis, np.cos(angle / 2)]) @ found
    return found


def quaternion(turn: NDArray[np.float64]) -> tuple[float, ...]:
    """x, y, z, w of a rotation (3, 3): the eigenvector of Bar-Itzhack's matrix, with w >= 0."""
    (a, b, c), (d, e, f), (g, h, i) = turn
    matrix = [
        [a - e - i, b + d, c + g, h - f],
        [b + d, e - a - i, f + h, c - g],
        [c + g, f + h, i - a - e, d - b],
        [h - f, c - g, d - b, a + e + i],
    ]
    found = np.linalg.eigh(matrix)[1][:, -1]
    return tuple(map(float, found if found[3] >= 0 else -found))


def identity(sequence: str, track: str) -> str:
    """Return the UUID of a track: its own, else one made of sequence and track."""
    try:
        return str(uuid.UUID(track))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, clean_text(f"{sequence}/{track}")))
