# SPDX-License-Identifier: Apache-2.0
"""Messages from a running ROS 2 system: as bytes, from topics that may appear late, vanish and come back."""

from __future__ import annotations

import functools
import importlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from edgefirst_ros.messages import KNOWN_TOPICS, Message, full_type, known_name
from edgefirst_ros.topics import Roles

Deliver = Callable[[Message, int, int], None]
"""Called with a message, when it came (time.monotonic_ns()), and how many were lost before it."""
RATES_KEPT = 60
"""Looks at the rate, one a second, of which the median is what a topic is expected to have."""


@dataclass(slots=True)
class TopicState:
    """What came on one topic so far."""

    name: str
    """Its name in the system; messages are delivered under that of the device where it is remapped."""
    delivered_as: str
    schema: str
    received: int = 0
    lost: int = 0
    number: int = 0
    """Publication number of the newest message."""
    last: int = 0
    """When it came, ns of time.monotonic_ns()."""
    gap: int = 0
    """Longest time between two messages, ns."""
    publishers: int = 0
    reliable: bool = False
    fault: str = ""
    """Why nothing can come, in words."""
    subscription: Any = None
    own_hash: str = ""
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES_KEPT))
    """Messages a second, of each second in which one came."""

    def note(self, number: int, now: int) -> int:
        """Take note of a message; returns how many were lost before it."""
        missing = 0
        if self.number and self.publishers <= 1:  # each publisher counts for itself, and one that comes back anew
            missing = max(0, number - self.number - 1)
        if self.received:
            self.gap = max(self.gap, now - self.last)
        self.received, self.lost, self.number, self.last = self.received + 1, self.lost + missing, number, now
        return missing


class RosSource:
    """Subscribes raw to the topics that have a part; `refresh` must be called every now and then.

    QoS is the publishers': reliable where all of them are, best effort otherwise. A callback only hands over bytes.
    """

    def __init__(self, node: Node, roles: Roles, deliver: Deliver, depth: int, say: Callable[[str], None]) -> None:
        self._node = node
        self._deliver = deliver
        self._depth = depth
        self._say = say
        self._wanted = roles.streamed | roles.statics
        types = graph_topics(node)
        self._names = {name: topic for topic in self._wanted if (name := _device_name(topic, types.get(topic)))}
        self.topics: dict[str, TopicState] = {}

    def refresh(self) -> None:
        """Look for topics that appeared, and for publishers that changed."""
        names = graph_names(self._node)
        graph = {topic: schema for topic, (_, schema) in names.items()}
        for topic, (name, schema) in names.items():
            as_topic = self._part(topic, schema, graph)
            if as_topic is None:
                continue
            publishers = self._node.get_publishers_info_by_topic(name)
            state = self.topics.get(name)
            if state is not None:
                state.publishers = len(publishers)
            if not publishers:
                continue
            reliable = all(p.qos_profile.reliability == ReliabilityPolicy.RELIABLE for p in publishers)
            if state is None:
                state = self.topics[name] = TopicState(name, as_topic, schema, publishers=len(publishers))
                self._subscribe(state, reliable, publishers)
            elif state.subscription is not None and state.reliable and not reliable:
                self._node.destroy_subscription(state.subscription)
                self._subscribe(state, reliable, publishers)
            self._compare_types(state, publishers)
        for name in self.topics.keys() - {name for name, _ in names.values()}:
            self.topics[name].publishers = self.topics[name].number = 0  # who comes back counts anew

    def _part(self, topic: str, schema: str, graph: dict[str, str]) -> str | None:
        """The name under which a topic is delivered, or None when it has no part."""
        if topic in self._wanted:
            return topic
        name = known_name(topic, schema)
        if name is None or self._names.get(name) is None or self._names[name] in graph:
            return None
        alike = [other for other, kind in graph.items() if known_name(other, kind) == name]
        return self._names[name] if len(alike) == 1 else None

    def _subscribe(self, state: TopicState, reliable: bool, publishers: list[Any]) -> None:
        package, _, name = state.schema.partition("/msg/")
        try:
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
        except (ImportError, AttributeError):
            state.fault = f"the type {state.schema} is not installed: install the package {package}"
            self._say(f"{state.name}: {state.fault}")
            return
        kept = all(p.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in publishers)
        qos = QoSProfile(
            depth=self._depth,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if kept and reliable else DurabilityPolicy.VOLATILE,
        )
        callback = functools.partial(_arrive, state, self._deliver)
        state.reliable = reliable
        state.subscription = self._node.create_subscription(
            kind,
            state.name,
            lambda data, info: callback(data, info),  # noqa: PLW0108  rclpy counts its arguments: a partial has none
            qos,
            raw=True,
        )

    def _compare_types(self, state: TopicState, publishers: list[Any]) -> None:
        """A differing definition of the type never matches on the wire, and nothing else says so."""
        if state.subscription is None:
            return
        if not state.own_hash:
            own = [
                str(info.topic_type_hash)
                for info in self._node.get_subscriptions_info_by_topic(state.name)
                if info.node_name == self._node.get_name() and info.node_namespace == self._node.get_namespace()
            ]
            state.own_hash = own[0] if own else ""
        other = next((p for p in publishers if state.own_hash and str(p.topic_type_hash) != state.own_hash), None)
        fault = ""
        if other is not None:
            fault = (
                f"the publisher {other.node_namespace.rstrip('/')}/{other.node_name} uses another definition of "
                f"{state.schema} ({other.topic_type_hash}) than this system ({state.own_hash}): "
                "install the same messages"
            )
            if fault != state.fault:
                self._say(f"{state.name}: {fault}")
        state.fault = fault

    def close(self) -> None:
        """Give up all subscriptions."""
        for state in self.topics.values():
            if state.subscription is not None:
                self._node.destroy_subscription(state.subscription)
                state.subscription = None


def _arrive(state: TopicState, deliver: Deliver, data: bytes, info: dict[str, Any]) -> None:
    now = time.monotonic_ns()
    number = info.get("publication_sequence_number") or state.number + 1
    lost = state.note(number, now)
    received = time.time_ns()
    deliver(Message(state.delivered_as, state.schema, received, received, number, data), now, lost)


class Settling:
    """Tells when the topics can get their parts: a node hears of them one after the other, in any order.

    A camera that is one only by its type must not be taken just because the other one is not known yet; what the
    network loses of that comes again only after some seconds.
    """

    QUIET = 1.0
    """s without a topic that came or went."""
    QUIET_TO_GUESS = 5.0
    """The same where a part would be given by the type alone."""
    LONGEST = 10.0
    """s in all, where topics never cease to come and go."""

    def __init__(self) -> None:
        self._topics: dict[str, str] | None = None
        self._began = self._changed = 0.0

    def look(self, topics: dict[str, str], now: float, *, guessed: bool = False) -> bool:
        """Whether they have settled; `topics` are all there are at `now`, s of time.monotonic()."""
        if self._topics is None:
            self._began = now
        if topics != self._topics:
            self._topics, self._changed = topics, now
        quiet = self.QUIET_TO_GUESS if guessed else self.QUIET
        return now - self._changed >= quiet or now - self._began >= self.LONGEST


def graph_topics(node: Node) -> dict[str, str]:
    """Topics of the system with their types, as `graph_names` names them."""
    return {topic: schema for topic, (_, schema) in graph_names(node).items()}


def graph_names(node: Node) -> dict[str, tuple[str, str]]:
    """Topics of the system: {name: (name in the system, type)}; those of several types are left out.

    A topic of the device in the node's namespace, or to which its name is remapped, goes before all others that could
    be meant, and where its own name does not tell, it is named as the device names it: `/radar/cube`.
    """
    graph = {name: full_type(types[0]) for name, types in node.get_topic_names_and_types() if len(types) == 1}
    found = {name: (name, schema) for name, schema in graph.items() if node.resolve_topic_name(name) == name}
    for device, types in KNOWN_TOPICS.items():
        own = node.resolve_topic_name(device)
        if graph.get(own) not in types:
            continue
        found = {n: (t, s) for n, (t, s) in found.items() if t == own or known_name(n, s) != device}
        if known_name(own, graph[own]) != device:
            found.pop(own, None)
            found["/" + device] = own, graph[own]
    return found


def _device_name(topic: str, schema: str | None) -> str | None:
    """The device's name for a topic in use; of one that is not there yet it is the topic without slash."""
    return known_name(topic, schema) if schema else topic.removeprefix("/")
