# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros label`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.instead import explained
from edgefirst_ros.cli.options import SET_LIMITS, limits_of
from edgefirst_ros.cli.progress import progress
from edgefirst_ros.cli.text import say
from edgefirst_ros.errors import counted

SHOWN = 5
"""Names of pictures that are listed."""


def label(
    context: typer.Context,
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", readable=False, help="OUT/NAME.zip, OUT/NAME or OUT/NAME.arrow.")
    ],
    labels: Annotated[
        Path, typer.Argument(metavar="LABELS", readable=False, help="COCO JSON, YOLO data.yaml, or their folder.")
    ],
    form: Annotated[str, typer.Option("--from", metavar="coco|yolo", help="Format of LABELS.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the annotations of the labelled samples.")
    ] = False,
    join: Annotated[bool, typer.Option("--join", help="Keep the annotations that exist, and add the labels.")] = False,
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Import labels of other tools into the annotations of a dataset.

    Only NAME.arrow is rewritten; pictures are matched by their names.

    Exit codes: 0 all there, 1 nothing changed, 2 wrong usage, 3 done, but labels were lost.
    """
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.export.labels.labelling import label as run

    limits = limits_of(context, assignments)
    with explained(dataset), progress(quiet=as_json) as tell:
        done = run(Dataset(dataset, limits=limits), form, labels, replace=replace, join=join, progress=tell)
    if as_json:
        facts = {"arrow": str(done.arrow), "exit_code": done.exit_code, "pictures": done.pictures}
        facts |= {"annotations": done.annotations, "replaced": done.replaced, "kept": done.kept}
        say(json.dumps({**facts, "unmatched": done.unmatched, "lost": done.lost, "notes": done.notes}, indent=1))
        raise typer.Exit(done.exit_code)
    say(f"{done.arrow}: {counted(done.annotations, 'annotation')} brought in, {counted(done.pictures, 'sample')} named")
    say(f"{done.replaced} replaced, {done.kept} kept")
    if done.unmatched:
        more = f" and {len(done.unmatched) - SHOWN} more" if len(done.unmatched) > SHOWN else ""
        names = ", ".join(repr(name[:80]) for name in done.unmatched[:SHOWN])
        say(f"no sample: {counted(len(done.unmatched), 'picture')} of the labels: {names}{more}")
    for reason, number in done.lost.items():
        say(f"lost: {reason}: {number}")
    for note in done.notes:
        say(f"note: {note}")
    raise typer.Exit(done.exit_code)
