# SPDX-License-Identifier: Apache-2.0
"""Alignment: each message of the reference topic gets the nearest message of each companion.

Incremental and bounded: it holds only the messages within the look-ahead. The result depends on only the stamps as long
as no message comes later than that after another one with its stamp.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from typing_extensions import NamedTuple

from edgefirst_ros.sync.clock import JUMP_BACK

F = TypeVar("F")
C = TypeVar("C")
MOST_ALTERNATIVES = 8


class Stream(NamedTuple):
    """Alignment settings of one companion; times in ns."""

    tolerance: int
    offset: int = 0
    reuse: bool = True
    alternatives: bool = False
    """True if the nearest message may prove useless, so that others within the tolerance are needed too."""
    in_time: bool = False
    """True if the look-ahead holds for stamps with the offset, so that it need not be longer by the offset."""


class Companion(NamedTuple, Generic[C]):
    """A companion message: stamp with offset in ns, arrival order, payload."""

    stamp: int
    order: int
    item: C


@dataclass(slots=True)
class Aligned(Generic[F, C]):
    """A frame with its companions: by stream, the nearest message within the tolerance, or None."""

    stamp: int
    number: int
    epoch: int
    arrived: int
    item: F
    nearest: dict[str, Companion[C] | None] = field(default_factory=dict)
    others: dict[str, list[Companion[C]]] = field(default_factory=dict)
    """By stream with alternatives, the messages after the nearest one, the nearest first."""
    outside: dict[str, Companion[C]] = field(default_factory=dict)
    """By stream, the nearest message where that is further than the tolerance."""


class _Buffer(Generic[C]):
    """Messages of one companion and epoch, sorted by stamp; equal stamps in order of arrival."""

    def __init__(self) -> None:
        self.items: list[Companion[C]] = []
        self.arrivals: deque[tuple[int, Companion[C]]] = deque()

    def add(self, companion: Companion[C], arrived: int) -> None:
        bisect.insort(self.items, companion)  # their orders differ, so that payloads are not compared
        self.arrivals.append((arrived, companion))

    def forget(self, before: int) -> None:
        while self.arrivals and self.arrivals[0][0] < before:
            del self.items[bisect.bisect_left(self.items, self.arrivals.popleft()[1])]

    def nearest(self, stamp: int) -> Companion[C] | None:
        """Return the message nearest to a stamp, of equally near ones the earlier; None without any."""
        above = self._first(stamp)
        later = self.items[above] if above < len(self.items) else None
        if not above or (later is not None and later.stamp == stamp):
            return later
        earlier = self.items[self._first(self.items[above - 1].stamp)]  # of equal stamps the first that came
        return earlier if later is None or stamp - earlier.stamp <= later.stamp - stamp else later

    def outward(self, stamp: int, tolerance: int) -> Iterator[Companion[C]]:
        """Yield the messages within the tolerance, nearest first, of equally near ones the earlier."""
        above = self._first(stamp)
        later = (self.items[n] for n in range(above, len(self.items)))
        return heapq.merge(
            self._before(above, stamp - tolerance),
            itertools.takewhile(lambda companion: companion.stamp <= stamp + tolerance, later),
            key=lambda companion: (abs(companion.stamp - stamp), companion.stamp),
        )

    def _before(self, end: int, least: int) -> Iterator[Companion[C]]:
        while end and self.items[end - 1].stamp >= least:
            begin = self._first(self.items[end - 1].stamp)
            yield from self.items[begin:end]  # of equal stamps the first that came
            end = begin

    def _first(self, stamp: int) -> int:
        """Return the place of the first message at a stamp or later."""
        return bisect.bisect_left(self.items, (stamp,))


class Aligner(Generic[F, C]):
    """Aligns frames and companions by stamp.

    `arrived` and `now` are times of a clock that only runs forward (`RunningClock`, live: a monotonic one). Messages
    of different `epoch`s do not meet: a clock set back makes a new one. Frames leave in the order of
    (segment, stamp, number), each once everything near it must have come.
    """

    def __init__(self, streams: Mapping[str, Stream], lookahead: int) -> None:
        self.streams = streams
        self.lookahead = lookahead
        # Without reuse another frame may be nearer to a message.
        shifts = ((s, 0 if s.in_time else abs(s.offset)) for s in streams.values())
        farthest = (max(s.tolerance + shift, 0 if s.reuse else 2 * s.tolerance) for s, shift in shifts)
        self.max_skew = max(farthest, default=0)
        """Largest distance of a companion from the frames that it decides about, ns."""
        self.closest: dict[str, int] = {}
        """{stream: least distance beyond the tolerance of a message from a frame without one, ns}."""
        self._swept = 0
        self._left: dict[int, tuple[int, int, int]] = {}  # of each epoch: segment, first and last stamp that left
        self._waiting: list[tuple[int, int, int, Aligned[F, C]]] = []
        self._buffers: defaultdict[tuple[str, int], _Buffer[C]] = defaultdict(_Buffer)
        self._order = 0
        # Of each epoch; kept only for streams without reuse.
        self._frames: defaultdict[int, _Buffer[None]] = defaultdict(_Buffer)
        self._exclusive = any(not s.reuse for s in streams.values())

    def add_frame(self, stamp: int, number: int, arrived: int, item: F, segment: int = 0, epoch: int = 0) -> None:
        frame: Aligned[F, C] = Aligned(stamp, number, epoch, arrived, item)
        heapq.heappush(self._waiting, (segment, stamp, number, frame))
        if self._exclusive:
            self._frames[epoch].add(Companion(stamp, number, None), arrived)

    def late(self, name: str, stamp: int, epoch: int = 0) -> bool:
        """True if the frames around this message have left already; `stamp` without the stream's offset.

        Where only a stream's stamps fall back its clock was set, before the frames show it.
        """
        _, first, last = self._left.get(epoch, (0, 0, 0))
        stamp += self.streams[name].offset
        buffer = self._buffers.get((name, epoch))
        newest = buffer.items[-1].stamp if buffer and buffer.items else stamp
        return first <= stamp < last and stamp >= newest - JUMP_BACK

    def add(self, name: str, stamp: int, arrived: int, item: C, epoch: int = 0) -> None:
        """Add a message of a companion; `stamp` in ns without the companion's offset."""
        self._order += 1
        companion = Companion(stamp + self.streams[name].offset, self._order, item)
        self._buffers[name, epoch].add(companion, arrived)

    def release(self, now: int | None) -> list[Aligned[F, C]]:
        """Return the frames whose companions must have come by `now`, ns; None: all that remain."""
        found: list[Aligned[F, C]] = []
        while self._waiting and (now is None or self._waiting[0][3].arrived + self.max_skew + self.lookahead < now):
            segment, _, _, frame = heapq.heappop(self._waiting)
            since, first, _ = self._left.get(frame.epoch, (segment, frame.stamp, 0))
            self._left[frame.epoch] = segment, first if segment == since else frame.stamp, frame.stamp
            for name, stream in self.streams.items():
                buffer = self._buffers.get((name, frame.epoch))
                if buffer is None:
                    frame.nearest[name] = None
                    continue
                near = buffer.nearest(frame.stamp)
                away = abs(near.stamp - frame.stamp) if near is not None else 0
                if away > stream.tolerance and near is not None:
                    frame.outside[name] = near
                    self.closest[name] = min(away, self.closest.get(name, away))
                    near = None
                if stream.reuse and not stream.alternatives:
                    frame.nearest[name] = near
                    continue
                outward = buffer.outward(frame.stamp, stream.tolerance)
                own = (c for c in outward if stream.reuse or self._belongs(c, frame))
                frame.nearest[name] = next(own, None)
                if stream.alternatives:
                    frame.others[name] = list(itertools.islice(own, MOST_ALTERNATIVES))
            found.append(frame)
        if now is not None and now - self._swept > self.lookahead // 4:
            self._swept = now
            self._forget(now)
        return found

    def waiting(self) -> list[Aligned[F, C]]:
        """Frames that are not released yet."""
        return [entry[3] for entry in self._waiting]

    def _belongs(self, companion: Companion[C], frame: Aligned[F, C]) -> bool:
        """True if no other frame is nearer to the message; of two equally near ones the earlier gets it."""
        nearest = self._frames[frame.epoch].nearest(companion.stamp)
        return nearest is not None and nearest.order == frame.number

    def _forget(self, now: int) -> None:
        oldest = min((entry[3].arrived for entry in self._waiting), default=now)
        for key, buffer in list(self._buffers.items()):
            buffer.forget(oldest - self.max_skew - self.lookahead)
            if not buffer.items:
                del self._buffers[key]
        for frames in self._frames.values():
            frames.forget(oldest - 2 * (self.max_skew + self.lookahead))


BIN = 100_000
"""Bin width in ns: resolution of percentiles; the maximum is exact."""


class Skews:
    """Counts |skew| in bins, so that memory depends on the tolerance and not on the number of samples."""

    def __init__(self) -> None:
        self.largest = 0
        """ns."""
        self._bins: Counter[int] = Counter()

    @property
    def samples(self) -> int:
        return self._bins.total()

    def add(self, skew: int) -> None:
        """Add the skew of a sample, ns."""
        self._bins[abs(skew) // BIN] += 1
        self.largest = max(self.largest, abs(skew))

    def merge(self, other: Skews) -> None:
        self._bins.update(other._bins)
        self.largest = max(self.largest, other.largest)

    def percentile(self, percent: int) -> int:
        """Return a percentile of |skew|, ns, rounded down to BIN; 0 without samples."""
        rank, passed = (self._bins.total() - 1) * percent // 100, 0
        for place, number in sorted(self._bins.items()):
            passed += number
            if passed > rank:
                return place * BIN
        return 0
