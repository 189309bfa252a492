# SPDX-License-Identifier: Apache-2.0
"""Codec of a camera topic, and the size of its first picture that can be decoded."""

from __future__ import annotations

from typing import Any

from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.pictures import PictureOptions, open_parser, open_pictures
from edgefirst_ros.sensors.video.bitstream import AccessUnit

MOST_TRIED = 1000
"""Messages that are tried at most."""


class CameraFacts:
    """Decodes messages of one topic until one gives a picture. Owned by the thread of the first pass."""

    def __init__(self, topic: str, schema: str, limits: Limits) -> None:
        self.topic = topic
        self.codec = ""
        self.size: tuple[int, int] | None = None
        """Width and height, pixels; None while no picture was found."""
        self._schema = schema
        self._parse = open_parser(schema)
        self._number = 0
        options = PictureOptions(PictureEncoder("jpeg", 90), keyframes_only=True, limits=limits)
        self._pictures = open_pictures(schema, options)

    @property
    def is_done(self) -> bool:
        """True if a picture was found, or enough messages were tried."""
        return self.size is not None or self._number >= MOST_TRIED

    def offer(self, message: Message) -> None:
        """Try the next message, unless a picture was found."""
        if self.is_done or message.schema != self._schema:
            return
        self._number += 1
        try:
            parsed = self._parse(message)
        except MessageError:
            return
        unit = AccessUnit(self._number, parsed)
        self._pictures.push(unit)
        if not unit.keyframe:
            self._pictures.skip(unit)
            return
        found = self._pictures.take(unit, last=True)
        if isinstance(found, Picture):
            self.size, self.codec = found.size, parsed.form
            self._pictures.close()

    def plain(self) -> dict[str, Any]:
        """{"topic", "codec", "width", "height"}; null where no picture was found."""
        width, height = self.size or (None, None)
        return {"topic": self.topic, "codec": self.codec or None, "width": width, "height": height}
