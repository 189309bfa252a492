# SPDX-License-Identifier: Apache-2.0
"""What a source makes of publishers that come and go, count for themselves, or are no ROS programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from rclpy.type_hash import TypeHash  # noqa: E402
from test_messages import transforms  # noqa: E402
from test_source import CAMERA, TRANSFORM, System  # noqa: E402

from edgefirst_ros.messages import decode  # noqa: E402
from edgefirst_ros.sources.ros import Graph, TopicState, _arrive  # noqa: E402
from edgefirst_ros.streams import CUBE, IMU, TF_MESSAGE, VIDEO  # noqa: E402


@pytest.fixture
def system(ros_domain: int) -> Iterator[System]:
    it = System()
    yield it
    it.close()


def lost(state: TopicState, *numbers: int) -> int:
    """How many are counted as lost where messages of these numbers come."""
    return sum(state.note(number, 0) for number in numbers)


# ---- lost on the way -----------------------------------------------------------------------
def test_what_one_publisher_sent_and_did_not_come_is_lost() -> None:
    state = TopicState("/imu", "/imu", IMU, publishers=1)
    assert lost(state, 7, 8, 11, 12, 20) == 2 + 7
    assert state.lost == 9


def test_numbers_of_another_publisher_are_no_loss_before_it_is_known_of() -> None:
    """Two nodes say where their sensors are: the numbers of the one that is there for long lie far ahead."""
    state = TopicState("/tf_static", "/tf_static", TRANSFORM, publishers=1)
    assert lost(state, 1000, 1, 1001, 2, 3, 1002) == 0


def test_numbers_of_a_publisher_that_stays_are_no_loss_when_another_one_goes(system: System) -> None:
    camera = system.publish(CAMERA, VIDEO)
    source = system.source()
    system.arrives(source, camera)
    state = source.topics[CAMERA]
    again = system.publish(CAMERA, VIDEO, node=system.stranger)
    system.looks(source, lambda: state.publishers == 2)
    state.number = 3  # of the newer one
    system.stranger.destroy_publisher(again)
    system.looks(source, lambda: state.publishers == 1)
    assert lost(state, 1000, 1001) == 0
    assert lost(state, 1003) == 1


# ---- parts -----------------------------------------------------------------------------------
def test_a_part_is_not_given_to_two_topics(system: System) -> None:
    """That of a host came first; the other one may not be mixed into it."""
    system.publish(CAMERA, VIDEO)
    source = system.source()
    first = system.publish("/maivin/radar/cube", CUBE)
    system.arrives(source, first)
    system.publish("/radar/cube", CUBE)
    system.publish("/other/radar/cube", CUBE)
    system.looks(source, lambda: "/radar/cube" in source.unused)
    assert source.unused == {
        "/radar/cube": "not recorded: its part is that of /maivin/radar/cube, and cannot change any more"
    }
    assert source.topics.keys() == {CAMERA, "/maivin/radar/cube"}
    system.arrives(source, first)
    system.other.destroy_publisher(first)
    system.looks(source, lambda: not source.topics["/maivin/radar/cube"].publishers)
    assert source.topics.keys() == {CAMERA, "/maivin/radar/cube"}


# ---- programs without ROS ----------------------------------------------------------------------
def test_a_name_that_ros_does_not_allow_is_told_and_harms_nothing(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs of the network name their topics as they like, such as by a host with a dash."""
    system.publish(CAMERA, VIDEO)
    strange = "/maivin-1/camera/h264"
    there = system.node.get_topic_names_and_types
    monkeypatch.setattr(system.node, "get_topic_names_and_types", lambda: [(strange, [VIDEO]), *there()])
    source = system.source()
    system.looks(source, lambda: CAMERA in source.topics)
    graph = Graph(system.node, {})
    assert strange not in graph.topics
    assert "no such name" in graph.mixed[strange]


def test_a_publisher_that_does_not_tell_its_definition_is_no_fault(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera = system.publish(CAMERA, VIDEO)
    source = system.source()
    system.arrives(source, camera)
    info = system.node.get_publishers_info_by_topic
    hashes = {"told": TypeHash(1, bytes(32)), "untold": TypeHash()}

    def looked_at(kind: str) -> str:
        def infos(topic: str) -> list[Any]:
            found = info(topic)
            for publisher in found:
                publisher.topic_type_hash = hashes[kind]
            return found

        monkeypatch.setattr(system.node, "get_publishers_info_by_topic", infos)
        source.refresh()
        return source.topics[CAMERA].fault

    assert "another definition" in looked_at("told")
    assert looked_at("untold") == ""


# ---- what is delivered -------------------------------------------------------------------------
def test_transforms_of_tf2_can_be_decoded() -> None:
    """Live nothing brings along the text of a type, and the codec lacks this one."""
    sent, data = transforms()
    came: list[Any] = []
    state = TopicState("/tf_static", "/tf_static", TF_MESSAGE)
    _arrive(state, lambda message, *_: came.append(message), data, {"publication_sequence_number": 5})
    content = decode(came[0])
    assert [part.child_frame_id for part in content.transforms] == [part.child_frame_id for part in sent]
    assert content.transforms[1].transform.translation.x == sent[1].transform.translation.x
