# SPDX-License-Identifier: Apache-2.0
"""Rigid transforms between frames: rotations, poses, static transforms, boxes in other axes, geodetic positions.

Axes of a sensor and of the vehicle are x forward, y left, z up (FLU); of an optical frame x right, y down, z forward.
World axes are ENU (x east, y north, z up) at a point; ECEF is metres from the centre of WGS-84.
Source: REP 103; REP 105; NIMA TR8350.2 (WGS-84); ISO 19111 (geocentric coordinates).
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
BASE = "base_link"
OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
"""(3, 3) rotation from optical axes to FLU."""
OPTICAL_NAMES = ("optical", "optical_frame")
"""Ends of the names of optical frames."""
HULL = math.cos(math.radians(10))
"""Cosine of the angle to the nearest permutation of axes beyond which a turned box becomes its hull."""
SEMI_MAJOR = 6_378_137.0
FLATTENING = 1 / 298.257223563
ECCENTRICITY = FLATTENING * (2 - FLATTENING)
"""Square of the first eccentricity."""


def make_rotation(quaternion: ArrayLike) -> Floats:
    """Return (N, 3, 3) of quaternions (N, 4) as x, y, z, w; (3, 3) of one; NaN for a length of 0 or not finite."""
    given = np.asarray(quaternion, float)
    with np.errstate(over="ignore", under="ignore"):
        length = np.linalg.norm(given, axis=-1, keepdims=True)
    x, y, z, w = np.moveaxis(given / np.where((length > 0) & np.isfinite(length), length, np.nan), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, -1) for row in rows], -2)


def make_quaternion(turn: Floats) -> Floats:
    """Return (..., 4) x, y, z, w of rotations (..., 3, 3): eigenvectors of Bar-Itzhack's matrix, w not negative."""
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(turn, (-2, -1), (0, 1))
    rows = [
        [a - e - i, b + d, c + g, h - f],
        [b + d, e - a - i, f + h, c - g],
        [c + g, f + h, i - a - e, d - b],
        [h - f, c - g, d - b, a + e + i],
    ]
    found: Floats = np.linalg.eigh(np.stack([np.stack(row, -1) for row in rows], -2))[1][..., -1]
    return np.where(found[..., 3:] < 0, -found, found)


def make_pose(turn: ArrayLike, place: ArrayLike) -> Floats:
    """Return (N, 4, 4) of rotations (N, 3, 3) and translations (N, 3); (4, 4) of one."""
    turns = np.asarray(turn, float)
    found = np.zeros((*turns.shape[:-2], 4, 4))
    found[..., :3, :3], found[..., :3, 3], found[..., 3, 3] = turns, place, 1.0
    return found


def invert_poses(poses: Floats) -> Floats:
    """Return the inverse of rigid poses (..., 4, 4)."""
    back = np.swapaxes(poses[..., :3, :3], -1, -2)
    return make_pose(back, -(back @ poses[..., :3, 3:])[..., 0])


def chain_frames(transforms: Iterable[Mapping[str, Any]], start: str) -> dict[str, Floats]:
    """Return (4, 4) from every frame that a chain of transforms joins to `start` into it, m; the shortest chain counts.

    Args:
        transforms: {"parent", "child", "translation" (3) in m, "rotation" as x, y, z, w} each; invalid ones are
            skipped.
        start: the frame to which the others are joined.

    Raises:
        KeyError, TypeError, ValueError: a transform does not have a field, or has one of another type.
    """
    steps: dict[str, list[tuple[str, Floats]]] = {}
    for entry in transforms:
        turn, place = np.array(entry["rotation"], float), np.array(entry["translation"], float)
        with np.errstate(over="ignore", under="ignore"):
            length = np.linalg.norm(turn)
        if not (np.isfinite(length) and length > 0 and np.isfinite(place).all()):
            continue  # an unset quaternion does not join frames
        step = make_pose(make_rotation(turn), place)
        steps.setdefault(entry["parent"], []).append((entry["child"], step))
        steps.setdefault(entry["child"], []).append((entry["parent"], invert_poses(step)))
    found = {start: np.eye(4)}
    waiting = [start]
    for frame in waiting:
        for other, step in steps.get(frame, ()):
            if other not in found:
                found[other] = found[frame] @ step
                waiting.append(other)
    return found


def find_chain(parents: Mapping[str, str], fixed: str, moving: str) -> list[tuple[str, str, bool]]:
    """Return the steps from one frame to another: (parent, child, True if it leads up, from child to parent).

    Args:
        parents: parent of each frame.
        fixed: frame at the begin of the chain.
        moving: frame at its end.

    Raises:
        ValueError: a loop, or no chain; the message names the frames.
    """
    up, down = climb(parents, fixed), climb(parents, moving)
    if fixed == moving:
        raise ValueError(f"both frames are {fixed!r}: name the fixed and the moving one")
    common = next((frame for frame in up if frame in down), None)
    if common is None:
        ends = " and ".join(f"{' -> '.join(reversed(way))}" for way in (up, down))
        raise ValueError(f"no chain of transforms joins {fixed!r} and {moving!r}: the chains are {ends}")
    rise, fall = up[: up.index(common) + 1], down[: down.index(common) + 1][::-1]
    steps = [(parent, child, True) for child, parent in itertools.pairwise(rise)]
    return steps + [(parent, child, False) for parent, child in itertools.pairwise(fall)]


def climb(parents: Mapping[str, str], frame: str) -> list[str]:
    """Return a frame and all above it. Raises ValueError for a loop."""
    way = [frame]
    while way[-1] in parents:
        way.append(parents[way[-1]])
        if way[-1] in way[:-1]:
            loop = " -> ".join(reversed(way[way.index(way[-1]) :]))
            raise ValueError(f"the transforms are a loop: {loop}")
    return way


def move_boxes(boxes: ArrayLike, way: Floats) -> Floats:
    """Return boxes (N, 6) [center x, y, z, extent x, y, z] in the axes that `way` (4, 4) leads to, m.

    Extents are permuted where the axes are parallel to within 10 degrees; else each box becomes the hull around it.
    """
    given = np.asarray(boxes, float).reshape(-1, 6)
    turn = way[:3, :3]
    size = np.abs(turn)
    order = max(itertools.permutations(range(3)), key=lambda axes: float(size[range(3), axes].sum()))
    if (size[range(3), order].sum() - 1) / 2 >= HULL:
        size = np.eye(3)[list(order)]
    return np.column_stack([given[:, :3] @ turn.T + way[:3, 3], given[:, 3:] @ size.T])


class SensorPlace(NamedTuple):
    """Where a sensor is."""

    frame: str
    """The frame in which its boxes are stored: base_link, or its own where no transform leads there."""
    way: Floats
    """(4, 4) from its forward, left, up to that frame."""
    own_axes: Floats = np.eye(4)
    """(4, 4) from the axes of its frame to that frame, which differ where it is optical."""


class World(NamedTuple):
    """The fixed frame of the poses."""

    fixed: str
    vehicle: str
    """The frame whose poses they are."""
    way: Floats | None
    """(4, 4) from the fixed frame to that of the vehicle at the stamp of a frame; None where the pose is unknown."""


class BoxFrames:
    """The frame in which the boxes of each fused sensor are stored, decided with the first of them.

    Owns: any thread may call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, SensorPlace] = {}

    def place(self, frame_id: str, transforms: Iterable[Mapping[str, Any]], camera: str | None) -> SensorPlace:
        """Return the place of a sensor, the same as at the first call.

        Args:
            frame_id: the sensor's frame. If it is optical, its transform is one of optical axes.
            transforms: static transforms as for `chain_frames`.
            camera: frame of the camera, which is optical.
        """
        with self._lock:
            if frame_id not in self._places:
                self._places[frame_id] = _place(frame_id, transforms, camera)
            return self._places[frame_id]

    @property
    def names(self) -> set[str]:
        """The frames of the boxes so far."""
        return {place.frame for place in self._places.copy().values()}


def _place(frame_id: str, transforms: Iterable[Mapping[str, Any]], camera: str | None) -> SensorPlace:
    to_base = chain_frames(transforms, BASE).get(frame_id)
    if to_base is None:
        return SensorPlace(frame_id, np.eye(4))
    own = to_base
    turns = not np.allclose(to_base[:3, :3], np.eye(3), atol=1e-6)  # one without a turn is a placeholder
    looks_ahead = (np.sum(to_base[:3, :3] * OPTICAL) - 1) / 2 >= HULL
    if looks_ahead or (turns and (frame_id == camera or frame_id.lower().endswith(OPTICAL_NAMES))):
        to_base = to_base @ make_pose(OPTICAL.T, np.zeros(3))
    return SensorPlace(BASE, to_base, own)


def convert_to_ecef(latitude: ArrayLike, longitude: ArrayLike, altitude: ArrayLike) -> Floats:
    """Return ECEF (N, 3) in m of N positions in degrees and m above the ellipsoid; (3,) of one."""
    phi, lam = np.radians(np.asarray(latitude, float)), np.radians(np.asarray(longitude, float))
    height = np.asarray(altitude, float)
    normal = SEMI_MAJOR / np.sqrt(1 - ECCENTRICITY * np.sin(phi) ** 2)
    across = (normal + height) * np.cos(phi)
    return np.stack(
        [across * np.cos(lam), across * np.sin(lam), (normal * (1 - ECCENTRICITY) + height) * np.sin(phi)], -1
    )


def convert_to_geodetic(points: ArrayLike) -> Floats:
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


def make_world_to_ecef(latitude: ArrayLike, longitude: ArrayLike, altitude: ArrayLike) -> Floats:
    """(N, 4, 4): ENU at N places, as points of the world in metres, to ECEF; (4, 4) at one."""
    phi, lam = np.radians(np.asarray(latitude, float)), np.radians(np.asarray(longitude, float))
    east = [-np.sin(lam), np.cos(lam), np.zeros_like(phi)]
    north = [-np.sin(phi) * np.cos(lam), -np.sin(phi) * np.sin(lam), np.cos(phi)]
    up = [np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)]
    axes = [np.stack(axis, -1) for axis in (east, north, up)]
    return make_pose(np.stack(axes, -1), convert_to_ecef(latitude, longitude, altitude))


def interpolate_poses(
    poses: Floats, stamps: NDArray[np.int64], times: NDArray[np.int64], widest: float = 2.0
) -> Floats:
    """(M, 4, 4) rigid poses at `times` (M,) from poses (N, 4, 4) at rising `stamps` (N,), all in ns.

    Before the first and after the last the motion continues; between two further apart than `widest` s, and of a single
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
    found[:, :3, :3] @= make_rotation(np.column_stack([unit * np.sin(half)[:, None], np.cos(half)]))
    found[:, :3, 3] += share[:, None] * (second[:, :3, 3] - first[:, :3, 3])
    return found
