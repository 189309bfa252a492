# SPDX-License-Identifier: Apache-2.0
"""EXIF against Pillow."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from small_pictures import jpeg, png

from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png, read_exif, rename_exif

STAMP = 1_533_226_520_123_456_789  # 2018-08-02 16:15:20.123456789 UTC
INFO = ExifInfo("verdin_2018_08_02_16_15_20", 7, STAMP, "verdin", "edgefirst_ros 1.0")


def with_exif(info, picture=None):
    picture = jpeg() if picture is None else picture
    return b"".join((insert_png if picture[:1] == b"\x89" else insert_jpeg)(picture, encode_exif(info)))


def tags(info, picture=None):
    exif = Image.open(io.BytesIO(with_exif(info, picture))).getexif()
    return dict(exif), exif.get_ifd(0x8769), exif.get_ifd(0x8825)


def segments(data):
    """Walk by hand: marker and bytes up to the scan."""
    found, position = [], 2
    while True:
        marker, length = data[position + 1], struct.unpack_from(">H", data, position + 2)[0]
        found.append((marker, data[position : position + 2 + length]))
        position += 2 + length
        if marker == 0xDA:
            return found, data[position:]


@pytest.mark.parametrize("picture", [jpeg(), png()])
def test_all_tags_as_pillow_reads_them(picture):
    info = dataclasses.replace(
        INFO, latitude=-48.5, longitude=11.25, altitude=-3.5, error=1.25, heading=370.5, focal_35mm=24
    )
    main, exif, gps = tags(info, picture)
    assert (main[0x010F], main[0x0110], main[0x0131]) == ("EdgeFirst", "verdin", "edgefirst_ros 1.0")
    assert (exif[0x9003], exif[0x9291], exif[0x9011]) == ("2018:08:02 16:15:20", "123456789", "+00:00")
    assert exif[0xA405] == 24
    assert exif[0x9286][:8] == b"ASCII\0\0\0"
    assert json.loads(exif[0x9286][8:]) == {"sequence": INFO.sequence, "frame": 7, "timestamp_ns": STAMP}
    assert (gps[0], gps[1], gps[3], gps[16], gps[18]) == (b"\2\3\0\0", "S", "E", "T", "WGS-84")
    assert (gps[2], gps[4]) == ((48, 30, 0), (11, 15, 0))
    assert (gps[5], gps[6], gps[31], gps[17]) == (b"\1", 3.5, 1.25, 10.5)
    assert (gps[29], gps[7][:2]) == ("2018:08:02", (16, 15))
    assert float(gps[7][2]) == pytest.approx(20.1234567, abs=2e-7)
    assert gps[2][2].denominator >= 100_000


def test_no_position_no_gps_tags():
    main, exif, gps = tags(dataclasses.replace(INFO, altitude=5.0, error=1.0, heading=3.0))
    assert gps == {}
    assert 0x8825 not in main
    assert set(exif) == {0x9000, 0x9003, 0x9011, 0x9286, 0x9291}


def test_unknown_or_unfit_numbers_are_left_out():
    base = dataclasses.replace(INFO, latitude=1.0, longitude=1.0)
    assert {5, 6, 17, 31}.isdisjoint(tags(base)[2])
    odd = dataclasses.replace(base, altitude=float("nan"), error=float("inf"), heading=float("nan"), focal_35mm=0)
    assert {5, 6, 16, 17, 31}.isdisjoint(tags(odd)[2])
    assert 0xA405 not in tags(dataclasses.replace(base, focal_35mm=65536))[1]
    assert tags(dataclasses.replace(base, altitude=1e7))[2][6] == 1e7
    assert 6 not in tags(dataclasses.replace(base, altitude=5e9))[2]
    assert tags(dataclasses.replace(base, error=0.0))[2][31] == 0


@pytest.mark.parametrize(
    ("angle", "parts"),
    [
        (180.0, (180, 0, 0)),
        (59.9999999999999, (60, 0, 0)),
        (10 + 59.99999999999 / 3600, (10, 1, 0)),
        (0.5 / 3600, (0, 0, 0.5)),
        (1e-13, (0, 0, 0)),
    ],
)
def test_rounding_carries(angle, parts):
    for sign, reference in ((1, "E"), (-1, "W")):
        gps = tags(dataclasses.replace(INFO, latitude=0.0, longitude=sign * angle))[2]
        assert (gps[3], gps[4]) == (reference, parts)


@settings(max_examples=60)
@given(st.floats(-90, 90), st.floats(-180, 180), st.floats(-1000, 9000), st.integers(-(2**31) * 10**9, 2**32 * 10**9))
def test_what_is_written_is_read(latitude, longitude, altitude, stamp):
    info = dataclasses.replace(INFO, stamp=stamp, latitude=latitude, longitude=longitude, altitude=altitude)
    picture = with_exif(info)
    found = read_exif(picture)
    longer = b"".join(insert_jpeg(jpeg(), encode_exif(info) + bytes(2)))
    assert read_exif(longer) == found  # which Pillow reads: we do not end EXIF so
    assert (found.sequence, found.frame, found.stamp) == (info.sequence, 7, stamp)
    assert found.latitude == pytest.approx(latitude, abs=2e-11)
    assert found.longitude == pytest.approx(longitude, abs=2e-11)
    assert found.altitude == pytest.approx(altitude, abs=6e-4)
    exif = Image.open(io.BytesIO(picture)).getexif().get_ifd(0x8769)
    assert int(exif[0x9291]) == stamp % 10**9
    seconds = np.datetime64(exif[0x9003].replace(":", "-", 2).replace(" ", "T"), "s").astype(np.int64)
    assert seconds == stamp // 10**9


def test_what_is_written_is_read_without_pillow(monkeypatch):
    """It takes ten times as long, and the pictures of a dataset are read by the thousand."""
    monkeypatch.setitem(sys.modules, "PIL.TiffImagePlugin", None)
    for info in (INFO, dataclasses.replace(INFO, latitude=48.5, longitude=-11.25)):
        found = read_exif(with_exif(info))
        assert (found.sequence, found.frame, found.stamp) == (INFO.sequence, 7, STAMP)
        assert (found.latitude, found.longitude) == (info.latitude, info.longitude)


def test_stamps_of_other_writers():
    exif = Image.Exif()
    exif.get_ifd(0x8769).update(
        {0x9003: "2018:08:02 18:15:20", 0x9011: "+02:00", 0x9291: "5", 0x9286: b"ASCII\0\0\0hello"}
    )
    found = read_exif(jpeg(exif=exif))
    assert found.stamp == 1_533_226_520_500_000_000
    assert (found.sequence, found.latitude) == (None, None)
    assert read_exif(jpeg()).stamp is None


def test_names_that_are_not_ascii():
    info = dataclasses.replace(INFO, sequence='größe\n"x"', host="bä\0r")
    picture = with_exif(info)
    assert read_exif(picture).sequence == info.sequence
    assert Image.open(io.BytesIO(picture)).getexif()[0x0110] == "b\\xe4r"


def test_what_does_not_fit_is_an_error():
    with pytest.raises(DatasetError):
        encode_exif(dataclasses.replace(INFO, sequence="x" * 70_000))
    with pytest.raises(DatasetError):
        encode_exif(dataclasses.replace(INFO, stamp=10**30))
    assert len(segments(with_exif(dataclasses.replace(INFO, sequence="x" * 65_000)))[0]) > 3


def test_jpeg_keeps_all_but_app1():
    other = Image.Exif()
    other[0x010F] = "other"
    source = jpeg(exif=other, icc_profile=b"profile" * 9, comment=b"a comment")
    assert 0xE1 in [marker for marker, _ in segments(source)[0]]
    xmp = b"\xff\xe1\x00\x09http://"
    source = source[:2] + segments(source)[0][0][1] + xmp + source[2 + len(segments(source)[0][0][1]) :]
    made = with_exif(INFO, source)
    before, after = segments(source), segments(made)
    assert [marker for marker, _ in after[0][:2]] == [0xE0, 0xE1]
    assert [marker for marker, _ in after[0]].count(0xE1) == 1
    assert [s for s in before[0] if s[0] != 0xE1] == [s for s in after[0] if s[0] != 0xE1]
    assert before[1] == after[1]
    pixels = [np.asarray(Image.open(io.BytesIO(data))) for data in (source, made)]
    assert np.array_equal(*pixels)


def test_jpeg_without_app0_and_with_app1_behind_the_tables():
    source = jpeg()
    app0 = segments(source)[0][0][1]
    assert app0[:2] == b"\xff\xe0"
    bare = source[:2] + source[2 + len(app0) :]
    assert segments(with_exif(INFO, bare))[0][0][0] == 0xE1
    late = b"\xff\xe1\x00\x06late"
    place = bare.index(b"\xff\xc0")
    bare = bare[:place] + late + bare[place:]
    assert with_exif(INFO, bare).endswith(bare[2:])


def test_a_jpeg_of_a_webcam_gets_the_huffman_tables_that_it_leaves_out():
    """Those of MJPG are understood; usb_cam and gscam publish its frames as they are."""
    whole = jpeg()
    tables = [data for marker, data in segments(whole)[0] if marker == 0xC4]
    assert len(tables) == 4
    bare = whole
    for data in tables:
        bare = bare.replace(data, b"")
    made = with_exif(INFO, bare)
    assert [data for marker, data in segments(made)[0] if marker == 0xC4] == tables
    assert made.endswith(bare[bare.index(b"\xff\xdb") :])
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(made))), np.asarray(Image.open(io.BytesIO(whole))))


def test_the_scan_is_not_copied():
    source = jpeg()
    parts = insert_jpeg(source, encode_exif(INFO))
    assert np.shares_memory(np.frombuffer(parts[-1], np.uint8), np.frombuffer(source, np.uint8))


def test_png_keeps_all_but_exif():
    info = PngInfo()
    info.add_text("edgefirst:layout", "[1]")
    source = png(pnginfo=info)
    once = with_exif(INFO, source)
    assert with_exif(
        dataclasses.replace(INFO, frame=8), with_exif(dataclasses.replace(INFO, frame=9), source)
    ) == with_exif(dataclasses.replace(INFO, frame=8), source)
    place = once.index(b"eXIf") - 4
    length = struct.unpack_from(">I", once, place)[0] + 12
    assert once[:place] + once[place + length :] == source
    assert Image.open(io.BytesIO(once)).text == {"edgefirst:layout": "[1]"}


@settings(max_examples=150)
@given(st.data())
def test_damage_is_a_message_error_or_nothing(data):
    source = bytearray(with_exif(dataclasses.replace(INFO, latitude=1.0, longitude=2.0)))
    for _ in range(data.draw(st.integers(1, 4))):
        source[data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    for reader in (read_exif, lambda d: insert_jpeg(d, b"")):
        try:
            reader(bytes(source))
        except MessageError:
            continue


# ---- made to harm ------------------------------------------------------------------------------
def tiff_of(entries, heap=b""):
    """A big-endian TIFF of one directory: (tag, type, count, 4 bytes of value or offset). TIFF 6.0, section 2."""
    directory = struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHI4s", *entry) for entry in entries)
    return b"MM\0\x2a\0\0\0\x08" + directory + bytes(4) + heap


def pointed(entries, heap):
    """The same, where a value of None lies in the heap."""
    at = (8 + 2 + 12 * len(entries) + 4).to_bytes(4, "big")
    return tiff_of([(*entry[:3], at if entry[3] is None else entry[3]) for entry in entries], heap)


PLACED = dataclasses.replace(INFO, latitude=1.0, longitude=2.0)
POINTERS = ((0x8769, 4), (0x8825, 4))


def test_many_tags_of_one_long_value_take_little_memory():
    """2,000 tags in 60 KB, each of 5,000 rationals: they would be ten million numbers, and are 80 MB of bytes."""
    payload = pointed([(1000 + n, 5, 5000, None) for n in range(2000)], bytes(40_000))
    assert len(payload) <= 0xFFFF
    hostile = b"".join(insert_jpeg(jpeg(), payload))
    tracemalloc.start()
    with contextlib.suppress(MessageError):  # newer versions of Pillow refuse it
        assert read_exif(hostile).stamp is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 27


def test_positions_of_no_number_are_none():
    """Longitude and altitude by 0; latitude of no parts."""
    at = 8 + 2 + 12 + 4
    directory = [(2, 5, 0, bytes(4)), (4, 5, 3, None), (6, 5, 1, None)]
    values = at + 2 + 12 * len(directory) + 4
    places = iter((values, values + 24))
    entries = [(*entry[:3], next(places).to_bytes(4, "big") if entry[3] is None else entry[3]) for entry in directory]
    gps = struct.pack(">H", len(entries)) + b"".join(struct.pack(">HHI4s", *entry) for entry in entries) + bytes(4)
    numbers = struct.pack(">8I", 11, 1, 15, 0, 0, 1, 5, 0)
    found = read_exif(b"".join(insert_png(png(), tiff_of([(0x8825, 4, 1, at.to_bytes(4, "big"))], gps + numbers))))
    assert (found.latitude, found.longitude, found.altitude) == (None, None, None)
    whole = struct.pack(">8I", 11, 1, 15, 1, 0, 1, 5, 2)
    found = read_exif(b"".join(insert_png(png(), tiff_of([(0x8825, 4, 1, at.to_bytes(4, "big"))], gps + whole))))
    assert (found.latitude, found.longitude, found.altitude) == (None, 11.25, 2.5)


@pytest.mark.parametrize(
    "payload",
    [
        tiff_of([(0x8825, 4, 1, b"\0\0\0\x08")]),  # a directory of positions that is this one
        tiff_of([(0x8825, 4, 1, b"\xff\xff\xff\xff")]),
        pointed([(0x8825, 4, 5000, None)], bytes(20_000)),
        b"MM\0\x2a",
        b"XX\0\x2a\0\0\0\x08",
        bytes(0x10000),
        *(
            encode_exif(PLACED).replace(struct.pack(">HHI", *entry, 1), struct.pack(">HHI", *entry, 3))
            for entry in POINTERS
        ),
    ],
)
def test_exif_that_is_broken(payload):
    hostile = b"".join(insert_png(png(), payload))
    try:
        found = read_exif(hostile)
    except MessageError:
        return
    assert (found.latitude, found.longitude, found.stamp) == (None, None, None)


@pytest.mark.parametrize("stamp", [0, 1, -1, -(10**9), 2**63 - 1, -(2**62), (1 << 64) // 5])
def test_extreme_stamps(stamp):
    """1970, before it, and 2262, the last that 64 bits of nanoseconds have."""
    try:
        exif = encode_exif(ExifInfo("s", 1, stamp, "host", "software"))
    except DatasetError:
        assert stamp < -(10**9)
        return
    assert read_exif(b"".join(insert_png(png(), exif))).stamp == stamp


def test_a_value_that_claims_more_bytes_than_a_place_can_name_is_not_renamed():
    exif = bytearray(encode_exif(INFO))
    at = 8 + 2 + 2 * 12  # the software, third of the first directory
    assert exif[at : at + 2] == b"\1\x31"
    struct.pack_into(">HI", exif, at + 2, 5, 0xFFFFFFFF)
    assert rename_exif(b"".join(insert_jpeg(jpeg(), bytes(exif))), "other") is None
    assert rename_exif(with_exif(INFO), "other") is not None
