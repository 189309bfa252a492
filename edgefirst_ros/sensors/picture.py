# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures: colours as the stream declares them, out as full-range JPEG (JFIF) or PNG; degradation of pictures.

Source: EdgeFirst Annotation Schema 2026.04, "Sample Metadata" (four levels); the measures and the limits between these
are our own.
"""

from __future__ import annotations

import io
import re
import threading
from bisect import bisect_right
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.counts import CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.errors import MessageError, quote_error
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.jpeg import Buffer
from edgefirst_ros.sensors.picture_hook import PictureHook
from edgefirst_ros.sensors.png import RGB, UP, encode_png, filter_lines

JPEG_RANGE = 2  # AVCOL_RANGE_JPEG
MATRICES = {1: "ITU709", 4: "FCC", 5: "ITU601", 6: "ITU601", 7: "SMPTE240M", 9: "BT2020", 10: "BT2020"}
"""AVColorSpace -> swscale's name of the matrix."""
FILTER_NAMES = {"ITU709": "bt709", "FCC": "fcc", "ITU601": "smpte170m", "SMPTE240M": "smpte240m", "BT2020": "bt2020ncl"}
"""swscale's name of a matrix -> that of libavfilter's `colorspace`."""
QUARTER_CHROMA = frozenset({"yuv420p", "yuvj420p", "yuv420p10le", "yuv420p12le"})
"""Formats with the sampling of a JPEG that `colorspace` takes as they are."""
LARGEST_SIDE = 16384
SCAN, MOST_SCANNED = b"\xff\xda", 1 << 31
"""Begin of a scan of a JPEG, and most pixels of all its scans together."""
RAW_FORMATS = {
    "rgb8": ("rgb24", 3), "bgr8": ("bgr24", 3), "rgba8": ("rgba", 4), "bgra8": ("bgra", 4), "mono8": ("gray", 1),
    "8UC1": ("gray", 1), "8UC3": ("bgr24", 3), "yuv422": ("uyvy422", 2), "uyvy": ("uyvy422", 2),
    "yuv422_yuy2": ("yuyv422", 2), "yuyv": ("yuyv422", 2), "nv12": ("nv12", 1), "nv21": ("nv21", 1),
    "8UC4": ("bgra", 4),
    **{name: (name, 1) for name in ("bayer_rggb8", "bayer_bggr8", "bayer_gbrg8", "bayer_grbg8")},
}  # fmt: skip
"""Encoding of a sensor_msgs/Image -> (libav pixel format, bytes a pixel in the first plane)."""
HALVED = ("nv12", "nv21")
"""Formats whose chroma is interleaved, below the luma, of half the height."""
BAYER = re.compile(r"(bayer_\w{4})(8|16)")
"""An encoding of pixels below a Bayer filter."""
BICUBIC, AREA, FULL_CHROMA, ACCURATE = 4, 0x20, 0x2000, 0x40000
"""Flags of swscale; without FULL_CHROMA and ACCURATE RGB is 1 to 1.5 too dark (39 dB instead of 55)."""

Size = tuple[int, int]
"""Width and height, pixels."""
LEVELS = ("none", "low", "medium", "high")
BLUR = (0.50, 0.60, 0.70)
"""Blur from which a picture is of low, medium, high degradation; sharp ones of several cameras have 0.2 to 0.46."""
FLATNESS = (-64, -40, -20)
"""The same of the span of brightness, negative, in steps of 8 bits: that from the 5th to the 95th percentile."""
CLIPPED = (0.25, 0.40, 0.60)
"""The same of the share of pixels that are next to black or white."""
DARK, BRIGHT = 8, 247
WINDOW = 9
"""Pixels over which a picture is blurred once more."""
EVERY = 4
"""Of the lines, and of the columns, one in so many is processed for blur."""


class RawPixels(NamedTuple):
    """Fields of a sensor_msgs/Image that `make_raw_frame` reads."""

    encoding: str
    width: int
    height: int
    step: int
    data: NDArray[np.uint8]


class Picture(NamedTuple):
    """A picture that can be written; any thread may encode it."""

    kind: str
    size: Size
    full: Size
    """Its size before it was scaled."""
    frame: Any = None
    """The av.VideoFrame, changed by the hook; None if it is encoded already."""
    encoder: PictureEncoder | None = None
    data: Buffer | None = None
    """Bytes of its file, if it is encoded already."""
    pattern: str = ""
    """Bayer pattern of the pixels in that file; empty of a picture that can be shown."""

    def encode(self) -> Buffer:
        return self.data or (self.encoder.encode(self.frame) if self.encoder is not None else b"")


def find_colours(frame: Any) -> tuple[str, int]:
    """Return (matrix, range) of a decoded frame as declared.

    An undeclared range is limited, an undeclared matrix follows from the size.
    """
    if frame.format.name in ("rgb24", "bgr24", "rgba", "bgra"):
        return "ITU601", JPEG_RANGE
    matrix = MATRICES.get(int(frame.colorspace))
    if matrix is None:
        matrix = "ITU709" if frame.width >= 1280 or frame.height > 576 else "ITU601"
    declared = int(frame.color_range)
    full = declared == JPEG_RANGE or (declared == 0 and frame.format.name.startswith("yuvj"))
    return matrix, JPEG_RANGE if full else 1


class PictureEncoder:
    """Encodes frames of one stream; safe to call from several threads at once.

    `form` is "jpeg" (4:2:0, `quality` 1..100) or "png" (RGB, lossless). Pictures wider than `max_width` are scaled
    down, and then changed by the `hook`.

    Owns: it is immutable but for `_own`, with a scaler and a filter for each thread.
    """

    def __init__(self, form: str, quality: int, max_width: int | None = None, hook: PictureHook | None = None) -> None:
        self.form = form
        self.quality = quality
        self._max_width = max_width
        self._hook = hook
        self._own = threading.local()

    def size(self, width: int, height: int) -> Size:
        """Return the size in which a picture is written: even if it is scaled, in the same aspect."""
        most = self._max_width
        if most is None or width <= most:
            return width, height
        narrow = most - most % 2
        return narrow, max(2, 2 * round(height * narrow / width / 2))

    def alters(self, width: int, height: int) -> bool:
        """True if a picture of some size does not stay as it is."""
        return self._hook is not None or self.size(width, height) != (width, height)

    def picture(self, frame: Any) -> Picture:
        """Return the picture of an av.VideoFrame, changed by the hook. Raises MessageError(HOOK) if the hook fails."""
        import av

        full = frame.width, frame.height
        if self._hook is not None:
            frame = av.VideoFrame.from_ndarray(self._hook(self._rgb(frame).copy()), format="rgb24")
        return Picture(f"camera.{self.form}", self.size(*full), full, frame, self)

    def encode_picture(self, frame: Any) -> Picture | MessageError:
        """Return the picture of an av.VideoFrame, encoded, or why the hook did not return one."""
        try:
            picture = self.picture(frame)
        except MessageError as error:
            return error
        return picture._replace(data=picture.encode(), frame=None, encoder=None)

    def _scale_frame(self, frame: Any) -> Any:
        """Return the frame in the size it gets, by the average of the area of each pixel."""
        width, height = self.size(frame.width, frame.height)
        if (width, height) == (frame.width, frame.height):
            return frame
        matrix, value_range = find_colours(frame)
        made = self._own_reformatter().reformat(
            frame, width, height, frame.format.name, interpolation=AREA | ACCURATE, src_colorspace=matrix,
            dst_colorspace=matrix, src_color_range=value_range, dst_color_range=value_range,
        )  # fmt: skip
        made.colorspace, made.color_range = frame.colorspace, frame.color_range
        return made

    def encode(self, frame: Any) -> bytes:
        """Return the bytes of a picture file for an av.VideoFrame."""
        if self.form != "png":
            return self._jpeg(frame)
        rgb = self._rgb(frame)
        return encode_png(filter_lines(rgb.reshape(len(rgb), -1), UP), rgb.shape[1], 8, RGB)

    def _jpeg_planes(self, frame: Any) -> Any:
        """Return the frame as a JPEG has it: 4:2:0, BT.601, full range.

        The filter is exact to half a step; swscale converts via RGB where the matrix differs, which costs ten times as
        much and errs by up to 4 steps. Of an odd size the luma has a column or line more.
        """
        matrix, value_range = colours = find_colours(frame)
        if frame.format.name in HALVED:  # of V4L2 decoders: the same values, but the chroma interleaved
            frame = self._own_reformatter().reformat(frame, format="yuv420p")
        kind = frame.format.name
        if colours == ("ITU601", JPEG_RANGE) and kind in ("yuv420p", "yuvj420p"):
            return frame
        frame = _make_even(frame)
        if kind not in QUARTER_CHROMA:
            return self._convert(frame, "yuvj420p", colours)
        key = frame.width, frame.height, kind, matrix, value_range
        if getattr(self._own, "key", None) != key:
            self._own.graph, self._own.key = _to_jpeg(*key), key
        self._own.graph.vpush(frame)
        return self._own.graph.vpull()

    def _convert(self, frame: Any, form: str, colours: tuple[str, int], flags: int = BICUBIC) -> Any:
        """Return the frame in another format, with the colours of a JPEG."""
        matrix, value_range = colours
        return self._own_reformatter().reformat(
            frame, format=form, interpolation=flags, src_colorspace=matrix, dst_colorspace="ITU601",
            src_color_range=value_range, dst_color_range=JPEG_RANGE,
        )  # fmt: skip

    def _own_reformatter(self) -> Any:
        from av.video.reformatter import VideoReformatter

        if not hasattr(self._own, "reformatter"):
            self._own.reformatter = VideoReformatter()  # keeps its scaler between frames, for one thread
        return self._own.reformatter

    def _jpeg(self, frame: Any) -> bytes:
        import av
        import simplejpeg

        if frame.width % 2 or frame.height % 2:  # chroma of half the size does not belong to all of it
            wide = self.size(frame.width, frame.height) != (frame.width, frame.height)
            frame = av.VideoFrame.from_ndarray(self._rgb(frame), format="rgb24") if wide else frame
        frame = self._scale_frame(frame)
        if frame.format.name.startswith("gray"):
            neutral = np.full(((frame.height + 1) // 2, (frame.width + 1) // 2), 128, np.uint8)
            planes = [_make_luma(frame), neutral, neutral]
        else:
            planes = [np.ascontiguousarray(view_lines(of)[:, : of.width]) for of in self._jpeg_planes(frame).planes]
        luma = planes[0][: frame.height, : frame.width]
        if frame.height % 2 or frame.width % 2:  # the encoder reads pairs of lines and columns, beyond the end of these
            odd = (0, frame.height % 2), (0, frame.width % 2)
            luma = np.pad(luma, odd, mode="edge")[: frame.height, : frame.width]
        planes[0] = luma
        return bytes(simplejpeg.encode_jpeg_yuv_planes(*planes, quality=self.quality))

    def _rgb(self, frame: Any) -> NDArray[np.uint8]:
        """Return the frame in the size it gets, as (height, width, 3) RGB, full range."""
        import av

        if frame.format.name.startswith("gray"):
            return _make_luma(self._scale_frame(frame))[..., np.newaxis].repeat(3, axis=2)
        flags = BICUBIC | FULL_CHROMA | ACCURATE
        rgb = self._convert(_make_even(frame), "rgb24", find_colours(frame), flags).to_ndarray()
        rgb = np.ascontiguousarray(rgb[: frame.height, : frame.width])
        if self.size(frame.width, frame.height) == (frame.width, frame.height):
            return rgb
        small: NDArray[np.uint8] = self._scale_frame(av.VideoFrame.from_ndarray(rgb, format="rgb24")).to_ndarray()
        return small


def _to_jpeg(width: int, height: int, kind: str, matrix: str, value_range: int) -> Any:
    """Return a graph that turns frames of a kind into 4:2:0 of BT.601 and full range; primaries and transfer stay."""
    from av.filter import Graph
    from av.video.format import VideoFormat

    graph = Graph()
    graph.threads = 1
    source = graph.add_buffer(width=width, height=height, format=VideoFormat(kind), time_base=Fraction(1, 1000))
    same = "primaries=bt709:iprimaries=bt709:trc=bt709:itrc=bt709"
    given = f"ispace={FILTER_NAMES[matrix]}:irange={'pc' if value_range == JPEG_RANGE else 'tv'}"
    change = graph.add("colorspace", f"{given}:{same}:space=smpte170m:range=pc:format=yuv420p")
    graph.link_nodes(source, change, graph.add("buffersink")).configure()
    return graph


def _make_even(frame: Any) -> Any:
    """Return the frame with its last column and line twice where their number is odd.

    Chroma of half the size belongs to pairs of columns and lines; libav spreads it over an odd size as it would over
    any other, so that it drifts to the right and down, and its filter for colours refuses it.
    """
    import av

    if not (frame.width % 2 or frame.height % 2):
        return frame
    kind = frame.format
    made = av.VideoFrame(frame.width + frame.width % 2, frame.height + frame.height % 2, kind.name)
    made.colorspace, made.color_range = frame.colorspace, frame.color_range
    size = kind.padded_bits_per_pixel // 8 if len(frame.planes) == 1 else (kind.components[0].bits + 7) // 8
    for source, target in zip(frame.planes, made.planes, strict=True):
        lines = view_lines(source)[:, : source.width * size].reshape(source.height, source.width, size)
        more = (0, target.height - source.height), (0, target.width - source.width), (0, 0)
        fill_plane(target, np.pad(lines, more, mode="edge").reshape(target.height, -1))
    return made


def view_lines(plane: Any) -> NDArray[np.uint8]:
    """Return the lines of a plane with their padding, (height, bytes)."""
    return np.frombuffer(plane, np.uint8)[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)


def fill_plane(plane: Any, lines: NDArray[np.uint8]) -> None:
    """Write lines, (height, bytes), into a plane, whose own are padded."""
    padded = np.zeros((plane.height, plane.line_size), np.uint8)
    padded[:, : lines.shape[1]] = lines
    plane.update(padded.tobytes())


def _make_luma(frame: Any) -> NDArray[np.uint8]:
    """The luma of a frame without colours, (height, width) uint8, full range; swscale ignores the range of these."""
    plane, bits = frame.planes[0], frame.format.components[0].bits
    values = view_lines(plane).view(np.uint8 if bits == 8 else "<u2")[:, : plane.width]
    full = find_colours(frame)[1] == JPEG_RANGE
    black, white = (0, (1 << bits) - 1) if full else (16 << bits - 8, 235 << bits - 8)
    scaled = (np.arange(1 << bits) - black) * 255 / (white - black)
    table = np.clip(scaled + 0.5, 0, 255).astype(np.uint8)
    return np.take(table, values)


def check_size(width: int, height: int, limits: Limits) -> None:
    """Raise MessageError(CANNOT_BE_STORED) for a picture of more than `limits.picture_pixels` pixels."""
    if width * height > limits.picture_pixels:
        most = f"more than {limits.picture_pixels} (limits.picture_pixels)"
        raise MessageError(CANNOT_BE_STORED, f"{width} x {height} pixels, {most}")


def check_raw(message: Any, limits: Limits = DEFAULT_LIMITS) -> tuple[str, int, int]:
    """Return libav's pixel format of a sensor_msgs/Image, bytes of a line without padding, and number of lines.

    Raises MessageError if its encoding is unknown, the picture too large or the data shorter than announced.
    """
    encoding, width, height, step = message.encoding, message.width, message.height, message.step
    if encoding not in RAW_FORMATS:
        raise MessageError(CANNOT_BE_STORED, f"image encoding {encoding!r}; expected one of {', '.join(RAW_FORMATS)}")
    form, pixel = RAW_FORMATS[encoding]
    rows = height * 3 // 2 if form in HALVED else height
    data = message.data
    squares = form in HALVED or form.startswith("bayer")  # of two by two pixels
    odd = (width % 2 and (squares or form in ("uyvy422", "yuyv422"))) or (height % 2 and squares)
    if not 0 < width <= LARGEST_SIDE or not 0 < height <= LARGEST_SIDE or odd:
        raise MessageError(CANNOT_BE_STORED, f"{encoding} image of {width} x {height} pixels")
    check_size(width, height, limits)
    if step < width * pixel or len(data) < rows * step:
        found = f"image data of {len(data)} bytes, step {step}"
        raise MessageError(CANNOT_BE_STORED, f"{found}, for {width} x {height} {encoding}")
    return form, width * pixel, rows


def make_raw_frame(message: Any, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Return an av.VideoFrame of a sensor_msgs/Image (rgb8, bgr8, mono8, yuv422, nv12, Bayer and their kin).

    Raises MessageError as `check_raw`.
    """
    import av

    (form, length, rows), step = check_raw(message, limits), message.step
    lines = np.frombuffer(message.data.view(), np.uint8)[: rows * step].reshape(rows, step)[:, :length]
    frame = av.VideoFrame(message.width, message.height, form)
    if form == "gray":
        frame.color_range = JPEG_RANGE  # a sensor's numbers have the full range
    first = 0
    for plane in frame.planes:
        fill_plane(plane, lines[first : first + plane.height])
        first += plane.height
    return frame.reformat(format="rgb24") if form.startswith("bayer") else frame


def find_pattern(form: str) -> str:
    """Return the Bayer pattern in a compressed picture by its `format`; empty where colours or gray were made of it.

    The name of the compressed form ends the `format`; image_transport omits that of a pattern: `bayer_rggb8; jpeg
    compressed `.
    """
    sent, _, stored = form.partition(";")
    known = BAYER.fullmatch(sent)
    return f"{known[1]}8" if known and stored.split()[2:] in ([], [sent]) else ""


def decode_still(data: bytes, pattern: str = "") -> Any:
    """Return an av.VideoFrame, RGB, of a JPEG or PNG; `pattern`: Bayer pattern of its pixels, if these are gray.

    Raises MessageError(UNDECODABLE) where it cannot be decoded, and as `check_raw`.
    """
    import av
    import simplejpeg
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["JPEG", "PNG"]) as image:
            if data.count(SCAN) * image.width * image.height > MOST_SCANNED:
                raise MessageError(UNDECODABLE, f"picture of {data.count(SCAN)} scans")
            gray = image.mode[0] in "LI"
            if image.format == "JPEG" and image.mode in ("RGB", "L"):
                rgb = simplejpeg.decode_jpeg(data, colorspace="RGB")
            elif image.mode.startswith("I"):  # 16 bits of gray
                rgb = (np.asarray(image, np.uint32)[..., np.newaxis] >> 8).astype(np.uint8).repeat(3, axis=2)
            else:
                rgb = np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MessageError(UNDECODABLE, f"picture: {quote_error(error)}") from None
    if pattern and gray:
        height, width = rgb.shape[:2]
        return make_raw_frame(RawPixels(pattern, width, height, width, rgb[..., 0].flatten()))
    return av.VideoFrame.from_ndarray(rgb, format="rgb24")


# ---- size --------------------------------------------------------------------------------------
def scale_info(info: Mapping[str, Any], before: Size, after: Size) -> dict[str, Any]:
    """Return the CameraInfo of pictures that were scaled, as image_proc's resize does it.

    The first line of k and p scales with the width, the second with the height. An info of another size than the
    pictures had keeps that proportion.
    """
    across, down = after[0] / before[0], after[1] / before[1]
    lines = across, down, 1.0
    return {
        **info,
        "width": round(info["width"] * across),
        "height": round(info["height"] * down),
        "k": [value * lines[n // 3] for n, value in enumerate(info["k"])],
        "p": [value * lines[n // 4] for n, value in enumerate(info["p"])],
    }


def judge_picture(picture: bytes) -> str:
    """`none`, `low`, `medium` or `high` for the bytes of a JPEG or PNG: the worst of blur, contrast and exposure."""
    if picture.startswith(b"\xff\xd8"):
        import simplejpeg

        return judge_luma(simplejpeg.decode_jpeg(picture, colorspace="GRAY")[..., 0])
    from PIL import Image

    with Image.open(io.BytesIO(picture), formats=("PNG",)) as image:
        return judge_luma(np.asarray(image.convert("L")))


def judge_luma(luma: NDArray[np.uint8]) -> str:
    """Return the degradation of a luma picture, uint8 (height, width), full range."""
    low, high = np.percentile(luma[::EVERY, ::EVERY], (5, 95))
    clipped = float(np.mean((luma <= DARK) | (luma >= BRIGHT)))
    measured = ((measure_blur(luma), BLUR), (float(low - high), FLATNESS), (clipped, CLIPPED))
    return LEVELS[max(bisect_right(limits, value) for value, limits in measured)]


def measure_blur(luma: NDArray[np.uint8]) -> float:
    """0 (sharp) to 1: how little is lost of the differences of neighbours when the picture is blurred once more.

    The worse of the two directions counts, so that motion blur does. Source: F. Crete et al., "The Blur Effect", 2007.
    """
    return max(_measure_line_blur(luma[::EVERY]), _measure_line_blur(luma[:, ::EVERY].T))


def _measure_line_blur(lines: NDArray[np.uint8]) -> float:
    padded = np.pad(np.ascontiguousarray(lines, np.int32), ((0, 0), (WINDOW // 2 + 1, WINDOW // 2)), "edge")
    sums = np.cumsum(padded, axis=1, dtype=np.int32)
    blurred = sums[:, WINDOW:] - sums[:, :-WINDOW]  # WINDOW times as large
    before = np.abs(np.diff(padded[:, WINDOW // 2 + 1 : -(WINDOW // 2)], axis=1)) * WINDOW
    lost = np.maximum(before - np.abs(np.diff(blurred, axis=1)), 0).sum(dtype=np.int64)
    total = before.sum(dtype=np.int64)
    return 1.0 - float(lost) / float(total) if total else 1.0
