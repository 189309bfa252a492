# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros control`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

import typer

from edgefirst_ros.cli.live import NAMESPACE, ZENOH
from edgefirst_ros.cli.output import one_line, say, size_of
from edgefirst_ros.errors import counted


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

    if verb == "watch":
        with suppress(KeyboardInterrupt):
            for answers in zenoh.watch(endpoint, namespace):
                for answer in answers or [{"message": "no capture answers"}]:
                    say(one_line(_line(answer)))
        return
    answers = zenoh.order(verb, endpoint, namespace)
    for answer in answers:
        say(json.dumps(answer))
    raise typer.Exit(max(answer.get("exit_code", 0) if answer["success"] else 1 for answer in answers))


def _line(answer: dict[str, Any]) -> str:
    """Return a status in a line: state, samples, size, minutes of disk, age of the newest sample."""
    parts = [str(answer["message"])]
    if "samples" in answer:
        parts += [counted(answer["samples"], "sample"), size_of(answer.get("bytes", 0))]
    if answer.get("free_minutes") is not None:
        parts.append(f"{answer['free_minutes']:.0f} minutes of disk left")
    if answer.get("newest_sample_age") is not None:
        parts.append(f"newest sample {answer['newest_sample_age']:.1f} s ago")
    return ", ".join(parts)
