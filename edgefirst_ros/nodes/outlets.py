# SPDX-License-Identifier: Apache-2.0
"""Publishers for the topics of a recording: which of them can be published here, under which names, and why not."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rclpy._rclpy_pybind11 import RCLError
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile

from edgefirst_ros.errors import RecordingError, UsageError, counted
from edgefirst_ros.messages import Message
from edgefirst_ros.sources.definitions import Channel
from edgefirst_ros.streams import TF_MESSAGE

DEPTH = 100
"""QoS depth: messages that a reliable subscriber may lag behind, seconds of every topic."""
TYPE = re.compile(r"([a-z][a-z0-9_]*)/msg/([A-Z][A-Za-z0-9]*)", re.ASCII)


class Outlets:
    """The publishers, by topic and type of the recording."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self.skipped: dict[str, str] = {}
        """Topics of the recording that were asked for and are not published -> why."""
        self.lacking: set[str] = set()
        """Topics of `skipped` that could be published if their packages were installed."""
        self.renamed: dict[str, str] = {}
        """Topics of the recording -> their names in ROS, where these differ."""
        self.published = 0

    @property
    def recorded(self) -> frozenset[str]:
        """Topics that are published, by their names in the recording."""
        return frozenset(topic for topic, _ in self._publishers)

    @property
    def names(self) -> frozenset[str]:
        """Topics that are published, by their names in ROS."""
        return frozenset(publisher.topic_name for publisher in self._publishers.values())

    def subscribed(self) -> frozenset[str]:
        """Return the `names` that have a subscriber."""
        return frozenset(p.topic_name for p in self._publishers.values() if p.get_subscription_count())

    def open(self, channels: Iterable[Channel], asked: Sequence[str], *, own_clock: bool) -> None:
        """Create publishers for the topics `asked` for (default: all), and log which cannot be published.

        Raises UsageError for a topic that is not there, RecordingError when none can be published.
        """
        channels = list(channels)
        for name in asked:
            if not any(_meant(name, channel.topic) for channel in channels):
                known = ", ".join(sorted({channel.topic for channel in channels}))
                raise UsageError(f"topics: {name!r} is not in the recording; it has {known}")
        counts: dict[str, int] = {}
        for channel in channels:
            if not asked or any(_meant(name, channel.topic) for name in asked):
                why = self._open(channel, own_clock=own_clock)
                if why:
                    counts[channel.topic] = counts.get(channel.topic, 0) + channel.seen
                    self.skipped[channel.topic] = f"{counted(counts[channel.topic], 'message')}: {why}"
        if not self._publishers:
            raise RecordingError("nothing can be published; " + "; ".join(f"{t}: {w}" for t, w in self.skipped.items()))

    def _open(self, channel: Channel, *, own_clock: bool) -> str:
        """Create a publisher; returns why it cannot be created, or an empty text."""
        if channel.encoding != "cdr":
            return f"its encoding is {channel.encoding or 'unknown'}, not cdr"
        name = ros_name(channel.topic)
        if own_clock and name == "clock":
            return "the player's own /clock takes its place"
        key = channel.topic, channel.schema
        if key in self._publishers:
            return ""
        try:
            kind = message_type(channel.schema)
            publisher = self._node.create_publisher(kind, name, profile(channel.schema))
        except (LookupError, NameValidationException, RCLError, ImportError, AttributeError) as error:
            self.lacking.add(channel.topic)
            return str(error.args[0] if isinstance(error, LookupError) else error).partition("\n")[0]
        self._publishers[key] = publisher
        if publisher.topic_name != f"/{channel.topic.removeprefix('/')}":
            self.renamed[channel.topic] = publisher.topic_name
        return ""

    def publish(self, message: Message) -> None:
        """Publish the CDR bytes of a message unchanged."""
        publisher = self._publishers.get((message.topic, message.schema))
        if publisher is None:  # another channel of that topic
            return
        publisher.publish(message.data)
        self.published += 1

    def fetched(self, wait: float) -> bool:
        """True if reliable subscribers acknowledged everything; waits for the first that has not, at most `wait` s."""
        return all(p.wait_for_all_acked(Duration(seconds=wait)) for p in self._publishers.values())


def profile(schema: str) -> QoSProfile:
    """Return the QoS of a topic: reliable and volatile as on the device, which also matches best-effort subscribers.

    Transforms of tf2 are kept for those who come late, because its listeners take no others.
    """
    durability = DurabilityPolicy.TRANSIENT_LOCAL if schema == TF_MESSAGE else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=DEPTH, durability=durability)


def ros_name(topic: str) -> str:
    """Return the ROS name of a topic, relative, so that the node's namespace applies.

    A leading `rt/` is removed; characters that ROS does not allow, as in host names, become `_`.
    """
    name = topic.removeprefix("/").removeprefix("rt/")
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in name.split("/") if part]
    return "/".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "_"


def message_type(schema: str) -> Any:
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


def _meant(name: str, topic: str) -> bool:
    """True if a name given by the user means a topic of the recording."""
    wanted = name.strip("/")
    return bool(wanted) and any(n == wanted or n.endswith(f"/{wanted}") for n in (topic.strip("/"), ros_name(topic)))
