# SPDX-License-Identifier: Apache-2.0
"""What the verbs that are ROS 2 nodes share: `edgefirst-ros VERB --ros-args ...`, or a message where ROS 2 is not."""

from __future__ import annotations

import importlib
import sys

import typer

from edgefirst_ros.errors import EdgeFirstError

NODE = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Context settings of such a verb: options it does not know are arguments of ROS."""
ROS_ARGUMENTS = typer.Argument(
    metavar="--ros-args ...", help="ROS arguments: `-p NAME:=VALUE`, `--params-file FILE`, `-r FROM:=TO`."
)


def run_node(name: str, arguments: list[str] | None = None) -> None:
    """Run `edgefirst_ros.nodes.NAME` until it ends; its exit code becomes that of the command.

    `arguments` are those behind the verb, all of them if not given.

    Raises EdgeFirstError that says what to install where ROS 2 is missing.
    """
    try:
        importlib.import_module("rclpy")
        node = importlib.import_module(f"edgefirst_ros.nodes.{name}")
    except ImportError as error:
        version = ".".join(map(str, sys.version_info[:2]))
        raise EdgeFirstError(
            f"this command is a ROS 2 node, and Python {version} at {sys.executable} has no ROS 2: {error}.\n"
            "Install ROS 2 (Ubuntu 24.04: apt install ros-jazzy-ros-base ros-jazzy-diagnostic-msgs; "
            "ros-kilted-... for Kilted)\n"
            "and source it: source /opt/ros/jazzy/setup.bash. The other commands need no ROS."
        ) from None
    raise typer.Exit(node.main(sys.argv[2:] if arguments is None else arguments))
