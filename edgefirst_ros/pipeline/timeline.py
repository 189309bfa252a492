# SPDX-License-Identifier: Apache-2.0
"""Place of a message in its sequence: running time, frame number, segment and alignment epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from edgefirst_ros.messages import Message
from edgefirst_ros.sync.clock import RunningClock, Segments


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
        self._sequence: int | None = None

    def tick(self, message: Message) -> int:
        """Return the running time of the recording at a message, in ns."""
        return self._clock.tick(message.log_time)

    def next_frame(self, message: Message) -> tuple[int, bool]:
        """Return the frame number of the next reference message, and whether a message before it is missing."""
        number, last = self.frames, self._sequence
        self.frames, self._sequence = number + 1, message.sequence
        return number, self._numbered and last is not None and message.sequence != last + 1

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
