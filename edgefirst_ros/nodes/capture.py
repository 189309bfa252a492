# SPDX-License-Identifier: Apache-2.0
"""The capture node: datasets from live topics, as a lifecycle node with services and diagnostics."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import rclpy
import rclpy.task
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.dataset.names import check_name
from edgefirst_ros.dataset.recovery.recover import recover_all
from edgefirst_ros.errors import EdgeFirstError, RecordingError, UsageError
from edgefirst_ros.nodes.health import Health
from edgefirst_ros.nodes.parameters import check, declare, read
from edgefirst_ros.pipeline.capture import Capture
from edgefirst_ros.pipeline.memory import keep_buffers
from edgefirst_ros.sources.ros import Graph, RosSource, Settling
from edgefirst_ros.sources.topics import choose_topics, expect_topics

MODELS = (Settings, LiveSettings)
CHANGEABLE = frozenset({"rate", "keyframes", "require", "jpeg_quality", "max_bytes", "max_seconds", "min_free_bytes"})
"""Parameters that may change at run time; they hold from the next dataset on."""
LOOK_EVERY = 0.25
"""s between two looks for topics."""


class CaptureNode(LifecycleNode):
    """Looks for the camera and what belongs to it, and writes datasets while it is active."""

    def __init__(self) -> None:
        super().__init__("capture")
        declare(self, *MODELS)
        self.settings, self.live = self._read()
        self.capture: Capture | None = None
        self.source: RosSource | None = None
        self._configured = self._active = False
        self._wanted = self.live.autostart
        self._told = ""
        self._settling = Settling()
        self._health = Health(self.get_fully_qualified_name())
        self._named = False  # whether the name of the first dataset was given away
        self._recovering: threading.Thread | None = None
        self._orders = ThreadPoolExecutor(1, "orders")  # what the capture is told to do, one after the other
        self._finished: list[str] = []  # of captures that are closed
        self._lossy = False
        self._empty = 0
        self._failed = False
        self.finalized = False
        """Whether nothing can bring the node up again."""
        self.add_on_set_parameters_callback(self._may_change)
        self.add_post_set_parameters_callback(self._changed)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        waiting = ReentrantCallbackGroup()  # what waits for the capture must keep nobody else from it
        for name, what in (
            ("start", self._start),
            ("stop", self._stop),
            ("split", self._split),
            ("status", self._status),
        ):
            self.create_service(Trigger, f"~/{name}", self._answer(what), callback_group=waiting)
        steady = Clock(clock_type=ClockType.STEADY_TIME)  # ROS time may stand still
        self.create_timer(LOOK_EVERY, self._look, clock=steady)
        self.create_timer(1.0, self._diagnose, clock=steady)

    @property
    def exit_code(self) -> int:
        """What the end of the process says of the datasets: 0 all there, 1 nothing usable, 3 something is lost."""
        if self._failed or (self._empty and not self._finished):
            return 3 if self._finished else 1
        return 3 if self._lossy else 0

    # ---- lifecycle -----------------------------------------------------------------------
    def come_up(self) -> None:
        """Configure, where that is still to be done, and activate."""
        if not self._configured:
            self.trigger_configure()
        self.trigger_activate()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Take the parameters as they are now."""
        try:
            self.settings, self.live = self._read()
        except EdgeFirstError as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        self._configured = True
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Begin to look for topics, and complete beside it what an earlier capture could not."""
        if self._recovering is None or not self._recovering.is_alive():
            out, log = Path(self.live.out), self.get_logger()
            self._recovering = threading.Thread(target=recover_all, args=(out, log.warning), daemon=True)
            self._recovering.start()
        self._active = True
        self._wanted = self.live.autostart
        self._settling = Settling()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Complete the dataset and listen no more."""
        self._active = False
        self._close()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Nothing is left to be given up."""
        self._configured = False
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Complete the dataset, whatever the state was."""
        self._active = False
        self._close()
        self.finalized = True
        return TransitionCallbackReturn.SUCCESS

    def _close(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            source.close()
        capture, self.capture = self.capture, None
        if capture is None:
            return
        try:
            self._orders.submit(capture.close).result()  # behind all that it was told before
        except EdgeFirstError as error:
            self._failed = True
            self.get_logger().error(str(error))
        self._finished += capture.finished
        self._lossy = self._lossy or capture.lossy
        self._empty += capture.empty
        self._failed = self._failed or capture.failures > 0

    # ---- topics --------------------------------------------------------------------------
    def _look(self) -> None:
        if not self._active:
            return
        if self.source is None:
            self._begin()
        if self.source is not None:
            self.source.refresh()

    def _begin(self) -> None:
        """Give the topics their parts, once there is a camera (or the reference topic that is asked for)."""
        graph = Graph(self, {})
        try:
            roles = choose_topics(graph.topics, self.settings, live=True)
        except EdgeFirstError as error:
            self._settling = Settling()
            waits = isinstance(error, RecordingError) or self.settings.reference_topic is not None
            mixed = "".join(f"; {topic}: {what}" for topic, what in graph.mixed.items())
            self._tell(f"waiting: {error}{mixed}" if waits else f"{error}{mixed}")
            return
        if not self._settling.look(graph.topics, time.monotonic(), guessed=bool(roles.notes)):
            return
        roles = expect_topics(roles, self.settings)
        for note in roles.notes:
            self.get_logger().warning(note)
        live = self.live.model_copy(update={"sequence": None}) if self._named else self.live
        self._named = True
        self.capture = Capture(self.settings, live, roles, socket.gethostname(), self.get_logger().info)
        self.source = RosSource(self, self.settings, roles, self.capture.put, self.live.depth)
        self._told = ""
        if self._wanted:
            self.capture.start()

    def _tell(self, text: str) -> None:
        """Log what is waited for, once."""
        if text != self._told:
            self._told = text
            self.get_logger().info(text)

    # ---- services and parameters ---------------------------------------------------------
    def _answer(self, what: Callable[[], Awaitable[str]]) -> Callable[[Trigger.Request, Trigger.Response], Any]:
        async def answer(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            try:
                response.message, response.success = await what(), True
            except EdgeFirstError as error:
                response.message, response.success = str(error), False
            return response

        return answer

    async def _order(self, what: Callable[[], Any]) -> None:
        """Have the capture do something, which may take seconds; messages are taken all the while."""
        done = rclpy.task.Future()

        def tell(_: Any) -> None:
            done.set_result(None)
            if self.executor is not None:
                self.executor.wake()

        order = self._orders.submit(what)
        order.add_done_callback(tell)
        await done
        order.result()

    def _running(self) -> Capture:
        if self.capture is None or self.source is None:
            raise RecordingError(self._told or "the node is not active")
        return self.capture

    async def _start(self) -> str:
        if not self._active:
            self.come_up()
        if self.capture is None and self._active:
            self._wanted = True
            return "begins as soon as there is a camera"
        await self._order(self._running().start)
        return "started"

    async def _stop(self) -> str:
        self._wanted = False
        if self.capture is not None:
            await self._order(self.capture.stop)
        return json.dumps({"datasets": self._all_finished()})

    async def _split(self) -> str:
        await self._order(self._running().split)
        return "a new dataset begins with the next keyframe"

    def _all_finished(self) -> list[str]:
        return [*self._finished, *(self.capture.finished if self.capture is not None else [])]

    async def _status(self) -> str:
        return json.dumps(self.status())

    def status(self) -> dict[str, Any]:
        """What is going on, by topic and in all."""
        facts: dict[str, Any] = {"active": self._active, "waiting_for": self._told}
        if self.capture is not None:
            facts |= self.capture.status()
        facts["finished"] = self._all_finished()
        if self.source is not None:
            facts["topics"] = {
                topic: {
                    "received": state.received,
                    "lost": state.lost,
                    "longest_gap_s": state.gap / 1e9,
                    "reliable": state.reliable,
                    "fault": state.fault,
                }
                for topic, state in sorted(self.source.topics.items())
            }
            facts["not_recorded"] = dict(self.source.unused)
        return facts

    def _read(self) -> tuple[Settings, LiveSettings]:
        """The parameters; raises UsageError that names the wrong one."""
        settings, live = read(self, Settings), read(self, LiveSettings)
        if live.sequence:
            try:
                check_name(live.sequence)
            except UsageError as error:
                raise UsageError(f"{self.get_fully_qualified_name()}: sequence: {error}") from None
        return settings, live

    def _may_change(self, parameters: Sequence[Parameter]) -> Any:
        return check(self, parameters, MODELS, CHANGEABLE)

    def _changed(self, parameters: Sequence[Parameter]) -> None:
        self.settings, self.live = self._read()
        if self.capture is not None:
            self.capture.change(self.settings, self.live)

    # ---- diagnostics ---------------------------------------------------------------------
    def _diagnose(self) -> None:
        if not rclpy.ok(context=self.context):
            return
        facts = self.status()
        states = sorted(self.source.topics.items()) if self.source is not None else []
        topics = [self._health.topic(state, facts) for _, state in states]
        unused = sorted(facts.get("not_recorded", {}).items())
        topics += [self._health.unused(topic, why) for topic, why in unused if topic not in facts["topics"]]
        array = DiagnosticArray(status=[self._health.dataset(facts, topics, self.live.out), *topics])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)


def main(argv: list[str] | None = None) -> int:
    """Run the node until a signal or its shutdown; returns the exit code.

    0: all there; 1: nothing usable written; 2: wrong parameters; 3: finished with loss.
    """
    keep_buffers()
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        node = _node(sys.argv if argv is None else argv)
    except EdgeFirstError as error:
        print(f"edgefirst-ros capture: {error}", file=sys.stderr)  # noqa: T201  there is no node to log it
        rclpy.try_shutdown()
        return error.exit_code
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    if node.live.autostart:
        node.come_up()
    try:
        while not (ended.is_set() or node.finalized):
            executor.spin_once(timeout_sec=0.2)
    finally:  # also where a callback fails
        if not node.finalized:
            node.trigger_shutdown()
    until = time.monotonic() + 0.1
    while time.monotonic() < until:  # answers to who asked for the shutdown, or before, may still be under way
        executor.spin_once(timeout_sec=0.02)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    return node.exit_code


def _node(arguments: Sequence[str]) -> CaptureNode:
    """The node; raises UsageError for wrong arguments and parameters."""
    try:
        rclpy.init(args=list(arguments), signal_handler_options=SignalHandlerOptions.NO)
        return CaptureNode()
    except (RuntimeError, ValueError, NameValidationException) as error:
        raise UsageError(f"ROS arguments: {error}") from None
