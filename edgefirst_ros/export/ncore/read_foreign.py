# SPDX-License-Identifier: Apache-2.0
"""Reads NCore sequences as datasets, as far as they map: one dataset for each camera of each sequence."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.names import MAX_FRAME, make_safe
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import importing
from edgefirst_ros.export.importing import (
    SensorEntries,
    clean_text,
    list_companion_columns,
    make_counts,
    make_metadata,
    name_kinds,
    refuse_links,
    stamp_picture,
)
from edgefirst_ros.export.ncore.components import RADAR_NAMES, make_camera_info, make_cloud
from edgefirst_ros.export.ncore.library import (
    EARTH,
    OWN_CUBE,
    RIG,
    WORLD,
    convert_errors,
    find_sequences,
    load_components,
    load_library,
    open_sequences,
)
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.limits import Budget, Limits
from edgefirst_ros.sensors.calibration import find_frame, judge
from edgefirst_ros.sensors.cube import decode_cube
from edgefirst_ros.sensors.jpeg import Buffer
from edgefirst_ros.sensors.png import encode_gray
from edgefirst_ros.sensors.transforms import (
    BASE,
    convert_to_geodetic,
    make_pose,
    make_quaternion,
    make_rotation,
    make_world_to_ecef,
    move_boxes,
)
from edgefirst_ros.streams import find_by_kind

TOLERANCE = importing.TOLERANCE // 1000
"""Largest skew of a box against a picture, µs."""
NEAREST = "the nearest within 100 ms of a picture"
OWN = frozenset({"frame", "timestamp_ns", "annotations"})
"""Metadata of a frame that `export` writes, and that are read."""
EARTH_RADIUS = (6.3e6, 6.5e6)
"""Between these (m) a place in world_global is one on the earth, so that it is ECEF; NCore does not say."""
KINDS = {"jpeg": "camera.jpeg", "jpg": "camera.jpeg", "png": "camera.png"}
FIELDS = {new: old for old, new in RADAR_NAMES.items()}
MILLIMETRES = 1000
LARGEST_NUMBER = 3e38
"""Largest number in a column of boxes (float32)."""
COLUMNS = ("label", "label_index", "box2d", "box2d_score")
"""Columns that `export` puts into the metadata of a frame for each object_id."""


def restore(source: Path, out: Path, limits: Limits, report: LossReport, progress: Progress) -> None:
    """Write a dataset for each camera of each NCore sequence in `source`, as far as it has a place for their data.

    `source`: a folder that holds stores at any depth, or one store, or the summary of a sequence. Raises DatasetError
    where a camera is missing, a file cannot be read, or a store holds a link; UsageError without the library.
    """
    found = find_sequences(source, report)
    stores = [store for stores in found for store in stores]
    size = sum(refuse_links(store.resolve() if store == source else store) for store in stores)
    budget = Budget.of_import(source, size, limits)
    with closing(open_sequences(found)) as readers:
        _read_all(readers, out, budget, report, progress)


def _read_all(readers: Iterable[Any], out: Path, budget: Budget, report: LossReport, progress: Progress) -> None:
    tally: Counter[str] = Counter()
    kinds: dict[str, str] = {}
    for reader in readers:
        with convert_errors(f"NCore sequence {reader.sequence_id!r}"):
            loader = _load(reader)
            tally["generic metadata"] += len(loader.generic_meta_data)
        for camera in loader.camera_ids:
            name = loader.sequence_id if len(loader.camera_ids) == 1 else f"{loader.sequence_id}-{camera}"
            with convert_errors(name):
                taken = _Import(loader, reader, camera, make_safe(name), tally)
            taken.write(out, budget, progress)
            kinds |= {companion.what: companion.kind for companion in taken.companions}
        for source in loader.point_clouds_ids:
            report.add(source, "", "point clouds without a sensor have no place")
    if not tally["camera"]:
        raise DatasetError("the NCore sequences have no camera with JPEG or PNG pictures, and so no sample")
    for what, kind in kinds.items():
        returns = "of several returns the first; " if kind.endswith("pcd") else ""
        report.count(what, kind, returns + NEAREST, tally[what])
    for what, where, lost in _LINES:
        report.count(what, where, lost, tally[what])


_LINES = (
    ("camera", "camera.jpeg, camera.png", ""),
    ("pictures", "", "neither JPEG nor PNG"),
    ("broken pictures", "", "no picture can be read there"),
    ("poses", "frames: pose_position, pose_orientation", "in world: world_global is missing or not ECEF"),
    ("without a position", "frames", "no pose leads to world_global in ECEF, nor to world"),
    ("cuboids", "box3d", "those turned by over 10 degrees against the vehicle become the hull around them"),
    ("cuboids again", "", "a picture has one box of a track, the nearest in time"),
    ("cuboids without a picture", "", "no picture within 100 ms, or no pose"),
    ("instances", "mask", ""),
    ("classes", "mask", ""),
    ("depth", "depth.png", "whole mm up to 65.535 m"),
    ("labels", "", "camera labels of other kinds, or with values over 255"),
    ("broken labels", "", "they cannot be read"),
    ("camera masks", "", "a dataset has no masks of the camera itself, such as of its own vehicle"),
    ("shutters", "", "camera_info has no shutter: a picture has the stamp of its end"),
    ("generic metadata", "", "entries of a sequence or of a frame's metadata that have no place"),
    ("camera models", "", "f-theta and windshields are unknown to ROS: no camera_info"),
)


def _load(reader: Any) -> Any:
    lib = load_library()
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

    def __init__(self, loader: Any, reader: Any, camera: str, name: str, tally: Counter[str]) -> None:
        self._loader, self._camera, self._name, self._tally = loader, camera, name, tally
        self._sensor = loader.get_camera_sensor(camera)
        self._frames: dict[str, str] = {}
        """Frame of each companion in the dataset, by its name."""
        self._own_frames: dict[str, str] = {}
        """{kind of cubes: their frame, where it is not that of the points of their radar}."""
        self._stamps: NDArray[np.int64] = self._sensor.frames_timestamps_us[:, 1].astype(np.int64)
        self.companions = list(self._find_companions(reader))

    def _find_companions(self, reader: Any) -> Iterator[SensorEntries]:
        loader, cubes = self._loader, reader.open_component_readers(load_components()[1])
        of_cubes = {name.removesuffix(OWN_CUBE): name for name in cubes}
        for first, ids, get in (
            ("lidar", loader.lidar_ids, loader.get_lidar_sensor),
            ("radar", loader.radar_ids, loader.get_radar_sensor),
        ):
            named = name_kinds(f"{first}.pcd", dict.fromkeys((*ids, *(of_cubes if first == "radar" else ()))), first)
            for name, kind in named.items():
                self._frames[name] = kind.partition(".")[0]
                if name in ids and len(stamps := (sensor := get(name)).frames_timestamps_us[:, 1].astype(np.int64)):
                    make = partial(self._cloud, sensor, name, radar=first == "radar")
                    yield SensorEntries(
                        name, kind, stamps * 1000, lru_cache(1)(make), partial(_read_exact, sensor, stamps)
                    )
                if first == "radar" and name in of_cubes:
                    found, own = cubes[of_cubes[name]], kind.replace(".pcd", ".png")
                    stamps = found.timestamps_us.astype(np.int64)
                    png = lru_cache(1)(partial(self._cube, found, f"cubes of {name}", stamps))
                    if of_cubes[name] != name:
                        self._frames[of_cubes[name]] = self._own_frames[own] = f"{own.partition('.')[0]}{OWN_CUBE}"
                    yield SensorEntries(f"cubes of {name}", own, stamps * 1000, png, partial(_stamp_in, png))

    def write(self, out: Path, budget: Budget, progress: Progress) -> None:
        with convert_errors(self._name):
            rows, boxes, numbers = self._positions(), self._boxes(), self._numbers()
            pictures = Pictures(self._loader, self._camera, self._name, budget, self._tally)
        with DatasetWriter(out, self._name, companions=list_companion_columns(self.companions)) as writer:
            for n in range(len(self._stamps)):
                with convert_errors(f"{self._name}: picture {n}"):
                    sample = self._sample(n, numbers[n], rows[n], boxes.get(n, {}), pictures)
                    if sample is None:
                        continue
                    budget.spend(unpacked=sum(memoryview(part).nbytes for _, parts in sample.members for part in parts))
                    writer.write(sample)
                self._tally["camera"] += 1
                progress("importing from NCore", n + 1, len(self._stamps))
            if writer.samples:
                with convert_errors(self._name):
                    metadata = self._metadata(writer.samples, posed=any("pose_position" in row for row in rows))
                writer.finish(metadata, pictures.labels, box3d_frame=BASE)

    def _sample(
        self, n: int, number: int, row: dict[str, Any], boxes: Mapping[str, dict[str, Any]], pictures: Pictures
    ) -> NewSample | None:
        """Return the sample of a picture; None if it is not a picture."""
        stamp, told = int(self._stamps[n]), self._sensor.get_frame_generic_meta_data(n)
        self._tally["generic metadata"] += len(told.keys() - OWN)
        time = find_exact(told, stamp)
        data = self._sensor.get_frame_handle(n).get_data()
        kind = KINDS.get(data.get_encoded_image_format())
        if kind is None:
            self._tally["pictures"] += 1
            return None
        size = pictures.size(data)
        if size is None:
            return None
        members: list[tuple[str, Sequence[Buffer]]] = []
        frame_row: dict[str, Any] = {**row, "keyframe": True, "segment": 0, "size": size}
        found = ((companion.kind, companion.near(stamp * 1000, time, frame_row)) for companion in self.companions)
        members += [(kind, [other]) for kind, other in found if other]
        depth = pictures.depth(stamp)
        if depth is not None:
            members.append(("depth.png", [depth]))
        annotations = pictures.rows(stamp, told)
        for track, box in boxes.items():
            annotations.setdefault(track, {"object_id": track}).update(box)
        common: dict[str, object] = {"size": size}
        if frame_row.get("latitude") is not None:
            common["location"] = (frame_row["latitude"], frame_row["longitude"])
        picture = bytes(data.get_encoded_image_data())
        members.insert(0, (kind, stamp_picture(kind, picture, self._name, number, time, frame_row)))
        return NewSample(self._name, number, time, members, frame_row, [*annotations.values()], common)

    def _numbers(self) -> list[int]:
        """Return the frame numbers that `export` put into the metadata of the frames, else 0, 1, 2 and so on."""
        count = len(self._stamps)
        told = [self._sensor.get_frame_generic_meta_data(n).get("frame") for n in range(count)]
        own = all(type(number) is int and 0 <= number <= MAX_FRAME for number in told) and len(set(told)) == count
        return told if own else list(range(count))

    # ---- where ---------------------------------------------------------------------------------
    def _pose(self, source: str, target: str, stamps: NDArray[Any]) -> NDArray[np.float64] | None:
        """Return (N, 4, 4); None if the two are not connected, or not at all of the stamps."""
        try:
            found = self._loader.pose_graph.evaluate_poses(source, target, stamps.astype(np.uint64))
        except Exception:  # noqa: BLE001  # the library's own kinds of KeyError, assertion and ValueError
            return None
        return np.asarray(found, np.float64)

    def _positions(self) -> list[dict[str, Any]]:
        poses = self._pose(RIG, EARTH, self._stamps)
        rows: list[dict[str, Any]] = [{} for _ in self._stamps]
        for row, there in zip(rows, () if poses is None else poses, strict=False):
            if EARTH_RADIUS[0] < np.linalg.norm(there[:3, 3]) < EARTH_RADIUS[1]:
                latitude, longitude, altitude = map(float, convert_to_geodetic(there[:3, 3]))
                turn = make_world_to_ecef(latitude, longitude, altitude)[:3, :3].T @ there[:3, :3]
                row |= {"latitude": latitude, "longitude": longitude, "altitude": altitude}
                row["orientation"] = make_quaternion(turn).tolist()
        poses = None if any(rows) else self._pose(RIG, WORLD, self._stamps)
        for row, there in zip(rows, () if poses is None else poses, strict=False):
            if np.isfinite(there).all():
                row["pose_position"] = there[:3, 3].tolist()
                row["pose_orientation"] = make_quaternion(there[:3, :3]).tolist()
                self._tally["poses"] += 1
        self._tally["without a position"] += sum(not row for row in rows)
        return rows

    def _metadata(self, written: int, *, posed: bool) -> dict[str, Any]:
        transforms = []
        stems = {companion.kind: companion.kind.partition(".")[0] for companion in self.companions}
        of = {find_by_kind(kind).key: frame for kind, frame in {**stems, **self._own_frames}.items()}
        there = {name: frame for name, frame in self._frames.items() if frame in of.values()}
        for sensor, child in {self._camera: self._camera, **there}.items():
            pose = self._pose(sensor, RIG, self._stamps[:1])
            if pose is not None:
                transforms.append(
                    {
                        "parent": BASE,
                        "child": child,
                        "translation": list(map(float, pose[0, :3, 3])),
                        "rotation": make_quaternion(pose[0, :3, :3]).tolist(),
                    }
                )
        model = self._sensor.model_parameters
        info = make_camera_info(model, self._camera)
        self._tally["camera models"] += info is None
        self._tally["shutters"] += model.shutter_type != load_library().ShutterType.GLOBAL
        self._tally["camera masks"] += len(self._sensor.get_mask_images())
        files = [path.name for path in self._loader.sequence_paths]
        facts = {
            "sources": list(range(len(files))),
            "camera_info": info,
            "static_transforms": transforms,
            "sensor_frames": {key: frame for key, frame in of.items() if frame != find_frame(key, {})},
            "calibration": judge(info, transforms, of.values()),
            "topics": {"reference": self._camera},
            **({"pose_frame": WORLD, "pose_source": {"topic": None, "type": None, "child": BASE}} if posed else {}),
            "counts": make_counts(self._camera, len(self._stamps), written, "neither JPEG nor PNG, or broken"),
        }
        return make_metadata(files, {self._name: facts})

    # ---- companions ----------------------------------------------------------------------------
    def _cube(self, cubes: Any, what: str, stamps: NDArray[np.int64], n: int) -> bytes:
        self._tally[what] += 1
        return bytes(cubes.get_png(int(stamps[n])))

    def _cloud(self, sensor: Any, what: str, n: int, *, radar: bool) -> bytes:
        self._tally[what] += 1
        points = sensor.get_frame_point_cloud(n, motion_compensation=False, with_start_points=False).xyz_m_end
        valid = sensor.get_frame_ray_bundle_return_valid_mask(n)
        further: dict[str, NDArray[Any]] = {}
        for name in sensor.get_frame_generic_data_names(n):
            further[FIELDS.get(name, name) if radar else name] = sensor.get_frame_generic_data(n, name)
        if not radar:
            further.setdefault("intensity", sensor.get_frame_ray_bundle_return_intensity(n))
        kept = {name: values[valid] for name, values in further.items() if values.shape[:1] == valid.shape}
        return make_cloud(points[valid], kept)

    # ---- boxes ---------------------------------------------------------------------------------
    def _boxes(self) -> dict[int, dict[str, dict[str, Any]]]:
        """Columns of boxes by picture and object_id; of several of one track those nearest in time."""
        found: dict[int, dict[str, dict[str, Any]]] = {}
        nearest: dict[tuple[int, str], int] = {}
        for seen in self._loader.get_cuboid_track_observations():
            n = int(np.argmin(np.abs(self._stamps - seen.timestamp_us))) if len(self._stamps) else -1
            away = abs(int(self._stamps[n]) - seen.timestamp_us) if n >= 0 else TOLERANCE + 1
            box = self._box(seen, int(self._stamps[n])) if away <= TOLERANCE else None
            track = make_identity(self._name, seen.track_id)
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
            way = make_pose(make_turn(box.rot), np.array(box.centroid, float))
            if np.isfinite([*way.flat, *box.dim]).all():
                return list(map(float, move_boxes([0, 0, 0, *box.dim], way)[0]))
        return None


def _read_exact(sensor: Any, stamps: NDArray[np.int64], n: int) -> int:
    return find_exact(sensor.get_frame_generic_meta_data(n), int(stamps[n]))


def _stamp_in(png: Callable[[int], bytes], n: int) -> int | None:
    return decode_cube(png(n)).timestamp


def find_exact(told: dict[str, Any], stamp_us: int) -> int:
    """Return the stamp in ns that `export` put into the metadata of a frame, else that of NCore."""
    said = told.get("timestamp_ns")
    return said if type(said) is int and said // 1000 == stamp_us else stamp_us * 1000


def make_turn(angles: Sequence[float]) -> NDArray[np.float64]:
    """(3, 3) turn about x, then y, then z, each by its angle in rad."""
    found = np.eye(3)
    for n, angle in enumerate(angles):
        axis = np.zeros(3)
        axis[n] = np.sin(angle / 2)
        found = make_rotation([*axis, np.cos(angle / 2)]) @ found
    return found


def make_identity(sequence: str, track: str) -> str:
    """Return the UUID of a track: its own, else one made of sequence and track."""
    try:
        return str(uuid.UUID(track))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, clean_text(f"{sequence}/{track}")))


# ---- labels --------------------------------------------------------------------------------------
class Pictures:
    """Labels and metadata of the pictures of one camera."""

    def __init__(self, loader: Any, camera: str, name: str, budget: Budget, tally: Counter[str]) -> None:
        lib = load_library()
        self._name, self._budget, self._tally = name, budget, tally
        self.labels: list[str] | None = None
        """Names of classes, where masks of classes told them."""
        self._by_kind: dict[str, Any] = {}
        for source in loader.query_camera_labels(camera):
            kind = source.label_descriptor.label_type
            if kind.category == lib.LabelCategory.SEGMENTATION and kind.qualifier in ("semantic", "instance"):
                self._by_kind.setdefault(kind.qualifier, source)
            elif kind == lib.LabelType.DEPTH_Z_M:
                self._by_kind.setdefault("depth", source)
            else:
                tally["labels"] += source.labels_count

    def size(self, data: Any) -> tuple[int, int] | None:
        """Width and height of a picture; None where it is not one."""
        try:
            width, height = data.get_decoded_image().size
        except Exception:  # noqa: BLE001  # Pillow's own kinds of OSError, SyntaxError, ValueError and more
            self._tally["broken pictures"] += 1
            return None
        return int(width), int(height)

    def _label(self, kind: str, stamp: int) -> Any:
        source = self._by_kind.get(kind)
        return source.get_label(stamp) if source is not None and stamp in source.label_timestamps_us else None

    def _values(self, label: Any) -> NDArray[Any] | None:
        """Return the values of a label; None without one, or if it cannot be read."""
        try:
            return None if label is None else np.asarray(label.get_data())
        except Exception:  # noqa: BLE001  # as above, and what zarr raises on broken chunks
            self._tally["broken labels"] += 1
            return None

    def depth(self, stamp: int) -> bytes | None:
        """16-bit PNG in mm, 0 where unknown; None without one."""
        values = self._values(self._label("depth", stamp))
        if values is None:
            return None
        metres = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        self._tally["depth"] += 1
        return encode_gray(np.clip(np.rint(metres * MILLIMETRES), 0, 65535).astype(np.uint16), smooth=True)

    def rows(self, stamp: int, told: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Annotation rows by object_id (the mask of classes by an empty one)."""
        rows: dict[str, dict[str, Any]] = {}
        noted = told.get("annotations")
        for row in noted if isinstance(noted, list) else ():
            if isinstance(row, dict) and isinstance(row.get("object_id"), str):
                thing = clean_text(row["object_id"])
                rows[thing] = {"object_id": thing, **_select_sound(row, COLUMNS)}
        classes = self._label("semantic", stamp)
        values = self._values(classes)
        if values is not None:
            if values.ndim == 2 and values.min(initial=0) >= 0 and values.max(initial=0) <= 255:
                rows[""] = {"mask": encode_gray(values.astype(np.uint8))}
                self._tally["classes"] += 1
                names = classes.generic_meta_data.get("labels")
                self.labels = self.labels or ([clean_text(str(n)) for n in names] if isinstance(names, list) else None)
            else:
                self._tally["labels"] += 1
        instances = self._label("instance", stamp)
        values = self._values(instances)
        if values is not None:
            self._instances(stamp, instances, values, rows)
        return rows

    def _instances(self, stamp: int, label: Any, values: NDArray[Any], rows: dict[str, dict[str, Any]]) -> None:
        said = label.generic_meta_data.get("instances")
        known = {one["value"]: one for one in said if "value" in one} if isinstance(said, list) else {}
        for value in map(int, np.unique(values)):
            if value == 0:
                continue
            one = known.get(value, {})
            identity = clean_text(str(one.get("object_id") or "")) or str(
                uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}/{stamp}/{value}")
            )
            row = rows.setdefault(identity, {"object_id": identity})
            row |= _select_sound(one, ("label", "label_index"))
            self._budget.spend(unpacked=values.size)
            row["mask"] = encode_gray(values == value)
            self._tally["instances"] += 1


def _select_sound(row: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """Return the columns with a value of the right type; foreign metadata may hold anything."""
    kept = {name: row[name] for name in columns if name in row and _FITS[name](row[name])}
    return {name: clean_text(value) if name == "label" else value for name, value in kept.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "label": lambda value: isinstance(value, str),
    "label_index": lambda value: type(value) is int and 0 <= value < 1 << 64,
    "box2d": lambda value: isinstance(value, list) and len(value) == 4 and all(map(_is_number, value)),
    "box2d_score": lambda value: _is_number(value) and 0 <= value <= 1,
}
