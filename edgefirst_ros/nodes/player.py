# SPDX-License-Identifier: Apache-2.0
"""The node `player`: publishes the messages of a recording, byte for byte, at the pace at which they were recorded."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from pydantic import AfterValidator, Field
from rclpy._rclpy_pybind11 import RCLError
from rclpy.duration import Duration
from rclpy.exceptions import NameValidationException
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.time import Time
from rosgraph_msgs.msg import Clock

from edgefirst_ros.config import SECOND, Model, nanoseconds
from edgefirst_ros.errors import RecordingError, UsageError, counted, printable
from edgefirst_ros.messages import Message
from edgefirst_ros.nodes import play as playing
from edgefirst_ros.nodes.dataset_messages import open_playable, times_of
from edgefirst_ros.nodes.parameters import check, declare, open_node, read
from edgefirst_ros.nodes.play import FAR, NAP, Lateness, RunningTime
from edgefirst_ros.nodes.service import catch_signals
from edgefirst_ros.sources.source import Channel
from edgefirst_ros.streams import TF_MESSAGE

CLOCK_PERIOD = 10_000_000
"""ns between two messages on /clock."""
REPORT_PERIOD = SECOND
LAST_WAIT = 4.0
"""s given to reliable subscribers at the end to receive missing messages; Fast DDS has a heartbeat every 3 s."""
DEPTH = 100
"""QoS depth: messages that a reliable subscriber may lag after, seconds of every topic."""
TYPE = re.compile(r"([a-z][a-z0-9_]*)/msg/([A-Z][A-Za-z0-9]*)", re.ASCII)


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
        0.0, ge=0, le=1e6, allow_inf_nan=False, description="Time at the beginning of the recording to skip, s"
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

    Raises UsageError for wrong parameters, RecordingError without messages to play.
    """
    caught: list[str] = []
    catch_signals(lambda number: caught.append(signal.Signals(number).name))
    try:
        node = open_node(arguments, partial(rclpy.create_node, "player"))
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


def play(node: Node, stopped: Callable[[], str]) -> None:
    """Play the recording in the node's parameters until it ends, or `stopped` returns the name of a signal."""
    declare(node, PlayerSettings)
    node.add_on_set_parameters_callback(lambda parameters: check(node, parameters, (PlayerSettings,), running=False))
    settings = read(node, PlayerSettings)
    if not settings.recording:
        raise UsageError("recording is not set: --ros-args -p recording:=REC.mcap")
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
        self._recording = open_playable(Path(settings.recording))
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
                timeline = RunningTime(self._first)
            self._length = timeline.advance(at)
            self._report()
            if self._stopped():
                return
        for damage in recording.damage:
            self._log.warning(printable(f"{recording.path}: damage at byte {damage.offset}: {damage.what}"))
        if timeline is None:
            raise RecordingError(f"{recording.path}: it has no message that ROS could publish")
        if timeline.steps:
            self._log.warning(
                f"the clock was set {counted(timeline.steps, 'time')} during the recording; such pauses are skipped"
            )
        if nanoseconds(self._settings.start) > self._length:
            raise UsageError(
                f"start: {self._settings.start:g} s is after the end of the recording, which lasts "
                f"{self._length / SECOND:.3f} s"
            )
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
        timeout = self._settings.wait_timeout
        found = playing.wait_for_subscribers(self._outlets.subscribed, wanted, timeout, self._stopped, self._report)
        if found < wanted and not self._stopped():
            self._log.warning(f"{found} of {wanted} topics have a subscriber; playing all the same")

    # ---- messages ------------------------------------------------------------------------
    def play(self) -> None:
        """Publish the messages, repeatedly with `loop`."""
        began = time.monotonic()
        self._doing = "playing"
        while not self._stopped():
            before = self._outlets.published
            self._play_once()
            if self._outlets.published == before and not self._stopped():
                raise RecordingError(f"{self._recording.path}: the chosen part has no message")
            self._passes += 1
            if not self._settings.loop:
                break
        took = time.monotonic() - began
        self._doing = f"stopped by {self._stopped()}" if self._stopped() else "played to the end"
        self._log.info(
            f"{self._doing}: {counted(self._outlets.published, 'message')} of "
            f"{counted(len(self._outlets.names), 'topic')} in {took:.1f} s; "
            f"{self._lateness.describe()}"
        )
        self._tell()
        until = time.monotonic() + LAST_WAIT
        while not self._stopped() and time.monotonic() < until and not self._outlets.fetched(NAP):
            pass

    def _play_once(self) -> None:
        begin = nanoseconds(self._settings.start)
        playing.play(
            self._recording.iter_messages(self._outlets.recorded),
            self._outlets.publish,
            rate=self._settings.rate,
            stopped=self._stopped,
            lateness=self._lateness,
            first=self._first,
            begin=begin,
            end=None if self._settings.duration is None else begin + nanoseconds(self._settings.duration),
            meanwhile=self._meanwhile,
        )

    def _meanwhile(self, at: int, elapsed: int) -> int:
        """Publish diagnostics and /clock where due; return when the next message on /clock is due."""
        self._position = elapsed
        self._report()
        if self._clock is None:
            return FAR
        now = time.monotonic_ns()
        if now >= self._next_clock:
            self._next_clock = now + CLOCK_PERIOD
            self._clock.publish(Clock(clock=Time(nanoseconds=max(0, at)).to_msg()))
        return self._next_clock

    # ---- diagnostics -----------------------------------------------------------------------
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


class Outlets:
    """The publishers, by topic and type of the recording."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._publishers: dict[tuple[str, str], Publisher] = {}
        self.skipped: dict[str, str] = {}
        """Topics of the recording that were requested and are not published -> why."""
        self.lacking: set[str] = set()
        """Topics of `skipped` that could be published if their packages were installed."""
        self.renamed: dict[str, str] = {}
        """Topics of the recording -> their names in ROS, where these differ."""
        self.published = 0

    @property
    def recorded(self) -> frozenset[str]:
        """Topics that are published, by their names in the recording."""
        return frozenset(topic for topic, _ in self._publishers)

    @property
    def names(self) -> frozenset[str]:
        """Topics that are published, by their names in ROS."""
        return frozenset(publisher.topic_name for publisher in self._publishers.values())

    def subscribed(self) -> frozenset[str]:
        """Return the `names` that have a subscriber."""
        return frozenset(p.topic_name for p in self._publishers.values() if p.get_subscription_count())

    def open(self, channels: Iterable[Channel], asked: Sequence[str], *, own_clock: bool) -> None:
        """Create publishers for the topics `asked` for (default: all), and log which cannot be published.

        Raises UsageError for an unknown topic, RecordingError without one that can be published.
        """
        channels = list(channels)
        for name in asked:
            if not any(_meant(name, channel.topic) for channel in channels):
                known = ", ".join(sorted({channel.topic for channel in channels}))
                raise UsageError(f"topics: {name!r} is not in the recording; it has {known}")
        counts: dict[str, int] = {}
        for channel in channels:
            if not asked or any(_meant(name, channel.topic) for name in asked):
                why = self._open(channel, own_clock=own_clock)
                if why:
                    counts[channel.topic] = counts.get(channel.topic, 0) + channel.seen
                    self.skipped[channel.topic] = f"{counted(counts[channel.topic], 'message')}: {why}"
        if not self._publishers:
            raise RecordingError(
                "no message can be published; " + "; ".join(f"{t}: {w}" for t, w in self.skipped.items())
            )

    def _open(self, channel: Channel, *, own_clock: bool) -> str:
        """Create a publisher; returns why it cannot be created, or an empty text."""
        if not channel.readable:
            return f"its encoding is {channel.encoding or 'unknown'}, not cdr"
        name = ros_name(channel.topic)
        if own_clock and name == "clock":
            return "the player's own /clock takes its place"
        key = channel.topic, channel.schema
        if key in self._publishers:
            return ""
        try:
            kind = message_type(channel.schema)
            publisher = self._node.create_publisher(kind, name, profile(channel.schema))
        except (LookupError, NameValidationException, RCLError, ImportError, AttributeError) as error:
            self.lacking.add(channel.topic)
            return str(error.args[0] if isinstance(error, LookupError) else error).partition("\n")[0]
        self._publishers[key] = publisher
        if publisher.topic_name != f"/{channel.topic.removeprefix('/')}":
            self.renamed[channel.topic] = publisher.topic_name
        return ""

    def publish(self, message: Message) -> None:
        """Publish the CDR bytes of a message unchanged."""
        publisher = self._publishers.get((message.topic, message.schema))
        if publisher is None:  # another channel of that topic
            return
        publisher.publish(message.data)
        self.published += 1

    def fetched(self, wait: float) -> bool:
        """True if reliable subscribers acknowledged everything; waits for the first that has not, at most `wait` s."""
        return all(p.wait_for_all_acked(Duration(seconds=wait)) for p in self._publishers.values())


def profile(schema: str) -> QoSProfile:
    """Return the QoS of a topic: reliable and volatile as on the device, which also matches best-effort subscribers.

    Transforms of tf2 stay for those who come late, because its listeners take no others.
    """
    durability = DurabilityPolicy.TRANSIENT_LOCAL if schema == TF_MESSAGE else DurabilityPolicy.VOLATILE
    return QoSProfile(depth=DEPTH, durability=durability)


def ros_name(topic: str) -> str:
    """Return the ROS name of a topic, relative, so that the node's namespace applies.

    A leading `rt/` is removed; characters that ROS does not allow, as in host names, become `_`.
    """
    name = topic.removeprefix("/").removeprefix("rt/")
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in name.split("/") if part]
    return "/".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "_"


def message_type(schema: str) -> Any:
    """Return the ROS class of a type such as `sensor_msgs/msg/Imu`; raises LookupError that says what to install."""
    match = TYPE.fullmatch(schema)
    if match is None:
        raise LookupError(f"{schema!r} is not a ROS message type")
    package, name = match.groups()
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    if not any((Path(place) / "msg" / "__init__.py").is_file() for place in places or ()):
        distro = os.environ.get("ROS_DISTRO") or "DISTRO"
        raise LookupError(
            f"no package {package} here for the type {schema}: install ros-{distro}-{package.replace('_', '-')}, "
            f"or build {package} in a workspace and source it"
        )
    found = getattr(importlib.import_module(f"{package}.msg"), name, None)
    if found is None:
        raise LookupError(f"the package {package} here has no type {name}: install another version of {package}")
    return found


def _meant(name: str, topic: str) -> bool:
    """True if a name given by the user means a topic of the recording."""
    wanted = name.strip("/")
    return bool(wanted) and any(n == wanted or n.endswith(f"/{wanted}") for n in (topic.strip("/"), ros_name(topic)))
