# SPDX-License-Identifier: Apache-2.0
"""Sets of members and frames, one bit each, for drives of any length; new messages of companions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from edgefirst_ros.dataset.names import KINDS, Member, member_name, parse_member
from edgefirst_ros.errors import DatasetError

_PAGE = 512
_FRAME = 8 * -(-len(KINDS) // 8)
"""Bits that a frame has: one for each kind of member, as whole bytes."""


class MemberIndex:
    """Set of members. `recent` are the names added since it was last cleared."""

    def __init__(self) -> None:
        self.recent: list[str] = []
        self._pages: dict[tuple[str, int], bytearray] = {}

    def add(self, name: str) -> Member:
        """Add a member; raises DatasetError for an invalid name or one that was added before."""
        member = parse_member(name)
        if member is None or member_name(member.sequence, member.frame, member.kind) != name:
            raise DatasetError(f"{name!r} is not a member name; expected SEQUENCE/SEQUENCE_FRAME.KIND")
        if not self.note(member):
            raise DatasetError(f"{name} was written before; frame numbers must not repeat")
        self.recent.append(name)
        return member

    def note(self, member: Member) -> bool:
        """Add a member; return False if it was added before."""
        bits, place, bit = self._bit(member)
        if bits[place] & bit:
            return False
        bits[place] |= bit
        return True

    def kinds(self, sequence: str, frame: int) -> frozenset[str]:
        """Return the kinds of members that a frame has."""
        page, place = divmod(frame, _PAGE)
        bits = self._pages.get((sequence, page), b"")
        found = int.from_bytes(bits[place * _FRAME // 8 : (place + 1) * _FRAME // 8], "little")
        return frozenset(kind for n, kind in enumerate(KINDS) if found >> n & 1)

    def undo(self) -> list[str]:
        """Remove the recent members; return their names."""
        names, self.recent = self.recent, []
        for member in filter(None, map(parse_member, names)):
            bits, place, bit = self._bit(member)
            bits[place] &= ~bit
        return names

    def _bit(self, member: Member) -> tuple[bytearray, int, int]:
        """Return the page that holds a member's bit, the index of the byte in it, and the bit mask."""
        page, frame = divmod(member.frame, _PAGE)
        bits = self._pages.setdefault((member.sequence, page), bytearray(_PAGE * _FRAME // 8))
        place, bit = divmod(frame * _FRAME + KINDS.index(member.kind), 8)
        return bits, place, 1 << bit


class FrameSet:
    """A set of (sequence, frame), one bit each."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], int] = {}

    def add(self, sequence: str, frame: int) -> None:
        """Add a frame."""
        page, place = divmod(frame, _PAGE)
        self._pages[sequence, page] = self._pages.get((sequence, page), 0) | 1 << place

    def __bool__(self) -> bool:
        return bool(self._pages)

    def __contains__(self, frame: tuple[str, int]) -> bool:
        page, place = divmod(frame[1], _PAGE)
        return bool(self._pages.get((frame[0], page), 0) >> place & 1)


class NewMessages:
    """Finds new companion messages: one message can belong to several consecutive samples."""

    def __init__(self) -> None:
        self._last: dict[str, object] = {}

    def of(self, row: Mapping[str, object]) -> list[str]:
        """Return the companions, by column, whose message in the next frames row was in no row before."""
        found = []
        for column, stamp in row.items():
            base = column.removesuffix("_timestamp")
            if base != column and stamp is not None and stamp != self._last.get(base):
                self._last[base] = stamp
                found.append(base)
        return found


def keys_of(batch: pa.RecordBatch) -> Iterator[tuple[str, int]]:
    """Yield (sequence, frame) of every row of either table."""
    return zip(batch["name"].to_pylist(), batch["frame"].to_pylist(), strict=True)
