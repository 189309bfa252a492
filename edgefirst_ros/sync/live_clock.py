# SPDX-License-Identifier: Apache-2.0
"""The first second of a capture's messages, by which its clock is chosen."""

from __future__ import annotations

import contextlib
from array import array
from typing import Protocol

from edgefirst_ros.config import SECOND
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.sync.clock import TimeBase, TopicTimes, choose, fault_of

LISTEN = SECOND
"""ns of messages by which the clock is chosen, and a late topic's stamps are judged."""
MANY = 10_000
"""Most stamps of a topic kept for that."""


class Parts(Protocol):
    """Roles of topics that the clock needs; `aligned` may change."""

    reference: str

    @property
    def aligned(self) -> frozenset[str]:
        """Topics besides the reference that are aligned by time."""


class LiveClock:
    """Collects stamps until the clock is chosen, and then those of topics that come later.

    Owns: the capture's thread calls everything here; `base`, once chosen, may be read by any.
    """

    def __init__(self, roles: Parts) -> None:
        self._roles = roles
        self._times: dict[str, TopicTimes] = {}
        self._began: dict[str, int] = {}  # topics that came later, until they are judged
        self.heard: int | None = None
        """Arrival of the first reference message, ns."""
        self.base: TimeBase | None = None

    def take(self, message: Message, now: int) -> str | None:
        """Note a message that came at `now`; return what is wrong with its topic's clock, if that is new.

        `now` is in ns of a clock that only runs forward.
        """
        topic, reference = message.topic, self._roles.reference
        if topic != reference and topic not in self._roles.aligned:
            return None
        if self.base is None:
            if topic == reference and self.heard is None:
                self.heard = now
            self._add(message)
            if self.heard is None and len(self._times[topic].publish.distances) >= MANY:
                del self._times[topic]  # the camera is silent, maybe for ever
            return None
        if topic not in self._times:
            self._began[topic] = now
        if topic in self._began:
            self._add(message)
            if now - self._began[topic] >= LISTEN:
                return self._judge(topic, self.base)
        return None

    def _add(self, message: Message) -> None:
        topic = message.topic
        if topic not in self._times:
            log_times = array("q") if topic == self._roles.reference else None
            self._times[topic] = TopicTimes(topic, log_times=log_times)
        with contextlib.suppress(MessageError):
            decode(message)
            self._times[topic].add(message)

    def _judge(self, topic: str, base: TimeBase) -> str | None:
        del self._began[topic]
        times, self._times[topic] = self._times[topic], TopicTimes(topic)
        fault = fault_of(times, base, self._roles.reference)
        if fault is not None:
            base.replaced[topic] = fault
        return fault

    def due(self, now: int) -> bool:
        """True if the clock is to be chosen now."""
        return self.base is None and self.heard is not None and now - self.heard >= LISTEN

    def choose(self, choice: str) -> TimeBase:
        """Return the clock by the messages so far; raises UsageError if `choice` is impossible, and starts over."""
        reference = self._roles.reference
        times = self._times
        self._times, self.heard = {topic: TopicTimes(topic) for topic in times}, None
        try:
            self.base = choose(
                choice, times[reference], [t for topic, t in sorted(times.items()) if topic != reference]
            )
        except BaseException:
            self._times = {}
            raise
        return self.base
