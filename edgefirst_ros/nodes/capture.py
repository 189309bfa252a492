# SPDX-License-Identifier: Apache-2.0
"""The capture node: a capture session as a lifecycle node with services, parameters and diagnostics."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import rclpy
import rclpy.task
from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String
from std_srvs.srv import Trigger

from edgefirst_ros.config import SECOND, LiveSettings, Settings
from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.limits import keep_buffers
from edgefirst_ros.nodes.parameters import Diagnostics, check, convert_numbers, declare, read, run_node_of
from edgefirst_ros.nodes.service import VERBS, Ask, Service, VerbLog, answer_time, catch_signals
from edgefirst_ros.pipeline.capture_session import LOOK_EVERY, SessionState, check_sequence
from edgefirst_ros.sources.live import Log
from edgefirst_ros.sources.ros import RosTransport, read_overrides

MODELS = (Settings, LiveSettings)
FAREWELL = 1.0
"""Longest time in s for the last event to be acknowledged."""


class NodeLog(VerbLog):
    """The logger of a node, and a status line that its lines replace."""

    def __init__(self, log: Log) -> None:
        super().__init__("capture")
        self._log = log

    def info(self, text: str, /) -> None:  # a logger's line keeps its level
        self.show("")
        self._log.info(text)

    def warning(self, text: str, /) -> None:
        self.show("")
        self._log.warning(text)

    def error(self, text: str, /) -> None:
        self.show("")
        self._log.error(text)


class CaptureNode(LifecycleNode):
    """A capture session as a lifecycle node: transitions, services, parameters, diagnostics.

    Owns: the executor's thread changes everything here.
    """

    def __init__(self) -> None:
        super().__init__("capture")
        declare(self, *MODELS)
        settings, live = self._read()
        overrides = read_overrides(live.qos_profile_overrides_path)
        transport = RosTransport(self, live.depth, overrides, (*settings.given_topics, *settings.references))
        kept = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.events = {name: self.create_publisher(String, f"~/{name}", kept) for name in ("finished", "messages_lost")}
        simulated = self.get_parameter("use_sim_time").value
        clock = (lambda: self.get_clock().now().nanoseconds / SECOND) if simulated else None
        name, namespace, log = self.get_fully_qualified_name(), self.get_namespace(), NodeLog(self.get_logger())
        self.service = Service(
            transport, settings, live, name, log, namespace=namespace, clock=clock, publish=self._publish
        )
        self._configured = False
        self._has_namesake = False
        self.finalized = False
        """True if the node cannot come up again."""
        convert_numbers(self, MODELS)
        self.add_on_set_parameters_callback(self._change)
        self._diagnostics = Diagnostics(self)
        callback_group = ReentrantCallbackGroup()  # calls that wait for the capture must not block other services
        for verb in VERBS:
            self.create_service(Trigger, f"~/{verb}", self._answer(verb), callback_group=callback_group)
        steady = Clock(clock_type=ClockType.STEADY_TIME)  # ROS time may stop
        self.create_timer(LOOK_EVERY, self.service.refresh, clock=steady)
        self.create_timer(1.0, self._diagnose, clock=steady)

    # ---- lifecycle -----------------------------------------------------------------------
    def come_up(self) -> None:
        """Configure the node, unless it is configured, and activate it."""
        if not self._configured:
            self.trigger_configure()
        self.trigger_activate()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Apply the current parameters."""
        try:
            self.service.session.change(*self._read())
        except EdgeFirstError as error:
            self.get_logger().error(str(error))
            return TransitionCallbackReturn.FAILURE
        self._configured = True
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to look for topics."""
        self.service.begin()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Complete the dataset and close all subscriptions."""
        self.service.session.deactivate()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Return to unconfigured; the node holds no resources to release."""
        self._configured = False
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Complete the dataset, in any state."""
        self.service.session.deactivate()
        self.finalized = True
        return TransitionCallbackReturn.SUCCESS

    # ---- services and parameters ---------------------------------------------------------
    def _answer(self, verb: str) -> Callable[[Trigger.Request, Trigger.Response], Any]:
        async def answer(_: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
            if verb == "start" and self.service.session.state is SessionState.INACTIVE:
                self.come_up()
            told = await self._done(self.service.order(verb))
            response.success = told["success"]
            response.message = json.dumps(told) if verb == "status" else told["message"]
            return response

        return answer

    async def _done(self, order: Future[dict[str, Any]]) -> dict[str, Any]:
        """Wait for a command without blocking the executor."""
        done = rclpy.task.Future()

        def tell(_: Future[dict[str, Any]]) -> None:
            done.set_result(None)
            if self.executor is not None:
                self.executor.wake()

        order.add_done_callback(tell)
        await done
        return order.result()

    def _read(self) -> tuple[Settings, LiveSettings]:
        """Return the settings in the parameters; raises UsageError that names the wrong one."""
        settings, live = read(self, Settings), read(self, LiveSettings)
        check_sequence(live, f"{self.get_fully_qualified_name()}: ")
        return settings, live

    def _change(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        """Apply a change at run time, if it is accepted: ROS 2 Humble has no callback after a change."""
        result = check(self, parameters, MODELS)
        if result.successful:
            changes = {parameter.name: parameter.value for parameter in parameters}
            settings = read(self, Settings, changes)
            self.service.session.change(settings, read(self, LiveSettings, changes))
            for doubt in settings.doubts:
                self.get_logger().warning(doubt)
        return result

    def _publish(self, topic: str, text: str) -> None:
        if rclpy.ok(context=self.context):
            self.events[topic].publish(String(data=text))

    # ---- diagnostics ---------------------------------------------------------------------
    def _diagnose(self) -> None:
        statuses = self.service.diagnose()
        if not rclpy.ok(context=self.context):
            return
        self._diagnostics.publish(*statuses)
        self._warn_of_namesake()

    def _warn_of_namesake(self) -> None:
        """Warn of another node with this one's name: an order would reach either of them without any other message."""
        nodes = self.get_node_names_and_namespaces()
        found = nodes.count((self.get_name(), self.get_namespace())) > 1
        if found and not self._has_namesake:
            self.get_logger().warning(
                f"another node is named {self.get_fully_qualified_name()}, or was until seconds ago: calls of "
                "services may reach it; give each node a name with -r __node:=NAME"
            )
        self._has_namesake = found


def main(arguments: Sequence[str]) -> int:
    """Run the node with ROS arguments until a signal or its shutdown; returns the exit code.

    0: complete; 1: without a usable dataset; 3: finished with loss. Raises UsageError for wrong parameters.
    """
    keep_buffers()
    caught = catch_signals()
    with run_node_of(arguments, CaptureNode) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        if node.service.session.live.autostart:
            node.come_up()
        try:
            while not (caught or node.finalized):
                executor.spin_once(timeout_sec=0.2)
        finally:  # also where a callback fails
            if not node.finalized:
                node.trigger_shutdown()
        until = time.monotonic() + 0.1
        while time.monotonic() < until:  # answers to the request for the shutdown, or earlier ones, may be under way
            executor.spin_once(timeout_sec=0.02)
        node.service.finish()
        for publisher in node.events.values():
            publisher.wait_for_all_acked(Duration(seconds=FAREWELL))
        executor.shutdown()
        return node.service.session.exit_code


@contextlib.contextmanager
def open_client(arguments: Sequence[str]) -> Iterator[Ask]:
    """Start a node that calls the services of the capture in its namespace; raises UsageError for wrong arguments."""
    with run_node_of(arguments, partial(rclpy.create_node, "control")) as node:
        clients = {verb: node.create_client(Trigger, f"capture/{verb}") for verb in VERBS}

        def ask(verb: str) -> list[dict[str, Any]]:
            if not clients[verb].wait_for_service(1.0):
                return []
            call = clients[verb].call_async(Trigger.Request())
            rclpy.spin_until_future_complete(node, call, timeout_sec=answer_time(verb))
            answer = call.result() if call.done() else None
            if answer is None:
                return []
            told = {"success": answer.success, "message": answer.message}
            return [json.loads(answer.message) if verb == "status" else told]

        yield ask
