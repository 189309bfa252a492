# SPDX-License-Identifier: Apache-2.0
"""Merges the datasets of a fleet into one, or into shards of limited size."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.merge import Merged, merge
from edgefirst_ros.dataset.names import DatasetPaths, check_name, safe_name
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.objects.transfer import dataset_files, upload_dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.fleet.datasets import FleetDataset, local_copy
from edgefirst_ros.fleet.layout import Layout
from edgefirst_ros.fleet.scratch import scratch_of
from edgefirst_ros.progress import Progress

END = 98
"""Bytes behind the directory of a ZIP, at most."""
LARGE, PER_ENTRY = (1 << 32) - 1, 28
"""A ZIP beyond this many bytes takes so many more for each member."""


def shards(datasets: Sequence[FleetDataset], most: int | None) -> list[list[FleetDataset]]:
    """Share datasets out, in their order, so that no container is larger than `most` bytes; None: all are one.

    Raises UsageError where a single one is larger.
    """
    if most is None:
        return [list(datasets)]
    found: list[list[FleetDataset]] = []
    size = most + 1
    for dataset in datasets:
        own = dataset.container_bytes + (PER_ENTRY * dataset.entries if most > LARGE else 0)
        if dataset.container_bytes > most:
            raise UsageError(
                f"--shard-bytes {most}: {dataset.name} alone has {dataset.container_bytes} bytes; give at least as many"
            )
        if size + own > most - (END if size else 0):
            found.append([])
            size = 0
        found[-1].append(dataset)
        size += own
    return found


def merge_fleet(
    layout: Layout,
    datasets: Sequence[FleetDataset],
    out: str,
    *,
    name: str | None = None,
    shard_bytes: int | None = None,
    scratch: str | None = None,
    overwrite: bool = False,
    group_rule: GroupRule | None = None,
    progress: Progress,
) -> list[tuple[Location, Merged]]:
    """Merge datasets to OUT/NAME.zip, with `shard_bytes` to OUT/NAME-000.zip and so on; returns containers in order.

    Datasets in a bucket are fetched for it, a shard at a time, and so is a result for a bucket kept in scratch until it
    is there. Raises UsageError, DatasetError, ObjectStoreError; shards before the one that failed are there then.
    """
    place = Location.of(out)
    name = check_name(name) if name is not None else safe_name(place.name or "merged")
    parts = shards(datasets, shard_bytes)
    names = [f"{name}-{number:03}" for number in range(len(parts))] if shard_bytes is not None else [name]
    _refuse_existing(place, names, overwrite=overwrite)
    _allow_files()
    made = []
    for part, own in zip(parts, names, strict=True):
        with ExitStack() as stack:
            paths = [stack.enter_context(local_copy(layout, dataset, scratch)) for dataset in part]
            folder = place.path if place.local else stack.enter_context(scratch_of(scratch).folder())
            merged = merge(paths, folder, name=own, overwrite=overwrite, group_rule=group_rule, progress=progress)
            size = merged.paths.container.stat().st_size
            if shard_bytes is not None and size > shard_bytes:
                raise DatasetError(f"{merged.paths.container}: has {size} bytes, more than {shard_bytes}")
            if not place.local:
                upload_dataset(merged.paths, place, overwrite=overwrite, progress=progress)
        made.append((place / f"{own}.zip", merged))
    return made


def _refuse_existing(place: Location, names: Sequence[str], *, overwrite: bool) -> None:
    store = open_store(place)
    for name in names if not overwrite else ():
        for file in dataset_files(DatasetPaths(Path("/"), name)):
            if store.stat((place / file.name).key) is not None:
                raise DatasetError(f"{place / file.name} exists; use --overwrite to replace it")


def _allow_files() -> None:
    """Let as many files be open as may be: every dataset of a merge is."""
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
