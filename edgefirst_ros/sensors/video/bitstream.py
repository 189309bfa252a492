# SPDX-License-Identifier: Apache-2.0
"""Access units of H.264 and H.265: their headers, and which have an undamaged picture as far as headers say.

Each access unit is read once, up to its first slice header. The decoder notices what cannot be seen there: a missing
reference of H.265, wrong bytes inside a slice. Source: ITU-T H.264 7.3 and 7.4.3, H.265 7.3 and 8.1.3; Annex B of both.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, DAMAGED, NO_PICTURE, OVERLOAD
from edgefirst_ros.errors import MessageError

Buffer = bytes | memoryview
START_CODE = b"\x00\x00\x01"
_START = re.compile(START_CODE, re.DOTALL)
HEADER_BYTES = 96
"""Bytes of a NAL unit that are enough for every slice header and picture parameter set read here."""
SET_BYTES = 4096
"""Bytes of a sequence parameter set or SEI message that are read."""
LARGEST_SETS = 1 << 16
"""Bytes of parameter sets kept, wherever they stay: those of a camera are some hundred."""


@dataclass(frozen=True, slots=True)
class SliceHeader:
    """Fields of the first slice header of a picture, common to both codecs."""

    keyframe: bool
    """H.264: NAL unit type 5; H.265: types 16 to 21."""
    entry: bool
    """Decoding can start here."""
    closed: bool
    """Also, no picture shown after it refers to one before it."""
    reference: bool
    """Other pictures may depend on it."""
    leaves_traces: bool
    """Damage to it may show in the next picture, whether that depends on it or not."""
    sequence_set: bytes | None
    """The sequence parameter set it uses, as it was sent; None where that is not known."""


class UnitHeaders(NamedTuple):
    """Headers of one access unit."""

    sets: bytes
    """Parameter sets in front of its first slice, with start codes; may be empty."""
    picture: SliceHeader | None
    """None where it has no picture, or its headers cannot be read."""
    damaged: bool = False


class Bits:
    """Bits and Exp-Golomb codes of a NAL unit, emulation prevention removed."""

    def __init__(self, payload: bytes) -> None:
        data = payload.replace(b"\x00\x00\x03", b"\x00\x00")
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def read(self, count: int) -> int:
        """Return an unsigned number of so many bits; raises ValueError after the end."""
        if count > self._left:
            raise ValueError("the header ends early")
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def golomb(self) -> int:
        """Return an unsigned Exp-Golomb code; raises ValueError without any."""
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("no Exp-Golomb code")
        return (1 << zeros) - 1 + self.read(zeros)

    def read_signed(self) -> int:
        """Return a signed Exp-Golomb code; raises ValueError without any."""
        code = self.golomb()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def peek_nal(data: Buffer, begin: int, longest: int = HEADER_BYTES) -> bytes:
    """Return the NAL unit that begins there, cut to `longest` bytes."""
    head = bytes(data[begin : begin + longest + len(START_CODE) - 1])
    end = head.find(START_CODE)
    return head[: longest if end < 0 else min(end, longest)]


def find_nal_units(data: Buffer) -> Iterator[int]:
    """Yield where the NAL units of an Annex-B access unit begin, after their start codes."""
    for match in _START.finditer(data):
        begin = match.end()
        if begin < len(data) and data[begin : begin + len(START_CODE)] != START_CODE:
            yield begin


def with_sets(known: bytes, newer: bytes) -> bytes:
    """Return parameter sets with newer ones after them, equal ones once; of all the last `LARGEST_SETS` bytes."""
    return (known.replace(newer, b"") + newer)[-LARGEST_SETS:] if newer else known


class HeaderReader:
    """Reads the headers of one stream's access units, which must come in decode order: later ones need earlier sets."""

    sets: Container[int]
    """NAL unit types of parameter sets."""
    pictures: Container[int]
    """NAL unit types of slices."""

    def read(self, data: Buffer) -> UnitHeaders:
        self._begin()
        sets, ahead, damaged = b"", True, False
        picture: SliceHeader | None = None
        for begin in find_nal_units(data):
            kind = self._kind(data[begin])
            if ahead and kind in self.sets:
                behind = _START.search(data, begin)
                sets += b"\x00" + START_CODE + data[begin : behind.start() if behind is not None else len(data)]
            ahead = ahead and kind not in self.pictures
            if not damaged:
                try:
                    picture = self._add_unit(kind, data, begin)
                except (ValueError, KeyError, IndexError):
                    damaged = True
            if picture is not None or (damaged and not ahead):
                break
        return UnitHeaders(sets, picture, damaged)

    def _begin(self) -> None:
        """Begin an access unit."""

    def _kind(self, first: int) -> int:
        raise NotImplementedError

    def _add_unit(self, kind: int, data: Buffer, begin: int) -> SliceHeader | None:
        """Add a NAL unit; return its slice header, if it is the first slice."""
        raise NotImplementedError


class UnitState(Enum):
    """State of an access unit at its decoder, in this order; DECODING may be skipped."""

    WAITING = auto()
    """Not fed to the decoder yet."""
    DECODING = auto()
    """Inside the decoder."""
    DONE = auto()
    """`outcome` is known."""


@dataclass(slots=True, eq=False)
class AccessUnit:
    """One message of a camera on its way to its picture: the only record of it from the alignment to the sample.

    Owns: made by the thread that pushes messages; from then on the thread that chooses frames has it, with the thread
    that decodes it. Readers say how they share its state.
    """

    number: int
    content: Any = None
    """The parsed message, a MessageError if it cannot be used, or None once it is not needed any more."""
    gap: bool = False
    """True if a message before it is missing."""
    wanted: bool = True
    """True if its picture may be requested; otherwise it is only a reference of later ones."""
    tiles: Sequence[AccessUnit] = ()
    """Units of its tiles, each of a stream of its own; empty for a picture of one stream."""

    # by the headers
    data: Buffer = b""
    sets: bytes = b""
    """Its parameter sets, with start codes."""
    picture: SliceHeader | None = None
    """Its first slice header; None without a picture, or if its headers are damaged."""
    fault: str | None = None
    """Reason not to write its picture."""
    after_gap: bool = False
    """True if something before it in its stream is lost or could not be read."""
    keyframe: bool = False
    leading: bool = False
    """Shown before the last entry; may need pictures before that one."""

    # while it is decoded
    before: bytes = b""
    """Parameter sets of earlier units that are not fed."""
    last_entry: int = -1
    """Number of the last entry up to here."""
    start: int = -1
    """Number of the entry from which its picture can be decoded."""
    fresh: bool = False
    """True if the units before it are lost, or not fed."""
    state: UnitState = UnitState.WAITING
    outcome: Any = None
    """Once DONE, until it is used: an av.VideoFrame, a Picture, or why it is missing, as a str or a MessageError."""
    gop: Any = None
    """The GOP it belongs to, where several are decoded side by side."""
    given: bool = False
    """True once its GOP has set `outcome`."""
    finished: bool = False
    """True once its picture was used or skipped."""

    @property
    def entry(self) -> bool:
        """True if decoding can start with it."""
        return self.picture is not None and self.picture.entry

    @property
    def closed(self) -> bool:
        """True if decoding can start with it, and no later unit refers to an earlier one."""
        return self.picture is not None and self.picture.closed

    def drop_content(self) -> None:
        """Drop the content of a still picture that cannot be written in time, unless it says why it cannot be used."""
        if self.content is not None and not isinstance(self.content, MessageError):
            self.content = MessageError(OVERLOAD, "it arrived while no sample could be written")

    def drop_bytes(self) -> None:
        """Free its message and its bytes once they are not needed any more."""
        self.content, self.data, self.sets, self.before = None, b"", b"", b""


class Tracker:
    """Follows one stream in decode order and judges each unit by the headers of all before it."""

    def __init__(self) -> None:
        self._state: str | None = BEFORE_KEYFRAME  # why pictures that need references are not clean now
        self._leading_state: str | None = BEFORE_KEYFRAME  # the same for leading pictures of the last entry
        self._after_gap = False
        self._sequence_set: bytes | None = None  # of the last picture

    def mark_gap(self) -> None:
        """Note that data between the last unit and the next one are lost or cannot be read."""
        self._after_gap = True
        self._break()

    def judge(self, unit: AccessUnit, data: Buffer, headers: UnitHeaders) -> AccessUnit:
        """Judge the next access unit, and fill in its bytes and its headers; returns the unit."""
        unit.data, unit.sets = data, headers.sets
        unit.after_gap, self._after_gap = self._after_gap, False
        unit.picture = picture = headers.picture
        if headers.damaged or (picture is not None and self._contradicts(picture)):
            self._break()
            unit.fault, unit.picture = DAMAGED if self._state == AFTER_LOSS else self._state, None
        elif picture is None:
            unit.fault = NO_PICTURE
        else:
            unit.keyframe = picture.keyframe
            unit.fault, unit.leading = self._follow(picture)
        return unit

    def _contradicts(self, picture: SliceHeader) -> bool:
        """True if its sequence parameter set is not that of the picture before it, although no new sequence begins.

        The standards forbid that (H.264 7.4.1.2.1, H.265 7.4.2.4.2): one of the two was damaged on the way, and a
        decoder would use it silently. After a loss a new sequence may have begun.
        """
        before, self._sequence_set = self._sequence_set, picture.sequence_set
        if picture.closed or self._state is not None or before is None or picture.sequence_set is None:
            return False
        return before != picture.sequence_set

    def _follow(self, picture: Any) -> tuple[str | None, bool]:
        """Advance to a picture; return why it is not clean, and whether it is a leading one."""
        raise NotImplementedError

    def _enter(self, closed: bool) -> None:
        self._leading_state = None if closed else self._state
        self._state = None

    def _break(self) -> None:
        """Pictures that need references are not clean before the next entry."""
        self._state = self._state or AFTER_LOSS
        self._leading_state = self._leading_state or self._state
