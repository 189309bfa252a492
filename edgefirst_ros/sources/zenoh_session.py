# SPDX-License-Identifier: Apache-2.0
"""Sessions with the device's bus: a router or peer at an address, or the peers on this machine."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from edgefirst_ros.errors import EdgeFirstError, UsageError, describe_extra

PEER = "peer"
"""Instead of an address: peers that find each other by multicast on the loopback interface."""
PROTOCOLS = frozenset({"tcp", "udp", "tls", "quic", "ws", "unixsock-stream", "unixpipe", "vsock", "serial"})
PATIENCE = 10_000
"""ms for which a router that does not answer is waited for."""
DROPPED_AFTER = 100_000
"""us for which a message waits that may be dropped; Zenoh's 1 ms is less than a busy machine lets a process wait."""


def load_library() -> Any:
    """Return the module zenoh; raises EdgeFirstError with the line that installs it where it is missing."""
    try:
        import zenoh
    except ImportError as error:
        raise EdgeFirstError(describe_extra("--zenoh", "zenoh", error)) from None
    return zenoh


def is_endpoint(text: str) -> bool:
    """True if a text names where to connect: `peer`, or PROTOCOL/ADDRESS."""
    return text == PEER or text.partition("/")[0] in PROTOCOLS


@contextlib.contextmanager
def open_session(endpoint: str) -> Iterator[Any]:
    """Open a session and close it in any case: as a client of the router or peer at an address, or as a peer.

    Raises UsageError for a wrong address, EdgeFirstError without an answer or if the library is missing.
    """
    zenoh = load_library()
    if not is_endpoint(endpoint):
        raise UsageError(f"--zenoh: expected peer or an address such as tcp/127.0.0.1:7447, got {endpoint!r}")
    settings: dict[str, Any] = {"transport/link/tx/queue/congestion_control/drop/wait_before_drop": DROPPED_AFTER}
    if endpoint == PEER:  # zenoh itself listens on every interface
        settings |= {"mode": "peer", "scouting/multicast/interface": "lo", "listen/endpoints": ["tcp/127.0.0.1:0"]}
    else:
        settings |= {"mode": "client", "scouting/multicast/enabled": False, "connect/endpoints": [endpoint]}
        settings |= {"connect/timeout_ms": PATIENCE, "connect/exit_on_failure": True}
    config = zenoh.Config()
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    try:
        opened = zenoh.open(config)
    except zenoh.ZError as error:
        text = re.sub(r" at /\S+\.rs:\d+\.?", "", " ".join(str(error).split()))
        what = f"cannot connect within {PATIENCE // 1000} s; is zenohd running at this address? ({text[:200]})"
        raise EdgeFirstError(f"--zenoh {endpoint}: {what}") from None
    try:
        yield opened
    finally:
        opened.close()
