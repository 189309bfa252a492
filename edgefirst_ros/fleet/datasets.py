# SPDX-License-Identifier: Apache-2.0
"""Finished datasets of a fleet: selects and copies them, merges them, or validates and exports each on a worker."""

from __future__ import annotations

import json
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from edgefirst_ros import __version__
from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.merge import Merged, merge
from edgefirst_ros.dataset.names import DatasetPaths, check_name, make_safe
from edgefirst_ros.dataset.objects.location import Location, StoredObject
from edgefirst_ros.dataset.objects.store import download, list_dataset_files, open_store, upload_dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, UsageError, pluralize
from edgefirst_ros.export import REPORT, export
from edgefirst_ros.fleet.catalogue import update_catalogue
from edgefirst_ros.fleet.engine import Driver, Engine, Task
from edgefirst_ros.fleet.state import USABLE, Layout
from edgefirst_ros.fleet.work import BEFORE, catch_errors, find_scratch

LISTED = 10
END = 98
"""Bytes after the directory of a ZIP, at most."""
LARGE, PER_ENTRY = (1 << 32) - 1, 28
"""A ZIP beyond this many bytes takes so many more for each member."""


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


def list_datasets(layout: Layout, where: str | None) -> list[FleetDataset]:
    """Return the datasets that exist and meet a condition on their rows of the catalogue, by name.

    Raises DatasetError without any, UsageError for an invalid condition.
    """
    states = update_catalogue(layout)
    usable = pl.col("verdict").is_in(USABLE)
    number = states.choose(None, usable.sum()).item()
    if not number:
        raise DatasetError(f"{layout.root}: has no datasets; expected the folder -o of fleet convert")
    sensors = pl.sum_horizontal(pl.selectors.matches("^samples(_|$)")).alias("entries")
    rows = states.choose(where, "name", "settings", "members", "samples", sensors, usable.alias("usable"))
    rows = rows.filter("usable").drop("usable").sort("name", "settings")
    if not len(rows):
        raise DatasetError(f"{layout.root}: 0 of {pluralize(number, 'dataset')} meet --where {where!r}")
    return [FleetDataset(*row) for row in rows.iter_rows()]


def list_failed(layout: Layout, where: str | None) -> list[tuple[str, str]]:
    """Return source URI and cause of the recordings without a dataset that meet a condition, by URI.

    Raises UsageError for an invalid condition.
    """
    rows = update_catalogue(layout).choose(where, "source", "verdict", "error").filter(~pl.col("verdict").is_in(USABLE))
    return [(source, error or verdict) for source, verdict, error in rows.sort("source").iter_rows()]


def check_one_kind(datasets: Sequence[FleetDataset]) -> Sequence[FleetDataset]:
    """Return them. Raises UsageError where they were made with several settings: names come twice then."""
    kinds = Counter(dataset.settings for dataset in datasets)
    if len(kinds) > 1:
        listed = ", ".join(f"{settings} ({number})" for settings, number in sorted(kinds.items())[:LISTED])
        raise UsageError(
            f"the datasets were made with {len(kinds)} settings: {listed}; choose one: --where \"settings = '...'\""
        )
    return datasets


@contextmanager
def fetch_copy(
    layout: Layout, dataset: FleetDataset, scratch: str | None, *, only_tables: bool = False
) -> Iterator[Path]:
    """Yield the container beside its tables on this machine; fetched ones are removed after use.

    `only_tables`: a container that does not are on this machine is not fetched; its place is given all the same.
    Raises DatasetError where one is not what its state says, ObjectStoreError, StorageError.
    """
    store = open_store(layout.root)
    found = []
    for member in dataset.members:
        place = layout.root / member["key"]
        expected = StoredObject(place.key, member["bytes"], member["etag"])
        if store.stat(expected.key) != expected:
            hint = f"run fleet convert again, which keeps a changed table as NAME.arrow{BEFORE}"
            raise DatasetError(f"{place}: is missing or was changed; {hint}")
        found.append(expected)
    if layout.root.local:
        yield Path(f"/{found[-1].key}")
        return
    with find_scratch(scratch).folder() as folder:
        paths = [folder / one.key.rpartition("/")[2] for one in found]
        for one, path in zip(found[:-1] if only_tables else found, paths, strict=False):
            download(store, one, path)
        yield paths[-1]


def make_shards(datasets: Sequence[FleetDataset], most: int | None) -> list[list[FleetDataset]]:
    """Share datasets out, in their order, so that no container is larger than `most` bytes; None: all are one.

    Raises UsageError where a single one is larger.
    """
    if most is None:
        return [list(datasets)]
    found: list[list[FleetDataset]] = []
    size = most + 1
    for dataset in datasets:
        bare = int(dataset.members[-1]["bytes"])
        if bare > most:
            raise UsageError(f"--shard-bytes {most}: {dataset.name} has {bare} bytes; allow at least as many")
        own = bare + (PER_ENTRY * dataset.entries if most > LARGE else 0)
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

    Datasets in a bucket are fetched for it, a shard at a time; a result for a bucket stays in scratch until it is
    uploaded. Raises UsageError, DatasetError, ObjectStoreError; shards before the one that failed remain then.
    """
    place = Location.of(out)
    name = check_name(name) if name is not None else make_safe(place.name or "merged")
    parts = make_shards(datasets, shard_bytes)
    names = [f"{name}-{number:03}" for number in range(len(parts))] if shard_bytes is not None else [name]
    store = open_store(place)
    for own in names if not overwrite else ():
        for file in list_dataset_files(DatasetPaths(Path("/"), own)):
            if store.stat((place / file.name).key) is not None:
                raise DatasetError(f"{place / file.name} exists; use --overwrite to replace it")
    with suppress(OSError, ValueError):  # every dataset of a merge is open
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    made = []
    for part, own in zip(parts, names, strict=True):
        with ExitStack() as stack:
            paths = [stack.enter_context(fetch_copy(layout, dataset, scratch)) for dataset in part]
            folder = place.path if place.local else stack.enter_context(find_scratch(scratch).folder())
            merged = merge(paths, folder, name=own, overwrite=overwrite, group_rule=group_rule, progress=progress)
            size = merged.paths.container.stat().st_size
            if shard_bytes is not None and size > shard_bytes:
                raise DatasetError(f"{merged.paths.container}: has {size} bytes, more than {shard_bytes}")
            if not place.local:
                upload_dataset(merged.paths, place, overwrite=overwrite, progress=progress)
        made.append((place / f"{own}.zip", merged))
    return made


MEMORY = 1 << 30
"""Memory that one dataset may take, bytes."""
FINDINGS = 3
"""Violated rules that are listed for a dataset; `edgefirst-ros validate` lists all."""
AT_ONCE = 8
"""Files of an export that are put into a bucket side by side."""
MARK = ".export.json"
"""Suffix of the file that marks a complete export."""


def run_each(
    engine: Engine,
    function: Callable[[dict[str, Any]], dict[str, Any]],
    layout: Layout,
    datasets: Sequence[FleetDataset],
    report: Callable[[int, int], None],
    **options: Any,
) -> Iterator[Mapping[str, Any]]:
    """Yield the record of each dataset: name, verdict, why. `report` is reported how many of how many are through.

    Raises EdgeFirstError where the engine is gone, or workers have another version.
    """
    done = 0
    tasks = (
        Task(function, {"to": str(layout.root), "dataset": asdict(dataset), "software": __version__, **options}, MEMORY)
        for dataset in datasets
    )
    driver = Driver(engine, tick=lambda: report(done, len(datasets)))
    for task, record in driver.run(tasks):
        done += 1
        facts = dict(record)
        yield {"name": task.arguments["dataset"]["name"], "why": facts.pop("error") or "", **facts}


def export_together(
    layout: Layout, datasets: Sequence[FleetDataset], to: str, out: str, scratch: str | None, progress: Progress
) -> int:
    """Export all datasets as one set to OUT, and return the exit code; a bucket gets the report last.

    Raises UsageError, DatasetError, ObjectStoreError, StorageError; a failed export removes its files from a local OUT.
    """
    place = Location.of(out)
    if not place.local and open_store(place).stat((place / REPORT).key) is not None:
        raise DatasetError(f"{out}: exists already; name another prefix")
    with ExitStack() as stack:
        paths = [stack.enter_context(fetch_copy(layout, dataset, scratch)) for dataset in datasets]
        if place.local:
            return export(paths, to, place.path, progress=progress).exit_code
        folder = stack.enter_context(find_scratch(scratch).folder()) / "set"
        done = export(paths, to, folder, progress=progress)
        _put_files(folder, place)
        return done.exit_code


def _put_files(folder: Path, place: Location) -> int:
    """Put all files of a folder below a place, several side by side and the report last; returns their number."""
    from edgefirst_ros.dataset.objects.bucket import map_in_threads

    def put(file: Path) -> None:
        store.put((place / file.relative_to(folder).as_posix()).key, file)

    store, files = open_store(place), [file for file in folder.rglob("*") if file.is_file() and file.name != REPORT]
    done = sum(1 for _ in map_in_threads(put, files, AT_ONCE))
    put(folder / REPORT)
    return done + 1


def _copy_of(plain: dict[str, Any]) -> AbstractContextManager[Path]:
    """Return the local copy of the dataset of a task."""
    return fetch_copy(Layout.of(plain["to"]), FleetDataset(**plain["dataset"]), plain["scratch"])


@catch_errors
def validate_one(plain: dict[str, Any]) -> dict[str, Any]:
    """Validate a dataset."""
    with _copy_of(plain) as path:
        report = validate(path, strict=plain["strict"]).plain()
    told = [f"{finding['rule']} {finding['message']}" for finding in report["findings"]]
    return {"verdict": "ok" if report["ok"] else "invalid", "error": "; ".join(told[:FINDINGS]), "findings": len(told)}


@catch_errors
def export_one(plain: dict[str, Any]) -> dict[str, Any]:
    """Export a dataset to scratch, put every file in place, and last of all the mark."""
    dataset = FleetDataset(**plain["dataset"])
    place = Location.of(plain["out"]) / dataset.name
    mark, store = Location(place.root, f"{place.key}{MARK}"), open_store(place)
    made = {"container": dict(dataset.members[-1])} | {key: plain[key] for key in ("format", "options", "software")}
    with _copy_of(plain) as path, find_scratch(plain["scratch"]).folder() as folder:
        known = store.stat(mark.key)
        if known is not None and json.loads(store.read(mark.key)).get("made") == made:
            return {"verdict": "ok", "error": None, "before": True}
        done = export(path, plain["format"], folder / dataset.name, **plain["options"])
        number = _put_files(folder / dataset.name, place)
    said = {"made": made, "files": number, "report": done.report.plain()}
    store.write(mark.key, json.dumps(said, indent=1).encode())
    return {"verdict": "ok", "error": None}
