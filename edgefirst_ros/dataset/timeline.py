# SPDX-License-Identifier: Apache-2.0
"""Times of a dataset as arrays: of its samples and of their messages.

A dataset keeps only the stamps that its samples use; what was recorded beside them is not in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset.schema import MODEL_TIMESTAMP
from edgefirst_ros.streams import with_column

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MODEL = "model"
"""Key of the model's stamps beside those of the sensors."""
COLUMNS = ("name", "timestamp", "segment", *(f"{sensor.column}_timestamp" for sensor in with_column()), MODEL_TIMESTAMP)
"""Columns of the frames table that are read."""
FEWEST = 3
"""Fewest messages for which a usual interval is defined."""


@dataclass(frozen=True)
class Companion:
    """Stamps of one sensor by sample; where `has` is False the other values are undefined."""

    has: NDArray[np.bool_]
    stamps: Ints
    """ns since the epoch."""
    skew: Ints
    """Stamp minus that of the sample, ns."""

    @cached_property
    def off(self) -> Ints:
        """Sorted |skew| of the samples that have it, ns."""
        return np.sort(np.abs(self.skew[self.has]))

    def within(self, share: float) -> float:
        """Return the ns within which so large a share of its samples lie, 0 to 1; between two of them by the line."""
        place = share * (len(self.off) - 1)
        low = int(place)
        high = min(low + 1, len(self.off) - 1)
        return float(self.off[low]) + (place - low) * float(self.off[high] - self.off[low])


@dataclass(frozen=True)
class Block:
    """Samples of one sequence between two steps of its clock: rows `start` up to, not including, `stop`."""

    sequence: str
    start: int
    stop: int


@dataclass(frozen=True)
class Interval:
    """Time from one message to the next one of its sequence."""

    sequence: str
    start: float
    """s since the first sample of the sequence, what lies between steps of its clock left out."""
    drive: float
    """The same as s of drive."""
    length: float
    """s."""


@dataclass(frozen=True)
class Pace:
    """Regularity of messages."""

    messages: int
    period: float | None
    """Usual interval, s; None of fewer than three messages."""
    longest: Interval
    """Longest interval; those from the start to the first message, and from the last to the end, count too."""
    gaps: tuple[Interval, ...]
    """All intervals of `widest` and more, in order."""


class Timeline:
    """The frames of a dataset in order of time: by sequence, by segment of its clock, by stamp.

    `seconds` runs through all of them without a break: what lies between two sequences, or behind a clock that was
    set, is left out.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        """`table`: the frames; columns that have another type than the format says count as not there."""
        stamps = _integers(table, "timestamp")
        rows = np.flatnonzero(stamps[1]) if stamps else np.zeros(0, np.int64)
        names = _texts(table, "name")
        segment = _integers(table, "segment")
        listed: dict[str, int] = {}
        sequence = np.array([listed.setdefault(names[row], len(listed)) for row in rows.tolist()], np.int64)
        part = segment[0][rows] if segment else np.zeros(len(rows), np.int64)
        values = stamps[0][rows] if stamps else np.zeros(0, np.int64)
        order = np.lexsort((values, part, sequence))
        self.rows: Ints = rows[order]
        """Row of the table of each sample."""
        self.stamps: Ints = values[order]
        self.names = list(listed)
        self.sequence: Ints = sequence[order]
        """Place in `names`."""
        edges = np.flatnonzero((np.diff(self.sequence) != 0) | (np.diff(part[order]) != 0)) + 1
        ends = [0, *edges.tolist(), len(order)] if len(order) else []
        self.blocks = [Block(self.names[self.sequence[a]], a, b) for a, b in itertools.pairwise(ends)]
        self.seconds, self._first, self._offset = self._run()
        self.companions = self._companions(table)

    def __len__(self) -> int:
        return len(self.stamps)

    @property
    def duration(self) -> float:
        """Seconds from the first to the last sample, what lies between sequences left out."""
        return float(sum(self.seconds[b.stop - 1] - self.seconds[b.start] for b in self.blocks))

    @property
    def by_sequence(self) -> dict[str, int]:
        """Number of samples of each sequence."""
        counted = np.bincount(self.sequence, minlength=len(self.names))
        return dict(zip(self.names, counted.tolist(), strict=True))

    @property
    def steps(self) -> int:
        """Number of times a clock was set or stood still within a sequence."""
        return len(self.blocks) - len({block.sequence for block in self.blocks})

    def messages(self, sensor: str) -> list[Floats]:
        """Seconds of drive of the different messages of a sensor or the model, by block, rising."""
        one = self.companions[sensor]
        found = []
        for number, block in enumerate(self.blocks):
            rows = slice(block.start, block.stop)
            different = np.unique(one.stamps[rows][one.has[rows]])
            found.append((different - self._first[number]) / 1e9 + self._offset[number])
        return found

    def samples(self) -> list[Floats]:
        """Seconds of drive of the samples, by block."""
        return [self.seconds[block.start : block.stop] for block in self.blocks]

    def pace(self, times: list[Floats], widest: tuple[float, float], edges: Collection[str]) -> Pace:
        """Return how regularly messages came, given by block as s of drive.

        `widest`: periods and s; an interval is a gap that is as long as either. `edges`: sequences in which what is
        missing at the start and end of a block counts.
        """
        inner = np.concatenate([np.diff(one) for one in times]) if times else np.zeros(0)
        number = sum(map(len, times))
        period = float(np.sort(inner)[(len(inner) - 1) // 2]) if number >= FEWEST and len(inner) else None
        begins, lengths = [], []
        for block, one in zip(self.blocks, times, strict=True):
            start, end = self.seconds[block.start], self.seconds[block.stop - 1]
            if block.sequence in edges:
                one = np.concatenate([[min([start, *one[:1]])], one, [max([end, *one[-1:]])]])  # noqa: PLW2901
            begins.append(one[:-1])
            lengths.append(np.diff(one))
        begin = np.concatenate(begins) if begins else np.zeros(0)
        length = np.concatenate(lengths) if lengths else np.zeros(0)
        if not len(length):
            return Pace(number, period, Interval(self.names[0] if self.names else "", 0.0, 0.0, 0.0), ())
        starts = {block.sequence: float(self.seconds[block.start]) for block in reversed(self.blocks)}
        blocks = np.repeat(np.arange(len(self.blocks)), list(map(len, lengths)))

        def interval(n: int) -> Interval:
            sequence, drive = self.blocks[blocks[n]].sequence, float(begin[n])
            return Interval(sequence, drive - starts[sequence], drive, float(length[n]))

        least = max(widest[0] * (period or 0.0), widest[1])
        wide = np.flatnonzero(length >= least * (1 - 1e-9))
        return Pace(number, period, interval(int(length.argmax())), tuple(map(interval, wide.tolist())))

    def _run(self) -> tuple[Floats, list[int], list[float]]:
        """Seconds of drive of each sample, and of each block its first stamp and where it begins."""
        seconds = np.zeros(len(self.stamps))
        firsts: list[int] = []
        offsets: list[float] = []
        offset = 0.0
        for block in self.blocks:
            own = self.stamps[block.start : block.stop]
            seconds[block.start : block.stop] = (own - own[0]) / 1e9 + offset
            firsts.append(int(own[0]))
            offsets.append(offset)
            steps = np.diff(own)
            offset = float(seconds[block.stop - 1]) + (float(np.median(steps)) / 1e9 if len(steps) else 0.0)
        return seconds, firsts, offsets

    def _companions(self, table: pl.DataFrame) -> dict[str, Companion]:
        return dict(self._found(table))

    def _found(self, table: pl.DataFrame) -> Iterator[tuple[str, Companion]]:
        columns = [(sensor.key, f"{sensor.column}_timestamp") for sensor in with_column()]
        for key, column in [*columns, (MODEL, MODEL_TIMESTAMP)]:
            values = _integers(table, column)
            if values and values[1][self.rows].any():
                stamps = values[0][self.rows]
                yield key, Companion(values[1][self.rows], stamps, stamps - self.stamps)


def _texts(table: pl.DataFrame, column: str) -> list[str]:
    """Values of a column as text; empty ones where it is not there or holds no text."""
    import polars as pl

    if column not in table.columns or not isinstance(table.schema[column], pl.String | pl.Categorical | pl.Enum):
        return [""] * len(table)
    return [value or "" for value in table[column].cast(pl.String).to_list()]


def _integers(table: pl.DataFrame, column: str) -> tuple[Ints, NDArray[np.bool_]] | None:
    """Values of a column and whether there is one; None where it is not there or holds no integers."""
    if column not in table.columns or not table.schema[column].is_integer():
        return None
    values = table[column].to_arrow()  # its buffers in a tenth of the time that polars takes for a short column
    end = values.offset + len(values)
    bits, data = values.buffers()
    plain = np.frombuffer(data, str(values.type), end)[values.offset :].astype(np.int64)
    if bits is None:
        return plain, np.ones(len(plain), bool)
    there = np.unpackbits(np.frombuffer(bits, np.uint8), count=end, bitorder="little")[values.offset :].astype(bool)
    return np.where(there, plain, 0), there
