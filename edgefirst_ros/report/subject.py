# SPDX-License-Identifier: Apache-2.0
"""Subject of a report: a dataset, or a recording as the pipeline sees it, opened once; or its tables only."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import DatasetPaths, Key
from edgefirst_ros.dataset.reader import open_tables
from edgefirst_ros.dataset.sample import Sample
from edgefirst_ros.dataset.schema import SequenceCalibration, parse_frames_metadata
from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.summary import DatasetSummary, read_calibrations, summarize, summarize_dataset
from edgefirst_ros.dataset.verdict import MODEL, Timeline
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from edgefirst_ros.pipeline.time_check import TimeCheck

Floats = NDArray[np.float64]


class TopicMessages(NamedTuple):
    """All messages of one topic of a recording."""

    schema: str
    times: Floats
    """s since the first message of the recording, rising; without steps of a clock that is set."""
    delays: Floats
    """`log_time` less header stamp, s; NaN without one."""


class PlacedSample(NamedTuple):
    """A sample and where it is on the axis of time."""

    seconds: float
    """s of drive; the number of the sample where no stamps are known."""
    sample: Sample
    row: int | None
    """Place in the timeline."""


@dataclass
class ReportSubject:
    """One dataset to be processed; of a recording the samples that the pipeline makes of it."""

    name: str
    path: str
    dataset: Dataset
    recorded: Mapping[str, TopicMessages] | None = None
    """All topics of a recording; None for a dataset."""
    notes: list[str] = field(default_factory=list)
    assume_forward: bool = False
    time_check: TimeCheck | None = None
    """Offsets between the sensors of a recording, if requested."""

    @cached_property
    def timeline(self) -> Timeline:
        """Its times; empty without a table of frames."""
        frames = self.dataset.frames
        return Timeline.empty() if frames is None else Timeline.of(frames.to_arrow())

    @cached_property
    def calibrations(self) -> dict[str, SequenceCalibration]:
        """{sequence: calibration}."""
        return {name: self.dataset.calibration(name) for name in self.sequences}

    @cached_property
    def summary(self) -> DatasetSummary:
        """Counts and verdicts from the tables, by sequence; most members of a recording are not made."""
        if self.recorded is None:
            return summarize_dataset(self.dataset, self.timeline)
        camera = any("camera" in place.sample.inputs for place in self.places[:1])
        sensors = {
            name: ({"camera": len(own)} if camera else {})
            | {key: int(one.has.sum()) for key, one in own.companions.items() if key != MODEL}
            for name, own in self.timeline.drives.items()
        }
        return summarize_dataset(self.dataset, self.timeline, sensors)

    @cached_property
    def sequences(self) -> list[str]:
        """Names, in order."""
        return list(dict.fromkeys([*self.timeline.names, *self.dataset.sequences]))

    @cached_property
    def places(self) -> list[PlacedSample]:
        """All samples with a member, in order of time."""
        frames = self.dataset.frames
        if frames is None or not len(self.timeline):
            return [PlacedSample(float(n), sample, None) for n, sample in enumerate(self.dataset.samples())]
        rows = self.timeline.rows
        names, numbers = frames["name"].cast(str)[rows].to_list(), frames["frame"][rows].to_list()
        there = self.dataset.frame_rows
        found = []
        for place, (row, name, number) in enumerate(zip(rows.tolist(), names, numbers, strict=True)):
            key = Key(name, number)
            if there.get(key) == row and self.has(key):
                found.append(PlacedSample(float(self.timeline.seconds[place]), Sample(self.dataset, key), place))
        return found

    def has(self, key: Key) -> bool:
        """True if a sample has members."""
        with suppress(KeyError):
            return bool(self.dataset.members(key))
        return False

    def with_input(self, name: str, most: int) -> list[PlacedSample]:
        """Up to `most` samples with an input, spread evenly over each sequence; a message that repeats counts once."""
        found = [place for place in self.places if name in place.sample.inputs]
        if len(found) > most:
            found = [place for place in found if name not in place.sample.repeats]
        by_sequence: dict[str, list[PlacedSample]] = {}
        for place in found:
            by_sequence.setdefault(place.sample.name, []).append(place)
        shares = {key: max(1, most * len(its) // len(found)) for key, its in by_sequence.items()}
        return [its[n] for key, its in by_sequence.items() for n in spread(len(its), shares[key])]


def read_summary(paths: DatasetPaths, limits: Limits = DEFAULT_LIMITS) -> DatasetSummary | None:
    """Return the summary by the tables; None where they are not sufficient, so that members must be processed.

    Raises DatasetError where a table cannot be read.
    """
    _, frames = open_tables(paths, limits)
    if frames is None:
        return None
    metadata, timeline = parse_frames_metadata(paths.frames, frames.metadata), Timeline.of_file(frames)
    told = read_calibrations(metadata)
    if not told or not told.keys() >= set(timeline.names):
        return None
    return summarize(timeline, metadata, told)


def check_container(paths: DatasetPaths) -> None:
    """Raise DatasetError where a dataset has no container, or a ZIP that ends early; its members are not processed."""
    if not os.path.lexists(paths.members):
        raise DatasetError(f"{paths.members}: missing; without it the tables are not a dataset")
    if paths.layout == "zip":
        with os.fdopen(open_file(paths.members), "rb") as file:
            if not zipfile.is_zipfile(file):
                raise DatasetError(f"{paths.members}: not a readable ZIP archive: it has no directory at its end")


def spread(number: int, most: int) -> NDArray[np.int64]:
    """Places spread evenly over `number` things, at most `most` of them, the first and the last among them."""
    return np.unique(np.linspace(0, max(number - 1, 0), min(number, most)).round().astype(np.int64))
