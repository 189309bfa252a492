# SPDX-License-Identifier: Apache-2.0
"""Video: from access units to pictures, each under the number of the message that carries it.

A picture is given only when it and everything it refers to came whole and was decoded without complaint. Nothing is
ever paired by counting: each unit goes into the decoder with its number as pts, and the number is read back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from edgefirst_ros.counts import AFTER_LOSS, DAMAGED, NO_OUTPUT, NO_PICTURE
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.bitstream import LARGEST_SETS
from edgefirst_ros.sensors.decoder import Decoder
from edgefirst_ros.sensors.tracker import AccessUnit

LARGEST_BACKLOG = 64 << 20
"""Bytes of access units that wait to be asked for; beyond, the oldest are decoded anyway."""
UNIT_BYTES = 500
"""Overhead of a waiting access unit, bytes."""


class _State(Enum):
    """State of an access unit, in this order; DECODING may be skipped."""

    WAITING = auto()
    """Not fed to the decoder yet."""
    DECODING = auto()
    """Inside the decoder."""
    DONE = auto()
    """The picture came out, or never will."""


@dataclass(slots=True)
class _Flight:
    """An access unit whose picture was neither taken nor dropped."""

    unit: AccessUnit
    sets: bytes
    """Parameter sets of earlier units that are not fed."""
    entry: int
    """Number of the last entry up to here."""
    start: int
    """Number of the entry from which its picture can be decoded."""
    fresh: bool
    """True if what came before it is lost."""
    state: _State = _State.WAITING
    wanted: bool = True
    outcome: Any = None
    """Once DONE: an av.VideoFrame, or the reason why there is none."""

    @property
    def weight(self) -> int:
        """Memory it takes while it waits, bytes."""
        return len(self.unit.data) + len(self.sets) + UNIT_BYTES


class _References(Enum):
    """True if what the next units refer to is in the decoder, undamaged."""

    INTACT = auto()
    LEADING_LOST = auto()
    """Not what leading pictures of the last entry refer to; with the next entry it is INTACT."""
    LOST = auto()
    """Not before the next entry, whose own picture needs none; with that it is LEADING_LOST."""


class VideoReader:
    """Pictures of one video stream, on demand.

    Push every message in decode order; then ask for the pictures that are wanted, in the order in which they are
    shown, and `skip` the others. Groups of pictures (GOPs) that nobody wants are never decoded. `keyframes_only`:
    nothing behind a keyframe is needed to bring it out, as no other picture is wanted. `decoder`, `limits`: as for
    `Decoder`. `sets`: parameter sets of what came before.

    Owns: one thread alone uses it, with its decoder.
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
        self.codec = codec
        self._keyframes_only = keyframes_only
        self._decoder = Decoder(codec, decoder, limits)
        self._flights: dict[int, _Flight] = {}  # in decode order
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
    def push(self, number: int, unit: AccessUnit) -> None:
        """Take the next access unit in decode order; numbers must rise."""
        self._interrupted = self._interrupted or unit.after_gap
        if unit.fault != NO_PICTURE:
            self._more_leading = (unit.entry and not unit.closed) or (self._more_leading and unit.leading)
        if unit.fault is not None:
            self._prefix += unit.data if unit.fault == NO_PICTURE else unit.sets
            self._prefix = self._prefix[-LARGEST_SETS:]
            self._interrupted = self._interrupted or not (unit.leading or unit.fault == NO_PICTURE)
            self._flights[number] = flight = _Flight(unit.without_bytes(), b"", -1, -1, fresh=False)
            self._settle(number, flight, unit.fault)
            return
        if unit.entry:
            self._entry_before, self._entry = self._entry, number
        start = self._entry_before if unit.leading else self._entry
        flight = _Flight(unit, self._prefix, self._entry, start, unit.entry and self._interrupted)
        self._flights[number] = flight
        self._waiting_bytes += flight.weight
        self._prefix = b""
        self._interrupted = self._interrupted and not unit.entry
        if unit.entry or not self._more_leading:
            self._drop_unwanted(self._entry)
        while self._waiting_bytes > LARGEST_BACKLOG:
            self._feed()

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, number: int, *, last: bool = False) -> Any:
        """Take the picture of a message.

        Returns an av.VideoFrame, a str that says why there is none, or None where more units must be pushed first;
        never None when `last` says that no more will come. Raises ValueError where nothing can be taken any more.
        """
        self._drop_unwanted(number)
        while number in self._flights:
            flight = self._flights[number]
            if flight.state is _State.DONE:
                del self._flights[number]
                return flight.outcome
            waiting = any(other.state is _State.WAITING for other in self._flights.values())
            if flight.state is _State.DECODING and (self._keyframes_only or (last and not waiting)):
                self._drain()
            elif waiting:
                self._feed()
            else:
                return None
        raise ValueError(f"no unit {number} was pushed, or its picture was taken already")

    def skip(self, number: int) -> None:
        """Say that the picture of a message is not wanted."""
        flight = self._flights.get(number)
        if flight is None:
            return
        flight.wanted = False
        if flight.state is _State.DONE:
            del self._flights[number]
        elif flight.state is _State.WAITING:
            wanted = next((n for n, other in self._waiting() if other.wanted), None)
            if wanted is not None:
                self._drop_unwanted(wanted)

    def _waiting(self) -> Iterable[tuple[int, _Flight]]:
        """Units that wait, in decode order."""
        return ((number, flight) for number, flight in self._flights.items() if flight.state is _State.WAITING)

    def _drop_unwanted(self, number: int) -> None:
        """Drop what waits before the entry that a picture needs, where nobody wants it."""
        flight = self._flights.get(number)
        if flight is None or flight.state is not _State.WAITING:
            return
        start = flight.start
        entry = self._flights.get(start)
        if entry is None or entry.state is not _State.WAITING or next(n for n, _ in self._waiting()) == start:
            return
        if start == self._entry and self._more_leading and not self._keyframes_only:
            return  # a leading picture that is still to come may be wanted
        unwanted = [(n, w) for n, w in self._waiting() if n < start or (w.unit.leading and w.entry == start)]
        if any(waiting.wanted for _, waiting in unwanted):
            return
        sets = b""
        for n, waiting in unwanted:
            del self._flights[n]
            self._waiting_bytes -= waiting.weight
            sets += waiting.sets + waiting.unit.sets if n < start else b""
        sets = sets[-LARGEST_SETS:]
        self._waiting_bytes += len(sets)
        entry.sets = sets + entry.sets
        entry.fresh = True

    # ---- the decoder ---------------------------------------------------------------------
    def _feed(self) -> None:
        """Give the decoder the next unit that waits."""
        number, flight = next(iter(self._waiting()))
        self._waiting_bytes -= flight.weight
        unit = flight.unit
        if unit.entry:
            lost = self._references is _References.LOST
            if lost or flight.fresh or unit.closed:
                self._drain()
            self._references = _References.LEADING_LOST if lost else _References.INTACT
        if flight.sets:
            self._collect(self._decoder.decode(flight.sets, None)[0])
        for sets in (flight.sets, unit.sets):
            self._decoder.learn(sets)
        flight.state = _State.DECODING
        flight.unit = unit.without_bytes()
        leading_lost = unit.leading and self._references is _References.LEADING_LOST
        if leading_lost or self._references is _References.LOST:
            self._settle(number, flight, AFTER_LOSS)
            return
        frames, clean = self._decoder.decode(unit.data, number)
        if not clean:
            self._withhold(number)
        self._collect(frames)

    def _drain(self) -> None:
        """Bring out all that is inside the decoder; it can go on with an entry only."""
        inside = [number for number, flight in self._flights.items() if flight.state is _State.DECODING]
        if inside:
            self._collect(self._decoder.drain())
        for number in inside:
            if number in self._flights and self._flights[number].state is _State.DECODING:
                self._settle(number, self._flights[number], NO_OUTPUT)
        self._decoder.restart()
        self._references = _References.LOST

    def _collect(self, frames: list[Any]) -> None:
        for frame in frames:
            if frame.is_corrupt:
                self._withhold(frame.pts)
            flight = self._flights.get(frame.pts)
            if flight is not None and flight.state is _State.DECODING:  # else it was found damaged already
                self._settle(frame.pts, flight, frame)

    def _withhold(self, number: int) -> None:
        """Withhold the picture of a unit that the decoder complained about, and those that may depend on it."""
        flight = self._flights.get(number)
        if flight is None or flight.state is not _State.DECODING:
            return
        self._settle(number, flight, DAMAGED)
        if flight.unit.leaves_traces or (flight.unit.reference and not flight.unit.leading):
            self._references = _References.LOST
        elif flight.unit.leading and self._references is _References.INTACT:
            self._references = _References.LEADING_LOST

    def _settle(self, number: int, flight: _Flight, outcome: Any) -> None:
        """A unit is done."""
        flight.state, flight.outcome = _State.DONE, outcome
        if not flight.wanted:
            del self._flights[number]
