# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros rig`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.output import say, show_progress
from edgefirst_ros.errors import escape_line


def rig(
    recordings: Annotated[
        list[Path],
        typer.Argument(metavar="REC", readable=False, help="Recordings of one vehicle: *.mcap, *.db3, *.bag, folders."),
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="The rig; standard output if unset.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
) -> None:
    """Draft a rig from recordings: which topic each sensor has.

    Comments name the guesses. Check them, then convert with --config FILE.

    Exit codes: 0 drafted, 1 cannot be read or no usable topic, 2 wrong usage.
    """
    from edgefirst_ros.dataset.objects.places import on_disk, refuse_buckets
    from edgefirst_ros.pipeline.rig_draft import draft_rig
    from edgefirst_ros.report.run import refuse, write
    from edgefirst_ros.sources.inputs import list_recordings

    refuse_buckets("rig", [] if out is None else [out], "write the rig to a folder")
    if out is not None:
        refuse(out, overwrite=overwrite)
    with on_disk(recordings) as found, show_progress(quiet=False) as report:
        text = draft_rig(list_recordings(found), report)
    if out is None:
        say(text.rstrip("\n"))
        return
    write(out, text.encode())
    say(f"{out}: check it, then run edgefirst-ros convert {escape_line(str(recordings[0]))} -o OUT --config {out}")
