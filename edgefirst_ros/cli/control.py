# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros control`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated

import typer

from edgefirst_ros.cli.live import NAMESPACE, ZENOH
from edgefirst_ros.cli.output import one_line, say


def control(
    verb: Annotated[str, typer.Argument(metavar="start|stop|split|status|watch", help="Command for the capture.")],
    endpoint: Annotated[str, ZENOH] = "peer",
    namespace: Annotated[str, NAMESPACE] = "",
) -> None:
    """Control a capture on the device's own bus.

    Starts, stops or splits it, or asks for its status; prints the answer as JSON. watch prints a line a second.

    Exit codes: 0 done, 1 no answer within 5 s or it could not be done, 2 wrong usage. Of status: 0 samples are being
    written, or the capture is idle by order; 3 waiting for a camera; 4 idle after a failure; 5 no sample for 5 s.
    """
    from edgefirst_ros.nodes import zenoh
    from edgefirst_ros.nodes.service import describe_status

    if verb == "watch":
        with suppress(KeyboardInterrupt):
            for answers in zenoh.watch(endpoint, namespace):
                for answer in answers or [{"message": "no capture answers"}]:
                    say(one_line(describe_status(answer)))
        return
    answers = zenoh.order(verb, endpoint, namespace)
    for answer in answers:
        say(json.dumps(answer))
    raise typer.Exit(max(answer.get("exit_code", 0) if answer["success"] else 1 for answer in answers))
