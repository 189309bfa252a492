# SPDX-License-Identifier: Apache-2.0
import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from edgefirst_ros.dataset.tables.write import outline_png, trace_outline
from edgefirst_ros.errors import DatasetError

MASKS = arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9)))


def edges(ring):
    return zip(ring, ring[1:] + ring[:1], strict=True)


@given(MASKS)
def test_area_and_corners(mask):
    rings = trace_outline(mask)
    doubled = sum(a[0] * b[1] - b[0] * a[1] for ring in rings for a, b in edges(ring))
    assert doubled == 2 * mask.sum()
    for ring in rings:
        horizontal = [a[1] == b[1] for a, b in edges(ring)]
        assert all(x != y for x, y in edges(horizontal))  # no needless corner, no step aslant


@given(MASKS)
def test_filled_by_opencv_it_gives_the_mask(mask):
    scale = 8  # between the corners, so that the fill rule at the border does not matter
    canvas = np.zeros((mask.shape[0] * scale, mask.shape[1] * scale), np.uint8)
    rings = trace_outline(mask)
    if rings:
        cv2.fillPoly(canvas, [np.array(ring, np.int32) * scale for ring in rings], 1)
    assert np.array_equal(canvas[scale // 2 :: scale, scale // 2 :: scale] > 0, mask)


@pytest.mark.parametrize("mode", ["1", "L", "I;16"])
def test_png_of_any_depth(mode):
    mask = np.zeros((4, 8), bool)
    mask[1:3, 2:6] = True
    picture = {"1": mask, "L": mask.astype(np.uint8) * 200, "I;16": mask.astype(np.uint16) * 40000}[mode]
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    assert outline_png(stream.getvalue()) == [[0.25, 0.25, 0.75, 0.25, 0.75, 0.75, 0.25, 0.75]]


@pytest.mark.parametrize("png", [b"", b"\x89PNG\r\n\x1a\n", b"no picture"])
def test_no_png(png):
    with pytest.raises(DatasetError):
        outline_png(png)
