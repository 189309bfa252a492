# SPDX-License-Identifier: Apache-2.0
"""One sample of a dataset: its members decoded, its row, its annotations, and its drawing."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.names import BySensor, Inputs, Key, find_input
from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.dataset.schema import SequenceCalibration
from edgefirst_ros.errors import DatasetError, EdgeFirstError, quote_error, without_attribute
from edgefirst_ros.sensors.navigation import find_angles
from edgefirst_ros.streams import find_by_columns, find_by_kind, find_form

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.sensors.cube import Cube

MAX_PIXELS = 1 << 26
"""Pictures of more pixels are rejected (an 8K picture has 2**25)."""
MAX_SCANNED = 1 << 30
"""A JPEG of more pixels times scans is rejected: a scan of a few bytes covers all of them."""
START_OF_SCAN = b"\xff\xda"
INSTEAD = {
    **dict.fromkeys(("img", "im", "picture", "camera"), "image()"),
    **dict.fromkeys(("points", "cloud", "pointcloud", "point_cloud"), "lidar() or radar()"),
    **dict.fromkeys(("box", "bbox", "bboxes", "box2d", "boxes2d", "xyxy", "xywh"), "boxes"),
    **dict.fromkeys(("scores", "label", "masks", "box3d"), "annotations, a polars table"),
    **dict.fromkeys(("time", "stamp", "datetime"), "timestamp"),
    **dict.fromkeys(("gps", "location"), "position"),
    **dict.fromkeys(("imu", "attitude", "orientation"), "pose"),
    **dict.fromkeys(("keys", "to_dict", "velocity"), "row, the columns of the frames table"),
    **dict.fromkeys(("plot",), "show()"),
    **dict.fromkeys(("save",), "show().save(path), or read('camera') for the bytes of the picture"),
    **dict.fromkeys(("camera_info", "intrinsics", "K"), "calibration.camera_info"),
    **dict.fromkeys(("radar_cube",), "cube()"),
    **dict.fromkeys(("x", "y", "z", "xyz"), "lidar()['x']; lidar().dtype.names lists the fields"),
    **dict.fromkeys(("width", "height", "shape"), "image().shape"),
    **dict.fromkeys(("annotation", "objects", "targets"), "annotations, a polars table"),
    **dict.fromkeys(("index", "id"), "frame"),
}
"""Attributes that users of other libraries expect of a sample, and what it has instead."""


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Return (height, width, 3) uint8 RGB of a JPEG or PNG. Raises DatasetError."""
    import simplejpeg
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise DatasetError(f"{width} x {height} pixels, more than {MAX_PIXELS}")
            if picture.format == "JPEG" and data.count(START_OF_SCAN) * width * height > MAX_SCANNED:
                raise DatasetError(f"{data.count(START_OF_SCAN)} scans of {width} x {height} pixels")
            if picture.format == "JPEG" and picture.mode in ("RGB", "L"):
                pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB")
                return pixels
            return np.array(picture.convert("RGB"))
    except DatasetError:
        raise
    except Exception as error:  # any error of the libraries on bad bytes
        raise DatasetError(f"not a readable picture: {quote_error(error)}") from error


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class _Method(partial[Any]):
    """A method that names its call where the result was meant: `sample.lidar.x`."""

    def __get__(self, sample: Sample | None, owner: type) -> Callable[..., Any]:
        return self.func if sample is None else type(self)(self.func, sample)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            return getattr(self.func, name)
        raise AttributeError(f"{self.__name__} is a method; use {self.__name__}().{name}", name=name, obj=self)

    def __getitem__(self, key: object) -> Any:
        raise TypeError(f"{self.__name__} is a method; use {self.__name__}()[{key!r}]")


def _make_method(function: F) -> F:
    return cast("F", _Method(function))


class Position(NamedTuple):
    """Position of a sample: latitude and longitude in degrees (WGS-84), altitude in m (None: unknown)."""

    latitude: float
    longitude: float
    altitude: float | None


class Pose(NamedTuple):
    """Pose of a sample: of the vehicle in the dataset's `pose_frame`; without one its attitude in east, north, up."""

    yaw: float
    """Degrees, as pitch and roll."""
    pitch: float
    roll: float
    position: tuple[float, float, float] | None = None
    """m; None for an attitude."""
    orientation: tuple[float, float, float, float] | None = None
    """Quaternion x, y, z, w; None if only the angles are known."""


@dataclass(frozen=True, repr=False)
class Sample:
    """One sample: a frame of the reference topic with the messages of all other sensors.

    Every access decodes again, and you may change the arrays. An access to a missing or broken member raises
    DatasetError; an unknown input raises UsageError.
    """

    dataset: Dataset
    """The dataset it belongs to."""
    key: Key
    """Name of the sequence and frame number."""

    def __getattr__(self, name: str) -> Any:
        raise without_attribute(self, name, INSTEAD)

    def __getitem__(self, sensor: str) -> Any:
        """Decode the member of a sensor, as `decode`."""
        return self.decode(sensor)

    def __contains__(self, sensor: object) -> bool:
        return sensor in self.inputs

    def __repr__(self) -> str:
        inputs = ", ".join(sorted(self.inputs))
        return f"<Sample {self.name!r} frame {self.frame} of {self.dataset.container.path}: {inputs}>"

    @property
    def name(self) -> str:
        """Name of the sequence."""
        return self.key.name

    @property
    def frame(self) -> int | None:
        """Frame number; None for a picture that does not belong to a sequence."""
        return self.key.frame

    @property
    def inputs(self) -> Inputs:
        """Sensors that it has, by key, such as `camera` and `radar.cube`; `in` takes their other names too."""
        return Inputs(self.dataset.sensors[kind] for kind in self.dataset.members(self.key))

    @property
    def repeats(self) -> Inputs:
        """Sensors whose message also belongs to the sample before it in the sequence."""
        return Inputs(self.dataset.repeats.get(self.key, frozenset()) & self.inputs)

    @property
    def row(self) -> Mapping[str, Any]:
        """The row of the frames table by column; empty without one."""
        number = self.dataset.frame_rows.get(self.key)
        frames = self.dataset.frames
        return {} if number is None or frames is None else frames.row(number, named=True)

    @property
    def timestamp(self) -> int | None:
        """Stamp, ns since the epoch; None without a frames table."""
        return self.row.get("timestamp")

    @property
    def position(self) -> Position | None:
        """Position, interpolated at the stamp of the sample; None if unknown."""
        row = self.row
        latitude, longitude = row.get("latitude"), row.get("longitude")
        return None if latitude is None or longitude is None else Position(latitude, longitude, row.get("altitude"))

    @property
    def calibration(self) -> SequenceCalibration:
        """Calibration of its sequence: `camera_info`, `static_transforms`, and their quality, `calibration`."""
        return self.dataset.calibration(self.name)

    @property
    def skew(self) -> dict[str, int]:
        """{sensor: its stamp minus that of the sample, ns}; `[]`, `in` and `get` take other names of a sensor too."""
        row = self.row
        skews = {sensor.key: row.get(f"{sensor.column}_skew") for sensor in find_by_columns(row)}
        return BySensor({key: value for key, value in skews.items() if value is not None})

    @property
    def sequence(self) -> str:
        """Name of the sequence, as `name`."""
        return self.key.name

    @property
    def group(self) -> str | None:
        """Group, such as `train`; None without one."""
        value = self._own("group")
        return None if value is None else str(value)

    @property
    def pose(self) -> Pose | None:
        """Pose at the stamp of the sample, else the attitude of the IMU; None if both are unknown."""
        row = self.row
        place, turn = row.get("pose_position"), row.get("pose_orientation")
        if place is not None and turn is not None:
            return Pose(*find_angles(turn), tuple(place), tuple(turn))
        values = self._own("pose")
        if values is None or any(value is None for value in values):
            return None
        order = schema.get_pose_order(schema.find_nearest_version(str(self.dataset.metadata.get("schema_version"))))
        angles = dict(zip(order, map(float, values), strict=True))
        return Pose(angles["yaw"], angles["pitch"], angles["roll"])

    def _own(self, column: str) -> Any:
        table, number = self.dataset.annotations, self.dataset.first_annotations.get(self.key)
        return table[column][number] if number is not None and column in table.columns else None

    @property
    def labels(self) -> list[str]:
        """Labels of its annotations, each once."""
        return list(dict.fromkeys(self.annotations["label"].drop_nulls().cast(str).to_list()))

    @property
    def boxes(self) -> NDArray[np.float64]:
        """Boxes of its annotations: (N, 4) centre x, y, width, height in parts of the picture."""
        return convert_boxes(self.annotations, self.dataset.metadata)

    @property
    def mask(self) -> NDArray[np.uint16] | None:
        """Masks of its annotations as one (height, width) picture; None without masks.

        A pixel is 0, or 1 + the row in `annotations`, later rows over earlier; a mask without a label keeps its values.
        """
        from PIL import Image

        found: NDArray[np.uint16] | None = None
        for number, row in enumerate(self.annotations.select("label", "mask").iter_rows()):
            if not isinstance(row[1], bytes):
                continue
            try:
                with Image.open(io.BytesIO(row[1]), formats=("PNG",)) as picture:
                    if picture.width * picture.height > MAX_PIXELS:
                        raise DatasetError(f"{picture.width} x {picture.height} pixels, more than {MAX_PIXELS}")
                    size = picture.size if found is None else (found.shape[1], found.shape[0])
                    pixels = np.asarray(picture if row[0] is None else picture.convert("L"))
                    scaled = Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)
            except Exception as error:  # any error of the library on bad bytes
                text = f"{self.dataset.paths.arrow}: frame {self.frame} of {self.name!r}: a mask cannot be read: "
                raise DatasetError(text + quote_error(error)) from error
            own = np.asarray(scaled)
            found = np.zeros(own.shape, np.uint16) if found is None else found
            covered = own > (0 if row[0] is None or pixels.dtype == bool else 127)
            found[covered] = own[covered] if row[0] is None else number + 1
        return found

    def project(self, sensor: str = "lidar.points", *, camera: str = "camera", assume_forward: bool = False) -> Any:
        """Project a sensor's points into the picture of a camera.

        Args:
            sensor: Any name of a sensor with points.
            camera: The camera, such as `camera.left` of several.
            assume_forward: Accept a placeholder calibration, with the camera along the x axis of the sensor.

        Returns:
            `pixels` (N, 2), and `mask` (N,) of the points in the picture.

        Raises:
            DatasetError: The sample has no such points, or the calibration does not allow it.
        """
        points, camera = self.decode(sensor), find_input(camera)
        looking = import_module("edgefirst_ros.report.projection")  # a package that builds on this one
        return looking.project(points, sensor, self.calibration, camera=camera, assume_forward=assume_forward)

    def show(self) -> Any:
        """Return a picture with boxes, masks and projected points, and the points from above.

        Returns:
            A picture of PIL.
        """
        return import_module("edgefirst_ros.report.sheet").draw_card(self)

    def _repr_html_(self) -> str:
        return str(import_module("edgefirst_ros.report.sheet").render_card(self))

    @property
    def annotations(self) -> pl.DataFrame:
        """Annotations of the sample, columns as in `Dataset.annotations`; no rows without any."""
        table, rows = self.dataset.annotation_rows
        start, count = rows.get(self.key, (0, 0))
        return table.slice(start, count)

    def member(self, kind: str) -> str:
        """Return the name of a member.

        Args:
            kind: An input such as `camera`, or a kind such as `camera.jpeg`.

        Returns:
            Name in the container.

        Raises:
            DatasetError: The sample has no such member.
            UsageError: The input is unknown.
        """
        return self.dataset.members(self.key)[self._kind(kind)]

    def _kind(self, kind: str) -> str:
        members = self.dataset.members(self.key)
        for candidate in (kind,) if find_form(str(kind)) else self.dataset.kinds_of(kind):
            if candidate in members:
                return candidate
        text = f"frame {self.frame} of {self.name!r} has no {kind}; it has {', '.join(sorted(self.inputs))}"
        raise DatasetError(f"{self.dataset.container.path}: {text}")

    def read(self, kind: str) -> bytes:
        """Return the bytes of a member as stored.

        Args:
            kind: An input or a kind.

        Returns:
            The bytes.

        Raises:
            DatasetError: The member is missing or damaged.
            UsageError: The input is unknown.
        """
        return self.dataset.container.read(self.member(kind))

    @_make_method
    def image(self, sensor: str = "camera") -> NDArray[np.uint8]:
        """Return the picture of a camera.

        Args:
            sensor: The camera, such as `camera.left` of several.

        Returns:
            (height, width, 3) uint8 RGB, rows as stored.

        Raises:
            DatasetError: The picture is missing or cannot be decoded.
        """
        return self._decode_member(sensor, decode_image)

    @_make_method
    def cube(self, sensor: str = "radar.cube", *, rows: int = 1, columns: int = 1) -> Cube:
        """Return the radar cube.

        Args:
            sensor: The radar, such as `radar.cube.rear` of several.
            rows: Number of range bins of a picture that does not describe itself.
            columns: Number of Doppler bins of such a picture.

        Returns:
            The cube with its axes and scales.

        Raises:
            DatasetError: The cube is missing or cannot be decoded.
        """
        from edgefirst_ros.sensors.cube import decode_cube

        return self._decode_member(sensor, partial(decode_cube, rows=rows, columns=columns))

    def decode(self, kind: str) -> Any:
        """Decode the member of an input by the codec of its sensor.

        Args:
            kind: An input or a kind.

        Returns:
            A cube, points (N,), the camera picture (height, width, 3) uint8 RGB, or another picture (height, width).

        Raises:
            DatasetError: The member is missing or cannot be decoded.
            UsageError: The input is unknown.
        """
        from edgefirst_ros.sensors.companions import decode

        found = find_by_kind(self._kind(kind))
        if found.form == "cloud":
            return self._decode_member(kind, _decode_points).reshape(-1)
        return (
            self.image(found.key) if found.form == "camera" else self._decode_member(kind, partial(decode, found.key))
        )

    @_make_method
    def radar(self, sensor: str = "radar") -> NDArray[np.void]:
        """Return the radar points.

        Args:
            sensor: The radar, such as `radar.targets.rear` of several.

        Returns:
            Structured array (N,), or (height, width) if organised, with x, y and z in m in the sensor's frame.

        Raises:
            DatasetError: The points are missing or cannot be decoded.
        """
        return self._decode_member(sensor, _decode_points)

    @_make_method
    def lidar(self, sensor: str = "lidar") -> NDArray[np.void]:
        """Return the lidar points.

        Args:
            sensor: The lidar, such as `lidar.points.rear` of several.

        Returns:
            Structured array (N,), or (height, width) if organised, with x, y and z in m in the sensor's frame.

        Raises:
            DatasetError: The points are missing or cannot be decoded.
        """
        return self._decode_member(sensor, _decode_points)

    def _decode_member(self, kind: str, decode: Callable[[bytes], T]) -> T:
        data = self.read(kind)
        try:
            return decode(data)
        except EdgeFirstError as error:
            raise DatasetError(f"{self.dataset.container.path}: {self.member(kind)!r}: {error}") from error


def _decode_points(data: bytes) -> NDArray[np.void]:
    from edgefirst_ros.sensors.cloud import decode_grid

    points = decode_grid(data)
    return (points if len(points) > 1 else points.reshape(-1)).view(np.recarray)  # lidar().x is lidar()['x']
