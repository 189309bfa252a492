# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros capture`."""

from __future__ import annotations

from typing import Annotated

from edgefirst_ros.cli.ros import ROS_ARGUMENTS, run_node


def capture(arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None) -> None:
    """Record datasets from live topics of ROS 2.

    Parameters go behind --ros-args, such as -p out:=datasets -p rate:=1.0 or --params-file config/maivin.yaml.

    Exit codes: 0 all there, 1 nothing usable written, 2 wrong parameters, 3 finished with loss.
    """
    run_node("capture", arguments)
