# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet merge`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgefirst_ros.cli.fleet.options import PLACE, SCRATCH, WHERE
from edgefirst_ros.cli.groups import print_groups, rule_of
from edgefirst_ros.cli.options import SET_GROUPING
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import say
from edgefirst_ros.errors import counted


def merge(
    context: typer.Context,
    place: Annotated[str, PLACE],
    out: Annotated[str, typer.Option("-o", "--out", metavar="OUT", help="Folder or s3://BUCKET/PREFIX for it.")],
    name: Annotated[str | None, typer.Option(help="Name of the merged dataset; default: the folder's.")] = None,
    where: Annotated[str | None, WHERE] = None,
    shard_bytes: Annotated[
        int | None,
        typer.Option(metavar="B", min=1, help="Write shards NAME-000.zip, NAME-001.zip, ..., each of at most B bytes."),
    ] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    assignments: Annotated[list[str] | None, SET_GROUPING] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing datasets.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Merge the datasets of a fleet to one, or to shards.

    Runs on this machine. Samples keep their groups, unless --split or --group gives new ones.

    Exit codes: 0 all there, 1 nothing written, 2 wrong usage, 3 something could not be taken over (the notes say what).
    """
    from edgefirst_ros.dataset.objects.location import Location
    from edgefirst_ros.fleet.datasets import finished_datasets, of_one_kind
    from edgefirst_ros.fleet.layout import Layout
    from edgefirst_ros.fleet.merging import merge_fleet

    rule = rule_of(context, assignments or ())
    layout = Layout(Location.of(place))
    datasets = of_one_kind(finished_datasets(layout, where))
    with progress(quiet=as_json) as report:
        made = merge_fleet(
            layout,
            datasets,
            out,
            name=name,
            shard_bytes=shard_bytes,
            scratch=scratch,
            overwrite=overwrite,
            group_rule=rule,
            progress=report,
        )
    code = max(merged.exit_code for _, merged in made)
    if as_json:
        listed = [
            {"container": str(container), "samples": merged.samples, "sequences": len(merged.sequences)}
            for container, merged in made
        ]
        say(json.dumps({"datasets": listed, "exit_code": code}, indent=1))
        raise typer.Exit(code)
    for container, merged in made:
        say(f"{counted(merged.samples, 'sample')} of {counted(len(merged.sequences), 'dataset')} in {container}")
        if merged.groups is not None:
            print_groups(merged.groups)
        for note in merged.notes:
            say(f"note: {note}")
    if code:
        say("finished with loss: see the notes above")
    raise typer.Exit(code)
