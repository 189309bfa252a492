# SPDX-License-Identifier: Apache-2.0
"""JPEG pictures as a video (AVI, MJPEG) that holds them as they are, and back."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.errors import DatasetError, StorageError

RATE_LIMIT = 10_000
"""Largest denominator of a picture rate."""


class VideoWriter:
    """A video while it is written; `rate` in pictures a second is for players, the stamps are in a channel."""

    def __init__(self, path: Path, size: tuple[int, int], rate: float) -> None:
        import av

        self._path = path
        self._count = 0
        self._step = 1 / Fraction(min(max(rate, 0.1), 1000)).limit_denominator(RATE_LIMIT)
        self._packet = av.Packet
        self._errors = av.FFmpegError
        self._file = av.open(str(path), "w", format="avi")  # made with the first picture
        # Nothing is encoded, but the muxer wants to know of an encoder.
        self._stream = self._file.add_stream("mjpeg", 1 / self._step, options={"strict": "unofficial"})
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "yuvj420p"

    def append(self, jpeg: bytes) -> None:
        """Add a picture."""
        packet = self._packet(jpeg)
        packet.stream = self._stream
        packet.time_base = self._step
        packet.pts = packet.dts = self._count
        packet.is_keyframe = True
        self._count += 1
        try:
            self._file.mux(packet)
        except self._errors as error:
            raise StorageError(f"{self._path}: cannot write: {error}") from error

    def close(self) -> None:
        """Complete the file; closing twice does nothing."""
        try:
            self._file.close()
        except self._errors as error:
            raise StorageError(f"{self._path}: cannot write: {error}") from error


def pictures(path: Path) -> Iterator[bytes]:
    """The pictures of a video in their order, as they are in it. Raises DatasetError where they cannot be read."""
    import av

    try:
        with open(open_file(path), "rb") as opened, av.open(opened, "r", format="avi") as file:
            if not file.streams.video or file.streams.video[0].codec_context.name != "mjpeg":
                raise DatasetError(f"{path}: holds no MJPEG video")
            for packet in file.demux(video=0):
                if packet.size:
                    yield bytes(packet)
    except (OSError, av.FFmpegError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
