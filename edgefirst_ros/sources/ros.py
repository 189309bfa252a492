# SPDX-License-Identifier: Apache-2.0
"""Messages from a running ROS 2 system: as bytes, from topics that may appear late, vanish and come back."""

from __future__ import annotations

import functools
import importlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.type_hash import TypeHash
from rclpy.validate_full_topic_name import validate_full_topic_name

from edgefirst_ros.config import Settings
from edgefirst_ros.messages import KNOWN_TOPICS, Message, full_type, known_name
from edgefirst_ros.sources.topics import Roles, expected_types, late_parts

Deliver = Callable[[Message, int, int], None]
"""Called with a message, when it came (time.monotonic_ns()), and how many were lost before it."""
RATES_KEPT = 60
"""Looks at the rate, one a second, of which the median is what a topic is expected to have."""
USABLE = frozenset(kind for kinds in KNOWN_TOPICS.values() for kind in kinds)
"""Types that a topic of the device may have."""


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
    kept: bool = False
    """Whether messages come that were sent before the subscription (transient local)."""
    mixed: str = ""
    """What other types its publishers have, in words."""
    fault: str = ""
    """Why nothing can come, in words."""
    subscription: Any = None
    own_hash: str = ""
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=RATES_KEPT))
    """Messages a second, of each second in which one came."""

    def note(self, number: int, now: int) -> int:
        """Take note of a message; returns how many were lost before it."""
        if number <= self.number:  # each publisher counts for itself: this is another one, maybe beside the first
            self.publishers = 0
        missing = max(0, number - self.number - 1) if self.number and self.publishers == 1 else 0
        if self.received:
            self.gap = max(self.gap, now - self.last)
        self.received, self.lost, self.number, self.last = self.received + 1, self.lost + missing, number, now
        return missing


class RosSource:
    """Subscribes raw to the topics that have a part; `refresh` must be called every now and then.

    QoS is the publishers': reliable where all of them are, best effort otherwise. A callback only hands over bytes.
    A part whose topic does not come is given to one that would have it in a recording, while `roles` are in use.
    """

    def __init__(self, node: Node, settings: Settings, roles: Roles, deliver: Deliver, depth: int) -> None:
        self._node = node
        self._settings = settings
        self._roles = roles
        self._deliver = deliver
        self._depth = depth
        self._log = node.get_logger()
        self._types: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, str] = {}
        self._expect(Graph(node, {}).topics)
        self._parts: dict[str, str] = {}  # topic -> the name under which it is delivered
        self._seen: dict[str, str] | None = None
        self._late: dict[str, str | None] = {}
        self._settling = Settling()
        self.topics: dict[str, TopicState] = {}
        self.unused: dict[str, str] = {}
        """Topics that could have been meant, and why they are not recorded."""

    def _expect(self, topics: Mapping[str, str]) -> None:
        self._types = expected_types(self._roles, self._settings)
        self._names = {known_name(t, topics.get(t, "")) or t.removeprefix("/"): t for t in self._types}

    def refresh(self) -> None:
        """Look for topics that appeared, and for publishers that changed."""
        graph = Graph(self._node, self._types)
        fitting, unused = {}, {}
        for topic, (name, schema) in graph.names.items():
            state = self.topics.get(name)
            types = (state.schema,) if state is not None else self._types.get(topic, (schema,))
            if schema in types:
                fitting[topic] = schema
            else:
                unused[topic] = f"not recorded: its type is {schema}, expected is {' or '.join(types)}"
                if state is not None:
                    state.fault = unused[topic]
        for topic, schema in fitting.items():
            as_topic = self._part(topic, schema, fitting)
            if as_topic is not None:
                name = graph.names[topic][0]
                self._look_at(name, schema, as_topic, graph.mixed.get(name, ""))
                self._parts[topic] = as_topic
            elif topic in self._types:
                taken = next(other for other, part in self._parts.items() if part == topic)
                unused[topic] = f"not recorded: its part is that of {taken}, and cannot change any more"
        here = {graph.names[topic][0] for topic in fitting}
        for state in self.topics.values():
            if state.name not in here:
                state.publishers = state.number = 0  # who comes back counts anew
        unused |= self._look_at_late(fitting)
        for topic, why in unused.items():
            if self.unused.get(topic) != why:
                self._log.warning(f"{topic}: {why}")
        self.unused = unused

    def _part(self, topic: str, schema: str, graph: Mapping[str, str]) -> str | None:
        """The name under which a topic is delivered, or None when it has no part."""
        name = known_name(topic, schema)
        part = topic if topic in self._types else self._names.get(name or "")
        if part is None or part in self._parts.values():
            return self._parts.get(topic)  # who has a part keeps it
        if topic != part and (part in graph or sum(known_name(t, kind) == name for t, kind in graph.items()) > 1):
            return None
        return part

    def _look_at(self, name: str, schema: str, as_topic: str, mixed: str) -> None:
        """Subscribe a topic, or anew where its publishers would not reach the subscription that is there."""
        publishers = [p for p in self._node.get_publishers_info_by_topic(name) if full_type(p.topic_type) == schema]
        if not publishers:
            return
        reliable = all(p.qos_profile.reliability == ReliabilityPolicy.RELIABLE for p in publishers)
        kept = reliable and all(p.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in publishers)
        state = self.topics.get(name)
        if state is None:
            state = self.topics[name] = TopicState(name, as_topic, schema)
            self._subscribe(state, reliable=reliable, kept=kept)
        elif state.subscription is not None:
            once = as_topic in self._roles.statics  # what is said once must be heard by who comes later
            stale = state.kept != kept if once else state.kept and not kept
            if stale or (state.reliable and not reliable):
                self._node.destroy_subscription(state.subscription)
                self._subscribe(state, reliable=reliable, kept=kept)
        if mixed and mixed != state.mixed:
            self._log.warning(f"{name}: {mixed}")
        if state.publishers != len(publishers):
            state.publishers, state.number = len(publishers), 0  # the next message may be of any of them
        state.mixed = mixed
        self._compare_types(state, publishers)

    def _look_at_late(self, topics: dict[str, str]) -> dict[str, str]:
        """Give parts to topics that came late, once these have settled; returns those to which it is too late."""
        roles, used = self._roles, {*self._parts, *self._parts.values()}
        if topics != self._seen:
            self._seen = topics
            self._late = late_parts(roles, topics, self._settings, used)
        fixed = {part for part in self._late if getattr(roles, part) in used}
        if "model" in fixed:
            fixed.add("masks")  # they are the other results'
        changes = {part: topic for part, topic in self._late.items() if part not in fixed}
        named = {part: t for part, t in changes.items() if t not in topics or known_name(t, topics[t])}
        if not changes:
            self._settling = Settling()
        elif self._settling.look(topics, time.monotonic(), guessed=not named):
            for part, topic in (named or changes).items():
                if topic in topics:
                    self._log.info(f"{topic} came late and is recorded as {part} from now on")
                setattr(roles, part, topic)
            self._expect(topics)
            self._seen = None
        return {
            topic: f"not recorded as {part}: that was {getattr(roles, part)} so far, and cannot change any more"
            for part, topic in self._late.items()
            if topic in topics and getattr(roles, part) in used
        }

    def _subscribe(self, state: TopicState, *, reliable: bool, kept: bool) -> None:
        package, _, name = state.schema.partition("/msg/")
        try:
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
        except (ImportError, AttributeError):
            state.fault = f"the type {state.schema} is not installed: install the package {package}"
            self._log.error(f"{state.name}: {state.fault}")
            return
        qos = QoSProfile(
            depth=self._depth,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if kept else DurabilityPolicy.VOLATILE,
        )
        callback = functools.partial(_arrive, state, self._deliver)
        state.reliable, state.kept = reliable, kept
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
        alike = {state.own_hash, str(TypeHash())}  # a bridge or a program without ROS does not tell its definition
        other = next((p for p in publishers if state.own_hash and str(p.topic_type_hash) not in alike), None)
        fault = ""
        if other is not None:
            known = not other.node_name.startswith("_NODE_")  # an endpoint may be heard of before its node
            who = f"the publisher {other.node_namespace.rstrip('/')}/{other.node_name}" if known else "a publisher"
            fault = (
                f"{who} uses another definition of {state.schema} ({other.topic_type_hash}) than this system "
                f"({state.own_hash}): install the same messages"
            )
            if fault != state.fault:
                self._log.error(f"{state.name}: {fault}")
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


class Graph:
    """The topics of the system that somebody publishes; `expected` are the types that topics in use may have.

    Where these are given, topics of types that have no part are left out.

    The publishers tell the type; where they differ it is the expected one, and a subscriber of another has no say.

    A topic of the device in the node's namespace, or to which its name is remapped, goes before all others that could
    be meant, and where its own name does not tell, it is named as the device names it: `/radar/cube`.
    """

    def __init__(self, node: Node, expected: Mapping[str, tuple[str, ...]]) -> None:
        self.mixed: dict[str, str] = {}
        """Topics with publishers of several types or with names that are none in ROS, in words."""
        graph: dict[str, str] = {}
        for name, kinds in node.get_topic_names_and_types():
            if expected and name not in expected and USABLE.isdisjoint(map(full_type, kinds)):
                continue  # a robot has hundreds, and each costs some calls
            schema = self._type(node, name, kinds, expected.get(name, ()))
            if schema is not None:
                graph[name] = schema
        found = {name: (name, schema) for name, schema in graph.items() if node.resolve_topic_name(name) == name}
        for device, types in KNOWN_TOPICS.items():
            own = node.resolve_topic_name(device)
            if graph.get(own) not in types:
                continue
            found = {n: (t, s) for n, (t, s) in found.items() if t == own or known_name(n, s) != device}
            if known_name(own, graph[own]) != device:
                found.pop(own, None)
                found["/" + device] = own, graph[own]
        self.names = found
        """{topic: (name in the system, type)}."""
        self.topics = {topic: schema for topic, (_, schema) in found.items()}

    def _type(self, node: Node, name: str, kinds: list[str], expected: tuple[str, ...]) -> str | None:
        try:
            validate_full_topic_name(name)
        except InvalidTopicNameException:  # a program without ROS may publish /my-host/gps
            self.mixed[name] = "ROS allows no such name, so it cannot be heard"
            return None
        if len(kinds) == 1:
            return full_type(kinds[0]) if node.count_publishers(name) else None
        types = sorted({full_type(p.topic_type) for p in node.get_publishers_info_by_topic(name)})
        if len(types) <= 1:
            return next(iter(types), None)
        known = [kind for kind in types if known_name(name, kind)]
        usable = [kind for kind in types if kind in USABLE]
        chosen = next((kind for kind in (*expected, *known) if kind in types), usable[0] if len(usable) == 1 else None)
        self.mixed[name] = f"its publishers have several types, {', '.join(types)}; used is {chosen or 'none'}"
        return chosen
