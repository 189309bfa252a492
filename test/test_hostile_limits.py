# SPDX-License-Identifier: Apache-2.0
"""The limits of the settings reach whatever reads."""

import pytest

from edgefirst_ros import convert
from edgefirst_ros.errors import RecordingError

SMALL = {"seconds": 0.3, "size": (128, 64), "cube_shape": (1, 4, 2, 8), "lidar_points": 20}


def dropped(outcome, topic):
    return outcome.counts.topics[topic].dropped.get("cannot be stored", 0)


@pytest.mark.parametrize(
    ("limit", "largest", "topic"), [("cube_values", 64, "/radar/cube"), ("cloud_points", 20, "/lidar/points")]
)
def test_limits_of_companions_and_of_the_reference(recording, tmp_path, limit, largest, topic):
    path = recording(**SMALL)
    fine = convert(path, tmp_path, name="fine", limits={limit: largest})
    assert dropped(fine, topic) == 0
    less = convert(path, tmp_path, name="less", limits={limit: largest - 1})
    assert dropped(less, topic) == less.counts.topics[topic].seen > 0
    assert less.exit_code == 3
    convert(path, tmp_path, name="alone", limits={limit: largest}, reference_topic=topic)
    with pytest.raises(RecordingError, match="cannot be stored"):
        convert(path, tmp_path, name="none", limits={limit: largest - 1}, reference_topic=topic)


def test_the_limit_of_chunks(recording, tmp_path):
    path = recording(**SMALL | {"codec": "rgb8", "size": (640, 480), "chunk_size": 2 << 20})
    assert convert(path, tmp_path, name="fine", limits={"chunk_bytes": 4 << 20}).exit_code == 0
    with pytest.raises(RecordingError, match=r"limits\.chunk_bytes"):
        convert(path, tmp_path, name="less", limits={"chunk_bytes": 1 << 20})


@pytest.mark.parametrize("options", [{}, {"rate": 10.0}])
@pytest.mark.parametrize("codec", ["h264", "h265"])
def test_the_limit_of_pixels_of_video_is_named(recording, tmp_path, codec, options):
    path = recording(**SMALL | {"codec": codec})
    assert convert(path, tmp_path, name="fine", limits={"picture_pixels": 128 * 64}, **options).exit_code == 0
    with pytest.raises(
        RecordingError, match=r"pictures of 128x64 have more than 8191 pixels \(limits\.picture_pixels\)"
    ):
        convert(path, tmp_path, name="less", limits={"picture_pixels": 128 * 64 - 1}, **options)
