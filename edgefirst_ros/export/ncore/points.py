# SPDX-License-Identifier: Apache-2.0
"""Point clouds as NCore has them: rays with a direction and a distance, other fields beside them; and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.sensors.cloud import pcd_header

RADAR_NAMES = {"speed": "radial_velocity_m_s", "rcs": "rcs_dBsm", "snr": "snr_dB"}
"""Fields of radar points -> the names that NVIDIA's own converters use (velocity: positive away)."""
INTENSITY = ("reflect", "reflectivity", "intensity")
"""Fields that tell how much light came back."""
AXES = ("x", "y", "z")


@dataclass(frozen=True)
class Rays:
    """Points of one cloud that have a direction."""

    direction: NDArray[np.float32]
    """(N, 3), length 1."""
    distance: NDArray[np.float32]
    """(1, N) m."""
    intensity: NDArray[np.float32]
    """(1, N) of the full range of an integer field; 0 where the scale is unknown."""
    further: dict[str, NDArray[Any]]
    """(N, ...) other fields by their names in NCore."""
    left: int
    """Points without a direction: at the origin, or not finite."""


def rays(points: NDArray[np.void], names: Mapping[str, str]) -> Rays | None:
    """Return the rays of a structured array of points; None where it has no x, y and z.

    `names` are fields that have other names in NCore. direction * distance in float32 is within one step of the
    float32 coordinates.
    """
    fields = points.dtype.names or ()
    points = points.reshape(-1)
    if not set(AXES) <= set(fields) or any(points[axis].ndim > 1 for axis in AXES):
        return None
    # By columns, which is three times as fast as by points.
    columns = [points[axis].astype(np.float64) for axis in AXES]
    with np.errstate(over="ignore", invalid="ignore"):
        distance = np.sqrt(sum(column**2 for column in columns)).astype(np.float32)
    kept = np.isfinite(distance) & (distance > np.finfo(np.float32).tiny)
    left = int(len(kept) - np.count_nonzero(kept))
    if left:
        columns, distance, points = [column[kept] for column in columns], distance[kept], points[kept]
    direction = np.empty((3, len(points)), np.float32)
    for axis, column in zip(direction, columns, strict=True):
        axis[:] = column / distance  # by the rounded distance, so that the product has one rounding less
    intensity = np.zeros((1, len(points)), np.float32)
    field = next((name for name in INTENSITY if name in fields and points[name].ndim == 1), None)
    if field is not None and points[field].dtype.kind == "u":
        intensity[0] = points[field] / np.float32(np.iinfo(points[field].dtype).max)
    further: dict[str, NDArray[Any]] = {}
    for name in fields:
        if name not in AXES:
            further.setdefault(names.get(name, safe_name(name)), np.ascontiguousarray(points[name]))
    return Rays(direction.T, distance[None], intensity, further, left)


def cloud(xyz: NDArray[Any], further: Mapping[str, NDArray[Any]]) -> bytes:
    """A PCD file of points (N, 3) and further values (N,) by name, binary; fields of other lengths are left away."""
    columns = {axis: xyz[:, n].astype("<f4") for n, axis in enumerate(AXES)}
    for name, values in further.items():
        kind = values.dtype.kind in "iuf" and values.dtype.itemsize in (
            (4, 8) if values.dtype.kind == "f" else (1, 2, 4)
        )
        if values.shape == (len(xyz),) and kind and name not in columns and not set(name) & set(" #\t"):
            columns[name] = values.astype(values.dtype.newbyteorder("<"))
    table = np.empty(len(xyz), [(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values
    return pcd_header(table.dtype, len(table), 1) + table.tobytes()
