# SPDX-License-Identifier: Apache-2.0
"""State machine of a capture: idle, waiting for the clock, recording, splitting, completing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from edgefirst_ros.config import SECOND, LiveSettings, Settings, nanoseconds
from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.dataset.storage.space import Headroom
from edgefirst_ros.errors import DatasetError, MessageError, StorageError, UsageError, describe_error
from edgefirst_ros.messages import decode
from edgefirst_ros.pipeline.capture_dataset import CaptureDataset, Completed, free_name, is_taken
from edgefirst_ros.pipeline.completion import Completer, Results
from edgefirst_ros.pipeline.pretrigger import Arrival, Recent, max_skew
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import LiveClock, TimeBase

NAMES = 10
"""Names that are tried if others begin datasets in the same folder at the same time."""
OPEN_SPLIT = 10 * SECOND
"""ns a split waits for a keyframe of a closed GOP; then any keyframe will do."""


class State(Enum):
    """State of a capture."""

    IDLE = "idle"
    WAITING = "waiting for the clock"
    RECORDING = "recording"
    SPLITTING = "splitting"
    COMPLETING = "completing"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A dataset that is asked for and cannot begin yet."""

    since: int
    """Time of the start command, ns."""


@dataclass(slots=True)
class _Recording:
    """The dataset that receives messages."""

    dataset: CaptureDataset
    headroom: Headroom
    split_since: int | None = None
    """Time of a split command that waits for a keyframe, ns; None without one."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """A dataset after a split: it still receives what its last frames may need."""

    until: int
    dataset: CaptureDataset


@dataclass(slots=True)
class _Plan:
    """Settings of the next dataset."""

    settings: Settings
    live: LiveSettings
    host: str
    sequence: str | None
    """Name of the next dataset; None: by host and time."""
    known: Calibration = field(default_factory=Calibration)
    """Calibration and labels received so far."""


class Recorder:
    """Starts, fills, splits and ends datasets by messages and commands; times are ns of time.monotonic_ns().

    Owns: the capture's thread calls everything but `change` and `facts`, which any thread may call.
    """

    def __init__(
        self,
        settings: Settings,
        live: LiveSettings,
        roles: Roles,
        host: str,
        results: Results,
        on_event: Callable[[str], object],
    ) -> None:
        self._plan = _Plan(settings, live, safe_name(live.host or host), live.sequence or None)
        self._roles = roles
        self._results = results
        self._on_event = on_event
        self._recent = Recent(settings, roles, nanoseconds(live.pretrigger), live.pretrigger_bytes)
        self._clock = LiveClock(roles)
        self._current: _Waiting | _Recording | None = None
        self._ending: list[_Ending] = []
        self._looked = 0  # when the disk was last looked at
        self._completer = Completer(results, on_event)
        for doubt in settings.doubts:
            on_event(doubt)
        if settings.start is not None or settings.end is not None:
            on_event("start and end are for recordings, a capture does not look at them")

    @property
    def state(self) -> State:
        """State of the capture."""
        match self._current:
            case _Waiting():
                return State.WAITING
            case _Recording(split_since=None):
                return State.RECORDING
            case _Recording():
                return State.SPLITTING
        return State.COMPLETING if self._completer.busy else State.IDLE

    def facts(self) -> dict[str, Any]:
        """Return the state, and the progress of the dataset that is being recorded."""
        current = self._current
        facts = {
            "state": self.state.value,
            "recording": isinstance(current, _Recording),
            "waiting": isinstance(current, _Waiting),
        }
        return facts | (current.dataset.status() if isinstance(current, _Recording) else {})

    def change(self, settings: Settings, live: LiveSettings) -> None:
        """Apply settings from the next dataset on; those of alignment must stay the same."""
        plan = self._plan
        plan.settings, plan.live = settings, live

    # ---- orders --------------------------------------------------------------------------
    def start(self, now: int) -> None:
        """Start a dataset with the content of the pre-trigger, as soon as the clock is known."""
        if isinstance(self._current, _Recording):
            return
        self._results.failure = None
        if self._clock.base is None:
            self._current = _Waiting(now)
        else:
            self._begin(self._clock.base, self._recent.begin(now))

    def split(self, now: int) -> bool:
        """Continue in a new dataset from the next keyframe on; False if nothing is being recorded."""
        if not isinstance(self._current, _Recording):
            return False
        if self._current.split_since is None:
            self._current.split_since = now
        return True

    def stop(self) -> list[Future[Completed]]:
        """Start to complete every dataset; return those that are being completed."""
        try:
            if isinstance(self._current, _Waiting) and self._clock.base is None and self._clock.heard is not None:
                self._choose_clock()  # less than that came, and is all there will be
        finally:
            self._end()
        return self._completer.completing

    def settle(self) -> None:
        """Collect the outcome of the datasets that are completed."""
        self._completer.settle()

    def close(self) -> None:
        """Wait until every dataset is completed."""
        self._completer.close()

    def fail(self, error: Exception) -> None:
        """End the dataset because of an error, and report it; messages are still received."""
        reason = describe_error(error)
        self._results.fail(reason)
        self._on_event(f"the dataset ends here: {reason}")
        self._end()

    # ---- messages and time ---------------------------------------------------------------
    def arrive(self, arrival: Arrival) -> None:
        """Add the next message."""
        message = arrival.message
        reference = message.topic == self._roles.reference
        if message.topic in self._roles.statics:
            with contextlib.suppress(MessageError):  # counted where it is recorded
                self._plan.known.take(message.schema, decode(message), message.log_time, message.topic)
        if reference and self._clock.base is None and self._clock.heard is None:
            self._recent.hold = arrival.now
        if self._recent.add(arrival):
            self._on_event("the pre-trigger takes more than pretrigger_bytes: a dataset may begin later than it says")
        fault = self._clock.take(message, arrival.now)
        if fault is not None:
            self._on_event(f"{message.topic}: {fault}")
        if self._clock.due(arrival.now):
            self._choose_clock()
        elif isinstance(self._current, _Recording):
            self._record(self._current, arrival)
        if not reference:
            for ending in self._ending:
                ending.dataset.push(arrival)
        self.advance(arrival.now)

    def advance(self, now: int) -> None:
        """Do what is due at `now`: choose the clock, hand on complete frames, check the disk."""
        if self._clock.due(now):
            self._choose_clock()  # the camera may be gone again
        current = self._current
        if isinstance(current, _Recording):
            current.dataset.advance(now)
        for ending in self._ending:
            ending.dataset.advance(now)
        while self._ending and self._ending[0].until <= now:
            self._completer.complete(self._ending.pop(0).dataset)
        self.settle()
        if isinstance(current, _Recording) and now - self._looked >= SECOND:
            self._looked = now
            current.dataset.flush()
            current.headroom.check(current.dataset.bytes, self._plan.live.min_free_bytes, time.monotonic())

    def _choose_clock(self) -> None:
        """Choose the clock by the messages so far, and start the dataset that waits for it."""
        heard, waiting = self._clock.heard or 0, self._current
        try:
            base = self._clock.choose(self._plan.settings.time_base)
            self._recent.spread = base.spread
            for topic, what in base.replaced.items():
                self._on_event(f"{topic}: {what}")
            if isinstance(waiting, _Waiting):
                self._begin(base, self._recent.begin(waiting.since) if waiting.since > heard else heard)
        except UsageError as error:
            if isinstance(waiting, _Waiting) or str(error) != self._results.failure:  # else it was said before
                raise
        finally:
            self._recent.hold = None

    def _record(self, current: _Recording, arrival: Arrival) -> None:
        """Add a message to the dataset, or to a new one that begins with it."""
        if arrival.entry and current.split_since is None and self._full(current.dataset):
            current.split_since = arrival.now
        since = current.split_since
        if since is not None and (arrival.closed or (arrival.entry and arrival.now - since > OPEN_SPLIT)):
            self._change_over(current.dataset, arrival)
        else:
            current.dataset.push(arrival)

    def _full(self, dataset: CaptureDataset) -> bool:
        live = self._plan.live
        long = live.max_seconds and time.monotonic() - dataset.began >= live.max_seconds
        return bool(long or (live.max_bytes and dataset.bytes >= live.max_bytes))

    def _change_over(self, dataset: CaptureDataset, arrival: Arrival) -> None:
        """Start a new dataset with this keyframe; the old one still receives what its last frames may need."""
        settings = self._plan.settings
        wait = nanoseconds(2 * settings.max_gap + 2 * settings.lookahead) + max_skew(settings)
        self._current = None
        self._ending.append(_Ending(arrival.now + wait + self._recent.spread, dataset))
        self._begin(dataset.base, arrival.now)

    # ---- begin and end -------------------------------------------------------------------
    def _begin(self, base: TimeBase, begin: int) -> None:
        """Open a dataset; its first frame is the first message of the reference that came at `begin` or later."""
        self._current = None
        live = self._plan.live
        headroom = Headroom(Path(live.out), time.monotonic())
        headroom.check(0, live.min_free_bytes, time.monotonic())
        dataset = self._open(base, max(0, time.monotonic_ns() - begin) / SECOND)
        self._current = _Recording(dataset, headroom)
        self._on_event(f"dataset {dataset.sequence} begins in {live.out}")
        for earlier in self._recent.since(begin):
            dataset.push(earlier if earlier.now >= begin else replace(earlier, lost=0, guessed=0))

    def _open(self, base: TimeBase, start_lag: float) -> CaptureDataset:
        """Open a dataset with a free name, whose first messages came `start_lag` s ago."""
        plan, tried = self._plan, 0
        while True:
            name, tried = self._new_name(), tried + 1
            try:
                return CaptureDataset(plan.settings, plan.live, self._roles, base, plan.known, name, start_lag)
            except DatasetError as error:
                taken = is_taken(Path(plan.live.out), name, plan.settings.layout)
                if isinstance(error, StorageError) or not taken or tried == NAMES:
                    raise

    def _new_name(self) -> str:
        plan = self._plan
        sequence, plan.sequence = plan.sequence, None
        out, layout = Path(plan.live.out), plan.settings.layout
        if sequence is not None:
            if not is_taken(out, sequence, layout):
                return sequence
            self._on_event(f"{sequence} is there already in {plan.live.out}: named by host and time instead")
        return free_name(out, plan.host, layout)

    def _end(self) -> None:
        """Start to complete every dataset."""
        current, ending = self._current, self._ending
        self._current, self._ending = None, []
        for one in ending:
            self._completer.complete(one.dataset)
        if isinstance(current, _Recording):
            self._completer.complete(current.dataset)
