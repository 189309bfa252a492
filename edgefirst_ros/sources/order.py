# SPDX-License-Identifier: Apache-2.0
"""Recorded order of messages, independent of that in the file: that of `log_time`, mended by sequence numbers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

LATE = 250_000_000
"""ns of `log_time` within which sequence numbers put messages in order."""
SET_BACK = 1_000_000_000
"""Decrease of log times, ns, that means that the clock was set back."""

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _TopicOrder:
    """Detects whether the messages of one topic are in recorded order in the file."""

    file: int = 0
    sequence: int = -1
    log_time: int = -1
    rising: bool = True  # sequence numbers rise all the time, in each file
    repeated: bool = False  # sequence numbers are not all different
    steady: bool = True  # log times never fall
    crossed: bool = False  # log times fall between two files

    def add(self, file: int, sequence: int, log_time: int) -> None:
        if file != self.file:  # each file has a count of its own
            self.file, self.sequence = file, -1
            self.crossed = self.crossed or log_time < self.log_time
        self.rising = self.rising and sequence > self.sequence
        self.repeated = self.repeated or sequence == self.sequence
        self.steady = self.steady and log_time >= self.log_time
        self.sequence, self.log_time = sequence, log_time


class FileOrder:
    """Detects whether the messages of a recording are in recorded order in its files."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, _TopicOrder] = defaultdict(_TopicOrder)
        self._newest = 0
        self._late = False

    def add(self, topic: str, file: int, sequence: int, log_time: int) -> None:
        """Note the next message, of the file with that number."""
        self._topics[topic].add(file, sequence, log_time)
        if log_time > self._newest:
            self._newest = log_time
        elif self._newest - log_time > LATE:
            self._late = True

    @property
    def is_recorded_order(self) -> bool:
        """True if file order is recorded order."""
        topics = self._topics.values()
        if all(topic.steady for topic in topics):
            return not self._late and all(topic.rising or topic.repeated for topic in topics)
        # the clock was set back, as the sequence numbers show
        return all(topic.rising and not topic.crossed for topic in topics)


class TopicOrder(NamedTuple):
    """Recorded order of the messages of one topic."""

    order: Array
    """Positions of the messages, in recorded order."""
    epochs: Array
    """Of each message, how often its clock had been set back."""
    keys: Array
    """Of each message, the newest `log_time` up to it in its file and epoch, ns."""


def order_topic(numbers: Array, logs: Array, files: Array) -> TopicOrder:
    """Put the messages of one topic into recorded order.

    Args:
        numbers: (n,) their sequence numbers, in file order.
        logs: (n,) their `log_time`, ns.
        files: (n,) the number of the file of each, which never falls; each file counts for itself.
    """
    epochs, keys = np.zeros(len(logs), np.int64), np.zeros(len(logs), np.int64)
    orders, base = [], 0
    for mine in np.split(np.arange(len(logs)), np.flatnonzero(np.diff(files)) + 1):
        order, cuts = _order_in_file(numbers[mine], logs[mine])
        order = mine[order]
        for epoch, run in enumerate(np.split(order, cuts), base):
            epochs[run], keys[run] = epoch, np.maximum.accumulate(logs[run])
        base += len(cuts)
        orders.append(order)
    joined = np.concatenate(orders)
    return TopicOrder(joined[np.lexsort((keys[joined], epochs[joined]))], epochs, keys)


def _order_in_file(numbers: Array, logs: Array) -> tuple[Array, Array]:
    """Return the recorded order of one topic in one file, and where in it the clock was set back."""
    places = np.arange(len(logs))
    if (np.diff(numbers) > 0).all():  # regardless of the clock
        return places, np.flatnonzero(np.diff(logs) < -SET_BACK) + 1
    ordered = np.sort(numbers)  # np.unique would load numpy.ma, which takes as long as converting ten pictures
    numbered = not (ordered[1:] == ordered[:-1]).any()
    by_number = np.argsort(numbers, kind="stable") if numbered else places
    cuts = _set_backs(numbers[by_number], logs[by_number]) if numbered and (np.diff(logs) < 0).any() else places[:0]
    runs = []
    for run in np.split(by_number, cuts):
        run.sort()
        order = run[np.argsort(logs[run], kind="stable")]
        if numbered and not (np.diff(numbers[order]) > 0).all():
            order = order[_order_by_number(numbers[order].tolist(), logs[order].tolist())]
        runs.append(order)
    return np.concatenate(runs), cuts


def _set_backs(numbers: Array, logs: Array) -> Array:
    """Return the places in order of number at which the clock was set back; empty if numbers were counted again.

    Where a publisher is started again, a fall of `log_time` comes with a gap of the numbers.
    """
    falls, steps = np.flatnonzero(np.diff(logs) < -SET_BACK), np.diff(numbers)
    usual = np.sort(steps)[(len(steps) - 1) // 2] if len(steps) else 1
    return falls + 1 if (steps[falls] <= 2 * usual).all() else falls[:0]


def _order_by_number(numbers: list[int], logs: list[int]) -> list[int]:
    """Put each message that steps back in number into its place among those recorded `LATE` before it.

    One that steps back by more numbers than earlier messages begins a new count: its publisher was started again.
    """
    found: list[int] = []
    for position, (number, log) in enumerate(zip(numbers, logs, strict=True)):
        place = near = len(found)
        while near and log - logs[found[near - 1]] <= LATE:
            near -= 1
        while place > near and numbers[found[place - 1]] > number:
            place -= 1
        passed = [numbers[other] for other in found[place:]]
        if passed and max(passed) - number > len(found) - near:
            place = len(found)
        found.insert(place, position)
    return found


def sort_recorded(index: Array) -> Array:
    """Return the index (fields topic, file, sequence, log) sorted by recorded order.

    Each topic is put into its own order, then all are joined by the newest `log_time` of their topic so far; where a
    clock was set back, the messages before it come first.
    """
    keys, epochs, places = (np.zeros(len(index), np.int64) for _ in range(3))
    logs = np.minimum(index["log"], np.iinfo(np.int64).max).astype(np.int64)
    numbers = index["sequence"].astype(np.int64)
    for topic in np.flatnonzero(np.bincount(index["topic"])):
        mine = np.flatnonzero(index["topic"] == topic)
        found = order_topic(numbers[mine], logs[mine], index["file"][mine])
        epochs[mine], keys[mine] = found.epochs, found.keys
        places[mine[found.order]] = mine  # of equal keys the first in the file, but a topic keeps its own order
    return index[np.lexsort((places, keys, epochs))]
