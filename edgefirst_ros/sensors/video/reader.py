# SPDX-License-Identifier: Apache-2.0
"""Video: from access units to pictures, each under the number of the message that carries it.

A picture is given only when it and everything it refers to came whole and was decoded without complaint. Pictures are
never paired by counting: each unit enters the decoder with its number as pts, and the number is read back.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from edgefirst_ros.counts import AFTER_LOSS, DAMAGED, NO_OUTPUT, NO_PICTURE
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.video.bitstream import LARGEST_SETS, AccessUnit, State
from edgefirst_ros.sensors.video.decoder import Decoder

LARGEST_BACKLOG = 64 << 20
"""Bytes of access units that wait to be asked for; beyond, the oldest are decoded anyway."""
UNIT_BYTES = 500
"""Overhead of a waiting access unit, bytes."""


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
    shown, and `skip` the others. Groups of pictures (GOPs) of which no picture is wanted are never decoded.
    `keyframes_only`: no other picture is wanted, so each comes out without the units behind it. `decoder`, `limits`:
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

        Returns an av.VideoFrame, a str that says why there is none, or None where more units must be pushed first;
        never None when `last` says that no more will come. Raises ValueError if it was taken or skipped before.
        """
        self._drop_unwanted(unit.number)
        while unit.number in self._units:
            if unit.state is State.DONE:
                del self._units[unit.number]
                outcome, unit.outcome = unit.outcome, None
                return outcome
            waiting = any(other.state is State.WAITING for other in self._units.values())
            if unit.state is State.DECODING and (self._keyframes_only or (last and not waiting)):
                self._drain()
            elif waiting:
                self._feed()
            else:
                return None
        raise ValueError(f"unit {unit.number} was not pushed, or its picture was taken already")

    def skip(self, unit: AccessUnit) -> None:
        """Say that the picture of a unit is not wanted."""
        unit.wanted = False
        if unit.state is State.DONE:
            self._units.pop(unit.number, None)
            unit.outcome = None
        elif unit.state is State.WAITING:
            wanted = next((other.number for other in self._waiting() if other.wanted), None)
            if wanted is not None:
                self._drop_unwanted(wanted)

    def _waiting(self) -> Iterable[AccessUnit]:
        """Yield the units that wait, in decode order."""
        return (unit for unit in self._units.values() if unit.state is State.WAITING)

    def _drop_unwanted(self, number: int) -> None:
        """Drop the units that wait before the entry that a picture needs, if none of their pictures is wanted."""
        unit = self._units.get(number)
        if unit is None or unit.state is not State.WAITING:
            return
        start = unit.start
        entry = self._units.get(start)
        if entry is None or entry.state is not State.WAITING or next(iter(self._waiting())) is entry:
            return
        if start == self._entry and self._more_leading and not self._keyframes_only:
            return  # a leading picture that is still to come may be wanted
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
        """Give the decoder the next unit that waits."""
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
        unit.state, data = State.DECODING, unit.data
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
        """Bring out all that is inside the decoder; it can go on with an entry only."""
        inside = [unit for unit in self._units.values() if unit.state is State.DECODING]
        if inside:
            self._collect(self._decoder.drain())
        for unit in inside:
            if unit.state is State.DECODING:
                self._settle(unit, NO_OUTPUT)
        self._decoder.restart()
        self._references = _References.LOST

    def _collect(self, frames: list[Any]) -> None:
        for frame in frames:
            unit = self._units.get(frame.pts)
            if unit is not None and frame.is_corrupt:
                self._withhold(unit)
            if unit is not None and unit.state is State.DECODING:  # else it was found damaged already
                self._settle(unit, frame)

    def _withhold(self, unit: AccessUnit) -> None:
        """Withhold the picture of a unit that the decoder complained about, and those that may depend on it."""
        if unit.state is not State.DECODING or unit.picture is None:
            return
        self._settle(unit, DAMAGED)
        if unit.picture.leaves_traces or (unit.picture.reference and not unit.leading):
            self._references = _References.LOST
        elif unit.leading and self._references is _References.INTACT:
            self._references = _References.LEADING_LOST

    def _settle(self, unit: AccessUnit, outcome: Any) -> None:
        """A unit is done."""
        unit.state, unit.outcome = State.DONE, outcome
        if not unit.wanted:
            del self._units[unit.number]
            unit.outcome = None


def _weight(unit: AccessUnit) -> int:
    """Return the memory that a unit takes while it waits, bytes."""
    return len(unit.data) + len(unit.before) + UNIT_BYTES
