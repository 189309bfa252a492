# SPDX-License-Identifier: Apache-2.0
"""Playing a recording at its own pace: its time, when a message is due, and reading ahead. Knows nothing of ROS."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

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


class Timeline:
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
        except BaseException as error:  # noqa: BLE001  it is raised again where the messages are asked for
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
