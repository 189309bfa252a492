# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros control`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated

import typer

from edgefirst_ros.cli.live import ADDRESS, NAMESPACE, ROS_ARGUMENTS, ZENOH, load_node
from edgefirst_ros.cli.output import say
from edgefirst_ros.errors import UsageError, escape_line


def control(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="start, stop, split, pause, resume, status or watch.")],
    arguments: Annotated[list[str] | None, ROS_ARGUMENTS] = None,
    endpoint: Annotated[str | None, ZENOH] = None,
    namespace: Annotated[str, NAMESPACE] = "",
) -> None:
    """Control a capture, over ROS 2, or with --zenoh over Zenoh.

    Start, stop, split, pause or resume it, or get its status. The answer is JSON; watch prints a line a second.

    Exit codes: 0 done, 1 no answer within 5 s or it could not be done, 2 wrong usage. For status: 0 samples are being
    written, or the capture is idle or paused by order; 3 waiting for a camera; 4 idle after a failure or a crash; 5 no
    sample for 5 s.
    """
    from edgefirst_ros.nodes.service import VERBS, describe_status, give_order, watch

    if verb not in (*VERBS, "watch"):
        raise UsageError(f"expected one of {', '.join(VERBS)}, watch, got {verb!r}")
    given = arguments or []
    if given and (endpoint is not None or given[0] != "--ros-args"):
        more = "ROS arguments follow --ros-args, without --zenoh" if endpoint is None else ADDRESS
        raise UsageError(f"expected one command, got {given[0]!r}; {more}")
    if endpoint is None:
        place = ["--ros-args", "-r", f"__ns:=/{namespace.strip('/')}"] if namespace else []
        asking = load_node("capture").open_client([*given, *place])
    else:
        from edgefirst_ros.nodes import zenoh

        asking = zenoh.open_client(endpoint, namespace)
    at = "over ROS 2" if endpoint is None else "on this machine" if endpoint == "peer" else f"at {endpoint}"
    bus = f"{at}, namespace {namespace or '/'}"
    with asking as ask:
        if verb == "watch":
            with suppress(KeyboardInterrupt):
                for found in watch(ask):
                    for answer in found or [{"message": f"no capture answers {bus}"}]:
                        say(escape_line(describe_status(answer)))
            return
        answers = give_order(verb, ask, bus)
    for answer in answers:
        say(json.dumps(answer))
    raise typer.Exit(max(answer.get("exit_code", 0) if answer["success"] else 1 for answer in answers))
