# SPDX-License-Identifier: Apache-2.0
"""The capture node in this process: what it takes while it does something else, and which names it refuses."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")

from capturing import Bench  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from std_msgs.msg import Empty  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402
from waiting import LONG  # noqa: E402

from edgefirst_ros.errors import DatasetError  # noqa: E402
from edgefirst_ros.nodes.capture import CaptureNode  # noqa: E402
from edgefirst_ros.pipeline.capture import Results  # noqa: E402
from edgefirst_ros.pipeline.capture_session import _Capturing  # noqa: E402


class Slow:
    """In place of a capture: it stops once `enough`, and cannot be split."""

    def __init__(self, results: Results) -> None:
        self.enough = threading.Event()
        self.results = results

    def stop(self) -> None:
        self.results.finished = ["in time" if self.enough.wait(LONG) else "nothing came"]

    def split(self) -> None:
        raise DatasetError("not now")

    def status(self) -> dict[str, Any]:
        return {"recording": True}

    def close(self) -> None:
        self.enough.set()


def test_messages_and_services_do_not_wait_for_a_stop(bench: Bench) -> None:
    node = CaptureNode()
    slow = Slow(node.service.session._results)
    source = SimpleNamespace(states={}, unused={}, refresh=print, close=print)
    node.service.session._current = _Capturing(slow, source)  # type: ignore[arg-type]
    came = []

    def take(message: Empty) -> None:
        came.append(message)
        if len(came) == 20:
            slow.enough.set()

    node.create_subscription(Empty, "/some", take, 1)
    publisher = bench.node.create_publisher(Empty, "/some", 100)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.2)

    spinning = threading.Thread(target=spin)
    spinning.start()
    try:
        stop = bench.node.create_client(Trigger, "/capture/stop")
        assert stop.wait_for_service(LONG)
        answer = stop.call_async(Trigger.Request())
        assert bench.call(Trigger, "/capture/status", Trigger.Request()).success
        assert not answer.done()
        while not came or (len(came) < 20 and not answer.done()):
            before = len(came)
            publisher.publish(Empty())
            slow.enough.wait(0.05 if len(came) == before else 0.0)
        stopped = threading.Event()
        answer.add_done_callback(lambda _: stopped.set())
        assert stopped.wait(LONG)
        assert answer.result().message == '{"datasets": ["in time"]}'
        split = bench.call(Trigger, "/capture/split", Trigger.Request())
        assert (split.success, split.message) == (False, "not now")
    finally:
        ended.set()
        spinning.join()
        executor.shutdown()
        node.destroy_node()


def test_another_node_of_the_same_name_is_told_once(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    """Both would answer to the same services."""
    node, executor = CaptureNode(), SingleThreadedExecutor()
    executor.add_node(node)
    try:
        node._diagnose()
        assert "another node is named" not in capfd.readouterr().err
        namesake = rclpy.create_node("capture")
        for _ in range(2):
            while node.get_node_names_and_namespaces().count(("capture", "/")) < 2:
                executor.spin_once(timeout_sec=0.05)
            node._diagnose()
        assert capfd.readouterr().err.count("another node is named /capture") == 1
        namesake.destroy_node()
    finally:
        executor.shutdown()
        node.destroy_node()
