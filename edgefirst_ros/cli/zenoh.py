# SPDX-License-Identifier: Apache-2.0
"""Common parts of verbs on the device's bus: `--zenoh` with or without an address."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

ZENOH = typer.Option("--zenoh", metavar="[ENDPOINT|peer]", help="Zenoh router or peer, such as tcp/127.0.0.1:7447.")
NAMESPACE = typer.Option("--namespace", metavar="NS", help="Prefix of the capture's own keys, such as the host.")


class ZenohCommand(TyperCommand):
    """A verb whose option `--zenoh` may lack an address: it then means the peers on this machine."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does, with `peer` for a missing address."""
        from edgefirst_ros.sources.zenoh_session import PEER, is_endpoint

        if "--zenoh" in args:
            place = args.index("--zenoh") + 1
            if not (args[place:] and is_endpoint(args[place])):
                args = [*args[:place], PEER, *args[place:]]
        return super().parse_args(ctx, args)
