# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefirst_ros.cli.fleet.each import JSON, finish, results
from edgefirst_ros.cli.fleet.options import CLUSTER, PLACE, SCRATCH, WHERE, WORKERS


def validate(
    place: Annotated[str, PLACE],
    where: Annotated[str | None, WHERE] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Check every dataset of a fleet against the format and against its state file.

    Exit codes: 0 no errors in any (with --strict no warnings either), 1 otherwise, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.fleet.datasets import finished_datasets
    from edgefirst_ros.fleet.each import validate_one
    from edgefirst_ros.fleet.layout import Layout

    layout = Layout(Location.of(place))
    datasets = finished_datasets(layout, where)
    records = results(validate_one, layout, datasets, cluster, workers, quiet=as_json, strict=strict, scratch=scratch)
    finish(records, as_json=as_json)
