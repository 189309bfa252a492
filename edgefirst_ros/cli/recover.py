# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros recover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import read_limits
from edgefirst_ros.cli.output import Result, explain_paths


def recover(
    context: typer.Context,
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME, or one of its files.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the data that would stay and be lost.")
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the checksums of all members of a ZIP.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished dataset of that name.")] = False,
) -> Result:
    """Complete a dataset whose writing was interrupted.

    For example by a power cut, a kill, or a disk that was full or removed.
    Keeps every whole member; makes the directory of the ZIP and both tables from the journals and the members.

    Exit codes: 0 complete, 1 no sample recovered, 2 wrong usage, 3 data was lost (the report lists it).
    """
    from edgefirst_ros.dataset.objects.places import FETCH, get_one_on_disk, refuse_buckets
    from edgefirst_ros.dataset.recovery.recover import recover as run

    limits = read_limits(context)
    refuse_buckets("recover", [dataset], FETCH)
    with explain_paths(dataset), get_one_on_disk(dataset) as found:
        return run(found, verify=verify, dry_run=dry_run, overwrite=overwrite, limits=limits)
