# SPDX-License-Identifier: Apache-2.0
"""Counts of samples, sensors and labels in each group of finished datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from edgefirst_ros import streams
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.group_rows import KEY, GroupRows
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.split import SAMPLES, Kind
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits

LISTED = 10
"""Sensors and labels that a note lists."""


@dataclass(frozen=True)
class GroupCounts:
    """Counts by group."""

    groups: Mapping[str, Mapping[Kind, int]]
    """{group: {kind: number}}: samples, samples with a sensor, annotations of a label."""
    without: int = 0
    """Number of samples without a group."""

    @classmethod
    def of(
        cls, datasets: Sequence[DatasetPaths], groups: Sequence[str] = (), limits: Limits = DEFAULT_LIMITS
    ) -> GroupCounts:
        """Count the groups of finished datasets; `groups` are listed first, even empty ones.

        Raises DatasetError where a table cannot be read.
        """
        found: dict[str, Counter[Kind]] = {group: Counter() for group in groups}
        without = 0
        for rows in (GroupRows(paths, limits) for paths in datasets):
            for group, label, number in rows.annotations.group_by("group", "label").len().sort("group", "label").rows():
                if group is not None and label is not None:
                    found.setdefault(group, Counter())[Kind("label", label)] += number
            group_of = rows.annotations.drop_nulls("group").unique(KEY, keep="first").select(*KEY, "group")
            samples = rows.samples.join(group_of, on=KEY, how="left", nulls_equal=True)
            sensors = [pl.col(f"{column}_timestamp").count().alias(column) for column in schema.COMPANIONS]
            for counts in samples.group_by("group").agg(pl.len().alias("samples"), *sensors).sort("group").to_dicts():
                group = counts.pop("group")
                if group is None:
                    without += counts["samples"]
                    continue
                tally = found.setdefault(group, Counter())
                tally[SAMPLES] += counts.pop("samples")
                tally.update(
                    {Kind("sensor", streams.of_column(c).key): number for c, number in counts.items() if number}
                )
        return cls(found, without)

    @property
    def kinds(self) -> list[Kind]:
        """Kinds that are counted: samples, then sensors, then labels, the most frequent first."""
        totals: Counter[Kind] = Counter()
        for tally in self.groups.values():
            totals.update(tally)
        order = ("samples", "sensor", "label")
        present = [kind for kind, number in totals.items() if number]
        return sorted(present, key=lambda kind: (order.index(kind.what), -totals[kind], kind.name))

    @property
    def notes(self) -> list[str]:
        """Notes about groups that are empty, or lack a sensor or label that others have."""
        notes = []
        for group, tally in self.groups.items():
            if not tally.get(SAMPLES, 0):
                notes.append(f"group {group} is empty: it needs more sequences, or a shorter split_block")
                continue
            for what in ("sensor", "label"):
                lacking = [kind.name for kind in self.kinds if kind.what == what and not tally.get(kind, 0)]
                if lacking:
                    more = f" and {len(lacking) - LISTED} more" if len(lacking) > LISTED else ""
                    plural = "s" if len(lacking) > 1 else ""
                    listed = ", ".join(lacking[:LISTED])
                    notes.append(f"group {group} lacks the {what}{plural} {listed}{more}, which another group has")
        return notes

    @property
    def plain(self) -> dict[str, dict[str, Any]]:
        """Counts ready for JSON."""
        return {
            group: {
                "samples": tally.get(SAMPLES, 0),
                "sensors": {kind.name: tally[kind] for kind in self.kinds if kind.what == "sensor" and tally.get(kind)},
                "labels": {kind.name: tally[kind] for kind in self.kinds if kind.what == "label" and tally.get(kind)},
            }
            for group, tally in self.groups.items()
        }
