# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros merge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefirst_ros.cli.groups import print_groups, rule_of
from edgefirst_ros.cli.instead import explained
from edgefirst_ros.cli.options import SET_GROUPING, limits_of
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import say
from edgefirst_ros.errors import counted

if TYPE_CHECKING:
    from edgefirst_ros.dataset.merge import Merged


def merge(
    context: typer.Context,
    datasets: Annotated[
        list[Path],
        typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow of each."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", readable=False, help="Folder for the merged dataset.")],
    name: Annotated[str | None, typer.Option(help="Name of the merged dataset; default: the folder's.")] = None,
    rename: Annotated[
        bool, typer.Option("--rename", help="Rename a sequence whose name is taken, instead of refusing it.")
    ] = False,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Give each label one label_index where datasets number them differently.")
    ] = False,
    layout: Annotated[
        str, typer.Option(metavar="zip|directory", help="One ZIP, or the same members as files.")
    ] = "zip",
    assignments: Annotated[list[str] | None, SET_GROUPING] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Merge datasets into one.

    Members keep their bytes, tables are joined, label_index stays. Samples keep their groups, unless --split or --group
    gives new ones.

    Exit codes: 0 all there, 1 nothing written, 2 wrong usage (also sequences of one name without --rename, and labels
    numbered differently without --renumber), 3 something could not be merged (the notes say what).
    """
    from edgefirst_ros.dataset.merge import merge as run
    from edgefirst_ros.dataset.objects.places import on_disk, refuse_buckets

    rule, limits = rule_of(context, assignments), limits_of(context, assignments)
    refuse_buckets("merge", [out], "merge to a folder, or use fleet merge")
    with explained(*datasets), on_disk(datasets) as found, progress(quiet=as_json) as report:
        merged = run(
            found,
            out,
            name=name,
            rename=rename,
            renumber=renumber,
            layout=layout,  # type: ignore[arg-type]  # the writer names those it knows
            overwrite=overwrite,
            group_rule=rule,
            limits=limits,
            progress=report,
        )
    if as_json:
        say(json.dumps(_as_json(merged), indent=1))
    else:
        _print(merged)
    raise typer.Exit(merged.exit_code)


def _as_json(merged: Merged) -> dict[str, Any]:
    return {
        "dataset": str(merged.paths.container),
        "annotations": str(merged.paths.arrow),
        "frames": str(merged.paths.frames),
        "samples": merged.samples,
        "sequences": merged.sequences,
        "groups": {} if merged.groups is None else merged.groups.plain,
        "notes": merged.notes,
        "loss": merged.loss,
        "exit_code": merged.exit_code,
    }


def _print(merged: Merged) -> None:
    say(f"{counted(merged.samples, 'sample')} in {merged.paths.container}")
    for dataset, sequences in merged.sequences.items():
        for old, new in sequences.items():
            say(f"{dataset}: {old}" + (f" is now {new}" if new != old else ""))
    if merged.groups is not None:
        say("")
        print_groups(merged.groups)
    for note in merged.notes:
        say(f"note: {note}")
    if merged.loss:
        say("finished with loss: see the notes above")
