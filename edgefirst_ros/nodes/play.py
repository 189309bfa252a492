# SPDX-License-Identifier: Apache-2.0
"""Plays a recording at its own pace on any bus: its time, when a message is due, reading ahead, subscribers."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import AfterValidator, Field

from edgefirst_ros.config import SECOND, Model, nanoseconds
from edgefirst_ros.errors import RecordingError, UsageError, counted, printable
from edgefirst_ros.messages import Message
from edgefirst_ros.nodes.dataset_messages import open_playable, times_of
from edgefirst_ros.sources.live import Log
from edgefirst_ros.sources.source import Channel
from edgefirst_ros.streams import CUBES
from edgefirst_ros.sync.clock import JUMP_BACK

LONGEST_PAUSE = 60_000_000_000
"""Longest pause between two messages, ns; a longer one is a clock set forward, and is skipped."""
AHEAD = 32 << 20
"""Bytes read ahead: one second of all topics of the device."""
LATE = 20_000_000
"""ns after its due time at which a message counts as late."""
NAP = 0.1
"""Longest sleep in s between two checks whether to stop."""
FAR = 1 << 62
"""ns, later than any time."""
SETTLED = SECOND // 2
"""ns without a new subscription after which discovery counts as finished."""
LOOK_EVERY = 0.02
"""s between two checks for subscribers."""


class RunningTime:
    """Running time of a recording, from the order and `log_time` of its messages, without steps of its clock."""

    def __init__(self, first: int) -> None:
        self.newest = first
        """Newest `log_time`, ns."""
        self.elapsed = 0
        """ns since the begin of the recording."""
        self.steps = 0
        """Number of times the clock was set."""

    def advance(self, log_time: int) -> int:
        """Return the running time of the next message, ns since the beginning; it never decreases."""
        step = log_time - self.newest
        if step > LONGEST_PAUSE or step < -JUMP_BACK:
            self.steps += 1
            self.newest = log_time
        elif step > 0:
            self.elapsed += step
            self.newest = log_time
        return self.elapsed


@dataclass(slots=True)
class Lateness:
    """Statistics of how late messages were published, ns."""

    late: int = 0
    worst: int = 0

    def note(self, behind: int) -> None:
        self.late += behind > LATE
        self.worst = max(self.worst, behind)

    def describe(self) -> str:
        """Return in words how many messages were late, and by how much."""
        return f"{self.late} were late by over {LATE // 1_000_000} ms, the worst by {self.worst / 1e6:.1f} ms"


class Pace:
    """Computes when messages are due by the monotonic clock; the delay of one message is not added to the next.

    `begin` is the time of the recording that is due now, ns; `rate` is its seconds in a second.
    """

    def __init__(self, rate: float, begin: int) -> None:
        self._rate = rate
        self._begin = begin
        self._started = time.monotonic_ns()

    def due(self, elapsed: int) -> int:
        """Return when a running time of the recording is due, ns of time.monotonic_ns()."""
        return self._started + round((elapsed - self._begin) / self._rate)

    def elapsed(self, now: int) -> int:
        """Return the running time of the recording at `now`, ns."""
        return self._begin + round((now - self._started) * self._rate)


def ahead(messages: Iterator[Message], stopped: Callable[[], object]) -> Iterator[Message]:
    """Yield messages that a thread reads ahead, at most `AHEAD` bytes and one message.

    Ends early when `stopped` returns True. Raises what reading raised.
    """
    held, changed = deque[Message](), threading.Condition()
    size, ended, errors = 0, False, list[BaseException]()

    def read() -> None:
        nonlocal size, ended
        try:
            for message in messages:
                with changed:
                    changed.wait_for(lambda: size < AHEAD or ended)  # noqa: B023  not a variable of the loop
                    if ended:
                        return
                    held.append(message)
                    size += len(message.data)
                    changed.notify_all()
        except BaseException as error:  # noqa: BLE001  raised again for the reader of the messages
            errors.append(error)
        finally:
            with changed:
                ended = True
                changed.notify_all()

    threading.Thread(target=read, name="read ahead", daemon=True).start()
    try:
        while not stopped():
            with changed:
                changed.wait_for(lambda: held or ended, NAP)
                message = held.popleft() if held else None
                if message is None and ended:
                    break
                if message is not None:
                    size -= len(message.data)
                    changed.notify_all()
            if message is not None:
                yield message
        if errors:
            raise errors[0]
    finally:
        with changed:
            ended = True
            changed.notify_all()


class PlayerSettings(Model):
    """Parameters of a player."""

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


class PlayBus(Protocol):
    """Bus on which a player publishes."""

    @property
    def output(self) -> Log:
        """Where lines about the playing are written."""

    def open(self, channel: Channel) -> str:
        """Create a publisher for a channel; return why it cannot be created, or an empty text."""

    def subscribed(self) -> Collection[str]:
        """Return the topics that have a subscriber."""

    def publish(self, message: Message) -> bool:
        """Publish the CDR bytes of a message unchanged; False if its type has no publisher."""

    def report(self, player: Player) -> None:
        """Show how far a player is; called once a second."""

    def show_time(self, at: int) -> int:
        """Publish the time of the recording, ns, where due; return when it is due again, ns of time.monotonic_ns()."""


class Player:
    """Plays a recording or a dataset on a bus. Owned by the thread that plays.

    Raises UsageError for wrong settings, RecordingError without messages to play.
    """

    def __init__(self, settings: PlayerSettings, stopped: Callable[[], str]) -> None:
        """`stopped`: returns the name of the signal that came, else an empty text."""
        self.settings, self._stopped = settings, stopped
        self.recording = open_playable(Path(settings.recording))
        self.doing = "reading the recording"
        self.position = 0
        """Time of the recording, ns since its begin."""
        self.length = 0
        self.passes = 0
        self.lateness = Lateness()
        self.published = 0
        self.topics: frozenset[str] = frozenset()
        """Topics that are published, by their names in the recording."""
        self.skipped: dict[str, str] = {}
        """Topics of the recording that were requested and are not published -> why."""
        self._first = 0
        self._next_report = 0

    def play(self, bus: PlayBus) -> None:
        """Play until the recording ends, or a signal came; with `loop` again and again."""
        self._bus = bus
        self._read_through()
        self._wait_for_subscribers()
        began = time.monotonic()
        self.doing = "playing"
        while not self._stopped():
            before = self.published
            self._play_once()
            if self.published == before and not self._stopped():
                raise RecordingError(f"{self.recording.path}: the chosen part has no message")
            self.passes += 1
            if not self.settings.loop:
                break
        self.doing = f"stopped by {self._stopped()}" if self._stopped() else "played to the end"
        number = f"{counted(self.published, 'message')} of {counted(len(self.topics), 'topic')}"
        took = f"{time.monotonic() - began:.1f} s"
        self._bus.output.info(f"{self.doing}: {number} in {took}; {self.lateness.describe()}")

    def _read_through(self) -> None:
        """Read through the recording, and create publishers for its topics."""
        recording, timeline, output = self.recording, None, self._bus.output
        for at in times_of(recording):
            if timeline is None:
                self._first = at
                timeline = RunningTime(self._first)
            self.length = timeline.advance(at)
            self._report()
            if self._stopped():
                return
        for damage in recording.damage:
            output.warning(printable(f"{recording.path}: damage at byte {damage.offset}: {damage.what}"))
        if timeline is None:
            raise RecordingError(f"{recording.path}: it has no message that could be published")
        if timeline.steps:
            output.warning(
                f"the clock was set {counted(timeline.steps, 'time')} during the recording; such pauses are skipped"
            )
        if nanoseconds(self.settings.start) > self.length:
            raise UsageError(
                f"start: {self.settings.start:g} s is after the end of the recording, which lasts "
                f"{self.length / SECOND:.3f} s"
            )
        opened = open_channels(self._bus, list(recording.channels.values()), self.settings.topics)
        self.topics, self.skipped = opened
        for topic, why in self.skipped.items():
            output.warning(printable(f"{topic} is not published, {why}"))

    def _wait_for_subscribers(self) -> None:
        """Wait until enough topics have subscribers and no more appear, or until the timeout."""
        wanted = min(self.settings.wait_for_subscribers, len(self.topics))
        if not wanted or self._stopped():
            return
        self.doing = "waiting for subscribers"
        until, since = time.monotonic_ns() + self.settings.wait_timeout * SECOND, time.monotonic_ns()
        found = self._bus.subscribed()
        while (now := time.monotonic_ns()) < until and not self._stopped():
            before, found = found, self._bus.subscribed()
            if found != before:
                since = now
            if len(found) >= wanted and now - since >= SETTLED:
                break
            self._report()
            time.sleep(LOOK_EVERY)
        if len(found) < wanted and not self._stopped():
            self._bus.output.warning(f"{len(found)} of {wanted} topics have a subscriber; playing anyway")

    def _play_once(self) -> None:
        begin, duration = nanoseconds(self.settings.start), self.settings.duration
        end = FAR if duration is None else begin + nanoseconds(duration)
        timeline, pace = RunningTime(self._first), None
        for message in ahead(self.recording.iter_messages(self.topics), self._stopped):
            elapsed = timeline.advance(message.log_time)
            if elapsed < begin:
                self._meanwhile(timeline.newest, elapsed)
                continue
            if elapsed >= end:
                return
            pace = pace or Pace(self.settings.rate, begin)
            due = pace.due(elapsed)
            while not self._stopped():
                now = time.monotonic_ns()
                shown = min(elapsed, pace.elapsed(now))
                again = self._meanwhile(timeline.newest - elapsed + shown, shown)
                if now >= due:
                    break
                time.sleep(min((min(due, again) - now) / SECOND, NAP) if again > now else 0)
            if self._stopped():
                return
            self.lateness.note(time.monotonic_ns() - due)
            self.published += self._bus.publish(message)

    def _meanwhile(self, at: int, elapsed: int) -> int:
        """Show the `log_time` and the running time of now, ns, where due; return when the former is due again."""
        self.position = elapsed
        self._report()
        return self._bus.show_time(at)

    def _report(self) -> None:
        now = time.monotonic_ns()
        if now >= self._next_report:
            self._next_report = now + SECOND
            self._bus.report(self)

    def describe(self) -> str:
        """Return the step, and the time of the recording, in words."""
        return f"{self.doing}: {self.position / SECOND:.1f} of {self.length / SECOND:.1f} s"


def open_channels(
    bus: PlayBus, channels: Sequence[Channel], asked: Sequence[str]
) -> tuple[frozenset[str], dict[str, str]]:
    """Create publishers for the requested topics, by default all.

    Returns the topics that are published, and why others are not. Raises UsageError for an unknown topic,
    RecordingError without one that can be published.
    """
    for name in asked:
        if not any(_is_meant(name, channel.topic) for channel in channels):
            known = ", ".join(sorted({channel.topic for channel in channels}))
            raise UsageError(f"topics: {name!r} is not in the recording; it has {known}")
    opened, skipped, counts = set[str](), dict[str, str](), Counter[str]()
    for channel in channels:
        topic, readable = channel.topic, channel.readable and channel.schema != CUBES
        if not asked or any(_is_meant(name, topic) for name in asked):
            why = bus.open(channel) if readable else f"its encoding is {channel.encoding or 'unknown'}, not cdr"
            if why:
                counts[topic] += channel.seen
                skipped[topic] = f"{counted(counts[topic], 'message')}: {why}"
            else:
                opened.add(topic)
    if not opened:
        raise RecordingError("no message can be published; " + "; ".join(f"{t}: {why}" for t, why in skipped.items()))
    return frozenset(opened), skipped


def _is_meant(name: str, topic: str) -> bool:
    """True if a name given by the user means a topic of the recording, by its own name or that in ROS."""
    wanted = name.strip("/")
    return bool(wanted) and any(n == wanted or n.endswith(f"/{wanted}") for n in (topic.strip("/"), ros_name(topic)))


def ros_name(topic: str) -> str:
    """Return the ROS name of a topic, relative, so that the node's namespace applies.

    A leading `rt/` is removed; characters that ROS does not allow, as in host names, become `_`.
    """
    name = topic.removeprefix("/").removeprefix("rt/")
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in name.split("/") if part]
    return "/".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "_"
