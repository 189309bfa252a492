# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet export`."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefirst_ros.cli.fleet.each import JSON, finish, results
from edgefirst_ros.cli.fleet.options import CLUSTER, PLACE, SCRATCH, WHERE, WORKERS
from edgefirst_ros.errors import UsageError
from edgefirst_ros.export import SYSTEMS


def export(
    place: Annotated[str, PLACE],
    to: Annotated[str, typer.Option("--to", metavar="|".join(SYSTEMS), help="Format to write.")],
    out: Annotated[str, typer.Option("-o", "--out", metavar="OUT", help="Output folder or s3://BUCKET/PREFIX.")],
    where: Annotated[str | None, WHERE] = None,
    cluster: Annotated[str | None, CLUSTER] = None,
    workers: Annotated[int | None, WORKERS] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    single_group: Annotated[
        bool | None, typer.Option("--single-group", help="For yolo: also drives without pictures in train or val.")
    ] = None,
    as_json: Annotated[bool, JSON] = False,
) -> None:
    """Write every dataset of a fleet in the format of another system, as OUT/NAME/...

    OUT/NAME.export.json is written last: it says where everything went, and that the export is whole; those that have
    it are left as they are.

    Exit codes: 0 all there, 1 none, 2 wrong usage, 3 some could not be exported.
    """
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.fleet.datasets import finished_datasets, of_one_kind
    from edgefirst_ros.fleet.each import export_one
    from edgefirst_ros.fleet.layout import Layout

    if to not in SYSTEMS:
        raise UsageError(f"unknown format {to!r}; known: {', '.join(SYSTEMS)}")
    layout = Layout(Location.of(place))
    datasets = of_one_kind(finished_datasets(layout, where))
    target = str(Location.of(out))
    records = results(
        export_one,
        layout,
        datasets,
        cluster,
        workers,
        quiet=as_json,
        format=to,
        out=target,
        options={} if single_group is None else {"single_group": single_group},
        scratch=scratch,
    )
    finish(records, as_json=as_json, partly=3)
