# SPDX-License-Identifier: Apache-2.0
"""Video: from access units to pictures, each under the number of the message that carries it.

A picture is given only when it and everything it refers to came whole and was decoded without complaint. Pictures are
never paired by counting: each unit enters the decoder with its number as pts, and the number is read back.

Where all pictures or all keyframes are needed, GOPs (groups of pictures) are decoded side by side. A GOP begins with a
unit after which no unit refers to earlier ones, so each has a `VideoReader` of its own, and the pictures are those that
one reader would return for the whole stream. Only where parameter sets are damaged the two may differ in the pictures
that they withhold. A picture is encoded by the thread that decoded it, while it is in the cache of its core.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from edgefirst_ros.counts import AFTER_LOSS, DAMAGED, NO_OUTPUT, NO_PICTURE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.video.bitstream import LARGEST_SETS, AccessUnit, UnitState, with_sets

LARGEST_BACKLOG = 64 << 20
"""Bytes of access units that wait for a request; beyond, the oldest are decoded anyway."""
UNIT_BYTES = 500
"""Overhead of a waiting access unit, bytes."""
MOST_THREADS = 16
"""Most threads: each has a decoder, and about a second of messages waits for the pictures it is ahead by."""
AHEAD_BYTES = 48 << 20
"""Of pictures a thread, that are held while others are requested: 16 of 1920 x 1080 where they are not encoded."""
AHEAD_UNITS = 32
"""Units a thread that are added before a wait for their pictures: data that belong to them are held for so long."""
SHORTEST = 8
"""Units a GOP has at least, so that a stream of keyframes does not become as many decoders."""
SHORTEST_KEYFRAMES_ONLY = 2
"""The same where only keyframes are decoded: they may be seconds apart."""


# ---- one decoder -------------------------------------------------------------------------------
class _References(Enum):
    """State in the decoder of the pictures to which the next units refer."""

    INTACT = auto()
    LEADING_LOST = auto()  # only those of leading pictures of the last entry are lost; with the next entry it is INTACT
    LOST = auto()  # lost until the next entry, whose own picture needs no others; with that it is LEADING_LOST


class VideoReader:
    """Pictures of one video stream, on demand.

    Push every message in decode order; then ask for the pictures that are needed, in the order in which they are
    shown, and `skip` the others. Groups of pictures (GOPs) of which no picture is needed are never decoded.
    `keyframes_only`: no other picture is needed, so each comes out without the units after it. `decoder`, `limits`:
    as for `Decoder`. `sets`: parameter sets of the units before.

    Owns: one thread uses it, with its decoder, and changes the units that were pushed.
    """

    def __init__(
        self,
        codec: str,
        *,
        keyframes_only: bool = False,
        decoder: str = "software",
        limits: Limits = DEFAULT_LIMITS,
        sets: bytes = b"",
    ) -> None:
        from edgefirst_ros.sensors.video.decoder import Decoder

        self.codec = codec
        self._keyframes_only = keyframes_only
        self._decoder = Decoder(codec, decoder, limits)
        self._units: dict[int, AccessUnit] = {}  # neither taken nor dropped, by number, in decode order
        self._waiting_bytes = 0
        self._prefix = sets  # parameter sets of units that are not fed
        self._entry = self._entry_before = -1
        self._more_leading = False  # more leading pictures of the last entry may come
        self._interrupted = False  # units were lost since the last entry
        self._references = _References.INTACT

    @property
    def note(self) -> str:
        """Note of the decoder to the user; empty without any."""
        return self._decoder.note

    # ---- units ---------------------------------------------------------------------------
    def push(self, unit: AccessUnit) -> None:
        """Add the next access unit in decode order; numbers must rise."""
        self._interrupted = self._interrupted or unit.after_gap
        if unit.fault != NO_PICTURE:
            self._more_leading = (unit.entry and not unit.closed) or (self._more_leading and unit.leading)
        self._units[unit.number] = unit
        if unit.fault is not None:
            self._prefix += unit.data if unit.fault == NO_PICTURE else unit.sets
            self._prefix = self._prefix[-LARGEST_SETS:]
            self._interrupted = self._interrupted or not (unit.leading or unit.fault == NO_PICTURE)
            unit.drop_bytes()
            self._settle(unit, unit.fault)
            return
        if unit.entry:
            self._entry_before, self._entry = self._entry, unit.number
        unit.start, unit.last_entry = self._entry_before if unit.leading else self._entry, self._entry
        unit.before, unit.fresh = self._prefix, unit.entry and self._interrupted
        self._waiting_bytes += _weight(unit)
        self._prefix = b""
        self._interrupted = self._interrupted and not unit.entry
        if unit.entry or not self._more_leading:
            self._drop_unwanted(self._entry)
        while self._waiting_bytes > LARGEST_BACKLOG:
            self._feed()

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, unit: AccessUnit, *, last: bool = False) -> Any:
        """Take the picture of a unit.

        Returns an av.VideoFrame, a str that says why it is missing, or None where more units must be pushed first;
        never None when `last` says that no more will come. Raises ValueError if it was used or skipped before.
        """
        self._drop_unwanted(unit.number)
        while unit.number in self._units:
            if unit.state is UnitState.DONE:
                del self._units[unit.number]
                outcome, unit.outcome = unit.outcome, None
                return outcome
            waiting = any(other.state is UnitState.WAITING for other in self._units.values())
            if unit.state is UnitState.DECODING and (self._keyframes_only or (last and not waiting)):
                self._drain()
            elif waiting:
                self._feed()
            else:
                return None
        raise ValueError(f"unit {unit.number} was not pushed, or its picture was read already")

    def skip(self, unit: AccessUnit) -> None:
        unit.wanted = False
        if unit.state is UnitState.DONE:
            self._units.pop(unit.number, None)
            unit.outcome = None
        elif unit.state is UnitState.WAITING:
            wanted = next((other.number for other in self._waiting() if other.wanted), None)
            if wanted is not None:
                self._drop_unwanted(wanted)

    def _waiting(self) -> Iterable[AccessUnit]:
        return (unit for unit in self._units.values() if unit.state is UnitState.WAITING)

    def _drop_unwanted(self, number: int) -> None:
        """Drop the units that wait before the entry that a picture needs, unless one of their pictures is needed."""
        unit = self._units.get(number)
        if unit is None or unit.state is not UnitState.WAITING:
            return
        start = unit.start
        entry = self._units.get(start)
        if entry is None or entry.state is not UnitState.WAITING or next(iter(self._waiting())) is entry:
            return
        if start == self._entry and self._more_leading and not self._keyframes_only:
            return  # a leading picture that is still to come may be needed
        unwanted = [u for u in self._waiting() if u.number < start or (u.leading and u.last_entry == start)]
        if any(waiting.wanted for waiting in unwanted):
            return
        sets = b""
        for waiting in unwanted:
            del self._units[waiting.number]
            self._waiting_bytes -= _weight(waiting)
            sets += waiting.before + waiting.sets if waiting.number < start else b""
            waiting.drop_bytes()
        sets = sets[-LARGEST_SETS:]
        self._waiting_bytes += len(sets)
        entry.before = sets + entry.before
        entry.fresh = True

    # ---- the decoder ---------------------------------------------------------------------
    def _feed(self) -> None:
        """Feed the decoder with the next unit that waits."""
        unit = next(iter(self._waiting()))
        self._waiting_bytes -= _weight(unit)
        if unit.entry:
            lost = self._references is _References.LOST
            if lost or unit.fresh or unit.closed:
                self._drain()
            self._references = _References.LEADING_LOST if lost else _References.INTACT
        if unit.before:
            self._collect(self._decoder.decode(unit.before, None)[0])
        for sets in (unit.before, unit.sets):
            self._decoder.learn(sets)
        unit.state, data = UnitState.DECODING, unit.data
        unit.drop_bytes()
        leading_lost = unit.leading and self._references is _References.LEADING_LOST
        if leading_lost or self._references is _References.LOST:
            self._settle(unit, AFTER_LOSS)
            return
        frames, clean = self._decoder.decode(data, unit.number)
        if not clean:
            self._withhold(unit)
        self._collect(frames)

    def _drain(self) -> None:
        """Bring out all that is inside the decoder; it can continue with an entry only."""
        inside = [unit for unit in self._units.values() if unit.state is UnitState.DECODING]
        if inside:
            self._collect(self._decoder.drain())
        for unit in inside:
            if unit.state is UnitState.DECODING:
                self._settle(unit, NO_OUTPUT)
        self._decoder.restart()
        self._references = _References.LOST

    def _collect(self, frames: list[Any]) -> None:
        for frame in frames:
            unit = self._units.get(frame.pts)
            if unit is not None and frame.is_corrupt:
                self._withhold(unit)
            if unit is not None and unit.state is UnitState.DECODING:  # else it was found damaged already
                self._settle(unit, frame)

    def _withhold(self, unit: AccessUnit) -> None:
        """Withhold the picture of a unit that the decoder complained about, and those that may depend on it."""
        if unit.state is not UnitState.DECODING or unit.picture is None:
            return
        self._settle(unit, DAMAGED)
        if unit.picture.leaves_traces or (unit.picture.reference and not unit.leading):
            self._references = _References.LOST
        elif unit.leading and self._references is _References.INTACT:
            self._references = _References.LEADING_LOST

    def _settle(self, unit: AccessUnit, outcome: Any) -> None:
        unit.state, unit.outcome = UnitState.DONE, outcome
        if not unit.wanted:
            del self._units[unit.number]
            unit.outcome = None


def _weight(unit: AccessUnit) -> int:
    """Return the memory that a unit takes while it waits, bytes."""
    return len(unit.data) + len(unit.before) + UNIT_BYTES


# ---- several decoders side by side -------------------------------------------------------------
class _GopState(Enum):
    """State of the thread of a GOP."""

    QUEUED = auto()  # without a thread so far
    DECODING = auto()
    STARVED = auto()  # waiting for more access units


@dataclass(slots=True)
class _Gop:
    """A GOP, decoded by one reader.

    Owns: all fields are read and changed under the lock of the `GopReader`.
    """

    units: deque[AccessUnit] = field(default_factory=deque)  # access units that its thread has not taken yet
    taken_in: int = 0  # number of its access units so far
    held: int = 0  # bytes of its pictures that are ready and not used
    state: _GopState = _GopState.QUEUED
    complete: bool = False
    error: BaseException | None = None


class GopReader:
    """As `VideoReader`, by `threads` decoders in software (at most 16); `close` ends them.

    `picture` returns None also where more units may be pushed while the picture is in the making. `keyframes_only`:
    only these are requested. With `encode` pictures are the results of that function for an av.VideoFrame.

    Owns: one thread pushes, asks and skips, and only it changes `_last`, `_open`, `_sets` and `_waiting`; any may
    close. State shared with the threads of the GOPs is changed under the lock of `_given`, `_pushed` and `_taken`: also
    `given` and `finished` of a unit, and `outcome` once `given`.
    """

    note = ""

    def __init__(
        self,
        codec: str,
        threads: int,
        *,
        keyframes_only: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        encode: Callable[[Any], Picture | MessageError] | None = None,
    ) -> None:
        self.codec = codec
        self._encode = encode
        self._keyframes_only = keyframes_only
        self._limits = limits
        self._threads = min(threads, MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "decode")
        lock = threading.Lock()
        self._given = threading.Condition(lock)  # wakes requests for a picture
        self._pushed = threading.Condition(lock)  # wakes threads that wait for units
        self._taken = threading.Condition(lock)  # wakes threads that wait for room
        self._waiting = 0  # units that were pushed, and neither taken nor skipped
        self._last: _Gop | None = None
        self._open: AccessUnit | None = None  # an open entry, in no GOP so far
        self._sets = b""  # parameter sets of all units so far
        self._waiting_bytes = 0
        self._held = 0  # bytes of pictures given and not taken, of all GOPs
        self._asked: _Gop | None = None  # the GOP whose picture is waited for
        self._closed = False

    # ---- units ---------------------------------------------------------------------------
    def push(self, unit: AccessUnit) -> None:
        """Add the next access unit in decode order; numbers must rise.

        An open entry of H.265 waits for the unit after it: leading pictures come before all others, so that it begins
        a GOP if the next one is not a leading picture.
        """
        self._add_open(alone=unit.picture is not None and not unit.leading)
        if self.codec == "hevc" and unit.entry and not unit.closed:
            self._open = unit
            if self._keyframes_only:
                self._add_open(alone=True)
        else:
            self._add(unit, alone=unit.entry and unit.closed)

    def _add_open(self, *, alone: bool) -> None:
        unit, self._open = self._open, None
        if unit is not None:
            self._add(unit, alone=alone)

    def _add(self, unit: AccessUnit, *, alone: bool) -> None:
        """Add a unit to the last GOP, or to a new one if no later unit refers to one before it."""
        gop, sets = self._last, unit.sets
        if unit.keyframe or not self._keyframes_only:
            shortest = SHORTEST_KEYFRAMES_ONLY if self._keyframes_only else SHORTEST
            if gop is None or (alone and gop.taken_in >= shortest):
                self._end()
                gop = self._last = _Gop()
                self._pool.submit(self._decode, gop, self._sets)
            with self._pushed:
                unit.gop, unit.finished = gop, not unit.wanted
                self._waiting += unit.wanted
                gop.units.append(unit)
                gop.taken_in += 1
                self._waiting_bytes += len(unit.data)
                self._pushed.notify_all()
        else:
            unit.drop_bytes()
        self._sets = with_sets(self._sets, sets)

    def _end(self) -> None:
        if self._last is not None:
            with self._pushed:
                self._last.complete = True
                self._pushed.notify_all()

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, unit: AccessUnit, *, last: bool = False) -> Any:
        """Take the picture of a unit: as `VideoReader.picture`.

        Raises the error of its making, and ValueError if the reader is closed.
        """
        if last:
            self._add_open(alone=False)
            self._end()
        if unit is self._open:
            return None
        gop = unit.gop
        with self._given:
            while not unit.given:
                if gop.error is not None:
                    raise gop.error
                if self._closed:
                    raise ValueError("the reader is closed")
                starved = gop.state is _GopState.STARVED and not gop.complete
                room = self._waiting < AHEAD_UNITS * (self._threads + 1) and self._waiting_bytes < LARGEST_BACKLOG
                if not last and (starved or room):
                    return None
                self._asked = gop
                self._taken.notify_all()
                self._given.wait()
            self._asked = None
            return self._decode_unit(unit)

    def skip(self, unit: AccessUnit) -> None:
        if unit is self._open:
            self._add_open(alone=False)
        with self._taken:
            if unit.gop is None or unit.finished:
                return
            if unit.given:
                self._decode_unit(unit)
            else:
                unit.finished = True
                self._waiting -= 1

    def _decode_unit(self, unit: AccessUnit) -> Any:
        found, unit.outcome = unit.outcome, None
        unit.finished, size = True, measure_outcome(found)
        unit.gop.held -= size
        self._held -= size
        self._waiting -= 1
        self._taken.notify_all()
        return found

    def close(self) -> None:
        with self._given:
            self._closed = True
            for waiting in (self._given, self._pushed, self._taken):
                waiting.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- in the threads that decode --------------------------------------------------------
    def _decode(self, gop: _Gop, sets: bytes) -> None:
        try:
            reader = VideoReader(self.codec, keyframes_only=self._keyframes_only, limits=self._limits, sets=sets)
            self._work(gop, reader)
        except BaseException as error:  # noqa: BLE001  raised at the request for the picture
            with self._given:
                gop.error = error
                self._given.notify_all()

    def _work(self, gop: _Gop, reader: VideoReader) -> None:
        pending: deque[AccessUnit] = deque()
        last = False
        while not last and not self._closed:
            last = self._next_unit(gop, reader, pending)
            while pending:
                unit = pending[0]
                if unit.finished:
                    reader.skip(pending.popleft())
                    continue
                found = reader.picture(unit, last=last)
                if found is None:
                    break
                if self._encode is not None and not isinstance(found, str):
                    found = self._encode(found)
                self._give(pending.popleft(), found)
        self.note = self.note or reader.note

    def _next_unit(self, gop: _Gop, reader: VideoReader, pending: deque[AccessUnit]) -> bool:
        """Push the GOP's next unit; return True at its end."""
        with self._pushed:
            if not gop.units:
                self._given.notify_all()
            while not gop.units and not gop.complete and not self._closed:
                gop.state = _GopState.STARVED
                self._pushed.wait()
            gop.state = _GopState.DECODING
            if not gop.units:
                return True
            unit = gop.units.popleft()
            self._waiting_bytes -= len(unit.data)
        reader.push(unit)
        pending.append(unit)
        return False

    def _give(self, unit: AccessUnit, found: Any) -> None:
        """Make a picture available to requests, once space is free."""
        gop = unit.gop
        with self._taken:
            while gop.held > AHEAD_BYTES or self._held > AHEAD_BYTES * self._threads:
                asked = self._asked  # waits for a picture that must come without this GOP going on
                if self._closed or asked is gop or (asked is not None and asked.state is _GopState.QUEUED):
                    break
                self._taken.wait()
            unit.outcome = None if unit.finished else found
            if not unit.finished:
                unit.given = True
                gop.held += measure_outcome(found)
                self._held += measure_outcome(found)
                if gop is self._asked:
                    self._given.notify_all()


def measure_outcome(found: Any) -> int:
    """Return the bytes that the outcome of a unit holds."""
    if isinstance(found, Picture):
        return len(found.data or b"")
    return 0 if isinstance(found, str | MessageError) else sum(plane.buffer_size for plane in found.planes)
