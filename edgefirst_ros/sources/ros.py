# SPDX-License-Identifier: Apache-2.0
"""ROS 2 transport: the graph, raw subscriptions with the publishers' QoS, type hashes."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription as RosSubscription
from rclpy.validate_full_topic_name import validate_full_topic_name

from edgefirst_ros.config.yaml_file import read_yaml
from edgefirst_ros.errors import UsageError
from edgefirst_ros.messages import KNOWN_TOPICS, expand_type, find_known_name
from edgefirst_ros.sources.live import USABLE, Arrive, Offers, TopicState, Transport
from edgefirst_ros.sources.topics import prefer_own

try:
    from rclpy.type_hash import TypeHash
except ImportError:  # ROS 2 Humble has no hashes of types
    TypeHash = None
OF_NODES = ("rcl_interfaces/", "lifecycle_msgs/", "diagnostic_msgs/")
"""Packages of topics that nodes publish about themselves."""
POLICIES = {"history": HistoryPolicy, "reliability": ReliabilityPolicy, "durability": DurabilityPolicy}
"""Policies that a QoS override may have, in addition to depth."""


def read_overrides(path: str | None) -> dict[str, dict[str, Any]]:
    """Return {topic: arguments of a QoSProfile} of a file as `ros2 bag record --qos-profile-overrides-path` takes it.

    Raises UsageError that names the topic and the policy.
    """
    found: dict[str, dict[str, Any]] = {}
    content = read_yaml(Path(path).expanduser()) if path else {}
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise UsageError(f"{path}: expected topics with their QoS, such as /gps: {{reliability: best_effort}}")
    for topic, policies in content.items():
        for name, value in policies.items():
            known = [policy.name.lower() for policy in POLICIES[name]] if name in POLICIES else []
            whole = name == "depth" and type(value) is int and 1 <= value <= 10_000
            if not whole and str(value) not in known:
                expected = "a whole number from 1 to 10000" if name == "depth" else f"one of {', '.join(known)}"
                wrong = f"{expected}, got {value!r}" if known or name == "depth" else f"depth, {', '.join(POLICIES)}"
                raise UsageError(f"{path}: {topic}: {name}: expected {wrong}")
            place = found.setdefault(f"/{str(topic).removeprefix('/')}", {})
            place[name] = value if whole else POLICIES[name][str(value).upper()]
    return found


@dataclass(slots=True)
class Subscription:
    """The subscription of one topic."""

    handle: Any
    kept: bool
    """True if messages come that were sent before the subscription (transient local)."""
    type_hash: str = ""
    """Hash of the type definition that is installed here."""


class RosTransport(Transport):
    """Subscribes to raw CDR with the QoS of the publishers: reliable if all of them are, else best effort.

    Owns: the thread of the node's executor, in which callbacks come too; these only hand over bytes.
    """

    def __init__(
        self,
        node: Node,
        depth: int,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        given: Collection[str | None] = (),
    ) -> None:
        """`depth`: QoS history depth of each subscription; `overrides`: {topic: QoS that it has in any case}.

        `given`: topics that the settings name, which are offered in any case.
        """
        self._node = node
        self._given = given
        self._overrides = overrides or {}
        self._depth = depth
        self._log = node.get_logger()
        self.subscriptions: dict[str, Subscription] = {}
        """{topic's name in the system: subscription}."""

    def list_topics(self, expected: Mapping[str, tuple[str, ...]]) -> Offers:
        """Return the topics that have publishers now, as `Transport.list_topics` says.

        The type is that of the publishers; where they differ it is the expected one. Types of subscribers do not count.
        A topic of the device in the node's namespace, or to which its name is remapped, comes before all other
        candidates, and where its own name is ambiguous, it is named as the device names it: `/radar/cube`.
        """
        node, mixed = self._node, dict[str, str]()
        graph: dict[str, str] = {}
        own = f"{node.get_fully_qualified_name()}/"
        for name, kinds in node.get_topic_names_and_types():
            if name.startswith(own) or kinds[0].startswith(OF_NODES):
                continue  # hints list only topics that a user may have meant
            if expected and name not in expected and USABLE.isdisjoint(map(expand_type, kinds)):
                continue  # a robot has hundreds, and each costs some calls
            schema = self._type(name, kinds, expected.get(name, ()), mixed)
            if schema is not None:
                graph[name] = schema
        found = {name: (name, schema) for name, schema in graph.items() if node.resolve_topic_name(name) == name}
        for device, types in KNOWN_TOPICS.items():
            own = node.resolve_topic_name(device)
            if own != f"/{device}" and graph.get(own) in types:  # without a namespace choosing roles prefers it
                found = prefer_own({own: (own, graph[own])} | found, own, device, self._given)
        return Offers(found, mixed)

    def _type(self, name: str, kinds: list[str], expected: tuple[str, ...], mixed: dict[str, str]) -> str | None:
        node = self._node
        try:
            validate_full_topic_name(name)
        except InvalidTopicNameException:  # a program without ROS may publish /my-host/gps
            mixed[name] = "ROS allows no such name, so it cannot be heard"
            return None
        if len(kinds) == 1:
            return expand_type(kinds[0]) if node.count_publishers(name) else None
        types = sorted({expand_type(p.topic_type) for p in node.get_publishers_info_by_topic(name)})
        if len(types) <= 1:
            return next(iter(types), None)
        known = [kind for kind in types if find_known_name(name, kind)]
        usable = [kind for kind in types if kind in USABLE]
        chosen = next((kind for kind in (*expected, *known) if kind in types), usable[0] if len(usable) == 1 else None)
        mixed[name] = f"its publishers have several types, {', '.join(types)}; used is {chosen or 'none'}"
        return chosen

    def listen(self, state: TopicState, arrive: Arrive, *, once: bool) -> bool:
        """Subscribe a topic, or again where its publishers would not reach the subscription that exists.

        As `Transport.listen` says: False if it has no publisher any more.
        """
        infos = self._node.get_publishers_info_by_topic(state.name)
        publishers = [p for p in infos if expand_type(p.topic_type) == state.schema]
        if not publishers:
            return False
        reliable = all(p.qos_profile.reliability == ReliabilityPolicy.RELIABLE for p in publishers)
        kept = reliable and all(p.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for p in publishers)
        there = self.subscriptions.get(state.name)
        if there is not None:
            stale = there.kept != kept if once else there.kept and not kept
            if stale or (state.reliable and not reliable):
                self._node.destroy_subscription(there.handle)
                self._subscribe(state, arrive, reliable=reliable, kept=kept)
        elif not state.fault:
            self._subscribe(state, arrive, reliable=reliable, kept=kept)
        state.set_publishers(len(publishers))
        self._compare_types(state, publishers)
        return True

    def _subscribe(self, state: TopicState, arrive: Arrive, *, reliable: bool, kept: bool) -> None:
        package, _, name = state.schema.partition("/msg/")
        try:
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
        except (ImportError, AttributeError):
            state.fault = f"the type {state.schema} is not installed: install the package {package}"
            self._log.error(f"{state.name}: {state.fault}")
            return
        qos = QoSProfile(
            **{
                "depth": self._depth,
                "reliability": ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
                "durability": DurabilityPolicy.TRANSIENT_LOCAL if kept else DurabilityPolicy.VOLATILE,
                **self._overrides.get(state.name, {}),
            }
        )

        def numbered(data: bytes, info: dict[str, Any]) -> None:  # rclpy counts its arguments
            arrive(data, info.get("publication_sequence_number"))

        humble = not hasattr(RosSubscription, "CallbackType")  # it passes only the message
        callback = (lambda data: arrive(data, None)) if humble else numbered
        state.reliable = reliable and qos.reliability == ReliabilityPolicy.RELIABLE
        handle = self._node.create_subscription(kind, state.name, callback, qos, raw=True)
        self.subscriptions[state.name] = Subscription(handle, kept)

    def _compare_types(self, state: TopicState, publishers: list[Any]) -> None:
        """Report a differing type definition: it never matches on the wire, and without another message."""
        there = self.subscriptions.get(state.name)
        if there is None or TypeHash is None:
            return
        if not there.type_hash:
            here = self._node.get_name(), self._node.get_namespace()
            infos = self._node.get_subscriptions_info_by_topic(state.name)
            own = (str(one.topic_type_hash) for one in infos if (one.node_name, one.node_namespace) == here)
            there.type_hash = next(own, "")
        alike = {there.type_hash, str(TypeHash())}  # a bridge or a program without ROS does not send its definition
        other = next((p for p in publishers if there.type_hash and str(p.topic_type_hash) not in alike), None)
        fault = ""
        if other is not None:
            known = not other.node_name.startswith("_NODE_")  # an endpoint may be heard of before its node
            who = f"the publisher {other.node_namespace.rstrip('/')}/{other.node_name}" if known else "a publisher"
            fault = (
                f"{who} uses another definition of {state.schema} ({other.topic_type_hash}) than this system "
                f"({there.type_hash}): install the same messages"
            )
            if fault != state.fault:
                self._log.error(f"{state.name}: {fault}")
        state.fault = fault

    def close(self) -> None:
        for subscription in self.subscriptions.values():
            self._node.destroy_subscription(subscription.handle)
        self.subscriptions = {}
