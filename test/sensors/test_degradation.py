# SPDX-License-Identifier: Apache-2.0
"""Degradation of pictures that are made worse on purpose, by OpenCV."""

import cv2
import numpy as np
import pytest

from edgefirst_ros.sensors.picture import LEVELS, judge_luma, judge_picture, measure_blur


def scene(size=(640, 360), turned=90):
    """A picture of edges in all directions, as a street has them; a little softened, as by a lens.

    With `turned` 0 all edges run along the sides of the picture.
    """
    rng = np.random.default_rng(3)
    picture = np.full(size[::-1], 120, np.uint8)
    for _ in range(150):
        at, half = rng.integers(0, size), rng.integers(4, 60, 2)
        corners = cv2.boxPoints((at.tolist(), half.tolist(), float(rng.uniform(0, turned)))).astype(np.int32)
        cv2.fillPoly(picture, [corners], int(rng.integers(30, 226)), cv2.LINE_AA)
    return cv2.GaussianBlur(picture, (0, 0), 0.6)


def test_a_sharp_picture_has_none():
    assert judge_luma(scene()) == "none"


def test_more_blur_is_never_less_degraded():
    found = [judge_luma(cv2.GaussianBlur(scene(), (0, 0), sigma)) for sigma in (0.5, 1, 1.5, 2, 3, 5)]
    assert [LEVELS.index(level) for level in found] == sorted(map(LEVELS.index, found))
    assert found[0] == "none"
    assert found[-1] == "high"
    assert len(set(found)) >= 3
    values = [measure_blur(cv2.GaussianBlur(scene(), (0, 0), sigma)) for sigma in (0.5, 1, 1.5, 2, 3)]
    assert values == sorted(values)
    assert 0 < values[0] < values[-1] < 1


@pytest.mark.parametrize("turned", [False, True])
def test_motion_in_one_direction_counts(turned):
    kernel = np.full((1, 21), 1 / 21, np.float32)
    for picture in (scene(), scene(turned=0)):  # in the latter the other direction stays sharp
        moved = cv2.filter2D(picture, -1, kernel.T if turned else kernel)
        assert judge_luma(picture) == "none"
        assert judge_luma(moved) in ("medium", "high")


@pytest.mark.parametrize(("span", "level"), [(70, "none"), (50, "low"), (30, "medium"), (12, "high")])
def test_contrast(span, level):
    low, high = np.percentile(scene(), (5, 95))
    pale = 100 + (scene() - low) * span / (high - low)
    assert judge_luma(np.clip(pale, 0, 255).round().astype(np.uint8)) == level


@pytest.mark.parametrize(("share", "level"), [(0.2, "none"), (0.3, "low"), (0.5, "medium"), (0.7, "high")])
@pytest.mark.parametrize("value", [0, 255])
def test_exposure(share, level, value):
    """A part of the picture in the dark, or in the glare."""
    picture = np.clip(scene(), 20, 235)
    picture[:, : round(share * picture.shape[1])] = value
    assert judge_luma(picture) == level


def test_a_picture_of_one_colour_is_degraded():
    assert judge_luma(np.full((48, 64), 128, np.uint8)) == "high"
    assert judge_luma(np.full((1, 1), 128, np.uint8)) == "high"


@pytest.mark.parametrize("kind", [".jpg", ".png"])
def test_files(kind):
    sharp = cv2.cvtColor(scene(), cv2.COLOR_GRAY2BGR)
    assert judge_picture(cv2.imencode(kind, sharp)[1].tobytes()) == "none"
    assert judge_picture(cv2.imencode(kind, cv2.GaussianBlur(sharp, (0, 0), 5))[1].tobytes()) == "high"
