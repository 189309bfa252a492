# SPDX-License-Identifier: Apache-2.0
"""Pictures of a camera stream by message number, whatever form the messages have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.camera import VideoReader
from edgefirst_ros.sensors.gops import Encoded, GopReader
from edgefirst_ros.sensors.h264 import H264Tracker
from edgefirst_ros.sensors.h265 import H265Tracker
from edgefirst_ros.sensors.picture import PictureEncoder, check_size, raw_frame, still_frame
from edgefirst_ros.sensors.picture_file import check_jpeg, check_png
from edgefirst_ros.sensors.tiled import TileReader
from edgefirst_ros.sensors.tracker import Tracker
from edgefirst_ros.sensors.video_message import TiledVideo, VideoMessage, codec_of
from edgefirst_ros.streams import COMPRESSED_IMAGE, TILED, VIDEO


class Picture(NamedTuple):
    """A picture that can be written: kind of member, (width, height), and a function that gives its bytes.

    The function may be called in any thread; `ready`: it has nothing to do but to give them.
    """

    kind: str
    size: tuple[int, int]
    encode: Callable[[], bytes]
    ready: bool = False
    full: tuple[int, int] | None = None
    """Its size before it was scaled; None: the same."""


class Pictures(Protocol):
    """Interface of camera decoders. Messages are pushed in recorded order, with increasing numbers."""

    @property
    def note(self) -> str:
        """Note of the decoder to the user; empty without any."""

    def push(self, number: int, content: Any) -> None:
        """Take a message: of video a VideoMessage, of stills the decoded message or why there is none."""

    def mark_gap(self) -> None:
        """Take note that a message before the next one is lost or cannot be read."""

    def keyframe(self, number: int) -> bool:
        """Return whether a pushed message that was neither taken nor skipped holds a keyframe."""

    def take(self, number: int, *, last: bool) -> Picture | MessageError | None:
        """Take the picture of a message, or why it has none, or None where more must be pushed first."""

    def skip(self, number: int) -> MessageError | None:
        """Say that a picture is not wanted; return why there is none, as far as that is known without decoding."""

    def close(self) -> None:
        """Give up what is under way."""


class VideoPictures:
    """CompressedVideo, H.264 or H.265.

    Owns: one thread pushes, takes and skips, and alone changes it; any thread may close.
    """

    def __init__(
        self,
        encoder: PictureEncoder,
        limits: Limits,
        *,
        keyframes_only: bool,
        decoder: str = "software",
        threads: int = 1,
        ahead: bool = True,
    ) -> None:
        self._encoder = encoder
        self._limits = limits
        self._keyframes_only = keyframes_only
        self._decoder = decoder
        self._threads = threads
        self._ahead = ahead
        self._reader: VideoReader | GopReader | None = None
        self._tracker: Tracker | None = None
        self._pushed: dict[int, tuple[bool, str | None] | MessageError] = {}
        """Of messages neither taken nor skipped: whether they hold a keyframe and what its headers say is wrong with
        the picture, or why they cannot be used."""

    def push(self, number: int, content: VideoMessage) -> None:
        try:
            codec = codec_of(content.form)
            if self._reader is None or self._tracker is None:
                self._reader, self._tracker = self._open(codec), H264Tracker() if codec == "h264" else H265Tracker()
            if codec != self._reader.codec or content.headers is None:
                raise MessageError(UNDECODABLE, f"{codec} in a stream of {self._reader.codec}")
        except MessageError as error:
            self._pushed[number] = error
            self.mark_gap()
        else:
            unit = self._tracker.judge(content.data, content.headers)
            self._pushed[number] = unit.keyframe, unit.fault
            self._reader.push(number, unit)

    def _open(self, codec: str) -> VideoReader | GopReader:
        keyframes_only, limits = self._keyframes_only, self._limits
        if self._threads > 1 and self._decoder == "software":
            encode = self._changed_and_encoded if self._ahead else None
            return GopReader(codec, self._threads, keyframes_only=keyframes_only, limits=limits, encode=encode)
        return VideoReader(codec, keyframes_only=keyframes_only, decoder=self._decoder, limits=limits)

    def _changed_and_encoded(self, frame: Any) -> bytes:
        return self._encoder.encode(self._encoder.change(frame))

    @property
    def note(self) -> str:
        return self._reader.note if self._reader is not None else ""

    def close(self) -> None:
        if isinstance(self._reader, GopReader):
            self._reader.close()

    def mark_gap(self) -> None:
        if self._tracker is not None:
            self._tracker.mark_gap()

    def keyframe(self, number: int) -> bool:
        pushed = self._pushed.get(number)
        return isinstance(pushed, tuple) and pushed[0]

    def take(self, number: int, *, last: bool) -> Picture | MessageError | None:
        pushed = self._pushed.get(number)
        if isinstance(pushed, MessageError):
            del self._pushed[number]
            return pushed
        if self._reader is None:
            return MessageError(UNDECODABLE)
        found = self._reader.picture(number, last=last)
        if found is None:
            return None
        del self._pushed[number]
        if isinstance(found, str):
            return MessageError(found)
        if isinstance(found, MessageError):
            return found
        if isinstance(found, Encoded):
            full = found.width, found.height
            size = self._encoder.size(*full)
            return Picture(f"camera.{self._encoder.form}", size, lambda: found.data, ready=True, full=full)
        return _of_frame(found, self._encoder)

    def skip(self, number: int) -> MessageError | None:
        pushed = self._pushed.pop(number, None)
        if isinstance(pushed, MessageError):
            return pushed
        if self._reader is not None:
            self._reader.skip(number)
        return MessageError(pushed[1]) if pushed is not None and pushed[1] is not None else None


class TiledPictures:
    """Four streams of CompressedVideo whose pictures are the tiles of one.

    Owns: one thread pushes, takes and skips, and alone changes it; any thread may close.
    """

    def __init__(self, encoder: PictureEncoder, limits: Limits, *, keyframes_only: bool, decoder: str) -> None:
        self._encoder = encoder
        self._limits = limits
        self._tiles = TileReader(keyframes_only=keyframes_only, decoder=decoder, limits=limits)
        self._pushed: dict[int, bool | MessageError] = {}
        """Of messages neither taken nor skipped: whether they hold a keyframe, or why they cannot be used."""

    def push(self, number: int, content: TiledVideo) -> None:
        try:
            self._pushed[number] = self._tiles.push(number, content)
        except MessageError as error:
            self._pushed[number] = error
            self.mark_gap()

    @property
    def note(self) -> str:
        return self._tiles.note

    def mark_gap(self) -> None:
        self._tiles.mark_gap()

    def keyframe(self, number: int) -> bool:
        return self._pushed.get(number) is True

    def take(self, number: int, *, last: bool) -> Picture | MessageError | None:
        pushed = self._pushed.get(number)
        if isinstance(pushed, MessageError):
            del self._pushed[number]
            return pushed
        try:
            found = self._tiles.picture(number, last=last)
        except MessageError as error:
            del self._pushed[number]
            return error
        if found is None:
            return None
        del self._pushed[number]
        try:
            check_size(found.width, found.height, self._limits)
        except MessageError as error:
            return error
        return _of_frame(found, self._encoder)

    def skip(self, number: int) -> MessageError | None:
        pushed = self._pushed.pop(number, None)
        if isinstance(pushed, MessageError):
            return pushed
        self._tiles.skip(number)
        return None

    def close(self) -> None:
        self._tiles.close()


class StillPictures:
    """CompressedImage (JPEG and PNG pass through as they are) and Image (encoded)."""

    def __init__(self, schema: str, encoder: PictureEncoder, limits: Limits) -> None:
        self._form = self._stored if schema == COMPRESSED_IMAGE else self._raw
        self._encoder = encoder
        self._limits = limits
        self._found: dict[int, Callable[[], Picture | MessageError] | MessageError] = {}

    def push(self, number: int, content: Any) -> None:
        try:
            self._found[number] = content if isinstance(content, MessageError) else self._form(content)
        except MessageError as error:
            self._found[number] = error

    def _stored(self, content: Any) -> Callable[[], Picture | MessageError]:
        data = content.data.tobytes()
        png = data.startswith(b"\x89PNG")
        size = check_png(data) if png else check_jpeg(data)
        check_size(*size, self._limits)
        if self._encoder.alters(*size):
            return lambda: self._decoded(data)
        return lambda: Picture("camera.png" if png else "camera.jpeg", size, lambda: data, ready=True)

    def _decoded(self, data: bytes) -> Picture | MessageError:
        try:
            return _of_frame(still_frame(data), self._encoder)
        except MessageError as error:
            return error

    def _raw(self, content: Any) -> Callable[[], Picture | MessageError]:
        frame = raw_frame(content, self._limits)
        return lambda: _of_frame(frame, self._encoder)

    note = ""

    def mark_gap(self) -> None:
        pass  # no still picture depends on another

    def keyframe(self, number: int) -> bool:
        return True

    def take(self, number: int, *, last: bool) -> Picture | MessageError | None:
        found = self._found.pop(number)
        return found if isinstance(found, MessageError) else found()

    def skip(self, number: int) -> MessageError | None:
        found = self._found.pop(number, None)
        return found if isinstance(found, MessageError) else None

    def close(self) -> None:
        pass


def _of_frame(frame: Any, encoder: PictureEncoder) -> Picture | MessageError:
    """Return the picture of an av.VideoFrame, or why the hook makes none of it."""
    full = frame.width, frame.height
    try:
        changed = encoder.change(frame)
    except MessageError as error:
        return error
    return Picture(f"camera.{encoder.form}", encoder.size(*full), lambda: encoder.encode(changed), full=full)


def pictures_of(
    schema: str,
    encoder: PictureEncoder,
    *,
    keyframes_only: bool,
    decoder: str,
    limits: Limits = DEFAULT_LIMITS,
    threads: int = 1,
    ahead: bool = True,
) -> Pictures:
    """Return the pictures of a camera topic of some type; `keyframes_only` and `decoder` as for `VideoReader`.

    `threads`: decoders of software side by side, for where all pictures or all keyframes are wanted. `ahead`: these
    may encode a picture before it is asked for.
    """
    if schema == TILED:
        return TiledPictures(encoder, limits, keyframes_only=keyframes_only, decoder=decoder)
    if schema == VIDEO:
        return VideoPictures(
            encoder, limits, keyframes_only=keyframes_only, decoder=decoder, threads=threads, ahead=ahead
        )
    return StillPictures(schema, encoder, limits)
