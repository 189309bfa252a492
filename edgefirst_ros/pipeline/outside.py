# SPDX-License-Identifier: Apache-2.0
"""Messages of companions that were nearest to a sample and still too far from it (dataset.md 10)."""

from __future__ import annotations

from array import array
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.config import Settings, nanoseconds
from edgefirst_ros.pipeline.frame import Frame

Stamps = defaultdict[tuple[str, int], "array[int]"]
"""By sensor and epoch, ns; 8 bytes each."""


class OutsideTolerance:
    """Keeps the stamps by which it is known, at the end, which messages were outside the tolerance.

    Owns: `offer` belongs to the thread that pushes messages, `observe` to the one that chooses frames; `count` comes
    once both are through.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offered: Stamps = defaultdict(lambda: array("q"))
        self._used: Stamps = defaultdict(lambda: array("q"))
        self._lacking: Stamps = defaultdict(lambda: array("q"))

    def offer(self, sensor: str, stamp: int, epoch: int) -> None:
        """Take note of a message that was given to the alignment in time; `stamp` in ns with the sensor's offset."""
        self._offered[sensor, epoch].append(stamp)

    def observe(self, frame: Frame, sensors: dict[str, str]) -> None:
        """Take note of what a sample has, and of what it lacks."""
        for sensor in sensors:
            near = frame.companions.get(sensor)
            if near is not None:
                self._used[sensor, frame.epoch].append(near[0])
            else:
                self._lacking[sensor, frame.epoch].append(frame.stamp)

    def count(self, sensor: str) -> int:
        """Return how many messages were nearest to a sample, further off than the tolerance and not than the lookahead.

        Those that another sample has do not count.
        """
        tolerance, lookahead = self._settings.stream(sensor)[0], nanoseconds(self._settings.lookahead)
        total = 0
        for key, lacking in self._lacking.items():
            if key[0] == sensor and self._offered[key]:
                stamps, found = _sorted(self._offered[key]), _sorted(lacking)
                after = np.searchsorted(stamps, found)
                before, behind = stamps[np.maximum(after - 1, 0)], stamps[np.minimum(after, len(stamps) - 1)]
                nearest = np.where(np.abs(found - before) <= np.abs(behind - found), before, behind)
                distance = np.abs(nearest - found)
                far = np.unique(nearest[(distance > tolerance) & (distance <= lookahead)])
                total += len(np.setdiff1d(far, _sorted(self._used[key]), assume_unique=True))
        return total


def _sorted(stamps: array[int]) -> NDArray[np.int64]:
    """The different ones, in order."""
    return np.unique(np.frombuffer(stamps, np.int64)) if stamps else np.empty(0, np.int64)
