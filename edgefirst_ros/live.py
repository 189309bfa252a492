# SPDX-License-Identifier: Apache-2.0
"""A capture: messages as they come, in at one end; datasets that can be started, split and stopped, out at the other.

Knows nothing of ROS. All happens in one thread; what brings messages only puts them into its queue.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefirst_ros.config import SECOND, LiveSettings, Settings, nanoseconds
from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.space import Headroom
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError, StorageError
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.pretrigger import Arrival, Recent, reach
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sync.clock import TimeBase, TopicTimes, choose
from edgefirst_ros.take import Take, free_name, is_taken
from edgefirst_ros.topics import Roles

TICK = 0.05
"""s between two looks at the clock while nothing comes."""
LISTEN = SECOND
"""ns of messages by which the clock is chosen (dataset.md 9, "Time")."""
MANY = 10_000
"""Stamps of a topic that are kept for that."""
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
        self._recent = Recent(settings, roles, nanoseconds(live.pretrigger))
        self._calibration = Calibration()
        self._queue: queue.SimpleQueue[Arrival | _Order | None] = queue.SimpleQueue()
        self._given: Counter[str] = Counter()  # each counter is changed by one thread only
        self._fetched: Counter[str] = Counter()
        self._times: dict[str, TopicTimes] = {}
        self._heard: int | None = None
        self._base: TimeBase | None = None
        self._wanted: int | None = None  # since when a dataset is wanted that could not begin yet
        self._splitting: int | None = None  # since when a split is wanted
        self._take: Take | None = None
        self._ending: list[tuple[int, Take]] = []
        self._looked = 0
        self._headroom = Headroom(Path(live.out), 0.0)
        self.finished: list[str] = []
        """Where the finished datasets are."""
        self.failure: str | None = None
        """Why the last dataset ended by itself; None once another one begins."""
        self.failures = 0
        """How many datasets ended by themselves."""
        self.lossy = False
        """Whether a finished dataset lacks something."""
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
        self._order(self._split)

    def stop(self) -> list[str]:
        """Complete the dataset; returns where the finished ones are."""
        self._order(self._stop)
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
                return
            if isinstance(item, Arrival):
                self._guard(self._arrive, item)
                continue
            try:
                item.done.set_result(item.what())
            except Exception as error:  # noqa: BLE001  it is raised where the order came from
                if isinstance(error, StorageError):
                    self.failure = str(error)
                    self.failures += 1
                item.done.set_exception(error)

    def _guard(self, what: Callable[[Any], None], value: Any) -> None:
        """Do something; where that fails the dataset ends and this is told, and listening goes on."""
        try:
            what(value)
        except Exception as error:  # noqa: BLE001  without this thread nobody would be told, and orders would wait for ever
            self._fail(_said(error))

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self.failures += 1
        self._on_event(f"the dataset ends here: {reason}")
        for failed in self._finish_all():
            self._on_event(failed)
            self.failure = f"{self.failure}; {failed}"

    def _arrive(self, arrival: Arrival) -> None:
        message = arrival.message
        self._fetched[message.topic] += 1
        reference = message.topic == self._roles.reference
        if message.topic in self._roles.statics:
            with contextlib.suppress(MessageError):  # counted where it is recorded
                self._calibration.take(message.schema, decode(message))
        if reference and self._heard is None:
            self._heard = self._recent.hold = arrival.now
        self._recent.add(arrival)
        if self._base is None:
            self._listen(arrival)
        elif self._take is not None:
            if arrival.entry and self._splitting is None and self._full(self._take):
                self._splitting = arrival.now
            if self._splitting is not None and self._parts(arrival, self._splitting):
                self._change_over(arrival)
            else:
                self._take.push(arrival)
        if not reference:
            for _, ending in self._ending:
                ending.push(arrival)
        self._advance(arrival.now)

    def _listen(self, arrival: Arrival) -> None:
        """Choose the clock by the first second of messages."""
        message, reference = arrival.message, self._roles.reference
        if message.topic == reference or message.topic in self._roles.aligned:
            if message.topic not in self._times:
                log_times = array("q") if message.topic == reference else None
                self._times[message.topic] = TopicTimes(message.topic, log_times=log_times)
            if self._heard is None and len(self._times[message.topic].publish.distances) >= MANY:
                del self._times[message.topic]  # the camera is silent, maybe for ever
                return
            with contextlib.suppress(MessageError):
                decode(message)
                self._times[message.topic].add(message)
        if self._heard is not None and arrival.now - self._heard >= LISTEN:
            self._choose_clock(self._heard)

    def _choose_clock(self, heard: int) -> None:
        """End of listening: the dataset that waits for it begins."""
        reference = self._roles.reference
        others = [times for topic, times in sorted(self._times.items()) if topic != reference]
        self._base = choose(self._settings.time_base, self._times[reference], others)
        for topic, what in self._base.replaced.items():
            self._on_event(f"{topic}: {what}")
        if self._wanted is not None:
            begin = self._recent.begin(self._wanted) if self._wanted > heard else heard
            self._begin(self._base, begin)
        self._recent.hold = None

    @staticmethod
    def _parts(arrival: Arrival, since: int) -> bool:
        """Whether a new dataset can begin with the message, where a split is wanted `since` then."""
        return arrival.closed or (arrival.entry and arrival.now - since > OPEN_SPLIT)

    def _full(self, take: Take) -> bool:
        live = self._live
        long = live.max_seconds and time.monotonic() - take.began >= live.max_seconds
        return bool(long or (live.max_bytes and take.bytes >= live.max_bytes))

    def _start(self) -> None:
        if self._take is not None:
            return
        self.failure = None
        now = time.monotonic_ns()
        if self._base is None:
            self._wanted = now
        else:
            self._begin(self._base, self._recent.begin(now))

    def _begin(self, base: TimeBase, begin: int) -> None:
        """Open a dataset; its first frame is the first message of the reference that came at `begin` or later."""
        self._wanted = None
        self._headroom = Headroom(Path(self._live.out), time.monotonic())
        self._check_disk()
        name = self._new_name()
        self._take = Take(self._settings, self._live, self._roles, base, self._calibration, name)
        self._on_event(f"dataset {name} begins in {self._live.out}")
        for earlier in self._recent.since(begin):
            self._take.push(earlier)

    def _new_name(self) -> str:
        sequence, self._sequence = self._sequence, None
        out, layout = Path(self._live.out), self._settings.layout
        if sequence is not None:
            if not is_taken(out, sequence, layout):
                return sequence
            self._on_event(f"{sequence} is there already in {self._live.out}: named by host and time instead")
        return free_name(out, self._host, layout)

    def _split(self) -> None:
        if self._take is None:
            raise DatasetError("nothing is being recorded that could be split")
        if self._splitting is None:
            self._splitting = time.monotonic_ns()

    def _change_over(self, arrival: Arrival) -> None:
        """Begin a new dataset with this keyframe; the old one still gets what its last frames may need."""
        self._splitting = None
        if self._take is not None:
            wait = nanoseconds(2 * self._settings.max_gap + 2 * self._settings.lookahead) + reach(self._settings)
            self._ending.append((arrival.now + wait, self._take))
            self._take = None
        if self._base is not None:
            self._begin(self._base, arrival.now)

    def _advance(self, now: int) -> None:
        if self._base is None and self._heard is not None and now - self._heard >= LISTEN:
            self._choose_clock(self._heard)  # the camera may be gone again
        if self._take is not None:
            self._take.advance(now)
        for _, ending in self._ending:
            ending.advance(now)
        while self._ending and self._ending[0][0] <= now:
            self._finish(self._ending.pop(0)[1])
        if self._take is not None and now - self._looked >= SECOND:
            self._looked = now
            self._take.flush()
            self._check_disk()

    def _check_disk(self) -> None:
        """Raise StorageError while there still is room for what is under way."""
        written = self._take.bytes if self._take is not None else 0
        self._headroom.check(written, self._live.min_free_bytes, time.monotonic())

    def _stop(self) -> None:
        if self._wanted is not None and self._base is None and self._heard is not None:
            self._choose_clock(self._heard)  # less than that came, and is all there will be
        failed = self._finish_all()
        if failed:
            raise StorageError("; ".join(failed))

    def _finish_all(self) -> list[str]:
        """Complete every dataset, whatever becomes of the others; says of each that fails why."""
        self._wanted = self._splitting = None
        takes = [take for _, take in self._ending] + ([self._take] if self._take is not None else [])
        self._take, self._ending = None, []
        failed = []
        for take in takes:
            try:
                self._finish(take)
            except Exception as error:  # noqa: BLE001  as above
                failed.append(f"{take.sequence} could not be completed: {_said(error)}")
        return failed

    def _finish(self, take: Take) -> None:
        paths = take.finish()
        if take.refused is not None and self.failure is None:
            self.failure = str(take.refused)
            self.failures += 1
        if paths is None:
            self._on_event(f"dataset {take.sequence} has no sample and is not kept")
        else:
            self.finished.append(str(paths.container))
            self.lossy = self.lossy or bool(take.counts.lost)
            self._on_event(f"dataset {paths.container} is complete: {take.samples} samples")


def _said(error: Exception) -> str:
    """What an error says, with its kind where it was not raised on purpose."""
    return str(error) if isinstance(error, EdgeFirstError) else f"{type(error).__name__}: {error}"
