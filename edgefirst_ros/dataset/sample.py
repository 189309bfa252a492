# SPDX-License-Identifier: Apache-2.0
"""One sample of a dataset: decoded pictures, cubes and points, its frames row, its annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.inputs import INPUT_OF, INPUTS, Key, input_name
from edgefirst_ros.dataset.pictures import decode_image
from edgefirst_ros.dataset.sequences import SequenceCalibration
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.streams import of_kind

if TYPE_CHECKING:
    import polars as pl

    from edgefirst_ros.dataset.reader import Dataset
    from edgefirst_ros.sensors.cube import Cube

T = TypeVar("T")


class Position(NamedTuple):
    """Position of a sample: latitude and longitude in degrees (WGS-84), altitude in m (None: unknown)."""

    latitude: float
    longitude: float
    altitude: float | None


@dataclass(frozen=True, repr=False)
class Sample:
    """One sample: everything recorded around one stamp. Every access decodes anew; arrays are writable.

    Raises DatasetError where it has no such member or the member is broken, UsageError for an unknown input.
    """

    dataset: Dataset
    """The dataset it belongs to."""
    key: Key
    """Name of the sequence and frame number."""

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
    def inputs(self) -> frozenset[str]:
        """Inputs that it has, such as `camera` and `radar.cube`."""
        return frozenset(INPUT_OF[kind] for kind in self.dataset.members(self.key))

    @property
    def repeats(self) -> frozenset[str]:
        """Inputs whose message the sample before, of the same sequence, has too."""
        return self.dataset.repeats.get(self.key, frozenset()) & self.inputs

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
        """{companion: its stamp minus that of the sample, ns}, such as `radar_cube` and `lidar_points`."""
        return {
            name.removesuffix("_skew"): value
            for name, value in self.row.items()
            if name.endswith("_skew") and value is not None
        }

    @property
    def annotations(self) -> pl.DataFrame:
        """Annotations of the sample, columns as in `Dataset.annotations`; no rows without any."""
        table, rows = self.dataset.annotation_rows
        start, count = rows.get(self.key, (0, 0))
        return table.slice(start, count)

    def member(self, kind: str) -> str:
        """Return the name of the member of an input ("camera") or a kind ("camera.jpeg").

        Raises DatasetError when the sample has none, UsageError for an unknown input.
        """
        return self.dataset.members(self.key)[self._kind(kind)]

    def _kind(self, kind: str) -> str:
        """Return the kind of member that holds an input."""
        members = self.dataset.members(self.key)
        for candidate in (kind,) if kind in INPUT_OF else INPUTS[input_name(kind)]:
            if candidate in members:
                return candidate
        raise DatasetError(f"{self.dataset.container.path}: frame {self.frame} of {self.name!r} has no {kind}")

    def read(self, kind: str) -> bytes:
        """Return the bytes of a member as stored."""
        return self.dataset.container.read(self.member(kind))

    def image(self) -> NDArray[np.uint8]:
        """Return the camera picture, (height, width, 3) uint8 RGB, rows as stored.

        JPEG is decoded by libjpeg-turbo's default (accurate) transform and smooth upsampling.
        """
        return self._decoded("camera", decode_image)

    def cube(self, rows: int = 1, columns: int = 1) -> Cube:
        """Return the radar cube; `rows` and `columns` give the grid of a picture that does not describe itself."""
        from edgefirst_ros.sensors.cube import decode_cube

        return self._decoded("radar.cube", partial(decode_cube, rows=rows, columns=columns))

    def decode(self, kind: str) -> Any:
        """Decode the member of an input by its sensor's codec.

        A cube, points (N,), or a picture: the camera's (height, width, 3) uint8 RGB, another's (height, width) uint8 or
        uint16 as measured. Raises DatasetError, UsageError for an unknown input.
        """
        from edgefirst_ros.sensors.companions import decode

        found = of_kind(self._kind(kind))
        return self.image() if found.form == "camera" else self._decoded(kind, partial(decode, found.key))

    def radar(self) -> NDArray[np.void]:
        """Return radar points: structured array (N,), or (height, width) if organised; m in the sensor's frame."""
        return self._decoded("radar.pcd", _points)

    def lidar(self) -> NDArray[np.void]:
        """Return lidar points: structured array (N,), or (height, width) if organised; m in the sensor's frame."""
        return self._decoded("lidar.pcd", _points)

    def _decoded(self, kind: str, decode: Callable[[bytes], T]) -> T:
        data = self.read(kind)
        try:
            return decode(data)
        except EdgeFirstError as error:
            raise DatasetError(f"{self.dataset.container.path}: {self.member(kind)!r}: {error}") from error


def _points(data: bytes) -> NDArray[np.void]:
    """Return the points of a PCD file; (height, width) if organised."""
    from edgefirst_ros.sensors.cloud import decode_grid

    points = decode_grid(data)
    return points if len(points) > 1 else points.reshape(-1)
