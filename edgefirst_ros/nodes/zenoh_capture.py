# SPDX-License-Identifier: Apache-2.0
"""A capture session on the device's bus: commands by queries, diagnostics as JSON, signals, the service manager."""

from __future__ import annotations

import json
import queue
import re
import signal
import socket
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from types import FrameType
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import EdgeFirstError, UsageError, counted, need, printable
from edgefirst_ros.nodes.reports import Reports
from edgefirst_ros.nodes.systemd import ServiceManager
from edgefirst_ros.pipeline.capture_session import LOOK_EVERY, CaptureSession, SessionState
from edgefirst_ros.pipeline.health import Health
from edgefirst_ros.pipeline.memory import keep_buffers
from edgefirst_ros.sources.zenoh import ZenohTransport
from edgefirst_ros.sources.zenoh_session import library, session

VERBS = ("start", "stop", "split", "status")
DIAGNOSE_EVERY = 1.0
"""s between two diagnostics."""
JSON = "application/json"
NAMESPACE = re.compile(r"[^/*$?#@\s]+(/[^/*$?#@\s]+)*")


def own_key(namespace: str, name: str) -> str:
    """Return a key of the capture in a namespace; raises UsageError for an invalid one."""
    bare = namespace.strip("/")
    if bare and not NAMESPACE.fullmatch(bare):
        raise UsageError(f"--namespace: expected names with / between them, got {namespace!r}")
    return f"{bare}/capture/{name}".lstrip("/")


class StandardError:
    """Logs to standard error."""

    def info(self, text: str, /) -> None:
        """Log normal operation."""
        self._say(text)

    def warning(self, text: str, /) -> None:
        """Log what the user should look at."""
        self._say(f"warning: {text}")

    def error(self, text: str, /) -> None:
        """Log what cannot be recorded."""
        self._say(f"error: {text}")

    @staticmethod
    def _say(text: str) -> None:
        print(printable(f"edgefirst-ros capture: {text}"), file=sys.stderr, flush=True)  # noqa: T201


class Orders:
    """Commands to the capture by Zenoh queries, answered as JSON with `success` and `message`.

    A wildcard query reads the status; start, stop and split need a query whose key is exactly theirs, so that a tool
    that browses the bus changes nothing.
    Owns: queries come in threads of Zenoh, which put them into `inbox`; the main thread carries them out.
    """

    def __init__(self, bus: Any, namespace: str, inbox: queue.SimpleQueue[Any]) -> None:
        callback = library().handlers.Callback
        self._keys = {verb: own_key(namespace, verb) for verb in VERBS}
        self._queryables = [
            bus.declare_queryable(key, callback(partial(self._take, inbox, verb), indirect=False))
            for verb, key in self._keys.items()
        ]

    def _take(self, inbox: queue.SimpleQueue[Any], verb: str, query: Any) -> None:
        if verb == "status" or str(query.key_expr) == self._keys[verb]:
            inbox.put((verb, query))
        else:
            query.drop()

    def carry_out(self, capture: CaptureSession, verb: str, query: Any) -> None:
        """Carry out a command, and answer once it is done."""
        if verb == "status":
            facts = capture.status()
            state = facts.get("state") or facts["waiting_for"] or capture.state.value
            self._reply(verb, query, {"success": True, "message": state, "recording": False} | facts)
            return
        order = {"start": capture.start, "stop": capture.stop, "split": capture.split}[verb]
        order().add_done_callback(partial(self._tell, verb, query))

    def _tell(self, verb: str, query: Any, done: Future[str]) -> None:
        error = done.exception()
        if error is not None and not isinstance(error, EdgeFirstError):
            raise error
        message = done.result() if error is None else str(error)
        self._reply(verb, query, {"success": error is None, "message": message})

    def _reply(self, verb: str, query: Any, answer: dict[str, Any]) -> None:
        try:
            query.reply(self._keys[verb], json.dumps(answer), encoding=JSON)
            query.drop()
        except library().ZError:  # who asked is gone
            return


class _Service:
    """The capture as a service: takes commands, publishes diagnostics, ends by signals.

    Owns: the main thread changes everything here.
    """

    def __init__(self, bus: Any, settings: Settings, live: LiveSettings, namespace: str) -> None:
        self._inbox = queue.SimpleQueue[tuple[str, Any] | None]()
        self._manager = ServiceManager()
        transport = ZenohTransport(bus, settings, live, namespace)
        log = StandardError()
        self.running = CaptureSession(transport, settings, live, socket.gethostname(), log)
        self._reports = Reports(log.warning)
        self._orders = Orders(bus, namespace, self._inbox)
        self._health = Health(own_key(namespace, "")[:-1])
        self._diagnostics = bus.declare_publisher(own_key(namespace, "diagnostics"), encoding=JSON)

    def end(self, number: int, frame: FrameType | None) -> None:
        """End after a signal."""
        self._inbox.put(None)

    def run(self) -> None:
        """Capture until `end`, and complete the datasets."""
        running, manager = self.running, self._manager
        running.activate()
        running.look()
        manager.tell("READY=1", f"STATUS={running.state.value}")
        looked = diagnosed = time.monotonic()
        while True:
            try:
                item = self._inbox.get(timeout=max(0.0, looked + LOOK_EVERY - time.monotonic()))
                if item is None:
                    break
                self._orders.carry_out(running, *item)
            except queue.Empty:
                pass
            now = time.monotonic()
            if now - looked >= LOOK_EVERY:
                looked = now
                running.look()
                manager.alive()
            if now - diagnosed >= DIAGNOSE_EVERY:
                diagnosed = now
                self._diagnose()
        manager.tell("STOPPING=1")
        ending = threading.Thread(target=running.deactivate, name="deactivate")
        ending.start()
        while ending.is_alive():
            manager.alive()
            ending.join(LOOK_EVERY)
        running.close()
        self._look_for_finished()
        self._reports.close()

    def _look_for_finished(self) -> None:
        """Start the HTML reports of newly finished datasets, if `report` is set."""
        self._reports.look(self.running.finished if self.running.live.report else ())

    def _diagnose(self) -> None:
        running = self.running
        self._look_for_finished()
        statuses = [
            {"level": int(one.level), "name": one.name, "message": one.message, "values": dict(one.values)}
            for one in self._health.statuses(running)
        ]
        self._diagnostics.put(json.dumps({"stamp": time.time_ns(), "status": statuses}))
        told = running.state.value
        if running.state is SessionState.CAPTURING:
            facts = running.status()
            finished = counted(len(facts["finished"]), "dataset")
            told = f"{facts['state']}: {counted(facts.get('samples', 0), 'sample')}, {finished} finished"
        self._manager.tell(f"STATUS={told}")


def capture(endpoint: str, settings: Settings, live: LiveSettings, namespace: str) -> int:
    """Capture until a signal; returns the exit code: 0 all there, 1 nothing usable written, 3 finished with loss.

    Raises EdgeFirstError if there is no answer at `endpoint`.
    """
    keep_buffers()
    own_key(namespace, "")
    if live.report:
        need("the setting report", "report", "jinja2", "plotly")
    with session(endpoint) as bus:
        service = _Service(bus, settings, live, namespace)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, service.end)
        service.run()
    return service.running.exit_code
