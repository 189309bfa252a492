# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros fleet report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from edgefirst_ros.cli.fleet.options import PLACE, SCRATCH, WHERE
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.report import print_reported, reported_as_json
from edgefirst_ros.cli.text import say
from edgefirst_ros.errors import DatasetError, counted


def report(
    place: Annotated[str, PLACE],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="X.html", readable=False, help="The table, with the pages beside it.")
    ],
    where: Annotated[str | None, WHERE] = None,
    scratch: Annotated[str | None, SCRATCH] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace pages that exist.")] = False,
    table_only: Annotated[bool, typer.Option("--table-only", help="Only the table, no pages.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Write a table of the recordings of a fleet, each with its verdict, and a page for each dataset.

    A recording without a dataset is a red row, by its URI and with the cause.

    Exit codes: 0 written, 1 nothing written, 2 wrong usage, 3 some have no dataset, or it could not be read.
    """
    from functools import partial
    from typing import cast

    from edgefirst_ros.dataset.objects.location import Location, ObjectPath
    from edgefirst_ros.fleet.datasets import failed_recordings, finished_datasets, local_copy
    from edgefirst_ros.fleet.layout import Layout
    from edgefirst_ros.report.run import Wanted, report_all

    layout = Layout(Location.of(place))
    failed = failed_recordings(layout, where)
    try:
        datasets = finished_datasets(layout, where)
    except DatasetError:
        if not failed:
            raise
        datasets = []
    wanted = [
        Wanted(
            cast("Path", ObjectPath(str(layout.root / dataset.container))),
            dataset.name,
            fetch=partial(local_copy, layout, dataset, scratch, only_tables=table_only),
        )
        for dataset in datasets
    ]
    wanted += [Wanted(cast("Path", ObjectPath(uri)), uri, fetch=partial(_refuse, uri, why)) for uri, why in failed]
    with progress(quiet=as_json) as tell:
        done = report_all(wanted, out, overwrite=overwrite, table_only=table_only, progress=tell)
    if as_json:
        say(json.dumps(reported_as_json(done), indent=1))
    else:
        print_reported(done)
        say(f"{len(datasets)} of {counted(len(wanted), 'recording')} have a dataset")
    raise typer.Exit(done.exit_code)


def _refuse(uri: str, why: str) -> NoReturn:
    """Raise DatasetError with the cause, without the URI that the row has in any case."""
    raise DatasetError(why.removeprefix(f"{uri}: "))
