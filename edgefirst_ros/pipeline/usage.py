# SPDX-License-Identifier: Apache-2.0
"""Outcome of messages that may serve several samples, or none: used, late, outside tolerance."""

from __future__ import annotations

from collections import Counter

from edgefirst_ros.counts import LATE, NO_SAMPLE, NOT_NEAREST, OUTSIDE, Counts
from edgefirst_ros.pipeline.frame import Frame, SensorMessage
from edgefirst_ros.pipeline.outside import OutsideTolerance
from edgefirst_ros.sources.topics import Roles


class Usage:
    """Follows the messages of companions and of the model until their outcome is known.

    Owns: `take` and `mark_late` belong to the thread that pushes messages, `use` to the one that chooses frames; each
    counter is changed by one of them. `settle` and `count_unused` come once both are through.
    """

    def __init__(self, counts: Counts, roles: Roles, outside: OutsideTolerance) -> None:
        self._counts = counts
        self._roles = roles
        self._outside = outside
        self._given: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._late_used: Counter[str] = Counter()

    def take(self, topic: str) -> None:
        """Note a message that was given to the alignment."""
        self._given[topic] += 1

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
        """Note a sample's companions, and those that it lacks."""
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
        """Count late messages that no sample uses, and model results whose frames are not samples."""
        self._late.subtract(self._late_used)
        for topic, number in self._late.items():
            self._counts.drop(topic, LATE, number)
        for sensor, topic in self._roles.companions.items():
            if topic != self._roles.reference:
                self._counts.drop(topic, OUTSIDE, self._outside.count(sensor))
        for result in (self._roles.model, self._roles.masks, self._roles.boxes3d):
            if result is not None and result != self._roles.reference:
                unused = self._given[result] - self._counts[result].written - self._late[result]
                self._counts.drop(result, NO_SAMPLE, max(0, unused))

    def count_unused(self) -> None:
        """Count companion messages that were nearest to no sample; called once all are seen."""
        for topic in set(self._roles.companions.values()) & set(self._counts.topics) - {self._roles.reference}:
            count = self._counts[topic]
            self._counts.drop(topic, NOT_NEAREST, count.seen - count.written - sum(count.dropped.values()))
