# SPDX-License-Identifier: Apache-2.0
"""Clouds against pypcd4 and struct."""

from __future__ import annotations

import io
import math
import struct
import sys

import numpy as np
import pytest
from edgefirst.schemas import sensor_msgs, std_msgs
from hypothesis import given, settings
from hypothesis import strategies as st
from pypcd4 import PointCloud

from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.sensors.cloud import check_cloud, decode_cloud, decode_grid, encode_cloud, read_points

FORMS = ("binary", "binary_compressed", "ascii")
FORMATS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 8: "d"}
LIDAR = [("x", 0, 7, 1), ("y", 4, 7, 1), ("z", 8, 7, 1), ("reflect", 12, 2, 1)]
SPECIAL = struct.pack("<8I", 0x7FC00001, 0xFF800123, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x807FFFFF, 0x3DCCCCCD)


def message(fields, width, height, step, data, row=None, big=False):
    made = [sensor_msgs.PointField(*field) for field in fields]
    row = width * step if row is None else row
    return sensor_msgs.PointCloud2(std_msgs.Header(frame_id="lidar"), height, width, made, big, step, row, data, True)


def encoded(cloud, form="binary", extra=()):
    return b"".join(encode_cloud(cloud, form, extra))


def test_packed_lidar_is_not_copied_and_exact():
    data = np.random.default_rng(1).integers(0, 256, 13 * 50, np.uint8).tobytes()
    cloud = message(LIDAR, 50, 1, 13, data)
    header, body = encode_cloud(cloud)
    assert header == (
        b"VERSION 0.7\nFIELDS x y z reflect\nSIZE 4 4 4 1\nTYPE F F F U\nCOUNT 1 1 1 1\n"
        b"WIDTH 50\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 50\nDATA binary\n"
    )
    if sys.version_info >= (3, 11):  # before, the vendor's codec copies
        assert np.shares_memory(np.frombuffer(body, np.uint8), np.frombuffer(cloud.data.view(), np.uint8))
    assert bytes(body) == data
    assert decode_cloud(header + bytes(body)).tobytes() == data


@pytest.mark.parametrize("form", FORMS)
def test_pypcd4_reads_the_same_numbers(form):
    rng = np.random.default_rng(2)
    table = np.zeros(40, [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("reflect", "u1"), ("t", "<f8"), ("n", "<i2")])
    for name in table.dtype.names:
        table[name] = rng.normal(0, 50, 40) if table[name].dtype.kind == "f" else rng.integers(0, 100, 40)
    fields = [*LIDAR, ("t", 13, 8, 1), ("n", 21, 3, 1)]
    pcd = encoded(message(fields, 8, 5, 23, table.tobytes()), form)
    read = PointCloud.from_fileobj(io.BytesIO(pcd))
    assert (read.metadata.width, read.metadata.height, list(read.fields)) == (8, 5, list(table.dtype.names))
    for name in table.dtype.names:
        assert np.array_equal(np.asarray(read.pc_data[name]), table[name]), name
    assert decode_cloud(pcd).tobytes() == table.tobytes()


@pytest.mark.parametrize("form", ["binary", "binary_compressed"])
@pytest.mark.parametrize("big", [False, True])
def test_no_bit_is_touched(form, big):
    words = struct.unpack("<8I", SPECIAL)
    data = b"".join(struct.pack(">Ixxx" if big else "<Ixxx", word) for word in words)
    pcd = encoded(message([("v", 0, 7, 1)], 8, 1, 7, data, big=big), form)
    assert decode_cloud(pcd).tobytes() == SPECIAL
    if form == "binary":
        assert pcd.endswith(b"DATA binary\n" + SPECIAL)


@pytest.mark.parametrize("form", FORMS)
def test_steps_counts_orders_and_rows(form):
    """Fields out of order, a field of three values, count 0, padding in points and rows, big-endian."""
    fields = [("b", 10, 4, 3), ("a", 2, 7, 0), ("c", 18, 8, 1)]
    data, wanted = b"", []
    for line in range(2):
        for column in range(3):
            n = line * 3 + column
            data += struct.pack(">2xf4x3H2xd5x", n + 0.5, n, n + 1, n + 2, n * 1e100)
            wanted.append((n + 0.5, [n, n + 1, n + 2], n * 1e100))
        data += b"\xee" * 11
    pcd = encoded(message(fields, 3, 2, 31, data, row=3 * 31 + 11, big=True), form)
    assert b"FIELDS a b c\nSIZE 4 2 8\nTYPE F U F\nCOUNT 1 3 1\nWIDTH 3\nHEIGHT 2\n" in pcd
    points = decode_cloud(pcd)
    assert [(p["a"], p["b"].tolist(), p["c"]) for p in points] == wanted
    if form == "binary":
        assert pcd.endswith(b"".join(struct.pack("<f3Hd", a, *b, c) for a, b, c in wanted))


def test_padding_behind_rows_of_packed_points_is_dropped():
    cloud = message([("x", 0, 4, 1)], 2, 2, 2, b"aabb--ccdd--", row=6)
    assert encoded(cloud).endswith(b"DATA binary\naabbccdd")
    assert encoded(message([("x", 0, 4, 1)], 2, 1, 2, b"aabb--", row=6)).endswith(b"DATA binary\naabb")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [(0, 0), (0, 1), (0, 7), (5, 0)])
def test_empty_clouds_are_valid(form, size):
    pcd = encoded(message([*LIDAR, ("k", 13, 4, 2)], *size, 17, b""), form, ("noise",))
    assert f"WIDTH {size[0]}\nHEIGHT {size[1]}\n".encode() in pcd
    assert b"POINTS 0\n" in pcd
    assert decode_cloud(pcd).shape == (0,)
    if form == "binary":
        assert PointCloud.from_fileobj(io.BytesIO(pcd)).points == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("fields", "step"), [(LIDAR, 0), ([("x", 8, 7, 1), ("y", 8, 7, 1)], 4)])
def test_clouds_that_were_never_filled_are_empty(form, fields, step):
    """What a driver sends that saw nothing: of points that are not there no field can be in the wrong place."""
    cloud = message(fields, 0, 0, step, b"")
    check_cloud(cloud)
    pcd = encoded(cloud, form)
    names = " ".join(name for name, *_ in fields).encode()
    assert b"\nFIELDS " + names + b"\n" in pcd
    assert b"\nWIDTH 0\nHEIGHT 0\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS 0\nDATA " in pcd
    assert decode_cloud(pcd).shape == (0,)
    assert PointCloud.from_fileobj(io.BytesIO(pcd)).points == 0


def test_an_empty_cloud_without_fields_is_refused():
    """No reader takes a PCD file without fields, and none are to be made up."""
    with pytest.raises(MessageError, match="without fields"):
        check_cloud(message([], 0, 0, 0, b""))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("big", [False, True])
def test_fields_that_overlap_are_both_there(form, big):
    """A colour as one number and as its bytes; four spare bytes, so that the sizes add up to those of a point."""
    order = ">" if big else "<"
    data = b"".join(struct.pack(f"{order}fI4x", x, rgba) for x, rgba in ((1.5, 0x01020304), (-2.0, 0xFFEEDDCC)))
    fields = [("x", 0, 7, 1), ("rgba", 4, 6, 1), ("bytes", 4, 2, 4)]
    points = decode_cloud(encoded(message(fields, 2, 1, 12, data, big=big), form))
    assert points.dtype.names == ("x", "rgba", "bytes")
    assert points["x"].tolist() == [1.5, -2.0]
    assert points["rgba"].tolist() == [0x01020304, 0xFFEEDDCC]
    assert points["bytes"].tolist() == [list(data[4:8]), list(data[16:20])]


@pytest.mark.parametrize("form", FORMS)
def test_documented_fields_are_added_as_nan(form):
    cloud = message(LIDAR, 2, 1, 13, bytes(26))
    points = decode_cloud(encoded(cloud, form, ("noise", "x")))
    assert points.dtype.names == ("x", "y", "z", "reflect", "noise")
    assert np.isnan(points["noise"]).all()
    assert points["noise"].dtype == np.dtype("<f4")
    assert (points["x"] == 0).all()


@pytest.mark.parametrize(
    ("fields", "step", "data"),
    [
        ([("x", 0, 9, 1)], 4, bytes(8)),
        ([("x", 0, 0, 1)], 4, bytes(8)),
        ([(f"x{n}", 0, 8, 1) for n in range(5)], 8, bytes(16)),
        ([("x", 0, 7, 1), ("y", 6, 7, 1)], 8, bytes(16)),
        ([("x", 0, 7, 2**32 - 1)], 8, bytes(16)),
        ([("x", 2**32 - 2, 7, 1)], 8, bytes(16)),
        ([("x", 0, 7, 1)], 0, bytes(16)),
        ([("x", 0, 7, 1)], 8, bytes(15)),
        ([], 8, bytes(16)),
        *(
            [
                ([(name, 0, 7, 1)], 4, bytes(8))
                for name in ("", "a b", "a\n", "\x00", "a\x7f", "#x", "a\u00a0b", "\u2028")
            ]
        ),
        ([("x", 0, 7, 1), ("x", 4, 7, 1)], 8, bytes(16)),
    ],
)
def test_what_is_not_what_it_says_is_refused(fields, step, data):
    with pytest.raises(MessageError, match="cannot be stored"):
        check_cloud(message(fields, 2, 1, step, data))


def test_hostile_sizes_are_refused():
    big = 2**32 - 1
    for cloud in (
        message([("x", 0, 1, 1)], big, big, 1, bytes(9), row=big),
        message([("x", 0, 1, 1)], 2, 2, 1, bytes(9), row=0),
        message([("x", 0, 1, 1)], 1, 2, 1, bytes(9), row=big),
    ):
        with pytest.raises(MessageError):
            encode_cloud(cloud)
    assert decode_cloud(encoded(message([("x", 0, 1, 1)], 2, 1, 1, bytes(9), row=big))).shape == (2,)


@given(st.lists(st.floats(width=32), min_size=1, max_size=30), st.lists(st.floats(), min_size=1, max_size=30))
@settings(max_examples=80)
def test_text_reads_back_as_the_same_value(singles, doubles):
    count = min(len(singles), len(doubles))
    data = b"".join(struct.pack("<fd", *pair) for pair in zip(singles, doubles, strict=False))
    points = decode_cloud(encoded(message([("f", 0, 7, 1), ("d", 4, 8, 1)], count, 1, 12, data), "ascii"))
    for point, single, double in zip(points, singles, doubles, strict=False):
        for found, wanted in ((float(point["f"]), single), (float(point["d"]), double)):
            assert found == wanted or (math.isnan(found) and math.isnan(wanted))
            assert math.isnan(wanted) or math.copysign(1, found) == math.copysign(1, wanted)


@st.composite
def clouds(draw):
    fields, offset = [], 0
    for n in range(draw(st.integers(1, 5))):
        offset += draw(st.integers(0, 3))
        kind, count = draw(st.integers(1, 8)), draw(st.integers(1, 3))
        fields.append((f"f{n}", offset, kind, count))
        offset += struct.calcsize(FORMATS[kind]) * count
    step, width, height = offset + draw(st.integers(0, 3)), draw(st.integers(0, 40)), draw(st.integers(0, 3))
    row = width * step + draw(st.integers(0, 5))
    data = draw(st.randoms(use_true_random=False)).randbytes(row * height)
    if draw(st.booleans()):
        data = bytes(len(data))  # compresses well
    return fields, width, height, step, row, data, draw(st.booleans())


@settings(max_examples=100)
@given(clouds(), st.sampled_from(["binary", "binary_compressed"]), st.randoms(use_true_random=False))
def test_any_cloud_comes_back(drawn, form, random):
    fields, width, height, step, row, data, big = drawn
    order = ">" if big else "<"
    wanted = []
    for line in range(height):
        for column in range(width):
            point = b""
            for _, offset, kind, count in fields:
                size = struct.calcsize(FORMATS[kind])
                at = line * row + column * step + offset
                values = struct.unpack_from(f"{order}{count}{'xBHxIxxxQ'[size]}", data, at)
                point += struct.pack(f"<{count}{'xBHxIxxxQ'[size]}", *values)
            wanted.append(point)
    mixed = random.sample(fields, len(fields))
    cloud = message(mixed, width, height, step, data, row, big)
    points = decode_cloud(encoded(cloud, form))
    assert points.tobytes() == read_points(cloud).tobytes() == b"".join(wanted)
    assert points.shape == (width * height,)
    assert points.dtype == read_points(cloud).dtype


HEADER = (
    "VERSION 0.7\nFIELDS x\nSIZE {size}\nTYPE {type}\nCOUNT {count}\nWIDTH {n}\nHEIGHT 1\n"
    "VIEWPOINT 0 0 0 1 0 0 0\nPOINTS {n}\nDATA {form}\n"
)


def pcd(body, size=4, kind="F", count=1, n=2, form="binary"):
    return HEADER.format(size=size, type=kind, count=count, n=n, form=form).encode() + body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n" * 100_000,
        b"VERSION 0.7\nDATA binary\n",
        pcd(bytes(7)),
        pcd(bytes(8), n=-1),
        pcd(bytes(8), n=10**18),
        pcd(bytes(8), n="9" * 5000),
        pcd(bytes(8), size=3),
        pcd(bytes(8), kind="X"),
        pcd(bytes(8), count=0),
        pcd(bytes(8), count=10**12),
        pcd(bytes(8), form="zip"),
        pcd(b"1 2 3", form="ascii"),
        pcd(b"1 x", form="ascii"),
        pcd(b"300 1", size=1, kind="U", form="ascii"),
        pcd(b"", form="binary_compressed"),
        pcd(struct.pack("<II", 4, 8) + b"\xff\xff\xff\xff", form="binary_compressed"),
        pcd(struct.pack("<II", 400, 8) + b"\0", form="binary_compressed"),
        pcd(struct.pack("<II", 4, 4 * 10**8) + bytes(4), n=10**8, form="binary_compressed"),
    ],
)
def test_broken_files_are_refused(data):
    with pytest.raises(DatasetError):
        decode_cloud(data)


def test_nothing_is_allocated_for_points_that_cannot_be_there():
    with pytest.raises(DatasetError, match="4 bytes that unpack to 400000000"):
        decode_cloud(pcd(struct.pack("<II", 4, 4 * 10**8) + bytes(4), n=10**8, form="binary_compressed"))


def test_the_broken_ones_differ_from_a_good_one_in_one_thing():
    assert decode_cloud(pcd(struct.pack("<2f", 1, 2)))["x"].tolist() == [1, 2]
    assert decode_cloud(pcd(b"1 2", form="ascii"))["x"].tolist() == [1, 2]
    # LZF by hand: a literal run of 8 bytes (control 7)
    body = struct.pack("<II", 9, 8) + b"\x07" + struct.pack("<2f", 1, 2)
    assert decode_cloud(pcd(body, form="binary_compressed"))["x"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"HEIGHT 1", b" HEIGHT 1"),
        (b"HEIGHT 1", b"HEIGHT +1"),
        (b"HEIGHT 1", b"HEIGHT 1\nHEIGHT 1"),
        (b"HEIGHT 1", b"HEIGHT 1 1"),
        (b"HEIGHT 1", b"HEIGHT"),
        (b"HEIGHT 1", b"HEIGHT 0x1"),
        (b"HEIGHT 1", b"HEIGHT " + "\u0661".encode()),
        (b"WIDTH 2\nHEIGHT 1\nPOINTS 2", b"WIDTH 0\nHEIGHT " + b"9" * 30 + b"\nPOINTS 0"),
        (b"POINTS 2", b"POINTS -2"),
    ],
)
def test_a_header_that_can_be_read_in_two_ways_is_refused(before, after):
    """One parser gives points and their grid; what another may read otherwise is an error."""
    pcd = b"VERSION 0.7\nFIELDS x\nSIZE 4\nTYPE F\nCOUNT 1\nWIDTH 2\nHEIGHT 1\nPOINTS 2\nDATA binary\n" + bytes(8)
    assert decode_grid(pcd).shape == (1, 2)
    assert before in pcd
    for decode in (decode_cloud, decode_grid):
        with pytest.raises(DatasetError):
            decode(pcd.replace(before, after))
