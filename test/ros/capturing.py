# SPDX-License-Identifier: Apache-2.0
"""What the tests of the capture node share: the node in its process, messages of a recording for it, its results."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import queue
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from same_dataset import (  # noqa: F401  for the tests of the node
    adds_up,
    assert_part_of_dataset,
    assert_same_dataset,
    counts_of,
    frame_of,
    frames,
    members,
    rows_by_frame,
)
from std_srvs.srv import Trigger
from waiting import LONG

from edgefirst_ros.sources.mcap import McapRecording

NODE = ("-m", "edgefirst_ros", "capture", "--ros-args")
SMALL = {"size": (160, 96), "cube_shape": (2, 16, 4, 32), "lidar_points": 100, "gop": 15}
CAMERA = "/camera/h264"
FEW = {"topics": ["camera", "radar/targets", "gps", "imu"], **SMALL}
ALONE = {"topics": ["camera"], **SMALL}
PATIENT = {"lookahead": 3.0}
"""For captures that are compared with conversions: processes of a busy machine do not run for a second at times."""
MEET = 1.0
"""s in which a subscription learns of a publisher that knows of it already, which nothing tells."""
ASKED_AGAIN = 5.0
"""s without an answer after which a question is asked again."""
QUIET = 3.0
"""s without a message after which no more of those that may be lost are waited for."""


class Bench:
    """This process's side of the system: calls services, hears diagnostics, publishes messages of recordings."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("bench")
        self.diagnostics: list[Any] = []
        self._clients: dict[str, Any] = {}
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self.diagnostics.append, 100)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except ExternalShutdownException:
            return

    def close(self) -> None:
        self._executor.shutdown()
        self._thread.join(5.0)
        self.node.destroy_node()

    def call(self, kind: Any, service: str, request: Any, timeout: float = LONG) -> Any:
        client = self._clients.get(service) or self.node.create_client(kind, service)
        self._clients[service] = client  # making one costs all processes some work
        assert client.wait_for_service(timeout), f"no {service}"
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        deadline = time.monotonic() + timeout
        while True:
            client.call_async(request).add_done_callback(answers.put)
            # DDS drops an answer to a client that the server has not discovered yet: a question is asked again
            patience = ASKED_AGAIN if service.endswith("/status") else timeout
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=patience).result()
            assert time.monotonic() < deadline, f"{service} does not answer"

    @contextlib.contextmanager
    def asking(self, kind: Any, service: str, request: Any) -> Iterator[None]:
        """Send a request that may never be answered."""
        client = self.node.create_client(kind, service)
        assert client.wait_for_service(LONG), f"no {service}"
        client.call_async(request)
        yield
        self.node.destroy_client(client)

    def told(self, end: str, fits: Callable[[Any], object], timeout: float = LONG) -> Any:
        """The newest status with a name that ends so of those that fit; waits for one."""
        deadline = time.monotonic() + timeout
        while not (found := [s for s in self.statuses(end) if fits(s)]):
            last = [(s.level, s.message) for s in self.statuses(end)][-5:]
            assert time.monotonic() < deadline, f"none of {end} fits; the last: {last}"
            time.sleep(0.05)
        return found[-1]

    def statuses(self, end: str) -> list[Any]:
        """Those so far with a name that ends so, the newest last."""
        return [s for array in list(self.diagnostics) for s in array.status if s.name.endswith(end)]


class Capture:
    """A capture node in a process of its own."""

    def __init__(self, bench: Bench, process: Any, out: Path, name: str) -> None:
        self.bench, self.process, self.out, self.name = bench, process, out, name

    def trigger(self, service: str) -> Any:
        return self.bench.call(Trigger, f"{self.name}/{service}", Trigger.Request())

    def status(self) -> dict[str, Any]:
        answer = self.trigger("status")
        assert answer.success
        facts: dict[str, Any] = json.loads(answer.message)
        return facts

    def until(self, enough: Callable[[dict[str, Any]], Any], timeout: float = LONG) -> dict[str, Any]:
        """The first status with which it is enough."""
        deadline = time.monotonic() + timeout
        while not enough(facts := self.status()):
            assert time.monotonic() < deadline, f"{facts}\n{self.process.log}"
            assert self.process.process.poll() is None, self.process.log
            time.sleep(0.1)
        return facts

    def has_received(self, sent: Mapping[str, int], timeout: float = LONG) -> dict[str, Any]:
        """The status once all these messages are there."""
        return self.until(lambda facts: received(facts, sent) == dict(sent), timeout)

    def has_heard(self, sent: Mapping[str, int]) -> dict[str, Any]:
        """The same with best effort: a few may never come, which is known once nothing has come for some seconds."""
        came, since = {}, time.monotonic()

        def enough(facts: dict[str, Any]) -> bool:
            nonlocal came, since
            if (now := received(facts, sent)) != came:
                came, since = now, time.monotonic()
            some = all(came.get(topic) for topic in sent)
            return came == dict(sent) or (some and time.monotonic() > since + QUIET)

        return self.until(enough)

    def finish(self, how: signal.Signals = signal.SIGINT, code: int | None = 0, timeout: float = LONG) -> None:
        """End it by a signal with this exit code (None: any)."""
        assert self.process.stop(how, timeout) == code or code is None, self.process.log
        assert "Traceback" not in self.process.log, self.process.log

    def counts(self, name: str) -> dict[str, Any]:
        return counts_of(self.out / f"{name}.frames.arrow")


def received(facts: Mapping[str, Any], topics: Collection[str]) -> dict[str, int]:
    return {t: state["received"] for t, state in facts.get("topics", {}).items() if t in topics}


class Player:
    """Publishes the messages of a recording from this process, under other names where asked to.

    They are kept for subscriptions that come to know of it later, unless they are `volatile` or of best effort.
    """

    def __init__(
        self,
        bench: Bench,
        path: Path,
        topics: Collection[str] | None = None,
        names: Mapping[str, str] | None = None,
        reliability: str = "reliable",
        volatile: bool = False,
    ) -> None:
        self._bench = bench
        self._recording = McapRecording(path)
        for _ in self._recording.walk():
            pass
        self._kept = reliability == "reliable" and not volatile
        durability = DurabilityPolicy.TRANSIENT_LOCAL if self._kept else DurabilityPolicy.VOLATILE
        qos = QoSProfile(depth=1000, reliability=ReliabilityPolicy[reliability.upper()], durability=durability)
        self._names = names or {}
        self.sent: dict[str, int] = {}
        self.times: dict[str, list[float]] = {}
        """When each of them was sent, s of time.monotonic()."""
        self._publishers = {}
        for channel in self._recording.channels.values():
            if topics is None or channel.topic in topics:
                package, _, name = channel.schema.partition("/msg/")
                kind = getattr(importlib.import_module(f"{package}.msg"), name)
                name = self._names.get(channel.topic, channel.topic)
                self._publishers[channel.topic] = bench.node.create_publisher(kind, name, qos)
        self.messages = list(self._recording.iter_messages(set(self._publishers)))

    def ready(self, without: Collection[str] = (), subscribers: int = 1, timeout: float = LONG) -> None:
        """Wait until every topic (but these) has a subscriber, and they know of each other."""
        wanted = [p for topic, p in self._publishers.items() if topic not in without]
        deadline = time.monotonic() + timeout
        while any(p.get_subscription_count() < subscribers for p in wanted):
            assert time.monotonic() < deadline, {t: p.get_subscription_count() for t, p in self._publishers.items()}
            time.sleep(0.02)
        if not self._kept:
            time.sleep(MEET)

    def alone(self, timeout: float = LONG) -> None:
        """Wait until nobody listens any more."""
        deadline = time.monotonic() + timeout
        while any(p.get_subscription_count() for p in self._publishers.values()):
            assert time.monotonic() < deadline, "somebody still listens"
            time.sleep(0.02)

    def play(self, begin: float = 0.0, end: float = 1e9, rate: float = 1.0, steady: bool = False) -> None:
        """Publish what was recorded from `begin` to `end` s; `steady`: steps of the clock are not waited for."""
        started = None
        for message, elapsed in zip(self.messages, self._elapsed(steady), strict=True):
            if not begin <= elapsed / 1e9 < end:
                continue
            started = started if started is not None else time.monotonic() - elapsed / 1e9 / rate
            time.sleep(max(0.0, started + elapsed / 1e9 / rate - time.monotonic()))
            name = self._names.get(message.topic, message.topic)
            self._publishers[message.topic].publish(message.data)
            self.sent[name] = self.sent.get(name, 0) + 1

    def when(self, topic: str, number: int) -> float:
        """When a message of a topic was recorded, s after the first one of all; steps of the clock left out."""
        at = [elapsed for m, elapsed in zip(self.messages, self._elapsed(True), strict=True) if m.topic == topic]
        return at[number] / 1e9

    def _elapsed(self, steady: bool) -> list[int]:
        times = [message.log_time for message in self.messages]
        steps = (b - a for a, b in itertools.pairwise(times))
        return list(itertools.accumulate((s if not steady or abs(s) < 500_000_000 else 0 for s in steps), initial=0))

    def close(self) -> None:
        for publisher in self._publishers.values():
            self._bench.node.destroy_publisher(publisher)
        self._publishers.clear()
