# SPDX-License-Identifier: Apache-2.0
"""Stills that are decoded, because they are scaled: what Pillow reads, and what is refused."""

import io
import struct

import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from PIL import Image
from small_pictures import jpeg, png
from streams import Pictures

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture import PictureEncoder, still_frame
from edgefirst_ros.sensors.png import PNG_SIGNATURE, png_chunk
from edgefirst_ros.streams import COMPRESSED_IMAGE


def scaled(data, width):
    """What becomes of a CompressedImage with `max_width`."""
    encoder = PictureEncoder("png", 90, max_width=width)
    pictures = Pictures(COMPRESSED_IMAGE, encoder)
    header = std_msgs.Header(frame_id="camera")
    pictures.push(0, sensor_msgs.CompressedImage(header, "whatever", np.frombuffer(data, np.uint8)))
    return pictures.take(0, last=False)


def test_of_sixteen_bits_of_gray_the_upper_eight_are_shown():
    gray = np.random.default_rng(4).integers(0, 65536, (12, 20), np.uint16)
    file = io.BytesIO()
    Image.fromarray(gray).save(file, "PNG")
    shown = still_frame(file.getvalue()).to_ndarray(format="rgb24")
    assert np.array_equal(shown, np.repeat((gray // 256).astype(np.uint8)[..., np.newaxis], 3, axis=2))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_other_pictures_are_those_of_pillow(form):
    cyan = Image.fromarray(np.random.default_rng(4).integers(0, 256, (12, 20, 4), np.uint8), "CMYK")
    chosen = cyan if form == "JPEG" else cyan.convert("RGB").quantize(16)
    file = io.BytesIO()
    chosen.save(file, form)
    with Image.open(io.BytesIO(file.getvalue())) as read:
        expected = np.asarray(read.convert("RGB"))
    assert np.array_equal(still_frame(file.getvalue()).to_ndarray(format="rgb24"), expected)


def test_pixels_that_cannot_be_unpacked_are_told_where_the_picture_is_scaled():
    """Its structure and its CRCs are whole: nobody sees it before."""
    head = struct.pack(">IIBBBBB", 4, 3, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", b"nothing packed"), (b"IEND", b""))
    broken = PNG_SIGNATURE + b"".join(png_chunk(*chunk) for chunk in chunks)
    assert scaled(broken, 4).encode() == broken  # it passes through as it is
    refused = scaled(broken, 2)
    assert isinstance(refused, MessageError)
    assert (refused.reason, "picture: " in str(refused)) == (UNDECODABLE, True)
    assert scaled(png(), 2).size == (2, 2)  # 4 x 3 pixels, 1.5 lines rounded to the even


def test_a_picture_of_scans_without_end_is_not_decoded():
    """A JPEG of a million pixels, and behind its end what a decoder of progressive pictures would run through."""
    file = io.BytesIO()
    Image.new("L", (1024, 1024), 77).save(file, "JPEG")
    begins = 2047  # 2048 scans with its own: 1 << 31 pixels
    assert still_frame(file.getvalue() + begins * b"\xff\xda").width == 1024
    with pytest.raises(MessageError, match="picture of 2049 scans"):
        still_frame(file.getvalue() + (begins + 1) * b"\xff\xda")


def test_a_jpeg_of_another_kind_than_its_head_says_is_refused():
    whole = jpeg()
    arithmetic = whole.replace(b"\xff\xc0", b"\xff\xcb", 1)  # lossless and arithmetic: nobody decodes it
    with pytest.raises(MessageError, match="undecodable"):
        still_frame(arithmetic)
