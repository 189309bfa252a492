# SPDX-License-Identifier: Apache-2.0
"""Records passed from alignment to samples: messages of the reference topic, and frames with their companions."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.navigation import Position, Quaternion


@dataclass(slots=True)
class SensorMessage:
    """A message of a companion or the model that can be stored.

    Owns: made by the thread that pushes messages, which adds `mask`; `encoded` and `used` belong to the thread that
    chooses frames, which gets it only then.
    """

    topic: str
    content: Any
    stamp: int
    encoded: Future[Sequence[Any]] | None = None
    used: bool = False
    """True if a sample uses it."""
    late: bool = False
    """True if it came after a later frame was complete."""
    mask: SensorMessage | None = None
    """For a message of boxes: the mask without a header that belongs to it."""


@dataclass(slots=True)
class Frame:
    """A frame with its aligned messages; immutable once it is handed on."""

    number: int
    stamp: int
    segment: int
    companions: dict[str, tuple[int, SensorMessage]] = field(default_factory=dict)
    """Sensor -> (stamp in ns with the sensor's offset, message)."""
    own: tuple[str, SensorMessage] | None = None
    """Sensor and message of the reference, if it is not a camera."""
    position: Position | None = None
    orientation: Quaternion | None = None
    result: SensorMessage | None = None
    """Model or Detect message of this frame."""
    boxes3d: SensorMessage | None = None
    """Nearest message of boxes in space."""
    epoch: int = 0
    """Alignment epoch: a new one begins where the clock was set back."""
    since: float = field(default_factory=time.monotonic)
    """Time at which it was complete, s of time.monotonic()."""

    def left_out(self) -> Frame:
        """Return the frame without its messages, for one that is dropped as overdue."""
        return Frame(self.number, self.stamp, self.segment, since=-math.inf)

    @property
    def results(self) -> list[SensorMessage]:
        """All messages with annotations of the frame."""
        mask = self.result.mask if self.result is not None else None
        return [message for message in (self.result, mask, self.boxes3d) if message is not None]


class CameraMessage(NamedTuple):
    """A message of the reference topic, in recorded order.

    `content`: a VideoMessage, another type's message decoded, why it cannot be read, or None: left out.
    """

    number: int
    content: Any
    gap: bool = False
    """True if a message before it is missing."""
    wanted: bool = True
    """True if it lies between start and end; otherwise it is only decoded as a reference of later pictures."""

    def left_out(self) -> CameraMessage:
        """Return the message without its content, which no later picture refers to."""
        return (
            self if isinstance(self.content, MessageError) else CameraMessage(self.number, None, self.gap, self.wanted)
        )
