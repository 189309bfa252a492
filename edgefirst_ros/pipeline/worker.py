# SPDX-License-Identifier: Apache-2.0
"""A worker thread behind a bounded queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Calls `handle` for each item, in order, in a thread of its own.

    `put` waits while `size` items wait (0: never), and raises what the handler raised; items behind a failure are
    dropped.

    Owns: `_error` is set once, by the worker's thread, and read by all; any thread may call the methods.
    """

    def __init__(self, name: str, handle: Callable[[T], None], size: int) -> None:
        self._handle = handle
        self._items: queue.Queue[T | None] = queue.Queue(size)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            if self._error is None:
                try:
                    self._handle(item)
                except BaseException as error:  # noqa: BLE001  it is raised again where the items come from
                    self._error = error

    def put(self, item: T) -> None:
        """Enqueue the next item."""
        if self._error is not None:
            raise self._error
        self._items.put(item)

    @property
    def backlog(self) -> int:
        """Approximate number of waiting items."""
        return self._items.qsize()

    def close(self) -> None:
        """Wait until all items are handled; raises what the handler raised."""
        self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait until all items are handled; never raises."""
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
