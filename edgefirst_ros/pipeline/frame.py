# SPDX-License-Identifier: Apache-2.0
"""What goes from alignment to samples: messages of the reference topic, and frames with all that belongs to them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

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
    """Whether a sample has it."""
    late: bool = False
    """Whether a frame after it had been complete when it came."""
    mask: SensorMessage | None = None
    """Of boxes: the mask without a header that belongs to them."""


@dataclass(slots=True)
class Frame:
    """A frame with everything that belongs to it; nobody changes it once it is handed on."""

    number: int
    stamp: int
    segment: int
    companions: dict[str, tuple[int, SensorMessage]] = field(default_factory=dict)
    """Sensor -> (its stamp in ns, offset included; message)."""
    own: tuple[str, SensorMessage] | None = None
    """Sensor and message of a reference that is no camera."""
    position: Position | None = None
    orientation: Quaternion | None = None
    result: SensorMessage | None = None
    """Model or Detect message of this frame."""
    boxes3d: SensorMessage | None = None
    """Nearest message of boxes in space."""
    epoch: int = 0
    """Of the alignment: another one behind a clock set back."""
    since: float = field(default_factory=time.monotonic)
    """When it was complete, s of time.monotonic()."""

    def left_out(self) -> Frame:
        """The frame without what belongs to it, whose time is over."""
        return Frame(self.number, self.stamp, self.segment, since=-math.inf)

    @property
    def results(self) -> list[SensorMessage]:
        """All messages that annotate it."""
        mask = self.result.mask if self.result is not None else None
        return [message for message in (self.result, mask, self.boxes3d) if message is not None]


@dataclass(frozen=True, slots=True)
class CameraMessage:
    """A message of the reference topic, in recorded order.

    `content`: a VideoMessage, another type's message decoded, why it cannot be read, or None: left out.
    """

    number: int
    content: Any
    gap: bool = False
    """A message before it is missing."""
    wanted: bool = True
    """Whether it lies between start and end; if not, it is there for what later pictures refer to alone."""

    def left_out(self) -> CameraMessage:
        """The message without its content, which no other needs."""
        return (
            self if isinstance(self.content, MessageError) else CameraMessage(self.number, None, self.gap, self.wanted)
        )
