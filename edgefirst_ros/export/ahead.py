# SPDX-License-Identifier: Apache-2.0
"""What can be made of samples in any order, made by threads while the ones before are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from edgefirst_ros.sensors.processors import processors

T = TypeVar("T")
R = TypeVar("R")
MOST = 8
"""Threads; more than one that writes can follow only take memory."""


def ahead(items: Iterable[T], make: Callable[[T], R]) -> Generator[tuple[T, R]]:
    """Each item with what `make` gives for it, in order; items are asked for in the caller's thread.

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
