# SPDX-License-Identifier: Apache-2.0
"""Interface of an engine, and the driver that takes tasks through it."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from edgefirst_ros import __version__
from edgefirst_ros.errors import EdgeFirstError

TICK = 1.0
"""Longest time between two checks, s."""
PAUSES = (5.0, 25.0)
"""A task that storage refused is done again after these times, s."""
STREAK = 16
"""Consecutive tasks refused by storage, at least all that are running, after which the run is given up."""
IN_FLIGHT = 64
APART = 4
"""Of so many workers one has something to do while those tasks run that workers died of."""


class Task(NamedTuple):
    """One call of a function that returns a plain record with a `verdict`, and never raises."""

    function: Callable[[dict[str, Any]], dict[str, Any]]
    arguments: dict[str, Any]
    memory: int = 0
    """Memory that it may take, bytes."""


TaskResult = tuple[Task, Mapping[str, Any]]
"""A task, and its record."""


class Engine(Protocol):
    """Runs tasks, and retries by itself if a worker died."""

    @property
    def threads(self) -> int:
        """Number of tasks that can run now; 0 without a worker."""

    @property
    def workers(self) -> int:
        """Number of worker processes: a death takes one of them."""

    def submit(self, task: Task) -> None:
        """Start a task."""

    def collect_completed(self, timeout: float) -> Sequence[tuple[Task, Mapping[str, Any] | str]]:
        """Return the tasks that ended, at the latest after `timeout`, s: with the record, or why it was given up.

        Raises EdgeFirstError where the engine is gone.
        """


def count_window(threads: int) -> int:
    """Return how many tasks are under way: enough that no worker waits, few enough that a death touches few others."""
    return max(2 * threads, min(4 * threads, IN_FLIGHT), 1)


class Driver:
    """Takes tasks through an engine: so many at a time, again where storage refused, apart where workers died.

    The engine counts the death of a worker also for tasks that wait on it. So those that were given up run once more
    after all others, so few that each has a worker of its own: only a task that kills workers again
    is `crashed`. Owned by the thread that runs it.
    """

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float] = time.monotonic, tick: Callable[[], None] = lambda: None
    ) -> None:
        """`tick` is called at least every TICK."""
        self._engine, self._clock, self._tick = engine, clock, tick
        self._later: list[tuple[float, int, Task, int]] = []
        self._numbers = itertools.count()
        self._under_way: dict[int, tuple[int, bool]] = {}
        """{task: how often storage refused it, and whether it runs apart}."""
        self._suspects: deque[Task] = deque()
        self._apart = 0
        self._refused = 0
        self.running = 0
        self.stopped = False
        """True if it gave up because storage refused everything."""

    @property
    def waiting(self) -> int:
        """Number of tasks refused by storage that wait for a retry."""
        return len(self._later)

    def run(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """Yield the last result of each task, in the order in which they end.

        Raises EdgeFirstError where a worker has another version of this package.
        """
        waiting = iter(tasks)
        while True:
            self._fill(waiting)
            if not self.running and not self._later and not self._suspects:
                return
            wait = TICK
            if self._later and not self._apart and self.running < count_window(self._engine.threads):
                wait = min(TICK, max(0.0, self._later[0][0] - self._clock()))  # until a retry is due
            for task, outcome in self._engine.collect_completed(wait):
                self.running -= 1
                result = self._settle(task, outcome, *self._under_way.pop(id(task)))
                if result is not None:
                    yield result
            self._tick()

    def _fill(self, waiting: Iterator[Task]) -> None:
        most = count_window(self._engine.threads)
        while self.running < most and not self._apart:
            if self._later and self._later[0][0] <= self._clock():
                self._submit(*heapq.heappop(self._later)[2:])
            elif not self.stopped and (new := next(waiting, None)) is not None:
                self._submit(new, 0)
            else:
                break
        few = max(1, self._engine.workers // APART)
        while self._suspects and self.running == self._apart < few and not self._later:
            self._apart += 1
            self._submit(self._suspects.popleft(), 0, apart=True)

    def _submit(self, task: Task, attempts: int, *, apart: bool = False) -> None:
        self._engine.submit(task)
        self._under_way[id(task)] = attempts, apart
        self.running += 1

    def _settle(self, task: Task, outcome: Mapping[str, Any] | str, attempts: int, apart: bool) -> TaskResult | None:
        """Return the result of a task that is through; None where it comes again."""
        self._apart -= apart
        if isinstance(outcome, str):
            if apart:
                return task, {"verdict": "crashed", "error": outcome}
            self._suspects.append(task)
            return None
        if outcome["verdict"] == "refused":
            found = f"a worker has edgefirst_ros {outcome['software']}, this is {__version__}"
            raise EdgeFirstError(f"{found}: install the same version on all")
        if outcome["verdict"] != "storage":
            self._refused = 0
            return task, outcome
        self._refused += 1
        self.stopped = self.stopped or self._refused >= max(STREAK, count_window(self._engine.threads))
        if self.stopped or attempts >= len(PAUSES):
            return task, outcome
        heapq.heappush(self._later, (self._clock() + PAUSES[attempts], next(self._numbers), task, attempts + 1))
        return None
