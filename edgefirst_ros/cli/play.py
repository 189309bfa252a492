# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros play`."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefirst_ros.cli.live import REC_ARGUMENTS, ZENOH, as_parameters, run_node, split_ros_arguments
from edgefirst_ros.cli.options import get_texts
from edgefirst_ros.errors import UsageError


def play(
    context: typer.Context,
    arguments: Annotated[list[str] | None, REC_ARGUMENTS] = None,
    endpoint: Annotated[str | None, ZENOH] = None,
) -> None:
    """Publish a recording or a dataset at its own pace.

    On ROS 2 topics, or with --zenoh on the device's own bus. A dataset is played sample by sample.

    play REC.mcap [--rate 2.0] [--loop] [--ros-args ...]

    play --ros-args -p recording:=REC.mcap [-p rate:=2.0]

    play REC.mcap --zenoh tcp/127.0.0.1:7447 publishes on Zenoh as the device's services do, and needs no ROS.

    Exit codes: 0 played or stopped by a signal, 1 recording cannot be used, 2 wrong parameter.
    """
    from edgefirst_ros.config import PlayerSettings
    from edgefirst_ros.config.load import load_model

    given, ros = split_ros_arguments("play", arguments or (), "one recording", 1)
    texts = get_texts(context) | ({"recording": given[0]} if given else {})
    if endpoint is None:
        run_node("player", [*ros, *as_parameters(texts, PlayerSettings)])  # of parameters the last one counts
        return
    if ros:
        raise UsageError("--ros-args and --zenoh cannot be combined")
    settings = load_model(PlayerSettings, texts)
    if settings.clock:
        raise UsageError("--clock and --zenoh cannot be combined: only ROS 2 has /clock")
    from edgefirst_ros.nodes.zenoh import play as run

    raise typer.Exit(run(settings, endpoint))
