# SPDX-License-Identifier: Apache-2.0
"""Depth and reflectivity as Pillow and OpenCV read them."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from PIL import Image

from edgefirst_ros.config import Settings
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.companions import check_storable, decode_depth, decode_reflect, encode


def encode_depth(image):
    return encode("lidar.depth", image, 0, Settings())[0]


def encode_reflect(image):
    return encode("lidar.reflect", image, 0, Settings())[0]


def message(encoding, array, padding=0, big=False, **values):
    lines = array.astype(array.dtype.newbyteorder(">" if big else "<")).view(np.uint8).reshape(len(array), -1)
    data = np.pad(lines, ((0, 0), (0, padding)), constant_values=77)
    fields = {"height": array.shape[0], "width": array.shape[1], "step": data.shape[1], "data": data.reshape(-1)}
    fields |= values
    return sensor_msgs.Image(
        std_msgs.Header(frame_id="lidar"), fields["height"], fields["width"], encoding, int(big), fields["step"],
        fields["data"],
    )  # fmt: skip


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("big", [False, True])
def test_depth_is_exact(padding, big):
    depth = np.random.default_rng(1).integers(0, 65536, (33, 47), np.uint16)
    depth[0, :2] = 0, 65535
    image = message("mono16", depth, padding, big)
    check_storable("lidar.depth", image)
    png = encode_depth(image)
    assert np.array_equal(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_UNCHANGED), depth)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), depth)
    assert png[24:26] == b"\x10\0"  # 16 bits, grayscale
    assert np.array_equal(decode_depth(png), depth)


@pytest.mark.parametrize("padding", [0, 5])
def test_reflectivity(padding):
    values = cv2.resize(np.random.default_rng(2).integers(0, 256, (6, 9), np.uint8), (90, 61))
    image = message("mono8", values, padding)
    check_storable("lidar.reflect", image)
    found = Image.open(io.BytesIO(encode_reflect(image)))
    assert (found.mode, found.size) == ("L", (90, 61))
    assert np.mean((np.asarray(found, float) - values) ** 2) < 4
    assert np.array_equal(decode_reflect(encode_reflect(image)), np.asarray(found))


def test_a_file_that_is_cut_or_of_another_form_cannot_be_decoded():
    png = encode_depth(message("mono16", np.ones((3, 8), np.uint16)))
    jpeg = encode_reflect(message("mono8", np.ones((3, 8), np.uint8)))
    for decode, data in ((decode_depth, png[:-20]), (decode_depth, jpeg), (decode_reflect, jpeg[:-2])):
        with pytest.raises(MessageError):
            decode(data)


def test_a_jpeg_that_names_a_table_it_has_not_cannot_be_decoded():
    """Its structure is whole: segments, scan and end."""
    jpeg = bytearray(encode_reflect(message("mono8", np.ones((8, 8), np.uint8))))
    frame = jpeg.index(b"\xff\xc0")
    assert jpeg[frame + 12] == 0  # Tq of the first component.  Source: ITU-T T.81, B.2.2
    jpeg[frame + 12] = 3
    with pytest.raises(MessageError, match="not a readable JPEG"):
        decode_reflect(bytes(jpeg))


@pytest.mark.parametrize(
    "values",
    [{"step": 7}, {"width": 0}, {"height": 0, "data": np.empty(0, np.uint8)}, {"height": 4}, {"width": 2**31},
     {"data": np.zeros(23, np.uint8)}],
    ids=str,
)  # fmt: skip
def test_what_is_short_is_refused(values):
    for sensor, encoding, kind in (("lidar.depth", "mono16", np.uint16), ("lidar.reflect", "mono8", np.uint8)):
        image = message(encoding, np.zeros((3, 8 // kind().itemsize), kind), **values)
        with pytest.raises(MessageError, match="cannot be stored"):
            check_storable(sensor, image)


def test_other_encodings_are_refused():
    with pytest.raises(MessageError, match="mono16"):
        check_storable("lidar.depth", message("mono8", np.zeros((3, 4), np.uint8)))
    with pytest.raises(MessageError, match="mono8"):
        encode_reflect(message("mono16", np.zeros((3, 4), np.uint16)))
