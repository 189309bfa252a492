# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros capture`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from edgefirst_ros.cli.live import NAMESPACE, ROS_ARGUMENTS, ZENOH, run_node
from edgefirst_ros.errors import UsageError


def capture(
    arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None,
    out: Annotated[str, typer.Option("-o", "--out", help="Folder for the datasets; overrides parameter files.")] = "",
    endpoint: Annotated[str | None, ZENOH] = None,
    config: Annotated[
        Path | None, typer.Option(readable=False, help="YAML file with settings, with --zenoh; --set overrides it.")
    ] = None,
    namespace: Annotated[str | None, NAMESPACE] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Any setting, with --zenoh.")
    ] = None,
) -> None:
    """Record datasets from live topics.

    From ROS 2, or with --zenoh from the device's own bus.

    ROS 2: parameters follow --ros-args, such as -p rate:=1.0 or --params-file config/maivin.yaml.

    The device's bus, Zenoh, needs no ROS: capture --zenoh --config config/maivin.yaml -o datasets

    Exit codes: 0 all there, 1 nothing usable written, 2 wrong parameters, 3 finished with loss.
    """
    if endpoint is None:
        given = {"--config": config, "--namespace": namespace, "--set": assignments}
        if wrong := [name for name, value in given.items() if value]:
            raise UsageError(f"{wrong[0]} goes with --zenoh; a ROS 2 node takes parameters after --ros-args")
        given_out = ["--ros-args", "-p", f"out:={json.dumps(out, ensure_ascii=False)}"] if out else []
        run_node("capture", [*(arguments or ()), *given_out])  # of parameters the last one counts
    if arguments:
        raise UsageError(f"expected options, got {arguments[0]!r}: with --zenoh settings go into --config and --set")
    texts: dict[str, str] = {}
    for assignment in assignments or ():
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"--set: expected NAME=VALUE, got {assignment!r}")
        texts[name] = text
    texts |= {"out": out} if out else {}
    from edgefirst_ros.nodes.zenoh import capture as run
    from edgefirst_ros.pipeline.capture_session import load_capture

    settings, live = load_capture(config, texts)
    raise typer.Exit(run(endpoint, settings, live, namespace or ""))
