# SPDX-License-Identifier: Apache-2.0
"""Outcome of messages that may serve several samples, or no sample: used, late, outside tolerance."""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.config import SECOND, Settings, nanoseconds
from edgefirst_ros.counts import LATE, NO_SAMPLE, NOT_NEAREST, OUTSIDE, PART_REASONS, Counts
from edgefirst_ros.pipeline.frame import Frame, SensorMessage
from edgefirst_ros.sources.topics import Roles

AGE = 120 * SECOND
"""ns before the newest sample up to which the nearest messages are final."""
HELD = 4096
"""Stamps of samples between two calls of `settle`."""
MOST = 1 << 20
"""Most stamps of messages that are held without a sample."""


def _array() -> array[int]:
    return array("q")


@dataclass(slots=True)
class _Track:
    """Stamps, ns, of one sensor in one epoch; 8 bytes each."""

    offered: array[int] = field(default_factory=_array)
    used: array[int] = field(default_factory=_array)
    lacking: array[int] = field(default_factory=_array)
    far: set[int] = field(default_factory=set)
    """Messages nearest to a sample and too far, which another sample may still use."""
    count: int = 0
    """Number of settled messages outside the tolerance."""

    def settle(self, before: int, tolerance: int, lookahead: int) -> None:
        """Decide about the samples stamped before `before`, ns, and drop messages that no later sample can need."""
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
    """Keeps stamps of messages and samples for as long as they matter to find messages outside the tolerance.

    Owns: `offer` belongs to the thread that pushes messages, `observe` to the one that chooses frames; both change the
    tracks under the lock. `count` comes once both are through.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lookahead = nanoseconds(settings.lookahead)
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, int], _Track] = {}

    def offer(self, sensor: str, stamp: int, epoch: int) -> None:
        """Note a message that reached the alignment in time; `stamp` in ns with the sensor's offset."""
        with self._lock:
            offered = self._track(sensor, epoch).offered
            offered.append(stamp)
            if len(offered) > MOST:
                del offered[: MOST // 2]

    def observe(self, frame: Frame, sensors: Collection[str]) -> None:
        """Note the companions that a sample has, and those that it does not have."""
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
    """Return the stamps sorted, without duplicates; np.unique would load numpy.ma, as `all_different` says."""
    return np.array(sorted(set(stamps)), np.int64)


class Usage:
    """Follows the messages of companions and of the model until their outcome is known.

    Owns: `mark_late` belongs to the thread that pushes messages, `use` to the one that chooses frames; each counter is
    changed by one of them. `settle` and `count_unused` come once both are through.
    """

    def __init__(self, counts: Counts, roles: Roles, outside: OutsideTolerance) -> None:
        self._counts = counts
        self._roles = roles
        self._outside = outside
        self._late: Counter[str] = Counter()
        self._late_used: Counter[str] = Counter()

    def mark_late(self, topic: str) -> None:
        """Note a message that came after the frames it belongs to were handed on."""
        self._late[topic] += 1

    def offer(self, sensor: str, message: SensorMessage, epoch: int) -> None:
        """Note a companion's message that was given to the alignment."""
        if message.late:
            self.mark_late(message.topic)
        else:
            self._outside.offer(sensor, message.stamp, epoch)

    def observe(self, frame: Frame) -> None:
        """Note a sample's companions, and those that it does not have."""
        self._outside.observe(frame, self._roles.companions)
        for _, message in frame.companions.values():
            self.use(message)
        for message in frame.results:
            self.use(message)

    def use(self, message: SensorMessage) -> None:
        """Count a message that a sample uses, once; those of the reference are counted as samples."""
        if not message.used and message.topic != self._roles.reference:
            self._counts.write(message.topic)
            self._late_used[message.topic] += message.late
        message.used = True

    def settle(self) -> None:
        """Count late messages that no sample uses, and those of companions outside the tolerance."""
        self._late.subtract(self._late_used)
        for topic, number in self._late.items():
            self._counts.drop(topic, LATE, number)
        for sensor, topic in self._roles.companions.items():
            if topic != self._roles.reference:
                self._counts.drop(topic, OUTSIDE, self._outside.count(sensor))

    def count_unused(self) -> None:
        """Count the other messages of companions and of the model, which no sample has; called once all are seen."""
        for topic in set(self._roles.companions.values()) & set(self._counts.topics) - {self._roles.reference}:
            count = self._counts[topic]
            self._counts.drop(topic, NOT_NEAREST, count.seen - count.written - sum(count.dropped.values()))
        for result in (self._roles.model, self._roles.masks, self._roles.boxes3d):
            if result is not None and result != self._roles.reference:
                count = self._counts[result]
                dropped = sum(number for reason, number in count.dropped.items() if reason not in PART_REASONS)
                self._counts.drop(result, NO_SAMPLE, max(0, count.seen - count.written - dropped))
