# SPDX-License-Identifier: Apache-2.0
"""Reads only the tables of a dataset, not its container: enough for a row of a table over thousands."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.opening import open_tables
from edgefirst_ros.dataset.sequences import frames_metadata
from edgefirst_ros.dataset.storage.opening import open_file
from edgefirst_ros.dataset.summary import DatasetSummary, stated_calibrations, summarize
from edgefirst_ros.dataset.verdict import Timeline
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits


class Told(Protocol):
    """Facts of a dataset or recording for a row of the table."""

    name: str
    path: Path
    notes: list[str]

    @property
    def kind(self) -> str:
        """`dataset` or `recording`."""

    @property
    def timeline(self) -> Timeline:
        """Its times."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """File metadata, of the frames table at least."""

    @property
    def summary(self) -> DatasetSummary:
        """What is counted and judged by the tables, by sequence."""

    @property
    def samples(self) -> int:
        """Number of samples."""

    @property
    def messages(self) -> Mapping[str, int]:
        """{topic: number of messages} of a recording; empty for a dataset."""


@dataclass
class Tables:
    """A dataset of which only the tables are read."""

    name: str
    path: Path
    timeline: Timeline
    metadata: Mapping[str, Any]
    summary: DatasetSummary
    kind: str = "dataset"
    notes: list[str] = field(default_factory=list)
    messages: Mapping[str, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Rows of the frames."""
        return len(self.timeline)


def tables_of(paths: DatasetPaths, name: str, path: Path, limits: Limits = DEFAULT_LIMITS) -> Tables | None:
    """Read the tables of a dataset; None where they do not tell enough, so that its members must be looked at.

    Raises DatasetError where a table cannot be read.
    """
    _, frames = open_tables(paths, limits)
    if frames is None:
        return None
    metadata, timeline = frames_metadata(paths.frames, frames.metadata), Timeline.of_file(frames)
    told = {name: word for name, word in stated_calibrations(metadata).items() if name in timeline.names}
    if not told or len(told) < len(timeline.names):
        return None
    return Tables(name, path, timeline, metadata, summarize(timeline, metadata, told))


def check_container(paths: DatasetPaths) -> None:
    """Raise DatasetError where a dataset has no container, or a ZIP that ends early; its members are not looked at."""
    if not os.path.lexists(paths.members):
        raise DatasetError(f"{paths.members}: not there; the tables alone are not a dataset")
    if paths.layout == "zip":
        with os.fdopen(open_file(paths.members), "rb") as file:
            if not zipfile.is_zipfile(file):
                raise DatasetError(f"{paths.members}: not a readable ZIP archive: it has no directory at its end")
