# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros label`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgefirst_ros.cli.options import AS_JSON, DATASET, SET_LIMITS, limits_of
from edgefirst_ros.cli.output import explained, finish, progress, say, say_notes
from edgefirst_ros.errors import counted, listed

if TYPE_CHECKING:
    from edgefirst_ros.export.labels.labelling import Labelled

SHOWN = 5


def label(
    context: typer.Context,
    dataset: Annotated[Path, DATASET],
    labels: Annotated[
        Path, typer.Argument(metavar="LABELS", readable=False, help="COCO JSON, YOLO data.yaml, or their folder.")
    ],
    form: Annotated[str, typer.Option("--from", metavar="coco|yolo", help="Format of LABELS.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the annotations of the labelled samples.")
    ] = False,
    join: Annotated[bool, typer.Option("--join", help="Keep the annotations that exist, and add the labels.")] = False,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Use the label_index of rows that stay, where it differs.")
    ] = False,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Leave pictures that come without a label as they were.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
    assignments: Annotated[list[str] | None, SET_LIMITS] = None,
    as_json: Annotated[bool, AS_JSON] = False,
) -> None:
    """Import labels of other tools into the annotations of a dataset.

    Only NAME.arrow is rewritten; the table before stays as NAME.arrow.before-label. Pictures are matched by their
    names. With --replace, columns that LABELS cannot hold (masks, object ids, scores, timing) stay in annotations that
    match: the same label, and boxes that overlap by half.

    Exit codes: 0 all labels imported, 1 dataset unchanged, 2 wrong usage, 3 done, but labels were lost.
    """
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.objects.places import FETCH, one_on_disk, refuse_buckets
    from edgefirst_ros.export.labels.labelling import label as run

    limits = limits_of(context, assignments)
    refuse_buckets("label", [dataset, labels], FETCH)
    with explained(dataset), one_on_disk(dataset) as found, progress(quiet=as_json) as tell:
        done = run(
            Dataset(found, limits=limits),
            form,
            labels,
            replace=replace,
            join=join,
            renumber=renumber,
            skip_empty=skip_empty,
            dry_run=dry_run,
            progress=tell,
        )
    finish(done, _print, as_json=as_json)


def _print(done: Labelled) -> None:
    say("dry run: no file changes" if done.dry_run else f"{done.arrow}: written")
    say(f"imported {counted(done.annotations, 'annotation')} for {counted(done.pictures, 'sample')}")
    say(f"{done.replaced} replaced, {done.matched} of them matched, {done.kept} unchanged")
    if done.before is not None:
        say(f"the table before: {done.before}")
    if done.empty:
        say(f"without labels: {counted(done.empty, 'picture')}" + (", unchanged" if done.skip_empty else ""))
    if done.unmatched:
        names = listed((repr(name[:80]) for name in done.unmatched), SHOWN)
        say(f"no sample: {counted(len(done.unmatched), 'picture')} of the labels: {names}")
    for reason, number in done.lost.items():
        say(f"lost: {reason}: {number}")
    for key, number in done.keys.items():
        say(f"lost: key {key}, which has no place: {number}")
    say_notes(done.notes)
