# SPDX-License-Identifier: Apache-2.0
"""The device's own bus, Zenoh: a capture, orders to it from another process, and a recording published on it."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from edgefirst_ros.config import LiveSettings, PlayerSettings, Settings
from edgefirst_ros.errors import EdgeFirstError, UsageError
from edgefirst_ros.limits import keep_buffers
from edgefirst_ros.messages import find_known_name
from edgefirst_ros.nodes.play import FAR, Outlet, Player
from edgefirst_ros.nodes.service import VERBS, Ask, Service, VerbLog, answer_time, catch_signals, check_capture
from edgefirst_ros.pipeline.capture_session import LOOK_EVERY
from edgefirst_ros.sources.zenoh import ZenohTransport
from edgefirst_ros.sources.zenoh_session import load_library, open_session

DIAGNOSE_EVERY = 1.0
"""s between two diagnostics."""
JSON = "application/json"
TIMEOUT = "Timeout"
"""Zenoh's answer where a real one does not come in time."""
HIGH, LOW = ("radar/", "lidar/"), ("camera/info", "tf_static")
"""Prefixes of the device's topics with a higher priority than the camera, and with a lower one."""
NAMESPACE = re.compile(r"[^/*$?#@\s]+(/[^/*$?#@\s]+)*")


def make_key(namespace: str, name: str) -> str:
    """Return a key of the capture in a namespace; raises UsageError for an invalid one."""
    bare = namespace.strip("/")
    if bare and not NAMESPACE.fullmatch(bare):
        raise UsageError(f"--namespace: expected names with / between them, got {namespace!r}")
    return f"{bare}/capture/{name}".lstrip("/")


class Orders:
    """Commands to the capture by Zenoh queries, answered as JSON with `success` and `message`.

    A wildcard query reads the status; start, stop and split need a query whose key is exactly theirs, so that a tool
    that browses the bus cannot trigger them.
    Owns: queries come in threads of Zenoh, which put them into `inbox`; the main thread carries them out.
    """

    def __init__(self, bus: Any, namespace: str, inbox: queue.SimpleQueue[Any]) -> None:
        callback = load_library().handlers.Callback
        self._keys = {verb: make_key(namespace, verb) for verb in VERBS}
        self._queryables = [
            bus.declare_queryable(key, callback(partial(self._receive, inbox, verb), indirect=False))
            for verb, key in self._keys.items()
        ]

    def _receive(self, inbox: queue.SimpleQueue[Any], verb: str, query: Any) -> None:
        if verb == "status" or str(query.key_expr) == self._keys[verb]:
            inbox.put((verb, query))
        else:
            query.drop()

    def reply(self, verb: str, query: Any, answer: Future[dict[str, Any]]) -> None:
        """Answer a command that is carried out."""
        try:
            query.reply(self._keys[verb], json.dumps(answer.result()), encoding=JSON)
            query.drop()
        except load_library().ZError:  # the client is gone
            return


def capture(endpoint: str, settings: Settings, live: LiveSettings, namespace: str) -> int:
    """Capture until a signal; returns the exit code: 0 complete, 1 without a usable dataset, 3 finished with loss.

    Raises UsageError for settings that cannot be recorded with, EdgeFirstError without an answer at `endpoint`.
    """
    keep_buffers()
    make_key(namespace, "")
    load_library()  # before a folder is made
    check_capture(settings, live)
    inbox = queue.SimpleQueue[tuple[str, Any] | None]()
    with open_session(endpoint) as bus:

        def publish(topic: str, text: str) -> None:
            bus.put(make_key(namespace, topic), text, encoding=JSON)

        transport, name = ZenohTransport(bus, settings, live, namespace), make_key(namespace, "")[:-1]
        log = VerbLog("capture")
        service = Service(transport, settings, live, name, log, namespace=namespace, publish=publish)
        orders = Orders(bus, namespace, inbox)
        diagnostics = bus.declare_publisher(make_key(namespace, "diagnostics"), encoding=JSON)
        catch_signals(lambda: inbox.put(None))
        service.begin()
        looked = diagnosed = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                item = inbox.get(timeout=max(0.0, looked + LOOK_EVERY - time.monotonic()))
                if item is None:
                    break
                service.order(item[0]).add_done_callback(partial(orders.reply, *item))
            now = time.monotonic()
            if now - looked >= LOOK_EVERY:
                looked = now
                service.refresh()
            if now - diagnosed >= DIAGNOSE_EVERY:
                diagnosed = now
                statuses = [
                    {"level": int(one.level), "name": one.name, "message": one.message, "values": dict(one.values)}
                    for one in service.diagnose()
                ]
                diagnostics.put(json.dumps({"stamp": time.time_ns(), "status": statuses}))
        service.finish()
    return service.session.exit_code


# ---- control -----------------------------------------------------------------------------------
@contextlib.contextmanager
def open_client(endpoint: str, namespace: str) -> Iterator[Ask]:
    """Open a session that sends commands; raises UsageError for an invalid namespace."""
    make_key(namespace, "")
    with open_session(endpoint) as bus:

        def ask(verb: str) -> list[dict[str, Any]]:
            replies = bus.get(make_key(namespace, verb), timeout=answer_time(verb))
            return [answer for answer in map(_answer, replies) if answer["message"] != TIMEOUT]

        yield ask


def _answer(reply: Any) -> dict[str, Any]:
    if reply.ok is None:
        return {"success": False, "message": reply.err.payload.to_string()}
    try:
        answer = json.loads(reply.ok.payload.to_bytes())
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "success" not in answer:
        raise EdgeFirstError(f"{reply.ok.key_expr}: the answer is not that of a capture")
    return answer


# ---- playing -----------------------------------------------------------------------------------
class _Outlets:
    def __init__(self, bus: Any) -> None:
        self._bus = bus
        self.output = VerbLog("play")

    def open(self, topic: str, schema: str) -> Outlet:
        try:
            publisher = make_publisher(self._bus, topic, schema)
        except load_library().ZError:
            raise LookupError(f"Zenoh does not take the key {make_device_key(topic)}") from None
        return Outlet(publisher.put, lambda: publisher.matching_status.matching)

    def report(self, player: Player) -> None:
        self.output.show(player.describe())

    def show_time(self, at: int) -> int:
        return FAR


def play(settings: PlayerSettings, endpoint: str) -> int:
    """Publish the messages of a recording, or of a dataset, until its end or a signal; returns the exit code.

    Raises RecordingError without messages to play.
    """
    player = Player(settings)
    with open_session(endpoint) as bus:
        player.play(_Outlets(bus), catch_signals())
    return 0


def make_device_key(topic: str) -> str:
    """Return the key under which the device publishes a topic of a recording: `rt/camera/h264` of /camera/h264."""
    name = topic.removeprefix("/")
    return name if name.startswith("rt/") else f"rt/{name}"


def make_publisher(bus: Any, topic: str, schema: str) -> Any:
    """Return a publisher with the device's encoding and priority, which drops what cannot be sent within 0.1 s."""
    zenoh = load_library()
    name = find_known_name(topic, schema) or ""
    priority = zenoh.Priority.DATA_HIGH if name.startswith(HIGH) else zenoh.Priority.DATA
    return bus.declare_publisher(
        make_device_key(topic),
        encoding=f"application/cdr;{schema}",
        congestion_control=zenoh.CongestionControl.DROP,
        priority=zenoh.Priority.BACKGROUND if name in LOW else priority,
    )
