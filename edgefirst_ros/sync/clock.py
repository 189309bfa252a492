# SPDX-License-Identifier: Apache-2.0
"""Time base: which stamps are used, which topics have another clock, where a clock was stepped."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import NamedTuple, Protocol

from edgefirst_ros.errors import MessageError, UsageError
from edgefirst_ros.messages import Message, decode, read_first_stamp
from edgefirst_ros.sensors.calibration import format_utc

SECOND = 1_000_000_000
YEAR_2000 = 946_684_800 * SECOND
SAME_DOMAIN = 5 * SECOND
"""ns; a topic whose median is further from the reference topic's has another clock."""
JUMP_FORWARD = 5 * SECOND
JUMP_BACK = SECOND
"""ns; a larger step back of the reference stamps begins a new segment."""
LONGEST_STEP = SECOND // 10
"""ns that a step of `log_time` counts at most."""


@dataclass(slots=True)
class Stamps:
    """One kind of stamps of a topic, as far as the choice of a clock needs them; 8 bytes a message."""

    distances: array[int] = field(default_factory=lambda: array("q"))  # stamp - log_time, ns
    first: int | None = None
    differ: bool = False
    nonzero: bool = False
    recent: int = 0  # how many are after the year 2000

    def add(self, stamp: int, log_time: int) -> None:
        self.distances.append(stamp - log_time)
        if self.first is None:
            self.first = stamp
        self.differ = self.differ or stamp != self.first
        self.nonzero = self.nonzero or stamp != 0
        self.recent += stamp > YEAR_2000

    @property
    def tell_time(self) -> bool:
        """True if the stamps are usable: not zero, and not all equal (of more than one)."""
        return self.nonzero and (self.differ or len(self.distances) == 1)

    def median(self) -> int:
        """Lower median of stamp - log_time in ns."""
        return median_low(self.distances)


@dataclass(slots=True)
class TopicTimes:
    """The stamps of one topic's decodable messages."""

    topic: str
    header: Stamps = field(default_factory=Stamps)
    publish: Stamps = field(default_factory=Stamps)

    def add(self, message: Message) -> None:
        stamp = read_first_stamp(message)
        if stamp is not None:
            self.header.add(stamp, message.log_time)
        self.publish.add(message.publish_time, message.log_time)

    def wall_clock(self, kind: str) -> bool:
        """True if stamps of a kind are wall-clock time: median after the year 2000, not all equal."""
        stamps: Stamps = getattr(self, kind)
        every = len(stamps.distances) == len(self.publish.distances)
        return stamps.tell_time and every and stamps.recent > len(stamps.distances) // 2


@dataclass(frozen=True, slots=True)
class TimeBase:
    """Time of messages: `base` stamps, but log_time + `offset` for the topics in `replaced`."""

    base: str
    offset: int = 0
    replaced: dict[str, str] = field(default_factory=dict)
    """{topic: the fault of its stamps, and the time used instead}."""
    spread: int = 0
    """Usual lateness of a topic's messages against those of other topics with the same stamp, ns."""
    notes: tuple[str, ...] = ()
    """What to say of the choice."""
    by_header: bool = True
    """Header stamps of the reference topic are usable: model results are joined by them, else by the time base's."""
    judged: frozenset[str] = frozenset()
    """Topics whose stamps, with their offsets, `spread` holds for."""

    def stamp(self, message: Message) -> int:
        """Time of a message in ns."""
        if message.topic not in self.replaced:
            if self.base == "header":
                stamp = read_first_stamp(message)
                if stamp is not None:
                    return stamp
            elif self.base == "publish":
                return message.publish_time
        return message.log_time + self.offset


def choose(
    choice: str, reference: TopicTimes, used: Iterable[TopicTimes], offset_of: Callable[[str], int] = lambda _: 0
) -> TimeBase:
    """Choose the time base of a recording.

    `choice` is auto, header, publish or log; `used` are the other topics that are aligned; `offset_of` returns the
    offset of a topic, ns, which is added to its stamps. The caller warns about the topics in `replaced`.
    """
    base = choice
    notes: tuple[str, ...] = ()
    if choice == "auto":
        base = next((kind for kind in ("header", "publish") if reference.wall_clock(kind)), "log")
        if reference.header.tell_time and not reference.header.recent:
            what = "its header stamps are before the year 2000, as in a simulation"
            notes = (f"{reference.topic}: {what}; to use them, set time_base to header (--time-base header)",)
    own: Stamps = reference.header if base == "header" else reference.publish
    by_header = reference.header.tell_time
    if base == "log" or not own.distances:
        return TimeBase(base, notes=notes, by_header=by_header)
    if not own.tell_time:
        raise UsageError(
            f"{reference.topic}: its {base} stamps are missing, zero or all equal, so they cannot be the time base; "
            "set time_base to another one (auto finds it)"
        )
    offset = own.median() + offset_of(reference.topic)
    replaced, medians = {}, {reference.topic: offset}
    for times in used:
        fault = find_fault(times, TimeBase(base, offset), reference.topic, offset_of(times.topic))
        if fault is not None:
            replaced[times.topic] = fault
        elif times.publish.distances:
            medians[times.topic] = getattr(times, base).median() + offset_of(times.topic)
    spread = max(medians.values()) - min(medians.values())
    return TimeBase(base, offset, replaced, spread, notes, by_header, frozenset(medians))


def find_fault(times: TopicTimes, base: TimeBase, reference: str, offset: int = 0) -> str | None:
    """Return the fault with a topic's stamps, and their replacement; None if they fit the time base.

    `offset` is added to them, ns.
    """
    if base.base == "log" or not times.publish.distances:
        return None
    stamps: Stamps = getattr(times, base.base)
    if not stamps.tell_time:
        fault = f"its {base.base} stamps are missing, zero or all equal"
    elif abs(away := stamps.median() + offset - base.offset) > SAME_DOMAIN:
        fault = f"its {base.base} stamps lie {away / SECOND:+.3f} s from those of {reference}"
    else:
        return None
    return f"log_time {base.offset / SECOND:+.6f} s is used, {fault}"


class Segments:
    """Numbers the segments between steps of the reference clock, from 0."""

    def __init__(self) -> None:
        self.spans: list[tuple[int, int]] = []
        """(earliest, latest) stamp of each segment so far, ns."""
        self.current = 0
        self.set_back = 0
        """Number of times the clock was set back so far."""

    def add(self, stamp: int) -> int:
        """Return the segment of the next reference message; `stamp` in ns."""
        if not self.spans or not self.spans[-1][1] - JUMP_BACK <= stamp <= self.spans[-1][1] + JUMP_FORWARD:
            self.set_back += bool(self.spans) and stamp < self.spans[-1][1]
            self.spans.append((stamp, stamp))
        first, last = self.spans[-1]
        self.spans[-1] = (min(first, stamp), max(last, stamp))
        self.current = len(self.spans) - 1
        return self.current

    def epoch(self, overlapping: Collection[int] | None) -> int:
        """Return the alignment epoch: messages join only frames of the same one.

        Args:
            overlapping: the segments that share a time with another or come near it, as a clock set back makes them;
                each is an epoch. None where that is not known beforehand (live): every clock set back begins one.
        """
        if overlapping is None:
            return self.set_back
        return self.current if self.current in overlapping else -1

    def of(self, stamp: int, back: int) -> int:
        """Return the segment of a message of another topic: the newest one whose end it is near, else the next one.

        Args:
            stamp: ns.
            back: how far before the end, ns.
        """
        newest = range(len(self.spans) - 1, max(-1, len(self.spans) - 3), -1)
        near = (n for n in newest if self.spans[n][1] - back <= stamp <= self.spans[n][1] + JUMP_FORWARD)
        return next(near, len(self.spans))

    def overlapping(self, margin: int) -> set[int]:
        """Return the segments that overlap another one in time, or come within `margin` ns of it.

        A clock set back makes them: messages recorded during one may be within the other by their stamps.
        """
        found: set[int] = set()
        ordered = sorted(range(len(self.spans)), key=lambda n: self.spans[n])
        holder = ordered[0] if ordered else 0
        for n in ordered[1:]:
            if self.spans[n][0] - margin <= self.spans[holder][1]:
                found.update((n, holder))
            if self.spans[n][1] > self.spans[holder][1]:
                holder = n
        return found

    def find_preceded(self, gap: int) -> dict[int, int]:
        """Return segments that begin within `gap` ns after one recorded later, with the stamp up to which that matters.

        Frames between two fixes or attitudes at most `gap` apart may need those of the later recorded one.
        """
        found: dict[int, int] = {}
        for n, (first, _) in enumerate(self.spans):
            ends = [last for _, last in self.spans[n + 1 :] if last < first <= last + gap]
            if ends:
                found[n] = max(ends) + gap
        return found


class RunningClock:
    """Running time of a recording: the sum of the steps of `log_time`, without jumps of the clock.

    A step longer than the limit counts as the limit: the clock was stepped, or the recorder stopped. While `log_time`
    is still, the stamps of the reference topic drive the clock.
    """

    def __init__(self) -> None:
        self.now = 0
        self._ahead = 0  # time counted by stamps that a step of `log_time` will count again, at most a second, ns
        self._last: int | None = None
        self._stamp: int | None = None

    def tick(self, log_time: int, stamp: int | None = None) -> int:
        """Return the running time at this message, ns; `stamp`: of a message of the reference topic, else None."""
        step = 0 if self._last is None else log_time - self._last
        if -JUMP_BACK <= step < 0:
            return self.now  # a little out of order
        self._last = log_time
        if step > 0:
            self.now += min(max(0, step - self._ahead), LONGEST_STEP)
            self._ahead = max(0, self._ahead - step)
        elif step == 0 and stamp is not None and self._stamp is not None:
            run = max(0, min(stamp - self._stamp, LONGEST_STEP))
            self.now += run
            self._ahead = min(self._ahead + run, SECOND)
        if stamp is not None:
            self._stamp = stamp
        return self.now


LISTEN = SECOND
"""ns of messages by which the clock is chosen, and a late topic's stamps are judged."""
MANY = 10_000
"""Most stamps of a topic kept for that."""


class Parts(Protocol):
    """Roles of topics that the clock needs; `aligned` may change."""

    reference: str

    @property
    def aligned(self) -> frozenset[str]:
        """Topics in addition to the reference that are aligned by time."""


class LiveClock:
    """Collects stamps until the clock is chosen, and then those of topics that come later.

    Owns: the capture's thread calls everything here; `base`, once chosen, may be read by any.
    """

    def __init__(self, roles: Parts, offset_of: Callable[[str], int] = lambda _: 0) -> None:
        """`offset_of`: as for `choose`."""
        self._roles = roles
        self._offset_of = offset_of
        self._times: dict[str, TopicTimes] = {}
        self._began: dict[str, int] = {}  # topics that came later, until they are judged
        self.heard: int | None = None
        """Arrival of the first reference message, ns."""
        self.base: TimeBase | None = None

    def add(self, message: Message, now: int) -> str | None:
        """Note a message that came at `now`; return the fault with its topic's clock, if that is new.

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
        if topic not in self._began:
            return None
        self._add(message)
        if now - self._began[topic] < LISTEN:
            return None
        del self._began[topic]
        times, self._times[topic] = self._times[topic], TopicTimes(topic)
        fault = find_fault(times, self.base, reference, self._offset_of(topic))
        if fault is not None:
            self.base.replaced[topic] = fault
        return fault

    def _add(self, message: Message) -> None:
        times = self._times.setdefault(message.topic, TopicTimes(message.topic))
        with contextlib.suppress(MessageError):
            decode(message)
            times.add(message)

    def due(self, now: int) -> bool:
        """True if the clock is to be chosen now."""
        return self.base is None and self.heard is not None and now - self.heard >= LISTEN

    def choose(self, choice: str) -> TimeBase:
        """Return the clock by the messages so far; raises UsageError if `choice` is impossible, and starts over."""
        reference, times = self._roles.reference, self._times
        self._times, self.heard = {}, None
        others = [times[topic] for topic in sorted(times) if topic != reference]
        self.base = choose(choice, times[reference], others, self._offset_of)
        self._times = {topic: TopicTimes(topic) for topic in times}
        return self.base


class Cut(NamedTuple):
    """Span of reference stamps from `begin` to before `end`, ns; FRAME stays the number in the recording."""

    begin: int
    end: int
    last: int = -1
    """Number of the last reference message inside, in recorded order; -1 without any."""
    undecodable: tuple[int, ...] = ()
    """Sorted numbers of undecodable reference messages."""
    frames: int = 0
    """Number of reference messages in the whole recording."""
    note: str = ""
    """Note to the user, if the cut is empty."""

    @classmethod
    def of(cls, span: tuple[int, int], stamps: Iterable[tuple[int, int]], frames: int) -> Cut:
        """Return the cut with that `span`; `stamps`: (number, stamp in ns) of every message that can be decoded."""
        known = dict(stamps)
        last = max((number for number, stamp in known.items() if span[0] <= stamp < span[1]), default=-1)
        undecodable = tuple(number for number in range(frames) if number not in known)
        note = ""
        if known and last < 0:
            first, final = min(known.values()), max(known.values())
            way = f"from {format_utc(first)} to {format_utc(final)}, {(final - first) / SECOND:.3f} s"
            note = f"no frame is between start and end: stamps go {way}"
        return cls(*span, last, undecodable, frames, note)

    def holds(self, stamp: int) -> bool:
        """True if a stamp in ns is inside."""
        return self.begin <= stamp < self.end

    def count_left(self, frames: int) -> tuple[int, int]:
        """Return how many decodable and undecodable messages follow the first `frames`."""
        broken = sum(number >= frames for number in self.undecodable)
        return max(0, self.frames - frames) - broken, broken
