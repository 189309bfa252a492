# SPDX-License-Identifier: Apache-2.0
"""Prepares samples in threads ahead of the writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from edgefirst_ros.limits import processors

T = TypeVar("T")
R = TypeVar("R")
MOST = 8
"""Most threads; more than the writer can follow only take memory."""


def ahead(items: Iterable[T], make: Callable[[T], R]) -> Generator[tuple[T, R]]:
    """Yield each item with the result of `make`, in order; items are consumed in the caller's thread.

    Twice as many as there are threads wait at most. Close it when it is not used to its end: then no thread is left.
    Raises what `make` raises, in the item's turn.
    """
    threads = min(MOST, processors())
    waiting: deque[tuple[T, Future[R]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append((item, pool.submit(make, item)))
                if len(waiting) > 2 * threads:
                    first, made = waiting.popleft()
                    yield first, made.result()
            while waiting:
                first, made = waiting.popleft()
                yield first, made.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
