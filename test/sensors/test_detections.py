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

from edgefirst_ros.counts import BAD_MASK, BAD_SCORE, DROPPED_LABEL, LOW_SCORE, MASK_NO_PICTURE, NOT_FINITE, SEMANTIC
from edgefirst_ros.messages import Cubes, SpaceBox
from edgefirst_ros.sensors.detections import Context, make_box_rows, make_model_rows, map_labels
from edgefirst_ros.sensors.masks import is_empty

Box, Mask, Duration = edgefirst_msgs.DetectBox, edgefirst_msgs.MaskBox, builtin_interfaces.Duration
CONTEXT = Context("host_2020_01_01_00_00_00", 12, (64, 48), ["background", "car", "person"])
DEVICE = "3F0E2C54-8a1d-4c1b-9d52-0d6a1c2b3e4f"


def model(boxes, masks=()):
    durations = [Duration(0, n) for n in (1, 20, 300, 4000)]
    sent = edgefirst_msgs.Model(std_msgs.Header(frame_id="camera"), *durations, list(boxes), list(masks))
    return edgefirst_msgs.Model.from_cdr(sent.to_bytes())


def detect(boxes):
    sent = edgefirst_msgs.Detect(std_msgs.Header(), *[builtin_interfaces.Time(0, n) for n in (1, 20, 300)], list(boxes))
    return edgefirst_msgs.Detect.from_cdr(sent.to_bytes())


def alone(*fields):
    """A Mask message, which has no header."""
    return edgefirst_msgs.Mask.from_cdr(edgefirst_msgs.Mask(*fields).to_bytes())


def packed(number, length=None, told=True):
    """Function that packs so many zeros, with their number (`told`) or without, and gives it up to `length`."""
    return lambda: zstandard.ZstdCompressor(write_content_size=told).compress(bytes(number))[:length]


def sent(height, width, length, encoding, data, boxed):
    """A Mask message."""
    return Mask(height, width, length, encoding, data() if callable(data) else data, boxed)


def pixels(png, size):
    picture = Image.open(io.BytesIO(png))
    picture.load()
    assert (picture.mode, picture.size) == ("1", size)
    return np.asarray(picture)


def placed(cells, box, size):
    """The crop of a mask, one pixel after the other, in exact numbers."""
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
    rows, dropped = make_model_rows(model(boxes), CONTEXT)
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


def test_a_time_during_which_the_clock_was_set_back_is_not_known():
    time = builtin_interfaces.Time
    times = time(-3, 5), time(0, 30), time(0, 400)
    box = [Box(0.5, 0.5, 0.1, 0.1, "car", 0.25)]
    sent = edgefirst_msgs.Detect(std_msgs.Header(frame_id="camera"), *times, box)
    rows, _ = make_model_rows(edgefirst_msgs.Detect.from_cdr(sent.to_bytes()), CONTEXT)
    assert rows[0]["timing"] == {"load": None, "preprocess": None, "inference": 30, "decode": 400}


def test_stamps_of_the_oldest_form_are_no_durations():
    """EdgeFirstAI/model until November 2025: the camera's stamp twice, and the time of the monotonic clock."""
    time = builtin_interfaces.Time
    box = [Box(0.5, 0.5, 0.1, 0.1, "car", 0.25)]
    stamp = 1_720_000_000, 500
    sent = edgefirst_msgs.Detect(std_msgs.Header(time(*stamp), "camera"), time(*stamp), time(0, 30), time(5400, 7), box)
    rows, _ = make_model_rows(edgefirst_msgs.Detect.from_cdr(sent.to_bytes()), CONTEXT)
    assert rows[0]["timing"] == {"load": None, "preprocess": None, "inference": 30, "decode": None}


def test_the_older_form():
    time = builtin_interfaces.Time
    sent = edgefirst_msgs.Detect(
        std_msgs.Header(frame_id="camera"),
        time(0, 2),
        time(1, 30),
        time(0, 400),
        [Box(0.5, 0.5, 0.1, 0.1, "car", 0.25)],
    )
    rows, dropped = make_model_rows(edgefirst_msgs.Detect.from_cdr(sent.to_bytes()), CONTEXT)
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
    rows, dropped = make_model_rows(model([Box(*bad), good], masks), CONTEXT)
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
    rows, _ = make_model_rows(model([box], [Mask(7, 5, 1, encoding, data, True)]), CONTEXT)
    assert np.array_equal(pixels(rows[0]["mask"], (64, 48)), placed(cells, box, (64, 48)))


sides = st.floats(-0.5, 1.5, width=32)


@settings(max_examples=150)
@given(sides, sides, st.floats(0.0625, 2, width=32), st.floats(0.0625, 2, width=32), st.data())
def test_any_box_even_half_outside(x, y, width, height, data):
    size = data.draw(st.tuples(st.integers(1, 21), st.integers(1, 21)))
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 30)))
    cells = np.frombuffer(data.draw(st.randoms(use_true_random=False)).randbytes(shape[0] * shape[1]), np.uint8)
    box = Box(x, y, width, height, "car", 0.5)
    context = Context("s", 0, size)
    rows, dropped = make_model_rows(model([box], [Mask(*shape, 1, "", cells.tobytes(), True)]), context)
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
    rows, dropped = make_model_rows(
        model([Box(0.3, 0.3, width, height, "car", 0.5)], [Mask(2, 2, 1, "", b"\xff" * 4, True)]), CONTEXT
    )
    assert dropped == {}
    assert not pixels(rows[0]["mask"], (64, 48)).any()


def test_a_box_larger_than_the_picture_fills_it():
    rows, _ = make_model_rows(
        model([Box(0.5, 0.5, 3e38, 3e38, "car", 0.5)], [Mask(1, 1, 1, "", b"\xff", True)]), CONTEXT
    )
    assert pixels(rows[0]["mask"], (64, 48)).all()


@pytest.mark.parametrize(
    "mask",
    [
        (2, 2, 1, "", bytes(3)),
        (0, 2, 1, "", b""),
        (2**32 - 1, 2**32 - 1, 1, "", bytes(4)),
        (2, 2, 1, "lz4", bytes(4)),
        (2, 2, 1, "zstd", b"nonsense"),
        (2, 2, 1, "zstd", packed(3)),
        (2, 2, 1, "zstd", packed(1000, -4)),
        (8192, 8193, 1, "zstd", packed(8192 * 8193)),
        (2, 2, 2, "", bytes(8)),
        (2, 2, 1, "zstd", packed(2**30)),
        (2, 2, 1, "zstd", packed(2**30, told=False)),
    ],
)
def test_broken_masks_are_counted_and_the_box_is_kept(mask):
    rows, dropped = make_model_rows(model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], [sent(*mask, True)]), CONTEXT)
    assert dropped == {BAD_MASK: 1}
    assert "mask" not in rows[0]


def test_a_tall_mask_costs_no_more_than_the_picture():
    data = zstandard.ZstdCompressor().compress(b"\xff" * 2**26)
    mask = Mask(2**26, 1, 1, "zstd", data, True)
    rows, dropped = make_model_rows(model([Box(0.5, 0.5, 1.0, 1.0, "car", 0.5)], [mask]), CONTEXT)
    assert dropped == {}
    assert pixels(rows[0]["mask"], (64, 48)).all()


def test_left_over_masks_are_counted():
    masks = [Mask(1, 1, 1, "", b"\xff", False), Mask(1, 1, 1, "", b"\xff", True)]
    rows, dropped = make_model_rows(model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], masks), CONTEXT)
    assert dropped == {BAD_MASK: 1}
    assert ["mask" in row for row in rows] == [False, True]
    assert make_model_rows(model([]), CONTEXT) == ([], {})


# ---- masks of classes --------------------------------------------------------------------------
def classes(png, size=(64, 48)):
    picture = Image.open(io.BytesIO(png))
    picture.load()
    assert (picture.mode, picture.size) == ("L", size)
    return np.asarray(picture)


@pytest.mark.parametrize("encoding", ["", "zstd", "without size"])
@pytest.mark.parametrize("shape", [(48, 64), (12, 16), (7, 5), (96, 128), (200, 3)])
def test_a_mask_of_classes_is_a_row_of_its_own(encoding, shape):
    cells = np.random.default_rng(5).integers(0, 3, shape, np.uint8)
    data = cells.tobytes()
    if encoding:
        data = zstandard.ZstdCompressor(write_content_size=encoding == "zstd").compress(data)
    mask = Mask(*shape, 1, "zstd" if encoding else "", data, False)
    rows, dropped = make_model_rows(model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], [mask]), CONTEXT)
    assert (len(rows), dropped) == (2, {})
    assert set(rows[1]) == {"timing", "mask"}
    assert rows[1]["timing"] == rows[0]["timing"]
    y, x = np.mgrid[:48, :64]
    wanted = cells[(2 * y + 1) * shape[0] // 96, (2 * x + 1) * shape[1] // 128]
    assert np.array_equal(classes(rows[1]["mask"]), wanted)


def test_of_scores_the_highest_counts_and_of_equal_ones_the_first():
    scores = np.random.default_rng(6).integers(0, 4, (48, 64, 5), np.uint8)  # few values: many are equal
    rows, dropped = make_model_rows(model([], [Mask(48, 64, 1, "", scores.tobytes(), False)]), CONTEXT)
    assert dropped == {}
    assert np.array_equal(classes(rows[0]["mask"]), scores.argmax(axis=2))


def test_a_mask_without_a_header_is_that_of_its_boxes():
    cells = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64).astype(np.uint8)
    message = detect([Box(0.5, 0.5, 1.0, 1.0, "car", 0.5)])
    rows, dropped = make_model_rows(message, CONTEXT, alone(48, 64, 1, "", cells.tobytes(), False))
    assert (len(rows), dropped) == (2, {})
    assert np.array_equal(classes(rows[1]["mask"]), cells)
    assert rows[1]["timing"] == {"load": 1, "preprocess": None, "inference": 20, "decode": 300}
    rows, dropped = make_model_rows(message, CONTEXT, alone(1, 1, 1, "", b"\xff", True))
    assert dropped == {}
    assert pixels(rows[0]["mask"], (64, 48)).all()


@pytest.mark.parametrize("count", [0, 2])
def test_a_single_instance_mask_does_not_tell_its_box(count):
    message = detect([Box(0.5, 0.5, 1.0, 1.0, "car", 0.5)] * count)
    rows, dropped = make_model_rows(message, CONTEXT, alone(1, 1, 1, "", b"\xff", True))
    assert (len(rows), dropped) == (count, {BAD_MASK: 1})
    assert not any("mask" in row for row in rows)


def test_no_cells_at_all_is_nothing_found():
    assert make_model_rows(model([], [Mask(0, 0, 1, "", b"", False)]), CONTEXT) == ([], {})
    assert make_model_rows(detect([]), CONTEXT, alone(0, 0, 1, "", b"", False)) == ([], {})


@pytest.mark.parametrize(
    "mask",
    [
        (2, 2, 1, "", bytes(6)),
        (0, 2, 1, "", bytes(2)),
        (1, 1, 1, "", bytes(256)),
        (2, 2, 1, "lz4", bytes(4)),
        (1, 1, 1, "zstd", packed(2**30)),
        (1, 1, 1, "zstd", packed(2**30, told=False)),
        (8192, 8192, 1, "zstd", packed(2**27)),
        # 2**26 + 1 bytes, at which unpacking ends, would be five values for each of so many cells
        (1, 13421773, 1, "zstd", packed(2**27, told=False)),
    ],
)
def test_broken_masks_of_classes_are_counted(mask):
    assert make_model_rows(model([], [sent(*mask, False)]), CONTEXT) == ([], {BAD_MASK: 1})


def test_masks_need_a_picture_and_to_be_wanted():
    result = model([Box(0.5, 0.5, 0.5, 0.5, "car", 0.5)], [Mask(1, 1, 1, "", b"\xff", True)])
    result2 = model([], [Mask(1, 1, 1, "", b"\x01", False)])
    nowhere, unwanted, single = (
        Context("s", 0, None),
        Context("s", 0, (8, 8), masks=False),
        Context("s", 0, (8, 8), semantic=False),
    )
    assert [make_model_rows(m, nowhere)[1] for m in (result, result2)] == [{MASK_NO_PICTURE: 1}, {MASK_NO_PICTURE: 1}]
    assert [make_model_rows(m, unwanted)[1] for m in (result, result2)] == [{}, {}]
    assert [make_model_rows(m, single)[1] for m in (result, result2)] == [{}, {SEMANTIC: 1}]
    assert "mask" not in make_model_rows(result, unwanted)[0][0]
    assert "mask" in make_model_rows(result, single)[0][0]


# ---- what is wanted ----------------------------------------------------------------------------
def test_low_scores_and_other_names():
    labels = ["background", "car", "person", "bus"]
    wanted = {"car": "vehicle", "bus": "vehicle", "person": ""}
    named = map_labels(labels, wanted)
    assert named == ["background", "vehicle", "person", "bus"]
    assert map_labels(labels, {"car": "person"}) == labels
    assert map_labels(labels, {"car": "person", "person": "car"}) == ["background", "person", "car", "bus"]
    assert map_labels(None, wanted) is None
    context = Context("s", 0, (4, 1), named, labels, min_score=0.5, label_map=wanted)
    scores = {"car": 0.5, "person": 0.9, "bus": 0.499, "tree": 0.9}
    mask = Mask(1, 4, 1, "", bytes([0, 1, 2, 3]), False)
    rows, dropped = make_model_rows(model([Box(0.5, 0.5, 1, 1, *pair) for pair in scores.items()], [mask]), context)
    assert dropped == {LOW_SCORE: 1, DROPPED_LABEL: 1}
    assert [(row["label"], row["label_index"]) for row in rows[:-1]] == [("vehicle", 1), ("tree", None)]
    assert classes(rows[-1]["mask"], (4, 1)).tolist() == [[0, 1, 255, 1]]


def test_classes_of_a_model_with_another_order_count_as_the_labels_do():
    context = Context("s", 0, (3, 1), ["background", "car", "person"], ["background", "person", "car"])
    rows, _ = make_model_rows(model([], [Mask(1, 3, 1, "", bytes([0, 1, 2]), False)]), context)
    assert classes(rows[0]["mask"], (3, 1)).tolist() == [[0, 2, 1]]


# ---- boxes in space ----------------------------------------------------------------------------
def test_boxes_in_space():
    labels = ["background", "car", "person"]
    context = Context("s", 12, (64, 48), labels, labels, min_score=0.25)
    boxes = [
        Box(-2.0, 0.5, 1.75, 1.5, "1", 1.0, 12.5, 0.0, "3"),
        Box(1.0, 0.25, 0.5, 2.0, "person", 0.5, 8.0, 0.0, DEVICE),
        Box(1.0, 0.25, 0.5, 2.0, "7", 1.0, 8.0),
        Box(1.0, 0.25, 0.5, 2.0, "1", 1.0, math.nan),
        Box(1.0, 0.25, 0.5, 2.0, "1", 0.125, 8.0),
        Box(1.0, 0.25, 0.5, 2.0, "1", 1.5, 8.0),
    ]
    rows, dropped = make_box_rows(detect(boxes), context)
    assert dropped == {NOT_FINITE: 1, LOW_SCORE: 1, BAD_SCORE: 1}
    assert rows[0] == {
        "label": "car",
        "label_index": 1,
        "object_id": str(uuid.uuid5(uuid.NAMESPACE_URL, "s/12/3d/0")),
        "box3d": (12.5, 2.0, -0.5, 1.75, 1.75, 1.5),
        "box3d_score": 1.0,
    }
    assert (rows[1]["label"], rows[1]["object_id"]) == ("person", DEVICE.lower())
    assert (rows[2]["label"], rows[2]["label_index"]) == ("7", None)


@pytest.mark.parametrize(("shape", "data", "empty"), [((0, 0), b"", True), ((4, 0), b"", True), ((2, 2), b"", False),
                                                     ((0, 0), b"x", False), ((1, 1), b"x", False)])  # fmt: skip
def test_a_mask_is_empty_without_cells_and_bytes(shape, data, empty):
    assert is_empty(Mask(*shape, 1, "", data, True)) is empty


def test_boxes_with_poses_of_their_own_that_are_left_out_say_why():
    context = Context("s", 12, None, label_map={"car": "", "bus": ""})
    boxes = [
        SpaceBox("map", (1.0, 2.0, x), (0.0, 0.0, 0.0, 1.0), (4.0, 2.0, 1.5), label, "")
        for x, label in ((0.5, ""), (math.nan, ""), (math.nan, "van"), (math.nan, "car"), (0.5, "bus"))
    ]
    rows, dropped = make_box_rows(Cubes(boxes), context)
    assert dropped == {NOT_FINITE: 2, DROPPED_LABEL: 2}
    assert [(row["label"], row["box3d"]) for row in rows] == [(None, (1.0, 2.0, 0.5, 4.0, 2.0, 1.5))]
