# SPDX-License-Identifier: Apache-2.0
"""How long frames may wait: without limit offline, for seconds while live and at the end of a capture."""

from __future__ import annotations

import enum
import math
import time

PATIENCE = 2.0
"""s a frame may wait while live; then it is left out, and whole groups of pictures need no decoding."""
BACKLOG = 1.0
"""s after the start of a capture within which the frames of its backlog are complete."""
LAST_WORK = 3.0
"""s given to waiting frames when a live capture ends; a node must end soon after it is told to."""


class State(enum.Enum):
    """Kind of source, and whether more messages will come."""

    OFFLINE = enum.auto()
    """A recording can wait: nothing is left out."""
    LIVE = enum.auto()
    """Live messages cannot wait: a frame that waited too long is left out."""
    DRAINING = enum.auto()
    """Live, and no more messages will come: nothing is left out until the time for that is over."""


class Pace:
    """Decides which frames are left out because they, or the end of the capture, waited too long.

    Owns: `drain` belongs to the thread that pushes messages, `is_overdue` to the one that chooses frames; both `move`.
    Every attribute is one number or state, replaced as a whole.
    """

    def __init__(self, start_lag: float | None) -> None:
        """`start_lag`: s since the first message of a capture came, for which frames may wait longer; None: offline."""
        self._state = State.OFFLINE if start_lag is None else State.LIVE
        self._patience = PATIENCE + (start_lag or 0.0)
        self._began = self._moved = time.monotonic()
        self._deadline = math.inf

    def move(self) -> None:
        """Note progress of what waits."""
        self._moved = time.monotonic()

    def drain(self) -> None:
        """Leave nothing out for a while: no more messages will come."""
        if self._state is State.LIVE:
            self._deadline = time.monotonic() + LAST_WORK
            self._state = State.DRAINING

    @property
    def standstill(self) -> float:
        """Time since the last progress, s."""
        return time.monotonic() - self._moved

    @property
    def is_stuck(self) -> bool:
        """True if there was no progress for so long that messages must be left out, or memory fills up."""
        return self._state is State.LIVE and self.standstill > self._patience

    @property
    def is_over(self) -> bool:
        """True if the time to drain is over."""
        return time.monotonic() > self._deadline

    def is_overdue(self, complete: float) -> bool:
        """True if a frame that was complete at `complete`, s of time.monotonic(), waited too long."""
        waited = time.monotonic() - complete
        if math.isinf(complete) or (self._state is State.LIVE and waited > self._patience):
            return True
        if complete - self._began > BACKLOG and waited <= PATIENCE:
            self._patience = PATIENCE  # the backlog is worked off
        return False
