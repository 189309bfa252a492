# SPDX-License-Identifier: Apache-2.0
"""What the headers of an H.264 or H.265 access unit say: is there a picture, can decoding start here, is one missing.

Only bytes up to the first slice header are read. What cannot be seen there (a missing reference of H.265, wrong bytes
inside a slice) the decoder notices.
Source: ITU-T H.264 7.3 and 7.4.3, H.265 7.3 and 8.1.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgefirst_ros.counts import AFTER_LOSS, BEFORE_KEYFRAME, DAMAGED, NO_PICTURE

START_CODE = b"\x00\x00\x01"
HEADER_BYTES = 96  # enough for every slice header read here
PARAMETER_BYTES = 4096
LARGEST_SETS = 1 << 16
"""Bytes of parameter sets that are put in front of where decoding starts."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One access unit, by its headers.

    `fault` is the reason not to write its picture, or None. `entry`: decoding can start here; `closed`: and nothing
    behind it refers to anything before it. `leading`: shown before the last entry, may need what came before that one.
    `reference`: other pictures may depend on it.
    """

    fault: str | None
    keyframe: bool = False
    entry: bool = False
    closed: bool = False
    leading: bool = False
    reference: bool = True


class _Bits:
    """Bits and Exp-Golomb codes of a NAL unit, emulation prevention removed."""

    def __init__(self, payload: bytes) -> None:
        data = payload.replace(b"\x00\x00\x03", b"\x00\x00")
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def read(self, count: int) -> int:
        if count > self._left:
            raise ValueError("the header ends early")
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def golomb(self) -> int:
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("no Exp-Golomb code")
        return (1 << zeros) - 1 + self.read(zeros)

    def signed(self) -> int:
        code = self.golomb()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def nal_units(data: bytes, longest: int | None = None) -> Iterator[bytes]:
    """NAL units of an Annex-B access unit without start codes, each cut to `longest` bytes."""
    at = data.find(START_CODE)
    while at >= 0:
        begin = at + 3
        at = data.find(START_CODE, begin)
        end = len(data) if at < 0 else at
        if begin < end:
            yield data[begin : end if longest is None else min(end, begin + longest)]


def parameter_sets(data: bytes, codec: str) -> bytes:
    """The parameter sets of an access unit (`codec`: h264 or hevc), with start codes; empty where it has none."""
    sets, pictures = ((7, 8), (1, 2, 5)) if codec == "h264" else ((32, 33, 34), range(32))
    found = b""
    for nal in nal_units(data):
        kind = nal[0] & 31 if codec == "h264" else nal[0] >> 1 & 63
        if kind in sets:
            found += b"\x00" + START_CODE + nal
        elif kind in pictures:
            break
    return found


def with_sets(known: bytes, newer: bytes, most: int) -> bytes:
    """Parameter sets with newer ones behind them, equal ones once; of all the last `most` bytes."""
    return (known.replace(newer, b"") + newer)[-most:] if newer else known


class Tracker:
    """Follows one stream in decode order and judges each unit by the headers of all before it."""

    def __init__(self) -> None:
        self._state: str | None = BEFORE_KEYFRAME  # why pictures that need references are not clean now
        self._leading_state: str | None = BEFORE_KEYFRAME  # the same for leading pictures of the last entry

    def lost(self) -> None:
        """Something between the last unit and the next one is lost or cannot be read."""
        self._state = self._state or AFTER_LOSS
        self._leading_state = self._leading_state or self._state

    def unit(self, data: bytes) -> Unit:
        """Judge the next access unit."""
        try:
            return self._unit(data)
        except (ValueError, KeyError, IndexError):
            self.lost()
            return Unit(DAMAGED if self._state == AFTER_LOSS else self._state)

    def _unit(self, data: bytes) -> Unit:
        raise NotImplementedError

    def _enter(self, closed: bool) -> None:
        self._leading_state = None if closed else self._state
        self._state = None


@dataclass(frozen=True, slots=True)
class _SequenceSet:
    frame_number_bits: int
    order_bits: int  # of pic_order_cnt_lsb; 0 where decoding order is output order, or where it is not followed
    gaps_allowed: bool
    frames_only: bool
    separate_planes: bool


class H264(Tracker):
    """H.264: a gap in frame_num says that a reference is missing; recovery points are entries too."""

    def __init__(self) -> None:
        super().__init__()
        self._sequence_sets: dict[int, _SequenceSet] = {}
        self._picture_sets: dict[int, int] = {}
        self._frame_number: int | None = None  # of the last reference picture
        self._order = 0  # picture order count of the last reference picture
        self._recovery_order: int | None = None  # pictures of lower order are leading ones

    def _unit(self, data: bytes) -> Unit:
        recovery = False
        for nal in nal_units(data, PARAMETER_BYTES):
            kind = nal[0] & 31
            if kind == 7:
                number, values = _h264_sequence_set(_Bits(nal[1:]))
                self._sequence_sets[number] = values
            elif kind == 8:
                bits = _Bits(nal[1:HEADER_BYTES])
                number = bits.golomb()
                self._picture_sets[number] = bits.golomb()
            elif kind == 6:
                recovery = recovery or _recovers_at_once(nal)
            elif kind in (1, 2, 5):
                return self._slice(nal[:HEADER_BYTES], kind == 5, recovery)
        return Unit(NO_PICTURE)

    def _slice(self, nal: bytes, idr: bool, recovery: bool) -> Unit:
        bits = _Bits(nal[1:])
        bits.golomb()
        bits.golomb()
        values = self._sequence_sets[self._picture_sets[bits.golomb()]]
        if values.separate_planes:
            bits.read(2)
        frame_number = bits.read(values.frame_number_bits)
        field = not values.frames_only and bits.read(1)
        if field:
            bits.read(1)
        if idr:
            bits.golomb()
        reference = bool(nal[0] & 0x60)
        order = self._picture_order(bits, values, idr)
        if idr:
            self._recovery_order = None
            self._enter(closed=True)
        else:
            if self._missing(frame_number, values, bool(field)):
                self.lost()
            if recovery:
                self._recovery_order = order
                self._enter(closed=False)
        leading = False
        if self._recovery_order is not None and order is not None and not recovery:
            leading = order < self._recovery_order
            if not leading:
                self._recovery_order = None  # leading pictures come before any other
        if reference:
            self._frame_number = frame_number
            self._order = order or 0
        fault = self._leading_state if leading else self._state
        return Unit(fault, idr, idr or recovery, idr, leading, reference)

    def _missing(self, frame_number: int, values: _SequenceSet, field: bool) -> bool:
        if self._frame_number is None or values.gaps_allowed:
            return False
        due = (self._frame_number + 1) % (1 << values.frame_number_bits)
        return frame_number != due and not (field and frame_number == self._frame_number)

    def _picture_order(self, bits: _Bits, values: _SequenceSet, idr: bool) -> int | None:
        """Picture order count of type 0; None of the other types, where there are no leading pictures to tell."""
        if not values.order_bits:
            return None
        low, half = bits.read(values.order_bits), 1 << values.order_bits - 1
        if idr:
            return low
        return self._order + (low - self._order + half) % (2 * half) - half


class H265(Tracker):
    """H.265: NAL unit types say which pictures are entries and which are leading ones."""

    def __init__(self) -> None:
        super().__init__()
        self._sub_layers = True  # until a parameter set says that there is only one

    def _unit(self, data: bytes) -> Unit:
        for nal in nal_units(data, HEADER_BYTES):
            kind = nal[0] >> 1 & 63
            other_layer = nal[0] & 1 or nal[1] >> 3
            if kind == 33 and not other_layer:
                self._sub_layers = bool(nal[2] >> 1 & 7)
            if kind < 32 and not other_layer:
                return self._slice(nal, kind, data)
        return Unit(NO_PICTURE)

    def _slice(self, nal: bytes, kind: int, data: bytes) -> Unit:
        if not nal[2] & 0x80:
            raise ValueError("the first slice of the picture is missing")
        entry, closed = 16 <= kind <= 23, 16 <= kind <= 20
        if entry:
            self._enter(closed)
            if kind in (16, 17, 18):
                self._leading_state = BEFORE_KEYFRAME  # broken link: its leading pictures are never shown
        leading = kind in (8, 9)
        fault = self._leading_state if leading else self._state
        if data.endswith((b"\x00\x00\x01\x48\x01", b"\x00\x00\x01\x4a\x01")):  # end of sequence: start anew behind it
            self._state = BEFORE_KEYFRAME
        unused = kind < 16 and kind % 2 == 0 and not self._sub_layers  # no other picture of its layer refers to it
        return Unit(fault, 16 <= kind <= 21, entry, closed, leading, not unused)


def _recovers_at_once(nal: bytes) -> bool:
    """Whether a SEI NAL unit holds a recovery point with count 0."""
    data = nal[1:].replace(b"\x00\x00\x03", b"\x00\x00")
    at = 0
    while at + 2 < len(data):
        values = []
        for _ in range(2):
            value = 0
            while data[at] == 255:
                value, at = value + 255, at + 1
            values.append(value + data[at])
            at += 1
        kind, size = values
        if kind == 6:
            return bool(data[at] & 0x80)  # recovery_frame_cnt of 0 is the single bit 1
        at += size
    return False


def _h264_sequence_set(bits: _Bits) -> tuple[int, _SequenceSet]:
    profile = bits.read(8)
    bits.read(16)
    number = bits.golomb()
    separate = False
    if profile in (44, 83, 86, 100, 110, 118, 122, 128, 134, 135, 138, 139, 244):
        chroma = bits.golomb()
        separate = chroma == 3 and bool(bits.read(1))
        bits.golomb()
        bits.golomb()
        bits.read(1)
        if bits.read(1):
            for index in range(12 if chroma == 3 else 8):
                if bits.read(1):
                    _skip_scaling_list(bits, 16 if index < 6 else 64)
    frame_number_bits = bits.golomb() + 4
    order_type = bits.golomb()
    order_bits = 0
    if order_type == 0:
        order_bits = bits.golomb() + 4
    elif order_type == 1:
        bits.read(1)
        bits.signed()
        bits.signed()
        for _ in range(min(256, bits.golomb())):
            bits.signed()
    bits.golomb()
    gaps_allowed = bool(bits.read(1))
    bits.golomb()
    bits.golomb()
    if frame_number_bits > 16 or order_bits > 16:
        raise ValueError("no sequence parameter set")
    return number, _SequenceSet(frame_number_bits, order_bits, gaps_allowed, bool(bits.read(1)), separate)


def _skip_scaling_list(bits: _Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.signed()) % 256
        last = following or last
