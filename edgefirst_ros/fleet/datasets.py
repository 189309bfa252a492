# SPDX-License-Identifier: Apache-2.0
"""Finished datasets of a fleet: selection, and local copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from edgefirst_ros.dataset.objects.location import StoredObject
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.objects.transfer import download
from edgefirst_ros.errors import DatasetError, UsageError, counted
from edgefirst_ros.fleet.catalogue import current
from edgefirst_ros.fleet.layout import Layout
from edgefirst_ros.fleet.scratch import scratch_of
from edgefirst_ros.fleet.state import USABLE

LISTED = 10


@dataclass(frozen=True, slots=True)
class FleetDataset:
    """One dataset, from its state; `members` have keys relative to DST, the container last."""

    name: str
    settings: str
    members: Sequence[Mapping[str, Any]]
    samples: int
    entries: int
    """Upper bound of the number of members in its container."""

    @property
    def container(self) -> str:
        """Key of the container, relative to DST."""
        return str(self.members[-1]["key"])

    @property
    def container_bytes(self) -> int:
        """Bytes of the container."""
        return int(self.members[-1]["bytes"])


def finished_datasets(layout: Layout, where: str | None) -> list[FleetDataset]:
    """Return the datasets that are there and meet a condition on their rows of the catalogue, by name.

    Raises DatasetError where there is none, UsageError where the condition is none.
    """
    states = current(layout)
    usable = pl.col("verdict").is_in(USABLE)
    number = states.choose(None, usable.sum()).item()
    if not number:
        raise DatasetError(f"{layout.root}: has no datasets; fleet convert makes them")
    sensors = pl.sum_horizontal(pl.selectors.matches("^samples(_|$)")).alias("entries")
    rows = states.choose(where, "name", "settings", "members", "samples", sensors, usable.alias("usable"))
    rows = rows.filter("usable").drop("usable").sort("name", "settings")
    if not len(rows):
        raise DatasetError(f"{layout.root}: none of {counted(number, 'dataset')} meets --where {where!r}")
    return [FleetDataset(*row) for row in rows.iter_rows()]


def failed_recordings(layout: Layout, where: str | None) -> list[tuple[str, str]]:
    """Return source URI and cause of the recordings without a dataset that meet a condition, by URI.

    Raises UsageError where the condition is none.
    """
    rows = current(layout).choose(where, "source", "verdict", "error").filter(~pl.col("verdict").is_in(USABLE))
    return [(source, error or verdict) for source, verdict, error in rows.sort("source").iter_rows()]


def of_one_kind(datasets: Sequence[FleetDataset]) -> Sequence[FleetDataset]:
    """Return them. Raises UsageError where they were made with several settings: names come twice then."""
    kinds: dict[str, int] = {}
    for dataset in datasets:
        kinds[dataset.settings] = kinds.get(dataset.settings, 0) + 1
    if len(kinds) > 1:
        listed = ", ".join(f"{settings} ({number})" for settings, number in sorted(kinds.items())[:LISTED])
        raise UsageError(
            f"the datasets were made with {len(kinds)} settings: {listed}; choose one: --where \"settings = '...'\""
        )
    return datasets


@contextmanager
def local_copy(
    layout: Layout, dataset: FleetDataset, scratch: str | None, *, only_tables: bool = False
) -> Iterator[Path]:
    """Give the container beside its tables on this machine: as they lie, or fetched and removed behind it.

    `only_tables`: a container that does not lie on this machine is not fetched; its place is given all the same.
    Raises DatasetError where one is not what its state says, ObjectStoreError, StorageError.
    """
    store = open_store(layout.root)
    found = []
    for member in dataset.members:
        expected = StoredObject(layout.absolute(member["key"]), member["bytes"], member["etag"])
        if store.stat(expected.key) != expected:
            raise DatasetError(f"{layout.root / member['key']}: is missing or was replaced; run fleet convert again")
        found.append(expected)
    if layout.root.local:
        yield Path(f"/{found[-1].key}")
        return
    with scratch_of(scratch).folder() as folder:
        paths = [folder / one.key.rpartition("/")[2] for one in found]
        for one, path in zip(found[:-1] if only_tables else found, paths, strict=False):
            download(store, one, path)
        yield paths[-1]
