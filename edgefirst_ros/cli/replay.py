# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros replay`."""

from __future__ import annotations

import sys
from typing import Annotated

from edgefirst_ros.cli.ros import ROS_ARGUMENTS, as_ros_arguments, run_node


def replay(arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None) -> None:
    """Convert recordings as a ROS 2 node.

    replay REC.mcap -o OUT [--rate 5.0] [--ros-args ...]

    replay --ros-args -p recordings:="['REC.mcap']" -p out:=OUT

    Other parameters: name, join, overwrite, and every setting of `convert`. Progress goes to /diagnostics.

    Exit codes: 0 all there, 1 nothing usable written, 2 wrong parameter, 3 finished with loss,
    128 and more: stopped by a signal.
    """
    from edgefirst_ros.config import Settings
    from edgefirst_ros.config_file import setting_fields

    given = sys.argv[2:] if arguments is None else arguments
    texts = {"-o": "out", "--out": "out", "--name": "name"}
    lists = [name for name, field in setting_fields(Settings).items() if field.type is list]
    run_node("replay", as_ros_arguments(given, texts, lambda recordings: {"recordings": recordings}, lists))
