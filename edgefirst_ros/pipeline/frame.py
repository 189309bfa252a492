# SPDX-License-Identifier: Apache-2.0
"""Frames with their companions, as the alignment returns them, and the outcome of every message."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgefirst_ros.counts import DISK, LATE, NO_SAMPLE, NOT_NEAREST, OUTSIDE, PART_REASONS, Counts
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.navigation import EgoPose, GeoPosition, Quaternion
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.transforms import Floats, World
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sources.topics import Roles


@dataclass(slots=True)
class SensorMessage:
    """A message of a companion or the model that can be stored.

    Owns: made by the thread that pushes messages, which adds `mask` and `place`; the thread that chooses frames, which
    gets it only then, changes `picture` and `encoded`, and the one that writes `used` and `outside`.
    """

    topic: str
    content: Any
    """The decoded message, of a camera its `AccessUnit`."""
    stamp: int
    encoded: Future[Sequence[Any]] | None = None
    used: bool = False
    outside: bool = False
    """True if it is nearest to a sample, and too far from it."""
    late: bool = False
    """True if it came after a later frame was complete."""
    mask: SensorMessage | None = None
    """For a message of boxes: the mask without a header that belongs to it."""
    place: tuple[GeoPosition | None, Quaternion | None] | None = None
    """For a message of a camera: where the vehicle was at its stamp."""
    picture: Picture | MessageError | None = None
    """For a message of a camera: its picture, or why it is missing, once a sample needed it."""
    epoch: int = 0
    """For a message of a camera: its alignment epoch, see `Frame`."""

    def drop_pixels(self) -> None:
        """Free the pixels of its picture, once it is being encoded or no further sample can need it."""
        if isinstance(self.picture, Picture):
            self.picture = self.picture._replace(frame=None, encoder=None, data=None)


@dataclass(slots=True)
class Frame:
    """A frame with its aligned messages.

    Once it is handed on, only companions whose picture proves damaged are replaced, by the thread that chooses frames.
    """

    unit: AccessUnit
    """Message of the reference topic."""
    stamp: int
    segment: int
    companions: dict[str, tuple[int, SensorMessage]] = field(default_factory=dict)
    """Sensor -> (stamp in ns with the sensor's offset, message)."""
    others: dict[str, list[tuple[int, SensorMessage]]] = field(default_factory=dict)
    """Camera -> the same of the messages to be used if the nearest one proves damaged, the nearest first."""
    outside: list[SensorMessage] = field(default_factory=list)
    """Messages of companions that it does not have: the nearest one, if that is further than the tolerance."""
    own: tuple[str, SensorMessage] | None = None
    """Sensor and message of the reference, if it is not a camera."""
    position: GeoPosition | None = None
    orientation: Quaternion | None = None
    pose: EgoPose | None = None
    result: SensorMessage | None = None
    """Model or Detect message of this frame."""
    boxes3d: SensorMessage | None = None
    """Nearest message of boxes in space."""
    motion: Floats | None = None
    """(4, 4) from the vehicle's axes at its stamp to those at the frame's; None where a pose is unknown."""
    world: World | None = None
    epoch: int = 0
    """Alignment epoch: a new one begins where the clock was set back."""
    since: float = field(default_factory=time.monotonic)
    """Time at which it was complete, s of time.monotonic()."""

    @property
    def number(self) -> int:
        return self.unit.number

    def candidates(self, camera: str) -> list[tuple[int, SensorMessage]]:
        """Return the messages of a camera near the frame, the nearest first."""
        near = self.companions.get(camera)
        return [] if near is None else [near, *self.others.get(camera, ())]

    @property
    def results(self) -> list[SensorMessage]:
        """All messages with annotations of the frame."""
        mask = self.result.mask if self.result is not None else None
        return [message for message in (self.result, mask, self.boxes3d) if message is not None]


class Part(NamedTuple):
    """Parts of a frame that are needed in addition to its rows in the tables."""

    picture: bool = True
    sensors: Collection[str] | None = None
    """Sensors whose members are made, with the reference if it is not a camera; None: all."""
    masks: bool = True
    """True if its annotations have masks and outlines."""

    def has(self, sensor: str) -> bool:
        """True if the member of a sensor is made."""
        return self.sensors is None or sensor in self.sensors


WHOLE = Part()
ROWS = Part(picture=False, sensors=(), masks=False)

Chosen = Callable[[Frame, bool], Part]
"""Returns how much of a frame is needed; it may be called more than once for a frame."""


Moment = tuple[int, int]
"""Segment and stamp in ns: after a clock set back the same stamps come again."""
MOST_AHEAD = 10_000
"""Messages of a topic after the last sample that are remembered."""


class Usage:
    """Follows the messages of companions and of the model until their outcome is known.

    Owns: `add` belongs to the thread that pushes messages, `observe` to the one that writes; each attribute is
    changed by one of them. `settle` and `count_unused` come once both are through.
    """

    def __init__(self, counts: Counts, roles: Roles) -> None:
        self._counts = counts
        self._roles = roles
        self._outside: Counter[str] = Counter()
        self._late: Counter[str] = Counter()
        self._late_used: Counter[str] = Counter()
        self._last: dict[str, Moment] = {}
        """By topic, that of the message in the last sample; of the reference, that of the sample."""
        self._ahead: defaultdict[str, list[Moment]] = defaultdict(list)
        """By topic, a heap of the messages that samples to come may use."""
        self._passed: Counter[str] = Counter()
        """By topic, the messages that only samples that are written could use."""

    def add(self, message: SensorMessage, segment: int = 0) -> None:
        """Count a message that came during a segment, also one that is late."""
        self._late[message.topic] += message.late
        heapq.heappush(self._ahead[message.topic], (segment, message.stamp))
        self._pass_by(message.topic)

    def _pass_by(self, topic: str) -> None:
        ahead, last = self._ahead[topic], self._last
        reached = max((last[one] for one in (topic, self._roles.reference) if one in last), default=(0, 0))
        while ahead and (ahead[0] <= reached or len(ahead) > MOST_AHEAD):
            heapq.heappop(ahead)
            self._passed[topic] += 1

    def observe(self, frame: Frame) -> None:
        """Count a sample that is written, its companions, and those that it does not have."""
        self._counts.write(self._roles.reference)
        for message in frame.outside:
            self._outside[message.topic] += not (message.outside or message.used)
            message.outside = True
        used = [*(message for _, message in frame.companions.values()), *frame.results]
        for message in used:
            self.use(message)
        last = {message.topic: (frame.segment, message.stamp) for message in used}
        self._last = last | {self._roles.reference: (frame.segment, frame.stamp)}

    def use(self, message: SensorMessage) -> None:
        """Count a message that a sample uses, once; those of the reference are counted as samples."""
        if not message.used and message.topic != self._roles.reference:
            self._counts.write(message.topic)
            self._late_used[message.topic] += message.late
            self._outside[message.topic] -= message.outside
        message.used = True

    def settle(self) -> None:
        """Count late messages that no sample uses, and those of companions outside the tolerance."""
        self._late.subtract(self._late_used)
        for topic, number in self._late.items():
            self._counts.drop(topic, LATE, number)
        for topic, number in self._outside.items():
            self._counts.drop(topic, OUTSIDE, number)

    def count_unused(self, *, refused: bool = False) -> None:
        """Count the other messages of companions and of the model, which no sample has; called once all are seen.

        `refused`: the disk took no more: all messages after the last sample are lost, frames too.
        """
        roles = self._roles
        reasons = dict.fromkeys(filter(None, (roles.model, roles.masks, roles.boxes3d)), NO_SAMPLE)
        reasons |= dict.fromkeys(self._counts.topics.keys() & set(roles.companions.values()), NOT_NEAREST)
        reasons.pop(roles.reference, None)
        if refused:
            reasons[roles.reference] = DISK
        for topic, reason in reasons.items():
            count = self._counts[topic]
            known = count.written + sum(number for other, number in count.dropped.items() if other not in PART_REASONS)
            unused = max(0, count.seen - known)
            if refused and reason != DISK:
                self._pass_by(topic)
                lost = unused - max(0, min(unused, self._passed[topic] - known))
                self._counts.drop(topic, DISK, lost)
                unused -= lost
            self._counts.drop(topic, reason, unused)
