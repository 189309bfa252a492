# SPDX-License-Identifier: Apache-2.0
"""Interval of commits: short on a fast disk, and never so short that a slow one does nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_SOONEST = 0.4
"""Shortest interval between commits, s, on a fast disk."""
_SPARE = 20
"""Multiple of a commit's duration before the next one, so that a slow disk is not kept busy."""


class CommitPace:
    """Decides when the next commit is due. Owned by the writer thread; others may read `age`."""

    def __init__(self, interval: float) -> None:
        """`interval`: longest time between commits, s."""
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
        """Measure the commit made inside, unless it fails."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._due = min(self._interval, max(_SOONEST, _SPARE * (self._last - began)))
