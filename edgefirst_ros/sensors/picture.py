# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures: colours as the stream declares them, out as full-range JPEG (JFIF) or PNG."""

from __future__ import annotations

import io
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.errors import MessageError

JPEG_RANGE = 2  # AVCOL_RANGE_JPEG
MATRICES = {1: "ITU709", 4: "FCC", 5: "ITU601", 6: "ITU601", 7: "SMPTE240M", 9: "BT2020", 10: "BT2020"}
"""AVColorSpace -> swscale's name of the matrix."""
FILTER_MATRICES = {
    "ITU709": "bt709",
    "FCC": "fcc",
    "ITU601": "smpte170m",
    "SMPTE240M": "smpte240m",
    "BT2020": "bt2020ncl",
}
"""swscale's name of a matrix -> that of libavfilter's `colorspace`."""
QUARTER_CHROMA = frozenset({"yuv420p", "yuvj420p", "yuv420p10le", "yuv420p12le"})
"""Formats with the sampling of a JPEG that `colorspace` takes as they are."""
LARGEST_SIDE = 16384
RAW_FORMATS = {
    "rgb8": ("rgb24", 3),
    "bgr8": ("bgr24", 3),
    "rgba8": ("rgba", 4),
    "bgra8": ("bgra", 4),
    "mono8": ("gray", 1),
    "8UC1": ("gray", 1),
    "8UC3": ("bgr24", 3),
    "yuv422": ("uyvy422", 2),
    "uyvy": ("uyvy422", 2),
    "yuv422_yuy2": ("yuyv422", 2),
    "yuyv": ("yuyv422", 2),
    "nv12": ("nv12", 1),
}
"""Encoding of a sensor_msgs/Image -> (libav pixel format, bytes a pixel in the first plane)."""
BICUBIC, FULL_CHROMA, ACCURATE = 4, 0x2000, 0x40000
"""Flags of swscale; without the latter two RGB comes out 1 to 1.5 too dark (39 dB instead of 55)."""


def source_colours(frame: Any) -> tuple[str, int]:
    """(matrix, range) of a decoded frame: as declared; undeclared range is limited, undeclared matrix goes by size."""
    if frame.format.name in ("gray", "rgb24", "bgr24", "rgba", "bgra"):
        return "ITU601", JPEG_RANGE
    matrix = MATRICES.get(int(frame.colorspace))
    if matrix is None:
        matrix = "ITU709" if frame.width >= 1280 or frame.height > 576 else "ITU601"
    full = int(frame.color_range) == JPEG_RANGE or (
        int(frame.color_range) == 0 and frame.format.name.startswith("yuvj")
    )
    return matrix, JPEG_RANGE if full else 1


class PictureEncoder:
    """Encodes frames of one stream; safe to call from several threads at once.

    `form` is "jpeg" (4:2:0, `quality` 1..100) or "png" (RGB, lossless).
    """

    def __init__(self, form: str, quality: int) -> None:
        self.form = form
        self.quality = quality
        self._own = threading.local()

    def encode(self, frame: Any) -> bytes:
        """Bytes of a picture file for an av.VideoFrame."""
        return self._png(frame) if self.form == "png" else self._jpeg(frame)

    def _jpeg_planes(self, frame: Any) -> Any:
        """The frame as a JPEG has it: 4:2:0, BT.601, full range.

        The filter is exact to half a step; swscale goes by way of RGB where the matrix differs, which costs ten times
        as much and errs by up to 4 steps. But the filter knows no odd sizes.
        """
        matrix, value_range = source_colours(frame)
        if frame.format.name == "nv12":  # what V4L2 decoders give: the same values, but the chroma interleaved
            frame = self._own_reformatter().reformat(frame, format="yuv420p")
        kind = frame.format.name
        if (matrix, value_range) == ("ITU601", JPEG_RANGE) and kind in ("yuv420p", "yuvj420p"):
            return frame
        if kind not in QUARTER_CHROMA or frame.width % 2 or frame.height % 2:
            return self._convert(frame, "yuvj420p")
        key = frame.width, frame.height, kind, matrix, value_range
        if getattr(self._own, "key", None) != key:
            self._own.graph, self._own.key = _to_jpeg(*key), key
        self._own.graph.vpush(frame)
        return self._own.graph.vpull()

    def _convert(self, frame: Any, form: str, flags: int = BICUBIC) -> Any:
        matrix, value_range = source_colours(frame)
        return self._own_reformatter().reformat(
            frame,
            format=form,
            src_colorspace=matrix,
            dst_colorspace="ITU601",
            src_color_range=value_range,
            dst_color_range=JPEG_RANGE,
            interpolation=flags,
        )

    def _own_reformatter(self) -> Any:
        from av.video.reformatter import VideoReformatter

        if not hasattr(self._own, "reformatter"):
            self._own.reformatter = VideoReformatter()  # keeps its scaler between frames, for one thread
        return self._own.reformatter

    def _jpeg(self, frame: Any) -> bytes:
        import simplejpeg

        if frame.format.name == "gray":
            luma = _plane(frame.planes[0])
            neutral = np.full(((frame.height + 1) // 2, (frame.width + 1) // 2), 128, np.uint8)
            planes = [luma, neutral, neutral]
        else:
            planes = [_plane(plane) for plane in self._jpeg_planes(frame).planes]
        return bytes(simplejpeg.encode_jpeg_yuv_planes(*planes, quality=self.quality))

    def _png(self, frame: Any) -> bytes:
        from PIL import Image

        file = io.BytesIO()
        rgb = self._convert(frame, "rgb24", BICUBIC | FULL_CHROMA | ACCURATE).to_ndarray()
        Image.fromarray(rgb).save(file, "PNG", compress_level=1)
        return file.getvalue()


def _to_jpeg(width: int, height: int, kind: str, matrix: str, value_range: int) -> Any:
    """A graph that turns frames of a kind into 4:2:0 of BT.601 and full range; primaries and transfer stay."""
    from av.filter import Graph
    from av.video.format import VideoFormat

    graph = Graph()
    graph.threads = 1
    source = graph.add_buffer(width=width, height=height, format=VideoFormat(kind), time_base=Fraction(1, 1000))
    same = "primaries=bt709:iprimaries=bt709:trc=bt709:itrc=bt709"
    given = f"ispace={FILTER_MATRICES[matrix]}:irange={'pc' if value_range == JPEG_RANGE else 'tv'}"
    change = graph.add("colorspace", f"{given}:{same}:space=smpte170m:range=pc:format=yuv420p")
    graph.link_nodes(source, change, graph.add("buffersink")).configure()
    return graph


def _plane(plane: Any) -> npt.NDArray[np.uint8]:
    """A plane as (height, width) uint8 without the padding of its lines."""
    lines = np.frombuffer(plane, np.uint8)[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)
    return np.ascontiguousarray(lines[:, : plane.width])


def check_size(width: int, height: int, limits: Limits) -> None:
    """Raise MessageError("cannot be stored") for a picture of more than `limits.picture_pixels` pixels."""
    if width * height > limits.picture_pixels:
        raise MessageError(
            "cannot be stored",
            f"{width} x {height} pixels, more than {limits.picture_pixels} (limits.picture_pixels)",
        )


def raw_frame(message: Any, limits: Limits = DEFAULT_LIMITS) -> Any:
    """An av.VideoFrame of a sensor_msgs/Image (rgb8, bgr8, mono8, yuv422, nv12 and their kin).

    Raises MessageError when the encoding is unknown, the picture too large or the data shorter than announced.
    """
    import av

    encoding, width, height, step = message.encoding, message.width, message.height, message.step
    if encoding not in RAW_FORMATS:
        raise MessageError("cannot be stored", f"image encoding {encoding!r}; expected one of {', '.join(RAW_FORMATS)}")
    form, pixel = RAW_FORMATS[encoding]
    rows = height * 3 // 2 if form == "nv12" else height
    data = np.frombuffer(message.data, np.uint8) if len(message.data) else np.empty(0, np.uint8)
    odd = form in ("nv12", "uyvy422", "yuyv422") and (width % 2 or (form == "nv12" and height % 2))
    if not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE or odd:
        raise MessageError("cannot be stored", f"{encoding} image of {width} x {height} pixels")
    check_size(width, height, limits)
    if step < width * pixel or len(data) < rows * step:
        raise MessageError(
            "cannot be stored", f"image data of {len(data)} bytes, step {step}, for {width} x {height} {encoding}"
        )
    lines = data[: rows * step].reshape(rows, step)[:, : width * pixel]
    frame = av.VideoFrame(width, height, form)
    first = 0
    for plane in frame.planes:
        count = plane.height
        padded = np.zeros((count, plane.line_size), np.uint8)
        padded[:, : width * pixel] = lines[first : first + count]
        plane.update(padded.tobytes())
        first += count
    return frame
