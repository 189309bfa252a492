# SPDX-License-Identifier: Apache-2.0
"""Boxes of annotations in each layout and type become centre and size in parts of the picture."""

import math

import numpy as np
import polars as pl
import pytest

from edgefirst_ros.dataset.query import convert_boxes
from edgefirst_ros.report.content import COLUMNS, ROWS, count_box_cells

CENTRED = [[0.5, 0.25, 0.25, 0.125], [0.125, 0.75, 0.25, 0.5]]
LAYOUTS = {
    "cxcywh": CENTRED,
    "xyxy": [[0.375, 0.1875, 0.625, 0.3125], [0.0, 0.5, 0.25, 1.0]],
    "ltwh": [[0.375, 0.1875, 0.25, 0.125], [0.0, 0.5, 0.25, 0.5]],
}
ARRAY = pl.Array(pl.Float32, 4)


def table(values, kind=ARRAY):
    return pl.DataFrame({"box2d": values}, schema={"box2d": kind})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_becomes_centre_and_size(layout):
    assert convert_boxes(table(LAYOUTS[layout]), {"box2d_format": layout}).tolist() == CENTRED


def test_without_a_layout_boxes_are_centre_and_size():
    assert convert_boxes(table(CENTRED), {}).tolist() == CENTRED


def test_rows_without_a_box_and_boxes_that_are_not_finite_are_left_out():
    rows = table([CENTRED[0], None, [math.nan] * 4, [0.5, math.inf, 0.1, 0.1], CENTRED[1]])
    assert convert_boxes(rows, {}).tolist() == CENTRED


def test_of_lists_only_those_of_four_numbers_are_boxes():
    rows = table([CENTRED[0], [0.5, 0.5], [0.1] * 5, None, CENTRED[1]], pl.List(pl.Float32))
    assert convert_boxes(rows, {}).tolist() == CENTRED


def test_boxes_in_pixels_are_left_out():
    assert convert_boxes(table([[16.0, 12.0, 8.0, 8.0]]), {"box2d_normalized": "false"}).shape == (0, 4)


@pytest.mark.parametrize("rows", [pl.DataFrame({"label": ["car"]}), pl.DataFrame({"box2d": ["0.5 0.5 0.1 0.1"]})])
def test_a_column_that_is_not_there_or_is_text_has_no_boxes(rows):
    assert convert_boxes(rows, {}).shape == (0, 4)


def test_the_map_counts_centres_by_cell_with_the_upper_ones_first():
    found = count_box_cells(np.array([[0.01, 0.01, 0.1, 0.1], [0.01, 0.02, 0.1, 0.1], [0.99, 0.99, 0.1, 0.1]]))
    expected = np.zeros((ROWS, COLUMNS))
    expected[0, 0], expected[-1, -1] = 2, 1
    assert found.tolist() == expected.tolist()
