# SPDX-License-Identifier: Apache-2.0
"""Buffer of a Zenoh session's messages: a ring for each key, and a thread that delivers them."""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from edgefirst_ros.messages import Message, read_header_stamp
from edgefirst_ros.sources.live import Arrive, Passage, TopicState
from edgefirst_ros.sources.zenoh_keys import Attached, parse_encoding, read_attachment

STEP = 1.5
"""Times the usual interval from which on a gap between stamps is a loss."""
INTERVALS = 31
"""Newest intervals whose median is the usual one."""
FEWEST = 4
"""Fewest intervals that define the usual one."""
REORDERED = 16
"""Messages in whose order stamps are put, once they came out of order: as of pictures with B-frames."""
CLOCK = 5_000_000_000
"""ns; a longer gap of stamps in less than half of which it came is a clock that was set."""
MOST = 1 << 20
"""A larger gap of numbers is not a loss: the count began again."""
PUBLISHERS = 16
"""Publishers of a topic whose numbers stay."""


class Gaps:
    """Counts the messages missing before each one of a topic.

    Owns: the thread that hands messages on calls it.
    """

    def __init__(self, *, by_stamps: bool) -> None:
        """`by_stamps`: count losses by gaps of stamps; not for messages that are repeated now and then."""
        self._by_stamps = by_stamps
        self._numbers: dict[bytes, int] = {}
        self._intervals: deque[int] = deque(maxlen=INTERVALS)
        self._last: tuple[int, int] | None = None  # stamp and arrival of the message before the next gap
        self._waiting: list[tuple[int, int, int]] = []  # heap of later ones, and how many were dropped before each
        self._newest = self._depth = 0

    def count_missing(
        self, stamp: int | None, now: int, attached: Attached | None, dropped: int
    ) -> tuple[int, int, bool]:
        """Return how many are missing before a message, known and guessed, and whether another publisher sent it.

        `stamp`: its own, ns; `now`: when it came, ns of time.monotonic_ns(); `dropped`: how many were dropped here.
        """
        if attached is not None:
            last = self._numbers.pop(attached.gid, None)
            new = last is None and bool(self._numbers)
            self._numbers[attached.gid] = attached.sequence
            while len(self._numbers) > PUBLISHERS:
                del self._numbers[next(iter(self._numbers))]
            missing = attached.sequence - last - 1 if last is not None else 0
            if missing > MOST:
                new, missing = True, 0
            return max(missing, dropped), 0, new
        return dropped, max(0, self._missing_by_stamp(stamp, now, dropped)), False

    def _missing_by_stamp(self, stamp: int | None, now: int, dropped: int) -> int:
        if stamp is None or not self._by_stamps:
            return 0
        if stamp < self._newest - CLOCK:
            self._last, self._waiting, self._newest = None, [], stamp
        elif stamp < self._newest:
            self._depth = REORDERED
        self._newest = max(self._newest, stamp)
        heapq.heappush(self._waiting, (stamp, now, dropped))
        if len(self._waiting) <= self._depth:
            return 0
        stamp, now, dropped = heapq.heappop(self._waiting)
        before, came = self._last or (stamp, now)
        self._last = max(stamp, before), now
        gap = stamp - before
        if gap <= 0 or (gap > CLOCK and now - came < gap // 2):
            return 0
        usual = median_low(self._intervals) if len(self._intervals) >= FEWEST else 0
        self._intervals.append(gap)
        if not usual or gap <= STEP * usual:
            return 0
        return round(gap / usual) - 1 - dropped


LOOKBACK = 3_000_000_000
"""ns of messages that stay before the first of a camera: more than its first frames may need."""
UNDECIDED = 15_000_000_000
"""ns of messages that stay of a topic that came late, until it has a part."""
MOST_KEYS = 256
"""Most keys whose messages stay."""
MOST_ENCODINGS, LONGEST_ENCODING, OTHERS = 8, 100, "other encodings"
"""Foreign encodings of a key that are counted apart, most characters of one, and the name of all others."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as it came."""

    data: bytes
    encoding: str
    attachment: bytes | None
    now: int
    """Arrival, ns of time.monotonic_ns()."""
    received: int
    """Arrival, ns since the epoch."""


@dataclass(slots=True)
class Lane:
    """Messages of one key.

    Owns: the intake, under its lock; who listens is set once.
    """

    key: str
    name: str
    """Its plain name, such as camera/h264."""
    encoding: str
    """Of its first message, empty before that; those of another one are not kept."""
    waiting: deque[Sent] = field(default_factory=deque)
    room: int = 0
    """Most messages that may wait, once it has a listener."""
    dropped: int = 0
    """Messages dropped since the last delivery."""
    foreign: Counter[str] = field(default_factory=Counter)
    """{other encoding: number of messages}."""
    state: TopicState | None = None
    arrive: Arrive | None = None
    gaps: Gaps | None = None
    doubles: dict[int, int] | None = None
    """While two subscriptions bring the same messages: hashes of those that one of them brought, and which."""

    def fits(self, encoding: str) -> bool:
        """True if a message of an encoding is one of the topic; the first determines the encoding of the others."""
        if not self.encoding:  # it is listened to because of a token
            if self.state is not None and parse_encoding(encoding) not in (None, self.state.schema):
                return False
            self.encoding = encoding
        return encoding == self.encoding

    @property
    def schema(self) -> str | None:
        """The type in the encoding of its messages, None without one."""
        return parse_encoding(self.encoding)


class Intake:
    """Takes messages from the threads of Zenoh and hands them on in a thread of its own, in the order they came.

    Until `release` everything stays, from the first message of an anchor (a topic that may be the camera) on, at most
    `most` bytes: the oldest are dropped first, and count as lost. Then at most `depth` messages of a topic wait.
    Owns: everything under its lock; `put` is called by any thread, what listeners do happens in its own.
    """

    def __init__(self, depth: int, most: int) -> None:
        self._depth = depth
        self._most = most
        self._changed = threading.Condition()
        self._lanes: dict[str, Lane] = {}
        self._bytes = 0
        self._anchored = self._released = self._closed = False
        self._last = 0
        self.ignored = 0
        """Messages of keys beyond those that stay."""
        self._thread = threading.Thread(target=self._run, name="zenoh intake", daemon=True)
        self._thread.start()

    # ---- from the threads of Zenoh -------------------------------------------------------
    def put(self, key: str, name: str, sent: Sent, source: int, *, anchor: bool, kept: bool = True) -> None:
        """Take a message of a key; `source` shows which subscription brought it. `kept`: False to note the key only."""
        with self._changed:
            lane = self._lanes.get(key)
            if lane is None:
                if len(self._lanes) >= MOST_KEYS:
                    self.ignored += 1
                    return
                lane = self._lanes[key] = Lane(key, name, sent.encoding)
            if lane.doubles is not None:
                print_of = hash((sent.data, sent.attachment))
                if lane.doubles.setdefault(print_of, source) != source:
                    del lane.doubles[print_of]
                    return
            if not lane.fits(sent.encoding):
                other = sent.encoding[:LONGEST_ENCODING]
                lane.foreign[other if other in lane.foreign or len(lane.foreign) < MOST_ENCODINGS else OTHERS] += 1
                return
            if not kept:
                return
            self._anchored = self._anchored or anchor
            lane.waiting.append(sent)
            self._bytes += len(sent.data)
            self._trim(lane, sent.now)
            self._changed.notify()

    def _trim(self, lane: Lane, now: int) -> None:
        """Drop messages that are too old or too many."""
        if self._released and lane.arrive is not None:
            while len(lane.waiting) > lane.room:
                self._drop(lane)
            return
        age = UNDECIDED if self._released else now if self._anchored else LOOKBACK
        for other in (lane,) if self._anchored else self._lanes.values():
            while other.waiting and other.waiting[0].now < now - age:
                self._bytes -= len(other.waiting.popleft().data)
        while self._bytes > self._most:
            self._drop(min((o for o in self._lanes.values() if o.waiting), key=lambda o: o.waiting[0].now))

    def _drop(self, lane: Lane) -> None:
        self._bytes -= len(lane.waiting.popleft().data)
        lane.dropped += 1

    # ---- from the thread that looks for topics -------------------------------------------
    def lanes(self) -> list[Lane]:
        """Return the lanes, one for each key."""
        with self._changed:
            return list(self._lanes.values())

    def listen(self, key: str, name: str, state: TopicState, arrive: Arrive, gaps: Gaps) -> Lane:
        """Hand on all messages of a key, past and future, to a listener; another subscription now brings them."""
        with self._changed:
            lane = self._lanes.setdefault(key, Lane(key, name, ""))
            lane.state, lane.arrive, lane.gaps = state, arrive, gaps
            lane.room, lane.doubles = self._depth + len(lane.waiting), {}
            self._changed.notify()
            return lane

    def single(self, lane: Lane) -> None:
        """Only one subscription brings the messages of a key again."""
        with self._changed:
            lane.doubles = None

    def forget(self, keys: set[str], known: Collection[str] = ()) -> None:
        """Drop the messages of keys without a listener, and the keys whose plain name is not in `known`."""
        with self._changed:
            for key in keys & self._lanes.keys():
                lane = self._lanes[key]
                if lane.arrive is None:
                    self._bytes -= sum(len(sent.data) for sent in lane.waiting)
                    lane.waiting.clear()
                    if lane.name not in known:
                        del self._lanes[key]

    def release(self) -> None:
        """Begin to hand on: listeners know all topics so far."""
        with self._changed:
            if self._released:
                return
            self._released = True
            for lane in self._lanes.values():
                lane.room = self._depth + len(lane.waiting)
            self._changed.notify()

    def close(self) -> None:
        """Hand on what waits, and end."""
        self.release()
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # ---- in its own thread ---------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._changed:
                while (lane := self._next()) is None:
                    if self._closed:
                        return
                    self._changed.wait()
                sent = lane.waiting.popleft()
                self._bytes -= len(sent.data)
                lane.room = max(self._depth, lane.room - 1)
                dropped, lane.dropped = lane.dropped, 0
            self._hand_on(lane, sent, dropped)

    def _next(self) -> Lane | None:
        """Return the lane whose first message came first of all that are listened to."""
        if not self._released:
            return None
        ready = (lane for lane in self._lanes.values() if lane.waiting and lane.arrive is not None)
        return min(ready, key=lambda lane: lane.waiting[0].now, default=None)

    def _hand_on(self, lane: Lane, sent: Sent, dropped: int) -> None:
        state, arrive, gaps = lane.state, lane.arrive, lane.gaps
        if state is None or arrive is None or gaps is None:
            return
        attached = None if sent.attachment is None else read_attachment(sent.attachment)
        stamp = read_header_stamp(Message(lane.key, state.schema, sent.received, sent.received, 0, sent.data))
        lost, guessed, renewed = gaps.count_missing(stamp, sent.now, attached, dropped)
        if renewed:
            state.set_publishers(0)  # its numbers begin again: the frames it refers to may not have come
            state.set_publishers(1)
        self._last = max(self._last, sent.now)  # a topic that got its part late has older ones
        arrive(sent.data, None, Passage(self._last, sent.received, lost, guessed))


def read_sample(sample: Any) -> Sent | None:
    """Return the content of a sample of Zenoh, None where it deletes."""
    if str(sample.kind).rpartition(".")[2] == "DELETE":
        return None
    attached = None if sample.attachment is None else sample.attachment.to_bytes()
    return Sent(sample.payload.to_bytes(), str(sample.encoding), attached, time.monotonic_ns(), time.time_ns())
