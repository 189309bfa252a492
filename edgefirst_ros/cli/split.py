# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros split`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.groups import print_groups, rule_of
from edgefirst_ros.cli.instead import explained
from edgefirst_ros.cli.options import SET_GROUPING, limits_of
from edgefirst_ros.cli.text import say
from edgefirst_ros.errors import UsageError, counted


def split(
    context: typer.Context,
    datasets: Annotated[
        list[Path],
        typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow of each."),
    ],
    assignments: Annotated[list[str] | None, SET_GROUPING] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Assign the samples of datasets to new groups.

    Only NAME.arrow of each is rewritten. Several datasets are split as one set of sequences. With --group only, other
    samples keep their groups; with --split, samples that get no group have none afterwards.

    Exit codes: 0 done, 1 nothing changed, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.places import FETCH, on_disk, refuse_buckets
    from edgefirst_ros.dataset.regroup import split as run

    rule = rule_of(context, assignments)
    if rule is None:
        raise UsageError("expected --split or --group, such as --split train=0.8,val=0.2")
    refuse_buckets("split", datasets, FETCH)
    with explained(*datasets), on_disk(datasets) as found:
        done = run(found, rule, limits=limits_of(context, assignments))
    if as_json:
        tables = [str(path) for path in done.tables]
        facts = {"tables": tables, "groups": done.counts.plain, "without_group": done.counts.without}
        say(json.dumps({**facts, "notes": done.counts.notes}, indent=1))
        return
    say(f"groups written to {counted(len(done.tables), 'table')}: {', '.join(map(str, done.tables))}")
    say("")
    print_groups(done.counts)
    for note in done.counts.notes:
        say(f"note: {note}")
