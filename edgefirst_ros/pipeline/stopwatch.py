# SPDX-License-Identifier: Apache-2.0
"""Where the time of a conversion goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the time of named steps, one after the other, and the processor time of them all."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        """s on the clock by step, in the order in which they began first."""
        self._began = time.process_time()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to a step."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps[name] = self.steps.get(name, 0.0) + time.monotonic() - began

    @property
    def cores(self) -> float:
        """How many cores were busy on average since the beginning."""
        seconds = sum(self.steps.values())
        return (time.process_time() - self._began) / seconds if seconds else 0.0
