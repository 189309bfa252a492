# SPDX-License-Identifier: Apache-2.0
"""Topics of ROS 2 that cannot be subscribed: nobody publishes them, or their types are not installed here."""

import sys
import time

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from domains import Domains  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from rclpy.subscription import Subscription  # noqa: E402
from sensor_msgs.msg import Imu  # noqa: E402
from std_msgs.msg import String  # noqa: E402
from waiting import LONG  # noqa: E402

from edgefirst_ros.sources.live import TopicState  # noqa: E402
from edgefirst_ros.sources.ros import RosTransport  # noqa: E402
from edgefirst_ros.streams import FIX, IMU  # noqa: E402


@pytest.fixture(scope="module")
def domains():
    ours = Domains()
    yield ours
    ours.leave()


@pytest.fixture
def node(domains, monkeypatch):
    """A node that publishes /imu, and hears what it publishes."""
    domains.enter(monkeypatch)
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("capture", context=context)
    node.create_publisher(Imu, "/imu", QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def nobody(*_):
    raise AssertionError("nothing is sent")


@pytest.mark.parametrize(("topic", "schema"), [("/gps", FIX), ("/imu", FIX)])
def test_what_nobody_publishes_with_that_type_is_not_subscribed(node, topic, schema):
    transport = RosTransport(node, 10)
    state = TopicState(topic, topic, schema)
    assert not transport.listen(state, nobody, once=False)
    assert (transport.subscriptions, state.fault, state.publishers) == ({}, "", 0)


def test_topics_about_nodes_are_not_offered(node):
    node.create_publisher(String, "~/finished", 1)
    while not node.count_publishers("/capture/finished"):
        pass
    assert {"/rosout", "/capture/finished"} < dict(node.get_topic_names_and_types()).keys()
    assert RosTransport(node, 10).list_topics({}).topics == {"/imu": IMU}


def test_a_topic_under_the_namespace_of_the_node_has_the_name_of_the_device_alone(node):
    """It comes before /imu, and is not offered by its own name too, which no device has, unless the settings do."""
    other = rclpy.create_node("other", context=node.context, namespace="/fleet/wagon")
    other.create_publisher(Imu, "imu", 1)
    while not other.count_publishers("/fleet/wagon/imu"):
        pass
    own = "/fleet/wagon/imu"
    assert RosTransport(other, 10).list_topics({}).names == {"/imu": (own, IMU)}
    assert RosTransport(other, 10, given=[own]).list_topics({}).names == {own: (own, IMU)}
    other.destroy_node()


def test_without_a_namespace_topics_of_all_hosts_are_offered(node):
    """Choosing roles prefers the one that names no host, and must know of the others."""
    other = node.create_publisher(Imu, "/left/imu", 1)
    while not node.count_publishers("/left/imu"):
        pass
    assert RosTransport(node, 10).list_topics({}).topics == {"/imu": IMU, "/left/imu": IMU}
    node.destroy_publisher(other)


def test_the_reliability_of_a_subscription_is_that_of_its_publishers(node):
    transport = RosTransport(node, 10)
    state = TopicState("/imu", "/imu", IMU)
    assert transport.listen(state, nobody, once=False)
    (info,) = node.get_subscriptions_info_by_topic("/imu")
    assert info.qos_profile.reliability == ReliabilityPolicy.BEST_EFFORT
    assert (state.reliable, state.publishers, state.fault) == (False, 1, "")
    transport.close()


@pytest.mark.skipif(not hasattr(Subscription, "CallbackType"), reason="ROS 2 Humble passes no numbers of messages")
def test_messages_come_with_the_numbers_that_their_publisher_gave_them(node):
    transport, came = RosTransport(node, 10), []
    assert transport.listen(TopicState("/imu", "/imu", IMU), lambda _, number: came.append(number), once=False)
    (publisher,) = (one for one in node.publishers if one.topic_name == "/imu")
    executor, deadline = SingleThreadedExecutor(context=node.context), time.monotonic() + LONG
    executor.add_node(node)
    while not publisher.get_subscription_count() and time.monotonic() < deadline:
        executor.spin_once(0.1)
    for sent in range(1, 4):
        publisher.publish(Imu())
        while len(came) < sent and time.monotonic() < deadline:
            executor.spin_once(0.1)
    executor.shutdown()
    transport.close()
    assert came == [1, 2, 3]  # DDS counts from 1


def test_an_override_of_the_reliability_is_what_the_status_has(node):
    node.create_publisher(String, "/said", QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE))
    for reliability, reliable in ((None, True), (ReliabilityPolicy.BEST_EFFORT, False)):
        transport = RosTransport(node, 10, {"/said": {"reliability": reliability}} if reliability else {})
        state = TopicState("/said", "/said", "std_msgs/msg/String")
        assert transport.listen(state, nobody, once=False)
        (info,) = node.get_subscriptions_info_by_topic("/said")
        assert (info.qos_profile.reliability == ReliabilityPolicy.RELIABLE, state.reliable) == (reliable, reliable)
        transport.close()


def test_a_type_that_is_not_installed_is_a_fault_that_is_told_once(node, monkeypatch):
    transport, told = RosTransport(node, 10), []
    monkeypatch.setattr(transport._log, "error", told.append)
    monkeypatch.setitem(sys.modules, "sensor_msgs.msg", None)
    state = TopicState("/imu", "/imu", IMU)
    for _ in range(2):
        assert transport.listen(state, nobody, once=False)
        assert state.fault == f"the type {IMU} is not installed: install the package sensor_msgs"
    assert told == [f"/imu: {state.fault}"]
    assert (transport.subscriptions, state.publishers) == ({}, 1)
