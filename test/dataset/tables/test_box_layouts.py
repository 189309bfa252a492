# SPDX-License-Identifier: Apache-2.0
"""Layouts of boxes, from each into each."""

import numpy as np
import pytest

from edgefirst_ros.dataset.tables.values import LAYOUTS, convert_layout

ONE = {"cxcywh": [5.0, 3.0, 4.0, 2.0], "xyxy": [3.0, 2.0, 7.0, 4.0], "ltwh": [3.0, 2.0, 4.0, 2.0]}


@pytest.mark.parametrize("found", LAYOUTS)
@pytest.mark.parametrize("wanted", LAYOUTS)
def test_a_box_is_the_same_in_every_layout(found, wanted):
    boxes = np.array([ONE[found]] * 2, np.float32)
    np.testing.assert_array_equal(convert_layout(boxes, found, wanted), [ONE[wanted]] * 2)


@pytest.mark.parametrize("pair", [("round", "xyxy"), ("xyxy", "round")])
def test_a_layout_that_is_none_is_named(pair):
    with pytest.raises(ValueError, match="'round' is not a box layout"):
        convert_layout(np.zeros((1, 4)), *pair)
