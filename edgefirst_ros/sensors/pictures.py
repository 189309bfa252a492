# SPDX-License-Identifier: Apache-2.0
"""Picture sources: from the messages of a camera to its pictures, one way for every form the messages have.

`PARSERS` has one line for each type of message: a parsed message is a still picture, video, or tiles of video. Each
camera of a vehicle has a parser and a source of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edgefirst_ros.counts import CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.messages import FfmpegPacket, Message, decode
from edgefirst_ros.sensors.jpeg import check_jpeg
from edgefirst_ros.sensors.picture import (
    Picture,
    PictureEncoder,
    check_raw,
    check_size,
    decode_still,
    fill_plane,
    find_pattern,
    make_raw_frame,
    view_lines,
)
from edgefirst_ros.sensors.png import check_png
from edgefirst_ros.sensors.video.bitstream import AccessUnit, Buffer, HeaderReader, Tracker, UnitHeaders, with_sets
from edgefirst_ros.sensors.video.h264 import H264Headers, H264Tracker
from edgefirst_ros.sensors.video.h265 import H265Headers, H265Tracker
from edgefirst_ros.sensors.video.reader import GopReader, VideoReader
from edgefirst_ros.streams import COMPRESSED_IMAGE, FFMPEG, IMAGE, TILED, TILES, VIDEO

CODECS = {
    "h264": "h264", "avc": "h264", "libx264": "h264", "libopenh264": "h264",
    "h265": "hevc", "hevc": "hevc", "libx265": "hevc", "libkvazaar": "hevc",
}  # fmt: skip
"""`format` of video, or name of its encoder up to `_` (`hevc_nvenc`) -> codec."""


def find_codec(form: str) -> str:
    """Return the codec of a `format` or `encoding` of video, up to `;`: h264 or hevc.

    Raises MessageError(UNDECODABLE) for an unknown one.
    """
    try:
        return CODECS[form.partition(";")[0].strip().lower().partition("_")[0]]
    except KeyError:
        raise MessageError(UNDECODABLE, f"video format {form!r}; expected h264 or h265") from None


# ---- messages ----------------------------------------------------------------------------------
class StillMessage(NamedTuple):
    """A CompressedImage or Image."""

    content: Any
    form: str
    """`format` or `encoding` as in the message."""
    entry: bool = True
    """True if decoding can start with it."""
    closed: bool = True
    """True if, also, no later unit refers to an earlier one."""
    depends: bool = False
    """True if its picture may need the messages before it."""
    raw: bool = False
    """True if it has pixels, not a file."""

    def as_first(self) -> StillMessage:
        """Return it with its missing parameter sets in front: decoding can start without the messages before it."""
        return self


class VideoMessage(NamedTuple):
    """An access unit of video, with its headers."""

    form: str
    data: Buffer
    """The access unit, a view into the message."""
    headers: UnitHeaders | None
    """None if the format is unknown."""
    lacking: bytes = b""
    """Parameter sets of the messages before it that it does not repeat."""
    depends: bool = True

    @property
    def tiles(self) -> tuple[VideoMessage, ...]:
        return (self,)

    @property
    def entry(self) -> bool:
        return self.headers is not None and self.headers.picture is not None and self.headers.picture.entry

    @property
    def closed(self) -> bool:
        return self.headers is not None and self.headers.picture is not None and self.headers.picture.closed

    def as_first(self) -> VideoMessage:
        if not self.lacking or self.headers is None:
            return self
        headers = self.headers._replace(sets=self.lacking + self.headers.sets)
        return VideoMessage(self.form, b"".join((self.lacking, self.data)), headers)


class TiledMessage(NamedTuple):
    """The tiles of one picture, each of its own stream: top left, top right, bottom left, bottom right."""

    tiles: tuple[VideoMessage, ...]
    depends: bool = True

    @property
    def form(self) -> str:
        return self.tiles[0].form

    @property
    def entry(self) -> bool:
        return all(tile.entry for tile in self.tiles)

    @property
    def closed(self) -> bool:
        return all(tile.closed for tile in self.tiles)

    def as_first(self) -> TiledMessage:
        return TiledMessage(tuple(tile.as_first() for tile in self.tiles))


Parsed = StillMessage | VideoMessage | TiledMessage
"""A parsed message of a camera."""
Parser = Callable[[Message], Parsed]
"""Parses the messages of one camera in recorded order; raises MessageError as `decode` does."""


def _parse_raw(message: Message) -> StillMessage:
    content = decode(message)
    return StillMessage(content, content.encoding, raw=True)


class VideoParser:
    """Parses the messages of one stream in recorded order: headers need the parameter sets of earlier ones.

    A CompressedImage that names no video is a still picture.
    """

    def __init__(self) -> None:
        self._readers: dict[str, HeaderReader] = {}
        self._sets: dict[str, bytes] = {}  # parameter sets so far, by codec

    def __call__(self, message: Message) -> StillMessage | VideoMessage:
        content = decode(message)
        if isinstance(content, FfmpegPacket):
            return self.parse(content.encoding, content.data)
        if message.schema == COMPRESSED_IMAGE:
            try:
                find_codec(content.format)
            except MessageError:
                return StillMessage(content, content.format)
        return self.parse(content.format, content.data.view())

    def parse(self, form: str, data: Buffer) -> VideoMessage:
        try:
            codec = find_codec(form)
        except MessageError:
            return VideoMessage(form, data, None)
        if codec not in self._readers:
            self._readers[codec] = H264Headers() if codec == "h264" else H265Headers()
        headers = self._readers[codec].read(data)
        before = self._sets.get(codec, b"")
        known = self._sets[codec] = with_sets(before, headers.sets)
        return VideoMessage(form, data, headers, before if known != headers.sets else b"")


class TileParser:
    """Parses the messages of a camera that sends its pictures as tiles."""

    def __init__(self) -> None:
        self._parsers = [VideoParser() for _ in TILES]

    def __call__(self, message: Message) -> TiledMessage:
        pairs = zip(self._parsers, decode(message), strict=True)
        return TiledMessage(tuple(parser.parse(c.format, c.data.view()) for parser, c in pairs))


# ---- sources -----------------------------------------------------------------------------------
class PictureOptions(NamedTuple):
    """How pictures are made of messages.

    `keyframes_only` and `decoder` as for `VideoReader`. `threads`: decoders of software side by side, if all pictures
    or all keyframes are needed. `ahead`: these may encode a picture before it is requested.
    """

    encoder: PictureEncoder
    keyframes_only: bool = False
    decoder: str = "software"
    limits: Limits = DEFAULT_LIMITS
    threads: int = 1
    ahead: bool = True


class PictureSource:
    """The pictures of one camera, still ones or video, as its first message says.

    JPEG and PNG pass through as they are, unless they are scaled or changed; raw pictures are encoded. Video is one
    stream, or several whose pictures are the tiles of one, only if all of them came. Units come in recorded order, with
    increasing numbers.

    Owns: one thread judges, and marks gaps: it has the trackers, and sets `_codecs` and `_depends` before it hands on
    the first unit. One thread, which may be another, adds, takes and skips: it has the readers, each of which, of
    tiles, is used by one thread at a time. Any thread may close.
    """

    def __init__(self, options: PictureOptions) -> None:
        self._options = options
        self._depends: bool | None = None  # True of video; None before the first message
        self._codecs: list[str] = []
        self._trackers: list[Tracker] = []
        self._readers: list[VideoReader | GopReader] = []
        self._tile_threads: ThreadPoolExecutor | None = None

    @property
    def note(self) -> str:
        """Note of the decoder to the user; empty without any."""
        return next((reader.note for reader in self._readers if reader.note), "")

    @property
    def is_video(self) -> bool:
        """True if it is video; False also before the first message."""
        return bool(self._depends)

    def push(self, unit: AccessUnit) -> None:
        """Judge and add the next message, where one thread does both."""
        self.judge(unit)
        self.add(unit)

    def judge(self, unit: AccessUnit) -> MessageError | None:
        """Judge the next message, parsed, in `unit.content`; afterwards `unit.keyframe` is known.

        Return why it has no picture, as far as its headers and those before it show.
        """
        message = unit.content
        try:
            self._check(message)
            unit.keyframe = not self._depends
            unit.content = None if self._depends else _check_still(message, self._options.limits)
        except MessageError as error:
            unit.content = error
            unit.keyframe = self._depends is False
            self.mark_gap()
            return error
        if not self._depends:
            return None
        if len(message.tiles) > 1:
            unit.tiles = [AccessUnit(unit.number, wanted=unit.wanted) for _ in message.tiles]
        parts = unit.tiles or (unit,)
        for part, tracker, tile in zip(parts, self._trackers, message.tiles, strict=True):
            tracker.judge(part, tile.data, tile.headers)
        unit.keyframe = all(part.keyframe for part in parts)
        unit.fault = next((part.fault for part in parts if part.fault is not None), None)
        return MessageError(unit.fault) if unit.fault is not None else None

    def _check(self, message: Any) -> None:
        """Begin with the first message. Raises MessageError if a message does not belong to it."""
        if isinstance(message, MessageError):
            raise message
        if self._depends is None:
            self._depends = message.depends
        if message.depends != self._depends:
            expected = "video" if self._depends else "still pictures"
            raise MessageError(UNDECODABLE, f"{message.form} in a stream of {expected}")
        if not self._depends:
            return
        codecs = [find_codec(tile.form) for tile in message.tiles]
        if not self._codecs:
            self._codecs = codecs
            self._trackers = [H264Tracker() if codec == "h264" else H265Tracker() for codec in codecs]
        for tile, codec, known in zip(message.tiles, codecs, self._codecs, strict=True):
            if codec != known or tile.headers is None:
                raise MessageError(UNDECODABLE, f"{codec} in a stream of {known}")

    def mark_gap(self) -> None:
        """Note that a message before the next one is lost or cannot be read."""
        for tracker in self._trackers:
            tracker.mark_gap()

    def add(self, unit: AccessUnit) -> None:
        """Add the next unit, once it is judged."""
        if not self._depends or isinstance(unit.content, MessageError):
            return
        self._readers = self._readers or [self._open(codec) for codec in self._codecs]
        for part, reader in zip(unit.tiles or (unit,), self._readers, strict=True):
            reader.push(part)

    def _open(self, codec: str) -> VideoReader | GopReader:
        encoder, keyframes_only, decoder, limits, threads, ahead = self._options
        if threads > 1 and decoder == "software" and len(self._codecs) == 1:
            encode = encoder.encode_picture if ahead else None
            return GopReader(codec, threads, keyframes_only=keyframes_only, limits=limits, encode=encode)
        return VideoReader(codec, keyframes_only=keyframes_only, decoder=decoder, limits=limits)

    def pop(self, unit: AccessUnit, *, last: bool) -> Picture | MessageError | None:
        """Take the picture of a pushed unit, or why it is missing, or None if more must be pushed first.

        Units are requested in the order in which their pictures are shown; `last`: no more will be pushed.
        """
        found, unit.content = unit.content, None
        if isinstance(found, MessageError):
            return found
        encoder = self._options.encoder
        try:
            if not self._depends:
                if not isinstance(found, Picture):
                    found = make_raw_frame(found, self._options.limits)
                elif found.pattern or encoder.alters(*found.size):
                    found = decode_still(bytes(found.encode()), found.pattern)
                else:
                    return found
            else:
                found = self._join_tiles(unit, last) if unit.tiles else self._readers[0].picture(unit, last=last)
                if isinstance(found, str):
                    return MessageError(found)
                if found is None or isinstance(found, Picture | MessageError):
                    return found
            return encoder.picture(found)
        except MessageError as error:
            return error

    def _join_tiles(self, unit: AccessUnit, last: bool) -> Any:
        """Return the picture of all tiles as an av.VideoFrame, a str as `VideoReader.picture`, or None.

        Raises MessageError if they do not fit together.
        """
        if self._tile_threads is None:
            self._tile_threads = ThreadPoolExecutor(len(unit.tiles), "tile")
        asked = [(tile, reader) for tile, reader in zip(unit.tiles, self._readers, strict=True) if not tile.given]
        pictures = self._tile_threads.map(lambda pair: pair[1].picture(pair[0], last=last), asked)
        for (tile, _), picture in zip(asked, pictures, strict=True):
            tile.given, tile.outcome = picture is not None, picture
        if not all(tile.given for tile in unit.tiles):
            return None
        found = [tile.outcome for tile in unit.tiles]
        unit.tiles = ()
        fault = next((picture for picture in found if isinstance(picture, str)), None)
        if fault is not None:
            return fault
        whole = join_pictures(found)
        check_size(whole.width, whole.height, self._options.limits)
        return whole

    def skip(self, unit: AccessUnit) -> MessageError | None:
        """Say that a picture is not wanted; return why it is missing, as far as known without decoding."""
        found, unit.content = unit.content, None
        if isinstance(found, MessageError):
            return found
        for part, reader in zip(unit.tiles or (unit,), self._readers, strict=False):
            if part.given and unit.tiles:
                part.outcome = None
            else:
                reader.skip(part)
        return MessageError(unit.fault) if unit.fault is not None else None

    def close(self) -> None:
        for reader in self._readers:
            if isinstance(reader, GopReader):
                reader.close()
        if self._tile_threads is not None:
            self._tile_threads.shutdown()


def _check_still(message: StillMessage, limits: Limits) -> Any:
    """Return the file of a picture as it is, or the raw picture. Raises MessageError if a message has none."""
    content = message.content
    if message.raw:
        check_raw(content, limits)
        return content
    data = content.data.view()
    png = bytes(data[:4]) == b"\x89PNG"
    size = check_png(data) if png else check_jpeg(data)
    check_size(*size, limits)
    return Picture("camera.png" if png else "camera.jpeg", size, size, data=data, pattern=find_pattern(message.form))


def join_pictures(tiles: list[Any]) -> Any:
    """Return four av.VideoFrames of one form as one: top left, top right, bottom left, bottom right.

    Raises MessageError where their sizes or forms differ, or are odd.
    """
    import av

    first = tiles[0]
    forms = {(tile.format.name, tile.width, tile.height) for tile in tiles}
    if len(forms) > 1 or first.width % 2 or first.height % 2:
        shown = ", ".join(f"{width} x {height} {form}" for form, width, height in sorted(forms))
        raise MessageError(CANNOT_BE_STORED, f"tiles that do not fit together: {shown}")
    whole = av.VideoFrame(2 * first.width, 2 * first.height, first.format.name)
    for number, plane in enumerate(whole.planes):
        rows = [np.hstack([_copy_plane(tiles[n].planes[number], first) for n in pair]) for pair in ((0, 1), (2, 3))]
        fill_plane(plane, np.vstack(rows))
    for name in ("colorspace", "color_range", "color_primaries", "color_trc"):
        setattr(whole, name, getattr(first, name))
    return whole


def _copy_plane(plane: Any, frame: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a plane without the padding of its rows, (rows, bytes)."""
    pixel = 2 if frame.format.name == "nv12" and plane.width < frame.width else 1
    return view_lines(plane)[:, : plane.width * pixel]


PARSERS: dict[str, Callable[[], Parser]] = {
    IMAGE: lambda: _parse_raw, TILED: TileParser, **dict.fromkeys((COMPRESSED_IMAGE, VIDEO, FFMPEG), VideoParser),
}  # fmt: skip
"""Type of message -> what parses the messages of one camera."""


def open_parser(schema: str) -> Parser:
    """Return the parser of a camera of some type."""
    return PARSERS[schema]()


def find_ffmpeg_version() -> str:
    """Return the version of FFmpeg, on which the pixels of decoded video depend."""
    import av  # 50 ms, which recordings of JPEG do not need

    return str(av.ffmpeg_version_info)
