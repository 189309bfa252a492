# SPDX-License-Identifier: Apache-2.0
"""A recording published on a Zenoh network as the device's services do it, at its own pace."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgefirst_ros.config import SECOND
from edgefirst_ros.errors import RecordingError, counted, printable
from edgefirst_ros.messages import Message, known_name
from edgefirst_ros.nodes.playback import LATE, NAP, Lateness, Pace, Timeline, ahead
from edgefirst_ros.pipeline.dataset_messages import DatasetRecording, open_playable, times_of
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.zenoh_session import library, session

SETTLED = SECOND // 2
"""ns without a new subscriber after which discovery counts as finished."""
WAIT = 10 * SECOND
"""Longest wait for the first subscriber, ns."""
HIGH, LOW = ("radar/", "lidar/"), ("camera/info", "tf_static")
"""Prefixes of the device's topics with a higher priority than the camera, and with a lower one."""


def play(path: Path, endpoint: str, *, rate: float = 1.0, loop: bool = False) -> int:
    """Publish the messages of a recording, or of a dataset, until its end or a signal; returns the exit code.

    `rate`: seconds of the recording in one second. Raises RecordingError where there is nothing to play.
    """
    caught: list[int] = []
    recording = open_playable(path)
    if not [*times_of(recording)]:  # which finds the channels
        raise RecordingError(f"{path}: there is no message in it that could be published")
    with session(endpoint) as bus:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda received, _: caught.append(received))
        player = _Player(bus, recording, rate, lambda: bool(caught))
        player.wait_for_subscribers()
        player.play_once()
        while loop and not caught:
            player.play_once()
        _say(player.summary)
    return 0


def device_key(topic: str) -> str:
    """Return the key under which the device publishes a topic of a recording: `rt/camera/h264` of /camera/h264."""
    name = topic.removeprefix("/")
    return name if name.startswith("rt/") else f"rt/{name}"


class _Player:
    def __init__(
        self, bus: Any, recording: McapRecording | DatasetRecording, rate: float, stopped: Callable[[], bool]
    ) -> None:
        self._recording = recording
        self._rate = rate
        self._stopped = stopped
        self._lateness = Lateness()
        self._published = 0
        self._publishers: dict[tuple[str, str], Any] = {}
        for topic, schema in sorted({(c.topic, c.schema) for c in recording.channels.values() if c.encoding == "cdr"}):
            self._publishers[topic, schema] = _publisher(bus, topic, schema)

    @property
    def summary(self) -> str:
        """Return how many messages were published and how late, in words."""
        late = self._lateness
        return (
            f"{counted(self._published, 'message')} of "
            f"{counted(len(self._publishers), 'topic')} published; {late.late} were late by over "
            f"{LATE // 1_000_000} ms, the worst by {late.worst / 1e6:.1f} ms"
        )

    def wait_for_subscribers(self) -> None:
        """Wait until a topic has a subscriber and no more appear, or until the timeout."""
        began = since = time.monotonic_ns()
        found = 0
        while (now := time.monotonic_ns()) < began + WAIT and not self._stopped():
            matched = sum(publisher.matching_status.matching for publisher in self._publishers.values())
            if matched != found:
                found, since = matched, now
            if found and now - since >= SETTLED:
                return
            time.sleep(0.02)
        if not self._stopped():
            _say("no subscriber; playing anyway")

    def play_once(self) -> None:
        """Publish all messages once, each when it is due."""
        timeline, pace = None, None
        for message in ahead(self._recording.iter_messages({t for t, _ in self._publishers}), self._stopped):
            timeline = timeline or Timeline(message.log_time)
            elapsed = timeline.advance(message.log_time)
            pace = pace or Pace(self._rate, 0)
            due = pace.due(elapsed)
            while (now := time.monotonic_ns()) < due and not self._stopped():
                time.sleep(min((due - now) / SECOND, NAP))
            if self._stopped():
                return
            self._lateness.note(time.monotonic_ns() - due)
            self._publish(message)

    def _publish(self, message: Message) -> None:
        publisher = self._publishers.get((message.topic, message.schema))
        if publisher is not None:
            publisher.put(message.data)
            self._published += 1


def _publisher(bus: Any, topic: str, schema: str) -> Any:
    """Return a publisher with the device's encoding and priority, which drops what cannot be sent within 0.1 s."""
    zenoh = library()
    name = known_name(topic, schema) or ""
    priority = zenoh.Priority.DATA_HIGH if name.startswith(HIGH) else zenoh.Priority.DATA
    return bus.declare_publisher(
        device_key(topic),
        encoding=f"application/cdr;{schema}",
        congestion_control=zenoh.CongestionControl.DROP,
        priority=zenoh.Priority.BACKGROUND if name in LOW else priority,
    )


def _say(text: str) -> None:
    print(printable(f"edgefirst-ros play: {text}"), file=sys.stderr, flush=True)  # noqa: T201
