# SPDX-License-Identifier: Apache-2.0
"""Publishers for the channels of a recording: one for each topic and type, and why others have none."""

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from domains import Domains  # noqa: E402

from edgefirst_ros.errors import RecordingError, UsageError  # noqa: E402
from edgefirst_ros.nodes.play import open_channels  # noqa: E402
from edgefirst_ros.nodes.player import Outlets  # noqa: E402
from edgefirst_ros.sources.source import Channel  # noqa: E402
from edgefirst_ros.streams import FIX, IMU  # noqa: E402

CLOCK = "rosgraph_msgs/msg/Clock"


@pytest.fixture(scope="module")
def domains():
    ours = Domains()
    yield ours
    ours.leave()


@pytest.fixture
def node(domains, monkeypatch):
    domains.enter(monkeypatch)
    context = rclpy.Context()
    rclpy.init(context=context)
    made = rclpy.create_node("player", context=context)
    yield made
    made.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def outlets(node):
    return Outlets(node)


def channel(topic, schema, seen=3, encoding="cdr"):
    return Channel(topic, schema, encoding, b"", seen)


def test_channels_of_one_topic_and_type_have_one_publisher(outlets, node):
    opened, skipped = open_channels(outlets, [channel("/gps", FIX), channel("/gps", FIX), channel("/imu", IMU)], ())
    assert (opened.keys(), skipped) == ({("/gps", FIX), ("/imu", IMU)}, {})
    assert [node.count_publishers(topic) for topic in ("/gps", "/imu")] == [1, 1]


def test_the_clock_of_the_player_takes_the_place_of_the_recorded_one(node):
    channels = [channel("/gps", FIX), channel("/clock", CLOCK, 7)]
    opened, skipped = open_channels(Outlets(node, clock=True), channels, ())
    assert opened.keys() == {("/gps", FIX)}
    assert skipped == {"/clock": "7 messages: the player's own /clock takes its place"}


def test_without_a_clock_of_the_player_the_recorded_one_is_published(outlets):
    assert open_channels(outlets, [channel("/clock", CLOCK)], ())[0].keys() == {("/clock", CLOCK)}


def test_messages_that_cannot_be_published_are_summed_up_by_topic(outlets):
    channels = [channel("/x", "no_such_msgs/msg/X", 2), channel("/x", "no_such_msgs/msg/X", 5), channel("/gps", FIX)]
    opened, skipped = open_channels(outlets, [*channels, channel("/told", IMU, 4, encoding="json")], ())
    assert opened.keys() == {("/gps", FIX)}
    assert skipped["/x"].startswith("7 messages: ")
    assert skipped["/told"] == "4 messages: its encoding is json, not cdr"


def test_where_nothing_can_be_published_each_reason_is_given(outlets):
    with pytest.raises(RecordingError, match="no message can be published; /gps: 3 messages: its encoding is unknown"):
        open_channels(outlets, [channel("/gps", FIX, encoding="")], ())


def test_a_topic_that_is_asked_for_and_is_not_there_is_named_with_those_there_are(outlets):
    with pytest.raises(UsageError, match="topics: '/lidar' is not in the recording; it has /gps, /imu"):
        open_channels(outlets, [channel("/imu", IMU), channel("/gps", FIX)], ["/lidar"])
