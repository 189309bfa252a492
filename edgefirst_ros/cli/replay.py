# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros replay`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgefirst_ros.cli.live import REC_ARGUMENTS, as_parameters, run_node, split_ros_arguments
from edgefirst_ros.cli.options import JOIN, get_texts


def replay(
    context: typer.Context,
    arguments: Annotated[list[str] | None, REC_ARGUMENTS] = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Folder for the dataset; overrides parameter files.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the dataset; default: that of the recording.")] = None,
    join: Annotated[bool, JOIN] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")] = False,
) -> None:
    """Convert recordings as a ROS 2 node.

    replay REC.mcap -o OUT [--rate 5.0] [--ros-args ...]

    replay --ros-args -p recordings:="['REC.mcap']" -p out:=OUT

    Options are parameters of the node, and override those of files. Progress is published on /diagnostics.

    Exit codes: 0 complete, 1 no dataset written, 2 wrong parameter, 3 finished with loss,
    128 and more: stopped by a signal.
    """
    from edgefirst_ros.config import ReplaySettings, Settings

    recordings, ros = split_ros_arguments("replay", arguments or (), "recordings", None)
    given = {"recordings": json.dumps(recordings, ensure_ascii=False) if recordings else None, "out": out, "name": name}
    given |= {key: "true" if wanted else None for key, wanted in (("join", join), ("overwrite", overwrite))}
    texts = get_texts(context) | {key: text for key, text in given.items() if text}
    run_node("replay", [*ros, *as_parameters(texts, Settings, ReplaySettings)])  # of parameters the last one counts
