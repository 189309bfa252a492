# SPDX-License-Identifier: Apache-2.0
"""A capture: live messages and orders in, datasets out."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from edgefirst_ros.config import SECOND, LiveSettings, Settings, to_ns
from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.dataset.storage.space import Headroom, count_free_bytes, is_full
from edgefirst_ros.errors import DatasetError, EdgeFirstError, MessageError, StorageError, UsageError, describe_error
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.pipeline.capture_dataset import CaptureDataset, Completed, find_free_name, is_taken
from edgefirst_ros.pipeline.pretrigger import Arrival, Recent, find_max_skew
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import LiveClock, TimeBase


@dataclass(slots=True)
class Results:
    """Outcome of the datasets of a capture, or of several captures one after the other.

    Owns: the thread of the capture that runs changes it; any thread may read.
    """

    finished: list[str] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """Path, samples and loss of each finished dataset, ready for JSON."""
    failure: str | None = None
    """Why the last dataset ended with an error; None once another one begins."""
    failures: int = 0
    """Number of datasets that ended with an error."""
    lossy: bool = False
    """True if a dataset lost messages, even one that is not kept."""
    empty: int = 0
    """Number of datasets without samples, which are not kept."""
    unreported: set[str] = field(default_factory=set)
    """Names of datasets whose reports are still to come."""

    def fail(self, reason: str) -> None:
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
            self.outcomes.append({"dataset": done.container, "samples": done.samples, "loss": done.loss})
        self.empty += done.container is None and not done.failure

    @property
    def exit_code(self) -> int:
        """Exit code of the process: 0 complete, 1 without a usable dataset, 3 with loss."""
        if self.failures or (self.empty and not self.finished):
            return 3 if self.finished else 1
        return 3 if self.lossy else 0


NAMES = 10
"""Names that are tried if others begin datasets in the same folder at the same time."""
LEAST_ROOM = 8 << 20
"""Fewest bytes beyond `min_free_bytes` with which a dataset begins after the disk was full: completing a dataset
frees some of them."""
OPEN_SPLIT = 10 * SECOND
"""ns a split waits for a keyframe of a closed GOP; then any keyframe will do."""


class CaptureState(Enum):
    """State of a capture."""

    IDLE = "idle"
    WAITING = "waiting for the clock"
    RECORDING = "recording"
    SPLITTING = "splitting"
    PAUSED = "paused"
    COMPLETING = "completing"
    FULL = "disk full"
    """The dataset was completed; the next one begins by itself once space is free."""


@dataclass(frozen=True, slots=True)
class _Requested:
    """A dataset that is requested and cannot begin yet."""

    since: int  # time of the start command, ns


@dataclass(slots=True)
class _Full:
    """The disk is full: a dataset begins once space is free."""

    needed: int  # bytes that must be free
    paused: bool  # True while no dataset may begin: it was full during a pause


TICK = 0.05
"""s between two ticks while no message comes."""


class Capture:
    """Starts, fills, splits and ends datasets by live messages and orders; times are ns of time.monotonic_ns().

    `put` may be called from any thread and never waits. `start`, `split`, `pause` and `stop` wait until they are done,
    and raise EdgeFirstError when that fails.
    Owns: only its thread changes it, `results` included; everybody else sends it messages and orders. Another thread
    completes datasets one after the other, so that recording continues in the meantime.
    """

    def __init__(
        self,
        settings: Settings,
        live: LiveSettings,
        roles: Roles,
        host: str,
        on_event: Callable[[str], object],
        results: Results | None = None,
        namespace: str = "",
        on_fault: Callable[[str], object] | None = None,
    ) -> None:
        """`on_event` is called with a line about each event, `on_fault` with one about each dataset that fails.

        `results`: those of earlier captures of the session, which are continued. `namespace`: that of the capture, for
        the metadata of its datasets.
        """
        self.results = results if results is not None else Results()
        self._settings = settings
        self._live = live
        self._roles = roles
        self._host = make_safe(live.host or host)
        self._on_event, self._on_fault = on_event, on_fault or on_event
        self._namespace = namespace
        self._sequence = live.sequence or None  # name of the next dataset; None: by host and time
        self._known = Calibration()  # calibration and labels received so far
        self._recent = Recent(settings, roles, to_ns(live.pretrigger), live.pretrigger_bytes)
        self._clock = LiveClock(roles, partial(roles.offset, settings=settings))
        self._current: _Requested | CaptureDataset | _Full | None = None
        self._ending: list[tuple[int, CaptureDataset]] = []
        """Datasets after a split, which receive messages for their last frames, each until a time."""
        self._completing: deque[Future[Completed]] = deque()
        self._completer = ThreadPoolExecutor(1, "complete")
        self._looked = 0  # time of the last check of the disk
        for doubt in settings.doubts:
            on_event(doubt)
        if settings.start is not None or settings.end is not None:
            on_event("start and end are for recordings, a capture does not look at them")
        self._queue: queue.SimpleQueue[Arrival | tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._waiting: Counter[str] = Counter()  # queued messages by topic, changed under the lock
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        self._thread.start()

    # ---- from any thread -----------------------------------------------------------------
    def put(self, message: Message, now: int, lost: int = 0, guessed: int = 0) -> None:
        """Enqueue a message that came at `now`; `lost` of its topic did not arrive before it.

        `guessed`: how many more seem to be lost, by the stamps.
        """
        with self._lock:
            self._waiting[message.topic] += 1
        self._queue.put(Arrival(message, now, lost=lost, guessed=guessed))

    def start(self, since: int | None = None) -> None:
        """Start a dataset with the content of the pre-trigger, as soon as the clock is known and the disk has room.

        A pause ends. `since`: time of the command; None: now.
        """
        self._order(partial(self._start, time.monotonic_ns() if since is None else since))

    def split(self) -> None:
        """Continue in a new dataset from the next keyframe on; no frame is lost."""
        if not self._order(self._split):
            raise DatasetError("no dataset is being recorded that could be split")

    def pause(self, *, paused: bool) -> None:
        """Write no samples until it ends the pause; the dataset stays open."""
        if not self._order(partial(self._pause, paused=paused)):
            raise DatasetError("only a dataset that has begun can be paused and resumed")

    def stop(self) -> list[str]:
        """Complete the dataset; returns the paths of the finished ones."""
        completing = wait(self._order(self._stop)).done
        self._order(self._settle)
        failed = [done.failure for done in (future.result() for future in completing) if done.failure]
        if failed:
            raise StorageError("; ".join(failed))
        return list(self.results.finished)

    def change(self, settings: Settings, live: LiveSettings) -> None:
        """Apply settings from the next dataset on; those of alignment must stay the same."""
        self._settings, self._live = settings, live

    @property
    def state(self) -> CaptureState:
        match self._current:
            case _Requested():
                return CaptureState.WAITING
            case CaptureDataset(paused=True):
                return CaptureState.PAUSED
            case CaptureDataset(split_since=None):
                return CaptureState.RECORDING
            case CaptureDataset():
                return CaptureState.SPLITTING
            case _Full():
                return CaptureState.FULL
        return CaptureState.COMPLETING if self._completing else CaptureState.IDLE

    def status(self) -> dict[str, Any]:
        """Return state and statistics, ready for JSON."""
        current = self._current
        with self._lock:
            queues = dict(self._waiting)
        facts: dict[str, Any] = {
            "queue": self._queue.qsize(), "queues": queues, "finished": list(self.results.finished),
            "failure": self.results.failure, "state": self.state.value,
            "recording": isinstance(current, CaptureDataset) and not current.paused,
            "waiting": isinstance(current, _Requested),
        }  # fmt: skip
        facts |= {"bytes_needed": current.needed} if isinstance(current, _Full) else {}
        return facts | (current.status() if isinstance(current, CaptureDataset) else {})

    def close(self) -> None:
        if self._thread.is_alive():
            try:
                self.stop()
            finally:
                self._queue.put(None)
                self._thread.join()

    def _order(self, what: Callable[[], Any]) -> Any:
        """Have the capture's thread call `what` after all messages so far, and return the result."""
        done: Future[Any] = Future()
        self._queue.put((what, done))
        return done.result()

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
                with self._lock:
                    self._waiting[item.message.topic] -= 1
                self._guard(self._arrive, item)
                continue
            what, done = item
            try:
                done.set_result(what())
            except Exception as error:  # noqa: BLE001  it is raised where the order came from
                self.results.fail(describe_error(error))
                failed = DatasetError(describe_error(error))
                done.set_exception(error if isinstance(error, EdgeFirstError) else failed)

    def _guard(self, what: Callable[[Any], None], value: Any) -> None:
        """Call `what`; if it fails, end the dataset and report it, and keep receiving."""
        try:
            what(value)
        except Exception as error:  # noqa: BLE001  without this thread errors would be lost, and orders would wait for ever
            self._fail(error)

    def _start(self, now: int) -> None:
        if isinstance(self._current, CaptureDataset):
            self._pause(paused=False)
            return
        self.results.failure = None
        if self._clock.base is None:
            self._current = _Requested(now)
            return
        try:
            self._begin(self._clock.base, self._recent.begin(now))
        except StorageError as error:
            if is_full(error):
                self._wait_for_room()
            raise

    def _split(self) -> bool:
        """Return False if it is not recording."""
        if not isinstance(self._current, CaptureDataset) or self._current.paused:
            return False
        if self._current.split_since is None:
            self._current.split_since = time.monotonic_ns()
        return True

    def _pause(self, *, paused: bool) -> bool:
        """Return False without a dataset."""
        if not isinstance(self._current, (CaptureDataset, _Full)):
            return False
        self._current.paused = paused
        return True

    def _stop(self) -> list[Future[Completed]]:
        """Start to complete every dataset; return those that are being completed."""
        try:
            if isinstance(self._current, _Requested) and self._clock.base is None and self._clock.heard is not None:
                self._choose_clock()  # less than that came, and is all there will be
        finally:
            self._end()
        return list(self._completing)

    def _complete(self, dataset: CaptureDataset) -> None:
        self._completing.append(self._completer.submit(dataset.complete))

    def _settle(self) -> None:
        """Collect the outcome of the datasets that are completed."""
        while self._completing and self._completing[0].done():
            done = self._completing.popleft().result()
            self.results.add(done)
            (self._on_fault if done.failure else self._on_event)(done.text)

    def _fail(self, error: Exception) -> None:
        """End the dataset because of an error, and report it; messages are still received.

        Where the disk is full, another one begins by itself once space is free.
        """
        reason = describe_error(error)
        self.results.fail(reason)
        self._on_fault(f"the dataset ends here: {reason}")
        paused = isinstance(self._current, CaptureDataset) and self._current.paused
        self._end()
        if is_full(error):
            self._wait_for_room(paused=paused)

    def _wait_for_room(self, *, paused: bool = False) -> None:
        keep = self._live.min_free_bytes
        self._current = _Full(keep + max(keep // 10, LEAST_ROOM), paused)
        self._on_event(f"the disk is full: recording begins again once {self._current.needed} bytes are free")

    # ---- messages and time ---------------------------------------------------------------
    def _arrive(self, arrival: Arrival) -> None:
        message = arrival.message
        reference = message.topic == self._roles.reference
        if message.topic in self._roles.statics:
            with contextlib.suppress(MessageError):  # counted where it is recorded
                self._known.add(message.schema, decode(message), message.log_time, message.topic)
        if reference and self._clock.base is None and self._clock.heard is None:
            self._recent.hold = arrival.now
        if self._recent.add(arrival):
            self._on_event("the pre-trigger takes more than pretrigger_bytes: a dataset may begin later than it says")
        fault = self._clock.add(message, arrival.now)
        if fault is not None:
            self._on_event(f"{message.topic}: {fault}")
        if self._clock.due(arrival.now):
            self._choose_clock()
        elif isinstance(self._current, CaptureDataset):
            self._record(self._current, arrival)
        if not reference:
            for _, dataset in self._ending:
                dataset.push(arrival)
        self._advance(arrival.now)

    def _advance(self, now: int) -> None:
        """Do the work due at `now`: choose the clock, hand on complete frames, check the disk."""
        if self._clock.due(now):
            self._choose_clock()  # the camera may be gone again
        current = self._current
        if isinstance(current, CaptureDataset):
            current.output.frames.advance(now)
        for _, dataset in self._ending:
            dataset.output.frames.advance(now)
        while self._ending and self._ending[0][0] <= now:
            self._complete(self._ending.pop(0)[1])
        self._settle()
        full = self._current
        if isinstance(full, _Full) and not full.paused and not self._completing and now - self._looked >= SECOND:
            self._looked = now
            if count_free_bytes(Path(self._live.out)) >= full.needed:
                self._start(now)
        if isinstance(current, CaptureDataset) and now - self._looked >= SECOND:
            self._looked = now
            current.flush()
            current.headroom.check(current.output.bytes, self._live.min_free_bytes, time.monotonic())

    def _choose_clock(self) -> None:
        """Choose the clock by the messages so far, and start the dataset that waits for it."""
        heard, waiting = self._clock.heard or 0, self._current
        try:
            base = self._clock.choose(self._settings.time_base)
            self._recent.spread = base.spread
            for note in (*base.notes, *(f"{topic}: {what}" for topic, what in base.replaced.items())):
                self._on_event(note)
            if isinstance(waiting, _Requested):
                self._begin(base, self._recent.begin(waiting.since) if waiting.since > heard else heard)
        except UsageError as error:
            if isinstance(waiting, _Requested) or str(error) != self.results.failure:  # else it was reported before
                raise
        finally:
            self._recent.hold = None

    def _record(self, current: CaptureDataset, arrival: Arrival) -> None:
        if arrival.entry and current.split_since is None and not current.paused:
            live = self._live
            long = live.max_seconds and time.monotonic() - current.began >= live.max_seconds
            if long or (live.max_bytes and current.output.bytes >= live.max_bytes):
                current.split_since = arrival.now
        since = None if current.paused else current.split_since
        if since is not None and (arrival.closed or (arrival.entry and arrival.now - since > OPEN_SPLIT)):
            self._change_over(current, arrival)
        else:
            current.push(arrival)

    def _change_over(self, dataset: CaptureDataset, arrival: Arrival) -> None:
        """Start a new dataset with this keyframe; the old one still receives messages that its last frames may need."""
        settings = self._settings
        wait = to_ns(2 * settings.max_gap + 2 * settings.lookahead) + find_max_skew(settings)
        self._current = None
        self._ending.append((arrival.now + wait + self._recent.spread, dataset))
        self._begin(dataset.base, arrival.now)

    # ---- begin and end -------------------------------------------------------------------
    def _begin(self, base: TimeBase, begin: int) -> None:
        """Open a dataset; its first frame is the first message of the reference that came at `begin` or later."""
        self._current = None
        live = self._live
        headroom = Headroom(Path(live.out), time.monotonic())
        headroom.check(0, live.min_free_bytes, time.monotonic())
        self._current = dataset = self._open(base, headroom, max(0, time.monotonic_ns() - begin) / SECOND)
        self.results.unreported |= {dataset.sequence} if live.report else set()
        self._on_event(f"dataset {dataset.sequence} begins in {live.out}")
        for earlier in self._recent.since(begin):
            dataset.push(earlier if earlier.now >= begin else replace(earlier, lost=0, guessed=0))

    def _open(self, base: TimeBase, headroom: Headroom, start_lag: float) -> CaptureDataset:
        """Open a dataset with a free name, whose first messages came `start_lag` s ago."""
        settings, live, tried = self._settings, self._live, 0
        while True:
            name, tried = self._new_name(), tried + 1
            try:
                return CaptureDataset(
                    settings, live, self._roles, base, self._known, name, headroom, start_lag, self._namespace
                )
            except DatasetError as error:
                taken = is_taken(Path(live.out), name, settings.layout)
                if isinstance(error, StorageError) or not taken or tried == NAMES:
                    raise

    def _new_name(self) -> str:
        sequence, self._sequence = self._sequence, None
        out, layout = Path(self._live.out), self._settings.layout
        if sequence is not None:
            if not is_taken(out, sequence, layout):
                return sequence
            self._on_event(f"{sequence} exists already in {out}: named by host and time instead")
        return find_free_name(out, self._host, layout)

    def _end(self) -> None:
        current, ending = self._current, self._ending
        self._current, self._ending = None, []
        for _, dataset in ending:
            self._complete(dataset)
        if isinstance(current, CaptureDataset):
            self._complete(current)
