# SPDX-License-Identifier: Apache-2.0
"""Channels of a recording: topics, encodings and types."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from mcap.opcode import Opcode

from edgefirst_ros.messages import full_type


@dataclass(slots=True)
class Channel:
    """One channel of a recording."""

    topic: str
    schema: str
    encoding: str
    definition: bytes
    seen: int = 0


class Definitions:
    """Schemas and channels, from their records; of several with the same id the first counts."""

    def __init__(self) -> None:
        self.channels: dict[int, Channel] = {}
        self._schemas: dict[int, tuple[str, bytes]] = {}

    def take(self, opcode: int, body: bytes) -> bool:
        """Add the body of a schema or channel record; False if it is cut."""
        try:
            if opcode == Opcode.SCHEMA:
                (number,) = struct.unpack_from("<H", body)
                name, at = _text(body, 2)
                _, at = _text(body, at)
                self._schemas.setdefault(number, (full_type(name.decode("utf-8", "replace")), _text(body, at)[0]))
                return True
            number, schema = struct.unpack_from("<HH", body)
            topic, at = _text(body, 4)
            encoding, _ = _text(body, at)
        except struct.error:
            return False
        kind, definition = self._schemas.get(schema, ("", b""))
        channel = Channel(topic.decode("utf-8", "replace"), kind, encoding.decode("utf-8", "replace"), definition)
        self.channels.setdefault(number, channel)
        return True


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    """Return a text with its length before it, and where it ends; raises struct.error when it ends early."""
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise struct.error(f"a text of {length} bytes")
    return body[at + 4 : end], end
