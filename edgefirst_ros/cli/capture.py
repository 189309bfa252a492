# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros capture`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.live import (
    ADDRESS,
    NAMESPACE,
    ROS_ARGUMENTS,
    ZENOH,
    as_parameters,
    run_node,
    split_ros_arguments,
)
from edgefirst_ros.cli.options import get_texts
from edgefirst_ros.errors import UsageError


def capture(
    context: typer.Context,
    arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None,
    out: Annotated[str, typer.Option("-o", "--out", help="Folder for the datasets; overrides parameter files.")] = "",
    endpoint: Annotated[str | None, ZENOH] = None,
    config: Annotated[
        Path | None, typer.Option(readable=False, help="YAML file with settings, with --zenoh; options override it.")
    ] = None,
    namespace: Annotated[str | None, NAMESPACE] = None,
) -> None:
    """Record datasets from live topics.

    From ROS 2, or with --zenoh from the device's own bus.

    ROS 2: parameters follow --ros-args, such as --params-file config/maivin.yaml; options override them.

    The device's bus, Zenoh, needs no ROS: capture --zenoh --config config/maivin.yaml -o datasets

    Exit codes: 0 complete, 1 no dataset written, 2 wrong parameters, 3 finished with loss.
    """
    from edgefirst_ros.config import LiveSettings, Settings

    texts = get_texts(context) | ({"out": out} if out else {})
    if endpoint is None:
        if wrong := [name for name, value in (("--config", config), ("--namespace", namespace)) if value]:
            raise UsageError(f"{wrong[0]} needs --zenoh; parameters of a ROS 2 node follow --ros-args")
        _, ros = split_ros_arguments("capture", arguments or (), "options", 0)
        parameters = as_parameters(texts, Settings, LiveSettings)
        run_node("capture", [*ros, *parameters])  # of parameters the last one counts
    if arguments:
        raise UsageError(f"expected options, got {arguments[0]!r}: with --zenoh use --config and --set; {ADDRESS}")
    from edgefirst_ros.nodes.zenoh import capture as run
    from edgefirst_ros.pipeline.capture_session import load_capture

    settings, live = load_capture(config, texts)
    raise typer.Exit(run(endpoint, settings, live, namespace or ""))
