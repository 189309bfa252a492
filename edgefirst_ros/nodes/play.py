# SPDX-License-Identifier: Apache-2.0
"""Plays a recording at its own pace on any bus: its time, when a message is due, reading ahead, subscribers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass

from edgefirst_ros.config import SECOND
from edgefirst_ros.messages import Message
from edgefirst_ros.sync.clock import JUMP_BACK

LONGEST_PAUSE = 60_000_000_000
"""Longest pause between two messages, ns; a longer one is a clock set forward, and is skipped."""
AHEAD = 32 << 20
"""Bytes read ahead: one second of all topics of the device."""
LATE = 20_000_000
"""ns after its due time at which a message counts as late."""
NAP = 0.1
"""Longest sleep in s between two checks whether to stop."""
FAR = 1 << 62
"""ns, later than any time."""
SETTLED = SECOND // 2
"""ns without a new subscription after which discovery counts as finished."""
LOOK_EVERY = 0.02
"""s between two checks for subscribers."""


class RunningTime:
    """Running time of a recording, from the order and `log_time` of its messages, without steps of its clock."""

    def __init__(self, first: int) -> None:
        self.newest = first
        """Newest `log_time`, ns."""
        self.elapsed = 0
        """ns since the begin of the recording."""
        self.steps = 0
        """Number of times the clock was set."""

    def advance(self, log_time: int) -> int:
        """Return the running time of the next message, ns since the beginning; it never decreases."""
        step = log_time - self.newest
        if step > LONGEST_PAUSE or step < -JUMP_BACK:
            self.steps += 1
            self.newest = log_time
        elif step > 0:
            self.elapsed += step
            self.newest = log_time
        return self.elapsed


@dataclass(slots=True)
class Lateness:
    """Statistics of how late messages were published, ns."""

    late: int = 0
    worst: int = 0

    def note(self, behind: int) -> None:
        self.late += behind > LATE
        self.worst = max(self.worst, behind)

    def describe(self) -> str:
        """Return in words how many messages were late, and by how much."""
        return f"{self.late} were late by over {LATE // 1_000_000} ms, the worst by {self.worst / 1e6:.1f} ms"


class Pace:
    """Computes when messages are due by the monotonic clock; the delay of one message is not added to the next.

    `begin` is the time of the recording that is due now, ns; `rate` is its seconds in a second.
    """

    def __init__(self, rate: float, begin: int) -> None:
        self._rate = rate
        self._begin = begin
        self._started = time.monotonic_ns()

    def due(self, elapsed: int) -> int:
        """Return when a running time of the recording is due, ns of time.monotonic_ns()."""
        return self._started + round((elapsed - self._begin) / self._rate)

    def elapsed(self, now: int) -> int:
        """Return the running time of the recording at `now`, ns."""
        return self._begin + round((now - self._started) * self._rate)


class ReadAhead:
    """Reads messages ahead in a thread of its own, at most `AHEAD` bytes and one message."""

    def __init__(self, messages: Iterator[Message]) -> None:
        self._messages = messages
        self._held: deque[Message] = deque()
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="read ahead", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self._messages:
                with self._changed:
                    self._changed.wait_for(lambda: self._bytes < AHEAD or self._ended)
                    if self._ended:
                        return
                    self._held.append(message)
                    self._bytes += len(message.data)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001  raised again for the reader of the messages
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def messages(self, stopped: Callable[[], object]) -> Iterator[Message]:
        """Yield the messages; ends early when `stopped` returns True. Raises what reading raised."""
        while not stopped():
            with self._changed:
                self._changed.wait_for(lambda: self._held or self._ended, NAP)
                message = self._held.popleft() if self._held else None
                if message is None and self._ended:
                    break
                if message is not None:
                    self._bytes -= len(message.data)
                    self._changed.notify_all()
            if message is not None:
                yield message
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def ahead(messages: Iterator[Message], stopped: Callable[[], object]) -> Iterator[Message]:
    """Yield the messages, read ahead; ends early when `stopped` returns True."""
    with closing(ReadAhead(messages)) as reader:
        yield from reader.messages(stopped)


# ---- playing -----------------------------------------------------------------------------------
def wait_for_subscribers(
    subscribed: Callable[[], Collection[str]],
    wanted: int,
    timeout: float,
    stopped: Callable[[], object],
    meanwhile: Callable[[], object] = lambda: None,
) -> int:
    """Wait until `wanted` topics have subscribers and no more appear, at most `timeout` s; return how many have."""
    began = since = time.monotonic_ns()
    found = subscribed()
    while (now := time.monotonic_ns()) < began + timeout * SECOND and not stopped():
        before, found = found, subscribed()
        if found != before:
            since = now
        if len(found) >= wanted and now - since >= SETTLED:
            break
        meanwhile()
        time.sleep(LOOK_EVERY)
    return len(found)


def play(
    messages: Iterator[Message],
    publish: Callable[[Message], object],
    *,
    rate: float,
    stopped: Callable[[], object],
    lateness: Lateness,
    first: int | None = None,
    begin: int = 0,
    end: int | None = None,
    meanwhile: Callable[[int, int], int] = lambda at, elapsed: FAR,
) -> None:
    """Publish messages once, each when it is due, until `stopped` returns True.

    Args:
        messages: The messages, in recorded order.
        publish: Called with each message when it is due.
        rate: Seconds of the recording in one second.
        stopped: Asked before each message, and at least every 0.1 s.
        lateness: Gets how late each message is published.
        first: `log_time` at which the recording begins, ns; that of the first message if None.
        begin: Time of the recording at which playing begins, ns.
        end: Time of the recording at which it ends, ns; None: with the last message.
        meanwhile: Called while no message is due with the `log_time` now and the running time, ns; returns the time of
            its next call, ns of time.monotonic_ns().
    """
    timeline = None if first is None else RunningTime(first)
    pace: Pace | None = None
    for message in ahead(messages, stopped):
        timeline = timeline or RunningTime(message.log_time)
        elapsed = timeline.advance(message.log_time)
        if elapsed < begin:
            meanwhile(timeline.newest, elapsed)
            continue
        if end is not None and elapsed >= end:
            return
        pace = pace or Pace(rate, begin)
        due = pace.due(elapsed)
        while not stopped():
            now = time.monotonic_ns()
            shown = min(elapsed, pace.elapsed(now))
            again = meanwhile(timeline.newest - elapsed + shown, shown)
            if now >= due:
                break
            time.sleep(min((min(due, again) - now) / SECOND, NAP) if again > now else 0)
        if stopped():
            return
        lateness.note(time.monotonic_ns() - due)
        publish(message)
