# SPDX-License-Identifier: Apache-2.0
"""Radar cubes for roverd: only pictures that can be made again byte by byte are taken."""

import json
import struct
import zlib

import numpy as np
import pytest
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, std_msgs

from edgefirst_ros.export.roverd.cubes import read_cube, write_cube
from edgefirst_ros.sensors.cube import encode_cube
from edgefirst_ros.sensors.picture_file import PNG_SIGNATURE, png_chunk, png_chunks

STAMP = 1_700_000_000_123_456_789


def recorded(layout, shape, *, is_complex, scales=None):
    """A message as the device sends it."""
    values = np.random.default_rng(5).normal(0, 300, shape).astype("<i2")
    return edgefirst_msgs.RadarCube(
        std_msgs.Header(builtin_interfaces.Time(1_700_000_000, 123_456_789), "radar"),
        0,
        bytes(layout),
        np.array(shape, "<u2").tobytes(),
        np.array(scales or [np.nan] * len(shape), "<f4").tobytes(),
        values.tobytes(),
        is_complex=is_complex,
    )


@pytest.mark.parametrize(
    ("layout", "shape", "is_complex"),
    [
        ((6, 1, 5, 2), (2, 8, 4, 32), True),
        ((6, 1, 5, 2), (1, 8, 4, 16), False),
        ((5, 2, 1, 6), (4, 16, 8, 4), True),
        ((1, 2), (8, 17), False),
    ],
)
def test_pictures_of_messages_come_back_byte_by_byte(layout, shape, is_complex):
    scales = [1.0, 0.117, float("nan"), 0.0628][: len(shape)]
    png = encode_cube(recorded(layout, shape, is_complex=is_complex, scales=scales), STAMP)
    cube = read_cube(png)
    assert cube is not None
    assert (cube.layout, cube.shape, cube.timestamp) == (layout, shape, STAMP)
    assert write_cube(cube) == png


def with_chunks(png, change):
    """The picture with what `change` makes of each chunk."""
    chunks = [(kind, change(kind, bytes(body))) for kind, body in png_chunks(png)]
    return PNG_SIGNATURE + b"".join(png_chunk(kind, body) for kind, body in chunks)


def test_pictures_with_the_same_pixels_in_other_bytes_are_not_taken():
    png = encode_cube(recorded((6, 1, 5, 2), (2, 8, 4, 32), is_complex=True), STAMP)
    assert read_cube(with_chunks(png, lambda kind, body: body)) is not None

    def packed(kind, body):
        return zlib.compress(zlib.decompress(body), 9) if kind == b"IDAT" else body

    def spaced(kind, body):
        return body.replace(b", ", b",") if kind == b"tEXt" else body

    for change in (packed, spaced):
        assert read_cube(with_chunks(png, change)) is None
    assert read_cube(png + b"\0") is None
    assert read_cube(png[:-1]) is None


def test_an_axis_that_no_message_can_have_is_not_taken():
    width = 70_000
    said = {"layout": [1, 2], "shape": [1, width], "scales": [None] * 2, "is_complex": False, "timestamp": STAMP}
    texts = [(b"tEXt", f"edgefirst:{key}".encode() + b"\0" + json.dumps(value).encode()) for key, value in said.items()]
    lines = zlib.compress(b"\1" + bytes(2 * width))
    head = (b"IHDR", struct.pack(">IIBBBBB", width, 1, 16, 0, 0, 0, 0))
    chunks = (head, *texts, (b"IDAT", lines), (b"IEND", b""))
    assert read_cube(PNG_SIGNATURE + b"".join(png_chunk(*chunk) for chunk in chunks)) is None
