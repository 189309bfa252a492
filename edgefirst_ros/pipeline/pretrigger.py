# SPDX-License-Identifier: Apache-2.0
"""Ring of the last messages of a capture, still encoded: a dataset can begin with them, at a keyframe."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from edgefirst_ros.config import Settings, to_ns
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.pictures import Parsed, open_parser
from edgefirst_ros.sources.topics import Roles

LONGEST_WAIT = 10_000_000_000
"""ns an entry is held beyond the pre-trigger while no other comes: a stream without keyframes must not fill memory."""

UNKNOWN_SPREAD = 2_000_000_000
"""Assumed lateness of a topic against others with the same stamp, ns, until it is measured."""


@dataclass(slots=True)
class Arrival:
    """A message and its arrival time, ns of a monotonic clock.

    Owns: made by the thread that received it; afterwards only the capture's thread reads and changes it.
    """

    message: Message
    now: int
    lost: int = 0
    """Number of messages of its topic lost in transport before it."""
    guessed: int = 0
    """Number of further losses estimated by a gap of stamps."""
    parsed: Parsed | MessageError | None = None
    """The parsed message of the camera, or why it cannot be read."""
    entry: bool = False
    """True if decoding can start with it."""
    closed: bool = False
    """True if, also, no later picture refers to one before it (closed GOP)."""

    def as_first(self) -> Arrival:
        """Return the message with the parameter sets it does not have: a new decoder can start with it."""
        parsed = self.parsed
        return self if parsed is None or isinstance(parsed, MessageError) else replace(self, parsed=parsed.as_first())


class Recent:
    """Holds the messages with which a dataset would begin: of `pretrigger` ns, and companions of the first frames.

    Where that is more than `most` bytes it begins at a later keyframe. Video is parsed here, once for all datasets.

    Owns: only the capture's thread uses it.
    """

    def __init__(self, settings: Settings, roles: Roles, pretrigger: int, most: int) -> None:
        self._roles = roles
        self._pretrigger = pretrigger
        self._most = most
        self._bytes = 0
        self._lookback = to_ns(settings.lookahead) + find_max_skew(settings)
        self._nav_lookback = to_ns(settings.lookahead) + to_ns(settings.max_gap)
        self._arrivals: deque[Arrival] = deque()
        self._fixes: deque[Arrival] = deque()  # positions and attitudes: needed for longer, and small
        self._entries: deque[int] = deque()
        self._parse = open_parser(roles.schema) if roles.camera else None
        self._depends = roles.camera  # True if pictures may need the messages before them, as the newest one says
        self.hold: int | None = None
        """Arrival from which on messages stay at any age; ns."""
        self.spread = UNKNOWN_SPREAD
        """Lateness of messages against others with the same stamp, also `lookahead`; ns."""
        self.crowded = False
        """True if it was ever more than the memory that may be used."""

    def add(self, arrival: Arrival) -> bool:
        """Add the newest message, and mark it if it is an entry. Return True when memory first runs short."""
        crowded = self.crowded
        topic, kept = arrival.message.topic, self._arrivals
        if topic == self._roles.reference:
            self._mark(arrival)
            if arrival.entry:
                self._entries.append(arrival.now)
        elif topic in (self._roles.gps, self._roles.imu, self._roles.pose):
            kept = self._fixes
        kept.append(arrival)
        self._bytes += len(arrival.message.data)
        while self._entries and self._entries[0] < arrival.now - self._pretrigger - LONGEST_WAIT:
            self._entries.popleft()
        begin = self.begin(arrival.now)
        if self.hold is not None:
            begin = min(begin, self.hold)
        while len(self._entries) > 1 and self._entries[0] < begin:
            self._entries.popleft()
        self._forget(begin)
        while self._bytes > self._most and self._entries and self.hold is None:
            self.crowded = True
            self._entries.popleft()
            self._forget(self.begin(arrival.now))
        return self.crowded and not crowded

    def _forget(self, begin: int) -> None:
        """Drop messages that datasets from `begin` on do not need."""
        for arrivals, lookback in ((self._arrivals, self._lookback), (self._fixes, self._nav_lookback)):
            while arrivals and arrivals[0].now < begin - lookback - self.spread:
                self._bytes -= len(arrivals.popleft().message.data)

    def begin(self, now: int) -> int:
        """Return the arrival of the entry with which a dataset started at `now` begins; `now` without an entry."""
        begin = next(iter(self._entries), now)
        for entry in self._entries:
            if entry > now - self._pretrigger:
                break
            begin = entry
        return begin

    def since(self, begin: int) -> Iterator[Arrival]:
        """Yield the reference messages from `begin` on, and those of other topics that may belong to their frames."""
        first = True
        for arrival in heapq.merge(list(self._arrivals), list(self._fixes), key=attrgetter("now")):
            if arrival.message.topic != self._roles.reference:
                yield arrival
            elif arrival.now >= begin:
                yield arrival.as_first() if first else arrival
                first = False

    def _mark(self, arrival: Arrival) -> None:
        arrival.entry = arrival.closed = not self._depends
        if self._parse is None:
            return
        try:
            arrival.parsed = parsed = self._parse(arrival.message)
        except MessageError as error:
            arrival.parsed = error
        else:
            arrival.entry, arrival.closed, self._depends = parsed.entry, parsed.closed, parsed.depends


def find_max_skew(settings: Settings) -> int:
    """Return the largest possible skew of a companion, ns."""
    streams = [settings.stream(sensor.key) for sensor in settings.companions]
    return max((tolerance + abs(offset) for tolerance, offset, _ in streams), default=to_ns(settings.tolerance))
