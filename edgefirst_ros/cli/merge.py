# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros merge` and `edgefirst-ros split`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import DATASET, get_options, read_group_rule, read_limits, report_progress
from edgefirst_ros.cli.output import Result, explain_paths
from edgefirst_ros.errors import UsageError


def merge(
    context: typer.Context,
    datasets: Annotated[list[Path], DATASET],
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="Folder for the merged dataset.")],
    name: Annotated[str | None, typer.Option(help="Name of the merged dataset; default: the folder's.")] = None,
    rename: Annotated[bool, typer.Option("--rename", help="Rename a sequence whose name exists already.")] = False,
    renumber: Annotated[
        bool,
        typer.Option("--renumber", help="Use one label_index for each label where datasets number them differently."),
    ] = False,
    layout: Annotated[
        str, typer.Option(metavar="zip|directory", help="One ZIP, or the same members as files.")
    ] = "zip",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
) -> Result:
    """Merge datasets into one.

    Members keep their bytes, tables are joined, label_index stays. Samples keep their groups, unless --split or --group
    assigns new ones.

    Exit codes: 0 complete, 1 no dataset written, 2 wrong usage (also equal sequence names without --rename, and labels
    with different numbers without --renumber), 3 finished with loss (the notes list it).
    """
    from edgefirst_ros.dataset.merge import merge as run
    from edgefirst_ros.dataset.objects.places import on_disk, refuse_buckets

    rule, limits = read_group_rule(context), read_limits(context)
    refuse_buckets("merge", [out], "merge to a folder, or use fleet merge")
    with explain_paths(*datasets), on_disk(datasets) as found, report_progress(context) as report:
        options = get_options(context, "datasets", "out")
        done = run(found, out, **options, group_rule=rule, limits=limits, progress=report)
    sequences = {found.restore(dataset): names for dataset, names in done.sequences.items()}
    return replace(done, sequences=sequences, notes=list(map(found.restore, done.notes)))


def split(context: typer.Context, datasets: Annotated[list[Path], DATASET]) -> Result:
    """Assign the samples of datasets to new groups.

    Only NAME.arrow of each is rewritten. Several datasets are split as one set of sequences. With --group only, other
    samples keep their groups; with --split, samples that get no group lose theirs.

    Exit codes: 0 done, 1 no dataset changed, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.places import FETCH, on_disk, refuse_buckets
    from edgefirst_ros.dataset.regroup import split as run

    rule = read_group_rule(context)
    if rule is None:
        raise UsageError("expected --split or --group, such as --split train=0.8,val=0.2")
    refuse_buckets("split", datasets, FETCH)
    with explain_paths(*datasets), on_disk(datasets) as found:
        return run(found, rule, limits=read_limits(context))
