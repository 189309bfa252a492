# SPDX-License-Identifier: Apache-2.0
import io

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from streams import read_bar_code

from edgefirst_ros.synthetic.picture import draw_bar_code

SIZES = st.sampled_from([(320, 180), (640, 360), (641, 363), (1280, 720), (1920, 1080)])


def blank(size, value=128):
    return np.full((size[1], size[0], 3), value, dtype=np.uint8)


@settings(max_examples=30)
@given(st.integers(0, 2**24 - 1), SIZES, st.integers(30, 95))
def test_survives_jpeg_with_subsampled_colour(index, size, quality):
    rgb = blank(size)
    draw_bar_code(rgb, index)
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
    assert read_bar_code(np.asarray(Image.open(buffer))) == index


def test_survives_noise_and_another_jpeg_codec():
    rng = np.random.default_rng(1)
    for index in (0, 1, 77, 18_000, 2**24 - 1):
        rgb = blank((320, 180))
        draw_bar_code(rgb, index)
        noisy = (rgb + rng.normal(0, 10, rgb.shape)).clip(0, 255).astype(np.uint8)
        assert read_bar_code(simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(noisy, quality=60))) == index


@pytest.mark.parametrize("value", [0, 128, 255])
def test_no_bar_code_is_none(value):
    assert read_bar_code(blank((320, 180), value)) is None
    assert read_bar_code(np.random.default_rng(0).integers(0, 256, (180, 320, 3), dtype=np.uint8)) is None
    assert read_bar_code(np.zeros((8, 16, 3), dtype=np.uint8)) is None


def test_a_picture_put_together_from_two_is_refused():
    """Left half of one bar code, right half of another: six bits of checksum let about one in 64 pass."""
    passed = 0
    for index in range(0, 2**24, 2**17 + 1001):
        first, second = blank((640, 360)), blank((640, 360))
        draw_bar_code(first, index)
        draw_bar_code(second, index ^ 0xFFFFFF)
        first[:, 320:] = second[:, 320:]
        passed += read_bar_code(first) is not None
    assert passed < 12  # of 127


def test_rows_above_the_bar_are_untouched():
    rgb = blank((640, 360))
    draw_bar_code(rgb, 12345)
    assert (rgb[: 360 - 30] == 128).all()
    # White guard, 24 bits of 12345 highest first, by hand: 12345 = 0b11000000111001.
    centres = rgb[350, 10::20, 0] > 128
    assert "".join("01"[int(bit)] for bit in centres)[:25] == "1" + f"{12345:024b}"
