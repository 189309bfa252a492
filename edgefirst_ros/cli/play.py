# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros play`."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from edgefirst_ros.cli.live import REC_ARGUMENTS, ZENOH, as_ros_arguments, run_node
from edgefirst_ros.errors import UsageError


def play(
    arguments: Annotated[list[str] | None, REC_ARGUMENTS] = None,
    endpoint: Annotated[str | None, ZENOH] = None,
    rate: Annotated[float | None, typer.Option(metavar="R", help="Factor of real time (default: 1).")] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Start over at the end, until stopped.")] = False,
) -> None:
    """Publish a recording or a dataset at its own pace.

    On ROS 2 topics, or with --zenoh on the device's own bus. A dataset is played sample by sample.

    play REC.mcap [--rate 2.0] [--loop] [--ros-args ...]

    play --ros-args -p recording:=REC.mcap [-p rate:=2.0]

    Other parameters, only of ROS 2: clock, start, duration, topics, wait_for_subscribers, wait_timeout.

    play REC.mcap --zenoh tcp/127.0.0.1:7447 publishes on Zenoh as the device's services do, and needs no ROS.

    Exit codes: 0 played or stopped by a signal, 1 recording cannot be used, 2 wrong parameter.
    """
    if endpoint is None:
        plain = [*(["--rate", f"{rate!r}"] if rate is not None else []), *(["--loop=true"] if loop else [])]
        run_node("player", as_ros_arguments([*plain, *(arguments or ())], _recording))
        return
    if len(arguments or ()) != 1:
        given = " ".join(arguments or ()) or "none"
        raise UsageError(f"expected one recording, got {given}; with --zenoh the options are --rate and --loop")
    pace = 1.0 if rate is None else rate
    if not (math.isfinite(pace) and 0.01 <= pace <= 100):
        raise UsageError(f"--rate: expected a number from 0.01 to 100, got {pace:g}")
    from edgefirst_ros.nodes.play import PlayerSettings
    from edgefirst_ros.nodes.zenoh import play as run

    raise typer.Exit(run(PlayerSettings(recording=(arguments or [""])[0], rate=pace, loop=loop), endpoint))


def _recording(given: list[str]) -> dict[str, str | list[str]]:
    if len(given) > 1:
        raise UsageError(f"expected one recording, got {', '.join(given)}")
    return {"recording": given[0]}
