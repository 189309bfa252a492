# SPDX-License-Identifier: Apache-2.0
"""Radar cubes as a channel, as documented [sequence, rx, range, doppler] with real and imaginary part, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.sensors.cube import Cube, decode_cube, encode_cube

AXES = ["sequence", "rx", "range", "doppler", "real and imaginary"]


def read_cube(png: bytes) -> Cube | None:
    """Return the cube of a picture that `write_cube` gives back byte by byte; None for any other."""
    try:
        cube = decode_cube(png)
        return cube if write_cube(cube) == png else None
    except (EdgeFirstError, OverflowError):  # an axis of more than a message can say
        return None


@dataclass(frozen=True)
class Message:
    """Fields of a RadarCube message that are encoded; arrays have `view` as its own buffers have."""

    layout: NDArray[np.uint8]
    shape: NDArray[np.uint16]
    scales: NDArray[np.float32]
    cube: NDArray[np.int16]
    is_complex: bool


def write_cube(cube: Cube) -> bytes | None:
    """Return the picture of a cube; None of one without a stamp. Raises MessageError where it is not what it says."""
    if cube.timestamp is None:
        return None
    message = Message(
        np.array(cube.layout, np.uint8),
        np.array(cube.shape, "<u2"),
        np.array(cube.scales, "<f4"),
        cube.raw(),
        cube.is_complex,
    )
    return encode_cube(message, cube.timestamp)  # type: ignore[arg-type]  # it has all that is asked of one


def turned(values: NDArray[np.int16]) -> NDArray[np.int16]:
    """From (sequence, range, rx, ...) to (sequence, rx, range, ...), contiguous; or the other way round."""
    return np.ascontiguousarray(values.swapaxes(1, 2))


def described(cube: Cube) -> dict[str, Any]:
    """Return the content of radar.json; resolutions in m and m/s, null where unknown."""
    return {
        "range_resolution": cube.metres_per_range_bin,
        "doppler_resolution": cube.speed_per_doppler_bin,
        "axes": AXES[: cube.values.ndim],
        "layout": list(cube.layout),
        "shape": list(cube.shape),
        "scales": [scale if math.isfinite(scale) else None for scale in cube.scales],
        "is_complex": cube.is_complex,
    }


def restored(values: NDArray[np.int16], said: dict[str, Any], timestamp: int) -> bytes:
    """The picture of a cube from its channel and radar.json. Raises DatasetError where they do not go together."""
    try:
        scales = tuple(math.nan if scale is None else float(scale) for scale in said["scales"])
        cube = Cube(turned(values), tuple(said["layout"]), tuple(said["shape"]), scales, said["is_complex"], timestamp)
        picture = write_cube(cube)
    except (LookupError, TypeError, ValueError, OverflowError, EdgeFirstError) as error:
        raise DatasetError(f"a cube does not fit radar.json: {error!r}") from error
    if picture is None:
        raise DatasetError("a cube has no stamp")
    return picture
