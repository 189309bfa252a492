# SPDX-License-Identifier: Apache-2.0
"""Requirements of NCore, checked before writing: the library's own checks are assertions, which -O removes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.errors import DatasetError

RIGID = 1e-6
"""Largest deviation of a rotation from orthonormal."""
UNIT = 1e-4
"""Largest deviation of a direction's squared length from 1."""


def rigid(what: str, poses: NDArray[Any]) -> None:
    """Raise DatasetError unless (4, 4) or (N, 4, 4) are finite rigid poses."""
    if poses.shape[-2:] != (4, 4) or not np.isfinite(poses).all():
        raise DatasetError(f"{what}: poses of shape {poses.shape} that are not all finite")
    turn = poses[..., :3, :3]
    away = np.abs(turn @ np.swapaxes(turn, -1, -2) - np.eye(3)).max(initial=0)
    if away > RIGID or (np.linalg.det(turn) < 0).any() or (poses[..., 3, :] != (0, 0, 0, 1)).any():
        raise DatasetError(f"{what}: is not a rigid pose (off by {away:.2g}, or mirrored)")


def rising(what: str, stamps: NDArray[Any]) -> None:
    """Raise DatasetError unless stamps (N,) in µs rise strictly."""
    wrong = np.flatnonzero(np.diff(stamps.astype(np.int64)) <= 0)
    if len(wrong):
        raise DatasetError(f"{what}: two have the time {stamps[wrong[0] + 1]} µs or it goes back; each needs its own")


def covering(what: str, stamps: NDArray[Any], start: int, stop: int) -> None:
    """Raise DatasetError unless stamps (N,) in µs reach from `start` to `stop` - 1, N at least 2."""
    if len(stamps) < 2 or stamps[0] != start or stamps[-1] != stop - 1:
        raise DatasetError(f"{what}: {len(stamps)} poses do not reach over the interval {start} to {stop} µs")


def inside(what: str, stamp: int, start: int, stop: int) -> None:
    """Raise DatasetError unless a stamp lies in the half open interval."""
    if not start <= stamp < stop:
        raise DatasetError(f"{what}: {stamp} µs lies outside the interval {start} to {stop} µs")


def rays(what: str, direction: NDArray[Any], distance: NDArray[Any], intensity: NDArray[Any] | None) -> None:
    """Raise DatasetError unless directions (N, 3) are unit, distances (1, N) finite and >= 0, intensities in 0..1."""
    if direction.shape != (distance.shape[1], 3) or distance.shape[0] != 1:
        raise DatasetError(f"{what}: {direction.shape} directions for {distance.shape} distances")
    square = np.sum(direction.astype(np.float64) ** 2, 1)
    if not (np.abs(square - 1) < UNIT).all():
        raise DatasetError(f"{what}: directions are not of length 1")
    if not (np.isfinite(distance) & (distance >= 0)).all():
        raise DatasetError(f"{what}: distances are not finite or negative")
    if intensity is not None and (intensity.shape != distance.shape or not ((intensity >= 0) & (intensity <= 1)).all()):
        raise DatasetError(f"{what}: intensities are not in 0..1")


class Tree:
    """The frames that poses join: each pair once, in one direction, without circles.

    The library's own check of this never fires, and its reader fails on such a file.
    """

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def join(self, source: str, target: str) -> None:
        """Add a pose. Raises DatasetError if the two frames are joined already."""
        ends = self._end(source), self._end(target)
        if ends[0] == ends[1]:
            raise DatasetError(f"pose of {source!r} to {target!r}: the two are joined already")
        self._parent[ends[0]] = ends[1]

    def _end(self, frame: str) -> str:
        while frame in self._parent:
            frame = self._parent[frame]
        return frame
