# SPDX-License-Identifier: Apache-2.0
"""One dataset of a capture, from its first message to its completion."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings, nanoseconds
from edgefirst_ros.counts import ON_THE_WAY, Counts
from edgefirst_ros.dataset.names import DatasetPaths, Layout
from edgefirst_ros.dataset.split import Splitter
from edgefirst_ros.dataset.writer import Sample
from edgefirst_ros.errors import StorageError, describe_error
from edgefirst_ros.pipeline.frames import FrameBuilder, count_unused
from edgefirst_ros.pipeline.output import Reached, frames_metadata, open_writer, time_base_of, topics_of
from edgefirst_ros.pipeline.pretrigger import Arrival
from edgefirst_ros.pipeline.samples import SampleBuilder
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import TimeBase


@dataclass(frozen=True)
class Completed:
    """What became of a dataset, in words and facts."""

    text: str
    lossy: bool
    """Whether it lacks something that came."""
    refused: str = ""
    """Why the disk did not take all of it, although it is complete."""
    failure: str = ""
    """Why it could not be completed."""
    container: str | None = None
    """Where it is; None as well where it had no sample and is not kept."""


class CaptureDataset:
    """A dataset being written: `push` and `advance` until `complete`, never two of them at a time."""

    def __init__(
        self,
        settings: Settings,
        live: LiveSettings,
        roles: Roles,
        base: TimeBase,
        known: Calibration,
        sequence: str,
        behind: float,
    ) -> None:
        """`behind`: s since the first of its messages came; for so long its frames may wait for their turn."""
        self.sequence = sequence
        self.counts = Counts()
        self.began = time.monotonic()
        self.bytes = self.newest = 0
        self.worst_skew: dict[str, int] = {}
        self.base = base
        self._settings = settings
        self._roles = roles
        self._calibration = Calibration()
        self._calibration.merge(known)
        self._refused: StorageError | None = None
        self._reached = Reached()
        self.writer = open_writer(settings, roles, Path(live.out), sequence, describe=self._describe, live=live)
        splitter = Splitter(settings.split, nanoseconds(settings.split_block), settings.split_seed)
        self._assembly = SampleBuilder(
            settings, sequence, roles, self.counts, self._calibration, self._sink, behind=behind
        )
        self._pipeline = FrameBuilder(
            settings,
            roles,
            base,
            self.counts,
            self._calibration,
            self._assembly,
            group_of=splitter.of_time,
            numbered=True,
        )

    def _sink(self, sample: Sample) -> None:
        self._reached.write(self.writer, sample)
        self.newest = sample.timestamp
        self.bytes += sum(memoryview(buffer).nbytes for _, buffers in sample.members for buffer in buffers)
        for column, skew in sample.frame_row.items():
            if column.endswith("_skew") and isinstance(skew, int):
                self.worst_skew[column] = max(self.worst_skew.get(column, 0), abs(skew))

    @property
    def samples(self) -> int:
        """Samples so far."""
        return self.writer.samples

    def status(self) -> dict[str, Any]:
        """How far it is."""
        return {
            "sequence": self.sequence,
            "samples": self.samples,
            "committed": self.writer.committed,
            "bytes": self.bytes,
            "newest": self.newest,
            "backlog": self._assembly.backlog,
            "standstill_s": round(self._assembly.standstill, 3),
            "flush_age_s": round(self.writer.flush_age, 3),
            "decoder": self._assembly.note or self._settings.decoder,
            "worst_skew_ns": dict(self.worst_skew),
            "counts": self.counts.plain(),
            "time_base": time_base_of(self.base),
        }

    def push(self, arrival: Arrival) -> None:
        """Take the next message."""
        topic = arrival.message.topic
        self.counts[topic].seen += 1 + arrival.lost
        self.counts.drop(topic, ON_THE_WAY, arrival.lost)
        self._pipeline.push(arrival.message, arrival.now, arrival.video)

    def advance(self, now: int) -> None:
        """Hand on what is complete by `now`, ns of time.monotonic_ns()."""
        self._pipeline.advance(now)

    def flush(self) -> None:
        """Commit what is written where nothing new comes; else the writer does so by itself."""
        self._assembly.call_idle(self.writer.flush)

    def _describe(self) -> dict[str, Any]:
        """All that is known so far, for the case that this is interrupted."""
        known = {"labels": self._calibration.labels, "topics": {self.sequence: topics_of(self._roles)}}
        return {**self._metadata(), **known}

    def _metadata(self) -> dict[str, Any]:
        return frames_metadata(self._settings, [], time_base_of(self.base), self._calibration, self.counts.plain())

    def complete(self) -> Completed:
        """Complete the dataset, of which nothing is left where it has no sample; raises nothing."""
        try:
            paths = self._finish()
        except Exception as error:  # noqa: BLE001  whoever waits for it must be told
            text = f"{self.sequence} could not be completed: {describe_error(error)}"
            return Completed(text, bool(self.counts.lost), failure=text)
        lossy, refused = bool(self.counts.lost), str(self._refused or "")
        if paths is None:
            return Completed(f"dataset {self.sequence} has no sample and is not kept", lossy, refused)
        text = f"dataset {paths.container} is complete: {self.samples} samples"
        return Completed(text, lossy, refused, container=str(paths.container))

    def _finish(self) -> DatasetPaths | None:
        with self.writer:
            try:
                self._pipeline.finish()
            except StorageError as error:
                self._refused = error
            finally:
                self._assembly.abandon()
            if not self.writer.samples:
                return None
            if self._refused is not None:
                self._reached.settle(self.counts, self._roles)
            count_unused(self.counts, self._roles)
            return self.writer.finish(self._metadata(), self._calibration.labels)


def free_name(out: Path, host: str, layout: Layout) -> str:
    """A name that no dataset in `out` has: HOST_YYYY_MM_DD_hh_mm_ss of now, or of a second soon after."""
    moment = datetime.now(UTC)
    while is_taken(out, name := f"{host}_{moment:%Y_%m_%d_%H_%M_%S}", layout):
        moment += timedelta(seconds=1)
    return name


def is_taken(out: Path, name: str, layout: Layout) -> bool:
    """Whether there is a dataset of that name, finished or not."""
    paths = DatasetPaths(out, name, layout)
    return paths.unfinished or any(os.path.lexists(place) for place in (paths.container, paths.arrow, paths.frames))
