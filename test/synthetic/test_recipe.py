# SPDX-License-Identifier: Apache-2.0
import pytest

from edgefirst_ros.errors import UsageError
from edgefirst_ros.synthetic import START, Recipe, make_recording_name

SECOND = 10**9


def test_name_of_the_file_is_host_and_utc_start():
    assert make_recording_name("verdin-imx8mp-1", START) == "verdin-imx8mp-1_2026_01_15_12_00_00.mcap"
    assert make_recording_name("../../x", START) == "x_2026_01_15_12_00_00.mcap"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"seconds": 0}, "seconds"),
        ({"fps": -1}, "fps"),
        ({"codec": "vp9"}, "vp9"),
        ({"size": (641, 360)}, "641x360"),
        ({"topics": {"camera", "radar"}}, "radar"),
        ({"drop": {"lidar": {1}}}, "lidar"),
        ({"rates": {"gps": 0.0}}, "gps"),
        ({"rates": {"camera": 10.0}}, "camera"),
        ({"cube_shape": (2, 128, 4, 127)}, "127"),
        ({"noise": 50.0}, "50"),
        ({"b_frames": 9}, "9"),
        ({"gop": 0}, "gop"),
        ({"matrix": "bt2020"}, "bt2020"),
        ({"publish": "never"}, "never"),
        ({"scene": "moon"}, "moon"),
        ({"compression": "gzip"}, "gzip"),
    ],
)
def test_values_that_make_no_recording_are_refused_by_name(values, named):
    with pytest.raises(UsageError, match=named):
        Recipe(**values)


def test_stamps_do_not_drift():
    recipe = Recipe(fps=30, rates={"radar/cube": 18.0})
    assert [recipe.stamp("camera", i) - START for i in (0, 1, 2, 3, 108_000)] == [
        0, 33_333_333, 66_666_666, 100_000_000, 3600 * SECOND,
    ]  # fmt: skip
    assert recipe.stamp("radar/cube", 18) - START == SECOND + 7_000_000
    assert Recipe(fps=30000 / 1001).stamp("camera", 30000) - START == 1001 * SECOND
    assert recipe.stamp("model/output", 5) == recipe.stamp("camera", 15)


def test_clock_is_set_forth_and_back():
    recipe = Recipe(clock_steps=[(1.0, 500), (2.0, -2000)])
    assert recipe.clock(START + SECOND - 1) == START + SECOND - 1
    assert recipe.clock(START + SECOND) == START + SECOND + 500
    assert recipe.clock(START + 2 * SECOND) == START + 2 * SECOND - 1500
