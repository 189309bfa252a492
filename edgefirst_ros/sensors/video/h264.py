# SPDX-License-Identifier: Apache-2.0
"""H.264: its headers, and the effect of a gap in frame_num and of a recovery point on the pictures after them.

Source: ITU-T H.264 7.3 and 7.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edgefirst_ros.sensors.video.bitstream import SET_BYTES, Bits, Buffer, HeaderReader, SliceHeader, Tracker, peek_nal


@dataclass(frozen=True, slots=True)
class H264Slice(SliceHeader):
    """The first slice header of a picture, with facts of its sequence parameter set."""

    recovery: bool
    """A recovery point with count 0 comes with it."""
    field: bool
    frame_number: int
    frame_number_bits: int
    gaps_allowed: bool
    order: int | None
    """pic_order_cnt_lsb; None of order types 1 and 2, which have no leading pictures to identify."""
    order_bits: int


class _SequenceSet(NamedTuple):
    nal: bytes
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
        self._picture_sets: dict[int, tuple[int, bool]] = {}  # the sequence parameter set, and whether it is CAVLC
        self._recovery = False

    def _begin(self) -> None:
        self._recovery = False

    def _kind(self, first: int) -> int:
        return first & 31

    def _add_unit(self, kind: int, data: Buffer, begin: int) -> H264Slice | None:
        if kind == 7:
            number, values = _parse_sequence_set(peek_nal(data, begin, SET_BYTES))
            self._sequence_sets[number] = values
        elif kind == 8:
            bits = Bits(peek_nal(data, begin)[1:])
            number = bits.golomb()
            self._picture_sets[number] = bits.golomb(), not bits.read(1)
        elif kind == 6:
            self._recovery = self._recovery or _recovers_at_once(peek_nal(data, begin, SET_BYTES))
        elif kind in self.pictures:
            return self._slice(peek_nal(data, begin), kind == 5)
        return None

    def _slice(self, nal: bytes, idr: bool) -> H264Slice:
        bits = Bits(nal[1:])
        bits.golomb()
        bits.golomb()
        sequence_set, cavlc = self._picture_sets[bits.golomb()]
        values = self._sequence_sets[sequence_set]
        if values.separate_planes:
            bits.read(2)
        frame_number = bits.read(values.frame_number_bits)
        field = bool(not values.frames_only and bits.read(1))
        if field:
            bits.read(1)
        if idr:
            bits.golomb()
        return H264Slice(
            keyframe=idr, entry=idr or self._recovery, closed=idr, reference=bool(nal[0] & 0x60),
            leaves_traces=cavlc,  # libavcodec takes coefficients of a broken block over into the next one
            sequence_set=values.nal, recovery=self._recovery, field=field, frame_number=frame_number,
            frame_number_bits=values.frame_number_bits, gaps_allowed=values.gaps_allowed,
            order=bits.read(values.order_bits) if values.order_bits else None, order_bits=values.order_bits,
        )  # fmt: skip


class H264Tracker(Tracker):
    """H.264: a gap in frame_num says that a reference is missing; recovery points are entries too."""

    def __init__(self) -> None:
        super().__init__()
        self._frame_number: int | None = None  # of the last reference picture
        self._order = 0  # picture order count of the last reference picture
        self._recovery_order: int | None = None  # pictures of lower order are leading ones

    def _follow(self, picture: H264Slice) -> tuple[str | None, bool]:
        order = picture.order
        if order is not None and not picture.keyframe:  # only its lowest bits are sent
            half = 1 << picture.order_bits - 1
            order = self._order + (order - self._order + half) % (2 * half) - half
        if picture.keyframe:
            self._recovery_order = None
            self._enter(closed=True)
        else:
            due = ((self._frame_number or 0) + 1) % (1 << picture.frame_number_bits)
            known = self._frame_number is None or picture.gaps_allowed or picture.frame_number == due
            if not known and not (picture.field and picture.frame_number == self._frame_number):
                self._break()  # a reference is missing
            if picture.recovery:
                self._recovery_order = order
                self._enter(closed=False)
        leading = False
        if self._recovery_order is not None and order is not None and not picture.recovery:
            leading = order < self._recovery_order
            if not leading:
                self._recovery_order = None  # leading pictures come before any other
        if picture.reference:
            self._frame_number = picture.frame_number
            self._order = order or 0
        return self._leading_state if leading else self._state, leading


def _recovers_at_once(nal: bytes) -> bool:
    """True if a SEI NAL unit holds a recovery point with count 0."""
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


def _parse_sequence_set(nal: bytes) -> tuple[int, _SequenceSet]:
    bits = Bits(nal[1:])
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
                last = following = 8 if bits.read(1) else 0
                for _ in range(16 if index < 6 else 64):
                    if following:
                        following = (last + bits.read_signed()) % 256
                    last = following or last
    frame_number_bits = bits.golomb() + 4
    order_type = bits.golomb()
    order_bits = 0
    if order_type == 0:
        order_bits = bits.golomb() + 4
    elif order_type == 1:
        bits.read(1)
        bits.read_signed()
        bits.read_signed()
        for _ in range(min(256, bits.golomb())):
            bits.read_signed()
    bits.golomb()
    gaps_allowed = bool(bits.read(1))
    bits.golomb()
    bits.golomb()
    if frame_number_bits > 16 or order_bits > 16:
        raise ValueError("no sequence parameter set")
    frames_only = bool(bits.read(1))
    return number, _SequenceSet(nal.rstrip(b"\0"), frame_number_bits, order_bits, gaps_allowed, frames_only, separate)
