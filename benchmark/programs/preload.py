# SPDX-License-Identifier: Apache-2.0
"""Messages of a recording by type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mcap.reader import make_reader

from edgefirst_ros.messages import Message


def messages(path: Path, *schemas: str) -> Iterator[Message]:
    """Messages whose type is one of `schemas`, in order of log time."""
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            if schema is not None and schema.name in schemas:
                yield Message(
                    channel.topic,
                    schema.name,
                    message.log_time,
                    message.publish_time,
                    message.sequence,
                    message.data,
                )
