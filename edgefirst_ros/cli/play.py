# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros play`."""

from __future__ import annotations

import sys
from typing import Annotated

from edgefirst_ros.cli.ros import ROS_ARGUMENTS, as_ros_arguments, run_node
from edgefirst_ros.errors import UsageError


def play(arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None) -> None:
    """Publish a recording on ROS 2 topics at its own pace.

    play REC.mcap [--rate 2.0] [--loop] [--ros-args ...]

    play --ros-args -p recording:=REC.mcap [-p rate:=2.0]

    Other parameters: loop, clock, start, duration, topics, wait_for_subscribers, wait_timeout.

    Exit codes: 0 played or stopped by a signal, 1 recording cannot be used, 2 wrong parameter.
    """
    run_node("player", as_ros_arguments(sys.argv[2:] if arguments is None else arguments, {}, _recording))


def _recording(given: list[str]) -> dict[str, str | list[str]]:
    if len(given) > 1:
        raise UsageError(f"expected one recording, got {', '.join(given)}")
    return {"recording": given[0]}
