# SPDX-License-Identifier: Apache-2.0
"""How long frames may wait for their turn: as long as it takes offline, not so while live, or once live ends."""

from __future__ import annotations

import enum
import math
import time

PATIENCE = 2.0
"""s a frame may wait for its turn while live; then it is left out, and whole groups of pictures need no decoding."""
BACKLOG = 1.0
"""s after the beginning of a capture within which frames of its backlog are complete."""
LAST_WORK = 3.0
"""s given to what still waits when a live capture ends; a node must be gone soon after it is told to."""


class State(enum.Enum):
    """What the messages come from, and whether more will come."""

    OFFLINE = enum.auto()
    """A recording waits: nothing is left out."""
    LIVE = enum.auto()
    """What comes cannot wait: a frame that has waited too long is left out."""
    DRAINING = enum.auto()
    """Live, and no more will come: nothing is left out, until the time for that is over."""


class Pace:
    """Tells which frames are left out because they, or the end of the capture, waited too long.

    Owns: `drain` belongs to the thread that pushes messages, `is_overdue` to the one that chooses frames; both `move`.
    Every attribute is one number or state, replaced as a whole.
    """

    def __init__(self, start_lag: float | None) -> None:
        """`start_lag`: s since the first message of a capture came, by which frames may wait longer; None: offline."""
        self._state = State.OFFLINE if start_lag is None else State.LIVE
        self._patience = PATIENCE + (start_lag or 0.0)
        self._began = self._moved = time.monotonic()
        self._deadline = math.inf

    def move(self) -> None:
        """Take note that what waits has moved on."""
        self._moved = time.monotonic()

    def drain(self) -> None:
        """Leave nothing out for a while: no more will come."""
        if self._state is State.LIVE:
            self._deadline = time.monotonic() + LAST_WORK
            self._state = State.DRAINING

    @property
    def standstill(self) -> float:
        """Seconds since something moved on."""
        return time.monotonic() - self._moved

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has moved on for so long that what comes must be left out, or the memory fills up."""
        return self._state is State.LIVE and self.standstill > self._patience

    @property
    def is_over(self) -> bool:
        """Whether the time to drain is over."""
        return time.monotonic() > self._deadline

    def is_overdue(self, complete: float) -> bool:
        """Whether a frame that was complete at `complete`, s of time.monotonic(), has waited too long."""
        waited = time.monotonic() - complete
        if math.isinf(complete) or (self._state is State.LIVE and waited > self._patience):
            return True
        if complete - self._began > BACKLOG and waited <= PATIENCE:
            self._patience = PATIENCE  # the backlog is worked off
        return False
