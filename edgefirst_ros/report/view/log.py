# SPDX-License-Identifier: Apache-2.0
"""Samples as rerun's entities: `camera/...`, `lidar`, `radar`, `cube`, `map`, `skew/SENSOR`, by `frame` and `time`.

The root is the vehicle's frame. A message that the sample before has too is logged once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefirst_ros.dataset.query import boxes_of
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import EdgeFirstError, text_of
from edgefirst_ros.report.look import speeds
from edgefirst_ros.report.projection import TO_OPTICAL, xyz
from edgefirst_ros.report.sheet import BASE, LABELS, PAPER, distance_colours, speed_colours
from edgefirst_ros.report.subject import ReportSubject
from edgefirst_ros.sensors.calibration import IDENTITY
from edgefirst_ros.sensors.transforms import frames_from

INPUTS = {"camera": "camera", "lidar.points": "lidar", "radar.targets": "radar", "radar.cube": "radar.cube"}
"""Sensor -> the input of a sample; clusters are where targets do."""
LARGEST_TENSOR = 1 << 24


@dataclass(frozen=True)
class Packet:
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
    """Keys of the sensors that are needed, and `model`."""
    packets: Iterable[Packet] | None = None
    """The video of a recording, which goes as it is; None: pictures are members."""
    repeats: bool = False
    """Log also what the sample before has, because that one is not logged."""

    def __post_init__(self) -> None:
        self.entities: set[str] = set()
        """First parts of the paths that were logged."""
        self.notes: dict[str, str] = {}
        """{kind of data: first error of reading it}."""
        self._sequence: str | None = None
        self._names: dict[str, int] = {}

    def run(self, samples: Iterable[Sample], progress: Any, total: int) -> int:
        """Log all samples; returns how many."""
        done = 0
        video = iter(self.packets) if self.packets is not None else iter(())
        ahead = next(video, None)
        for sample in samples:
            stamp = sample.timestamp
            while ahead is not None and sample.frame is not None and ahead.frame <= sample.frame:
                self._packet(ahead)
                ahead = next(video, None)
            self._at(sample.frame, stamp)
            if sample.name != self._sequence:
                self._calibrate(sample)
            self._sample(sample)
            done += 1
            progress("logging", done, total)
        return done

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
        import rerun as rr

        self._sequence, given = sample.name, sample.calibration
        poses = frames_from(given.static_transforms or (), BASE)
        for sensor in ("lidar", "radar"):
            if sensor in poses and any(key.startswith(sensor) for key in self.sensors):
                self._log(sensor, _transform(poses[sensor]))
        info = given.camera_info
        if "camera" not in self.sensors or not isinstance(info, dict) or not info.get("k"):
            return
        k = np.array([np.nan if v is None else v for v in info["k"]], float).reshape(3, 3)
        if np.isfinite(k).all() and k[0, 0] > 0:
            pose = poses.get(str(info.get("frame_id")))
            if pose is not None:  # of a placeholder the camera looks forward
                pose = pose @ np.linalg.inv(TO_OPTICAL) if given.calibration == IDENTITY else pose
                self._log("camera", _transform(pose))
            size = (
                {"width": info["width"], "height": info["height"]} if info.get("width") and info.get("height") else {}
            )
            self._log("camera", rr.Pinhole(image_from_camera=k, camera_xyz=rr.ViewCoordinates.RDF, **size))

    # ---- one sample ----------------------------------------------------------------------
    def _sample(self, sample: Sample) -> None:
        inputs = sample.inputs if self.subject.has(sample.key) else ()  # all it has may be its picture in the video
        readers = {
            "camera": self._picture,
            "lidar.points": self._lidar,
            "radar.targets": self._radar,
            "radar.cube": self._cube,
        }
        for sensor, read in readers.items():
            source = INPUTS[sensor]
            if sensor in self.sensors and source in inputs and (self.repeats or source not in sample.repeats):
                try:
                    read(sample)
                except (EdgeFirstError, ValueError) as error:
                    self.notes.setdefault(sensor, f"{sensor} of frame {sample.frame}: {error}")
        if "model" in self.sensors:
            self._annotations(sample)
        self._track(sample)

    def _picture(self, sample: Sample) -> None:
        import rerun as rr

        data = sample.read("camera")
        kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
        self._log("camera/image", rr.EncodedImage(contents=data, media_type=kind))

    def _packet(self, packet: Packet) -> None:
        import rerun as rr

        self._at(packet.frame, packet.stamp)
        sample = rr.VideoStream(rr.VideoCodec.H264, sample=packet.data, is_keyframe=packet.keyframe)
        self._log("camera/video", sample)

    def _lidar(self, sample: Sample) -> None:
        import rerun as rr

        points = xyz(sample.lidar())
        points = points[np.isfinite(points).all(1)]
        colours = distance_colours(np.linalg.norm(points, axis=1))
        self._log("lidar", rr.Points3D(points.astype(np.float32), colors=colours, radii=0.03))

    def _radar(self, sample: Sample) -> None:
        import rerun as rr

        cloud = sample.radar().ravel()
        points, speed = xyz(cloud), speeds(cloud)
        there = np.isfinite(points).all(1)
        said = [f"{value:+.1f} m/s" if np.isfinite(value) else "" for value in speed[there]]
        colours = speed_colours(speed[there])
        self._log("radar", rr.Points3D(points[there].astype(np.float32), colors=colours, radii=0.25, labels=said))

    def _cube(self, sample: Sample) -> None:
        import rerun as rr

        cube = sample.cube()
        if cube.values.size <= LARGEST_TENSOR:
            loud = np.abs(cube.complex()).astype(np.float32)
            self._log("cube", rr.Tensor(np.log1p(loud), dim_names=("sequence", "rx", "range", "doppler")))

    def _annotations(self, sample: Sample) -> None:
        """Log boxes and masks; none where the model looked and saw nothing, so that old ones go."""
        import rerun as rr

        looked = sample.row.get("model_timestamp") is not None
        rows = sample.annotations
        if not looked and not len(rows):
            return
        size = sample.row.get("size") or _size(sample.calibration.camera_info)
        if not size:
            return
        boxes, labels = boxes_of(rows, self.subject.metadata), []
        if "box2d" in rows.columns and "label" in rows.columns:
            labels = [str(label) for label in rows.drop_nulls("box2d")["label"].cast(str).to_list()]
        classes = [self._names.setdefault(label, len(self._names) + 1) for label in labels]
        self._log(
            "camera/boxes",
            rr.Boxes2D(
                centers=boxes[:, :2] * size,
                sizes=boxes[:, 2:] * size,
                labels=labels if len(labels) == len(boxes) else None,
                class_ids=classes if len(labels) == len(boxes) else None,
            ),
        )
        mask = self._mask(rows, size)
        if mask is not None:
            self._log("camera/masks", rr.SegmentationImage(mask, opacity=0.4))

    def _mask(self, rows: Any, size: Any) -> Any:
        """Return the class of each pixel by the masks of all rows, later ones over earlier; None without masks."""
        import io

        from PIL import Image

        found = np.zeros((size[1], size[0]), np.uint8)
        some = False
        for data, label in rows.select("mask", "label").iter_rows():
            if isinstance(data, bytes):
                try:
                    with Image.open(io.BytesIO(data), formats=("PNG",)) as picture:
                        if picture.size != tuple(size):
                            continue
                        drawn = np.asarray(picture.convert("L")) > 127
                except Exception as error:  # noqa: BLE001  whatever the library raises on bad bytes
                    self.notes.setdefault("mask", f"a mask cannot be read: {text_of(error)}")
                    continue
                found[drawn] = self._names.setdefault(str(label), len(self._names) + 1) % 255
                some = True
        return found if some else None

    def _track(self, sample: Sample) -> None:
        import rerun as rr

        place = sample.position
        if place is not None:
            self._log("map", rr.GeoPoints(lat_lon=[[place.latitude, place.longitude]], radii=rr.Radius.ui_points(6.0)))
        for key, skew in sample.skew.items():
            if key in self.sensors:
                self._log(f"skew/{key}", rr.Scalars(skew / 1e6))

    def finish(self) -> None:
        """Log what holds for all of it: names of classes, the whole track."""
        import rerun as rr

        if self._names:
            listed = [rr.AnnotationInfo(id=0, color=(0, 0, 0, 0))]  # no mask
            listed += [
                rr.AnnotationInfo(id=number, label=name, color=LABELS[(number - 1) % len(LABELS)])
                for name, number in self._names.items()
            ]
            self._log("camera", rr.AnnotationContext(listed), static=True)
        if "map" in self.entities:
            places = [place for sample in _positions(self.subject) if (place := sample) is not None]
            self._log("map/track", rr.GeoLineStrings(lat_lon=[places], radii=rr.Radius.ui_points(1.5)), static=True)


def _positions(subject: ReportSubject) -> Iterator[list[float]]:
    frames = subject.dataset.frames
    if frames is not None and {"latitude", "longitude"} <= set(frames.columns):
        for latitude, longitude in frames.select("latitude", "longitude").drop_nulls().iter_rows():
            yield [latitude, longitude]


def _size(info: Any) -> tuple[int, int] | None:
    width, height = (info or {}).get("width"), (info or {}).get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return width, height
    return None


def _transform(pose: Any) -> Any:
    import rerun as rr

    return rr.Transform3D(translation=pose[:3, 3], mat3x3=pose[:3, :3])


def blueprint(entities: Collection[str]) -> Any:
    """Return the layout for the entities that there are: `camera`, `lidar`, `radar`, `cube`, `map`, `skew`."""
    import rerun.blueprint as rrb

    left: list[Any] = []
    right: list[Any] = []
    below: list[Any] = []
    if "camera" in entities:
        left.append(rrb.Spatial2DView(origin="camera", contents="camera/**", name="Camera"))
    if "skew" in entities:
        left.append(rrb.TimeSeriesView(origin="skew", name="Skew, ms"))
    if {"lidar", "radar", "camera"} & set(entities):
        right.append(
            rrb.Spatial3DView(
                origin="/", contents=["/lidar/**", "/radar/**", "/camera"], background=PAPER, name="In space"
            )
        )
    if "cube" in entities:
        below.append(rrb.TensorView(origin="cube", name="Radar cube"))
    if "map" in entities:
        below.append(rrb.MapView(origin="map", name="Map"))
    if below:
        right.append(rrb.Horizontal(*below))
    columns = [rrb.Vertical(*column, row_shares=_shares(column)) for column in (left, right) if column]
    return rrb.Blueprint(rrb.Horizontal(*columns), rrb.SelectionPanel(state="collapsed"))


def _shares(column: list[Any]) -> list[int]:
    return [2, *[1] * (len(column) - 1)]
