# SPDX-License-Identifier: Apache-2.0
"""What is drawn of annotations into a picture: boxes, labels and masks, pixel by pixel."""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.report import sheet
from edgefirst_ros.report.projection import Projected
from edgefirst_ros.report.sheet import (
    LABELS,
    LONGEST_TEXT,
    PAPER,
    colour_distances,
    draw_annotations,
    draw_lidar,
    encode_jpeg,
)

SIZE = (64, 48)
BOX = np.array([0.5, 0.5, 0.25, 0.25])  # x 24 to 40, y 18 to 30


def drawn(row, box=BOX, colours=None):
    """(48, 64, 3) black picture with one annotation drawn."""
    picture = Image.new("RGB", SIZE)
    draw_annotations(picture, [row], {} if box is None else {0: box}, {} if colours is None else colours, [])
    return np.asarray(picture)


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("label", [None, 7, ""])
def test_a_box_without_a_label_is_an_outline_alone(label):
    expected = np.zeros((48, 64, 3), np.uint8)
    expected[18:30, 24:40] = LABELS[0]
    expected[20:28, 26:38] = 0
    assert (drawn({"label": label}) == expected).all()


def test_a_label_stands_on_a_dark_ground_above_its_box():
    plain, tagged = drawn({"label": None}), drawn({"label": "car"})
    changed = np.argwhere((plain != tagged).any(2))
    assert len(changed)
    assert changed[:, 0].max() < 18
    assert (tagged == np.array(PAPER)).all(2).any()
    assert (drawn({"label": "car", "box2d_score": 0.75}) != tagged).any()


def test_colours_go_by_label_and_begin_again_at_the_end():
    colours = {}
    for number in range(len(LABELS) + 1):
        drawn({"label": f"label {number}"}, None, colours)
    assert [colours[f"label {number}"] for number in range(len(LABELS) + 1)] == [*LABELS, LABELS[0]]


def test_a_long_label_is_cut_and_control_characters_are_spaces():
    colours = {}
    drawn({"label": "a\nb" + "c" * LONGEST_TEXT}, None, colours)
    assert list(colours) == ["a b" + "c" * (LONGEST_TEXT - 3) + "..."]


def test_a_mask_colours_its_pixels_and_no_others():
    mask = np.zeros((24, 32), np.uint8)
    mask[6:12, 8:16] = 255
    found = drawn({"label": "car", "mask": png(mask)}, None)
    part = np.round(np.array(LABELS[0]) * (90 / 255))
    assert np.abs(found[12:24, 16:32].astype(int) - part).max() <= 1
    found = found.copy()
    found[12:24, 16:32] = 0
    assert not found.any()


@pytest.mark.parametrize("mask", [np.full((32, 32), 255, np.uint8), np.full((24, 8), 255, np.uint8)])
def test_a_mask_of_another_shape_than_the_picture_is_not_drawn(mask):
    assert not drawn({"label": "car", "mask": png(mask)}, None).any()


def test_a_mask_that_is_text_is_none_and_one_that_is_garbage_is_named():
    assert not drawn({"label": "car", "mask": "text"}, None).any()
    with pytest.raises(DatasetError, match="a mask cannot be read"):
        drawn({"label": "car", "mask": b"garbage"}, None)


@pytest.mark.parametrize("box", [(0.5, 0.5, 0.0, 0.25), (0.5, 0.5, 0.25, -0.25), (200.0, 0.5, 0.25, 0.25)])
def test_boxes_without_an_extent_or_far_outside_are_not_drawn(box):
    assert not drawn({"label": "car"}, np.array(box)).any()


class Ahead:
    """A way into the picture that puts point n at pixel (x, y)."""

    size = SIZE

    def project(self, points):
        return Projected(points[:, :2], np.ones(len(points), bool))

    def rays(self, points):
        return points


@pytest.mark.parametrize("distance", [2.0, 8.0, 25.0, 60.0, 200.0])
def test_lidar_points_are_seen_in_the_picture_of_the_page(distance):
    """On grey of the same brightness, which is the hardest ground; 15 of 255 can be told from it at a glance."""
    x, y = np.meshgrid(np.arange(2, 62, 5), np.arange(2, 46, 5))
    points = np.column_stack([x.ravel(), y.ravel(), np.full(x.size, distance)]).astype(float)
    colour = Image.fromarray(colour_distances(np.array([distance]))[None])
    grey = int(np.asarray(colour.convert("L"))[0, 0])
    picture = Image.new("RGB", SIZE, (grey,) * 3)
    draw_lidar(picture, points, Ahead())
    truth = np.asarray(picture).astype(int)
    with Image.open(io.BytesIO(encode_jpeg(picture))) as shown:
        found = np.asarray(shown.convert("RGB")).astype(int)
    marked = (truth != grey).any(2)
    assert marked.sum() == 4 * x.size
    contrast = np.abs(found - grey).max(2)[marked] / np.abs(truth - grey).max(2)[marked]
    assert (contrast >= 0.5).mean() >= 0.8


def test_labels_of_boxes_on_one_place_do_not_cover_each_other_and_the_surest_stays(monkeypatch):
    placed = []
    monkeypatch.setattr(sheet, "_draw_tag", lambda draw, place, text, colour: placed.append((*place, text)))
    rows = [{"label": f"thing{n}", "box2d_score": n / 10, "mask": None} for n in range(1, 10)]
    boxes = {n: np.array([0.5, 0.5, 0.2, 0.2]) for n in range(9)}
    draw_annotations(Image.new("RGB", (640, 360)), rows, boxes, {}, [])
    assert placed[0][2] == "thing9 0.90"
    assert 1 < len(placed) < len(rows)
    tops = sorted(y for _, y, _ in placed)
    assert all(below - above >= 12 for above, below in itertools.pairwise(tops))  # a line of text is 12 pixels high
