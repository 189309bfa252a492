# SPDX-License-Identifier: Apache-2.0
"""Wall time of the steps of a conversion."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the wall time of named consecutive steps, s, and their common processor time."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        """s on the clock by step, in the order in which they began first."""
        self._began = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the wall time of the block to a step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.monotonic() - began

    @property
    def cores(self) -> float:
        """Return the average number of busy cores since the beginning."""
        seconds = sum(self.steps.values())
        return (time.process_time() - self._began) / seconds if seconds else 0.0
