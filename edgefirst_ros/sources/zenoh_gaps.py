# SPDX-License-Identifier: Apache-2.0
"""Counts lost messages of a topic: exactly by sequence numbers, else estimated by gaps of stamps."""

from __future__ import annotations

from collections import deque
from statistics import median_low

from edgefirst_ros.sources.zenoh_keys import Attached

STEP = 1.5
"""Times the usual interval from which on a gap between stamps is a loss."""
INTERVALS = 31
"""Newest intervals whose median is the usual one."""
FEWEST = 4
"""Intervals that tell what is usual."""
CLOCK = 5_000_000_000
"""ns; a longer gap of stamps in less than half of which it came is a clock that was set."""
MOST = 1 << 20
"""A larger gap of numbers is no loss: somebody counts anew."""
PUBLISHERS = 16
"""Publishers of a topic whose numbers are kept."""


class Gaps:
    """Counts what is missing before each message of one topic.

    Owns: the thread that hands messages on calls it.
    """

    def __init__(self, *, by_stamps: bool) -> None:
        """`by_stamps`: whether gaps of stamps mean anything; of what is repeated now and then they do not."""
        self._by_stamps = by_stamps
        self._numbers: dict[bytes, int] = {}
        self._intervals: deque[int] = deque(maxlen=INTERVALS)
        self._stamp: int | None = None
        self._now = 0

    def take(self, stamp: int | None, now: int, attached: Attached | None, dropped: int) -> tuple[int, int, bool]:
        """Return how many are missing before a message, known and guessed, and whether another publisher sent it.

        `stamp`: its own, ns; `now`: when it came, ns of time.monotonic_ns(); `dropped`: how many were left out here.
        """
        if attached is not None:
            last = self._numbers.pop(attached.gid, None)
            new = last is None and bool(self._numbers)
            self._numbers[attached.gid] = attached.sequence
            while len(self._numbers) > PUBLISHERS:
                del self._numbers[next(iter(self._numbers))]
            missing = attached.sequence - last - 1 if last is not None else 0
            if missing > MOST:
                new, missing = True, 0
            return max(missing, dropped), 0, new
        return dropped, max(0, self._missing_by_stamp(stamp, now) - dropped), False

    def _missing_by_stamp(self, stamp: int | None, now: int) -> int:
        if stamp is None or not self._by_stamps:
            return 0
        before, came = self._stamp, self._now
        self._stamp, self._now = stamp, now
        if before is None or stamp <= before:
            return 0
        gap = stamp - before
        if gap > CLOCK and now - came < gap // 2:
            return 0
        usual = median_low(self._intervals) if len(self._intervals) >= FEWEST else 0
        self._intervals.append(gap)
        if not usual or gap <= STEP * usual:
            return 0
        return round(gap / usual) - 1
