# SPDX-License-Identifier: Apache-2.0
"""Capture of a running system from waiting for the camera to the exit code, independent of the transport."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.config.load import list_setting_fields, load, load_model, read_values, suggest_nearest
from edgefirst_ros.dataset.names import check_name
from edgefirst_ros.dataset.recovery.recover import find_abandoned, recover_all
from edgefirst_ros.errors import EdgeFirstError, RecordingError, UsageError
from edgefirst_ros.pipeline.capture import Capture, Results
from edgefirst_ros.pipeline.upload import Uploader
from edgefirst_ros.sources.live import CameraWait, JoiningTransport, LiveSource, Log, Transport


def load_capture(
    path: str | os.PathLike[str] | None, texts: Mapping[str, str] | None = None
) -> tuple[Settings, LiveSettings]:
    """Return the settings of a YAML file, plain or in the form of ROS parameters, with those of `texts` on top.

    `texts`: settings by full name, as `load` takes them. Raises UsageError that names the wrong one.
    """
    own = LiveSettings.model_fields
    texts, known = texts or {}, list_setting_fields(Settings, LiveSettings)
    if unknown := next((name for name in texts if name not in known), None):
        raise UsageError(f"--set: unknown setting {unknown[:80]!r}{suggest_nearest(unknown, known)}")
    settings = load(path, texts={name: text for name, text in texts.items() if name not in own})
    given = {name: text for name, text in texts.items() if name in own}
    values = {name: value for name, value in read_values(Path(path)).items() if name in own} if path else {}
    live = load_model(LiveSettings, given, values, str(path or ""))
    check_sequence(live, "")
    return settings, live


def check_sequence(live: LiveSettings, place: str) -> None:
    """Raise UsageError that begins with `place` if no dataset can have the name `sequence`."""
    check_name(live.sequence or "x", f"{place}sequence")


LOOK_EVERY = 0.25
"""s between two calls of `CaptureSession.refresh`."""


class SessionState(Enum):
    """State of a session."""

    INACTIVE = "inactive"
    WAITING = "waiting for the camera"
    CAPTURING = "capturing"


@dataclass(frozen=True, slots=True)
class _Capturing:
    """Active, with a camera topic."""

    capture: Capture
    source: LiveSource


class CaptureSession:
    """Finds the topics, carries out commands one after the other, and keeps the outcome of the datasets.

    Call `refresh` every `LOOK_EVERY` seconds. Orders return a future that holds the answer in words,
    or the EdgeFirstError that says why not; messages are used all the while.
    Owns: one thread calls everything here (of a node: that of its executor); orders are carried out in a thread of the
    session, which does not change its state.
    """

    def __init__(
        self, transport: Transport, settings: Settings, live: LiveSettings, host: str, log: Log, namespace: str = ""
    ) -> None:
        """`host`: first part of the datasets' names, unless the settings have one.

        `namespace`: that of the capture; it follows the host in the names, and is in the metadata.

        Raises UsageError if datasets cannot be uploaded as the settings ask.
        """
        self._results = Results()
        if live.upload and settings.layout != "zip":
            raise UsageError(f"upload: only datasets with layout zip are uploaded, and layout is {settings.layout}")
        self._uploader = Uploader(live, log, self._results.unreported) if live.upload else None
        self.settings = settings
        self.live = live
        self._transport = JoiningTransport(transport, live.topics or ())
        self._namespace = namespace.strip("/")
        self._host = "-".join([host, *filter(None, self._namespace.split("/"))])
        self._log = log
        self._named = False  # whether the name of the first dataset was used
        self._orders = ThreadPoolExecutor(1, "orders")
        self._recovering: threading.Thread | None = None
        self._current: CameraWait | _Capturing | None = None
        self._asked = False  # whether anything was to be recorded
        self._broken_off = [] if live.autostart else find_abandoned(Path(live.out))

    @property
    def state(self) -> SessionState:
        match self._current:
            case CameraWait():
                return SessionState.WAITING
            case _Capturing():
                return SessionState.CAPTURING
        return SessionState.INACTIVE

    @property
    def source(self) -> LiveSource | None:
        """The source of the messages; None without a camera."""
        return self._current.source if isinstance(self._current, _Capturing) else None

    @property
    def exit_code(self) -> int:
        """Exit code of the process: 0 complete, 1 without a usable dataset, also where no message came, 3 with loss."""
        return self._results.exit_code or int(self._asked and not self._results.finished)

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        """Path, samples and loss of each finished dataset, in order."""
        return list(self._results.outcomes)

    def add_report(self, dataset: str) -> None:
        """Note that the report of a dataset was made, or failed: one that is not kept may be removed."""
        self._results.unreported.discard(Path(dataset).stem)

    # ---- active or not -------------------------------------------------------------------
    def activate(self) -> None:
        """Start to look for topics, and in the background recover the unfinished datasets of earlier captures."""
        if self._recovering is None or not self._recovering.is_alive():
            arguments = Path(self.live.out), self._log.warning
            self._recovering = threading.Thread(target=recover_all, args=arguments, daemon=True)
            self._recovering.start()
        self._current = CameraWait(self.settings)
        self._current.wanted = time.monotonic_ns() if self.live.autostart else None
        self._asked = self._asked or self.live.autostart

    def deactivate(self) -> None:
        """Complete the dataset and close all subscriptions; returns when that is done."""
        current, self._current = self._current, None
        if not isinstance(current, _Capturing):
            return
        current.source.close()
        try:
            self._orders.submit(current.capture.close).result()  # after all earlier orders
        except EdgeFirstError as error:
            self._log.error(str(error))

    def close(self) -> None:
        """End background work; to be called once the session is not active any more."""
        if self._uploader is not None:
            self._uploader.close()

    def change(self, settings: Settings, live: LiveSettings) -> None:
        """Apply settings from the next dataset on."""
        self.settings, self.live = settings, live
        if isinstance(self._current, _Capturing):
            self._current.capture.change(settings, live)

    def refresh(self) -> None:
        """Look for the camera, and for topics and publishers that appeared or went."""
        now = time.monotonic()
        if isinstance(self._current, CameraWait):
            self._find_camera(self._current, now)
        if isinstance(self._current, _Capturing):
            self._current.source.refresh(now)

    def _find_camera(self, waiting: CameraWait, now: float) -> None:
        reason = waiting.reason
        roles = waiting.find_roles(self._transport.list_topics({}), now)
        if roles is None:
            if waiting.reason != reason:
                self._log.info(waiting.reason)
            return
        for note in roles.notes:
            self._log.warning(note)
        live = self.live.model_copy(update={"sequence": None}) if self._named else self.live
        self._named = True
        log, name = self._log, self._namespace
        capture = Capture(self.settings, live, roles, self._host, log.info, self._results, name, log.error)
        source = LiveSource(self._transport, self.settings, roles, capture.put, self._log)
        self._current = _Capturing(capture, source)
        if waiting.wanted is not None:
            capture.start(waiting.wanted)

    # ---- orders --------------------------------------------------------------------------
    def start(self) -> Future[str]:
        """Start a dataset, now or when it has a camera."""
        self._asked = True
        if isinstance(self._current, CameraWait):
            if self._current.wanted is None:
                self._current.wanted = time.monotonic_ns()
            return _make_answer("begins as soon as a camera is found")
        return self._order(lambda capture: capture.start(), lambda: "started")

    def split(self) -> Future[str]:
        """Continue in a new dataset from the next keyframe on."""
        return self._order(lambda capture: capture.split(), lambda: "a new dataset begins with the next keyframe")

    def pause(self) -> Future[str]:
        """Write no samples until `resume` or `start`; the dataset stays open."""
        return self._order(lambda capture: capture.pause(paused=True), lambda: "paused")

    def resume(self) -> Future[str]:
        """End a pause."""
        return self._order(lambda capture: capture.pause(paused=False), lambda: "resumed")

    def stop(self) -> Future[str]:
        """Complete the dataset; the answer lists the finished ones as JSON."""
        if isinstance(self._current, CameraWait):
            self._current.wanted = None
        if not isinstance(self._current, _Capturing):
            return _make_answer(self._finish_dataset())
        return self._order(lambda capture: capture.stop(), self._finish_dataset)

    def _order(self, what: Callable[[Capture], Any], answer: Callable[[], str]) -> Future[str]:
        """Run a command of the capture in the session's thread; it may take seconds."""
        current = self._current
        if not isinstance(current, _Capturing):
            reason = current.reason or "looking for topics" if current is not None else "the node is not active"
            refused: Future[str] = Future()
            refused.set_exception(RecordingError(reason))
            return refused

        def carry_out() -> str:
            what(current.capture)
            return answer()

        return self._orders.submit(carry_out)

    def _finish_dataset(self) -> str:
        return json.dumps({"datasets": self._results.finished})

    # ---- status --------------------------------------------------------------------------
    def status(self) -> dict[str, Any]:
        """Return state and statistics, by topic and in total, ready for JSON."""
        current = self._current
        reason = current.reason if isinstance(current, CameraWait) else ""
        facts: dict[str, Any] = {"active": current is not None, "waiting_for": reason}
        if isinstance(current, CameraWait):
            facts["wanted"] = current.wanted is not None
        if isinstance(current, _Capturing):
            facts |= current.capture.status()
            facts["topics"] = {
                topic: {
                    "received": state.received, "lost": state.lost, "lost_by_stamps": state.guessed,
                    "longest_gap_s": state.gap / 1e9, "reliable": state.reliable, "fault": state.fault,
                }
                for topic, state in sorted(current.source.states.items())
            }  # fmt: skip
            facts["not_recorded"] = dict(current.source.unused)
        facts["finished"] = list(self._results.finished)
        if self._broken_off and not self._asked:
            facts["broken_off"] = self._broken_off
        if self._uploader is not None:
            facts["upload"] = self._uploader.status()
        return facts


def _make_answer(text: str) -> Future[str]:
    answer: Future[str] = Future()
    answer.set_result(text)
    return answer
