# SPDX-License-Identifier: Apache-2.0
"""Distribution of live messages to their consumers."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from edgefirst_ros.errors import counted
from edgefirst_ros.messages import Message
from edgefirst_ros.sources.source import in_span, type_wanted

Deliver = Callable[[Message, int, int, int], None]
"""Called with a message, when it came (time.monotonic_ns()), and how many were lost before it: known, and guessed."""
HELD = 64 << 20
"""Most bytes queued for a reader of `Inbox.iter_messages`; further messages are dropped and counted."""
NAP = 0.1
"""s between two checks of the clock by a reader without messages."""


class Inbox:
    """Passes each message to a callback that never blocks, and to the queues of readers.

    Owns: `put` is called by the transport's threads, `iter_messages` by any; readers and what they missed are changed
    under the lock.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._readers: list[_Reader] = []
        self._missed: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._closed = False

    @property
    def notes(self) -> list[str]:
        """Notes of messages that readers did not fetch in time."""
        with self._changed:
            missed = sorted(self._missed.items())
            return [f"{topic}: {counted(n, 'message')} left out, not fetched in time" for topic, n in missed]

    def put(self, message: Message, now: int, lost: int, guessed: int = 0) -> None:
        """Hand on a message that came at `now`, ns of time.monotonic_ns(); `lost` of its topic were lost before it.

        `guessed`: how many more seem to be, by the stamps.
        """
        self._deliver(message, now, lost, guessed)
        if not self._readers:
            return
        with self._changed:
            for reader in self._readers:
                if reader.wants(message) and not reader.add(message):
                    self._missed[message.topic] += 1
            self._changed.notify_all()

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield messages as they come from now on, as `Source.iter_messages` says; until `end` or `close`."""
        reader = _Reader(topics, start, end)
        with self._changed:
            self._readers.append(reader)
        return self._read(reader)

    def _read(self, reader: _Reader) -> Iterator[Message]:
        try:
            while True:
                with self._changed:
                    while not reader.waiting and not self._closed and not reader.over():
                        self._changed.wait(NAP)
                    if not reader.waiting:
                        return
                    message = reader.take()
                yield message
        finally:
            with self._changed:
                self._readers.remove(reader)

    def close(self) -> None:
        """Let readers end once they have read all messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class _Reader:
    """Queue of one reader, with the topics and span it wants."""

    def __init__(self, topics: Collection[str] | None, start: int | None, end: int | None) -> None:
        self._topics = topics
        self._span = start, end
        self.waiting: deque[Message] = deque()
        self._bytes = 0

    def wants(self, message: Message) -> bool:
        return type_wanted(self._topics, message.topic, message.schema) and in_span(message.log_time, *self._span)

    def over(self) -> bool:
        """True if no further message can be wanted."""
        return not in_span(time.time_ns(), None, self._span[1])

    def add(self, message: Message) -> bool:
        """Enqueue a message; False if the queue is full."""
        if self.waiting and self._bytes + len(message.data) > HELD:
            return False
        self.waiting.append(message)
        self._bytes += len(message.data)
        return True

    def take(self) -> Message:
        message = self.waiting.popleft()
        self._bytes -= len(message.data)
        return message
