# SPDX-License-Identifier: Apache-2.0
"""Codec of a camera topic, and the size of its first picture that can be decoded."""

from __future__ import annotations

from typing import Any

from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.picture import PictureEncoder
from edgefirst_ros.sensors.pictures import Picture, pictures_of
from edgefirst_ros.sensors.video_message import ReferenceParser
from edgefirst_ros.streams import COMPRESSED_IMAGE, TILED, VIDEO

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
        self._parser = ReferenceParser()
        self._number = 0
        self._pictures = pictures_of(
            schema, PictureEncoder("jpeg", 90), keyframes_only=True, decoder="software", limits=limits
        )

    def offer(self, message: Message) -> None:
        """Try the next message, unless a picture was found."""
        if self.size is not None or self._number >= MOST_TRIED or message.schema != self._schema:
            return
        self._number += 1
        try:
            content = self._parser.parse(message)
        except MessageError:
            return
        self._pictures.push(self._number, content)
        if not self._pictures.keyframe(self._number):
            self._pictures.skip(self._number)
            return
        found = self._pictures.take(self._number, last=True)
        if isinstance(found, Picture):
            self.size, self.codec = found.size, self._codec(content)
            self._pictures.close()

    def plain(self) -> dict[str, Any]:
        """{"topic", "codec", "width", "height"}; null where no picture was found."""
        width, height = self.size or (None, None)
        return {"topic": self.topic, "codec": self.codec or None, "width": width, "height": height}

    def _codec(self, content: Any) -> str:
        if self._schema in (VIDEO, TILED):
            return str(content.form)
        return str(content.format if self._schema == COMPRESSED_IMAGE else content.encoding)
