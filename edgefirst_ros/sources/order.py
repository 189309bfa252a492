# SPDX-License-Identifier: Apache-2.0
"""Recorded order of messages, whatever their order in the file."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

LATE = 250_000_000
"""ns by which messages may follow later ones in the file before it is sorted."""
SET_BACK = 1_000_000_000
"""Decrease of log times, ns, that means that the clock was set back."""


@dataclass(slots=True)
class _TopicOrder:
    """Detects whether the messages of one topic are in recorded order in the file."""

    sequence: int = -1
    log_time: int = -1
    rising: bool = True  # sequence numbers rise all the time
    repeated: bool = False  # sequence numbers are not all different
    steady: bool = True  # log times never fall

    def note(self, sequence: int, log_time: int) -> None:
        self.rising = self.rising and sequence > self.sequence
        self.repeated = self.repeated or sequence == self.sequence
        self.steady = self.steady and log_time >= self.log_time
        self.sequence, self.log_time = sequence, log_time


class FileOrder:
    """Detects whether the messages of a file are in recorded order."""

    def __init__(self) -> None:
        self._topics: defaultdict[str, _TopicOrder] = defaultdict(_TopicOrder)
        self._newest = 0
        self._late = False

    def note(self, topic: str, sequence: int, log_time: int) -> None:
        """Note the next message."""
        self._topics[topic].note(sequence, log_time)
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
        return all(topic.rising for topic in topics)  # the clock was set back, and the sequence numbers say so


def all_different(numbers: np.ndarray[Any, Any]) -> bool:
    """True if no number repeats; np.unique would load numpy.ma, which takes as long as converting ten pictures."""
    ordered = np.sort(numbers)
    return not (ordered[1:] == ordered[:-1]).any()


def recorded_order(index: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the index (fields topic, sequence, log) sorted by recorded order.

    Each topic is put into its own order, then all are joined by the newest `log_time` of their topic so far; where a
    clock was set back, what came before goes first.
    """
    keys = np.zeros(len(index), np.int64)
    epochs = np.zeros(len(index), np.int64)
    places = np.arange(len(index))
    for topic in np.unique(index["topic"]):
        mine = np.flatnonzero(index["topic"] == topic)
        numbered = all_different(index["sequence"][mine])
        order = mine[np.argsort(index["sequence" if numbered else "log"][mine], kind="stable")]
        log = np.minimum(index["log"][order], np.iinfo(np.int64).max).astype(np.int64)
        steps = np.flatnonzero(np.diff(log) < -SET_BACK) + 1
        for epoch, part in enumerate(np.split(np.arange(len(order)), steps)):
            epochs[order[part]] = epoch
            keys[order[part]] = np.maximum.accumulate(log[part])
        places[order] = np.sort(mine)  # of equal keys the first in the file, but a topic keeps its own order
    return index[np.lexsort((places, keys, epochs))]
