# SPDX-License-Identifier: Apache-2.0
"""Samples as rerun's entities: `camera/...`, `lidar`, `radar`, `cube`, `map`, `skew/SENSOR`, by `frame` and `time`.

Another instance has its name in the path: `camera-left/...`. The root is the vehicle's frame. A message that the sample
before has too is logged once.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import rerun as rr
import rerun.blueprint as rrb
from PIL import Image

from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import EdgeFirstError, quote_error
from edgefirst_ros.report.content import list_sensors, read_speeds
from edgefirst_ros.report.projection import TO_OPTICAL, stack_xyz
from edgefirst_ros.report.sheet import LABELS, PAPER, colour_distances, colour_speeds
from edgefirst_ros.report.subject import ReportSubject
from edgefirst_ros.report.view import ENTITIES
from edgefirst_ros.sensors.calibration import IDENTITY, find_frame
from edgefirst_ros.sensors.transforms import BASE, chain_frames
from edgefirst_ros.streams import CAMERA, find_by_key

LARGEST_TENSOR = 1 << 24


class Packet(NamedTuple):
    """One access unit of video as recorded."""

    frame: int
    stamp: int
    """ns."""
    data: bytes
    keyframe: bool


@dataclass
class Logger:
    """Logs one subject to a rerun recording."""

    recording: Any
    subject: ReportSubject
    sensors: Collection[str]
    """Keys of the sensors that are needed, and `model`; empty: all."""
    packets: Iterable[Packet] | None = None
    """The video of a recording, logged without decoding; None: pictures are members."""
    repeats: bool = False
    """Log also data that the sample before has, because that one is not logged."""

    def __post_init__(self) -> None:
        self.entities: set[str] = set()
        """First parts of the paths that were logged."""
        self.notes: dict[str, str] = {}
        """{kind of data: first error of reading it}."""
        self._sequence: str | None = None
        self._names: dict[str, int] = {}
        self._inputs: defaultdict[str, set[str]] = defaultdict(set)
        """{sequence: sensors that its samples have}."""
        for place in self.subject.places:
            self._inputs[place.sample.name] |= place.sample.inputs

    def run(self, samples: Sequence[Sample], progress: Progress) -> None:
        """Log all samples."""
        video = iter(self.packets or ())
        ahead = next(video, None)
        for done, sample in enumerate(samples, 1):
            while ahead is not None and sample.frame is not None and ahead.frame <= sample.frame:
                self._packet(ahead)
                ahead = next(video, None)
            self._at(sample.frame, sample.timestamp)
            if sample.name != self._sequence:
                self._calibrate(sample)
            self._sample(sample)
            progress("logging", done, len(samples))

    def _at(self, frame: int | None, stamp: int | None) -> None:
        self.recording.set_time("frame", sequence=frame or 0)
        if stamp is not None:
            self.recording.set_time("time", timestamp=np.datetime64(stamp, "ns"))

    def _log(self, path: str, *what: Any, static: bool = False) -> None:
        self.entities.add(path.partition("/")[0])
        self.recording.log(path, *what, static=static)

    # ---- calibration ---------------------------------------------------------------------
    def _calibrate(self, sample: Sample) -> None:
        """Log where the sensors of a sequence are, as far as that is known."""
        self._sequence, given = sample.name, sample.calibration
        poses = chain_frames(given.static_transforms or (), BASE)
        there = self._inputs[sample.name]
        for key in list_sensors(there, "cloud"):
            frame = find_frame(key, given.sensor_frames)
            if frame in poses and self._wants(key):
                self._log(name_entity(key), _make_transform(poses[frame]))
        for camera in list_sensors({*there, CAMERA.key}, "camera"):
            if self._wants(camera):
                self._calibrate_camera(name_entity(camera), given.info_of(camera), given.calibration, poses)

    def _wants(self, key: str) -> bool:
        return not self.sensors or key in self.sensors

    def _calibrate_camera(self, entity: str, info: Any, word: str, poses: Mapping[str, Any]) -> None:
        if not isinstance(info, dict) or not info.get("k"):
            return
        k = np.array([np.nan if v is None else v for v in info["k"]], float).reshape(3, 3)
        if np.isfinite(k).all() and k[0, 0] > 0:
            pose = poses.get(str(info.get("frame_id")))
            if pose is not None:  # of a placeholder the camera looks forward
                pose = pose @ np.linalg.inv(TO_OPTICAL) if word == IDENTITY else pose
                self._log(entity, _make_transform(pose))
            size = {key: info[key] for key in ("width", "height")} if info.get("width") and info.get("height") else {}
            self._log(entity, rr.Pinhole(image_from_camera=k, camera_xyz=rr.ViewCoordinates.RDF, **size))

    # ---- one sample ----------------------------------------------------------------------
    def _sample(self, sample: Sample) -> None:
        inputs = sample.inputs if self.subject.has(sample.key) else ()  # all it has may be its picture in the video
        readers = {"camera": self._picture, "lidar": self._lidar, "radar": self._radar, "cube": self._cube}
        for sensor in list_sensors(inputs, "camera", "cloud", "cube"):
            read = readers.get(ENTITIES.get(find_by_key(sensor).base, ""))
            if read is not None and self._wants(sensor) and (self.repeats or sensor not in sample.repeats):
                try:
                    read(sample, sensor)
                except (EdgeFirstError, ValueError) as error:
                    self.notes.setdefault(sensor, f"{sensor} of frame {sample.frame}: {error}")
        if self._wants("model"):
            self._annotations(sample)
        self._track(sample)

    def _picture(self, sample: Sample, camera: str) -> None:
        data = sample.read(camera)
        kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
        self._log(f"{name_entity(camera)}/image", rr.EncodedImage(contents=data, media_type=kind))

    def _packet(self, packet: Packet) -> None:
        self._at(packet.frame, packet.stamp)
        sample = rr.VideoStream(rr.VideoCodec.H264, sample=packet.data, is_keyframe=packet.keyframe)
        self._log("camera/video", sample)

    def _lidar(self, sample: Sample, sensor: str) -> None:
        points = stack_xyz(sample.lidar(sensor))
        points = points[np.isfinite(points).all(1)]
        colours = colour_distances(np.linalg.norm(points, axis=1))
        self._log(name_entity(sensor), rr.Points3D(points.astype(np.float32), colors=colours, radii=0.03))

    def _radar(self, sample: Sample, sensor: str) -> None:
        cloud = sample.radar(sensor).ravel()
        points, speed = stack_xyz(cloud), read_speeds(cloud)
        there = np.isfinite(points).all(1)
        said = [f"{value:+.1f} m/s" if np.isfinite(value) else "" for value in speed[there]]
        colours = colour_speeds(speed[there])
        shown = rr.Points3D(points[there].astype(np.float32), colors=colours, radii=0.25, labels=said)
        self._log(name_entity(sensor), shown)

    def _cube(self, sample: Sample, sensor: str) -> None:
        cube = sample.decode(sensor)
        if cube.values.size <= LARGEST_TENSOR:
            loud = np.abs(cube.complex()).astype(np.float32)
            names = ("sequence", "rx", "range", "doppler")
            self._log(name_entity(sensor), rr.Tensor(np.log1p(loud), dim_names=names))

    def _annotations(self, sample: Sample) -> None:
        """Log boxes and masks; empty ones if the model found no object, to clear older ones."""
        looked = sample.row.get("model_timestamp") is not None
        rows = sample.annotations
        if not looked and not len(rows):
            return
        size = sample.row.get("size") or _read_size(sample.calibration.camera_info)
        if not size:
            return
        boxes, labels = convert_boxes(rows, self.subject.dataset.metadata), []
        if "box2d" in rows.columns and "label" in rows.columns:
            labels = [str(label) for label in rows.drop_nulls("box2d")["label"].cast(str).to_list()]
        classes = [self._names.setdefault(label, len(self._names) + 1) for label in labels]
        named: dict[str, Any] = {"labels": labels, "class_ids": classes} if len(labels) == len(boxes) else {}
        self._log("camera/boxes", rr.Boxes2D(centers=boxes[:, :2] * size, sizes=boxes[:, 2:] * size, **named))
        mask = self._mask(rows, size)
        if mask is not None:
            self._log("camera/masks", rr.SegmentationImage(mask, opacity=0.4))

    def _mask(self, rows: Any, size: Any) -> Any:
        """Return the class of each pixel by the masks of all rows, later ones over earlier; None without masks."""
        found = np.zeros((size[1], size[0]), np.uint8)
        some = False
        for data, label in rows.select("mask", "label").iter_rows():
            if isinstance(data, bytes):
                try:
                    with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
                        if picture.size != tuple(size):
                            continue
                        drawn = np.asarray(picture.convert("L")) > 127
                except Exception as error:  # noqa: BLE001  any error of the library on bad bytes
                    self.notes.setdefault("mask", f"a mask cannot be read: {quote_error(error)}")
                    continue
                found[drawn] = self._names.setdefault(str(label), len(self._names) + 1) % 255
                some = True
        return found if some else None

    def _track(self, sample: Sample) -> None:
        place = sample.position
        if place is not None:
            self._log("map", rr.GeoPoints(lat_lon=[[place.latitude, place.longitude]], radii=rr.Radius.ui_points(6.0)))
        for key, skew in sample.skew.items():
            if self._wants(key):
                self._log(f"skew/{key}", rr.Scalars(skew / 1e6))

    def finish(self) -> None:
        """Log what holds for all of it: names of classes, the whole track."""
        if self._names:
            listed = [rr.AnnotationInfo(id=0, color=(0, 0, 0, 0))]  # no mask
            listed += [
                rr.AnnotationInfo(id=number, label=name, color=LABELS[(number - 1) % len(LABELS)])
                for name, number in self._names.items()
            ]
            self._log("camera", rr.AnnotationContext(listed), static=True)
        if "map" in self.entities:
            frames = self.subject.dataset.frames
            known = {"latitude", "longitude"} <= set(() if frames is None else frames.columns)
            places = frames.select("latitude", "longitude").drop_nulls().rows() if frames is not None and known else []
            self._log("map/track", rr.GeoLineStrings(lat_lon=[places], radii=rr.Radius.ui_points(1.5)), static=True)


def name_entity(sensor: str) -> str:
    """Return the first part of the path of a sensor's entity: `lidar`, or `lidar-rear` of a further one."""
    known = find_by_key(sensor)
    base = ENTITIES[known.base]
    return base if known.instance is None else f"{base}-{known.instance}"


def _read_size(info: Any) -> tuple[int, int] | None:
    width, height = (info or {}).get("width"), (info or {}).get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return width, height
    return None


def _make_transform(pose: Any) -> Any:
    return rr.Transform3D(translation=pose[:3, 3], mat3x3=pose[:3, :3])


def make_blueprint(entities: Collection[str]) -> Any:
    """Return the layout for the existing entities: `camera`, `camera-left`, `lidar`, `cube`, `map`, `skew`."""
    cameras, clouds, cubes = (
        sorted(one for one in entities if one.partition("-")[0] in kinds)
        for kinds in (("camera",), ("lidar", "radar"), ("cube",))
    )
    views = [rrb.Spatial2DView(origin=one, contents=f"{one}/**", name=one.capitalize()) for one in cameras]
    left: list[Any] = [rrb.Grid(*views)] if len(views) > 1 else [*views]
    right: list[Any] = []
    if "skew" in entities:
        left.append(rrb.TimeSeriesView(origin="skew", name="Skew, ms"))
    if cameras or clouds:
        shown = [*(f"/{one}/**" for one in clouds), *(f"/{one}" for one in cameras)]
        right.append(rrb.Spatial3DView(origin="/", contents=shown, background=PAPER, name="In space"))
    below: list[Any] = [rrb.TensorView(origin=one, name=one.replace("cube", "Radar cube")) for one in cubes]
    if "map" in entities:
        below.append(rrb.MapView(origin="map", name="Map"))
    if below:
        right.append(rrb.Horizontal(*below))
    columns = [rrb.Vertical(*column, row_shares=[2, *[1] * (len(column) - 1)]) for column in (left, right) if column]
    return rrb.Blueprint(rrb.Horizontal(*columns), rrb.SelectionPanel(state="collapsed"))
