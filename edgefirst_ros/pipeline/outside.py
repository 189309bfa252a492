# SPDX-License-Identifier: Apache-2.0
"""Messages of companions that were nearest to a sample and still too far from it (dataset.md 10)."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.config import SECOND, Settings, nanoseconds
from edgefirst_ros.pipeline.frame import Frame

AGE = 120 * SECOND
"""ns behind the newest sample after which nothing can change any more what was nearest to one."""
HELD = 4096
"""Stamps of samples between two looks at what is settled."""
MOST = 1 << 20
"""Stamps of messages that are held where there is no sample at all."""


def _array() -> array[int]:
    return array("q")


@dataclass(slots=True)
class _Track:
    """Stamps, ns, of one sensor in one epoch; 8 bytes each."""

    offered: array[int] = field(default_factory=_array)
    used: array[int] = field(default_factory=_array)
    lacking: array[int] = field(default_factory=_array)
    far: set[int] = field(default_factory=set)
    """Messages that were nearest to a sample and too far, of which it is not settled whether another has them."""
    count: int = 0
    """Of those that are settled."""

    def settle(self, before: int, tolerance: int, lookahead: int) -> None:
        """Decide about the samples stamped before that, and forget what no later one can need."""
        lacking, offered = _sorted(self.lacking), _sorted(self.offered)
        found = lacking[lacking < before]
        if len(offered) and len(found):
            after = np.searchsorted(offered, found)
            left, right = offered[np.maximum(after - 1, 0)], offered[np.minimum(after, len(offered) - 1)]
            nearest = np.where(np.abs(found - left) <= np.abs(right - found), left, right)
            distance = np.abs(nearest - found)
            self.far |= set(nearest[(distance > tolerance) & (distance <= lookahead)].tolist())
        edge = before - lookahead
        settled = {stamp for stamp in self.far if stamp < edge}
        self.count += len(settled - set(self.used))
        self.far -= settled
        self.lacking = array("q", lacking[lacking >= before].tobytes())
        self.offered = array("q", offered[offered >= edge].tobytes())
        self.used = array("q", [stamp for stamp in self.used if stamp >= edge])


class OutsideTolerance:
    """Keeps the stamps by which it is known which messages were outside the tolerance, as long as they matter.

    Owns: `offer` belongs to the thread that pushes messages, `observe` to the one that chooses frames; both change the
    tracks under the lock. `count` comes once both are through.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lookahead = nanoseconds(settings.lookahead)
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, int], _Track] = {}

    def offer(self, sensor: str, stamp: int, epoch: int) -> None:
        """Take note of a message that was given to the alignment in time; `stamp` in ns with the sensor's offset."""
        with self._lock:
            offered = self._track(sensor, epoch).offered
            offered.append(stamp)
            if len(offered) > MOST:
                del offered[: MOST // 2]

    def observe(self, frame: Frame, sensors: Collection[str]) -> None:
        """Take note of what a sample has, and of what it lacks."""
        with self._lock:
            for sensor in sensors:
                track, near = self._track(sensor, frame.epoch), frame.companions.get(sensor)
                if near is None:
                    track.lacking.append(frame.stamp)
                elif not track.used or track.used[-1] != near[0]:
                    track.used.append(near[0])
                if max(len(track.lacking), len(track.used)) >= HELD:
                    self._settle(sensor, track, frame.stamp - AGE)

    def count(self, sensor: str) -> int:
        """Return how many messages were nearest to a sample, further off than the tolerance and not than the lookahead.

        Those that another sample has do not count.
        """
        mine = [track for (key, _), track in self._tracks.items() if key == sensor]
        for track in mine:
            self._settle(sensor, track, 1 << 62)
        return sum(track.count for track in mine)

    def _track(self, sensor: str, epoch: int) -> _Track:
        if (sensor, epoch) not in self._tracks:
            self._tracks[sensor, epoch] = _Track()
        return self._tracks[sensor, epoch]

    def _settle(self, sensor: str, track: _Track, before: int) -> None:
        track.settle(before, self._settings.stream(sensor)[0], self._lookahead)


def _sorted(stamps: array[int]) -> NDArray[np.int64]:
    """The different ones, in order."""
    return np.unique(np.frombuffer(stamps, np.int64)) if stamps else np.empty(0, np.int64)
