# SPDX-License-Identifier: Apache-2.0
"""When the topics of a live system get their parts."""

from __future__ import annotations

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")

from edgefirst_ros.sources.ros import Settling

VIDEO = "foxglove_msgs/msg/CompressedVideo"


def test_a_topic_that_comes_later_starts_the_wait_anew() -> None:
    settling = Settling()
    one, both = {"/rear/video": VIDEO}, {"/rear/video": VIDEO, "/front/camera/h264": VIDEO}
    looks = [(one, 5.0), (one, 5.5), (both, 5.9), (both, 6.5), (both, 6.9)]
    assert [settling.look(topics, now) for topics, now in looks] == [False, False, False, False, True]


def test_topics_that_never_cease_to_come_and_go() -> None:
    settling = Settling()
    looks = [settling.look({f"/{n}": VIDEO}, n / 2) for n in range(22)]
    assert looks.index(True) == 20


def test_a_part_by_the_type_alone_takes_longer() -> None:
    settling = Settling()
    topics = {"/rear/video": "foxglove_msgs/msg/CompressedVideo"}
    assert not settling.look(topics, 100.0, guessed=True)
    assert not settling.look(topics, 104.9, guessed=True)
    assert settling.look(topics, 104.9)
    assert settling.look(topics, 105.1, guessed=True)
