# SPDX-License-Identifier: Apache-2.0
"""When samples are committed: soon where the disk is quick, and never so often that it does nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SOONEST = 0.4
"""s from one commit to the next where the disk is quick."""
_SPARE = 20
"""Times that a commit took which go by before the next one: a slow disk is not kept busy with them."""


class CommitPace:
    """Says when the next commit is due. Owned by the thread that writes; others may read `age`."""

    def __init__(self, interval: float) -> None:
        """`interval`: s from one commit to the next at most."""
        self._interval = interval
        self._due = min(interval, _SOONEST)
        self._last = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the last commit."""
        return time.monotonic() - self._last

    def is_due(self, age: float, *, keyframe: bool) -> bool:
        """True if a commit is due `age` s after the last one; at a keyframe after half the time."""
        return (age * 2 if keyframe else age) >= self._due

    def restart(self) -> None:
        """Count from now."""
        self._last = time.monotonic()

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Take note of a commit that is made inside and how long it takes, unless it fails."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._due = min(self._interval, max(_SOONEST, _SPARE * (self._last - began)))
