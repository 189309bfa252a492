# SPDX-License-Identifier: Apache-2.0
"""Structure of picture files against what libjpeg, Pillow and zlib make."""

from __future__ import annotations

import io
import struct
import zlib
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_pictures import jpeg, png

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.jpeg import check_jpeg, iter_segments, read_jpeg_size
from edgefirst_ros.sensors.png import check_png, iter_chunks, make_chunk


def segments(data):
    """Walk by hand: marker and bytes up to the scan."""
    found, position = [], 2
    while True:
        marker, length = data[position + 1], struct.unpack_from(">H", data, position + 2)[0]
        found.append((marker, data[position : position + 2 + length]))
        position += 2 + length
        if marker == 0xDA:
            return found, data[position:]


def test_sizes():
    for options in ({}, {"progressive": True}, {"subsampling": 2}, {"quality": 5}):
        data = jpeg(**options)
        assert read_jpeg_size(data) == check_jpeg(data) == check_jpeg(data + bytes(70_000)) == (64, 48)
    assert check_png(png()) == (4, 3)


def test_every_truncation_is_seen():
    for data, check in ((jpeg(), check_jpeg), (png(), check_png)):
        for end in range(len(data)):
            with pytest.raises(MessageError, match="undecodable"):
                check(data[:end])


def test_what_no_decoder_takes_is_seen():
    """Bytes changed among the coded pixels, wherever Pillow gives up; and nothing of what encoders make."""
    pixels = np.random.default_rng(1).integers(0, 256, (96, 128, 3), np.uint8)
    random, refused = Random(1), 0
    for options in ({}, {"progressive": True}, {"restart_marker_rows": 1}, {"quality": 100, "optimize": True}):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", **options)
        whole = file.getvalue()
        assert check_jpeg(whole) == check_jpeg(whole[:-2] + b"\xff" + whole[-2:]) == (128, 96)
        first = whole.rindex(b"\xff\xda") + 14  # a table that is changed is not seen
        for _ in range(200):
            place, length = random.randrange(first, len(whole) - 300), random.choice([1, 30, 300])
            damaged = whole[:place] + random.randbytes(length) + whole[place + length :]
            try:
                Image.open(io.BytesIO(damaged)).load()
            except OSError:
                refused += 1
                with pytest.raises(MessageError, match="undecodable"):
                    check_jpeg(damaged)
    assert refused > 50


def test_what_may_stand_between_scans():
    whole = jpeg(progressive=True)
    second = whole.index(b"\xff\xda", whole.index(b"\xff\xda") + 2)
    for kind, taken in ((0xCC, 1), (0xDD, 1), (0xEF, 1), (0xFE, 900), (0xFE, 2000), (0xC9, 1), (0x01, 1)):
        more = b"\xff" + bytes((kind,)) + b"\x00\x03\xff"
        data = whole[:second] + more * taken + whole[second:]
        if taken < 1000 and kind not in (0xC9, 0x01):
            assert check_jpeg(data) == (64, 48)
        else:
            with pytest.raises(MessageError, match="undecodable"):
                check_jpeg(data)


def test_every_flipped_bit_of_a_png_is_seen():
    data = png()
    for n in range(len(data)):
        with pytest.raises(MessageError):
            check_png(data[:n] + bytes((data[n] ^ 4,)) + data[n + 1 :])


def _without(data, marker):
    kept = b"".join(body for found, body in segments(data)[0] if found != marker)
    return data[:2] + kept + segments(data)[1]


@pytest.mark.parametrize("marker", [0xDB, 0xC0, 0xDA])
def test_missing_segments_are_seen(marker):
    with pytest.raises(MessageError, match="undecodable"):
        check_jpeg(_without(jpeg(), marker))
    assert check_jpeg(_without(jpeg(), 0xE0)) == (64, 48)


def test_frames_of_no_size_are_refused():
    data = bytearray(jpeg())
    place = data.index(b"\xff\xc0")
    data[place + 5 : place + 7] = b"\0\0"
    with pytest.raises(MessageError):
        read_jpeg_size(data)
    header = struct.pack(">I4sIIBBBBB", 13, b"IHDR", 2**31 - 1, 1, 8, 0, 0, 0, 0)
    hostile = b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", zlib.crc32(header[4:])) + png()[33:]
    with pytest.raises(MessageError):
        check_png(hostile)


def test_bytes_that_fill_up_before_a_marker_are_passed_over():
    """Source: ITU-T T.81, B.1.1.2: any marker may optionally be preceded by any number of fill bytes."""
    whole = jpeg()
    head, behind = segments(whole)
    filled = whole[:2] + b"".join(b"\xff" * n + body for n, (_, body) in enumerate(head)) + behind
    assert read_jpeg_size(filled) == check_jpeg(filled) == Image.open(io.BytesIO(filled)).size == (64, 48)
    assert [marker for marker, _, _ in iter_segments(filled)] == [marker for marker, _ in head]


@pytest.mark.parametrize("components", [0, 2, 4])
def test_a_frame_header_has_three_bytes_for_each_component(components):
    data = bytearray(jpeg())
    data[data.index(b"\xff\xc0") + 9] = components  # there are three
    for reader in (read_jpeg_size, check_jpeg):
        with pytest.raises(MessageError, match="frame header of 15 bytes"):
            reader(bytes(data))


def test_a_jpeg_without_a_frame_header_has_no_size():
    with pytest.raises(MessageError, match="without a frame header"):
        read_jpeg_size(_without(jpeg(), 0xC0))


@settings(max_examples=150)
@given(st.data())
def test_damage_is_a_message_error_or_nothing(data):
    source = bytearray(jpeg())
    for _ in range(data.draw(st.integers(1, 4))):
        source[data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    for reader in (
        check_jpeg,
        read_jpeg_size,
        lambda d: list(iter_segments(d)),
        check_png,
        lambda d: list(iter_chunks(d)),
    ):
        try:
            reader(bytes(source))
        except MessageError:
            continue


@given(st.sampled_from([b"IDAT", b"tEXt"]), st.binary(max_size=300))
def test_chunks(kind, body):
    made = make_chunk(kind, body)
    assert made == struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    whole = png()
    inserted = whole[:33] + made + whole[33:]
    assert [(k, bytes(b)) for k, b in iter_chunks(inserted)][1] == (kind, body)
    assert [k for k, _ in iter_chunks(whole)] == [b"IHDR", b"IDAT", b"IEND"]


def test_a_jpeg_that_ends_in_the_header_of_its_scan_is_cut():
    data = io.BytesIO()
    Image.new("RGB", (32, 16)).save(data, "JPEG")
    whole = data.getvalue()
    scan = whole.index(b"\xff\xda")
    (length,) = struct.unpack(">H", whole[scan + 2 : scan + 4])
    assert check_jpeg(whole) == (32, 16)
    for end in range(scan + 4, scan + 2 + length):
        with pytest.raises(MessageError, match="is broken or cut"):
            check_jpeg(whole[:end])
