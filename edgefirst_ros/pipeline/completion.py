# SPDX-License-Identifier: Apache-2.0
"""Completion of a capture's datasets in the background, and their outcome."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from edgefirst_ros.pipeline.capture_dataset import CaptureDataset, Completed


@dataclass(slots=True)
class Results:
    """Outcome of the datasets of a capture, or of several captures one after the other.

    Owns: the thread of the capture that runs changes it; any thread may read.
    """

    finished: list[str] = field(default_factory=list)
    """Paths of the finished datasets."""
    failure: str | None = None
    """Why the last dataset ended with an error; None once another one begins."""
    failures: int = 0
    """Number of datasets that ended with an error."""
    lossy: bool = False
    """True if a dataset lost messages, even one that is not kept."""
    empty: int = 0
    """Number of datasets without samples, which are not kept."""

    def fail(self, reason: str) -> None:
        """Note a dataset that ended with an error."""
        self.failure = reason
        self.failures += 1

    def add(self, done: Completed) -> None:
        """Note a dataset that is completed."""
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
        """Exit code of the process: 0 all there, 1 nothing usable, 3 with loss."""
        if self.failures or (self.empty and not self.finished):
            return 3 if self.finished else 1
        return 3 if self.lossy else 0


class Completer:
    """Completes datasets one after the other in a thread of its own, so that recording goes on meanwhile.

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
        """Datasets that are being completed."""
        return list(self._completing)

    @property
    def busy(self) -> bool:
        """True if a dataset is being completed, or its outcome is not collected yet; from any thread."""
        return bool(self._completing)

    def complete(self, dataset: CaptureDataset) -> None:
        """Start to complete a dataset."""
        self._completing.append(self._thread.submit(dataset.complete))

    def settle(self) -> None:
        """Collect the outcome of the datasets that are completed."""
        while self._completing and self._completing[0].done():
            done = self._completing.popleft().result()
            self._results.add(done)
            self._on_event(done.text)

    def close(self) -> None:
        """Wait until all are completed."""
        self._thread.shutdown()
        self.settle()
