# SPDX-License-Identifier: Apache-2.0
"""The camera's messages: pictures encoded as H.264 or H.265 access units, as JPEG or PNG, or left raw."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.recipe import Recipe

if TYPE_CHECKING:
    import av
    from av.video.reformatter import VideoReformatter

START_CODE = re.compile(rb"\x00\x00(?:\x00)?\x01")
BT709, BT601 = 1, 6
"""Numbers of ITU-T H.273 for matrix, primaries and transfer characteristics."""
YUV_FORMATS = {"yuv422": "uyvy422", "nv12": "nv12"}
"""Pixel formats of the raw encodings that are not RGB; `yuv422` is UYVY in ROS."""


@dataclass(frozen=True)
class Unit:
    """One message of the camera: index of its picture in order of presentation, and the bytes it carries."""

    index: int
    data: bytes
    step: int = 0
    """Bytes of a row, of a raw picture."""


def make_units(recipe: Recipe, painter: Painter) -> Iterator[Unit]:
    """Yield the camera's messages, all of them, in decode order."""
    if recipe.codec not in ("h264", "h265"):
        yield from (_make_still(recipe, painter, index) for index in range(recipe.frames))
        return
    once = recipe.parameter_sets_once or recipe.leading_packet
    for number, (index, data) in enumerate(_encode_packets(recipe, painter)):
        sets, others = split_parameter_sets(data, recipe.codec) if once else (b"", data)
        if number == 0 and recipe.leading_packet:
            yield Unit(-1, sets)
        yield Unit(index, data if number == 0 and not recipe.leading_packet else others)


def split_parameter_sets(data: bytes, codec: str) -> tuple[bytes, bytes]:
    """(NAL units with parameter sets, the others) of an Annex-B access unit, each with start codes."""
    starts = [match.start() for match in START_CODE.finditer(data)] + [len(data)]
    sets, others = b"", b""
    for start, end in itertools.pairwise(starts):
        head = data[data.index(b"\x01", start) + 1]
        if (head & 31) in (7, 8) if codec == "h264" else (head >> 1 & 63) in (32, 33, 34):
            sets += data[start:end]
        else:
            others += data[start:end]
    return sets, others


def _encode_packets(recipe: Recipe, painter: Painter) -> Iterator[tuple[int, bytes]]:
    """(picture's index, access unit) in decode order."""
    from av.video.reformatter import VideoReformatter

    encoder, scaler = _make_encoder(recipe), VideoReformatter()  # making one for each takes longer than a small picture
    for index in range(recipe.frames):
        frame = _make_yuv(recipe, painter, index, "yuv420p", scaler)
        frame.pts = index
        frame.time_base = encoder.time_base
        yield from ((packet.pts or 0, bytes(packet)) for packet in encoder.encode(frame))
    yield from ((packet.pts or 0, bytes(packet)) for packet in encoder.encode(None))


def _make_encoder(recipe: Recipe) -> Any:
    """Return an encoder of one thread and without choices of its own, so that its bytes depend on only the recipe."""
    import av

    encoder: Any = av.CodecContext.create("libx264" if recipe.codec == "h264" else "libx265", "w")
    encoder.width, encoder.height = recipe.size
    encoder.pix_fmt = "yuv420p"
    rate = recipe.rate("camera")
    encoder.framerate = rate
    encoder.time_base = Fraction(rate.denominator, rate.numerator)
    encoder.thread_count = 1
    encoder.gop_size = recipe.gop
    encoder.max_b_frames = recipe.b_frames
    number = BT709 if recipe.matrix == "bt709" else BT601
    encoder.colorspace = encoder.color_primaries = encoder.color_trc = number
    encoder.color_range = 2 if recipe.full_range else 1
    settings: dict[str, int | str] = {
        "keyint": recipe.gop, "min-keyint": recipe.gop, "scenecut": 0, "bframes": recipe.b_frames, "b-adapt": 0,
        "open-gop": int(recipe.open_gop),
    }  # fmt: skip
    if recipe.bitrate is None:
        settings["qp"] = recipe.quantiser
    else:
        encoder.bit_rate = recipe.bitrate
    if recipe.codec == "h265":
        settings |= {"pools": "none", "frame-threads": 1, "wpp": 0, "info": 0, "log-level": "none"}
    text = ":".join(f"{key}={value}" for key, value in settings.items())
    # The fastest preset: with the next one up 720p would take most of the demo's time.
    encoder.options = {"preset": "ultrafast", "x264-params" if recipe.codec == "h264" else "x265-params": text}
    return encoder


def _make_yuv(
    recipe: Recipe, painter: Painter, index: int, pixel_format: str, scaler: VideoReformatter
) -> av.VideoFrame:
    """A picture in a YUV format, range and matrix of the recipe, tagged with them."""
    import av
    from av.video.reformatter import ColorRange, Colorspace

    frame = av.VideoFrame.from_ndarray(painter.picture(index), format="rgb24")
    return scaler.reformat(
        frame,
        format=pixel_format,
        dst_colorspace=Colorspace.ITU709 if recipe.matrix == "bt709" else Colorspace.ITU601,
        dst_color_range=ColorRange.JPEG if recipe.full_range else ColorRange.MPEG,
    )


def _make_still(recipe: Recipe, painter: Painter, index: int) -> Unit:
    """A picture as JPEG, PNG or raw bytes. YUV forms are BT.601 or BT.709, limited or full as the recipe says."""
    if recipe.codec in YUV_FORMATS:
        from av.video.reformatter import VideoReformatter

        step = recipe.size[0] * (2 if recipe.codec == "yuv422" else 1)
        planes = _make_yuv(recipe, painter, index, YUV_FORMATS[recipe.codec], VideoReformatter()).planes
        rows = [np.frombuffer(bytes(p), np.uint8).reshape(-1, p.line_size)[: p.height, :step] for p in planes]
        return Unit(index, np.concatenate(rows).tobytes(), step)
    rgb = painter.picture(index)
    if recipe.codec in ("jpeg", "png"):
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(rgb).save(buffer, recipe.codec, quality=90, compress_level=1)  # each has one of these
        return Unit(index, buffer.getvalue())
    if recipe.codec == "mono8":
        luma = np.rint(rgb @ np.array([0.299, 0.587, 0.114], dtype=np.float32)).astype(np.uint8)
        return Unit(index, luma.tobytes(), recipe.size[0])
    return Unit(index, (rgb if recipe.codec == "rgb8" else rgb[..., ::-1]).tobytes(), recipe.size[0] * 3)
