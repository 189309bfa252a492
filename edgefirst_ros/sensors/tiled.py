# SPDX-License-Identifier: Apache-2.0
"""Pictures that come as four tiles, each a stream of its own: decoded side by side, all four or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefirst_ros.counts import CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.camera import VideoReader
from edgefirst_ros.sensors.h264 import H264Tracker
from edgefirst_ros.sensors.h265 import H265Tracker
from edgefirst_ros.sensors.tracker import Tracker
from edgefirst_ros.sensors.video_message import TiledVideo, codec_of
from edgefirst_ros.streams import TILES

COLOURS = ("colorspace", "color_range", "color_primaries", "color_trc")
"""Attributes of a picture's colour space."""


class TileReader:
    """As `VideoReader`, of four streams whose pictures are joined.

    Owns: one thread pushes, asks and skips; each reader is used by one thread at a time.
    """

    def __init__(self, *, keyframes_only: bool, decoder: str, limits: Limits) -> None:
        self._options = {"keyframes_only": keyframes_only, "decoder": decoder, "limits": limits}
        self._streams: list[tuple[VideoReader, Tracker]] = []
        self._found: dict[int, list[Any]] = {}
        """{requested number: result of each tile so far, None for none yet}."""
        self._threads = ThreadPoolExecutor(len(TILES), "tile")

    @property
    def note(self) -> str:
        """Note of the decoders to the user; empty without any."""
        return next((reader.note for reader, _ in self._streams if reader.note), "")

    def push(self, number: int, content: TiledVideo) -> bool:
        """Take the tiles of the next picture; return whether all are keyframes. Raises MessageError."""
        codecs = [codec_of(tile.form) for tile in content.tiles]
        if not self._streams:
            self._streams = [self._open(codec) for codec in codecs]
        for (reader, _), codec, tile in zip(self._streams, codecs, content.tiles, strict=True):
            if reader.codec != codec or tile.headers is None:
                raise MessageError(UNDECODABLE, f"{codec} in a stream of {reader.codec}")
        keyframe = True
        for (reader, tracker), tile in zip(self._streams, content.tiles, strict=True):
            if tile.headers is not None:
                unit = tracker.judge(tile.data, tile.headers)
                keyframe = keyframe and unit.keyframe
                reader.push(number, unit)
        return keyframe

    def _open(self, codec: str) -> tuple[VideoReader, Tracker]:
        reader = VideoReader(codec, **self._options)  # type: ignore[arg-type]
        return reader, H264Tracker() if codec == "h264" else H265Tracker()

    def mark_gap(self) -> None:
        """Take note that something between the last message and the next one is lost or cannot be read."""
        for _, tracker in self._streams:
            tracker.mark_gap()

    def picture(self, number: int, *, last: bool) -> Any:
        """Take the picture of a message, an av.VideoFrame; None where more must be pushed first.

        Raises MessageError where a tile has none, or they do not fit together.
        """
        found = self._found.setdefault(number, [None] * len(TILES))
        asked = [tile for tile, picture in enumerate(found) if picture is None]
        pictures = self._threads.map(lambda tile: self._streams[tile][0].picture(number, last=last), asked)
        for tile, picture in zip(asked, pictures, strict=True):
            found[tile] = picture
        if any(picture is None for picture in found):
            return None
        del self._found[number]
        fault = next((picture for picture in found if isinstance(picture, str)), None)
        if fault is not None:
            raise MessageError(fault)
        return join_pictures(found)

    def skip(self, number: int) -> None:
        """Say that the picture of a message is not wanted."""
        taken = self._found.pop(number, [None] * len(TILES))
        for (reader, _), picture in zip(self._streams, taken, strict=False):
            if picture is None:
                reader.skip(number)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()


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
        rows = [np.hstack([_plane(tiles[n].planes[number], first) for n in pair]) for pair in ((0, 1), (2, 3))]
        joined = np.vstack(rows)
        padded = np.zeros((joined.shape[0], plane.line_size), np.uint8)
        padded[:, : joined.shape[1]] = joined
        data = padded.tobytes()
        plane.update(data + bytes(plane.buffer_size - len(data)))
    for name in COLOURS:
        setattr(whole, name, getattr(first, name))
    return whole


def _plane(plane: Any, frame: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a plane without what is beside its rows, (rows, bytes)."""
    pixel = 2 if frame.format.name == "nv12" and plane.width < frame.width else 1
    rows = np.frombuffer(plane, np.uint8)[: plane.line_size * plane.height].reshape(plane.height, plane.line_size)
    return rows[:, : plane.width * pixel]
