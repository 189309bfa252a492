# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import CHECK_TIME, CONFIG, JOIN, get_options, load_settings, report_progress
from edgefirst_ros.cli.output import Result, explain_paths


def report(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", readable=False, help="Datasets and recordings, or folders that hold them."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", readable=False, help="The report; for several PATHs the table, with the reports beside it."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="N", min=0, max=200, help="Number of samples shown.")] = 12,
    title: Annotated[str | None, typer.Option(help="Title of the report; default: the name.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing reports.")] = False,
    assume_forward: Annotated[
        bool,
        typer.Option("--assume-forward", help="Where transforms are placeholders, assume a camera that looks along x."),
    ] = False,
    check_time: Annotated[bool, CHECK_TIME] = False,
    table_only: Annotated[bool, typer.Option("--table-only", help="Write only the table, no reports.")] = False,
    join: Annotated[bool, JOIN] = False,
    config: Annotated[Path | None, CONFIG] = None,
) -> Result:
    """Write an HTML report that shows whether a drive is good.

    One self-contained HTML file that makes no request. Recordings are shown as a conversion with the same
    settings would see them.

    Exit codes: 0 written, 1 no page written, 2 wrong usage, 3 a dataset of a folder cannot be read.
    """
    from edgefirst_ros.report.run import report as run

    with explain_paths(*paths, recordings=True), report_progress(context) as tell:
        options = get_options(context, "paths", "out", "config")
        return run(paths, out, **options, settings=load_settings(context, config), progress=tell)
