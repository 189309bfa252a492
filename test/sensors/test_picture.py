# SPDX-License-Identifier: Apache-2.0
"""Colours against the equations of BT.601 and BT.709, JPEG tables against T.81, raw images against OpenCV."""

from __future__ import annotations

import io
import itertools
from concurrent.futures import ThreadPoolExecutor

import av
import cv2
import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from PIL import Image

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture import PictureEncoder, find_colours, make_raw_frame

KR_KB = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}
NUMBER = {"bt601": 6, "bt709": 1, None: 2}
"""ITU-T H.273."""
LUMA = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
]  # fmt: skip
CHROMA = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99, *[99] * 32,
]  # fmt: skip
"""ITU-T T.81, tables K.1 and K.2, row by row."""


def scene(width, height):
    """(H, W, 3) float RGB 0..255: smooth colours with structure."""
    rng = np.random.default_rng(3)
    small = rng.uniform(20, 235, (height // 24 + 2, width // 24 + 2, 3)).astype(np.float32)
    rgb = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(rgb + rng.normal(0, 2, (height, width, 1)), 0, 255)


def encoded(rgb, matrix, full):
    """YUV 4:4:4 (H, W, 3) float of 8 bits by the equations."""
    kr, kb = KR_KB[matrix]
    luma = rgb @ np.array([kr, 1 - kr - kb, kb])
    blue, red = (rgb[..., 2] - luma) / (2 - 2 * kb), (rgb[..., 0] - luma) / (2 - 2 * kr)
    if full:
        return np.stack([luma, 128 + blue, 128 + red], -1)
    return np.stack([16 + luma * 219 / 255, 128 + blue * 224 / 255, 128 + red * 224 / 255], -1)


def decoded(yuv, matrix, full):
    """RGB of such values: the inverse."""
    kr, kb = KR_KB[matrix]
    luma = yuv[..., 0] if full else (yuv[..., 0] - 16) * 255 / 219
    blue, red = ((yuv[..., n] - 128) * (1 if full else 255 / 224) for n in (1, 2))
    r, b = luma + red * (2 - 2 * kr), luma + blue * (2 - 2 * kb)
    return np.clip(np.stack([r, (luma - kr * r - kb * b) / (1 - kr - kb), b], -1), 0, 255)


def frame_of(width, height, matrix, full, declared_matrix, declared_range, form="yuv420p"):
    """(frame, its RGB by the equations)."""
    depth = 10 if form.endswith("10le") else 8
    kind, scale = (np.uint16, 4) if depth == 10 else (np.uint8, 1)
    yuv = encoded(scene(width, height), matrix, full)
    size = {"yuv420p": (2, 2), "yuvj420p": (2, 2), "yuv422p10le": (2, 1), "yuv444p": (1, 1)}[form]
    cells = (-(-width // size[0]), -(-height // size[1]))
    planes = [yuv[..., 0], *(cv2.resize(yuv[..., n], cells, interpolation=cv2.INTER_AREA) for n in (1, 2))]
    planes = [np.rint(plane * scale).clip(0, 256 * scale - 1).astype(kind) for plane in planes]
    frame = av.VideoFrame(width, height, form)
    for plane, values in zip(frame.planes, planes, strict=True):
        lines = np.zeros((plane.height, plane.line_size // kind().itemsize), kind)
        lines[: values.shape[0], : values.shape[1]] = values
        plane.update(lines.tobytes())
    frame.colorspace, frame.color_range = NUMBER[declared_matrix], declared_range
    whole = [cv2.resize(p.astype(np.float64) / scale, (width, height), interpolation=cv2.INTER_LINEAR) for p in planes]
    return frame, decoded(np.stack(whole, -1), matrix, full)


def psnr(a, b):
    return 10 * np.log10(255**2 / np.mean((np.asarray(a, np.float64) - b) ** 2))


def pixels(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


CASES = [
    # size, matrix, full, as declared: matrix, range (0 unsaid, 1 limited, 2 full)
    ((640, 360), "bt709", False, "bt709", 1),
    ((640, 360), "bt709", True, "bt709", 2),
    ((640, 360), "bt601", False, "bt601", 1),
    ((640, 360), "bt601", True, "bt601", 2),
    ((640, 360), "bt709", False, "bt709", 0),
    ((640, 360), "bt601", False, None, 0),
    ((1278, 576), "bt601", False, None, 1),
    ((1280, 360), "bt709", False, None, 0),
    ((640, 578), "bt709", True, None, 2),
    ((1280, 720), "bt601", False, "bt601", 1),
    ((322, 186), "bt601", True, None, 2),
]


@pytest.mark.parametrize(("size", "matrix", "full", "said", "value_range"), CASES)
@pytest.mark.parametrize(("quality", "least"), [(90, 34), (95, 38)])
def test_colours_of_a_jpeg(size, matrix, full, said, value_range, quality, least):
    frame, expected = frame_of(*size, matrix, full, said, value_range)
    found = pixels(PictureEncoder("jpeg", quality).encode(frame))
    assert found.shape == expected.shape
    assert psnr(found, expected) >= least
    assert np.abs((found - expected).mean(axis=(0, 1))).max() < 2.5


@pytest.mark.parametrize("form", ["yuvj420p", "yuv422p10le", "yuv444p"])
def test_other_pixel_formats(form):
    full = form == "yuvj420p"
    frame, expected = frame_of(642, 362, "bt709", full, "bt709", 0, form)
    assert psnr(pixels(PictureEncoder("jpeg", 95).encode(frame)), expected) >= 38
    assert psnr(pixels(PictureEncoder("png", 95).encode(frame)), expected) >= 45


@pytest.mark.parametrize(
    ("form", "full"), [("yuv420p", False), ("yuv420p", True), ("nv12", False), ("nv12", True), ("yuv420p10le", False)]
)
@pytest.mark.parametrize(
    ("number", "kr", "kb"),
    [(1, 0.2126, 0.0722), (4, 0.30, 0.11), (5, 0.299, 0.114), (7, 0.212, 0.087), (9, 0.2627, 0.0593)],
)
def test_the_planes_of_a_jpeg_are_those_of_the_equations(form, full, number, kr, kb):
    """Colours in flat squares, which come through JPEG of quality 100 as they are; the mjpeg decoder reads them."""
    rng = np.random.default_rng(number)
    rgb = rng.integers(30, 226, (12, 20, 3)).astype(float)
    luma = rgb @ [kr, 1 - kr - kb, kb]
    blue, red = (rgb[..., 2] - luma) / (2 - 2 * kb), (rgb[..., 0] - luma) / (2 - 2 * kr)
    scale, depth = ((219 / 255, 224 / 255), (1, 1))[full], 4 if form.endswith("10le") else 1
    given = [16 * (not full) + scale[0] * luma, 128 + scale[1] * blue, 128 + scale[1] * red]
    planes = [np.rint(depth * plane).clip(0, 255 * depth) for plane in given]  # nothing leaves the range of the target
    luma = (planes[0] / depth - 16 * (not full)) / scale[0]
    blue, red = ((plane / depth - 128) / scale[1] for plane in planes[1:])
    r, b = luma + red * (2 - 2 * kr), luma + blue * (2 - 2 * kb)
    g = (luma - kr * r - kb * b) / (1 - kr - kb)
    expected = [
        0.299 * r + 0.587 * g + 0.114 * b,
        128 - 0.168736 * r - 0.331264 * g + 0.5 * b,
        128 + 0.5 * r - 0.418688 * g - 0.081312 * b,
    ]
    frame = av.VideoFrame(320, 192, form)
    frame.colorspace, frame.color_range = number, 2 if full else 1
    squares = [plane.repeat(n, 0).repeat(n, 1) for plane, n in zip(planes, (16, 8, 8), strict=True)]
    if form == "nv12":
        squares = [squares[0], np.stack(squares[1:], -1).reshape(96, 320)]
    for plane, values in zip(frame.planes, squares, strict=True):
        kind = np.uint16 if depth == 4 else np.uint8
        lines = np.zeros((plane.height, plane.line_size // kind().itemsize), kind)
        lines[: values.shape[0], : values.shape[1]] = values
        plane.update(lines.tobytes())
    packet = av.Packet(PictureEncoder("jpeg", 100).encode(frame))
    [read] = av.CodecContext.create("mjpeg", "r").decode(packet)
    for plane, n, values in zip(read.planes, (16, 8, 8), expected, strict=True):
        lines = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width]
        assert np.abs(lines[n // 2 :: n, n // 2 :: n] - values.clip(0, 255)).max() <= 1.0


def test_what_is_declared_counts():
    def colours(**values):
        frame = av.VideoFrame(64, 48, "yuv420p")
        for name, value in values.items():
            setattr(frame, name, value)
        return find_colours(frame)

    assert colours(colorspace=1, color_range=2) == ("ITU709", 2)
    assert colours(colorspace=5, color_range=1) == ("ITU601", 1)
    assert colours(colorspace=2, color_range=0) == ("ITU601", 1)
    assert colours(colorspace=9, color_range=0) == ("BT2020", 1)


@pytest.mark.parametrize("quality", [1, 25, 50, 75, 90, 95, 100])
def test_jpeg_is_baseline_420_with_standard_tables(quality):
    for size in ((64, 48), (63, 47)):
        frame = av.VideoFrame.from_ndarray(scene(*size).astype(np.uint8), format="rgb24")
        data = PictureEncoder("jpeg", quality).encode(frame)
        image = Image.open(io.BytesIO(data))
        assert image.size == size
        assert [layer[1:3] for layer in image.layer] == [(2, 2), (1, 1), (1, 1)]
        assert b"\xff\xc0" in data
        assert b"\xff\xc2" not in data
        assert data[6:11] == b"JFIF\0"
        scale = 5000 // quality if quality < 50 else 200 - 2 * quality  # as the Independent JPEG Group does
        for number, table in enumerate((LUMA, CHROMA)):
            wanted = [min(255, max(1, (value * scale + 50) // 100)) for value in table]
            assert sorted(image.quantization[number]) == sorted(wanted)
        mine, his = io.BytesIO(), image.quantization
        image.save(mine, "JPEG", quality=quality)
        assert Image.open(mine).quantization == his


def test_png_is_exact():
    rgb = scene(65, 47).astype(np.uint8)
    data = PictureEncoder("png", 90).encode(av.VideoFrame.from_ndarray(rgb, format="rgb24"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), rgb)
    grey = rgb[..., 0].copy()
    frame = av.VideoFrame.from_ndarray(grey, format="gray")
    frame.color_range = 2
    data = PictureEncoder("png", 90).encode(frame)
    assert np.array_equal(pixels(data), np.repeat(grey[..., None], 3, -1))


@pytest.mark.parametrize(("form", "bits"), [("gray", 8), ("gray10le", 10), ("gray12le", 12)])
@pytest.mark.parametrize("value_range", [0, 1, 2])
def test_video_without_colours_has_the_range_it_declares(form, bits, value_range):
    """Monochrome H.265; undeclared is limited, from 16 to 235 of 8 bits."""
    width, height = 65, 48
    codes = np.linspace(0, 2**bits - 1, width).astype(np.uint16 if bits > 8 else np.uint8)
    frame = av.VideoFrame(width, height, form)
    lines = np.zeros((height, frame.planes[0].line_size // codes.itemsize), codes.dtype)
    lines[:, :width] = codes
    frame.planes[0].update(lines.tobytes())
    frame.color_range = value_range
    whole = codes / 2 ** (bits - 8)
    expected = whole * 255 / (2**bits - 1) * 2 ** (bits - 8) if value_range == 2 else (whole - 16) * 255 / 219
    for encoder, most in ((PictureEncoder("png", 90), 0.51), (PictureEncoder("jpeg", 100), 2)):
        found = pixels(encoder.encode(frame))
        assert found.shape == (height, width, 3)
        assert np.abs(found - expected.clip(0, 255)[None, :, None]).max() <= most


@pytest.mark.parametrize("size", [(64, 47), (63, 48), (63, 47)])
@pytest.mark.parametrize("form", ["gray", "rgb24", "yuvj420p"])
def test_odd_sizes_give_the_same_bytes_whatever_is_in_memory(size, form):
    frame = av.VideoFrame.from_ndarray(scene(*size).astype(np.uint8), format="rgb24").reformat(format=form)
    rng, found = np.random.default_rng(0), set()
    for _ in range(12):
        litter = [rng.integers(0, 256, size[0] * size[1] + n, np.uint8) for n in range(40)]
        del litter  # what the encoder would read beyond the end of the picture
        found.add(PictureEncoder("jpeg", 90).encode(frame))
    assert len(found) == 1


def test_threads_give_the_same_bytes():
    encoder = PictureEncoder("jpeg", 90)
    frames = [frame_of(w, 120, "bt709", w % 4 == 0, "bt709", 2 if w % 4 == 0 else 1)[0] for w in range(160, 200, 2)]
    alone = [PictureEncoder("jpeg", 90).encode(frame) for frame in frames]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(encoder.encode, frames)) == alone


# ---- raw images --------------------------------------------------------------------------------
def message(encoding, array, width, height, padding=0):
    """An Image whose lines are `padding` bytes longer than their pixels."""
    lines = np.ascontiguousarray(array).reshape(-1, array.shape[1] * (array[0, 0].size if array.ndim == 3 else 1))
    step = lines.shape[1] + padding
    data = np.pad(lines, ((0, 0), (0, padding)), constant_values=201)
    header = std_msgs.Header(frame_id="camera")
    return sensor_msgs.Image(header, height, width, encoding, 0, step, data.reshape(-1))


RAW = {
    "rgb8": (3, None), "bgr8": (3, cv2.COLOR_BGR2RGB), "rgba8": (4, cv2.COLOR_RGBA2RGB),
    "bgra8": (4, cv2.COLOR_BGRA2RGB), "8UC3": (3, cv2.COLOR_BGR2RGB), "mono8": (1, cv2.COLOR_GRAY2RGB),
    "8UC1": (1, cv2.COLOR_GRAY2RGB), "yuv422": (2, cv2.COLOR_YUV2RGB_UYVY), "uyvy": (2, cv2.COLOR_YUV2RGB_UYVY),
    "yuv422_yuy2": (2, cv2.COLOR_YUV2RGB_YUY2), "yuyv": (2, cv2.COLOR_YUV2RGB_YUY2),
    "nv12": (1, cv2.COLOR_YUV2RGB_NV12), "nv21": (1, cv2.COLOR_YUV2RGB_NV21), "8UC4": (4, cv2.COLOR_BGRA2RGB),
}  # fmt: skip


@pytest.mark.parametrize("encoding", RAW)
@pytest.mark.parametrize("padding", [0, 2, 37])
@pytest.mark.parametrize("size", [(320, 180), (66, 34)])
def test_raw_images_as_opencv_reads_them(encoding, padding, size):
    width, height = size
    (channels, code), half = RAW[encoding], encoding in ("nv12", "nv21")
    rgb = scene(width, height).astype(np.uint8)
    if channels == 2 or half:
        yuv = np.rint(encoded(rgb.astype(np.float64), "bt601", False)).astype(np.uint8)
        chroma = [cv2.resize(yuv[..., n], (width // 2, height // (2 if half else 1))) for n in (1, 2)]
        if half:
            chroma = chroma[::-1] if encoding == "nv21" else chroma
            array = np.concatenate([yuv[..., 0], np.stack(chroma, -1).reshape(height // 2, width)])
        else:
            array = np.empty((height, width, 2), np.uint8)
            first = 1 if encoding in ("yuv422", "uyvy") else 0
            array[..., first] = yuv[..., 0]
            array[:, 0::2, 1 - first], array[:, 1::2, 1 - first] = chroma
    elif channels == 1:
        array = rgb[..., 1]
    else:
        array = np.concatenate([rgb, np.full((height, width, 1), 255, np.uint8)], -1)[..., :channels]
    expected = array if code is None else cv2.cvtColor(np.ascontiguousarray(array), code)
    frame = make_raw_frame(message(encoding, array, width, height, padding))
    assert (frame.width, frame.height) == size
    png, jpeg = (pixels(PictureEncoder(form, 95).encode(frame)) for form in ("png", "jpeg"))
    if channels == 2 or half:
        assert psnr(png, expected) >= (36 if half else 40)  # OpenCV repeats the chroma of these
    else:
        assert np.array_equal(png, expected)
    assert psnr(jpeg, expected) >= 36
    assert np.abs((jpeg - expected.astype(float)).mean(axis=(0, 1))).max() < 2.5


BAYER = {
    "bayer_rggb8": ((0, 1, 1, 2), cv2.COLOR_BayerBG2RGB), "bayer_bggr8": ((2, 1, 1, 0), cv2.COLOR_BayerRG2RGB),
    "bayer_gbrg8": ((1, 2, 0, 1), cv2.COLOR_BayerGR2RGB), "bayer_grbg8": ((1, 0, 2, 1), cv2.COLOR_BayerGB2RGB),
}  # fmt: skip
"""Encoding -> (colours of the first two pixels of the first two lines, OpenCV's name, which is of the second ones)."""


@pytest.mark.parametrize("encoding", BAYER)
@pytest.mark.parametrize(("size", "padding"), [((320, 180), 0), ((642, 354), 5)])
def test_bayer_patterns_as_opencv_reads_them(encoding, size, padding):
    width, height = size
    colours, code = BAYER[encoding]
    rgb = cv2.GaussianBlur(scene(width, height).astype(np.uint8), None, 2)
    pattern = np.empty((height, width), np.uint8)
    for colour, (line, column) in zip(colours, itertools.product((0, 1), (0, 1)), strict=True):
        pattern[line::2, column::2] = rgb[line::2, column::2, colour]
    frame = make_raw_frame(message(encoding, pattern, width, height, padding))
    png, jpeg = (pixels(PictureEncoder(form, 95).encode(frame)) for form in ("png", "jpeg"))
    expected = cv2.cvtColor(pattern, code)
    inner = (slice(2, -2), slice(2, -2))  # what is beyond an edge is a guess
    assert psnr(png[inner], rgb[inner]) > psnr(expected[inner], rgb[inner]) - 8
    assert psnr(png[inner], expected[inner]) >= 36
    assert psnr(jpeg[inner], expected[inner]) >= 34


@pytest.mark.parametrize(
    ("encoding", "width", "height", "step", "size"),
    [
        ("16UC1", 4, 4, 8, 32),
        ("bayer_rggb16", 4, 4, 8, 32),
        ("bayer_rggb8", 4, 4, 3, 16),
        ("bayer_rggb8", 3, 4, 4, 16),
        ("bayer_rggb8", 4, 3, 4, 16),
        ("bayer_rggb8", 4, 4, 4, 15),
        ("", 4, 4, 12, 48),
        ("rgb8", 4, 4, 11, 48),
        ("rgb8", 4, 4, 12, 47),
        ("rgb8", 4, 4, 0, 48),
        ("rgb8", 0, 4, 12, 48),
        ("rgb8", 4, 0, 12, 0),
        ("rgb8", 2**31, 2**31, 2**32 - 1, 48),
        ("nv12", 4, 4, 4, 23),
        ("nv12", 4, 3, 4, 24),
        ("nv12", 3, 4, 4, 24),
        ("yuv422", 3, 4, 8, 32),
        ("mono8", 20000, 1, 20000, 20000),
    ],
)
def test_images_that_cannot_be_stored(encoding, width, height, step, size):
    image = sensor_msgs.Image(std_msgs.Header(frame_id=""), height, width, encoding, 0, step, np.zeros(size, np.uint8))
    with pytest.raises(MessageError, match="cannot be stored"):
        make_raw_frame(image)


@pytest.mark.parametrize("size", [(157, 96), (160, 93), (157, 93)])
def test_pictures_of_odd_sizes_are_as_good_as_those_of_pillow(size):
    """Chroma belongs to pairs of columns and lines: spread over an odd size it drifts to the right and down."""
    rgb = np.rint(scene(*size)).astype(np.uint8)
    frame = make_raw_frame(
        sensor_msgs.Image(std_msgs.Header(), size[1], size[0], "rgb8", 0, 3 * size[0], rgb.tobytes())
    )
    theirs = io.BytesIO()
    Image.fromarray(rgb).save(theirs, "JPEG", quality=95, subsampling=2)
    ours = np.asarray(Image.open(io.BytesIO(PictureEncoder("jpeg", 95).encode(frame))))
    assert ours.shape == rgb.shape
    assert psnr(ours, rgb) > psnr(np.asarray(Image.open(theirs)), rgb) - 2.5


@pytest.mark.parametrize("form", ["yuv420p", "yuvj420p", "yuv422p10le"])
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_a_picture_without_its_last_column_and_line_is_else_the_same(form, kind):
    whole, _ = frame_of(144, 112, "bt709", form == "yuvj420p", "bt709", 0, form)
    part = av.VideoFrame(143, 111, form)
    part.colorspace, part.color_range = whole.colorspace, whole.color_range
    for source, target in zip(whole.planes, part.planes, strict=True):
        lines = np.frombuffer(source, np.uint8).reshape(-1, source.line_size)[: target.height, : target.line_size]
        target.update(np.pad(lines, ((0, 0), (0, target.line_size - lines.shape[1]))).tobytes())
    encoder = PictureEncoder(kind, 95)
    found, expected = pixels(encoder.encode(part)), pixels(encoder.encode(whole))[:111, :143]
    assert found.shape == expected.shape
    height, width = found.shape[:2] if kind == "png" else (94, 126)  # of a JPEG what no changed block reaches
    assert (found[:height, :width] == expected[:height, :width]).all()
