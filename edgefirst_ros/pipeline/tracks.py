# SPDX-License-Identifier: Apache-2.0
"""Position and attitude of frames: fixes and attitudes by epoch, kept as long as a frame may need them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefirst_ros.sensors.navigation import AttitudeTrack, FixTrack, Position, Quaternion, attitude_of, fix_of
from edgefirst_ros.sensors.transforms import Floats, inverse, pose, rotation, world_to_ecef


@dataclass(slots=True)
class _Tracks:
    """Positions and attitudes of one epoch."""

    fixes: FixTrack
    attitudes: AttitudeTrack
    newest: int = 0
    """Stamp of the last message, ns."""


class Navigation:
    """Fixes and attitudes by epoch. Owned by the thread that pushes messages."""

    def __init__(self, max_gap: int) -> None:
        """`max_gap`: the longest time in ns between two messages to interpolate (inclusive)."""
        self._max_gap = max_gap
        self._epochs: dict[int, _Tracks] = {}

    def add_fix(self, content: Any, stamp: int, now: int, epoch: int) -> bool:
        """Add a NavSatFix; False if it is not a valid fix."""
        tracks = self._tracks(epoch)
        tracks.newest = stamp
        fix = fix_of(content, stamp)
        if fix is not None:
            tracks.fixes.add(fix, now)
        return fix is not None

    def add_attitude(self, content: Any, stamp: int, now: int, epoch: int) -> bool:
        """Add an Imu message; False if it has no orientation."""
        tracks = self._tracks(epoch)
        tracks.newest = stamp
        attitude = attitude_of(content)
        if attitude is not None:
            tracks.attitudes.add(stamp, attitude, now)
        return attitude is not None

    def at(self, stamp: int, epoch: int) -> tuple[Position | None, Quaternion | None]:
        """Return position and orientation at a stamp in ns; None where unknown."""
        tracks = self._tracks(epoch)
        return tracks.fixes.position(stamp), tracks.attitudes.orientation(stamp)

    def motion(self, first: int, second: int, epoch: int) -> Floats | None:
        """Return (4, 4) from the vehicle at one stamp in ns to the vehicle at another; None where a pose is unknown."""
        poses = []
        for stamp in (first, second):
            position, turn = self.at(stamp, epoch)
            if position is None or turn is None:
                return None
            world = world_to_ecef(position.latitude, position.longitude, position.altitude or 0.0)
            poses.append(world @ pose(rotation(turn), np.zeros(3)))
        return inverse(poses[1]) @ poses[0]

    def horizon(self, stamp: int, epoch: int) -> int:
        """Return the latest stamp, ns, at which a further message could change the result of `at(stamp)`."""
        tracks = self._tracks(epoch)
        return max(tracks.fixes.horizon(stamp), tracks.attitudes.horizon(stamp), stamp)

    def forget(self, first: Mapping[int, int], lookahead: int, came_before: int) -> None:
        """Drop what came before `came_before` and no frame needs; `first`: {epoch: stamp of its first frame, ns}."""
        for epoch, tracks in self._epochs.items():
            # Where no frame waits the camera is silent, maybe for ever.
            before = first.get(epoch, tracks.newest - 2 * lookahead) - lookahead
            tracks.fixes.forget(before, came_before)
            tracks.attitudes.forget(before, came_before)

    def close(self) -> int:
        """Return the total number of fixes refused because of their neighbours; no more may be added."""
        for tracks in self._epochs.values():
            tracks.fixes.close()
        return sum(tracks.fixes.refused for tracks in self._epochs.values())

    def _tracks(self, epoch: int) -> _Tracks:
        if epoch not in self._epochs:
            self._epochs[epoch] = _Tracks(FixTrack(self._max_gap), AttitudeTrack(self._max_gap))
        return self._epochs[epoch]
