# SPDX-License-Identifier: Apache-2.0
"""Masks that are PNG files are told from others, however they are made."""

import io
import itertools
import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros.dataset.validate.rules_tables import mend_masks as masks
from edgefirst_ros.dataset.validate.rules_tables import mend_timings as timings


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


END = chunk(b"IEND", b"")


def png(*between, size=(3, 2), pieces=1, end=END):
    data = zlib.compress(bytes(8))
    cuts = np.linspace(0, len(data), pieces + 1).astype(int).tolist()
    parts = [chunk(b"IDAT", data[a:b]) for a, b in itertools.pairwise(cuts)]
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + b"".join((head, *between, *parts, end))


def pillow():
    out = io.BytesIO()
    Image.new("1", (640, 480), 1).save(out, "PNG")
    return out.getvalue()


GOOD = [
    png(),
    png(chunk(b"tEXt", b"a\0b")),
    png(pieces=3),
    png(size=(65535, 65535)),
    png() + b"behind the end",
    pillow(),
]
BAD = [
    b"",
    png()[:-1],
    png(end=b""),
    png(size=(0, 2)),
    png(size=(3, 65536)),
    png(pieces=0),
    png(chunk(b"IHDR", bytes(13))),
    png()[1:],
    END,
]


@pytest.mark.parametrize("good", GOOD, ids=range(len(GOOD)))
def test_whole_files_stay(good):
    array = pa.array([good, None, good], pa.large_binary())
    assert masks(array) == (array, 0)


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_others_become_null(bad):
    found, count = masks(pa.array([png(), bad, None], pa.large_binary()))
    assert (found.to_pylist(), count) == ([png(), None, None], 1)


@pytest.mark.parametrize("whole", [png(), png(pieces=2)], ids=["usual", "two pieces"])
def test_a_changed_byte_anywhere_is_seen(whole):
    """Every byte is a fixed one, a length, or under a checksum."""
    changed = [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(len(whole))]
    found, count = masks(pa.array(changed, pa.binary_view()))
    assert count == found.null_count == len(whole)


def test_many_masks():
    """More than are copied at a time, from the middle of a longer column."""
    array = pa.array([png(), b"x", None, pillow()] * 1000, pa.large_binary())[2:3001]
    found, count = masks(array)
    assert count == sum(value == b"x" for value in array.to_pylist())
    assert found.to_pylist() == [None if value == b"x" else value for value in array.to_pylist()]


def test_durations_without_a_sign_are_left_beside_negative_ones():
    kind = pa.struct([("load", pa.uint32()), ("decode", pa.int16()), ("inference", pa.int64())])
    rows = [
        {"load": 2**32 - 1, "decode": -1, "inference": 5},
        None,
        {"load": None, "decode": 3, "inference": -(2**63)},
    ]
    found, count = timings(pa.array(rows, kind))
    assert found.type == kind
    assert count == 2
    assert found.to_pylist() == [
        {"load": 2**32 - 1, "decode": None, "inference": 5},
        None,
        {"load": None, "decode": 3, "inference": None},
    ]
