# SPDX-License-Identifier: Apache-2.0
"""Common parts of verbs that treat each dataset of a fleet by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import say, table
from edgefirst_ros.errors import UsageError, counted

if TYPE_CHECKING:
    from edgefirst_ros.fleet.datasets import FleetDataset
    from edgefirst_ros.fleet.layout import Layout

JSON = typer.Option("--json", help="Print the outcome as JSON.")


def results(
    function: Callable[[dict[str, Any]], dict[str, Any]],
    layout: Layout,
    datasets: Sequence[FleetDataset],
    cluster: str | None,
    workers: int | None,
    *,
    quiet: bool,
    **options: Any,
) -> list[Mapping[str, Any]]:
    """Run `function` on each dataset; return its record of each, sorted by name."""
    from edgefirst_ros.fleet.dask_engine import dask_engine
    from edgefirst_ros.fleet.each import for_each

    if cluster is not None and workers is not None:
        raise UsageError("--cluster and --workers exclude each other: the cluster has its own workers")
    with dask_engine(cluster, workers) as engine, progress(quiet=quiet) as report:
        found = for_each(engine, function, layout, datasets, lambda done, of: report("datasets", done, of), **options)
        return sorted(found, key=lambda record: str(record["name"]))


def finish(records: Sequence[Mapping[str, Any]], *, as_json: bool, partly: int = 1) -> None:
    """Print the result of each dataset, and exit: 0 if all are ok, `partly` if some are, else 1."""
    bad = [record for record in records if record["verdict"] != "ok"]
    code = 0 if not bad else partly if len(bad) < len(records) else 1
    if as_json:
        say(json.dumps({"datasets": list(records), "exit_code": code}, indent=1))
        raise typer.Exit(code)
    if bad:
        table(("dataset", "verdict", "why"), [(r["name"], r["verdict"], str(r["why"]).split("\n")[0]) for r in bad])
        say("")
    say(f"{counted(len(records), 'dataset')}: {len(records) - len(bad)} ok, {len(bad)} not")
    raise typer.Exit(code)
