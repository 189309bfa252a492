# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros play`."""

from __future__ import annotations

from typing import Annotated

from edgefirst_ros.cli.ros import ROS_ARGUMENTS, run_node


def play(arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None) -> None:
    """Publish a recording on ROS 2 topics at its own pace.

    play --ros-args -p recording:=REC.mcap [-p rate:=2.0]

    Other parameters: loop, clock, start, duration, topics, wait_for_subscribers, wait_timeout.

    Exit codes: 0 played or stopped by a signal, 1 recording cannot be used, 2 wrong parameter.
    """
    run_node("player", arguments)
