# SPDX-License-Identifier: Apache-2.0
"""What a source makes of publishers that come and go, count for themselves, or are no ROS programs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from rclpy.type_hash import TypeHash  # noqa: E402
from test_source import CAMERA, System  # noqa: E402

from edgefirst_ros.streams import VIDEO  # noqa: E402


@pytest.fixture
def system(ros_domain: int) -> Iterator[System]:
    it = System()
    yield it
    it.close()


# ---- lost on the way -----------------------------------------------------------------------
def test_numbers_of_a_publisher_that_stays_are_no_loss_when_another_one_goes(system: System) -> None:
    camera = system.publish(CAMERA, VIDEO)
    source = system.source()
    system.arrives(source, camera)
    state = source.states[CAMERA]
    again = system.publish(CAMERA, VIDEO, node=system.stranger)
    system.looks(source, lambda: state.publishers == 2)
    state.number = 3  # of the newer one
    system.stranger.destroy_publisher(again)
    system.looks(source, lambda: state.publishers == 1)
    assert [state.count_arrival(number, 0)[1] for number in (1000, 1001, 1003)] == [0, 0, 1]


# ---- parts -----------------------------------------------------------------------------------
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
    system.looks(source, lambda: CAMERA in source.states)
    graph = system.transport.list_topics({})
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
        source.refresh(time.monotonic())
        return source.states[CAMERA].fault

    assert "another definition" in looked_at("told")
    assert looked_at("untold") == ""
