# SPDX-License-Identifier: Apache-2.0
"""Headers of an H.264 or H.265 access unit: parameter sets, and the first slice header.

Each access unit is read once, up to its first slice header; `tracker` judges from that whether its picture is clean.
What cannot be seen there (a missing reference of H.265, wrong bytes inside a slice) the decoder notices.
Source: ITU-T H.264 7.3, H.265 7.3; Annex B of both.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Buffer = bytes | memoryview
START_CODE = b"\x00\x00\x01"
_START = re.compile(START_CODE, re.DOTALL)
HEADER_BYTES = 96
"""Bytes of a NAL unit that are enough for every slice header and picture parameter set read here."""
PARAMETER_BYTES = 4096
"""Bytes of a sequence parameter set or SEI message that are read."""
LARGEST_SETS = 1 << 16
"""Bytes of parameter sets kept, wherever they are kept: those of a camera are some hundred."""


@dataclass(frozen=True, slots=True)
class SliceHeader:
    """Fields of the first slice header of a picture, common to both codecs."""

    keyframe: bool
    """H.264: NAL unit type 5; H.265: types 16 to 21."""
    entry: bool
    """Decoding can start here."""
    closed: bool
    """Besides, nothing that is shown behind it refers to anything before it."""
    reference: bool
    """Other pictures may depend on it."""
    leaves_traces: bool
    """Damage to it may show in the next picture, whether that depends on it or not."""
    sequence_set: bytes | None
    """The sequence parameter set it uses, as it was sent; None where that is not known."""


class UnitHeaders(NamedTuple):
    """Headers of one access unit."""

    sets: bytes
    """Parameter sets in front of its first slice, with start codes; empty where it has none."""
    picture: SliceHeader | None
    """None where it has no picture, or its headers cannot be read."""
    damaged: bool = False
    """True if its headers cannot be read."""

    @property
    def entry(self) -> bool:
        """True if decoding can start with it."""
        return self.picture is not None and self.picture.entry

    @property
    def closed(self) -> bool:
        """True if decoding can start with it, and nothing behind it refers to anything before it."""
        return self.picture is not None and self.picture.closed


class Bits:
    """Bits and Exp-Golomb codes of a NAL unit, emulation prevention removed."""

    def __init__(self, payload: bytes) -> None:
        data = payload.replace(b"\x00\x00\x03", b"\x00\x00")
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8

    def read(self, count: int) -> int:
        """Return an unsigned number of so many bits; raises ValueError behind the end."""
        if count > self._left:
            raise ValueError("the header ends early")
        self._left -= count
        return self._value >> self._left & (1 << count) - 1

    def golomb(self) -> int:
        """Return an unsigned Exp-Golomb code; raises ValueError where there is none."""
        zeros = 0
        while not self.read(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("no Exp-Golomb code")
        return (1 << zeros) - 1 + self.read(zeros)

    def signed(self) -> int:
        """Return a signed Exp-Golomb code; raises ValueError where there is none."""
        code = self.golomb()
        return (code + 1) // 2 if code & 1 else -(code // 2)


def nal_head(data: Buffer, begin: int, longest: int) -> bytes:
    """Return the NAL unit that begins there, cut to `longest` bytes."""
    head = bytes(data[begin : begin + longest + len(START_CODE) - 1])
    end = head.find(START_CODE)
    return head[: longest if end < 0 else min(end, longest)]


def nal_units(data: Buffer) -> Iterator[int]:
    """Give where the NAL units of an Annex-B access unit begin, behind their start codes, as they are asked for."""
    for match in _START.finditer(data):
        begin = match.end()
        if begin < len(data) and data[begin : begin + len(START_CODE)] != START_CODE:
            yield begin


def with_sets(known: bytes, newer: bytes) -> bytes:
    """Return parameter sets with newer ones behind them, equal ones once; of all the last `LARGEST_SETS` bytes."""
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
        picture: SliceHeader | None = None
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

    def _take(self, kind: int, data: Buffer, begin: int) -> SliceHeader | None:
        """Take note of a NAL unit; what its slice header says, if it is the first slice."""
        raise NotImplementedError
