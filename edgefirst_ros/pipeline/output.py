# SPDX-License-Identifier: Apache-2.0
"""What conversions and captures have in common: how a dataset is opened, and what is said of it in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefirst_ros import __version__, streams
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.counts import DISK, Counts
from edgefirst_ros.dataset.recovery.rebuild import REFERENCE
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.storage.member_index import NewMessages
from edgefirst_ros.dataset.writer import DatasetWriter, Describe, Sample
from edgefirst_ros.pipeline.samples import SOFTWARE
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import TimeBase


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
    """The writer of a dataset, of a capture with its settings; raises DatasetError when it cannot be written."""
    used = settings.companions
    columns = (s.column for s in streams.with_column() if (s.default or s in used) and s.key != roles.sensor)
    return DatasetWriter(
        out,
        name,
        layout=settings.layout,
        schema=settings.schema_version,
        companions=[column for column in columns if column is not None],
        overwrite=overwrite,
        fsync=live is not None and live.fsync,
        flush_interval=live.flush_interval if live is not None else 1.0,
        describe=describe,
        unfinished=unfinished,
    )


def time_base_of(base: TimeBase) -> dict[str, Any]:
    """The metadata `time_base` of one recording or capture."""
    return {"base": base.base, "topics": dict(base.replaced)}  # live it grows


def topics_of(roles: Roles) -> dict[str, str]:
    """What `recover` has to know of a sequence: its reference topic, and the companions' by their columns."""
    columns = {streams.of_key(sensor).column: topic for sensor, topic in roles.companions.items()}
    return {REFERENCE: roles.reference} | {column: topic for column, topic in columns.items() if column is not None}


def making(settings: Settings) -> dict[str, Any]:
    """Metadata that say how a dataset was made: where these and the recordings are the same, so are its bytes."""
    return {
        "configuration": settings.model_dump(mode="json"),
        "software": {"name": SOFTWARE, "version": __version__},
    }


def frames_metadata(
    settings: Settings,
    sources: Sequence[Mapping[str, Any]],
    time_base: Mapping[str, Any],
    calibration: Calibration,
    counts: Mapping[str, Any],
) -> dict[str, Any]:
    """Metadata of NAME.frames.arrow (dataset.md 9, "Frames")."""
    return {
        "sources": sources,
        **making(settings),
        "time_base": time_base,
        "camera_info": calibration.camera_info,
        "static_transforms": calibration.static_transforms,
        "counts": counts,
    }


class Reached:
    """What of one recording or capture reached the disk, for the case that the disk refuses the rest."""

    def __init__(self) -> None:
        self._samples = 0
        self._used: Counter[str] = Counter()
        self._messages = NewMessages()

    def write(self, writer: DatasetWriter, sample: Sample) -> None:
        """Write a sample; raises as the writer does."""
        before = writer.samples
        try:
            writer.write(sample)
        finally:
            if writer.samples > before:
                self._samples += 1
                self._used.update(self._messages.of(sample.frame_row))

    def settle(self, counts: Counts, roles: Roles) -> None:
        """Count what did not reach it."""
        written = {topic: self._used[streams.of_key(sensor).column or ""] for sensor, topic in roles.companions.items()}
        written[roles.reference] = self._samples
        for topic, number in written.items():
            count = counts[topic]
            count.written = number
            counts.drop(topic, DISK, max(0, count.seen - number - sum(count.dropped.values())))
