# SPDX-License-Identifier: Apache-2.0
"""A capture as a service, on any bus: signals, orders, health, status, pages, uploads, the service manager."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.names import check_folder
from edgefirst_ros.errors import EdgeFirstError, UsageError, escape_text, need, pluralize
from edgefirst_ros.pipeline.capture_session import LOOK_EVERY, CaptureSession
from edgefirst_ros.pipeline.health import Condition, Health, Status
from edgefirst_ros.sensors.cloud import check_form
from edgefirst_ros.sources.live import Transport
from edgefirst_ros.streams import is_key

VERBS = ("start", "stop", "split", "pause", "resume", "status")
NICE = 19
"""Niceness of the process that makes a report."""


def catch_signals(end: Callable[[], object] = lambda: None) -> list[str]:
    """Return a list that gets the name of each signal that ends a service: SIGINT, SIGTERM, SIGHUP; then call `end`."""
    caught: list[str] = []

    def catch(number: int, _: object) -> None:
        caught.append(signal.Signals(number).name)
        end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, catch)
    return caught


class VerbLog:
    """Logs lines of a verb to standard error, over a status line on a terminal.

    Any thread may call everything here.
    """

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._lock = threading.Lock()
        self._shown = 0
        """Width of the status line that is shown."""

    def show(self, text: str) -> None:
        """Show the status line on a terminal, instead of the one before; empty text removes it."""
        if sys.stderr.isatty():
            self._write(escape_text(text).replace("\n", " ")[: shutil.get_terminal_size().columns - 1], "\r")

    def info(self, text: str, /) -> None:
        """Log normal operation."""
        self._write(escape_text(f"edgefirst-ros {self._verb}: {text}"), "\n")

    def warning(self, text: str, /) -> None:
        """Log a note for the user."""
        self.info(f"warning: {text}")

    def error(self, text: str, /) -> None:
        """Log what cannot be recorded."""
        self.info(f"error: {text}")

    def _write(self, line: str, end: str) -> None:
        """Write over the status line, in one piece; the next line is written over one that ends in a return."""
        with self._lock, contextlib.suppress(OSError):  # the reader may be gone; the capture continues
            print(line.ljust(self._shown), end=end, file=sys.stderr, flush=True)  # noqa: T201  threads log, too
            self._shown = len(line) if end == "\r" else 0


class ServiceManager:
    """The service manager that started this process; without one it sends no messages. Source: sd_notify(3)."""

    def __init__(self) -> None:
        place = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{place[1:]}" if place.startswith("@") else place
        limit = os.environ.get("WATCHDOG_USEC", "")
        ours = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._watched = limit.isdecimal() and ours

    def tell(self, *lines: str) -> None:
        """Send lines such as READY=1."""
        if self._address:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.sendto("\n".join(lines).encode(), self._address)

    def alive(self) -> None:
        """Send WATCHDOG=1, if the watchdog is enabled."""
        if self._watched:
            self.tell("WATCHDOG=1")


def check_capture(settings: Settings, live: LiveSettings) -> None:
    """Raise UsageError for an output folder that cannot be written, EdgeFirstError for a library that is missing."""
    check_form(settings.pcd)
    if live.report:
        need("report: true", "report", "jinja2", "plotly")
    out = Path(live.out)
    check_folder(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"out: {live.out}: cannot be made: {error.strerror}; name another folder") from None
    if not os.access(out, os.W_OK | os.X_OK):
        raise UsageError(f"out: {live.out}: its user or disk allows no writing; name another folder")


class Service:
    """A capture session with what surrounds it on every bus.

    Its transport calls `refresh` every `LOOK_EVERY` seconds and `diagnose` every second, hands orders to `order`, and
    at the end calls `finish`.
    Owns: one thread calls everything here; answers to orders come in any thread.
    """

    def __init__(
        self,
        transport: Transport,
        settings: Settings,
        live: LiveSettings,
        name: str,
        log: VerbLog,
        *,
        namespace: str = "",
        clock: Callable[[], float] | None = None,
        publish: Callable[[str, str], object] = lambda topic, text: None,
    ) -> None:
        """Make the session.

        Args:
            transport: The bus.
            settings: Those of every conversion.
            live: Those of a capture.
            name: Prefix of the statuses' names.
            log: Where lines about the capture, and its status, are written.
            namespace: That of the capture; default names of datasets have it.
            clock: Returns the time in s by which ages are reported; the monotonic clock if None.
            publish: Called with `finished` or `messages_lost` and JSON, for each finished dataset and new loss.

        Raises UsageError for settings that cannot record anything.
        """
        check_capture(settings, live)
        self.session = CaptureSession(transport, settings, live, socket.gethostname(), log, namespace)
        self._log = log
        self._reports = ThreadPoolExecutor(1, "report")
        self._health = Health(name, clock)
        self._publish = publish
        self._published, self._told = 0, "{}"
        self._lost: dict[str, dict[str, int]] = {}
        self._manager = ServiceManager()

    def refresh(self) -> None:
        """Look for topics and samples that came."""
        self.session.refresh()
        facts = self.session.status()
        stuck = self._health.judge(self.session, facts)[0] in (Condition.STALE, Condition.FAILED)
        if not stuck or facts.get("bytes_needed") or facts.get("broken_off"):  # restarting would not help these
            self._manager.alive()

    def order(self, verb: str) -> Future[dict[str, Any]]:
        """Carry out one of `VERBS`; the answer has `success` and `message`, that of `status` all facts."""
        answer: Future[dict[str, Any]] = Future()
        if verb == "status":
            answer.set_result(self._status())
            return answer

        def tell(done: Future[str]) -> None:
            error = done.exception()
            if error is not None and not isinstance(error, EdgeFirstError):
                answer.set_exception(error)
                return
            message = done.result() if error is None else str(error)
            answer.set_result({"success": error is None, "message": message})

        getattr(self.session, verb)().add_done_callback(tell)
        return answer

    def _status(self) -> dict[str, Any]:
        facts = self.session.status()
        condition, words = self._health.judge(self.session, facts)
        told = {"success": True, "message": words, "condition": condition.name.lower(), "exit_code": int(condition)}
        return told | {"recording": False} | facts | self._health.measure(self.session, facts)

    def diagnose(self) -> list[Status]:
        """Return the statuses of the dataset and the topics; start the reports of newly finished datasets."""
        self._announce()
        statuses = self._health.statuses(self.session)
        status = describe_status(self._status())
        self._manager.tell(f"STATUS={status}")
        self._log.show(status)
        return statuses

    def begin(self) -> None:
        """Activate the session, and notify the service manager."""
        self.session.activate()
        self.session.refresh()
        self._manager.tell("READY=1", f"STATUS={self.session.state.value}")

    def finish(self) -> None:
        """Complete the datasets, their reports and uploads; the watchdog is reported in the meantime."""
        self._manager.tell("STOPPING=1")
        self._log.show("")
        ending = threading.Thread(target=self.session.deactivate, name="deactivate")
        ending.start()
        while ending.is_alive():
            self._manager.alive()
            ending.join(LOOK_EVERY)
        self._announce()
        self._reports.shutdown()
        self.session.close()
        if self.session.exit_code == 1 and not self.session.outcomes:
            self._log.warning("no dataset was written")

    def _announce(self) -> None:
        """Publish outcomes of newly finished datasets and start their reports; publish new lost messages by topic."""
        for outcome in self.session.outcomes[self._published :]:
            self._published += 1
            self._publish("finished", json.dumps(outcome))
            if self.session.live.report:
                self._reports.submit(self._report, outcome["dataset"])
        source = self.session.source
        for name, state in source.states.items() if source is not None else ():
            if state.lost or state.guessed:
                self._lost[name] = {"lost": state.lost, "lost_by_stamps": state.guessed}
        told = json.dumps({name: self._lost[name] for name in sorted(self._lost)})
        if told != self._told:
            self._told = told
            self._publish("messages_lost", told)

    def _report(self, dataset: str) -> None:
        """Make the report of a dataset in a process of its own, and log why it fails."""
        command = [sys.executable, "-m", "edgefirst_ros", "report", dataset, "--overwrite"]
        try:
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as making:
                os.setpriority(os.PRIO_PROCESS, making.pid, NICE)
                told = making.communicate()[1].decode(errors="replace").strip()
            failed = making.returncode and (told or making.returncode)
        except OSError as error:
            failed = error
        if failed:
            self._log.warning(f"{dataset}: no report: {failed}")
        self.session.add_report(dataset)


def describe_status(answer: Mapping[str, Any]) -> str:
    """Return a status in a line: state, samples, losses, size, minutes of disk, age of the newest sample, skew, Hz."""
    parts = [str(answer["message"])]
    if "samples" in answer:
        parts.append(pluralize(answer["samples"], "sample"))
        if lost := sum(reasons.total() for reasons in Counts.of(answer.get("counts", {})).lost.values()):
            parts.append(f"{pluralize(lost, 'message')} lost")
        parts.append(f"{answer.get('bytes', 0) / 1e6:.1f} MB")
    if answer.get("free_minutes") is not None:
        parts.append(f"{answer['free_minutes']:.0f} minutes of disk left")
    if answer.get("newest_sample_age") is not None:
        parts.append(f"newest sample {answer['newest_sample_age']:.1f} s ago")
    if skews := answer.get("worst_skew_ns"):
        parts.append(f"skew up to {max(skews.values()) / 1e6:.0f} ms")
    parts += [f"{sensor} {rate:.1f} Hz" for sensor, rate in answer.get("rates", {}).items() if is_key(sensor)]
    return ", ".join(parts)


Ask = Callable[[str], list[dict[str, Any]]]
"""Sends a command; returns the answers of all captures that it reaches within `answer_time` s."""
ASKING = 5.0
"""s for which a command is sent again until an answer comes: discovery is slow under load."""
LONGEST = 60.0
"""Timeout of an answer in s: completing a dataset may take long."""


def answer_time(verb: str) -> float:
    """Return the timeout of an answer in s: the status needs no work of the capture."""
    return ASKING if verb == "status" else LONGEST


def give_order(verb: str, ask: Ask, bus: str) -> list[dict[str, Any]]:
    """Send a command, again for some seconds without an answer; return the answers.

    `bus`: where it is sent, in words. Raises EdgeFirstError without an answer.
    """
    until = time.monotonic() + ASKING
    while not (answers := ask(verb)):
        if time.monotonic() >= until:
            raise EdgeFirstError(f"no capture answers to {verb} {bus}: is it running, and in that namespace?")
        time.sleep(0.2)
    return answers


def watch(ask: Ask, every: float = 1.0) -> Iterator[list[dict[str, Any]]]:
    """Yield the status of all captures once a second; an empty list without an answer."""
    while True:
        began = time.monotonic()
        yield ask("status")
        time.sleep(max(0.0, began + every - time.monotonic()))
