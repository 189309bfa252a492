# SPDX-License-Identifier: Apache-2.0
"""Summary of a dataset: all counts and checks, by sequence first, then in sum.

`convert`, `info`, `validate`, `report` and the table of a fleet print the same summary.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from edgefirst_ros.counts import LOSS, Counts
from edgefirst_ros.dataset.lazy import pl
from edgefirst_ros.dataset.names import add_counts
from edgefirst_ros.dataset.schema import LEFT_OUT, SEQUENCES, UNUSED, parse_metadata, select_sequence
from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.dataset.verdict import MODEL, Check, Level, Timeline, check_losses, find_worst, list_checks
from edgefirst_ros.errors import DatasetError, Text, join_names, pluralize
from edgefirst_ros.sensors.calibration import WORDS

if TYPE_CHECKING:
    from edgefirst_ros.dataset.names import DatasetPaths
    from edgefirst_ros.dataset.reader import Dataset

ALL = "all"
"""Name of the row that sums all sequences."""
NAMED = 5
MOST_LISTED = 50
"""Sequences up to which topics, sensors, groups and labels are listed by sequence; of more only their sum is."""
APART = "-: read for position, attitude, labels or calibration, or of no use; no: see the notes"
"""Explains the column `used` of topics that are in no sample."""

Table = tuple[Sequence[str], list[tuple[str, ...]]]
"""Head and rows, as text."""


@dataclass(frozen=True)
class Summary:
    """One sequence, or all of a dataset."""

    name: str
    samples: int
    timeline: Timeline
    calibration: str = ""
    """`given`, `identity` or `missing`; of several sequences the worst; empty: unknown."""
    sensors: Mapping[str, int] = field(default_factory=dict)
    """Samples with each sensor, and with position, attitude and a result of the model."""
    groups: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, Any] | None = None
    """{topic: {"seen", "written", "dropped": {reason: number}}}; None: unknown."""
    checks: Sequence[Check] = ()

    @property
    def start(self) -> int | None:
        """Stamp of the first sample, ns."""
        return int(self.timeline.stamps.min()) if len(self.timeline) else None

    @property
    def lost(self) -> int | None:
        """Lost messages; None: unknown, without counts or with files that are damaged or were not converted."""
        files = [one for one in self.checks if one.key == "loss" and one.level is not Level.GREEN]
        if self.counts is None or any(one.place not in self.counts for one in files):
            return None
        dropped = (one["dropped"].items() for one in self.counts.values())
        return sum(int(n) for its in dropped for reason, n in its if reason in LOSS)

    @property
    def level(self) -> Level:
        return find_worst(self.checks)

    @property
    def skew(self) -> dict[str, dict[str, float]]:
        """|skew| of each sensor in ms: p50, p95 and max."""
        return {
            name: {"p50": one.within(0.5) / 1e6, "p95": one.within(0.95) / 1e6, "max": float(one.off[-1]) / 1e6}
            for name, one in self.timeline.companions.items()
            if name != MODEL
        }

    def plain(self) -> dict[str, Any]:
        """Return the summary ready for JSON."""
        return {
            "samples": self.samples,
            "start": self.start,
            "duration_s": round(self.timeline.duration, 3),
            "calibration": self.calibration,
            "sensors": dict(self.sensors),
            "skew_ms": self.skew,
            "groups": dict(self.groups),
            "labels": dict(self.labels),
            "counts": self.counts,
            "lost": self.lost,
            "verdict": self.level.word,
        }


@dataclass(frozen=True)
class DatasetSummary:
    """All sequences of a dataset, and counts outside of sequences."""

    sequences: Sequence[Summary]
    metadata: Mapping[str, Any]
    timeline: Timeline
    further: Sequence[Check] = ()

    @property
    def is_several(self) -> bool:
        """True if the dataset has several sequences, which are then listed by name."""
        return len(self.sequences) > 1

    @property
    def checks(self) -> list[Check]:
        """All checks: of the whole, then of each sequence, by name if it has several."""
        found = list(self.further)
        for one in self.sequences:
            found += [check._replace(sequence=one.name) for check in one.checks] if self.is_several else one.checks
        return found

    @cached_property
    def whole(self) -> Summary:
        """The sum of all sequences."""
        if len(self.sequences) == 1:
            return replace(self.sequences[0], name=ALL, checks=self.checks)
        known = [one.counts for one in self.sequences if one.counts is not None]
        summed = Counts()
        for counts in known:
            summed.add(Counts.of(counts))
        words = [one.calibration for one in self.sequences if one.calibration]
        return Summary(
            ALL,
            sum(one.samples for one in self.sequences),
            self.timeline,
            max(words, key=WORDS.index, default=""),
            add_counts(one.sensors for one in self.sequences),
            add_counts(one.groups for one in self.sequences),
            add_counts(one.labels for one in self.sequences),
            self.metadata.get("counts") or (summed.plain() if known else None),
            self.checks,
        )

    @property
    def rows(self) -> list[Summary]:
        """The sequences unless they are many, and of several their sum."""
        return [*(self.sequences if 1 < len(self.sequences) <= MOST_LISTED else ()), self.whole]

    def plain(self) -> dict[str, Any]:
        """Return the sequences ready for JSON: {sequence: summary}."""
        return {one.name: one.plain() for one in self.sequences}

    # ---- tables ------------------------------------------------------------------------------------
    def sequence_table(self) -> Table:
        """One row a sequence, and one of the whole where it is more than a sequence."""
        grouped = any(one.groups for one in self.sequences)
        head = ("sequence", "samples", "from", "s", "calibration", *(["group"] if grouped else []), "lost", "verdict")
        rows = []
        for one in [*self.sequences, *([self.whole] if self.is_several or self.metadata.get(LEFT_OUT) else [])]:
            begin = "-" if one.start is None or one.name == ALL else format_time(one.start)
            length = "-" if one.start is None else f"{one.timeline.duration:.1f}"
            groups = [describe_shares(one.groups)] if grouped else []
            state = (one.calibration or "-", *groups, "unknown" if one.lost is None else str(one.lost), one.level.word)
            rows.append((one.name, str(one.samples), begin, length, *state))
        return head, rows

    def topic_table(self) -> Text:
        """Describe messages by topic: seen, used, dropped by reason."""
        found = []
        unused = {of["topic"] for of in self.metadata.get(UNUSED) or ()}
        for one in self.rows:
            for topic, count in sorted((one.counts or {}).items()):
                reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(count["dropped"].items()) if n)
                apart = not count["written"] and count["seen"] > sum(count["dropped"].values())
                used = "no" if apart and topic in unused else "-" if apart else str(count["written"])
                found.append((one.name, topic, str(count["seen"]), used, reasons))
        yield self._tell_apart(("topic", "seen", "used", "not used"), found)
        if len(self.sequences) > MOST_LISTED:
            yield f"topics, sensors, groups and labels of each of the {len(self.sequences)} sequences: info --json"
        if any(row[-2] in ("-", "no") for row in found):
            yield APART

    def sensor_table(self) -> Text:
        """Describe the samples with each sensor, its |skew| in ms, and which sensors no sample has."""
        found = []
        for one in self.rows:
            skew = {sensor: [f"{value:.1f}" for value in its.values()] for sensor, its in one.skew.items()}
            found += [(one.name, name, str(n), *skew.get(name, [""] * 3)) for name, n in one.sensors.items() if n]
        if found:
            yield self._tell_apart(("sensor", "samples", "skew, ms: p50", "p95", "max"), found)
        if lacking := [name for name, n in self.whole.sensors.items() if not n]:
            yield f"no sample has: {', '.join(lacking)}"

    def count_table(self, what: str, number: str) -> Table:
        """Samples by group or annotations by label: `what` is `group` or `label`."""
        found = [
            (one.name, name, str(n))
            for one in self.rows
            for name, n in (one.groups if what == "group" else one.labels).items()
        ]
        return self._tell_apart((what, number), found)

    def _tell_apart(self, head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
        """Return a table whose first column is the sequence, if the dataset has several."""
        return (("sequence", *head), [*rows]) if self.is_several else (head, [row[1:] for row in rows])


def summarize(
    timeline: Timeline,
    metadata: Mapping[str, Any],
    calibrations: Mapping[str, str],
    *,
    rows: pl.DataFrame | None = None,
    samples: Mapping[str, int] | None = None,
    sensors: Mapping[str, Mapping[str, int]] | None = None,
) -> DatasetSummary:
    """Return the summary of a dataset.

    Args:
        timeline: Times of all samples.
        metadata: File metadata of the frames table.
        calibrations: {sequence: `given`, `identity` or `missing`}; sequences without one are not judged.
        rows: Annotations with `name`, `frame`, `label` and `group`.
        samples: {sequence: number of samples}; default: rows of the frames table.
        sensors: {sequence: {sensor: samples with it}}; default: by the frames table.

    Raises:
        DatasetError: `rows` have columns of other types.
    """
    number = dict(timeline.by_sequence if samples is None else samples)
    for name in metadata.get(SEQUENCES) or ():
        number.setdefault(name, 0)
    groups, labels = _count_rows(rows)
    known = {name: select_sequence(metadata, name, number, ()) for name in number}
    counted_apart = any(its.get("counts") is not None for its in known.values())  # of recovered ones they are unknown
    sources = metadata.get("sources") or ()
    found = []
    for name, its in known.items():
        own = timeline.drives.get(name) or Timeline.empty()
        counts = its.get("counts") if counted_apart else None
        said = {
            **metadata,
            "counts": counts,
            "sources": [sources[n] for n in its.get("sources") or () if n < len(sources)],
            "time_base": its.get("time_base") or metadata.get("time_base"),
        }
        word = calibrations.get(name, "")
        checks = [one for one in list_checks(own, said, word) if counted_apart or one.key != "loss"]
        found.append(
            Summary(
                name,
                number[name],
                own,
                word,
                sensors.get(name, {}) if sensors is not None else own.present,
                groups.get(name, {}),
                labels.get(name, {}),
                counts,
                checks,
            )
        )
    return DatasetSummary(found, metadata, timeline, [*_summarize_whole(found, timeline, metadata, counted_apart)])


def summarize_dataset(
    dataset: Dataset, timeline: Timeline | None = None, sensors: Mapping[str, Mapping[str, int]] | None = None
) -> DatasetSummary:
    """Return the summary of an open dataset.

    Args:
        dataset: The dataset.
        timeline: Times of its samples, if they are known already.
        sensors: {sequence: samples with each sensor}; default: by its members.

    Raises:
        DatasetError: Its tables cannot be read.
    """
    if timeline is None:
        timeline = Timeline.empty() if dataset.frames is None else Timeline.of(dataset.frames.to_arrow())
    found: dict[str, Counter[str]] = {name: Counter() for name in (*timeline.names, *dataset.sequences)}
    number = timeline.by_sequence or Counter(sample.name for sample in dataset.samples())
    for sample in dataset.samples() if sensors is None else ():
        found[sample.name].update(sample.inputs)
    sensors = sensors or {name: dict(sorted(its.items())) for name, its in found.items()}
    words = read_calibrations(dataset.metadata)  # also of sequences without samples
    words |= {name: dataset.calibration(name).calibration for name in found}
    try:
        return summarize(timeline, dataset.metadata, words, rows=dataset.annotations, samples=number, sensors=sensors)
    except DatasetError as error:  # several datasets as one have no paths
        raise DatasetError(f"{dataset.paths.arrow}: {error}") from None


def summarize_tables(paths: DatasetPaths, *, grouped: bool = True) -> DatasetSummary:
    """Return the summary of a finished dataset by its tables only. Raises DatasetError where they cannot be read.

    This program wrote their metadata, or has checked them: models that check them take long to load.
    `grouped`: with groups and labels, for which polars must be loaded.
    """
    table = TableFile(paths.frames) if os.path.lexists(paths.frames) else None
    timeline = Timeline.of_file(table) if table is not None else Timeline.empty()
    metadata = {key: parse_metadata(text) for key, text in table.metadata.items()} if table is not None else {}
    rows = None
    if grouped:
        from edgefirst_ros.dataset.regroup import GroupRows

        rows = GroupRows(paths).annotations
    return summarize(timeline, metadata, read_calibrations(metadata), rows=rows)


def read_calibrations(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return {sequence: calibration} as the metadata of the frames table state it, where they do."""
    words = {name: of.get("calibration") for name, of in (metadata.get(SEQUENCES) or {}).items()}
    return {name: word for name, word in words.items() if word in WORDS}


def format_time(stamp: int) -> str:
    """Return a stamp in ns as ISO 8601 in UTC, to the second."""
    return f"{datetime.fromtimestamp(stamp // 10**9, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def describe_shares(groups: Mapping[str, int]) -> str:
    """Return groups in words: `train`, or of several `train 80, val 20`."""
    return next(iter(groups)) if len(groups) == 1 else ", ".join(f"{name} {n}" for name, n in groups.items()) or "-"


def _count_rows(rows: pl.DataFrame | None) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    found: tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]] = {}, {}
    if rows is None or not {"name", "frame", "group", "label"} <= set(rows.columns):
        return found
    for column in ("name", "group", "label"):
        if not isinstance(rows.schema[column], pl.String | pl.Categorical | pl.Enum | pl.Null):
            raise DatasetError(f"the column {column} cannot be read: is {rows.schema[column]}, must be text")
    texts = rows.select("frame", pl.col("name", "group", "label").cast(pl.String))
    grouped = texts.drop_nulls("group").unique(["name", "frame", "group"]).group_by("name", "group").len()
    labelled = texts.drop_nulls("label").group_by("name", "label").len()
    for target, table in zip(found, (grouped, labelled), strict=True):
        for name, word, number in table.sort(table.columns[:2]).iter_rows():
            target.setdefault(name, {})[word] = number
    return found


def _summarize_whole(
    found: Sequence[Summary], timeline: Timeline, metadata: Mapping[str, Any], counted_apart: bool
) -> Iterator[Check]:
    number = sum(one.samples for one in found)
    yield Check("samples", Level.GREEN if number else Level.RED, pluralize(number, "sample"))
    if not counted_apart or not found:
        yield from check_losses(metadata)
    for one in metadata.get(LEFT_OUT) or ():
        why = one["why"].removeprefix(f"{one['file']}: ")
        yield Check("loss", Level.AMBER, f"not converted: {why}", one["file"])
    for sensor in timeline.companions if len(found) > 1 else ():
        without = [one.name for one in found if sensor not in one.timeline.companions]
        yield from check_lacking("coverage", sensor, without, len(found))


def check_lacking(key: str, sensor: str, without: Sequence[str], number: int) -> Iterator[Check]:
    """Yield the check that names those of `number` sequences that do not have a sensor at all: it is green."""
    if without:
        found = f"in {number - len(without)} of {number} sequences; not in {join_names(without, NAMED)}"
        yield Check(key, Level.GREEN, found, sensor)
