# SPDX-License-Identifier: Apache-2.0
"""The end of a capture's datasets: they are completed beside the recording, and what became of them is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from edgefirst_ros.pipeline.capture_dataset import CaptureDataset, Completed


@dataclass(slots=True)
class Results:
    """What became of the datasets of a capture, or of several captures one after the other.

    Owns: the thread of the capture that runs changes it; any thread may read.
    """

    finished: list[str] = field(default_factory=list)
    """Where the finished datasets are."""
    failure: str | None = None
    """Why the last dataset ended by itself; None once another one begins."""
    failures: int = 0
    """How many datasets ended by themselves."""
    lossy: bool = False
    """True if a dataset lacks something that came, be it one that is not kept."""
    empty: int = 0
    """How many datasets had no sample and are not kept."""

    def fail(self, reason: str) -> None:
        """Take note of a dataset that ended by itself."""
        self.failure = reason
        self.failures += 1

    def add(self, done: Completed) -> None:
        """Take note of a dataset that is completed."""
        self.lossy = self.lossy or done.lossy
        if self.failure is None and (done.refused or done.failure):
            self.fail(done.failure or done.refused)
        elif done.failure:
            self.failure = f"{self.failure}; {done.failure}"
        if done.container is not None:
            self.finished.append(done.container)
        self.empty += done.container is None and not done.failure

    @property
    def exit_code(self) -> int:
        """What the end of the process says of the datasets: 0 all there, 1 nothing usable, 3 something is lost."""
        if self.failures or (self.empty and not self.finished):
            return 3 if self.finished else 1
        return 3 if self.lossy else 0


class Completer:
    """Completes datasets one after the other in a thread of its own: it takes long, and what comes meanwhile counts.

    Owns: the capture's thread calls everything here but `busy`; the completing thread changes only the dataset that it
    is given.
    """

    def __init__(self, results: Results, on_event: Callable[[str], object]) -> None:
        self._results = results
        self._on_event = on_event
        self._thread = ThreadPoolExecutor(1, "complete")
        self._completing: deque[Future[Completed]] = deque()

    @property
    def completing(self) -> list[Future[Completed]]:
        """Those that are being completed."""
        return list(self._completing)

    @property
    def busy(self) -> bool:
        """True if something is being completed, or was and is not settled; from any thread."""
        return bool(self._completing)

    def complete(self, dataset: CaptureDataset) -> None:
        """Begin to complete a dataset."""
        self._completing.append(self._thread.submit(dataset.complete))

    def settle(self) -> None:
        """Take note of what became of those that are completed."""
        while self._completing and self._completing[0].done():
            done = self._completing.popleft().result()
            self._results.add(done)
            self._on_event(done.text)

    def close(self) -> None:
        """Wait until all are completed."""
        self._thread.shutdown()
        self.settle()
