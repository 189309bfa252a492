# SPDX-License-Identifier: Apache-2.0
"""Verdict on a drive: its times as arrays, thresholds, and the checks of one sequence against them.

The one table of thresholds, for the report, `validate` and /diagnostics alike. A dataset keeps only the stamps that its
samples use; other recorded messages are not in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import LOSS
from edgefirst_ros.dataset.schema import MODEL_TIMESTAMP
from edgefirst_ros.dataset.tables.values import is_text, is_valid, read_scalars
from edgefirst_ros.errors import pluralize
from edgefirst_ros.sensors.calibration import GIVEN, IDENTITY, MISSING
from edgefirst_ros.streams import stamp_columns

if TYPE_CHECKING:
    from edgefirst_ros.dataset.tables.arrow_file import TableFile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
MODEL = "model"
"""Key of the model's stamps beside those of the sensors."""
POSE = "pose"
PRESENT = {"latitude": "position", "orientation": "attitude", "pose_position": POSE}
"""Further columns whose values are counted."""
COLUMNS = ("name", "timestamp", "segment", MODEL_TIMESTAMP, *PRESENT)
"""Columns of the frames table that are read, beside the stamps of companions."""
FEWEST = 3
"""Fewest messages for which a usual interval is defined."""


@dataclass(frozen=True)
class CompanionStamps:
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
        """Return the ns within which so large a share of its samples are, 0 to 1; between two of them by the line."""
        places = np.arange(len(self.off))  # np.quantile and np.unique would load numpy.ma
        return float(np.interp(share * (len(places) - 1), places, self.off))


class Block(NamedTuple):
    """Samples of one sequence between two steps of its clock: rows `start` up to, not including, `stop`."""

    sequence: str
    start: int
    stop: int


class Interval(NamedTuple):
    """Time from one message to the next one of its sequence."""

    sequence: str
    start: float
    """s since the first sample of the sequence, without the time between steps of its clock."""
    drive: float
    """The same as s of drive."""
    length: float
    """s."""


class Regularity(NamedTuple):
    """Regularity of messages."""

    messages: int
    period: float | None
    """Usual interval, s; None of fewer than three messages."""
    longest: Interval
    """Longest interval; those from the start to the first message, and from the last to the end, count too."""
    gaps: tuple[Interval, ...]
    """All intervals of `get_wide_gap` and more, in order."""


class Timeline:
    """The frames of a dataset in order of time: by sequence, by segment of its clock, by stamp.

    `seconds` runs through all of them without a break: time between two sequences, or where the clock was set,
    is dropped.
    """

    @classmethod
    def of(cls, table: pa.Table) -> Timeline:
        """Return the times in a table of frames; columns of another type than the format's count as not there."""
        return cls(_Columns.of(table))

    @classmethod
    def of_file(cls, table: TableFile) -> Timeline:
        """Return the times in a table of frames, without loading polars. Raises DatasetError."""
        wanted = {*COLUMNS, *stamp_columns(table.schema.names).values()}
        there = [name for name in table.schema.names if name in wanted]
        kept = pa.schema([table.schema.field(name) for name in there])
        return cls.of(pa.Table.from_batches([batch.select(there) for batch in table.batches()], kept))

    @classmethod
    def empty(cls) -> Timeline:
        """Return the times of a dataset without a table of frames."""
        return cls.of(pa.table({}))

    def __init__(self, columns: _Columns) -> None:
        self._columns = columns
        stamps, segment = columns.integers.get("timestamp"), columns.integers.get("segment")
        rows = np.flatnonzero(stamps[1]) if stamps else np.zeros(0, np.int64)
        listed: dict[str, int] = {}
        sequence = np.array([listed.setdefault(columns.names[row], len(listed)) for row in rows.tolist()], np.int64)
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
        self.seconds = self._run()
        self.companions = dict(self._find_stamps())

    def __len__(self) -> int:
        return len(self.stamps)

    @cached_property
    def drives(self) -> dict[str, Timeline]:
        """{sequence: its own times}, in the order of `names`."""
        if len(self.names) == 1:
            return {self.names[0]: self}
        rows = {name: np.sort(self.rows[self.sequence == number]) for number, name in enumerate(self.names)}
        return {name: Timeline(self._columns.select(own)) for name, own in rows.items()}

    @property
    def present(self) -> dict[str, int]:
        """{sensor: samples that have a message of it}, with `position`, `attitude`, `model`, and `pose` if any has."""
        found = {PRESENT[name]: int(there[self.rows].sum()) for name, there in self._columns.there.items()}
        found |= {
            key: int(values[1][self.rows].sum())
            for key, column in self._columns.stamps.items()
            if (values := self._columns.integers.get(column)) is not None
        }
        return dict(sorted((key, number) for key, number in found.items() if number or key != POSE))

    @property
    def duration(self) -> float:
        """Seconds from the first to the last sample, without the time between sequences."""
        return float(sum(self.seconds[b.stop - 1] - self.seconds[b.start] for b in self.blocks))

    @property
    def by_sequence(self) -> dict[str, int]:
        """Number of samples of each sequence."""
        counted = np.bincount(self.sequence, minlength=len(self.names))
        return dict(zip(self.names, counted.tolist(), strict=True))

    @property
    def starts(self) -> dict[str, float]:
        """{sequence: s of drive at which it begins}."""
        found: dict[str, float] = {}
        for block in self.blocks:
            found.setdefault(block.sequence, float(self.seconds[block.start]))
        return found

    @property
    def steps(self) -> int:
        """Number of times a clock was set or stood still within a sequence."""
        return len(self.blocks) - len({block.sequence for block in self.blocks})

    def messages(self, sensor: str) -> list[Floats]:
        """Seconds of drive of the different messages of a sensor or the model, by block, rising."""
        one = self.companions[sensor]
        found = []
        for block in self.blocks:
            rows = slice(block.start, block.stop)
            stamps = np.sort(one.stamps[rows][one.has[rows]])
            different = stamps[np.flatnonzero(np.diff(stamps, prepend=stamps[:1] - 1))]
            found.append((different - self.stamps[block.start]) / 1e9 + self.seconds[block.start])
        return found

    def samples(self) -> list[Floats]:
        """Seconds of drive of the samples, by block."""
        return [self.seconds[block.start : block.stop] for block in self.blocks]

    def pace(self, times: list[Floats]) -> Regularity:
        """Return how regularly messages came, given by block as s of drive.

        Time without messages at the start and end of a block counts in sequences that have any.
        """
        number, period, widest = sum(map(len, times)), _find_usual(times), get_wide_gap()
        own: dict[str, list[Floats]] = {}
        for block, one in zip(self.blocks, times, strict=True):
            own.setdefault(block.sequence, []).append(one)
        least = {name: max(widest[0] * (_find_usual(parts) or 0.0), widest[1]) for name, parts in own.items()}
        edges = {name for name, parts in own.items() if any(map(len, parts))}
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
            return Regularity(number, period, Interval(self.names[0] if self.names else "", 0.0, 0.0, 0.0), ())
        starts = self.starts
        blocks = np.repeat(np.arange(len(self.blocks)), list(map(len, lengths)))

        def interval(n: int) -> Interval:
            sequence, drive = self.blocks[blocks[n]].sequence, float(begin[n])
            return Interval(sequence, drive - starts[sequence], drive, float(length[n]))

        wide = np.flatnonzero(length >= np.array([least[block.sequence] for block in self.blocks])[blocks] * (1 - 1e-9))
        return Regularity(number, period, interval(int(length.argmax())), tuple(map(interval, wide.tolist())))

    def _run(self) -> Floats:
        """Return the seconds of drive of each sample."""
        seconds = np.zeros(len(self.stamps))
        offset = 0.0
        for block in self.blocks:
            own = self.stamps[block.start : block.stop]
            seconds[block.start : block.stop] = (own - own[0]) / 1e9 + offset
            steps = np.diff(own)
            offset = float(seconds[block.stop - 1]) + (float(np.median(steps)) / 1e9 if len(steps) else 0.0)
        return seconds

    def _find_stamps(self) -> Iterator[tuple[str, CompanionStamps]]:
        for key, column in self._columns.stamps.items():
            values = self._columns.integers.get(column)
            if values and values[1][self.rows].any():
                stamps = values[0][self.rows]
                yield key, CompanionStamps(values[1][self.rows], stamps, stamps - self.stamps)


class Level(IntEnum):
    """Severity of a check, from good to bad."""

    GREEN = 0
    AMBER = 1
    RED = 2

    @property
    def word(self) -> str:
        """`green`, `amber` or `red`."""
        return self.name.lower()


class Threshold(NamedTuple):
    """Values from which on a check is amber, and red; None: never."""

    key: str
    good: str
    """The good case, in a sentence that states the amber threshold."""
    amber: float | None
    red: float | None
    unit: str
    section: str = "verdict"

    def level(self, value: float) -> Level:
        if self.red is not None and value >= self.red:
            return Level.RED
        return Level.AMBER if self.amber is not None and value >= self.amber else Level.GREEN


# fmt: off
THRESHOLDS: dict[str, Threshold] = {one.key: one for one in (
    Threshold("samples", "The dataset has at least one sample.", None, 1.0, "datasets without samples"),
    Threshold("loss", "No topic loses a message.", 1e-12, 0.01, "share of a topic's messages", "topics"),
    Threshold("calibration", "No sequence has a calibration that is missing or a placeholder.", 1.0, None, "sequences"),
    Threshold("alignment", "Less than 50 % of the boxes have no radar target, and less than 50 % of the lidar clouds "
              "have no point in the picture.", 0.5, 0.9, "share of boxes without a target, or of clouds without a "
              "point in the picture", "pictures"),
    Threshold("clock", "No clock is set or stops, and no topic has stamps of another clock.", 1.0, None,
              "steps, and topics whose stamps were replaced", "time"),
    Threshold("delay", "The delay from a topic's stamp to the recorder differs by less than 0.1 s from the usual one.",
              0.1, 1.0, "s from the usual", "time"),
    Threshold("gaps", "No interval is 0.25 s or longer, unless it is shorter than 2.5 usual ones.", 0.25, 2.0, "s",
              "time"),
    Threshold("coverage", "A sensor is in more than 95 % of the samples of a sequence that has it.", 0.05, 0.5,
              "share of samples without a sensor", "time"),
    Threshold("skew", "95 % of a sensor's skews are below 75 % of the tolerance.", 0.75, None,
              "share of the tolerance that 95 % of the samples keep", "skew"),
    Threshold("position", "More than 95 % of the samples have a position.", 0.05, None, "share of samples without",
              "track"),
    Threshold("exposure", "Less than 10 % of the pictures are dark (mean luma below 40), and less than 10 % are "
              "glaring (above 215).", 0.1, None, "share of pictures", "pictures"),
)}
# fmt: on
GAP_PERIODS = (2.5, 5.0)
"""An amber and a red gap are also so many times as long as the usual interval."""
DARK, GLARING = 40.0, 215.0
"""Mean luma (0 to 255) below and above which a picture counts as badly exposed."""
SILENT = THRESHOLDS["gaps"].red or 0.0
"""s without a message after which a topic is silent, unless it is slower than that: a red gap."""


class Check(NamedTuple):
    """Result of one check: the value found, and its level."""

    key: str
    level: Level
    found: str
    place: str = ""
    """A sensor, topic or file; empty: the whole."""
    sequence: str = ""
    """Its sequence, of a dataset with several."""

    @property
    def where(self) -> str:
        """Place and sequence in words."""
        return " in ".join(filter(None, (self.place, self.sequence)))

    @property
    def threshold(self) -> Threshold:
        return THRESHOLDS[self.key]


def find_worst(checks: Collection[Check]) -> Level:
    """Return the worst level of the checks; green without any."""
    return max((check.level for check in checks), default=Level.GREEN)


def _find_usual(times: Sequence[Floats]) -> float | None:
    """Return the usual interval of messages, given by block, s; None of few."""
    inner = np.concatenate([np.zeros(0), *map(np.diff, times)])
    return float(np.sort(inner)[(len(inner) - 1) // 2]) if sum(map(len, times)) >= FEWEST and len(inner) else None


def get_wide_gap() -> tuple[float, float]:
    """Periods and s from which an interval is an amber gap."""
    return GAP_PERIODS[0], THRESHOLDS["gaps"].amber or 0.0


def judge_gap(length: float, period: float | None) -> Level:
    """Return the level of an interval between messages that come every `period`, both in s."""
    limits = THRESHOLDS["gaps"]
    for level, periods, least in ((Level.RED, GAP_PERIODS[1], limits.red), (Level.AMBER, GAP_PERIODS[0], limits.amber)):
        if length >= max(periods * (period or 0.0), least or 0.0) * (1 - 1e-9):
            return level
    return Level.GREEN


def list_checks(timeline: Timeline, metadata: Mapping[str, Any], calibration: str) -> list[Check]:
    """Return all checks of one sequence from the tables of its dataset, green ones too.

    `metadata`: those of the frames, with the counts, sources and time base of the sequence; `calibration`: its word,
    empty if it is not judged.
    """
    found = [
        *check_losses(metadata),
        *_check_calibration(calibration),
        *check_clock(timeline, metadata),
        *check_gaps(timeline),
    ]
    return [*found, *check_coverage(timeline), *check_skews(timeline, metadata)]


def check_losses(metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the losses of each topic, and the damage of recordings in which something can have been."""
    counts, threshold, none = metadata.get("counts") or {}, THRESHOLDS["loss"], True
    for topic, count in counts.items():
        lost = {reason: n for reason, n in count["dropped"].items() if reason in LOSS and n}
        if lost:
            none = False
            share = sum(lost.values()) / max(count["seen"], 1)
            what = ", ".join(f"{n} {reason}" for reason, n in lost.items())
            text = f"{share:.2%} of {pluralize(count['seen'], 'message')} lost: {what}"
            yield Check("loss", threshold.level(share), text, topic)
    for source in metadata.get("sources") or ():
        damaged = [damage for damage in source.get("damage") or () if damage.get("loss") is not False]
        if damaged:
            none = False
            more = f"; {pluralize(len(damaged) - 1, 'more damaged place')}" if len(damaged) > 1 else ""
            text = f"at byte {damaged[0].get('offset')}: {damaged[0].get('what')}{more}"
            yield Check("loss", Level.AMBER, text, str(source.get("file")))
    if none:
        yield Check("loss", Level.GREEN, "nothing lost" if counts else "the dataset does not state its losses")


def _check_calibration(word: str) -> Iterator[Check]:
    said = {GIVEN: GIVEN, IDENTITY: "a placeholder: transforms that do not rotate (identity)", MISSING: "missing"}
    if word in said:
        yield Check("calibration", Level.GREEN if word == GIVEN else Level.AMBER, said[word])


def check_clock(timeline: Timeline, metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield whether a clock was set, and topics that took another one."""
    threshold, steps = THRESHOLDS["clock"], timeline.steps
    if steps:
        yield Check("clock", threshold.level(steps), f"set, or stood still, {pluralize(steps, 'time')}")
    base = metadata.get("time_base") or {}
    others = list(check_replaced_clocks(base))
    yield from others
    if not steps and not others:
        yield Check("clock", Level.GREEN, f"one clock ({base.get('base') or 'not said'}), never set")


def check_replaced_clocks(base: Mapping[str, Any]) -> Iterator[Check]:
    """Yield the topics whose stamps were replaced, which keep another clock; `base`: the metadata `time_base`."""
    bases = base.get("sequences") or {"": base}
    replaced = {topic: str(what) for one in bases.values() for topic, what in ((one or {}).get("topics") or {}).items()}
    for topic, what in replaced.items():
        yield Check("clock", THRESHOLDS["clock"].level(1), what, topic)


def check_gaps(timeline: Timeline) -> Iterator[Check]:
    """Yield how regularly samples, sensors and the model came."""
    for name, pace in measure_paces(timeline).items():
        longest = pace.longest
        level = judge_gap(longest.length, pace.period) if pace.period is not None else Level.GREEN
        found = f"longest {longest.length:.3g} s, at {round(longest.start, 1) + 0.0:.1f} s"
        if level:
            found = f"{pluralize(len(pace.gaps), 'gap')}, {found}"
        yield Check("gaps", level, found, name)


def measure_paces(timeline: Timeline) -> dict[str, Regularity]:
    """Return how regularly samples, sensors and the model came, by name.

    A sequence without a sensor has no gap of it: `check_coverage` shows that.
    """
    if not len(timeline):
        return {}
    return {
        "samples": timeline.pace(timeline.samples()),
        **{name: timeline.pace(timeline.messages(name)) for name in timeline.companions},
    }


def check_coverage(timeline: Timeline) -> Iterator[Check]:
    """Yield in how many samples each sensor is."""
    for name, one in timeline.companions.items():
        if name != MODEL:
            yield judge_coverage(name, float(one.has.mean()))


def judge_coverage(name: str, there: float) -> Check:
    """Judge in which share of the samples a sensor is."""
    return Check("coverage", THRESHOLDS["coverage"].level(1 - there), f"in {there:.1%} of the samples", name)


def check_skews(timeline: Timeline, metadata: Mapping[str, Any]) -> Iterator[Check]:
    """Yield how far off companions were, against their tolerance."""
    for name, one in timeline.companions.items():
        if name != MODEL:
            yield judge_skew(name, one.within(0.95) / SECOND, find_tolerance(metadata, name))


def judge_skew(name: str, far: float, allowed: float) -> Check:
    """Judge how far off 95 % of a sensor's messages are, against their tolerance, both in s."""
    level = THRESHOLDS["skew"].level(far / allowed if allowed else 0.0)
    return Check("skew", level, f"95 % within {far * 1e3:.1f} ms of {allowed * 1e3:.0f} ms", name)


def find_tolerance(metadata: Mapping[str, Any], sensor: str) -> float:
    """Return the tolerance of a sensor in s, as the dataset's configuration has it; else the default."""
    made = metadata.get("configuration")
    made = made if isinstance(made, dict) else {}
    streams = made.get("streams")
    own = streams.get(sensor) if isinstance(streams, dict) else None
    for value in ((own or {}).get("tolerance") if isinstance(own, dict) else None, made.get("tolerance")):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return float(Settings.model_fields["tolerance"].default)


class _Columns(NamedTuple):
    """Columns of a table of frames as arrays."""

    names: list[str]
    integers: dict[str, tuple[Ints, Flags]]
    """Values of integer columns, and which are not null."""
    there: dict[str, Flags]
    """Rows that have a value, of PRESENT."""

    @property
    def stamps(self) -> dict[str, str]:
        """{sensor: its stamp column}, with that of the model."""
        return {**stamp_columns(self.integers), MODEL: MODEL_TIMESTAMP}

    @classmethod
    def of(cls, table: pa.Table) -> _Columns:
        """Return those columns that have the type of the format."""
        names, kinds = [""] * table.num_rows, {field.name: field.type for field in table.schema}
        if "name" in kinds and is_text(kinds["name"]):
            names = [value or "" for value in table["name"].to_pylist()]
        wanted = {*COLUMNS, *stamp_columns(kinds).values()}
        columns = {name: table[name].combine_chunks() for name in {*wanted, *PRESENT} & {*kinds}}
        has = {name: is_valid(column) for name, column in columns.items()}
        numbers = [name for name, kind in kinds.items() if name in wanted and pa.types.is_integer(kind)]
        integers = {name: (read_scalars(columns[name]).astype(np.int64), has[name]) for name in numbers}
        there = {name: has[name] for name in PRESENT if name in kinds}
        return cls(names, integers, there)

    def select(self, rows: Ints) -> _Columns:
        return _Columns(
            [self.names[row] for row in rows.tolist()],
            {name: (values[rows], has[rows]) for name, (values, has) in self.integers.items()},
            {name: has[rows] for name, has in self.there.items()},
        )
