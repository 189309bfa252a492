# SPDX-License-Identifier: Apache-2.0
"""Grayscale PNG files against Pillow's."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros.sensors.png import PNG_SIGNATURE, decode_gray, encode_gray, is_filled, make_chunk

KINDS = {"bool": np.bool_, "uint8": np.uint8, "uint16": np.uint16}


def values(kind: str, width: int = 37, height: int = 21) -> np.ndarray:
    numbers = np.random.default_rng(7).integers(
        0, 2 if kind == "bool" else np.iinfo(KINDS[kind]).max + 1, (height, width)
    )
    return numbers.astype(KINDS[kind])


def by_pillow(picture: np.ndarray, **more) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", **more)
    return file.getvalue()


def raw(width: int, height: int, bits: int, packed: bytes, *, colour: int = 0, laced: int = 0) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, laced)
    return PNG_SIGNATURE + b"".join(make_chunk(*one) for one in ((b"IHDR", head), (b"IDAT", packed), (b"IEND", b"")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("size", [(37, 21), (1, 1), (8, 3), (1, 9)])
def test_what_pillow_reads_is_what_was_written(kind, smooth, size):
    wanted = values(kind, *size)
    with Image.open(io.BytesIO(encode_gray(wanted, smooth=smooth))) as picture:
        assert picture.mode in {"bool": ("1",), "uint8": ("L",), "uint16": ("I;16", "I")}[kind]
        assert (np.asarray(picture) == wanted).all()


@pytest.mark.parametrize("kind", KINDS)
def test_views_are_written_as_what_they_show(kind):
    wanted = values(kind)[::2, ::-1]
    with Image.open(io.BytesIO(encode_gray(wanted))) as picture:
        assert (np.asarray(picture) == wanted).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("smooth", [False, True])
def test_pictures_of_our_own_and_of_pillow_are_read(kind, smooth):
    wanted = values(kind)
    smoothed = np.sort(wanted, axis=1)  # Pillow chooses other filters for it
    for picture, png in (
        (wanted, encode_gray(wanted, smooth=smooth)),
        (wanted, by_pillow(wanted)),
        (smoothed, by_pillow(smoothed)),
    ):
        found = decode_gray(png)
        assert found.dtype == KINDS[kind]
        assert (found == picture).all()


def test_a_bit_for_each_pixel_and_no_more():
    packed = zlib.compress(b"\0\xa0\0\x5f")  # the bits behind the third pixel mean nothing
    assert decode_gray(raw(3, 2, 1, packed)).tolist() == [[True, False, True], [False, True, False]]


def test_two_and_four_bits_are_read_as_pillow_reads_them():
    for bits, packed in ((2, b"\0\x1b"), (4, b"\0\x0f\xa5")):
        png = raw(4, 1, bits, zlib.compress(packed))
        with Image.open(io.BytesIO(png)) as picture:
            assert (decode_gray(png) == np.asarray(picture)).all()


def test_what_is_no_grayscale_picture_is_none():
    good = zlib.compress(b"\0\1\2\3" * 2)
    assert decode_gray(raw(3, 2, 8, good)).tolist() == [[1, 2, 3]] * 2
    colours = by_pillow(np.zeros((2, 3, 3), np.uint8))
    huge = raw(1 << 14, 1 << 13, 8, zlib.compress(b""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for bad in (b"", b"no picture", colours, huge, raw(3, 2, 8, good)[:40], raw(3, 2, 8, b"nothing packed")):
            assert decode_gray(bad) is None


@pytest.mark.parametrize("cut", [1, 4])
def test_lines_without_their_checksum_are_left_to_pillow(cut, monkeypatch):
    """All values are there, and what shows that they are right (RFC 1950, ADLER32) is not."""
    opened = []
    monkeypatch.setattr(
        Image, "open", lambda *given, plain=Image.open, **more: opened.append(1) or plain(*given, **more)
    )
    good = zlib.compress(b"\0\1\2\3" * 2)
    decode_gray(raw(3, 2, 8, good))
    assert not opened
    decode_gray(raw(3, 2, 8, good[:-cut]))
    assert opened


@pytest.mark.parametrize("lines", [b"\0\1\2\3" + bytes(100), b"\0\1\2\3"])
def test_other_numbers_of_lines_are_left_to_pillow(lines):
    png = raw(3, 2, 8, zlib.compress(lines))
    with Image.open(io.BytesIO(png)) as picture:
        assert (decode_gray(png) == np.asarray(picture)).all()


def test_a_mask_of_as_many_values_as_its_header_says_is_filled():
    """3 x 2 pixels of 8 bits: two lines of a filter and three values."""
    lines = b"\0\1\2\3" * 2
    for packed, filled in (
        (zlib.compress(lines), True),
        (zlib.compress(lines[:-1]), False),
        (zlib.compress(lines + b"\0"), False),
        (b"nothing packed", False),
    ):
        assert is_filled(raw(3, 2, 8, packed)) == filled
    assert is_filled(raw(3, 2, 8, zlib.compress(lines), laced=1))  # of several passes nothing is said
