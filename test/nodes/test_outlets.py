# SPDX-License-Identifier: Apache-2.0
"""Publishers for the channels of a recording: one for each topic and type, and why others have none."""

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from domains import Domains  # noqa: E402

from edgefirst_ros.errors import RecordingError, UsageError  # noqa: E402
from edgefirst_ros.messages import Message  # noqa: E402
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
def outlets(domains, monkeypatch):
    domains.enter(monkeypatch)
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("player", context=context)
    yield Outlets(node)
    node.destroy_node()
    rclpy.shutdown(context=context)


def channel(topic, schema, seen=3, encoding="cdr"):
    return Channel(topic, schema, encoding, b"", seen)


def message(topic, schema):
    return Message(topic, schema, 0, 0, 0, b"\0\1\0\0" + bytes(400))


def test_channels_of_one_topic_and_type_have_one_publisher(outlets):
    outlets.open([channel("/gps", FIX), channel("/gps", FIX), channel("/imu", IMU)], (), own_clock=False)
    assert (outlets.names, outlets.skipped) == (frozenset({"/gps", "/imu"}), {})
    for sent, published in ((("/gps", FIX), 1), (("/imu", IMU), 2), (("/gps", IMU), 2), (("/lidar", FIX), 2)):
        outlets.publish(message(*sent))
        assert outlets.published == published


def test_the_clock_of_the_player_takes_the_place_of_the_recorded_one(outlets):
    outlets.open([channel("/gps", FIX), channel("/clock", CLOCK, 7)], (), own_clock=True)
    assert outlets.names == frozenset({"/gps"})
    assert outlets.skipped == {"/clock": "7 messages: the player's own /clock takes its place"}


def test_without_a_clock_of_the_player_the_recorded_one_is_published(outlets):
    outlets.open([channel("/clock", CLOCK)], (), own_clock=False)
    assert outlets.names == frozenset({"/clock"})


def test_messages_that_cannot_be_published_are_summed_up_by_topic(outlets):
    channels = [channel("/x", "no_such_msgs/msg/X", 2), channel("/x", "no_such_msgs/msg/X", 5), channel("/gps", FIX)]
    outlets.open([*channels, channel("/told", IMU, 4, encoding="json")], (), own_clock=False)
    assert outlets.skipped["/x"].startswith("7 messages: ")
    assert outlets.skipped["/told"] == "4 messages: its encoding is json, not cdr"
    assert outlets.lacking == {"/x"}


def test_where_nothing_can_be_published_each_reason_is_given(outlets):
    with pytest.raises(RecordingError, match="no message can be published; /gps: 3 messages: its encoding is unknown"):
        outlets.open([channel("/gps", FIX, encoding="")], (), own_clock=False)


def test_a_topic_that_is_asked_for_and_is_not_there_is_named_with_those_there_are(outlets):
    with pytest.raises(UsageError, match="topics: '/lidar' is not in the recording; it has /gps, /imu"):
        outlets.open([channel("/imu", IMU), channel("/gps", FIX)], ["/lidar"], own_clock=False)
