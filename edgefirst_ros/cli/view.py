# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros view`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import CONFIG, JOIN, get_options, load_settings
from edgefirst_ros.cli.output import explain_paths, say, show_progress
from edgefirst_ros.errors import escape_line, pluralize


def view(
    context: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", readable=False, help="A dataset or a recording; several with --join."),
    ],
    frame: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Show only the samples with this frame number.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="X.rrd", readable=False, help="Write a viewer file; no window opens.")
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Serve the viewer to a browser on this machine.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="SENSORS", help="Show only these: camera,lidar.points,radar.targets,...")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --save.")] = False,
    join: Annotated[bool, JOIN] = False,
    config: Annotated[Path | None, CONFIG] = None,
) -> None:
    """Show a dataset or a recording in the rerun viewer.

    Exit codes: 0 shown or saved, 1 cannot be shown, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.places import on_disk
    from edgefirst_ros.report.view.run import view as run

    names = [name.strip() for name in only.split(",") if name.strip()] if only is not None else []
    with explain_paths(*paths, recordings=True), on_disk(paths) as found, show_progress(quiet=False) as tell:
        options = get_options(context, "paths", "save", "only", "config")
        settings = load_settings(context, config)
        done = run(found, save=save, only=names, **options, settings=settings, progress=tell, say=say)
    for note in done.notes:
        print(escape_line(f"note: {note}"), file=sys.stderr)
    if done.saved is not None:
        say(f"{done.saved}: {pluralize(done.samples, 'sample')}, {', '.join(done.entities)}")
