# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros migrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.options import get_options, read_limits
from edgefirst_ros.cli.output import Result, explain_paths
from edgefirst_ros.errors import UsageError


def migrate(
    context: typer.Context,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", readable=False, help="A dataset, or annotations: NAME.arrow, NAME.parquet or NAME.json."
        ),
    ],
    target: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT", readable=False, help="File: X.arrow, X.parquet or X.json.")
    ],
    to: Annotated[str, typer.Option("--to", metavar="V", help="Schema: 2025.10, 2026.04 or 2026.10.")] = "2026.04",
    box2d: Annotated[
        str | None, typer.Option("--box2d", metavar="LAYOUT", help="Layout of the boxes: cxcywh, xyxy or ltwh.")
    ] = None,
    pixels: Annotated[bool, typer.Option("--pixels", help="Boxes in pixels.")] = False,
    normalised: Annotated[bool, typer.Option("--normalised", help="Boxes normalised to 0..1 of the picture.")] = False,
    location_order: Annotated[
        str | None, typer.Option(metavar="ORDER", help="Order in IN, if not that of its version: lat-lon or lon-lat.")
    ] = None,
    pose_order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER", help="Order in IN, if not that of its version: yaw-pitch-roll or roll-pitch-yaw."
        ),
    ] = None,
    box3d_axes: Annotated[
        str | None,
        typer.Option(metavar="AXES", help="Axes of box3d in IN: optical, for tables of edgefirst-ros before 1.0."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
) -> Result:
    """Convert annotations to another schema version or file format.

    Exit codes: 0 complete, 1 no file written, 2 wrong usage, 3 values were lost (the report lists them).
    """
    from edgefirst_ros.dataset.migrate import migrate as run
    from edgefirst_ros.dataset.objects.places import refuse_buckets

    if pixels and normalised:
        raise UsageError("--pixels and --normalised cannot be combined")
    refuse_buckets("migrate", [target], "write to a folder, then upload the table")
    with explain_paths(source):
        options = get_options(context, "source", "target", "pixels", "normalised")
        relative = normalised or (False if pixels else None)
        return run(source, target, **options, normalised=relative, limits=read_limits(context))
