# SPDX-License-Identifier: Apache-2.0
"""What the sequences of several cameras are called."""

import pytest

from edgefirst_ros.dataset.names import name_cameras, with_camera


@pytest.mark.parametrize(
    ("topics", "names"),
    [
        (["/front/camera/h264", "/rear/camera/h264"], ["front", "rear"]),
        (["/camera/h264", "/camera/h265"], ["h264", "h265"]),
        (
            ["camera_left/h264", "/camera_right/h264", "/camera_rear/h264"],
            ["camera_left", "camera_right", "camera_rear"],
        ),
        (["/camera/h264", "/rear/camera/h264"], ["camera-h264", "rear"]),
        (["/front/camera/h264", "/rear/camera/h265"], ["front-camera-h264", "rear-camera-h265"]),
    ],
)
def test_what_tells_a_topic_from_the_others(topics, names):
    assert name_cameras(topics) == dict(zip(topics, names, strict=True))


def test_where_the_camera_stands_in_the_name():
    assert with_camera("wagon_2026_01_15_12_00_00", "rear") == "wagon-rear_2026_01_15_12_00_00"
    assert with_camera("my drive", "rear") == "my drive-rear"
