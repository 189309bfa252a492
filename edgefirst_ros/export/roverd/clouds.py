# SPDX-License-Identifier: Apache-2.0
"""Point clouds and radar cubes as channels, and back: clouds padded to one number of points."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.storage.zip_read import Container
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.export.roverd.channels import EXTRINSICS, INDEX, LARGEST, META, STAMPS, RawWriter, Reader
from edgefirst_ros.sensors.cloud import FIELD_NAME, decode_cloud, pcd_header
from edgefirst_ros.sensors.cube import Cube, encode_cube

PLACE = ("x", "y", "z")
XYZ, LENGTH, HEIGHT = "xyz", "length", "height"
OWN = frozenset({XYZ, LENGTH, HEIGHT, STAMPS, META, EXTRINSICS})
HEAD = 4096
"""Bytes in which a header of a PCD file usually ends."""
_NUMBER = {key: re.compile(rb"^%s (\d{1,9})$" % key, re.MULTILINE) for key in (b"WIDTH", b"HEIGHT", b"POINTS")}
TEXTS = {
    STAMPS: "Timestamp, in seconds since the epoch.",
    XYZ: "Points in the sensor's frame, in metres; zero from `length` on.",
    LENGTH: "Number of points.",
    HEIGHT: "Lines of an organised cloud of length / height columns; 1 of any other.",
}


@dataclass(frozen=True)
class Cloud:
    """A cloud: structured points (N,) and the lines they are organised in."""

    points: NDArray[Any]
    height: int


def read_cloud(pcd: bytes) -> Cloud | None:
    """Return the cloud of a PCD file; None for a file that is not one."""
    try:
        points = decode_cloud(pcd)
    except DatasetError:
        return None
    found = _NUMBER[b"HEIGHT"].search(pcd, 0, HEAD)
    height = int(found[1]) if found else 1
    return Cloud(points, height if height > 0 and len(points) % height == 0 else 1)


def write_cloud(cloud: Cloud) -> bytes:
    """Return the PCD file of a cloud."""
    header = pcd_header(cloud.points.dtype, len(cloud.points) // cloud.height, cloud.height)
    return header + cloud.points.tobytes()


def has_channels(record: np.dtype[Any]) -> bool:
    """True if points of this kind fit into channels: x, y and z as float32, names that can be those of files."""
    names = record.names or ()
    if not set(PLACE) <= set(names) or any(record[axis] != np.dtype("<f4") for axis in PLACE):
        return False
    others = [name for name in names if name not in PLACE]
    taken = {name + INDEX for name in names} | OWN
    return all(safe_name(name) == name and name not in taken for name in others) and len(
        {name.casefold() for name in others}
    ) == len(others)


def most_points(container: Container, names: Iterable[str]) -> int:
    """Return the most points of any of these PCD files, at least 1, from their headers alone."""
    most = 1
    for name in names:
        size = container.size(name)
        head = container.head(name, min(size, HEAD))
        found = _NUMBER[b"POINTS"].search(head)
        if found and int(found[1]) <= size:
            most = max(most, int(found[1]))
    return most


class CloudWriter:
    """The channels of clouds of one kind while they are written."""

    def __init__(self, folder: Path, record: np.dtype[Any], most: int) -> None:
        self.channels = {
            XYZ: RawWriter(folder / XYZ, "f4", (most, 3)),
            LENGTH: RawWriter(folder / LENGTH, "i4", ()),
            HEIGHT: RawWriter(folder / HEIGHT, "i4", ()),
        }
        for name in (name for name in record.names or () if name not in PLACE):
            column = record[name]
            self.channels[name] = RawWriter(folder / name, column.base.str[1:], (most, *column.shape))

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add a cloud, as its channels have it."""
        for name, channel in self.channels.items():
            channel.append(entry[name])


def channels_of(cloud: Cloud) -> dict[str, Any]:
    """Return the values of each channel of a cloud."""
    points = cloud.points
    xyz = np.empty((len(points), 3), "<u4")  # as integers, so that no NaN is touched on the way
    for number, axis in enumerate(PLACE):
        xyz[:, number] = points[axis].view("<u4")
    others = {name: np.ascontiguousarray(points[name]) for name in points.dtype.names or () if name not in PLACE}
    return {XYZ: xyz.view("<f4"), LENGTH: len(points), HEIGHT: cloud.height, **others}


def _fields(reader: Reader) -> list[str]:
    """Return the channels that can be fields of points."""
    plain = (name for name, (form, *_) in reader.channels.items() if form == "raw" and name not in OWN)
    return [name for name in plain if FIELD_NAME.fullmatch(name) and safe_name(name) == name]


class CloudReader:
    """Clouds from channels: x, y, z, then the other fields as described."""

    def __init__(self, reader: Reader) -> None:
        self._xyz, self._length = reader.raw(XYZ), reader.raw(LENGTH)
        if self._xyz.ndim != 3 or self._xyz.shape[2] != 3 or self._xyz.dtype != np.dtype("<f4"):
            raise DatasetError(f"{reader.folder / XYZ}: has entries of {self._xyz.shape[1:]}, expected (points, 3) f4")
        most = self._xyz.shape[1]
        self._height = reader.raw(HEIGHT) if HEIGHT in reader.channels else None
        fields = {name: reader.raw(name) for name in _fields(reader)}
        self._others = {name: values for name, values in fields.items() if values.ndim > 1 and values.shape[1] == most}
        kinds: dict[str, Any] = dict.fromkeys(PLACE, ("<f4", ()))
        kinds |= {name: (values.dtype, values.shape[2:]) for name, values in self._others.items()}
        self._record = np.dtype([(name, *kind) for name, kind in kinds.items()])
        if self._record.itemsize * most > LARGEST:  # files can be sparse
            raise DatasetError(f"{reader.folder}: clouds of up to {most} points are more than {LARGEST} bytes each")
        self._folder = reader.folder

    def __getitem__(self, number: int) -> Cloud:
        try:
            length = int(self._length[number])
            height = 1 if self._height is None else int(self._height[number])
            if not 0 <= length <= self._xyz.shape[1] or height < 1 or length % height:
                raise DatasetError(f"{self._folder}: entry {number} has {length} points in {height} lines")
            points = np.empty(length, self._record)
            for axis, name in enumerate(PLACE):
                points[name].view("<u4")[...] = self._xyz[number, :length, axis].view("<u4")
            for name, values in self._others.items():
                points[name] = values[number, :length]
        except (IndexError, TypeError, ValueError, OverflowError) as error:
            raise DatasetError(f"{self._folder}: entry {number} cannot be read: {error}") from error
        return Cloud(points, height)


# ---- cubes ---------------------------------------------------------------------------------------
CUBE, RADAR = "cube", "radar.json"
AXES = ["sequence", "rx", "range", "doppler", "real and imaginary"]


def turn_cube(values: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return (sequence, rx, range, ...), contiguous, from (sequence, range, rx, ...); or the other way round."""
    return np.ascontiguousarray(values.swapaxes(1, 2))


def describe_cube(cube: Cube) -> dict[str, Any]:
    """Return the content of radar.json; resolutions in m and m/s, null where unknown."""
    return {
        "range_resolution": cube.metres_per_range_bin,
        "doppler_resolution": cube.speed_per_doppler_bin,
        "axes": AXES[: cube.values.ndim],
        "layout": list(cube.layout),
        "shape": list(cube.message_shape),
        "scales": [scale if math.isfinite(scale) else None for scale in cube.scales],
        "is_complex": cube.is_complex,
    }


@dataclass(frozen=True)
class _Message:
    """Fields of a RadarCube message that are encoded; arrays have `view` as its own buffers have."""

    layout: NDArray[np.uint8]
    shape: NDArray[np.uint16]
    scales: NDArray[np.float32]
    cube: NDArray[np.int16]
    is_complex: bool


def write_cube(values: NDArray[np.int16], said: Mapping[str, Any], timestamp: int) -> bytes:
    """Return the picture of a cube from its channel and radar.json. Raises DatasetError where they do not agree."""
    try:
        scales = tuple(math.nan if scale is None else float(scale) for scale in said["scales"])
        axes = tuple(said["layout"]), tuple(said["shape"]), scales
        cube = Cube(turn_cube(values), *axes, said["is_complex"], timestamp)
        message = _Message(
            np.array(cube.layout, np.uint8),
            np.array(cube.message_shape, "<u2"),
            np.array(cube.scales, "<f4"),
            cube.raw(),
            cube.is_complex,
        )
        return encode_cube(message, timestamp)  # type: ignore[arg-type]  # it has all that is asked of one
    except (LookupError, TypeError, ValueError, OverflowError, EdgeFirstError) as error:
        raise DatasetError(f"a cube does not fit {RADAR}: {error!r}") from error
