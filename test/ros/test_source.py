# SPDX-License-Identifier: Apache-2.0
"""Which topics of a system a capture subscribes, and how, as they come, go and have other types than they should."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from waiting import LONG  # noqa: E402

from edgefirst_ros.config import Settings  # noqa: E402
from edgefirst_ros.messages import Message  # noqa: E402
from edgefirst_ros.sources.live import LiveSource, expect_topics  # noqa: E402
from edgefirst_ros.sources.ros import RosTransport  # noqa: E402
from edgefirst_ros.sources.topics import choose_topics  # noqa: E402
from edgefirst_ros.streams import CLOUD, COMPRESSED_IMAGE, IMU, VIDEO  # noqa: E402

CAMERA = "/camera/h264"
TRANSFORM = "geometry_msgs/msg/TransformStamped"
VOLATILE, KEPT = DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL


def kind_of(schema: str) -> Any:
    package, _, name = schema.partition("/msg/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


class System:
    """Two nodes that publish, and one with the source of a capture.

    Each is a participant of its own: in one of them a topic cannot have two types.
    """

    def __init__(self) -> None:
        self._contexts = [rclpy.Context() for _ in range(3)]
        for context in self._contexts:
            rclpy.init(context=context)
        names = ("capture", "other", "stranger")
        self._nodes = [rclpy.create_node(n, context=c) for n, c in zip(names, self._contexts, strict=True)]
        self.node, self.other, self.stranger = self._nodes
        self._executor = SingleThreadedExecutor(context=self._contexts[0])
        self._executor.add_node(self.node)
        self.transport = RosTransport(self.node, 10)
        self.came: list[tuple[str, str]] = []

    def close(self) -> None:
        self._executor.shutdown()
        for node, context in zip(self._nodes, self._contexts, strict=True):
            node.destroy_node()
            rclpy.shutdown(context=context)

    def publish(self, topic: str, schema: str, durability: Any = VOLATILE, node: Any = None) -> Any:
        qos = QoSProfile(depth=10, durability=durability)
        return (node or self.other).create_publisher(kind_of(schema), topic, qos)

    def source(self, **settings: Any) -> LiveSource:
        """The source of a capture that begins with all that is published now."""
        there = {publisher.topic_name for node in (self.other, self.stranger) for publisher in node.publishers}
        self.until(lambda: all(self.node.count_publishers(topic) for topic in there))
        chosen = Settings(**settings)
        roles = expect_topics(choose_topics(self.transport.list_topics({}).topics, chosen, live=True), chosen)

        def deliver(message: Message, now: int, lost: int, guessed: int) -> None:
            self.came.append((message.topic, message.schema))

        return LiveSource(self.transport, chosen, roles, deliver, self.node.get_logger())

    def until(self, enough: Callable[[], Any], timeout: float = LONG) -> Any:
        deadline = time.monotonic() + timeout
        while not (found := enough()):
            assert time.monotonic() < deadline
            self._executor.spin_once(timeout_sec=0.02)
        return found

    def looks(self, source: LiveSource, enough: Callable[[], Any]) -> None:
        """Let the source look until it is enough."""
        self.until(lambda: source.refresh(time.monotonic()) or enough())

    def arrives(self, source: LiveSource, publisher: Any) -> None:
        """A message of the publisher's topic gets through, sooner or later."""

        def received() -> int:
            return source.states[publisher.topic_name].received if publisher.topic_name in source.states else 0

        before = received()
        self.looks(source, lambda: publisher.publish(publisher.msg_type()) or received() > before)


@pytest.fixture
def system(ros_domain: int) -> Iterator[System]:
    it = System()
    yield it
    it.close()


def test_the_publishers_tell_the_type(system: System) -> None:
    """A subscriber has no say; of publishers that differ those of the expected type are heard."""
    system.publish(CAMERA, VIDEO)
    for topic, schema in ((CAMERA, COMPRESSED_IMAGE), ("/camera/h265", VIDEO)):
        system.stranger.create_subscription(kind_of(schema), topic, lambda _: None, 10)
    for topic, of in (("/lidar/points", COMPRESSED_IMAGE), ("/mine", COMPRESSED_IMAGE), ("/neither", IMU)):
        system.publish(topic, of, node=system.stranger)
        system.publish(topic, TRANSFORM if of == IMU else CLOUD)
    system.until(lambda: all(system.node.count_subscribers(topic) for topic in (CAMERA, "/camera/h265")))
    graph = system.until(lambda: len((graph := system.transport.list_topics({"/mine": (CLOUD,)})).mixed) == 3 and graph)
    topics = {t: graph.topics.get(t) for t in (CAMERA, "/camera/h265", "/lidar/points", "/mine", "/neither")}
    assert topics == {CAMERA: VIDEO, "/camera/h265": None, "/lidar/points": CLOUD, "/mine": CLOUD, "/neither": None}
    assert graph.mixed.keys() == {"/lidar/points", "/mine", "/neither"}
    assert graph.mixed["/lidar/points"].endswith(f"{COMPRESSED_IMAGE}, {CLOUD}; used is {CLOUD}")
    source = system.source()
    system.looks(source, lambda: "/lidar/points" in source.states)
    assert CLOUD in source.states["/lidar/points"].mixed
    assert source.states[CAMERA].mixed == ""


def test_a_topic_that_comes_back_with_another_type(system: System) -> None:
    camera, cloud = system.publish(CAMERA, VIDEO), system.publish("/lidar/points", CLOUD)
    source = system.source()
    system.looks(source, lambda: "/lidar/points" in source.states)
    system.other.destroy_publisher(cloud)
    system.publish("/lidar/points", IMU, node=system.stranger)
    system.looks(source, lambda: source.states["/lidar/points"].fault)
    assert source.states["/lidar/points"].publishers == 0
    assert {*source.unused} == {"/lidar/points"}
    system.arrives(source, camera)


@pytest.mark.parametrize("joined", [False, True], ids=["replaced", "joined"])
def test_a_volatile_publisher_after_one_that_keeps_its_messages(system: System, joined: bool) -> None:
    """It would never reach the subscription that asks for kept messages."""
    system.publish(CAMERA, VIDEO)
    kept = system.publish("/lidar/points", CLOUD, KEPT)
    source = system.source()
    system.arrives(source, kept)
    assert system.transport.subscriptions["/lidar/points"].kept
    if not joined:
        system.other.destroy_publisher(kept)
    system.arrives(source, system.publish("/lidar/points", CLOUD))
    assert not system.transport.subscriptions["/lidar/points"].kept


def test_what_is_said_once_is_heard_whoever_spoke_before(system: System) -> None:
    system.publish(CAMERA, VIDEO)
    source = system.source()
    first = system.publish("/tf_static", TRANSFORM)
    system.arrives(source, first)
    system.other.destroy_publisher(first)
    kept = system.publish("/tf_static", TRANSFORM, KEPT)
    kept.publish(kept.msg_type())  # maybe before it knows of the subscription
    subscriptions = system.transport.subscriptions
    system.looks(source, lambda: system.came.count(("/tf_static", TRANSFORM)) > 1 and subscriptions["/tf_static"].kept)
