# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros label`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import DATASET, get_options, read_limits, report_progress
from edgefirst_ros.cli.output import Result, explain_paths


def label(
    context: typer.Context,
    dataset: Annotated[Path, DATASET],
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="LABELS", readable=False, help="COCO JSON, YOLO data.yaml, or the folder that a tool exports."
        ),
    ],
    form: Annotated[str, typer.Option("--from", metavar="coco|yolo", help="Format of LABELS.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the annotations of the labelled samples.")
    ] = False,
    join: Annotated[bool, typer.Option("--join", help="Keep the annotations that exist, and add the labels.")] = False,
    renumber: Annotated[
        bool, typer.Option("--renumber", help="Use the label_index of the dataset where that of LABELS differs.")
    ] = False,
    skip_empty: Annotated[
        bool, typer.Option("--skip-empty", help="Do not change pictures that have no labels in LABELS.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the changes.")] = False,
) -> Result:
    """Import labels of other tools into the annotations of a dataset.

    Only NAME.arrow is rewritten; the table before stays as NAME.arrow.before-label, or with .2, .3 and so on while an
    older one has that name. Pictures are matched by their names. With --replace, columns that LABELS cannot hold
    (masks, object ids, scores, timing) stay in annotations that match: the same label, and boxes that overlap by half.

    Exit codes: 0 all labels imported, 1 dataset unchanged, 2 wrong usage, 3 done, but labels were lost.
    """
    from edgefirst_ros.dataset import Dataset
    from edgefirst_ros.dataset.objects.places import FETCH, get_one_on_disk, refuse_buckets
    from edgefirst_ros.export.labels.labelling import label as run

    limits = read_limits(context)
    refuse_buckets("label", [dataset], FETCH)
    with explain_paths(dataset), get_one_on_disk(dataset) as found, report_progress(context) as tell:
        options = get_options(context, "dataset", "labels", "form")
        return run(Dataset(found, limits=limits), form, labels, **options, progress=tell)
