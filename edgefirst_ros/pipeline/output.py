# SPDX-License-Identifier: Apache-2.0
"""Brings a sequence into a dataset, for conversions and captures alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgefirst_ros import streams
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.writer import DatasetWriter, Describe, NewSample
from edgefirst_ros.errors import StorageError
from edgefirst_ros.pipeline.cameras import OtherCamera
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import Chosen, Frame, Usage
from edgefirst_ros.pipeline.frames import FrameBuilder
from edgefirst_ros.pipeline.samples import SampleBuilder
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.align import Skews

if TYPE_CHECKING:
    from typing_extensions import Self

    from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
    from edgefirst_ros.pipeline.first_pass import FirstPass


def open_writer(
    settings: Settings,
    roles: Roles,
    out: Path,
    name: str,
    *,
    describe: Describe,
    overwrite: bool = False,
    live: LiveSettings | None = None,
    unfinished: UnfinishedDataset | None = None,
) -> DatasetWriter:
    """Open the writer of a dataset; `live`: settings of a capture.

    Raises DatasetError if it cannot be written.
    """
    used = {*settings.companions, *(sensor for sensor in streams.list_companions() if sensor.default)}
    columns = (s.column for s in sorted(used, key=lambda sensor: sensor.order) if s.key != roles.sensor)
    return DatasetWriter(
        out, name, layout=settings.layout, schema=settings.schema_version, group_rule=GroupRule.of(settings),
        companions=[column for column in columns if column is not None], describe=describe, overwrite=overwrite,
        fsync=live is not None and live.fsync, flush_interval=live.flush_interval if live is not None else 1.0,
        unfinished=unfinished,
    )  # fmt: skip


class SequenceOutput:
    """Brings the messages of one sequence into a dataset: push to `frames`, then `finish`; threads end with `with`.

    A push raises StorageError if the disk refused earlier samples.
    Owns: all methods belong to the thread that pushes messages; `bytes`, `newest` and `skews` are changed by the thread
    that writes, others read them at any time.
    """

    def __init__(
        self,
        settings: Settings,
        facts: SequenceFacts,
        writer: DatasetWriter,
        found: FirstPass | None = None,
        *,
        start_lag: float | None = None,
        chosen: Chosen | None = None,
    ) -> None:
        """`found`: the first pass of the recording; None: live.

        `start_lag`: live, s since the first of its messages came; for so long its frames may wait for their turn.
        `chosen`: as for `SampleBuilder`.
        """
        self.facts = facts
        self.bytes = 0
        self.newest = 0
        """Stamp of the last sample, ns."""
        self.skews: defaultdict[str, Skews] = defaultdict(Skews)
        """{companion sensor: distribution of |skew| over the samples that have it}."""
        self.refused: StorageError | None = None
        """Why the disk did not take all of it; known after `finish`."""
        self._writer = writer
        self._usage = Usage(facts.counts, facts.roles)
        cameras = {
            key: OtherCamera(key, settings, facts, numbered=found is None or topic in found.numbered)
            for key, topic in sorted(facts.roles.cameras.items())
            if topic != facts.roles.reference
        }
        kept = writer.count_kept(facts.name)
        self.samples = SampleBuilder(
            settings, facts, self._write, start_lag=start_lag, kept=kept, chosen=chosen, cameras=cameras
        )
        self.frames = FrameBuilder(settings, facts, self._usage, self.samples.put, cameras=cameras, found=found)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.samples.abandon()

    def read(self, found: FirstPass, progress: Callable[[int, int], None]) -> None:
        """Push the messages of a recording, and finish; `progress` is called with messages done and in all."""
        streamed = {topic: schema for topic, schema in found.topics.items() if topic in found.roles.streamed}
        wanted = found.wanted
        with suppress(StorageError):  # `finish` says why
            for done, message in enumerate(found.recording.iter_messages(streamed)):
                if self.frames.is_through:
                    break
                self.frames.push(message)
                progress(done, wanted)
        self.finish()

    def finish(self) -> None:
        """Write the remaining samples, end all threads, and count the outcome of every message.

        A disk that refuses is not an error here: `refused` says why, and what did not reach the dataset is counted.
        """
        try:
            self.samples.drain()
            self.frames.advance(None)
            self.samples.finish()
        except StorageError as error:
            self.refused = error
        finally:
            self.samples.abandon()
        if self.refused is None:  # only now is it known which messages a sample has
            self._usage.settle()
            self.frames.count_rest()
            self.frames.close()
        self._usage.count_unused(refused=self.refused is not None)

    # ---- in the thread that writes -------------------------------------------------------
    def _write(self, sample: NewSample, frame: Frame) -> None:
        before = self._writer.samples
        try:
            self._writer.write(sample)
        finally:
            if self._writer.samples > before:  # also where the commit after it failed
                self._usage.observe(frame)
        self.newest = sample.timestamp
        self.bytes += sum(memoryview(buffer).nbytes for _, buffers in sample.members for buffer in buffers)
        for column, skew in sample.frame_row.items():
            if column.endswith("_skew") and isinstance(skew, int):
                sensor = streams.find_by_column(column.removesuffix("_skew")).key
                self.skews[sensor].add(skew)
