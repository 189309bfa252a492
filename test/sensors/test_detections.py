# SPDX-License-Identifier: Apache-2.0
"""Rows of model results, with masks placed pixel by pixel by the written formula."""

from __future__ import annotations

import io
import math
import uuid
from fractions import Fraction

import numpy as np
import pytest
import zstandard
from edgefirst.schemas import builtin_interfaces, edgefirst_msgs, std_msgs
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgefirst_ros.sensors.detections import BAD_MASK, BAD_SCORE, NOT_FINITE, SEMANTIC, Context, rows_of_model

Box, Mask, Duration = edgefirst_msgs.DetectBox, edgefirst_msgs.MaskBox, builtin_interfaces.Duration
CONTEXT = Context("host_2020_01_01_00_00_00", 12, (64, 48), ["background", "car", "person"])
DEVICE = "3F0E2C54-8a1d-4c1b-9d52-0d6a1c2b3e4f"


def model(boxes, masks=()):
    durations = [Duration(0, n) for n in (1, 20, 300, 4000)]
    sent = edgefirst_msgs.Model(std_msgs.Header(frame_id="camera"), *durations, list(boxes), list(masks))
    return edgefirst_msgs.Model.from_cdr(sent.to_bytes())


def pixels(png, size):
    picture = Image.open(io.BytesIO(png))
    picture.load()
    assert (picture.mode, picture.size) == ("1", size)
    return np.asarray(picture)


def placed(cells, box, size):
    """dataset.md 9, one pixel after the other, in exact numbers."""
    wanted = np.zeros(size[::-1], bool)
    left = Fraction(box.center_x) - Fraction(box.width) / 2
    top = Fraction(box.center_y) - Fraction(box.height) / 2
    for y in range(size[1]):
        line = math.floor(((Fraction(2 * y + 1, 2 * size[1])) - top) / Fraction(box.height) * cells.shape[0])
        for x in range(size[0]):
            column = math.floor(((Fraction(2 * x + 1, 2 * size[0])) - left) / Fraction(box.width) * cells.shape[1])
            if 0 <= line < cells.shape[0] and 0 <= column < cells.shape[1]:
                wanted[y, x] = cells[line, column] > 127
    return wanted


def test_boxes_labels_and_timing():
    boxes = [
        Box(0.25, 0.5, 0.125, 0.75, "person", 0.5, track_id=DEVICE),
        Box(0.1, 0.2, 0.3, 0.4, "tree", 1.0, track_id="7"),
        Box(0.1, 0.2, 0.3, 0.4, "car", 0.0),
    ]
    rows, dropped = rows_of_model(model(boxes), CONTEXT)
    assert dropped == {}
    assert [row["label"] for row in rows] == ["person", "tree", "car"]
    assert [row["label_index"] for row in rows] == [2, None, 1]
    assert rows[0]["box2d"] == (0.25, 0.5, 0.125, 0.75)
    assert [row["box2d_score"] for row in rows] == [0.5, 1.0, 0.0]
    assert np.array_equal(np.float32(rows[1]["box2d"]), np.float32([0.1, 0.2, 0.3, 0.4]))
    assert all(row["timing"] == {"load": 1, "preprocess": None, "inference": 20, "decode": 4300} for row in rows)
    assert all("mask" not in row for row in rows)
    assert rows[0]["object_id"] == DEVICE.lower()
    assert rows[1]["object_id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, "host_2020_01_01_00_00_00/7"))
    assert rows[2]["object_id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, "host_2020_01_01_00_00_00/12/2"))


def test_the_older_form():
    time = builtin_interfaces.Time
    sent = edgefirst_msgs.Detect(
        std_msgs.Header(frame_id="camera"),
        time(0, 2),
        time(1, 30),
        time(0, 400),
        [Box(0.5, 0.5, 0.1, 0.1, "car", 0.25)],
    )
    rows, dropped = rows_of_model(edgefirst_msgs.Detect.from_cdr(sent.to_bytes()), CONTEXT)
    assert rows[0]["timing"] == {"load": 2, "preprocess": None, "inference": 1_000_000_030, "decode": 400}
    assert (rows[0]["label_index"], len(rows), dropped) == (1, 1, {})


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ((math.nan, 0.5, 0.1, 0.1, "car", 0.5), NOT_FINITE),
        ((0.5, 0.5, 0.1, math.inf, "car", 0.5), NOT_FINITE),
        ((0.5, 0.5, 0.1, 0.1, "car", math.nan), NOT_FINITE),
        ((0.5, 0.5, 0.1, 0.1, "car", 1.01), BAD_SCORE),
        ((0.5, 0.5, 0.1, 0.1, "car", -0.01), BAD_SCORE),
    ],
)
def test_bad_boxes_are_counted_and_masks_stay_with_their_boxes(bad, reason):
    cells = [bytes([255, 0]), bytes([0, 255])]
    masks = [Mask(1, 2, 1, "", data, True) for data in cells]
    good = Box(0.5, 0.5, 1.0, 1.0, "car", 0.5)
    rows, dropped = rows_of_model(model([Box(*bad), good], masks), CONTEXT)
    assert (len(rows), dropped) == (1, {reason: 1})
    assert rows[0]["object_id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, "host_2020_01_01_00_00_00/12/1"))
    found = pixels(rows[0]["mask"], (64, 48))
    assert not found[:, :32].any()
    assert found[:, 32:].all()


@pytest.mark.parametrize("encoding", ["", "zstd"])
def test_masks_are_placed_by_the_formula(encoding):
    cells = np.random.default_rng(4).integers(0, 256, (7, 5), np.uint8)
    cells[0, :3] = (127, 128, 255)
    data = cells.tobytes() if not encoding else zstandard.ZstdCompressor().compress(cells.tobytes())
    box = Box(0.45, 0.6, 0.5, 0.7, "car", 0.5)
    rows, _ = rows_of_model(model([box], [Mask(7, 5, 1, encoding, data, True)]), CONTEXT)
    assert np.array_equal(pixels(rows[0]["mask"], (64, 48)), placed(cells, box, (64, 48)))


sides = st.floats(-0.5, 1.5, width=32)


@settings(max_examples=150, deadline=None)
@given(sides, sides, st.floats(0.0625, 2, width=32), st.floats(0.0625, 2, width=32), st.data())
def test_any_box_even_half_outside(x, y, width, height, data):
    size = data.draw(st.tuples(st.integers(1, 21), st.integers(1, 21)))
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 30)))
    cells = np.frombuffer(data.draw(st.randoms(use_true_random=False)).randbytes(shape[0] * shape[1]), np.uint8)
    box = Box(x, y, width, height, "car", 0.5)
    context = Context("s", 0, size)
    rows, dropped = rows_of_model(model([box], [Mask(*shape, 1, "", cells.tobytes(), True)]), context)
    assert dropped == {}
    found, wanted = pixels(rows[0]["mask"], size), placed(cells.reshape(shape), box, size)
    # A pixel's middle may lie on the very edge of a cell, where rounding decides: next to exact, never far.
    differ = np.argwhere(found != wanted)
    for line, column in differ:
        at_x = ((column + 0.5) / size[0] - (x - width / 2)) / width * shape[1]
        at_y = ((line + 0.5) / size[1] - (y - height / 2)) / height * shape[0]
        assert min(abs(at_x - round(at_x)), abs(at_y - round(at_y))) < 1e-9


@pytest.mark.parametrize(("width", "height"), [(0.0, 0.5), (-0.5, 0.5), (1e-45, 1e-45), (1e-30, 0.5)])
def test_boxes_of_no_size_have_empty_masks(width, height):
    rows, dropped = rows_of_model(
        model([Box(0.3, 0.3, width, height, "car", 0.5)], [Mask(2, 2, 1, "", b"\xff" * 4, True)]), CONTEXT
    )
    assert dropped == {}
    assert not pixels(rows[0]["mask"], (64, 48)).any()


def test_a_box_larger_than_the_picture_fills_it():
    rows, _ = rows_of_model(model([Box(0.5, 0.5, 3e38, 3e38, "car", 0.5)], [Mask(1, 1, 1, "", b"\xff", True)]), CONTEXT)
    assert pixels(rows[0]["mask"], (64, 48)).all()


@pytest.mark.parametrize(
    "mask",
    [
        (2, 2, 1, "", bytes(3)),
        (0, 2, 1, "", b""),
        (2**32 - 1, 2**32 - 1, 1, "", bytes(4)),
        (2, 2, 1, "lz4", bytes(4)),
        (2, 2, 1, "zstd", b"nonsense"),
        (2, 2, 1, "zstd", zstandard.ZstdCompressor().compress(bytes(3))),
        (2, 2, 1, "zstd", zstandard.ZstdCompressor().compress(bytes(1000))[:-4]),
        (8192, 8193, 1, "zstd", zstandard.ZstdCompressor().compress(bytes(8192 * 8193))),
    ],
)
def test_broken_masks_are_counted_and_the_box_is_kept(mask):
    rows, dropped = rows_of_model(model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], [Mask(*mask, True)]), CONTEXT)
    assert dropped == {BAD_MASK: 1}
    assert "mask" not in rows[0]


def test_a_tall_mask_costs_no_more_than_the_picture():
    data = zstandard.ZstdCompressor().compress(b"\xff" * 2**26)
    mask = Mask(2**26, 1, 1, "zstd", data, True)
    rows, dropped = rows_of_model(model([Box(0.5, 0.5, 1.0, 1.0, "car", 0.5)], [mask]), CONTEXT)
    assert dropped == {}
    assert pixels(rows[0]["mask"], (64, 48)).all()


def test_semantic_and_left_over_masks_are_counted():
    masks = [Mask(1, 1, 1, "", b"\xff", False), Mask(1, 1, 1, "", b"\xff", True), Mask(1, 1, 1, "", b"\xff", False)]
    rows, dropped = rows_of_model(model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], masks), CONTEXT)
    assert dropped == {SEMANTIC: 2, BAD_MASK: 1}
    assert "mask" not in rows[0]
    assert rows_of_model(model([]), CONTEXT) == ([], {})
