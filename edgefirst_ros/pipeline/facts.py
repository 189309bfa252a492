# SPDX-License-Identifier: Apache-2.0
"""What is known of a dataset that is being written, sequence by sequence: its metadata, and what recovery needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgefirst_ros import __version__, streams
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.recovery.rebuild import REFERENCE
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.clock import TimeBase

SOFTWARE = "edgefirst_ros"


@dataclass(frozen=True, slots=True)
class SequenceFacts:
    """One sequence: which topic plays which part, by which clock, what was said once, and what is counted.

    Owns: `calibration` and `base.replaced` are changed by the thread that pushes messages alone, `counts` by any.
    """

    name: str
    roles: Roles
    base: TimeBase
    calibration: Calibration
    counts: Counts
    source: Mapping[str, Any] | None = None
    """{"file", "size", "sha256"} of the recording it is made from; None: live."""

    @property
    def time_base(self) -> dict[str, Any]:
        """{"base", "topics"} of the metadata; live, topics may be added."""
        return {"base": self.base.base, "topics": dict(self.base.replaced)}

    @property
    def topics(self) -> dict[str, str]:
        """What `recover` has to know: the reference topic, and those of companions by their columns."""
        columns = {streams.of_key(sensor).column: topic for sensor, topic in self.roles.companions.items()}
        return {REFERENCE: self.roles.reference} | {column: t for column, t in columns.items() if column is not None}


def making(settings: Settings) -> dict[str, Any]:
    """Metadata that say how a dataset was made: where these and the recordings are the same, so are its bytes."""
    return {
        "configuration": settings.model_dump(mode="json"),
        "software": {"name": SOFTWARE, "version": __version__},
    }


class DatasetFacts:
    """All sequences of a dataset, one after the other: `begin`, then `end` once its last sample is written.

    Owns: `begin` and `end` by one thread, at times when no sample is being written; between them any thread describes.
    """

    def __init__(self, settings: Settings) -> None:
        self.counts = Counts()
        """Of the sequences that have ended."""
        self.time_bases: dict[str, dict[str, Any]] = {}
        """Of each sequence {"base", "topics"}."""
        self._settings = settings
        self._current: SequenceFacts | None = None
        self._sources: list[Mapping[str, Any]] = []
        self._topics: dict[str, dict[str, str]] = {}
        self._calibration = Calibration()

    def begin(self, facts: SequenceFacts) -> bool:
        """Take the next sequence; True where its model has other labels, which become one list with those before.

        The table of annotations has one list of labels.
        """
        known, own = self._calibration.labels, facts.calibration.labels
        united = known is not None and own is not None and own != known
        if known is not None and own is not None and united:
            facts.calibration.labels = known + [label for label in own if label not in known]
        self._current = facts
        self.time_bases[facts.name] = facts.time_base
        self._topics[facts.name] = facts.topics
        return united

    def end(self) -> None:
        """Close the sequence that has begun."""
        facts = self._current
        if facts is None:
            return
        self._calibration = self._joined_calibration()
        self.counts.add(facts.counts)
        self.time_bases[facts.name] = facts.time_base
        self._topics[facts.name] = facts.topics
        if facts.source is not None:
            self._sources.append(facts.source)
        self._current = None

    @property
    def labels(self) -> list[str] | None:
        """The model's labels, None where no model told any."""
        return self._joined_calibration().labels

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of NAME.frames.arrow (dataset.md 9, "Frames")."""
        current, calibration, counts = self._current, self._joined_calibration(), Counts.of(self.counts.plain())
        sources, bases = list(self._sources), dict(self.time_bases)
        if current is not None:
            counts.add(Counts.of(current.counts.plain()))
            bases[current.name] = current.time_base
            if current.source is not None:
                sources.append(current.source)
        first = next(iter(bases.values()))
        return {
            "sources": sources,
            **making(self._settings),
            "time_base": first if len(bases) == 1 else {**first, "sequences": bases},
            "camera_info": calibration.camera_info,
            "static_transforms": calibration.static_transforms,
            "counts": counts.plain(),
        }

    def describe(self) -> dict[str, Any]:
        """Return all that is known so far, for the case that the dataset is never finished."""
        topics = dict(self._topics)
        if self._current is not None:
            topics[self._current.name] = self._current.topics
        return {**self.metadata(), "labels": self.labels, "topics": topics}

    def _joined_calibration(self) -> Calibration:
        """What is said first counts; but labels grow with every sequence."""
        joined = Calibration()
        joined.merge(self._calibration)
        if self._current is not None:
            joined.merge(self._current.calibration)
            if self._current.calibration.labels is not None:
                joined.labels = self._current.calibration.labels
        return joined
