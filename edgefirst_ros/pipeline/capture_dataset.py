# SPDX-License-Identifier: Apache-2.0
"""One dataset of a capture, from its first message to its completion."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from edgefirst_ros import streams
from edgefirst_ros.config import SECOND, LiveSettings, Settings
from edgefirst_ros.counts import BY_STAMPS, ON_THE_WAY, Counts
from edgefirst_ros.dataset.names import DatasetPaths, Layout
from edgefirst_ros.dataset.storage.space import Headroom
from edgefirst_ros.errors import describe_error, pluralize
from edgefirst_ros.pipeline.facts import DatasetFacts, SequenceFacts, open_calibration
from edgefirst_ros.pipeline.output import SequenceOutput, open_writer
from edgefirst_ros.pipeline.pretrigger import Arrival
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import TimeBase


@dataclass(frozen=True)
class Completed:
    """Outcome of a dataset."""

    text: str
    lossy: bool
    """True if messages that came were lost."""
    refused: str = ""
    """Why the disk refused part of it, although the written part is complete."""
    failure: str = ""
    """Why it could not be completed; None if it was."""
    container: str | None = None
    """Path of the container; None also for one without samples, which is not kept."""
    samples: int = 0
    loss: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """{topic: {reason: number}} of lost messages."""


class CaptureDataset:
    """A dataset that is being written: `push`, and advance frames of `output`, until `complete`, never concurrently.

    Owns: these belong to one thread at a time, `complete` may be called in another one; `status` in any.
    """

    def __init__(
        self,
        settings: Settings,
        live: LiveSettings,
        roles: Roles,
        base: TimeBase,
        known: Calibration,
        sequence: str,
        headroom: Headroom,
        start_lag: float,
        namespace: str = "",
    ) -> None:
        """`start_lag`: s since the first of its messages came; for so long its frames may wait for their turn.

        `headroom`: of its disk. `namespace`: that of the capture, for the metadata.
        """
        self.sequence = sequence
        self.base = base
        self.headroom = headroom
        self.began = time.monotonic()
        self.split_since: int | None = None
        """Time of a split command that waits for a keyframe, ns; None without one."""
        self._decoder = settings.decoder
        self._tolerances = {sensor: settings.stream(sensor)[0] for sensor in roles.companions}
        calibration = open_calibration(roles)
        calibration.merge(known)
        self._counts = Counts()
        self._facts = DatasetFacts(settings, namespace)
        facts = SequenceFacts(sequence, roles, base, calibration, self._counts)
        self._facts.begin(facts)
        self._writer = open_writer(settings, roles, Path(live.out), sequence, describe=self._facts.describe, live=live)
        self.output = SequenceOutput(settings, facts, self._writer, start_lag=start_lag)

    @property
    def paused(self) -> bool:
        """True while the messages that come become no samples."""
        return self.output.frames.paused

    @paused.setter
    def paused(self, value: bool) -> None:
        self.output.frames.paused = value

    def status(self) -> dict[str, Any]:
        """Return counts of topics and samples so far, ready for JSON."""
        output, writer, skews = self.output, self._writer, dict(self.output.skews)
        return {
            "sequence": self.sequence, "samples": writer.samples, "committed": writer.committed,
            "bytes": output.bytes, "newest": output.newest, "backlog": output.samples.backlog,
            "standstill_s": round(output.samples.standstill, 3), "flush_age_s": round(writer.flush_age, 3),
            "decoder": output.samples.note or self._decoder,
            "worst_skew_ns": {f"{streams.find_by_key(sensor).column}_skew": of.largest for sensor, of in skews.items()},
            "companions": {
                sensor: {
                    "coverage": min(1.0, of.samples / max(1, writer.samples)),
                    "p95_skew_s": of.percentile(95) / SECOND,
                    "tolerance_s": self._tolerances[sensor] / SECOND,
                }
                for sensor, of in skews.items()
            },
            "counts": self._counts.plain(),
            "time_base": output.facts.time_base,
        }  # fmt: skip

    def push(self, arrival: Arrival) -> None:
        topic = arrival.message.topic
        self._counts.see(topic, 1 + arrival.lost + arrival.guessed)
        self._counts.drop(topic, ON_THE_WAY, arrival.lost)
        self._counts.drop(topic, BY_STAMPS, arrival.guessed)
        self.output.frames.push(arrival.message, arrival.now, arrival.parsed)

    def flush(self) -> None:
        """Commit the written samples while no new one comes; otherwise the writer does so by itself."""
        self.output.samples.call_idle(self._writer.flush)

    def complete(self) -> Completed:
        """Complete the dataset, or remove one without samples; never raises, the outcome says what failed."""
        try:
            paths = self._finish()
        except Exception as error:  # noqa: BLE001  the waiting caller must get the error
            text = f"{self.sequence} could not be completed: {describe_error(error)}"
            return Completed(text, bool(self._counts.lost), failure=text)
        lossy, refused = bool(self._counts.lost), str(self.output.refused or "")
        if paths is None:
            return Completed(f"dataset {self.sequence} has no sample and is not kept", lossy, refused)
        notes = self.output.facts.calibration.notes
        loss = {topic: dict(reasons) for topic, reasons in self._counts.lost.items()}
        lost = [f"{topic}: {n} {why}" for topic, reasons in sorted(loss.items()) for why, n in reasons.items()]
        text = "; ".join(
            [f"dataset {paths.container} is complete: {pluralize(self._writer.samples, 'sample')}", *lost, *notes]
        )
        return Completed(text, lossy, refused, container=str(paths.container), samples=self._writer.samples, loss=loss)

    def _finish(self) -> DatasetPaths | None:
        with self._writer, self.output:
            self.output.finish()
            if not self._writer.samples:
                return None
            return self._writer.finish(
                self._facts.metadata(), self._facts.labels, self._facts.categories, self._facts.box3d_frame
            )


def find_free_name(out: Path, host: str, layout: Layout) -> str:
    """Return a free name in `out`: HOST_YYYY_MM_DD_hh_mm_ss of now (UTC), or of one of the next seconds."""
    moment = datetime.now(timezone.utc)
    while is_taken(out, name := f"{host}_{moment:%Y_%m_%d_%H_%M_%S}", layout):
        moment += timedelta(seconds=1)
    return name


def is_taken(out: Path, name: str, layout: Layout) -> bool:
    """True if `out` has a dataset of that name, finished or not."""
    paths = DatasetPaths(out, name, layout)
    return paths.unfinished or any(os.path.lexists(place) for place in (paths.container, paths.arrow, paths.frames))
