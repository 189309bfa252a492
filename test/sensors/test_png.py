# SPDX-License-Identifier: Apache-2.0
"""PNG files against zlib itself, which is what makes their bytes the same everywhere."""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgefirst_ros.sensors.png import NONE, RGB, SUB, UP, deflate, encode_gray, encode_png, filter_lines

THREADS = 300
SIZES = ((1, 1), (1, 700), (700, 1), (480, 640), (2, 70_000))


def by_zlib(data: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return packer.compress(data) + packer.flush()


def packed(png: bytes) -> list[bytes]:
    """What the IDAT chunks hold."""
    found, position = [], 8
    while position < len(png):
        length, kind = struct.unpack_from(">I4s", png, position)
        if kind == b"IDAT":
            found.append(png[position + 8 : position + 8 + length])
        position += 12 + length
    return found


def check(png: bytes) -> None:
    [idat] = packed(png)
    assert idat == by_zlib(zlib.decompress(idat))


def pictures(height: int, width: int) -> Iterator[np.ndarray]:
    """Constant, random, smooth, and labels: bool, uint8 and uint16."""
    random = np.random.default_rng(height * width)
    for kind in (np.bool_, np.uint8, np.uint16):
        top = 1 if kind is np.bool_ else np.iinfo(kind).max
        yield np.zeros((height, width), kind)
        yield np.full((height, width), top, kind)
        yield random.integers(0, top + 1, (height, width)).astype(kind)
        yield np.sort(random.integers(0, top + 1, (height, width)), axis=1).astype(kind)
        yield (random.normal(0, 3, (height, width)) // 5 % (top + 1)).astype(kind)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("smooth", [False, True])
def test_pictures_are_packed_as_zlib_packs_them(size, smooth):
    for picture in pictures(*size):
        check(encode_gray(picture, smooth=smooth))


@given(st.binary(min_size=1, max_size=400), st.integers(1, 400), st.integers(0, 60_000))
def test_any_bytes_are_packed_as_zlib_packs_them(piece, times, noise):
    data = piece * times + np.random.default_rng(noise).bytes(noise)
    assert deflate(data) == by_zlib(data)


def test_threads_make_the_same_bytes_wherever_their_stacks_lie():
    """What hashes an address gives other bytes in some threads of many that live at once."""
    data, found, started = bytes(range(64)) * 2, set(), threading.Barrier(THREADS)

    def work() -> None:
        started.wait(60)
        found.add(deflate(data))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {by_zlib(data)}


@pytest.mark.parametrize("kind", [NONE, SUB, UP])
@pytest.mark.parametrize("size", [(1, 1), (1, 5), (9, 1), (30, 41)])
def test_every_filter_is_read_back(kind, size):
    rgb = np.random.default_rng(3).integers(0, 256, (*size, 3), np.uint8)
    png = encode_png(filter_lines(rgb.reshape(size[0], -1), kind, 3), size[1], 8, RGB, [("said", "§")])
    with Image.open(io.BytesIO(png)) as picture:
        assert np.array_equal(np.asarray(picture), rgb)
        assert picture.text == {"said": "§"}
