# SPDX-License-Identifier: Apache-2.0
"""Place of a message in its sequence: running time, frame number, segment and alignment epoch."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from types import MappingProxyType

from edgefirst_ros.messages import Message
from edgefirst_ros.sync.clock import RunningClock, Segments, lower_median

USUAL = 31
"""Latest steps of the reference's stamps whose median is its usual interval."""


class Timeline:
    """Numbers the messages of the reference topic, and separates segments where its clock was set.

    `overlapping`: the segments that share a time with another or come near it, as a clock set back makes them; None
    where that is not known beforehand (live): then every clock set back begins an epoch of its own. `preceded`: as
    `Segments.preceded` gives it. `numbered`: a step other than 1 in the reference topic's sequence numbers means a
    loss.
    """

    def __init__(
        self,
        overlapping: Collection[int] | None,
        preceded: Mapping[int, int] = MappingProxyType({}),
        *,
        numbered: bool,
    ) -> None:
        self._overlapping = overlapping
        self._preceded = {n: end for n, end in preceded.items() if overlapping is not None and n not in overlapping}
        self._numbered = numbered
        self._clock = RunningClock()
        self._segments = Segments()
        self.frames = 0
        """Reference messages so far."""
        self._last: tuple[int, int, int] | None = None
        """File, sequence number and stamp of the last one."""
        self._steps: deque[int] = deque(maxlen=USUAL)
        """Latest steps of the stamps, ns."""

    def tick(self, message: Message, stamp: int | None = None) -> int:
        """Return the running time of the recording at a message, ns; `stamp`: of one of the reference topic."""
        return self._clock.tick(message.log_time, stamp)

    def next_frame(self, message: Message, stamp: int) -> tuple[int, bool]:
        """Return the frame number of the next reference message, and whether a message before it is missing.

        Its `stamp` in ns tells so where its publisher was started again; numbers of different files are not compared.
        """
        number, last = self.frames, self._last
        self.frames, self._last = number + 1, (message.file, message.sequence, stamp)
        if last is None:
            return number, False
        step, pause = message.sequence - last[1], stamp - last[2]
        lost = self._numbered and message.file == last[0] and step != 1
        if lost and step < 1:
            lost = bool(self._steps) and 2 * pause > 3 * lower_median(self._steps)
        self._steps.append(pause)
        return number, lost

    def segment(self, stamp: int) -> int:
        """Return the segment of the next reference message that can be decoded; its stamp in ns."""
        return self._segments.add(stamp)

    def may_need_later(self, segment: int, stamp: int) -> bool:
        """True if the position at a stamp of a segment may depend on a fix recorded in a later one."""
        return segment in self._preceded and stamp <= self._preceded[segment]

    @property
    def epoch(self) -> int:
        """The alignment epoch: where segments overlap in time, messages join only those recorded in the same one."""
        if self._overlapping is None:
            return self._segments.set_back
        current = self._segments.current
        return current if current in self._overlapping else -1
