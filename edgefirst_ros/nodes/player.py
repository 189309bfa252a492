# SPDX-License-Identifier: Apache-2.0
"""The node `player`: publishes the messages of a recording, byte for byte, at the pace at which they were recorded."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from pydantic import AfterValidator, Field
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.time import Time
from rclpy.utilities import remove_ros_args
from rosgraph_msgs.msg import Clock

from edgefirst_ros.config import SECOND, Model, nanoseconds
from edgefirst_ros.errors import RecordingError, UsageError, counted, printable
from edgefirst_ros.nodes.clouds import MISSING, cloud_maker
from edgefirst_ros.nodes.outlets import Outlets
from edgefirst_ros.nodes.parameters import check, declare, read
from edgefirst_ros.nodes.playback import LATE, NAP, Lateness, Pace, Timeline, ahead
from edgefirst_ros.pipeline.dataset_messages import DatasetRecording, open_playable, times_of
from edgefirst_ros.streams import CLOUD

CLOCK_PERIOD = 10_000_000
"""ns between two messages on /clock."""
REPORT_PERIOD = SECOND
SETTLED = SECOND // 2
"""ns without a new subscription after which discovery counts as finished."""
LOOK_EVERY = 0.02
"""s between two checks for subscribers."""
LAST_WAIT = 4.0
"""s given to reliable subscribers at the end to receive what they miss; Fast DDS has a heartbeat every 3 s."""


class PlayerSettings(Model):
    """Parameters of the player."""

    recording: Annotated[str, AfterValidator(os.path.expanduser)] = Field(
        "", description="MCAP file or dataset to play"
    )
    rate: float = Field(
        1.0, ge=0.01, le=100.0, allow_inf_nan=False, description="Seconds of the recording played in a second"
    )
    loop: bool = Field(False, description="Begin again at the end, at once and without end")
    clock: bool = Field(False, description="Publish the time of the recording on /clock, 100 times a second")
    start: float = Field(
        0.0, ge=0, le=1e6, allow_inf_nan=False, description="Part at the begin of the recording that is left out, s"
    )
    duration: float | None = Field(
        None, gt=0, le=1e6, allow_inf_nan=False, description="Length of the part to play, s; to the end if unset"
    )
    topics: tuple[str, ...] = Field(
        (), description="Topics to play, by their whole names or the ends of them; all if empty"
    )
    wait_for_subscribers: int = Field(
        1, ge=0, le=1000, description="Topics that must have a subscriber before the first message; 0: do not wait"
    )
    wait_timeout: float = Field(
        10.0, ge=0, le=3600, allow_inf_nan=False, description="Longest time to wait for subscribers, s"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the node with ROS arguments; exit code 0 when the recording was played, or a signal ended it.

    Raises UsageError for wrong parameters, RecordingError where there is nothing to play.
    """
    caught: list[str] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: caught.append(signal.Signals(received).name))
    try:
        node = _node(arguments)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        services = threading.Thread(target=executor.spin, name="services", daemon=True)
        services.start()
        try:
            play(node, lambda: caught[0] if caught else "")
        finally:
            executor.shutdown()
            services.join(1.0)
            node.destroy_node()
    finally:
        rclpy.try_shutdown()
    return 0


def _node(arguments: Sequence[str]) -> Node:
    try:
        rclpy.init(args=list(arguments), signal_handler_options=SignalHandlerOptions.NO)
        strange = remove_ros_args(list(arguments))
        node = rclpy.create_node("player")
    except (RuntimeError, ValueError, NameValidationException) as error:
        raise UsageError(f"ROS arguments: {error}") from None
    if strange:
        raise UsageError(f"unknown argument {strange[0]!r}; parameters are given by --ros-args -p NAME:=VALUE")
    return node


def play(node: Node, stopped: Callable[[], str]) -> None:
    """Play the recording in the node's parameters until it ends, or `stopped` returns the name of a signal."""
    declare(node, PlayerSettings)
    node.add_on_set_parameters_callback(lambda parameters: check(node, parameters, (PlayerSettings,), ()))
    settings = read(node, PlayerSettings)
    if not settings.recording:
        raise UsageError("recording: none is given; set it: --ros-args -p recording:=REC.mcap")
    player = _Player(node, settings, stopped)
    player.read_through()
    player.wait_for_subscribers()
    player.play()


class _Player:
    def __init__(self, node: Node, settings: PlayerSettings, stopped: Callable[[], str]) -> None:
        self._node = node
        self._log = node.get_logger()
        self._settings = settings
        self._stopped = stopped
        self._make_cloud = cloud_maker()
        self._recording = open_playable(Path(settings.recording), self._make_cloud)
        self._outlets = Outlets(node)
        self._diagnostics = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._clock = node.create_publisher(Clock, "/clock", 10) if settings.clock else None
        self._first = 0
        self._length = 0
        self._doing = "reading the recording"
        self._position = 0
        """Time of the recording, ns since its begin."""
        self._passes = 0
        self._lateness = Lateness()
        self._told_late = 0
        self._next_report = 0
        self._next_clock = 0

    # ---- before the first message ----------------------------------------------------------
    def read_through(self) -> None:
        """Read through the recording, and create publishers for its topics."""
        recording, timeline = self._recording, None
        for at in times_of(recording):
            if timeline is None:
                self._first = at
                timeline = Timeline(self._first)
            self._length = timeline.advance(at)
            self._report()
            if self._stopped():
                return
        for damage in recording.damage:
            self._log.warning(printable(f"{recording.path}: damage at byte {damage.offset}: {damage.what}"))
        if timeline is None:
            raise RecordingError(f"{recording.path}: there is no message in it that ROS could publish")
        if timeline.steps:
            self._log.warning(
                f"the clock was set {counted(timeline.steps, 'time')} during the recording; such pauses are skipped"
            )
        if nanoseconds(self._settings.start) > self._length:
            raise UsageError(
                f"start: {self._settings.start:g} s lie past the end of the recording, which lasts "
                f"{self._length / SECOND:.3f} s"
            )
        clouds = any(channel.schema == CLOUD for channel in recording.channels.values())
        if clouds and isinstance(recording, DatasetRecording) and self._make_cloud is None:
            self._log.warning(MISSING)
        self._outlets.open(recording.channels.values(), self._settings.topics, own_clock=self._clock is not None)
        for topic, why in self._outlets.skipped.items():
            text = printable(f"{topic} is not published, {why}")
            if topic in self._outlets.lacking:
                self._log.warning(text)
            else:  # a logger's line keeps its level
                self._log.info(text)
        for topic, name in self._outlets.renamed.items():
            self._log.info(printable(f"{topic} is published as {name}"))

    def wait_for_subscribers(self) -> None:
        """Wait until enough topics have subscribers and no more appear, or until the timeout."""
        wanted = min(self._settings.wait_for_subscribers, len(self._outlets.names))
        if not wanted or self._stopped():
            return
        self._doing = "waiting for subscribers"
        began = since = time.monotonic_ns()
        found = self._outlets.subscribed()
        until = began + nanoseconds(self._settings.wait_timeout)
        while (now := time.monotonic_ns()) < until and not self._stopped():
            before, found = found, self._outlets.subscribed()
            if found != before:
                since = now
            if len(found) >= wanted and now - since >= SETTLED:
                break
            self._report()
            time.sleep(LOOK_EVERY)
        if len(found) < wanted and not self._stopped():
            self._log.warning(f"{len(found)} of {wanted} topics have a subscriber; playing all the same")

    # ---- messages ------------------------------------------------------------------------
    def play(self) -> None:
        """Publish the messages, repeatedly with `loop`."""
        began = time.monotonic()
        self._doing = "playing"
        while not self._stopped():
            before = self._outlets.published
            self._play_once()
            if self._outlets.published == before and not self._stopped():
                raise RecordingError(f"{self._recording.path}: there is no message in the part that is to be played")
            self._passes += 1
            if not self._settings.loop:
                break
        took = time.monotonic() - began
        self._doing = f"stopped by {self._stopped()}" if self._stopped() else "played to the end"
        self._log.info(
            f"{self._doing}: {counted(self._outlets.published, 'message')} of "
            f"{counted(len(self._outlets.names), 'topic')} in {took:.1f} s; "
            f"{self._lateness.late} were late by over {LATE // 1_000_000} ms, the worst by "
            f"{self._lateness.worst / 1e6:.1f} ms"
        )
        self._tell()
        until = time.monotonic() + LAST_WAIT
        while not self._stopped() and time.monotonic() < until and not self._outlets.fetched(NAP):
            pass

    def _play_once(self) -> None:
        begin = nanoseconds(self._settings.start)
        end = None if self._settings.duration is None else begin + nanoseconds(self._settings.duration)
        timeline, pace = Timeline(self._first), None
        for message in ahead(self._recording.iter_messages(self._outlets.recorded), self._stopped):
            elapsed = timeline.advance(message.log_time)
            if elapsed < begin:
                self._report()
                continue
            if end is not None and elapsed >= end:
                return
            if pace is None:
                pace = Pace(self._settings.rate, begin)
            self._wait(pace, timeline)
            if self._stopped():
                return
            self._lateness.note(time.monotonic_ns() - pace.due(elapsed))
            self._outlets.publish(message)
            self._position = elapsed

    def _wait(self, pace: Pace, timeline: Timeline) -> None:
        """Wait until the next message is due, while /clock and diagnostics are published."""
        due = pace.due(timeline.elapsed)
        while not self._stopped():
            self._report()
            now = time.monotonic_ns()
            if self._clock is not None and now >= self._next_clock:
                self._next_clock = now + CLOCK_PERIOD
                shown = timeline.newest - max(0, timeline.elapsed - pace.elapsed(now))
                self._clock.publish(Clock(clock=Time(nanoseconds=max(0, shown)).to_msg()))
            if now >= due:
                return
            until = min(due, self._next_clock) if self._clock is not None else due
            time.sleep(min((until - now) / SECOND, NAP))

    # ---- what is told ----------------------------------------------------------------------
    def _report(self) -> None:
        """Publish diagnostics and log a line, once a second."""
        now = time.monotonic_ns()
        if now >= self._next_report:
            self._next_report = now + REPORT_PERIOD
            words = self._tell()
            self._log.info(f"{words}: {self._position / SECOND:.1f} of {self._length / SECOND:.1f} s")

    def _tell(self) -> str:
        """Publish diagnostics; returns their message."""
        outlets, late = self._outlets, self._lateness
        words = self._doing
        if outlets.lacking:
            words += f", {len(outlets.lacking)} topics cannot be published"
        if late.late:
            words += f", {counted(late.late, 'message')} late, the worst by {late.worst / 1e6:.0f} ms"
        values: dict[str, Any] = {
            "recording": self._settings.recording,
            "read": f"{self._recording.position} of {self._recording.size}",
            "position": f"{self._position / SECOND:.3f} of {self._length / SECOND:.3f} s",
            "rate": f"{self._settings.rate:g}",
            "passes": self._passes,
            "published": outlets.published,
            "late": late.late,
            "worst lateness": f"{late.worst / 1e6:.1f} ms",
            **{f"skipped {topic}": why for topic, why in outlets.skipped.items()},
        }
        status = DiagnosticStatus(
            level=DiagnosticStatus.WARN if outlets.lacking or late.late > self._told_late else DiagnosticStatus.OK,
            name=f"{self._node.get_fully_qualified_name()}: playback",
            message=words,
            hardware_id=printable(self._recording.path.name),
            values=[KeyValue(key=printable(key), value=printable(str(value))) for key, value in values.items()],
        )
        array = DiagnosticArray(status=[status])
        array.header.stamp = self._node.get_clock().now().to_msg()
        self._diagnostics.publish(array)
        self._told_late = late.late
        return words
