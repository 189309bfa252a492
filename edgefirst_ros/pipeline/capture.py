# SPDX-License-Identifier: Apache-2.0
"""A capture: messages as they come, in at one end; datasets that can be started, split and stopped, out at the other.

Knows nothing of ROS. All happens in one thread; what brings messages only puts them into its queue.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edgefirst_ros.config import SECOND, LiveSettings, Settings, nanoseconds
from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.storage.space import Headroom
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError, StorageError, UsageError
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.pipeline.capture_dataset import CaptureDataset, Completed, free_name, is_taken, said
from edgefirst_ros.pipeline.pretrigger import Arrival, Recent, max_skew
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import TimeBase
from edgefirst_ros.sync.live_clock import LiveClock

TICK = 0.05
"""s between two looks at the clock while nothing comes."""
NAMES = 10
"""Names that are tried where others begin datasets in the same folder at the same time."""
OPEN_SPLIT = 10 * SECOND
"""ns a split waits for a keyframe behind which nothing refers to what came before it; then any other will do."""


@dataclass(slots=True)
class _Order:
    """Something to be done by the capture's thread."""

    what: Callable[[], Any]
    done: Future[Any] = field(default_factory=Future)


class Capture:
    """Writes datasets of messages as they come.

    `put` may be called from any thread and never waits. `start`, `split` and `stop` wait until they are done, and
    raise EdgeFirstError when that fails. `on_event` is told in words what happens.
    """

    def __init__(
        self, settings: Settings, live: LiveSettings, roles: Roles, host: str, on_event: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._live = live
        self._roles = roles
        self._host = safe_name(live.host or host)
        self._sequence: str | None = live.sequence or None
        self._on_event = on_event
        self._recent = Recent(settings, roles, nanoseconds(live.pretrigger), live.pretrigger_bytes)
        self._calibration = Calibration()
        self._queue: queue.SimpleQueue[Arrival | _Order | None] = queue.SimpleQueue()
        self._given: Counter[str] = Counter()  # each counter is changed by one thread only
        self._fetched: Counter[str] = Counter()
        self._listening = LiveClock(roles)
        self._wanted: int | None = None  # since when a dataset is wanted that could not begin yet
        self._splitting: int | None = None  # since when a split is wanted
        self._take: CaptureDataset | None = None
        self._ending: list[tuple[int, CaptureDataset]] = []
        self._completer = ThreadPoolExecutor(1, "complete")
        self._completing: deque[Future[Completed]] = deque()
        self._looked = 0
        self._headroom = Headroom(Path(live.out), 0.0)
        self.finished: list[str] = []
        """Where the finished datasets are."""
        self.failure: str | None = None
        """Why the last dataset ended by itself; None once another one begins."""
        self.failures = 0
        """How many datasets ended by themselves."""
        self.lossy = False
        """Whether a dataset lacks something that came, be it one that is not kept."""
        self.empty = 0
        """How many datasets had no sample and are not kept."""
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    @property
    def reference(self) -> str:
        """The topic whose messages are the samples."""
        return self._roles.reference

    # ---- from any thread -----------------------------------------------------------------
    def put(self, message: Message, now: int, lost: int = 0) -> None:
        """Take a message that came at `now` (time.monotonic_ns()); `lost` of its topic did not arrive before it."""
        self._given[message.topic] += 1
        self._queue.put(Arrival(message, now, lost=lost))

    def start(self) -> None:
        """Begin a dataset with what the pre-trigger holds, as soon as the clock is known."""
        self._order(self._start)

    def split(self) -> None:
        """Go on in a new dataset from the next keyframe on; no frame is lost."""
        if not self._order(self._split):
            raise DatasetError("nothing is being recorded that could be split")

    def stop(self) -> list[str]:
        """Complete the dataset; returns where the finished ones are."""
        completing = wait(self._order(self._stop)).done
        self._order(self._settle)
        failed = [done.failure for done in (future.result() for future in completing) if done.failure]
        if failed:
            raise StorageError("; ".join(failed))
        return list(self.finished)

    def change(self, settings: Settings, live: LiveSettings) -> None:
        """Use other settings from the next dataset on; those that say how messages are joined must be the same."""
        self._settings, self._live = settings, live

    def status(self) -> dict[str, Any]:
        """What is going on."""
        take = self._take
        facts: dict[str, Any] = {
            "recording": take is not None,
            "waiting": self._wanted is not None,
            "queue": self._queue.qsize(),
            "queues": {topic: given - self._fetched[topic] for topic, given in dict(self._given).items()},
            "finished": list(self.finished),
            "failure": self.failure,
        }
        if take is not None:
            facts |= take.status()
        return facts

    def close(self) -> None:
        """Stop, and end the thread."""
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
                self._guard(self._advance, time.monotonic_ns())
                continue
            if item is None:
                self._completer.shutdown()
                self._settle()
                return
            if isinstance(item, Arrival):
                self._guard(self._arrive, item)
                continue
            try:
                item.done.set_result(item.what())
            except Exception as error:  # noqa: BLE001  it is raised where the order came from
                self.failure = said(error)
                self.failures += 1
                item.done.set_exception(error if isinstance(error, EdgeFirstError) else DatasetError(self.failure))

    def _guard(self, what: Callable[[Any], None], value: Any) -> None:
        """Do something; where that fails the dataset ends and this is told, and listening goes on."""
        try:
            what(value)
        except Exception as error:  # noqa: BLE001  without this thread nobody would be told, and orders would wait for ever
            self._fail(said(error))

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self.failures += 1
        self._on_event(f"the dataset ends here: {reason}")
        self._end()

    def _arrive(self, arrival: Arrival) -> None:
        message = arrival.message
        self._fetched[message.topic] += 1
        reference = message.topic == self._roles.reference
        if message.topic in self._roles.statics:
            with contextlib.suppress(MessageError):  # counted where it is recorded
                self._calibration.take(message.schema, decode(message))
        if reference and self._listening.base is None and self._listening.heard is None:
            self._recent.hold = arrival.now
        if self._recent.add(arrival):
            self._on_event("the pre-trigger takes more than pretrigger_bytes: a dataset may begin later than it says")
        fault = self._listening.take(message, arrival.now)
        if fault is not None:
            self._on_event(f"{message.topic}: {fault}")
        if self._listening.due(arrival.now):
            self._choose_clock()
        elif self._take is not None:
            if arrival.entry and self._splitting is None and self._full(self._take):
                self._splitting = arrival.now
            if self._splitting is not None and self._parts(arrival, self._splitting):
                self._change_over(self._take, arrival)
            else:
                self._take.push(arrival)
        if not reference:
            for _, ending in self._ending:
                ending.push(arrival)
        self._advance(arrival.now)

    def _choose_clock(self) -> None:
        """End of listening: the dataset that waits for it begins."""
        heard = self._listening.heard or 0
        try:
            base = self._listening.choose(self._settings.time_base)
            self._recent.spread = base.spread
            for topic, what in base.replaced.items():
                self._on_event(f"{topic}: {what}")
            if self._wanted is not None:
                self._begin(base, self._recent.begin(self._wanted) if self._wanted > heard else heard)
        except UsageError as error:
            if self._wanted is not None or str(error) != self.failure:  # else it was said before
                raise
        finally:
            self._recent.hold = None

    @staticmethod
    def _parts(arrival: Arrival, since: int) -> bool:
        """Whether a new dataset can begin with the message, where a split is wanted `since` then."""
        return arrival.closed or (arrival.entry and arrival.now - since > OPEN_SPLIT)

    def _full(self, take: CaptureDataset) -> bool:
        live = self._live
        long = live.max_seconds and time.monotonic() - take.began >= live.max_seconds
        return bool(long or (live.max_bytes and take.bytes >= live.max_bytes))

    def _start(self) -> None:
        if self._take is not None:
            return
        self.failure = None
        now = time.monotonic_ns()
        if self._listening.base is None:
            self._wanted = now
        else:
            self._begin(self._listening.base, self._recent.begin(now))

    def _begin(self, base: TimeBase, begin: int) -> None:
        """Open a dataset; its first frame is the first message of the reference that came at `begin` or later."""
        self._wanted = None
        self._headroom = Headroom(Path(self._live.out), time.monotonic())
        self._check_disk()
        self._take = take = self._open(base, max(0, time.monotonic_ns() - begin) / SECOND)
        self._on_event(f"dataset {take.sequence} begins in {self._live.out}")
        for earlier in self._recent.since(begin):
            take.push(earlier if earlier.now >= begin else replace(earlier, lost=0))

    def _open(self, base: TimeBase, behind: float) -> CaptureDataset:
        """A dataset of a name that nobody else has, whose first messages came `behind` s ago."""
        tried = 0
        while True:
            name, tried = self._new_name(), tried + 1
            try:
                return CaptureDataset(self._settings, self._live, self._roles, base, self._calibration, name, behind)
            except DatasetError as error:
                taken = is_taken(Path(self._live.out), name, self._settings.layout)
                if isinstance(error, StorageError) or not taken or tried == NAMES:
                    raise

    def _new_name(self) -> str:
        sequence, self._sequence = self._sequence, None
        out, layout = Path(self._live.out), self._settings.layout
        if sequence is not None:
            if not is_taken(out, sequence, layout):
                return sequence
            self._on_event(f"{sequence} is there already in {self._live.out}: named by host and time instead")
        return free_name(out, self._host, layout)

    def _split(self) -> bool:
        """Whether there is something to be split."""
        if self._take is not None and self._splitting is None:
            self._splitting = time.monotonic_ns()
        return self._take is not None

    def _change_over(self, take: CaptureDataset, arrival: Arrival) -> None:
        """Begin a new dataset with this keyframe; the old one still gets what its last frames may need."""
        self._take = self._splitting = None
        wait = nanoseconds(2 * self._settings.max_gap + 2 * self._settings.lookahead) + max_skew(self._settings)
        self._ending.append((arrival.now + wait + self._recent.spread, take))
        self._begin(take.base, arrival.now)

    def _advance(self, now: int) -> None:
        if self._listening.due(now):
            self._choose_clock()  # the camera may be gone again
        if self._take is not None:
            self._take.advance(now)
        for _, ending in self._ending:
            ending.advance(now)
        while self._ending and self._ending[0][0] <= now:
            self._complete(self._ending.pop(0)[1])
        self._settle()
        if self._take is not None and now - self._looked >= SECOND:
            self._looked = now
            self._take.flush()
            self._check_disk()

    def _check_disk(self) -> None:
        """Raise StorageError while there still is room for what is under way."""
        written = self._take.bytes if self._take is not None else 0
        self._headroom.check(written, self._live.min_free_bytes, time.monotonic())

    def _stop(self) -> list[Future[Completed]]:
        try:
            if self._wanted is not None and self._listening.base is None and self._listening.heard is not None:
                self._choose_clock()  # less than that came, and is all there will be
        finally:
            self._end()
        return list(self._completing)

    def _end(self) -> None:
        """Begin to complete every dataset."""
        self._wanted = self._splitting = None
        takes = [take for _, take in self._ending] + ([self._take] if self._take is not None else [])
        self._take, self._ending = None, []
        for take in takes:
            self._complete(take)

    def _complete(self, take: CaptureDataset) -> None:
        """Complete a dataset elsewhere: it takes long, and what comes meanwhile is another one's."""
        self._completing.append(self._completer.submit(take.complete))

    def _settle(self) -> None:
        """Take note of what became of those that are completed."""
        while self._completing and self._completing[0].done():
            done = self._completing.popleft().result()
            self.lossy = self.lossy or done.lossy
            if self.failure is None and (done.refused or done.failure):
                self.failure = done.failure or done.refused
                self.failures += 1
            elif done.failure:
                self.failure = f"{self.failure}; {done.failure}"
            if done.container is not None:
                self.finished.append(done.container)
            self.empty += done.container is None and not done.failure
            self._on_event(done.text)
