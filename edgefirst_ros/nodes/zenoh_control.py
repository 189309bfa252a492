# SPDX-License-Identifier: Apache-2.0
"""Commands to a capture on the device's bus, from another process."""

from __future__ import annotations

import json
from typing import Any

from edgefirst_ros.errors import EdgeFirstError, UsageError
from edgefirst_ros.nodes.zenoh_capture import VERBS, own_key
from edgefirst_ros.sources.zenoh_session import session

LONGEST = 60.0
"""Timeout in s: completing a dataset may take long."""


def order(verb: str, endpoint: str, namespace: str) -> list[dict[str, Any]]:
    """Send a command; return the answers of all captures that it reaches.

    Raises UsageError for an unknown command, EdgeFirstError without an answer.
    """
    if verb not in VERBS:
        raise UsageError(f"expected one of {', '.join(VERBS)}, got {verb!r}")
    key = own_key(namespace, verb)
    with session(endpoint) as bus:
        answers = [_answer(reply) for reply in bus.get(key, timeout=LONGEST)]
    if not answers:
        raise EdgeFirstError(f"no capture answers to {key} at {endpoint}: is it running, and in that namespace?")
    return answers


def _answer(reply: Any) -> dict[str, Any]:
    if reply.ok is None:
        return {"success": False, "message": reply.err.payload.to_string()}
    try:
        answer = json.loads(reply.ok.payload.to_bytes())
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "success" not in answer:
        raise EdgeFirstError(f"{reply.ok.key_expr}: the answer is not that of a capture")
    return answer
