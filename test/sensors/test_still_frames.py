# SPDX-License-Identifier: Apache-2.0
"""Stills that are decoded, because they are scaled or Bayer patterns: what Pillow reads, and what is refused."""

import io
import struct

import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from PIL import Image
from small_pictures import jpeg, png
from streams import Pictures

from edgefirst_ros.counts import CANNOT_BE_STORED, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture import PictureEncoder, decode_still, make_raw_frame
from edgefirst_ros.sensors.pictures import StillMessage
from edgefirst_ros.sensors.png import PNG_SIGNATURE, make_chunk
from edgefirst_ros.streams import COMPRESSED_IMAGE


def pushed(data, form="whatever", width=None):
    """What becomes of a CompressedImage; `width`: the setting `max_width`."""
    encoder = PictureEncoder("png", 90, max_width=width)
    pictures = Pictures(COMPRESSED_IMAGE, encoder)
    sent = sensor_msgs.CompressedImage(std_msgs.Header(frame_id="camera"), form, np.frombuffer(data, np.uint8))
    pictures.push(0, StillMessage(sent, form))
    return pictures.take(0, last=False)


def filed(image, kind):
    """The bytes of a file of Pillow's image."""
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def test_of_sixteen_bits_of_gray_the_upper_eight_are_shown():
    gray = np.random.default_rng(4).integers(0, 65536, (12, 20), np.uint16)
    file = io.BytesIO()
    Image.fromarray(gray).save(file, "PNG")
    shown = decode_still(file.getvalue()).to_ndarray(format="rgb24")
    assert np.array_equal(shown, np.repeat((gray // 256).astype(np.uint8)[..., np.newaxis], 3, axis=2))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_other_pictures_are_those_of_pillow(form):
    cyan = Image.fromarray(np.random.default_rng(4).integers(0, 256, (12, 20, 4), np.uint8), "CMYK")
    chosen = cyan if form == "JPEG" else cyan.convert("RGB").quantize(16)
    file = io.BytesIO()
    chosen.save(file, form)
    with Image.open(io.BytesIO(file.getvalue())) as read:
        expected = np.asarray(read.convert("RGB"))
    assert np.array_equal(decode_still(file.getvalue()).to_ndarray(format="rgb24"), expected)


def test_pixels_that_cannot_be_unpacked_are_told_where_the_picture_is_scaled():
    """Its structure and its CRCs are whole: nobody sees it before."""
    head = struct.pack(">IIBBBBB", 4, 3, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", b"nothing packed"), (b"IEND", b""))
    broken = PNG_SIGNATURE + b"".join(make_chunk(*chunk) for chunk in chunks)
    assert pushed(broken, width=4).encode() == broken  # it passes through as it is
    refused = pushed(broken, width=2)
    assert isinstance(refused, MessageError)
    assert (refused.reason, "picture: " in str(refused)) == (UNDECODABLE, True)
    assert pushed(png(), width=2).size == (2, 2)  # 4 x 3 pixels, 1.5 lines rounded to the even


def test_a_picture_of_scans_without_end_is_not_decoded():
    """A JPEG of a million pixels, and behind its end what a decoder of progressive pictures would run through."""
    file = io.BytesIO()
    Image.new("L", (1024, 1024), 77).save(file, "JPEG")
    begins = 2047  # 2048 scans with its own: 1 << 31 pixels
    assert decode_still(file.getvalue() + begins * b"\xff\xda").width == 1024
    with pytest.raises(MessageError, match="picture of 2049 scans"):
        decode_still(file.getvalue() + (begins + 1) * b"\xff\xda")


def test_a_jpeg_of_another_kind_than_its_head_says_is_refused():
    whole = jpeg()
    arithmetic = whole.replace(b"\xff\xc0", b"\xff\xcb", 1)  # lossless and arithmetic: nobody decodes it
    with pytest.raises(MessageError, match="undecodable"):
        decode_still(arithmetic)


BAYER = [f"bayer_{order}" for order in ("rggb", "bggr", "gbrg", "grbg")]


@pytest.mark.parametrize("encoding", BAYER)
@pytest.mark.parametrize("form", ["{0}8; jpeg compressed ", "{0}8; jpeg compressed {0}8", "{0}8; png compressed ",
                                  "{0}16; png compressed "])  # fmt: skip
def test_a_compressed_bayer_pattern_becomes_a_picture_in_colour(encoding, form):
    """image_transport compresses the pattern as it is, in gray: of ROS 1 as both, of ROS 2 as PNG."""
    pattern = np.random.default_rng(4).integers(0, 256, (12, 20), np.uint8)
    values = pattern.astype(np.uint16) << 8 if "16" in form else pattern
    data = filed(Image.fromarray(values), "PNG" if "png" in form else "JPEG")
    if "jpeg" in form:
        pattern = np.asarray(Image.open(io.BytesIO(data)))
    raw = sensor_msgs.Image(std_msgs.Header(), 12, 20, f"{encoding}8", 0, 20, pattern.tobytes())
    shown = pushed(data, form.format(encoding)).encode()
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(shown))), make_raw_frame(raw).to_ndarray(format="rgb24"))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_picture_that_was_made_of_a_bayer_pattern_passes_through(mode):
    """image_transport of ROS 2 makes a JPEG of gray, other programs one in colour."""
    data = filed(Image.new(mode, (20, 12), 77), "JPEG")
    assert pushed(data, f"bayer_rggb8; jpeg compressed {'mono8' if mode == 'L' else 'bgr8'}").encode() == data


def test_a_compressed_bayer_pattern_of_an_odd_size_is_refused():
    refused = pushed(filed(Image.new("L", (19, 12)), "PNG"), "bayer_rggb8; png compressed ")
    assert isinstance(refused, MessageError)
    assert refused.reason == CANNOT_BE_STORED
