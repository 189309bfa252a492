# SPDX-License-Identifier: Apache-2.0
"""A capture: messages as they come, in at one end; datasets that can be started, split and stopped, out at the other.

Knows nothing of ROS. All happens in one thread; what brings messages only puts them into its queue.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import DatasetError, EdgeFirstError, StorageError, describe_error
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.completion import Results
from edgefirst_ros.pipeline.pretrigger import Arrival
from edgefirst_ros.pipeline.recorder import Recorder
from edgefirst_ros.sources.topics import Roles

TICK = 0.05
"""s between two ticks while no message comes."""


@dataclass(slots=True)
class _Order:
    """A command for the capture's thread."""

    what: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)


class _Backlog:
    """Number of queued messages by topic.

    Owns: `added` is called by any thread, `taken` by the capture's; both change the numbers under the lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Counter[str] = Counter()

    def added(self, topic: str) -> None:
        with self._lock:
            self._waiting[topic] += 1

    def taken(self, topic: str) -> None:
        with self._lock:
            self._waiting[topic] -= 1

    def by_topic(self) -> dict[str, int]:
        with self._lock:
            return dict(self._waiting)


class Capture:
    """Writes datasets from live messages.

    `put` may be called from any thread and never waits. `start`, `split` and `stop` wait until they are done, and
    raise EdgeFirstError when that fails. `on_event` is called with a line about each event.
    Owns: its thread alone changes the recorder and `results`; everybody else sends it messages and orders.
    """

    def __init__(
        self,
        settings: Settings,
        live: LiveSettings,
        roles: Roles,
        host: str,
        on_event: Callable[[str], object],
        results: Results | None = None,
    ) -> None:
        """`results`: those of earlier captures of the session, which are continued."""
        self.results = results if results is not None else Results()
        self._recorder = Recorder(settings, live, roles, host, self.results, on_event)
        self._queue: queue.SimpleQueue[Arrival | _Order | None] = queue.SimpleQueue()
        self._backlog = _Backlog()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    # ---- from any thread -----------------------------------------------------------------
    def put(self, message: Message, now: int, lost: int = 0, guessed: int = 0) -> None:
        """Enqueue a message that came at `now` (time.monotonic_ns()); `lost` of its topic did not arrive before it.

        `guessed`: how many more seem to be lost, by the stamps.
        """
        self._backlog.added(message.topic)
        self._queue.put(Arrival(message, now, lost=lost, guessed=guessed))

    def start(self, since: int | None = None) -> None:
        """Start a dataset with the content of the pre-trigger, as soon as the clock is known.

        `since`: time of the command, ns of time.monotonic_ns(); None: now.
        """
        asked = time.monotonic_ns() if since is None else since
        self._order(lambda: self._recorder.start(asked))

    def split(self) -> None:
        """Continue in a new dataset from the next keyframe on; no frame is lost."""
        if not self._order(lambda: self._recorder.split(time.monotonic_ns())):
            raise DatasetError("nothing is being recorded that could be split")

    def stop(self) -> list[str]:
        """Complete the dataset; returns the paths of the finished ones."""
        completing = wait(self._order(self._recorder.stop)).done
        self._order(self._recorder.settle)
        failed = [done.failure for done in (future.result() for future in completing) if done.failure]
        if failed:
            raise StorageError("; ".join(failed))
        return list(self.results.finished)

    def change(self, settings: Settings, live: LiveSettings) -> None:
        """Apply settings from the next dataset on; those of alignment must stay the same."""
        self._recorder.change(settings, live)

    def status(self) -> dict[str, Any]:
        """Return state and statistics, ready for JSON."""
        return {
            "queue": self._queue.qsize(),
            "queues": self._backlog.by_topic(),
            "finished": list(self.results.finished),
            "failure": self.results.failure,
            **self._recorder.facts(),
        }

    def close(self) -> None:
        """Stop recording, and end the thread."""
        if self._thread.is_alive():
            try:
                self.stop()
            finally:
                self._queue.put(None)
                self._thread.join()

    def _order(self, what: Callable[[], Any]) -> Any:
        order = _Order(what)
        self._queue.put(order)
        return order.done.result()

    # ---- in the capture's thread ---------------------------------------------------------
    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=TICK)
            except queue.Empty:
                self._guard(self._recorder.advance, time.monotonic_ns())
                continue
            if item is None:
                self._recorder.close()
                return
            if isinstance(item, Arrival):
                self._backlog.taken(item.message.topic)
                self._guard(self._recorder.arrive, item)
                continue
            try:
                item.done.set_result(item.what())
            except Exception as error:  # noqa: BLE001  it is raised where the order came from
                self.results.fail(describe_error(error))
                failed = DatasetError(describe_error(error))
                item.done.set_exception(error if isinstance(error, EdgeFirstError) else failed)

    def _guard(self, what: Callable[[Any], None], value: Any) -> None:
        """Call `what`; if it fails, end the dataset and report it, and keep receiving."""
        try:
            what(value)
        except Exception as error:  # noqa: BLE001  without this thread nobody would be told, and orders would wait for ever
            self._recorder.fail(error)
