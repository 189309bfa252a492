# SPDX-License-Identifier: Apache-2.0
"""Geodetic positions as matrices, and poses between two of them.

World axes are ENU (x east, y north, z up) at a point; ECEF is metres from the centre of WGS-84.
Source: NIMA TR8350.2 (WGS-84); ISO 19111 (geocentric coordinates).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefirst_ros.sensors.transforms import Floats, pose, rotation

SEMI_MAJOR = 6_378_137.0
FLATTENING = 1 / 298.257223563
ECCENTRICITY = FLATTENING * (2 - FLATTENING)
"""Square of the first eccentricity."""


def ecef(latitude: ArrayLike, longitude: ArrayLike, altitude: ArrayLike) -> Floats:
    """Return ECEF (N, 3) in m of N positions in degrees and m above the ellipsoid; (3,) of one."""
    phi, lam = np.radians(np.asarray(latitude, float)), np.radians(np.asarray(longitude, float))
    height = np.asarray(altitude, float)
    normal = SEMI_MAJOR / np.sqrt(1 - ECCENTRICITY * np.sin(phi) ** 2)
    across = (normal + height) * np.cos(phi)
    return np.stack(
        [across * np.cos(lam), across * np.sin(lam), (normal * (1 - ECCENTRICITY) + height) * np.sin(phi)], -1
    )


def geodetic(points: ArrayLike) -> Floats:
    """(N, 3) latitude and longitude in degrees and height in m of ECEF places (N, 3); (3,) of one."""
    x, y, z = np.moveaxis(np.asarray(points, float), -1, 0)
    across = np.hypot(x, y)
    phi = np.arctan2(z, across * (1 - ECCENTRICITY))
    for _ in range(6):  # each step gains three digits near the ground
        normal = SEMI_MAJOR / np.sqrt(1 - ECCENTRICITY * np.sin(phi) ** 2)
        phi = np.arctan2(z + ECCENTRICITY * normal * np.sin(phi), across)
    normal = SEMI_MAJOR / np.sqrt(1 - ECCENTRICITY * np.sin(phi) ** 2)
    height = across * np.cos(phi) + z * np.sin(phi) - SEMI_MAJOR**2 / normal
    return np.stack([np.degrees(phi), np.degrees(np.arctan2(y, x)), height], -1)


def world_to_ecef(latitude: ArrayLike, longitude: ArrayLike, altitude: ArrayLike) -> Floats:
    """(N, 4, 4): ENU at N places, as points of the world in metres, to ECEF; (4, 4) at one."""
    phi, lam = np.radians(np.asarray(latitude, float)), np.radians(np.asarray(longitude, float))
    east = [-np.sin(lam), np.cos(lam), np.zeros_like(phi)]
    north = [-np.sin(phi) * np.cos(lam), -np.sin(phi) * np.sin(lam), np.cos(phi)]
    up = [np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)]
    axes = [np.stack(axis, -1) for axis in (east, north, up)]
    return pose(np.stack(axes, -1), ecef(latitude, longitude, altitude))


def between(poses: Floats, stamps: NDArray[np.int64], times: NDArray[np.int64], widest: float = 2.0) -> Floats:
    """(M, 4, 4) rigid poses at `times` (M,) from poses (N, 4, 4) at rising `stamps` (N,), all in ns.

    Before the first and after the last the motion goes on; between two further apart than `widest` s, and of a single
    one, the nearest counts.
    """
    if len(stamps) < 2:
        return np.repeat(poses, len(times), 0)
    low = np.clip(np.searchsorted(stamps, times, "right") - 1, 0, len(stamps) - 2)
    part, whole = times - stamps[low], stamps[low + 1] - stamps[low]
    share = part / whole
    share = np.where(whole > widest * 1e9, share >= 0.5, share)
    first, second = poses[low], poses[low + 1]
    turn = np.swapaxes(first[:, :3, :3], 1, 2) @ second[:, :3, :3]
    axis = np.stack([turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], -1)
    sine = np.linalg.norm(axis, axis=1)
    half = share * np.arctan2(sine, np.trace(turn, axis1=1, axis2=2) - 1) / 2
    unit = np.divide(axis, sine[:, None], out=np.zeros_like(axis), where=sine[:, None] > 0)
    found = np.array(first)
    found[:, :3, :3] @= rotation(np.column_stack([unit * np.sin(half)[:, None], np.cos(half)]))
    found[:, :3, 3] += share[:, None] * (second[:, :3, 3] - first[:, :3, 3])
    return found
