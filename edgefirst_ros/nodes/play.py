# SPDX-License-Identifier: Apache-2.0
"""Plays a recording at its own pace on any bus: its time, when a message is due, reading ahead, subscribers."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from edgefirst_ros.config import SECOND, PlayerSettings, to_ns
from edgefirst_ros.errors import RecordingError, UsageError, escape_text, pluralize
from edgefirst_ros.messages import Message
from edgefirst_ros.nodes.dataset_messages import open_playable
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

    def add(self, behind: int) -> None:
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

    def get_elapsed(self, now: int) -> int:
        """Return the running time of the recording at `now`, ns."""
        return self._begin + round((now - self._started) * self._rate)


def read_ahead(messages: Iterator[Message], stopped: Callable[[], object]) -> Iterator[Message]:
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


class Outlet(NamedTuple):
    """A topic of a recording on a bus."""

    publish: Callable[[bytes], object]
    """Publishes the CDR bytes of a message unchanged."""
    is_heard: Callable[[], object]
    """Returns whether the topic has a subscriber."""


class PlayBus(Protocol):
    """Bus on which a player publishes."""

    @property
    def output(self) -> Log:
        """Where lines about the playing are written."""

    def open(self, topic: str, schema: str) -> Outlet:
        """Return an outlet for a topic and type of a recording; raises LookupError with the reason where it cannot."""

    def report(self, player: Player) -> None:
        """Show how far a player is; called once a second."""

    def show_time(self, at: int) -> int:
        """Publish the time of the recording, ns, where due; return when it is due again, ns of time.monotonic_ns()."""


class Player:
    """Plays a recording or a dataset on a bus. Owned by the thread that plays.

    Raises UsageError for wrong settings, RecordingError without messages to play.
    """

    def __init__(self, settings: PlayerSettings) -> None:
        if settings.recording is None:
            raise UsageError("recording is not set: edgefirst-ros play REC.mcap, or -p recording:=REC.mcap")
        self.settings = settings
        self.recording = open_playable(Path(settings.recording))
        self.doing = "reading the recording"
        self.position = 0
        """Time of the recording, ns since its begin."""
        self.length = 0
        self.passes = 0
        self.lateness = Lateness()
        self.published = 0
        self._outlets: Mapping[tuple[str, str], Outlet] = {}
        """By topic, as the recording names it, and type."""
        self.skipped: dict[str, str] = {}
        """Topics of the recording that were requested and are not published -> why."""
        self._first = 0
        self._next_report = 0

    def play(self, bus: PlayBus, signals: Sequence[str]) -> None:
        """Play until the recording ends, or one of `signals` came; with `loop` again and again."""
        self._bus, self._signals = bus, signals
        self._read_through()
        self._wait_for_subscribers()
        began = time.monotonic()
        self.doing = "playing"
        while not self._signals:
            before = self.published
            self._play_once()
            if self.published == before and not self._signals:
                raise RecordingError(f"{self.recording.path}: the chosen part has no message")
            self.passes += 1
            if not self.settings.loop:
                break
        self.doing = f"stopped by {self._signals[0]}" if self._signals else "played to the end"
        number = f"{pluralize(self.published, 'message')} of {pluralize(len(self._topics), 'topic')}"
        took = f"{time.monotonic() - began:.1f} s"
        self._bus.output.info(f"{self.doing}: {number} in {took}; {self.lateness.describe()}")

    def _read_through(self) -> None:
        """Read through the recording, and create publishers for its topics."""
        recording, timeline, output = self.recording, None, self._bus.output
        for message in recording.walk():
            at = message.log_time
            if timeline is None:
                self._first = at
                timeline = RunningTime(self._first)
            self.length = timeline.advance(at)
            self._report()
            if self._signals:
                return
        for damage in recording.damage:
            output.warning(escape_text(f"{recording.path}: damage at byte {damage.offset}: {damage.what}"))
        if timeline is None:
            raise RecordingError(f"{recording.path}: it has no message that could be published")
        if timeline.steps:
            times = pluralize(timeline.steps, "time")
            output.warning(f"the clock was set {times} during the recording; such pauses are skipped")
        if to_ns(start := self.settings.start) > self.length:
            lasts = f"{self.length / SECOND:.3f} s"
            raise UsageError(f"start: {start:g} s is after the end of the recording, which lasts {lasts}")
        channels = list(recording.channels.values())
        self._outlets, self.skipped = open_channels(self._bus, channels, self.settings.topics)
        for topic, why in self.skipped.items():
            output.warning(escape_text(f"{topic} is not published, {why}"))

    def _wait_for_subscribers(self) -> None:
        """Wait until enough topics have subscribers and no more appear, or until the timeout."""
        wanted = min(self.settings.wait_for_subscribers, len(self._topics))
        if not wanted or self._signals:
            return
        self.doing = "waiting for subscribers"
        until, since = time.monotonic_ns() + self.settings.wait_timeout * SECOND, time.monotonic_ns()
        found = self._find_subscribed()
        while (now := time.monotonic_ns()) < until and not self._signals:
            before, found = found, self._find_subscribed()
            if found != before:
                since = now
            if len(found) >= wanted and now - since >= SETTLED:
                break
            self._report()
            time.sleep(LOOK_EVERY)
        if len(found) < wanted and not self._signals:
            self._bus.output.warning(f"{len(found)} of {wanted} topics have a subscriber; playing anyway")

    @property
    def _topics(self) -> set[str]:
        return {topic for topic, _ in self._outlets}

    def _find_subscribed(self) -> set[str]:
        return {topic for (topic, _), outlet in self._outlets.items() if outlet.is_heard()}

    def _play_once(self) -> None:
        begin, duration = to_ns(self.settings.start), self.settings.duration
        end = FAR if duration is None else begin + to_ns(duration)
        timeline, pace = RunningTime(self._first), None
        for message in read_ahead(self.recording.iter_messages(self._topics), lambda: self._signals):
            elapsed = timeline.advance(message.log_time)
            if elapsed < begin:
                self._meanwhile(timeline.newest, elapsed)
                continue
            if elapsed >= end:
                return
            pace = pace or Pace(self.settings.rate, begin)
            due = pace.due(elapsed)
            while not self._signals:
                now = time.monotonic_ns()
                shown = min(elapsed, pace.get_elapsed(now))
                again = self._meanwhile(timeline.newest - elapsed + shown, shown)
                if now >= due:
                    break
                time.sleep(min((min(due, again) - now) / SECOND, NAP) if again > now else 0)
            if self._signals:
                return
            self.lateness.add(time.monotonic_ns() - due)
            outlet = self._outlets.get((message.topic, message.schema))
            if outlet is not None:  # a topic may have a second type that is not published
                outlet.publish(message.data)
                self.published += 1

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
) -> tuple[dict[tuple[str, str], Outlet], dict[str, str]]:
    """Create outlets for the requested topics, by default all.

    Returns them by topic and type, and why other topics are not published. Raises UsageError for an unknown topic,
    RecordingError without one that can be published.
    """
    for name in asked:
        if not any(_is_meant(name, channel.topic) for channel in channels):
            known = ", ".join(sorted({channel.topic for channel in channels}))
            raise UsageError(f"topics: {name!r} is not in the recording; it has {known}")
    outlets, skipped, counts = dict[tuple[str, str], Outlet](), dict[str, str](), Counter[str]()
    for channel in channels:
        topic, key = channel.topic, (channel.topic, channel.schema)
        if key in outlets or (asked and not any(_is_meant(name, topic) for name in asked)):
            continue
        try:
            if not channel.readable or channel.schema == CUBES:
                raise LookupError(f"its encoding is {channel.encoding or 'unknown'}, not cdr")
            outlets[key] = bus.open(*key)
        except LookupError as error:
            counts[topic] += channel.seen
            skipped[topic] = f"{pluralize(counts[topic], 'message')}: {error}"
    if not outlets:
        raise RecordingError("no message can be published; " + "; ".join(f"{t}: {why}" for t, why in skipped.items()))
    return outlets, skipped


def _is_meant(name: str, topic: str) -> bool:
    """True if a name given by the user means a topic of the recording, by its own name or that in ROS."""
    wanted = name.strip("/")
    return bool(wanted) and any(
        n == wanted or n.endswith(f"/{wanted}") for n in (topic.strip("/"), make_ros_name(topic))
    )


def make_ros_name(topic: str) -> str:
    """Return the ROS name of a topic, relative, so that the node's namespace applies.

    A leading `rt/` is removed; characters that ROS does not allow, as in host names, become `_`.
    """
    name = topic.removeprefix("/").removeprefix("rt/")
    parts = [re.sub(r"\W", "_", part, flags=re.ASCII) for part in name.split("/") if part]
    return "/".join(f"_{part}" if part[0].isdigit() else part for part in parts) or "_"
