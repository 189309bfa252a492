# SPDX-License-Identifier: Apache-2.0
"""The span of a recording that becomes samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from edgefirst_ros.sync.clock import SECOND


@dataclass(frozen=True, slots=True)
class Cut:
    """Span of reference stamps from `begin` to before `end`, ns; FRAME stays the number in the recording."""

    begin: int
    end: int
    last: int = -1
    """Number of the last reference message inside, in recorded order; -1 without any."""
    undecodable: tuple[int, ...] = ()
    """Sorted numbers of undecodable reference messages."""
    frames: int = 0
    """Number of reference messages in the whole recording."""
    note: str = ""
    """Note to the user, if nothing lies inside."""

    @classmethod
    def of(cls, span: tuple[int, int], stamps: Iterable[tuple[int, int]], frames: int) -> Cut:
        """Return the cut with that `span`; `stamps`: (number, stamp in ns) of every message that can be decoded."""
        last, readable, ends = -1, set[int](), [1 << 63, -(1 << 63)]
        for number, stamp in stamps:
            readable.add(number)
            last = max(last, number) if span[0] <= stamp < span[1] else last
            ends = [min(ends[0], stamp), max(ends[1], stamp)]
        undecodable = tuple(number for number in range(frames) if number not in readable)
        note = (
            f"no frame lies between start and end: stamps go from {_utc(ends[0])} to {_utc(ends[1])}, "
            f"{(ends[1] - ends[0]) / SECOND:.3f} s"
            if readable and last < 0
            else ""
        )
        return cls(*span, last, undecodable, frames, note)

    def holds(self, stamp: int) -> bool:
        """True if a stamp in ns lies inside."""
        return self.begin <= stamp < self.end

    def left(self, frames: int) -> tuple[int, int]:
        """Return how many decodable and undecodable messages follow the first `frames`."""
        broken = sum(number >= frames for number in self.undecodable)
        return max(0, self.frames - frames) - broken, broken


def _utc(stamp: int) -> str:
    seconds, rest = divmod(stamp, SECOND)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03}Z"
