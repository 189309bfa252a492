# SPDX-License-Identifier: Apache-2.0
"""Video as a camera's encoder makes it: CABAC, loop filter, GOPs that begin with an IDR picture, no B-frames."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
from av.video.reformatter import ColorRange, Colorspace

GOP = 30


def encode(pictures: Iterator[Any], codec: str, size: tuple[int, int], fps: float, bitrate: int) -> Iterator[bytes]:
    """Access units of RGB pictures, (height, width, 3) uint8, BT.709 limited; one picture in flight less than none."""
    encoder: Any = av.CodecContext.create("libx264" if codec == "h264" else "libx265", "w")
    rate = Fraction(fps).limit_denominator(1001)
    encoder.width, encoder.height = size
    encoder.pix_fmt = "yuv420p"
    encoder.framerate, encoder.time_base = rate, 1 / rate
    encoder.colorspace = encoder.color_primaries = encoder.color_trc = 1
    encoder.color_range = 1
    encoder.bit_rate = bitrate
    settings: dict[str, Any] = {
        "keyint": GOP, "min-keyint": GOP, "scenecut": 0, "bframes": 0, "open-gop": 0,
        "vbv-maxrate": bitrate // 1000, "vbv-bufsize": bitrate // 1000,
    }  # fmt: skip
    if codec == "h265":
        settings |= {"info": 0, "log-level": "none"}
    text = ":".join(f"{key}={value}" for key, value in settings.items())
    preset = "veryfast" if codec == "h264" else "superfast"
    encoder.options = {"preset": preset, "x264-params" if codec == "h264" else "x265-params": text}
    for number, picture in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
            format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG
        )
        frame.pts, frame.time_base = number, encoder.time_base
        yield from map(bytes, encoder.encode(frame))
    yield from map(bytes, encoder.encode(None))
