# SPDX-License-Identifier: Apache-2.0
"""Work on each dataset of a fleet by itself, on any engine: validate, export."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgefirst_ros import __version__
from edgefirst_ros.counts import Progress
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, EdgeFirstError, StorageError, describe_foreign
from edgefirst_ros.export import REPORT, export
from edgefirst_ros.fleet.datasets import FleetDataset, local_copy
from edgefirst_ros.fleet.engine import Driver, Engine, Task
from edgefirst_ros.fleet.state import Layout
from edgefirst_ros.fleet.work import scratch_of

MEMORY = 1 << 30
"""Memory that one dataset may take, bytes."""
FINDINGS = 3
"""Violated rules that are listed for a dataset; `edgefirst-ros validate` lists all."""
AT_ONCE = 8
"""Files of an export that are put into a bucket side by side."""
MARK = ".export.json"
"""Suffix of the file that marks a complete export."""


def validate_one(plain: dict[str, Any]) -> dict[str, Any]:
    """Validate a dataset; never raises."""
    return _guarded(plain, _validated)


def export_one(plain: dict[str, Any]) -> dict[str, Any]:
    """Export a dataset; never raises."""
    return _guarded(plain, _exported)


def for_each(
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
    for result in driver.run(tasks):
        done += 1
        if result.record["verdict"] == "refused":
            raise EdgeFirstError(
                f"a worker has edgefirst_ros {result.record['software']}, this is {__version__}: "
                "install the same version on all"
            )
        why = result.record.get("why") or result.record.get("error") or ""
        yield {"name": result.task.arguments["dataset"]["name"], "why": why, **result.record}


def export_together(
    layout: Layout, datasets: Sequence[FleetDataset], to: str, out: str, scratch: str | None, progress: Progress
) -> int:
    """Export all datasets as one set to OUT, and return the exit code; a bucket gets the report last.

    Raises UsageError, DatasetError, ObjectStoreError, StorageError; nothing remains in a local OUT then.
    """
    place = Location.of(out)
    if not place.local and open_store(place).stat((place / REPORT).key) is not None:
        raise DatasetError(f"{out}: exists already; name another prefix")
    with ExitStack() as stack:
        paths = [stack.enter_context(local_copy(layout, dataset, scratch)) for dataset in datasets]
        if place.local:
            return export(paths, to, place.path, progress=progress).exit_code
        folder = stack.enter_context(scratch_of(scratch).folder()) / "set"
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


def _guarded(plain: dict[str, Any], work: Callable[[dict[str, Any], Path], dict[str, Any]]) -> dict[str, Any]:
    if plain["software"] != __version__:
        return {"verdict": "refused", "software": __version__}
    began = time.monotonic()
    try:
        layout = Layout(Location.of(plain["to"]))
        with local_copy(layout, FleetDataset(**plain["dataset"]), plain["scratch"]) as path:
            record = work(plain, path)
    except StorageError as error:
        record = {"verdict": "storage", "why": str(error)}
    except BaseException as error:  # noqa: BLE001  panics of libraries are no Exception
        text = str(error) if isinstance(error, EdgeFirstError) else describe_foreign(error)
        record = {"verdict": "failed", "why": text}
    return record | {"seconds": time.monotonic() - began}


def _validated(plain: dict[str, Any], path: Path) -> dict[str, Any]:
    report = json.loads(validate(path, strict=plain["strict"]).to_json())
    told = [f"{finding['rule']} {finding['message']}" for finding in report["findings"]]
    return {"verdict": "ok" if report["ok"] else "invalid", "why": "; ".join(told[:FINDINGS]), "findings": len(told)}


def _exported(plain: dict[str, Any], path: Path) -> dict[str, Any]:
    """Export to scratch, put every file in place, and last of all the mark."""
    dataset = FleetDataset(**plain["dataset"])
    place = Location.of(plain["out"]) / dataset.name
    mark, store = Location(place.root, f"{place.key}{MARK}"), open_store(place)
    made = {
        "container": dict(dataset.members[-1]),
        "format": plain["format"],
        "options": plain["options"],
        "software": __version__,
    }
    known = store.stat(mark.key)
    if known is not None and json.loads(store.read(mark.key)).get("made") == made:
        return {"verdict": "ok", "why": "", "before": True}
    with scratch_of(plain["scratch"]).folder() as folder:
        done = export(path, plain["format"], folder / dataset.name, **plain["options"])
        number = _put_files(folder / dataset.name, place)
    said = {"made": made, "files": number, "report": done.report.plain()}
    store.write(mark.key, json.dumps(said, indent=1).encode())
    return {"verdict": "ok", "why": ""}
