# SPDX-License-Identifier: Apache-2.0
"""A worker thread behind a bounded queue."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Calls `handle` for each item, in order, in a thread of its own.

    `put` waits while `size` items wait (0: never), and raises what the handler raised; items behind a failure are
    thrown away. Who waited goes on once half of them are handled: woken for every single one, it would find the
    caches cold every time.

    Owns: `_error` is set once, by the worker's thread, and read by all; the queue is changed under `_lock`; any thread
    may call the methods.
    """

    def __init__(self, name: str, handle: Callable[[T], None], size: int) -> None:
        self._handle = handle
        self._size = size
        self._items: deque[T | None] = deque()
        self._lock = threading.Lock()
        self._filled, self._emptied = threading.Condition(self._lock), threading.Condition(self._lock)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if self._error is None:
                try:
                    self._handle(item)
                except BaseException as error:  # noqa: BLE001  it is raised again where the items come from
                    self._error = error

    def _next(self) -> T | None:
        with self._lock:
            while not self._items:
                self._filled.wait()
            item = self._items.popleft()
            if len(self._items) <= self._size // 2:
                self._emptied.notify_all()
            return item

    def put(self, item: T) -> None:
        """Enqueue the next item."""
        if self._error is not None:
            raise self._error
        self._enqueue(item)

    def _enqueue(self, item: T | None) -> None:
        with self._lock:
            if self._size and len(self._items) >= self._size:
                self._emptied.wait_for(lambda: len(self._items) <= self._size // 2)
            self._items.append(item)
            self._filled.notify()

    @property
    def backlog(self) -> int:
        """Approximate number of waiting items."""
        return len(self._items)

    def close(self) -> None:
        """Wait until all items are handled; raises what the handler raised."""
        self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait until all items are handled; never raises."""
        if self._thread.is_alive():
            self._enqueue(None)
            self._thread.join()
