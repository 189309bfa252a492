# SPDX-License-Identifier: Apache-2.0
"""A dataset as messages: its samples as the topics that RViz, Foxglove and perception nodes know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, geometry_msgs, sensor_msgs, std_msgs
from numpy.typing import NDArray

from edgefirst_ros.config import SECOND
from edgefirst_ros.dataset.names import locate
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.errors import DatasetError, EdgeFirstError, RecordingError
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.calibration import find_frame
from edgefirst_ros.sensors.cube import Cube
from edgefirst_ros.sources.inputs import SUFFIXES, is_rosbag2, list_recordings, open_files
from edgefirst_ros.sources.source import Channel, Damage, Recording
from edgefirst_ros.streams import (
    CLOUD,
    COMPRESSED_IMAGE,
    CUBE,
    DETECT,
    FIX,
    IMU,
    POSE_STAMPED,
    RECORDINGS,
    Sensor,
    find_by_key,
)

POINT_TYPES = {"i1": 1, "u1": 2, "i2": 3, "u2": 4, "i4": 5, "u4": 6, "f4": 7, "f8": 8}
"""sensor_msgs/PointField datatypes of numpy types."""
UNKNOWN = [-1.0] + [0.0] * 8
"""Covariance of a quantity that the sensor does not measure: its first value is -1 (sensor_msgs)."""
TYPES = {"camera": COMPRESSED_IMAGE, "cube": CUBE, "cloud": CLOUD}
"""Form of a sensor's members -> type of their messages."""


class _Planned(NamedTuple):
    """A message that is encoded when it is due."""

    log_time: int
    topic: str
    schema: str
    make: Callable[[], Any]


class DatasetRecording:
    """The samples of a dataset, sequence by sequence, instead of a recording: what players need of one.

    The boxes that the model saw, position, attitude and pose have the sample's stamp, sensors their own; a sensor's
    message that several samples share comes once. Raises DatasetError for other files, and without a table of frames,
    which has the stamps.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._dataset = Dataset(path)
        if self._dataset.frames is None:
            raise DatasetError(f"{self._dataset.paths.frames}: is missing, and only it has the samples' stamps")
        self.channels: dict[int, Channel] = {}
        self.damage: Sequence[Damage] = ()
        self.size = len(self._dataset)
        self.position = 0

    def walk(self) -> Iterator[_Planned]:
        """Yield all messages without encoding them, and find the topics."""
        seen: Counter[tuple[str, str]] = Counter()
        for planned in self._plan_messages():
            seen[planned.topic, planned.schema] += 1
            yield planned
        self.channels = {n: Channel(*key, "cdr", b"", count) for n, (key, count) in enumerate(sorted(seen.items()))}

    def iter_messages(self, topics: Collection[str] | None = None) -> Iterator[Message]:
        """Yield the messages in the order of their stamps within each sample; `topics`: only of these."""
        numbers: dict[str, int] = {}
        for planned in self._plan_messages():
            if topics is not None and planned.topic not in topics:
                continue
            number = numbers[planned.topic] = numbers.get(planned.topic, -1) + 1
            at = planned.log_time
            yield Message(planned.topic, planned.schema, at, at, number, bytes(planned.make().to_bytes()))

    def _plan_messages(self) -> Iterator[_Planned]:
        for number, sample in enumerate(self._dataset.samples()):
            self.position = number + 1
            if sample.timestamp is not None:
                yield from sorted(self._messages(sample, sample.row), key=lambda planned: planned.log_time)

    def _messages(self, sample: Sample, row: Mapping[str, Any]) -> Iterator[_Planned]:
        stamp, facts = int(row["timestamp"]), self._dataset.metadata
        as_sent = (facts.get("box2d_format"), facts.get("box2d_normalized")) == ("cxcywh", "true")
        has_boxes = as_sent and row.get("model_timestamp") is not None
        for sensor in sorted(map(find_by_key, sample.inputs), key=lambda sensor: sensor.order):
            own = row.get(f"{sensor.column}_timestamp")
            if sensor.form in TYPES and sensor.key not in sample.repeats:
                at = stamp if own is None else int(own)
                yield _Planned(at, name_topic(sensor), TYPES[sensor.form], partial(self._member, sample, sensor, at))
        for topic, schema, make, there in (
            ("/gps", FIX, _fix, sample.position is not None),
            ("/imu", IMU, _make_imu, row.get("orientation") is not None),
            ("/pose", POSE_STAMPED, _make_pose, row.get("pose_position") is not None),
            ("/model/boxes2d", DETECT, _make_boxes, has_boxes),
        ):
            if there:
                yield _Planned(stamp, topic, schema, partial(make, sample, stamp))

    def _member(self, sample: Sample, sensor: Sensor, stamp: int) -> Any:
        calibration = sample.calibration
        if sensor.form == "camera":
            frame = (calibration.info_of(sensor.key) or {}).get("frame_id") or "camera_optical"
            form = sample.member(sensor.key).rpartition(".")[2]
            return sensor_msgs.CompressedImage(_make_header(stamp, frame), form, sample.read(sensor.key))
        frame = find_frame(sensor.key, calibration.sensor_frames)
        if sensor.form == "cube":
            return _make_cube(sample.decode(sensor.key), stamp, frame)
        return _make_cloud(np.ascontiguousarray(np.atleast_2d(sample.decode(sensor.key))), stamp, frame)


def name_topic(sensor: Sensor) -> str:
    """Return the topic of a sensor's messages: the device's, of further instances with their name before it."""
    name = next(topic.name for topic in sensor.topics if TYPES[sensor.form] in topic.types[:1])
    return f"/{name}" if sensor.instance is None else f"/{sensor.instance}/{name}"


def open_playable(path: Path) -> Recording | DatasetRecording:
    """Open the recording or dataset at a path; raises EdgeFirstError for anything else."""
    if is_rosbag2(path):
        (found,) = list_recordings([path])
        return open_files(found.files[0], more=found.files[1:])
    if path.suffix not in RECORDINGS:
        try:
            locate(path)
        except EdgeFirstError as error:
            if not path.is_file():
                raise RecordingError(f"{error}; or a recording, {SUFFIXES}, or a rosbag2 folder") from None
        else:
            return DatasetRecording(path)
    return open_files(path)


# ---- messages ----------------------------------------------------------------------------------
def _make_header(stamp: int, frame_id: str) -> Any:
    return std_msgs.Header(builtin_interfaces.Time(*divmod(stamp, SECOND)), frame_id)


def _fix(sample: Sample, stamp: int) -> Any:
    position = sample.position or (0.0, 0.0, None)
    altitude = float("nan") if position[2] is None else position[2]
    status = sensor_msgs.NavSatStatus(0, 1)
    return sensor_msgs.NavSatFix(_make_header(stamp, "gps"), status, position[0], position[1], altitude, [0.0] * 9, 0)


def _make_imu(sample: Sample, stamp: int) -> Any:
    still, attitude = geometry_msgs.Vector3(0.0, 0.0, 0.0), geometry_msgs.Quaternion(*sample.row["orientation"])
    return sensor_msgs.Imu(_make_header(stamp, "imu"), attitude, [0.0] * 9, still, UNKNOWN, still, UNKNOWN)


def _make_pose(sample: Sample, stamp: int) -> Any:
    row, facts = sample.row, sample.dataset.sequence_facts(sample.name)
    place, turn = geometry_msgs.Point(*row["pose_position"]), geometry_msgs.Quaternion(*row["pose_orientation"])
    header = _make_header(stamp, facts.get("pose_frame") or "map")
    return geometry_msgs.PoseStamped(header, geometry_msgs.Pose(place, turn))


def _make_cube(cube: Cube, stamp: int, frame: str) -> Any:
    return edgefirst_msgs.RadarCube(
        _make_header(stamp, frame),
        stamp // 1000,
        bytes(cube.layout),
        np.array(cube.message_shape, dtype=np.uint16).tobytes(),
        np.array(cube.scales, dtype=np.float32).tobytes(),
        cube.raw().tobytes(),
        is_complex=cube.is_complex,
    )


def _make_cloud(points: NDArray[np.void], stamp: int, frame_id: str) -> Any:
    """Return a PointCloud2 of points, shape (rows, columns)."""
    (rows, columns), step = points.shape, points.dtype.itemsize
    fields = [
        sensor_msgs.PointField(name, at, POINT_TYPES[kind.base.str[1:]], int(np.prod(kind.shape)) or 1)
        for name, (kind, at, *_) in (points.dtype.fields or {}).items()
    ]
    header = _make_header(stamp, frame_id)
    return sensor_msgs.PointCloud2(header, rows, columns, fields, False, step, step * columns, points.tobytes(), False)


def _make_boxes(sample: Sample, stamp: int) -> Any:
    zero = builtin_interfaces.Time(0, 0)
    boxes = []
    for row in sample.annotations.iter_rows(named=True):
        box = row.get("box2d")
        if box is not None:
            x, y, width, height = box
            score = 1.0 if row.get("box2d_score") is None else row["box2d_score"]
            label, track = (str(row.get(name) or "") for name in ("label", "object_id"))
            boxes.append(edgefirst_msgs.Box(x, y, width, height, label, score, 0.0, 0.0, track, 0, zero))
    return edgefirst_msgs.Detect(_make_header(stamp, "camera_optical"), zero, zero, zero, boxes)
