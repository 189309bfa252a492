# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros control`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from edgefirst_ros.cli.text import say
from edgefirst_ros.cli.zenoh import NAMESPACE, ZENOH


def control(
    verb: Annotated[str, typer.Argument(metavar="start|stop|split|status", help="Command for the capture.")],
    endpoint: Annotated[str, ZENOH] = "peer",
    namespace: Annotated[str, NAMESPACE] = "",
) -> None:
    """Control a capture on the device's own bus.

    Starts, stops or splits it, or asks for its status; prints the answer as JSON.

    Exit codes: 0 done, 1 no answer or it could not be done, 2 wrong usage.
    """
    from edgefirst_ros.nodes.zenoh_control import order

    answers = order(verb, endpoint, namespace)
    for answer in answers:
        say(json.dumps(answer))
    raise typer.Exit(0 if all(answer["success"] for answer in answers) else 1)
