# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from edgefirst_ros.cli.options import AS_JSON, CONFIG, SET, looking_settings
from edgefirst_ros.cli.output import finish, progress, say, table
from edgefirst_ros.errors import counted


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
    check_time: Annotated[
        bool,
        typer.Option("--check-time", help="Estimate offsets between the sensors of a recording from their content."),
    ] = False,
    table_only: Annotated[bool, typer.Option("--table-only", help="Write only the table, no reports.")] = False,
    join: Annotated[bool, typer.Option("--join", help="All files are parts of one recording, in this order.")] = False,
    config: Annotated[Path | None, CONFIG] = None,
    assignments: Annotated[list[str] | None, SET] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Write an HTML report that shows whether a drive is good.

    One self-contained HTML file that makes no request. Recordings are shown as a conversion with the same
    settings would see them.

    Exit codes: 0 written, 1 no page written, 2 wrong usage, 3 a dataset of a folder cannot be read.
    """
    from edgefirst_ros.dataset.objects.places import on_disk, refuse_buckets
    from edgefirst_ros.report.run import report as run

    refuse_buckets("report", [] if out is None else [out], "write the report to a folder")
    if out is None:
        refuse_buckets("report", paths, "-o X.html says where the report is written")
    with on_disk(paths) as found, progress(quiet=as_json) as tell:
        done = run(
            found,
            out,
            samples=samples,
            title=title,
            overwrite=overwrite,
            assume_forward=assume_forward,
            check_time=check_time,
            table_only=table_only,
            join=join,
            settings=looking_settings(context, config, assignments),
            progress=tell,
        )
    finish(done, print_reported, as_json=as_json)


def print_reported(done: Any) -> None:
    """Print written files, and faults by dataset."""
    if done.table is None:
        (facts,) = done.facts
        say(f"{done.pages[0]}: {facts['verdict']['level']}, {counted(facts['samples'], 'sample')}")
        bad = [one for one in facts["verdict"]["checks"] if one["level"] != "green"]
        if bad:
            say("")
            rows = [(one["level"], one["check"], one["where"], one["found"]) for one in bad]
            table(("verdict", "what", "where", "found"), rows)
        return
    say(f"{done.table}: {counted(len(done.facts), 'row')}, {counted(len(done.pages), 'page')} beside it")
    for one in done.facts:
        if "error" in one:
            say(f"{one['path']}: {one['error']}")
