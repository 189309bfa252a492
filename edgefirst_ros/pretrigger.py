# SPDX-License-Identifier: Apache-2.0
"""The last messages of a capture, still encoded: a dataset can begin with them, at a keyframe."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from edgefirst_ros.config import SENSORS, Settings, nanoseconds
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import VIDEO, Message, decode
from edgefirst_ros.sensors.bitstream import H264, H265, Tracker
from edgefirst_ros.sensors.camera import codec_of
from edgefirst_ros.topics import Roles

LONGEST_WAIT = 10_000_000_000
"""ns an entry is held beyond the pre-trigger while no other comes: such a stream must not fill the memory."""


@dataclass(slots=True)
class Arrival:
    """A message and when it came, in ns of a clock that only runs forward.

    `entry`: decoding can start with it; `closed`: and nothing behind it needs what came before.
    """

    message: Message
    now: int
    entry: bool = False
    closed: bool = False
    lost: int = 0
    """Messages of its topic lost on the way before it."""


class Recent:
    """Holds what a dataset that begins now must begin with: `pretrigger` ns, and what belongs to the first frames."""

    def __init__(self, settings: Settings, roles: Roles, pretrigger: int) -> None:
        self._roles = roles
        self._pretrigger = pretrigger
        self._lookback = nanoseconds(settings.lookahead) + reach(settings)
        self._nav_lookback = nanoseconds(settings.lookahead) + nanoseconds(settings.max_gap)
        self._navigation = {roles.gps, roles.imu} - {roles.reference}
        self._arrivals: deque[Arrival] = deque()
        self._fixes: deque[Arrival] = deque()  # positions and attitudes: needed for longer, and small
        self._entries: deque[int] = deque()
        self._tracker: Tracker | None = None
        self.hold: int | None = None
        """What came since then is kept, whatever its age."""

    def add(self, arrival: Arrival) -> None:
        """Take the newest message; marks it as an entry where it is one."""
        if arrival.message.topic == self._roles.reference:
            self._mark(arrival)
            if arrival.entry:
                self._entries.append(arrival.now)
        (self._fixes if arrival.message.topic in self._navigation else self._arrivals).append(arrival)
        while self._entries and self._entries[0] < arrival.now - self._pretrigger - LONGEST_WAIT:
            self._entries.popleft()
        begin = self.begin(arrival.now)
        while len(self._entries) > 1 and self._entries[0] < begin:
            self._entries.popleft()
        keep = begin if self.hold is None else min(begin, self.hold)
        _forget(self._arrivals, keep - self._lookback)
        _forget(self._fixes, keep - self._nav_lookback)

    def begin(self, now: int) -> int:
        """When the entry came at which a dataset started at `now` begins; `now` where there is none."""
        due = [entry for entry in self._entries if entry <= now - self._pretrigger]
        return due[-1] if due else next(iter(self._entries), now)

    def since(self, begin: int) -> Iterator[Arrival]:
        """The reference's messages from `begin` on, and those of other topics that may belong to its frames."""
        for arrival in heapq.merge(list(self._arrivals), list(self._fixes), key=_time):
            if arrival.message.topic != self._roles.reference or arrival.now >= begin:
                yield arrival

    def _mark(self, arrival: Arrival) -> None:
        message = arrival.message
        if message.schema != VIDEO:
            arrival.entry = arrival.closed = True
            return
        try:
            content = decode(message)
            if self._tracker is None:
                self._tracker = H264() if codec_of(content.format) == "h264" else H265()
            unit = self._tracker.unit(content.data.tobytes())
        except MessageError:
            return
        arrival.entry, arrival.closed = unit.entry, unit.entry and unit.closed


def reach(settings: Settings) -> int:
    """Furthest a companion's stamp may lie from that of its frame, ns."""
    streams = [settings.stream(sensor) for sensor in SENSORS]
    return max(tolerance + abs(offset) for tolerance, offset, _ in streams)


def _forget(arrivals: deque[Arrival], before: int) -> None:
    while arrivals and arrivals[0].now < before:
        arrivals.popleft()


def _time(arrival: Arrival) -> int:
    return arrival.now
