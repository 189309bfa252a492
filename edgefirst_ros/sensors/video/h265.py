# SPDX-License-Identifier: Apache-2.0
"""H.265: what its headers say, and which pictures are entries and which are leading ones.

Source: ITU-T H.265 7.3, 7.4 and 8.1.3.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from edgefirst_ros.counts import BEFORE_KEYFRAME
from edgefirst_ros.sensors.video.bitstream import SET_BYTES, Bits, Buffer, HeaderReader, SliceHeader, Tracker, peek_nal


@dataclass(frozen=True, slots=True)
class H265Slice(SliceHeader):
    """The first slice header of a picture."""

    kind: int
    """NAL unit type."""
    ends_sequence: bool
    """An end of sequence or bitstream is after the picture."""


class H265Headers(HeaderReader):
    """Headers of H.265."""

    sets = (32, 33, 34)
    pictures = range(32)

    def __init__(self) -> None:
        self._sub_layers = True  # until a parameter set states only one
        self._sequence_sets: dict[int, bytes] = {}
        self._picture_sets: dict[int, int] = {}

    def _kind(self, first: int) -> int:
        return first >> 1 & 63

    def _add_unit(self, kind: int, data: Buffer, begin: int) -> H265Slice | None:
        nal = peek_nal(data, begin)
        if nal[0] & 1 or nal[1] >> 3:  # another layer
            return None
        if kind == 33:
            self._sub_layers = bool(nal[2] >> 1 & 7)
            self._add_sequence_set(peek_nal(data, begin, SET_BYTES))
        elif kind == 34:
            with contextlib.suppress(ValueError):  # the decoder reports it where it is used
                bits = Bits(nal[2:])
                number = bits.golomb()
                self._picture_sets[number] = bits.golomb()
        if kind >= 32:
            return None
        if not nal[2] & 0x80:
            raise ValueError("the first slice of the picture is missing")
        ends = bytes(data[-5:]) in (b"\x00\x00\x01\x48\x01", b"\x00\x00\x01\x4a\x01")
        unused = kind < 16 and kind % 2 == 0 and not self._sub_layers  # no other picture of its layer refers to it
        return H265Slice(
            keyframe=16 <= kind <= 21, entry=16 <= kind <= 23, closed=16 <= kind <= 20, reference=not unused,
            leaves_traces=False, sequence_set=self._set_in_use(nal, kind), kind=kind, ends_sequence=ends,
        )  # fmt: skip

    def _add_sequence_set(self, nal: bytes) -> None:
        with contextlib.suppress(ValueError):  # the decoder reports it where it is used
            bits = Bits(nal[2:])
            bits.read(4)
            layers = bits.read(3)
            bits.read(1 + 96)  # profile and level of all layers together
            has = [(bits.read(1), bits.read(1)) for _ in range(layers)]
            bits.read(2 * (8 - layers) if layers else 0)
            for profile, level in has:
                bits.read(88 * profile + 8 * level)
            self._sequence_sets[bits.golomb()] = nal.rstrip(b"\0")

    def _set_in_use(self, nal: bytes, kind: int) -> bytes | None:
        """Return the sequence parameter set that a slice refers to; None where it was not seen."""
        bits = Bits(nal[2:])
        try:
            bits.read(2 if 16 <= kind <= 23 else 1)
            return self._sequence_sets.get(self._picture_sets[bits.golomb()])
        except (ValueError, KeyError):
            return None


class H265Tracker(Tracker):
    """H.265: NAL unit types say which pictures are entries and which are leading ones."""

    def _follow(self, picture: H265Slice) -> tuple[str | None, bool]:
        if picture.entry:
            self._enter(picture.closed)
            if picture.kind in (16, 17, 18):
                self._leading_state = BEFORE_KEYFRAME  # broken link: its leading pictures are never shown
        leading = picture.kind in (8, 9)
        fault = self._leading_state if leading else self._state
        if picture.ends_sequence:  # the next picture begins a new sequence
            self._state = BEFORE_KEYFRAME
        return fault, leading
