# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.export import show
from edgefirst_ros.cli.options import SET_LIMITS, limits_of
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.export import SYSTEMS

KNOWN = "|".join(system.name for system in SYSTEMS.values() if system.restore is not None)


def restore(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", readable=False, help="Folder that `export` or the other system wrote.")
    ],
    system: Annotated[str, typer.Option("--from", metavar=KNOWN, help="Format of SOURCE.")],
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="New folder for the dataset.")],
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Make a dataset from the format of another system.

    From l5kit only annotations are imported. The report says where everything went.

    Exit codes: 0 all there but for what the report lists, 1 nothing written, 2 wrong usage.
    """
    from edgefirst_ros.export import restore as run

    limits = limits_of(context, assignments)
    with progress(quiet=as_json) as tell:
        done = run(source, system, out, limits=limits, progress=tell)
    show(done, as_json=as_json)
