# SPDX-License-Identifier: Apache-2.0
"""Outcome of a recovery: what was found, kept and lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.storage.zip_write import Lost
from edgefirst_ros.errors import counted

LISTED = 100
"""Ranges without a whole member that are reported one by one."""


@dataclass(slots=True)
class Recovery:
    """Outcome of a recovery."""

    paths: DatasetPaths
    dry_run: bool
    complete: bool = False
    """True if the dataset was complete already."""
    samples: int = 0
    members: int = 0
    lost: list[Lost] = field(default_factory=list)
    """The first ranges without a whole member."""
    lost_stretches: int = 0
    lost_bytes: int = 0
    rows_rebuilt: int = 0
    """Samples whose frames row was lost and is rebuilt."""
    unstamped: int = 0
    """Samples of these whose stamp is known to 2 s only."""
    annotations_lost: int = 0
    """Samples whose annotation rows may be lost."""
    rows_dropped: int = 0
    """Samples of the journal, or of the tables, without any member."""
    members_missing: int = 0
    """Missing members of samples that are kept."""
    told_by: str = "journal"
    """What has the rows: `journal`, or `tables` of a finished dataset that was cut."""
    kept: dict[Path, Path] = field(default_factory=dict)
    """{journal that is not understood: where it is kept}."""
    notes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The outcome in one line."""
        if self.complete:
            return "all of it was there"
        said = f"{counted(self.samples, 'sample')}, {counted(self.members, 'member')}"
        if self.lost_stretches:
            said += (
                f"; no whole member in {counted(self.lost_bytes, 'byte')} in {counted(self.lost_stretches, 'place')}"
            )
        if self.rows_rebuilt:
            said += f"; {counted(self.rows_rebuilt, 'row')} rebuilt"
        if self.annotations_lost:
            said += f"; annotations of {counted(self.annotations_lost, 'sample')} may be lost"
        if self.rows_dropped:
            said += f"; not there of the {self.told_by}: {counted(self.rows_dropped, 'sample')}"
        return "; ".join([said, *self.notes])

    def note(self, lost: Lost) -> None:
        """Count a range without a whole member; the first ones are listed."""
        self.lost_stretches += 1
        self.lost_bytes += lost.end - lost.start
        if len(self.lost) < LISTED:
            self.lost.append(lost)

    def plain(self, not_understood: Mapping[Path, str]) -> dict[str, Any]:
        """Return the metadata `recovered`; `not_understood`: what is wrong with the journals that are kept."""
        told: dict[str, Any] = {
            "members": self.members,
            "lost_bytes": self.lost_bytes,
            "lost": [{"offset": lost.start, "name": lost.name, "why": lost.why} for lost in self.lost],
            "rows_rebuilt": self.rows_rebuilt,
            "annotations_lost": self.annotations_lost,
            "rows_dropped": self.rows_dropped,
            "members_missing": self.members_missing,
        }
        if self.kept:
            told["journals"] = [
                {"file": path.name, "why": not_understood[path], "kept": kept.name} for path, kept in self.kept.items()
            ]
        return told

    @property
    def exit_code(self) -> int:
        """0 when all is there, 3 when something was lost."""
        lost = self.lost_stretches, self.rows_rebuilt, self.annotations_lost, self.rows_dropped, self.members_missing
        return 3 if any(lost) or self.kept else 0
