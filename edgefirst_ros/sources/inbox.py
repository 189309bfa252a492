# SPDX-License-Identifier: Apache-2.0
"""Messages of a live source on their way to those who want them."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator

from edgefirst_ros.messages import Message
from edgefirst_ros.sources.source import in_span, type_wanted

Deliver = Callable[[Message, int, int, int], None]
"""Called with a message, when it came (time.monotonic_ns()), and how many were lost before it: known, and guessed."""
HELD = 64 << 20
"""Bytes that may wait for a reader of `Inbox.iter_messages`; what comes beyond is left out, and counted."""
NAP = 0.1
"""s between two looks at the clock by a reader for whom nothing comes."""


class Inbox:
    """Hands each message on to one who never waits, and to readers who take their time.

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
        """What readers did not fetch in time, in words."""
        with self._changed:
            return [f"{topic}: {n} messages left out, not fetched in time" for topic, n in sorted(self._missed.items())]

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
        """Let readers end once they have what came."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class _Reader:
    """What one reader wants and has not fetched yet."""

    def __init__(self, topics: Collection[str] | None, start: int | None, end: int | None) -> None:
        self._topics = topics
        self._span = start, end
        self.waiting: deque[Message] = deque()
        self._bytes = 0

    def wants(self, message: Message) -> bool:
        return type_wanted(self._topics, message.topic, message.schema) and in_span(message.log_time, *self._span)

    def over(self) -> bool:
        """True if nothing can come any more that it wants."""
        return not in_span(time.time_ns(), None, self._span[1])

    def add(self, message: Message) -> bool:
        """Keep a message; False where too much waits already."""
        if self.waiting and self._bytes + len(message.data) > HELD:
            return False
        self.waiting.append(message)
        self._bytes += len(message.data)
        return True

    def take(self) -> Message:
        message = self.waiting.popleft()
        self._bytes -= len(message.data)
        return message
