# SPDX-License-Identifier: Apache-2.0
"""A video message, parsed once on its way: what is asked of it later is asked of this."""

from __future__ import annotations

from typing import Any, NamedTuple

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.sensors.bitstream import Buffer, HeaderReader, UnitHeaders
from edgefirst_ros.sensors.h264 import H264Headers
from edgefirst_ros.sensors.h265 import H265Headers
from edgefirst_ros.streams import TILED, VIDEO

CODECS = {"h264": "h264", "avc": "h264", "h265": "hevc", "hevc": "hevc"}
"""`format` of a CompressedVideo -> codec."""


class VideoMessage(NamedTuple):
    """The access unit of a CompressedVideo, and what its headers say."""

    form: str
    """`format` as in the message."""
    data: Buffer
    """The access unit, a view into the message."""
    headers: UnitHeaders | None
    """None where the format is unknown."""

    def with_sets(self, sets: bytes) -> VideoMessage:
        """Return it with parameter sets in front: a decoder that knows nothing before it can begin with it."""
        if not sets or self.headers is None:
            return self
        headers = self.headers._replace(sets=sets + self.headers.sets)
        return self._replace(data=b"".join((sets, self.data)), headers=headers)


class TiledVideo(NamedTuple):
    """The tiles of one picture, each of its own stream."""

    tiles: tuple[VideoMessage, ...]

    @property
    def form(self) -> str:
        """`format` of the first tile."""
        return self.tiles[0].form

    def with_sets(self, sets: bytes) -> TiledVideo:
        """Return it as it is: each tile has its own parameter sets."""
        return self


class ReferenceParser:
    """Parses the messages of the reference topic in recorded order: headers of video need earlier parameter sets."""

    def __init__(self) -> None:
        self._readers: dict[str, HeaderReader] = {}
        self._tiles: list[ReferenceParser] = []

    def parse(self, message: Message) -> Any:
        """Parse the next message: a VideoMessage, TiledVideo, or else what `decode` gives; raises MessageError."""
        if message.schema == TILED:
            contents = decode(message)
            self._tiles = self._tiles or [ReferenceParser() for _ in contents]
            pairs = zip(self._tiles, contents, strict=True)
            return TiledVideo(tuple(parser.parse_unit(c.format, c.data.view()) for parser, c in pairs))
        return self.parse_video(message) if message.schema == VIDEO else decode(message)

    def parse_video(self, message: Message) -> VideoMessage:
        """Parse the next message of video; raises MessageError(UNDECODABLE) as `decode` does."""
        content = decode(message)
        return self.parse_unit(content.format, content.data.view())

    def parse_unit(self, form: str, data: Buffer) -> VideoMessage:
        """Parse the next access unit of a `format`."""
        try:
            codec = codec_of(form)
        except MessageError:
            return VideoMessage(form, data, None)
        if codec not in self._readers:
            self._readers[codec] = H264Headers() if codec == "h264" else H265Headers()
        return VideoMessage(form, data, self._readers[codec].read(data))


def codec_of(form: str) -> str:
    """Return the codec of the `format` of a CompressedVideo: h264 or hevc.

    Raises MessageError(UNDECODABLE) for an unknown one.
    """
    try:
        return CODECS[form.strip().lower()]
    except KeyError:
        raise MessageError(UNDECODABLE, f"video format {form!r}; expected h264 or h265") from None
