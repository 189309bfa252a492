# SPDX-License-Identifier: Apache-2.0
"""What the headers of an H.264 or H.265 access unit say by themselves: parameter sets, and the first slice header.

Each access unit is read once, up to its first slice header; `tracker` judges from that whether its picture is clean.
What cannot be seen there (a missing reference of H.265, wrong bytes inside a slice) the decoder notices.
Source: ITU-T H.264 7.3 and 7.4.3, H.265 7.3.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass

Buffer = bytes | memoryview
START_CODE = b"\x00\x00\x01"
_START = re.compile(START_CODE, re.DOTALL)
HEADER_BYTES = 96  # enough for every slice header read here
PARAMETER_BYTES = 4096
LARGEST_SETS = 1 << 16
"""Bytes of parameter sets kept, wherever they are kept: those of a camera are some hundred."""


@dataclass(frozen=True, slots=True)
class H264Slice:
    """The first slice header of a picture of H.264, with what its sequence parameter set says of it."""

    keyframe: bool
    """NAL unit type 5 (IDR)."""
    recovery: bool
    """A recovery point with count 0 comes with it."""
    reference: bool
    """Other pictures may depend on it."""
    field: bool
    frame_number: int
    frame_number_bits: int
    gaps_allowed: bool
    order: int | None
    """pic_order_cnt_lsb; None of order types 1 and 2, where there are no leading pictures to tell."""
    order_bits: int

    @property
    def entry(self) -> bool:
        """Whether decoding can start here."""
        return self.keyframe or self.recovery

    @property
    def closed(self) -> bool:
        """Whether nothing behind it refers to anything before it."""
        return self.keyframe


@dataclass(frozen=True, slots=True)
class H265Slice:
    """The first slice header of a picture of H.265."""

    kind: int
    """NAL unit type."""
    reference: bool
    """Other pictures of its layer may depend on it."""
    ends_sequence: bool
    """An end of sequence or bitstream stands behind the picture."""

    @property
    def keyframe(self) -> bool:
        """NAL unit types 16 to 21."""
        return 16 <= self.kind <= 21

    @property
    def entry(self) -> bool:
        """Whether decoding can start here."""
        return 16 <= self.kind <= 23

    @property
    def closed(self) -> bool:
        """Whether nothing that is shown behind it refers to anything before it."""
        return 16 <= self.kind <= 20


@dataclass(frozen=True, slots=True)
class UnitHeaders:
    """What the headers of one access unit say."""

    sets: bytes
    """Parameter sets in front of its first slice, with start codes; empty where it has none."""
    picture: H264Slice | H265Slice | None
    """None where it has no picture, or its headers cannot be read."""
    damaged: bool = False
    """Whether its headers cannot be read."""

    @property
    def entry(self) -> bool:
        """Whether decoding can start with it."""
        return self.picture is not None and self.picture.entry

    @property
    def closed(self) -> bool:
        """Whether decoding can start with it, and nothing behind it refers to anything before it."""
        return self.picture is not None and self.picture.closed


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


def _nal(data: Buffer, begin: int, longest: int) -> bytes:
    """The NAL unit that begins there, cut to `longest` bytes."""
    head = bytes(data[begin : begin + longest + len(START_CODE) - 1])
    end = head.find(START_CODE)
    return head[: longest if end < 0 else min(end, longest)]


def nal_units(data: Buffer) -> Iterator[int]:
    """Where the NAL units of an Annex-B access unit begin, behind their start codes; found as they are asked for."""
    for match in _START.finditer(data):
        begin = match.end()
        if begin < len(data) and data[begin : begin + len(START_CODE)] != START_CODE:
            yield begin


def with_sets(known: bytes, newer: bytes) -> bytes:
    """Parameter sets with newer ones behind them, equal ones once; of all the last `LARGEST_SETS` bytes."""
    return (known.replace(newer, b"") + newer)[-LARGEST_SETS:] if newer else known


class HeaderReader:
    """Reads the headers of one stream's access units, which must come in decode order: later ones need earlier sets."""

    sets: Container[int]
    """NAL unit types of parameter sets."""
    pictures: Container[int]
    """NAL unit types of slices."""

    def read(self, data: Buffer) -> UnitHeaders:
        """Read the next access unit."""
        self._begin()
        sets, ahead, damaged = b"", True, False
        picture: H264Slice | H265Slice | None = None
        for begin in nal_units(data):
            kind = self._kind(data[begin])
            if ahead and kind in self.sets:
                behind = _START.search(data, begin)
                sets += b"\x00" + START_CODE + data[begin : behind.start() if behind is not None else len(data)]
            ahead = ahead and kind not in self.pictures
            if not damaged:
                try:
                    picture = self._take(kind, data, begin)
                except (ValueError, KeyError, IndexError):
                    damaged = True
            if picture is not None or (damaged and not ahead):
                break
        return UnitHeaders(sets, picture, damaged)

    def _begin(self) -> None:
        """Begin an access unit."""

    def _kind(self, first: int) -> int:
        """NAL unit type, by the first byte."""
        raise NotImplementedError

    def _take(self, kind: int, data: Buffer, begin: int) -> H264Slice | H265Slice | None:
        """Take note of a NAL unit; what its slice header says, if it is the first slice."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _SequenceSet:
    frame_number_bits: int
    order_bits: int  # of pic_order_cnt_lsb; 0 where decoding order is output order, or where it is not followed
    gaps_allowed: bool
    frames_only: bool
    separate_planes: bool


class H264Headers(HeaderReader):
    """Headers of H.264."""

    sets = (7, 8)
    pictures = (1, 2, 5)

    def __init__(self) -> None:
        self._sequence_sets: dict[int, _SequenceSet] = {}
        self._picture_sets: dict[int, int] = {}
        self._recovery = False

    def _begin(self) -> None:
        self._recovery = False

    def _kind(self, first: int) -> int:
        return first & 31

    def _take(self, kind: int, data: Buffer, begin: int) -> H264Slice | None:
        if kind == 7:
            number, values = _h264_sequence_set(_Bits(_nal(data, begin, PARAMETER_BYTES)[1:]))
            self._sequence_sets[number] = values
        elif kind == 8:
            bits = _Bits(_nal(data, begin, HEADER_BYTES)[1:])
            number = bits.golomb()
            self._picture_sets[number] = bits.golomb()
        elif kind == 6:
            self._recovery = self._recovery or _recovers_at_once(_nal(data, begin, PARAMETER_BYTES))
        elif kind in self.pictures:
            return self._slice(_nal(data, begin, HEADER_BYTES), kind == 5)
        return None

    def _slice(self, nal: bytes, idr: bool) -> H264Slice:
        bits = _Bits(nal[1:])
        bits.golomb()
        bits.golomb()
        values = self._sequence_sets[self._picture_sets[bits.golomb()]]
        if values.separate_planes:
            bits.read(2)
        frame_number = bits.read(values.frame_number_bits)
        field = bool(not values.frames_only and bits.read(1))
        if field:
            bits.read(1)
        if idr:
            bits.golomb()
        return H264Slice(
            keyframe=idr,
            recovery=self._recovery,
            reference=bool(nal[0] & 0x60),
            field=field,
            frame_number=frame_number,
            frame_number_bits=values.frame_number_bits,
            gaps_allowed=values.gaps_allowed,
            order=bits.read(values.order_bits) if values.order_bits else None,
            order_bits=values.order_bits,
        )


class H265Headers(HeaderReader):
    """Headers of H.265."""

    sets = (32, 33, 34)
    pictures = range(32)

    def __init__(self) -> None:
        self._sub_layers = True  # until a parameter set says that there is only one

    def _kind(self, first: int) -> int:
        return first >> 1 & 63

    def _take(self, kind: int, data: Buffer, begin: int) -> H265Slice | None:
        nal = _nal(data, begin, HEADER_BYTES)
        if nal[0] & 1 or nal[1] >> 3:  # another layer
            return None
        if kind == 33:
            self._sub_layers = bool(nal[2] >> 1 & 7)
        if kind >= 32:
            return None
        if not nal[2] & 0x80:
            raise ValueError("the first slice of the picture is missing")
        ends = bytes(data[-5:]) in (b"\x00\x00\x01\x48\x01", b"\x00\x00\x01\x4a\x01")
        unused = kind < 16 and kind % 2 == 0 and not self._sub_layers  # no other picture of its layer refers to it
        return H265Slice(kind, not unused, ends)


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
