# SPDX-License-Identifier: Apache-2.0
"""Cubes against Pillow, OpenCV and hand arithmetic."""

from __future__ import annotations

import io
import itertools
import json
import struct
import zlib

import cv2
import numpy as np
import pytest
from edgefirst.schemas import edgefirst_msgs, std_msgs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.sensors.cube import check_cube, decode_cube, encode_cube

STAMP = 1_533_226_520_123_456_789


def message(layout, shape, values, scales=None, is_complex=True):
    return edgefirst_msgs.RadarCube(
        std_msgs.Header(frame_id="radar"),
        5,
        bytes(layout),
        np.array(shape, np.uint16).tobytes(),
        np.array([1.0] * len(layout) if scales is None else scales, np.float32).tobytes(),
        np.ascontiguousarray(values, np.int16).tobytes(),
        is_complex,
    )


def noise(shape, seed=0):
    values = np.random.default_rng(seed).integers(-32768, 32768, shape, np.int16)
    values.flat[:2] = (-32768, 32767)
    return values


def pillow(png):
    return np.asarray(Image.open(io.BytesIO(png))).astype(np.uint16)


def test_device_order_is_the_documented_grid():
    cube = noise((2, 200, 4, 512))
    png = encode_cube(message([6, 1, 5, 2], cube.shape, cube), STAMP)
    pixels = pillow(png)
    assert pixels.shape == (400, 2048)
    assert np.array_equal(pixels, cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED))
    for sequence, rx in itertools.product(range(2), range(4)):
        cell = pixels[200 * sequence : 200 * (sequence + 1), 512 * rx : 512 * (rx + 1)]
        assert np.array_equal(cell.astype(np.int32) - 32768, cube[sequence, :, rx])


def test_text_is_json_of_the_message():
    cube = noise((1, 3, 2, 4))
    sent = message([6, 1, 5, 2], cube.shape, cube, [1.0, 0.0405, np.nan, np.inf])
    picture = Image.open(io.BytesIO(encode_cube(sent, STAMP)))
    said = {key: json.loads(value) for key, value in picture.text.items()}
    assert said == {
        "edgefirst:layout": [6, 1, 5, 2],
        "edgefirst:shape": [1, 3, 2, 4],
        "edgefirst:scales": [1.0, 0.0405, None, None],
        "edgefirst:is_complex": True,
        "edgefirst:timestamp": STAMP,
    }


@pytest.mark.parametrize("is_complex", [True, False])
@pytest.mark.parametrize("codes", [c for n in (1, 2, 3, 4) for c in itertools.combinations((6, 1, 5, 2), n)])
def test_every_order_is_placed_and_comes_back(codes, is_complex):
    sizes, letters = {6: 2, 1: 5, 5: 3, 2: 4}, {6: "s", 1: "r", 5: "x", 2: "d"}
    for layout in itertools.permutations(codes):
        whole = noise([sizes[c] for c in layout] + [2 if is_complex else 1], seed=sum(layout))
        shape = [sizes[c] for c in layout]
        shape[-1] *= whole.shape[-1]
        png = encode_cube(message(layout, shape, whole, is_complex=is_complex), STAMP)
        # einsum by axis letters is the outside reading of "move each axis to its place, the pair innermost".
        source, target = (
            "".join(letters[c] for c in layout) + "p",
            "".join(letters[c] for c in (6, 1, 5, 2) if c in layout),
        )
        wanted = np.einsum(f"{source}->{target}p", whole.astype(np.int32)) + 32768
        lines = (2 if 6 in layout else 1) * (5 if 1 in layout else 1)
        assert np.array_equal(pillow(png), wanted.reshape(lines, -1))
        cube = decode_cube(png)
        assert np.array_equal(cube.raw(), whole.reshape(shape))
        full = tuple(sizes[c] if c in layout else 1 for c in (6, 1, 5, 2))
        assert cube.values.shape == ((*full, 2) if is_complex else full)
        assert cube.complex().shape == cube.shape == (full[0], full[2], full[1], full[3])
        assert cube.message_shape == tuple(shape)
        assert repr(cube).startswith(f"<Cube {' x '.join(map(str, cube.shape))} (sequence, rx, range, doppler), ")
        assert cube.complex().dtype == np.complex64


def test_complex_and_scales():
    values = np.arange(2 * 3 * 2 * 4, dtype=np.int16).reshape(2, 3, 2, 4)
    png = encode_cube(message([6, 1, 5, 2], values.shape, values, [1, 0.5, 1, 0.25]), STAMP)
    cube = decode_cube(png)
    # sequence 1, range 2, rx 1, doppler 0 is at ((1*3+2)*2+1)*4 = 44: (44, 45)
    assert cube.complex()[1, 1, 2, 0] == 44 + 45j
    assert (cube.metres_per_range_bin, cube.speed_per_doppler_bin) == (0.5, 0.25)
    assert (cube.timestamp, cube.is_complex, cube.message_shape) == (STAMP, True, (2, 3, 2, 4))
    unknown = decode_cube(encode_cube(message([1, 5], (2, 2), np.zeros(4), [0.0, np.nan]), STAMP))
    assert (unknown.metres_per_range_bin, unknown.speed_per_doppler_bin) == (None, None)


def test_every_value_survives():
    every = np.arange(-32768, 32768).astype(np.int16).reshape(1, 256, 1, 256)
    png = encode_cube(message([6, 1, 5, 2], every.shape, every), STAMP)
    assert np.array_equal(pillow(png).ravel(), np.arange(65536))
    assert np.array_equal(decode_cube(png).raw(), every)
    assert encode_cube(message([6, 1, 5, 2], every.shape, every), STAMP) == png


@pytest.mark.parametrize(
    ("layout", "shape", "count", "is_complex"),
    [
        ([6, 1, 3, 2], [1, 1, 1, 2], 2, True),
        ([6, 1, 0, 2], [1, 1, 1, 2], 2, True),
        ([6, 1, 1, 2], [1, 1, 1, 2], 2, True),
        ([6, 1, 5], [1, 1, 1, 2], 2, True),
        ([6, 1, 5, 2], [1, 1, 1, 4], 2, True),
        ([6, 1, 5, 2], [1, 1, 1, 3], 3, True),
        ([6, 1, 5, 2], [1, 0, 1, 2], 0, True),
        ([], [], 0, False),
        ([], [], 1, False),
    ],
)
def test_what_cannot_be_placed_is_refused_by_name(layout, shape, count, is_complex):
    bad = message(layout, shape, np.zeros(count), is_complex=is_complex)
    with pytest.raises(MessageError, match="cannot be stored") as caught:
        check_cube(bad)
    assert str(layout) in str(caught.value)
    assert str(shape) in str(caught.value)
    with pytest.raises(MessageError):
        encode_cube(bad, STAMP)


def test_foreign_pictures_follow_the_documented_grid():
    cube = noise((2, 5, 4, 3, 2))
    buffer = io.BytesIO()
    Image.fromarray((cube.astype(np.int32) + 32768).astype(np.uint16).reshape(10, 24)).save(buffer, "PNG")
    grid = decode_cube(buffer.getvalue(), rows=2, columns=4)
    assert np.array_equal(grid.values, cube)
    assert (grid.metres_per_range_bin, grid.timestamp) == (None, None)
    plain = decode_cube(buffer.getvalue())
    assert np.array_equal(plain.values, cube.reshape(1, 10, 1, 24))
    with pytest.raises(DatasetError):
        decode_cube(buffer.getvalue(), rows=3, columns=4)


def _chunk(kind, body):
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def _png(width, height, depth=16, colour=0, data=b"", texts=()):
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    words = b"".join(_chunk(b"tEXt", text) for text in texts)
    return b"\x89PNG\r\n\x1a\n" + header + words + _chunk(b"IDAT", zlib.compress(data)) + _chunk(b"IEND", b"")


@settings(max_examples=100)
@given(
    st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32), st.sampled_from([[1], [0, 1], [0, 1, 2, 3, 4]]),
    st.integers(1, 3),
)  # fmt: skip
def test_pictures_of_any_filter_are_read_as_pillow_reads_them(height, width, seed, filters, parts):
    rng = np.random.default_rng(seed)
    lines = rng.integers(0, 256, (height, 2 * width + 1), np.uint8)
    lines[:, 0] = rng.choice(filters, height)
    whole = _png(width, height, data=lines.tobytes())
    packed = zlib.compress(lines.tobytes())
    cuts = [0, *sorted(rng.integers(0, len(packed) + 1, parts - 1)), len(packed)]
    split = b"".join(_chunk(b"IDAT", packed[a:b]) for a, b in itertools.pairwise(cuts))
    for png in (whole, whole[:33] + split + _chunk(b"IEND", b"")):
        assert np.array_equal(decode_cube(png).values.astype(np.int32).reshape(height, width) + 32768, pillow(png))


@pytest.mark.parametrize(
    "png",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        _png(60000, 60000),
        _png(2**31 - 1, 2**31 - 1),
        _png(0, 1),
        _png(8000, 8000, data=bytes(100)),
        _png(2, 2, depth=8, data=bytes(6)),
        _png(2, 2, data=bytes(3)),
        _png(2, 2, data=bytes(10), texts=[b"edgefirst:layout\0[1, 2]"]),
        _png(2, 2, data=bytes(10), texts=[b"edgefirst:layout\0" + b"[" * 100_000]),
        _png(2, 2, data=bytes(10))[:-1],
    ],
)
def test_hostile_pictures_are_refused(png):
    with pytest.raises(DatasetError):
        decode_cube(png)


@pytest.mark.parametrize(("width", "height", "size"), [(8000, 8000, 100), (60000, 60000, 10**8)])
def test_nothing_is_allocated_for_pixels_that_cannot_be_there(width, height, size):
    with pytest.raises(DatasetError, match=f"{width} x {height} pixels in"):
        decode_cube(_png(width, height, data=bytes(size)))


@pytest.mark.parametrize(
    "change", [{"layout": [1, 3]}, {"shape": [2, 3]}, {"shape": [4, 1]}, {"is_complex": 1}, {"scales": 3}]
)
def test_texts_that_do_not_fit_the_picture_are_refused(change):
    texts = {"layout": [1, 2], "shape": [2, 2], "scales": [1, 1], "is_complex": True, "timestamp": 1}
    for said, fine in ((texts, True), (texts | change, False)):
        info, buffer = PngInfo(), io.BytesIO()
        for key, value in said.items():
            info.add_text(f"edgefirst:{key}", json.dumps(value))
        Image.fromarray(np.zeros((2, 2), np.uint16)).save(buffer, "PNG", pnginfo=info)
        if fine:
            assert decode_cube(buffer.getvalue()).message_shape == (2, 2)
        else:
            with pytest.raises(DatasetError):
                decode_cube(buffer.getvalue())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"timestamp": "1"}, "timestamp '1'"),
        ({"shape": [2, 2.0]}, r"shape \[2, 2.0\]"),
        ({"shape": [-2, -2]}, r"shape \[-2, -2\]"),
        ({"shape": [4, 1], "is_complex": False}, r"layout \[1, 2\] and shape \[4, 1\] for 2 lines"),
        ({"shape": [1, 4]}, r"layout \[1, 2\] and shape \[1, 4\] for 2 lines"),
    ],
)
def test_what_the_texts_say_wrong_is_named(change, told):
    texts = {"layout": [1, 2], "shape": [2, 2], "scales": [1, 1], "is_complex": True, "timestamp": 1}
    info, buffer = PngInfo(), io.BytesIO()
    for key, value in (texts | change).items():
        info.add_text(f"edgefirst:{key}", json.dumps(value))
    Image.fromarray(np.zeros((2, 2), np.uint16)).save(buffer, "PNG", pnginfo=info)
    with pytest.raises(DatasetError, match=told):
        decode_cube(buffer.getvalue())


@settings(max_examples=60)
@given(st.data())
def test_any_damage_is_a_dataset_error_or_nothing(data):
    png = bytearray(encode_cube(message([1, 2], (4, 8), noise(32)), STAMP))
    place = data.draw(st.integers(0, len(png) - 1))
    png[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DatasetError):  # every byte is under a CRC, or signature, length or CRC itself
        decode_cube(bytes(png))
