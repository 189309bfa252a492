# SPDX-License-Identifier: Apache-2.0
"""The node `player`: publishes the messages of a recording, byte for byte, at the pace at which they were recorded."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import rclpy
from rclpy._rclpy_pybind11 import RCLError
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.time import Time
from rosgraph_msgs.msg import Clock

from edgefirst_ros.config import SECOND, PlayerSettings
from edgefirst_ros.errors import escape_text, pluralize
from edgefirst_ros.nodes.parameters import Diagnostics, check, declare, read, run_node_of
from edgefirst_ros.nodes.play import FAR, NAP, Outlet, Player, make_ros_name
from edgefirst_ros.nodes.service import catch_signals
from edgefirst_ros.pipeline.health import HealthLevel, Status
from edgefirst_ros.streams import TF_MESSAGE

CLOCK_PERIOD = 10_000_000
"""ns between two messages on /clock."""
LAST_WAIT = 4.0
"""s given to reliable subscribers at the end to receive missing messages; Fast DDS has a heartbeat every 3 s."""
DEPTH = 100
"""QoS depth: messages that a reliable subscriber may lag after, seconds of every topic."""
TYPE = re.compile(r"([a-z][a-z0-9_]*)/msg/([A-Z][A-Za-z0-9]*)", re.ASCII)


def main(arguments: Sequence[str]) -> int:
    """Run the node with ROS arguments; exit code 0 when the recording was played, or a signal ended it.

    Raises UsageError for wrong parameters, RecordingError without messages to play.
    """
    caught = catch_signals()
    with run_node_of(arguments, partial(rclpy.create_node, "player")) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        services = threading.Thread(target=executor.spin, name="services", daemon=True)
        services.start()
        try:
            declare(node, PlayerSettings)
            node.add_on_set_parameters_callback(partial(check, node, models=(PlayerSettings,), running=False))
            settings = read(node, PlayerSettings)
            bus = Outlets(node, clock=settings.clock)
            player = Player(settings)
            player.play(bus, caught)
            bus.report(player)
            until = time.monotonic() + LAST_WAIT
            while not caught and time.monotonic() < until and not bus.wait_acknowledged(NAP):
                pass
        finally:
            executor.shutdown()
            services.join(1.0)
    return 0


class Outlets:
    """The publishers, by topic and type of the recording; /clock and /diagnostics."""

    def __init__(self, node: Node, *, clock: bool = False) -> None:
        self._node = node
        self.output = node.get_logger()
        self._diagnostics = Diagnostics(node)
        self._clock = node.create_publisher(Clock, "/clock", 10) if clock else None
        self._next_clock = 0
        self._publishers: list[Publisher] = []
        self._lacking: set[str] = set()
        """Topics that could be published if their packages were installed."""
        self._told_late = 0

    def open(self, topic: str, schema: str) -> Outlet:
        """Create a publisher; raises LookupError that says why it cannot be created."""
        name = make_ros_name(topic)
        if self._clock is not None and name == "clock":
            raise LookupError("the player's own /clock takes its place")
        try:
            publisher = self._node.create_publisher(find_message_type(schema), name, make_profile(schema))
        except (LookupError, NameValidationException, RCLError, ImportError, AttributeError) as error:
            self._lacking.add(topic)
            raise LookupError(str(error).partition("\n")[0]) from None
        self._publishers.append(publisher)
        if publisher.topic_name != f"/{topic.removeprefix('/')}":
            self.output.info(escape_text(f"{topic} is published as {publisher.topic_name}"))
        return Outlet(publisher.publish, publisher.get_subscription_count)

    def wait_acknowledged(self, wait: float) -> bool:
        """True if reliable subscribers acknowledged everything; waits for the first that has not, at most `wait` s."""
        return all(p.wait_for_all_acked(Duration(seconds=wait)) for p in self._publishers)

    def show_time(self, at: int) -> int:
        """Publish the time of the recording on /clock, if due."""
        now = time.monotonic_ns()
        if self._clock is None:
            return FAR
        if now >= self._next_clock:
            self._next_clock = now + CLOCK_PERIOD
            self._clock.publish(Clock(clock=Time(nanoseconds=max(0, at)).to_msg()))
        return self._next_clock

    def report(self, player: Player) -> None:
        """Log a line, and publish diagnostics."""
        late = player.lateness
        words = player.doing
        if self._lacking:
            words += f", {len(self._lacking)} topics cannot be published"
        if late.late:
            words += f", {pluralize(late.late, 'message')} late, the worst by {late.worst / 1e6:.0f} ms"
        length = player.length / SECOND
        self.output.info(f"{words}: {player.position / SECOND:.1f} of {length:.1f} s")
        values = {
            "recording": player.settings.recording,
            "read": f"{player.recording.position} of {player.recording.size}",
            "position": f"{player.position / SECOND:.3f} of {length:.3f} s",
            "rate": f"{player.settings.rate:g}",
            "passes": player.passes,
            "published": player.published,
            "late": late.late,
            "worst lateness": f"{late.worst / 1e6:.1f} ms",
            **{f"skipped {topic}": why for topic, why in player.skipped.items()},
        }
        level = HealthLevel.WARN if self._lacking or late.late > self._told_late else HealthLevel.OK
        name = f"{self._node.get_fully_qualified_name()}: playback"
        self._told_late = late.late
        self._diagnostics.publish(Status(level, name, words, values))


def make_profile(schema: str) -> QoSProfile:
    """Return the QoS of a topic: reliable and volatile as on the device, which also matches best-effort subscribers.

    Transforms of tf2 stay for those who come late, because its listeners take no others.
    """
    durability = DurabilityPolicy.TRANSIENT_LOCAL if schema == TF_MESSAGE else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=DEPTH, durability=durability)


def find_message_type(schema: str) -> Any:
    """Return the ROS class of a type such as `sensor_msgs/msg/Imu`; raises LookupError that says what to install."""
    match = TYPE.fullmatch(schema)
    if match is None:
        raise LookupError(f"{schema!r} is not a ROS message type")
    package, name = match.groups()
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    if not any((Path(place) / "msg" / "__init__.py").is_file() for place in places or ()):
        distro = os.environ.get("ROS_DISTRO") or "DISTRO"
        raise LookupError(
            f"no package {package} here for the type {schema}: install ros-{distro}-{package.replace('_', '-')}, "
            f"or build {package} in a workspace and source it"
        )
    found = getattr(importlib.import_module(f"{package}.msg"), name, None)
    if found is None:
        raise LookupError(f"the package {package} here has no type {name}: install another version of {package}")
    return found
