# SPDX-License-Identifier: Apache-2.0
"""Cameras: the order of their messages, and further cameras of a rig, whose nearest clean pictures join the samples.

A message of a further camera is judged by its headers before frames are aligned, and waits as it was sent. Its
picture is made once a sample needs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import median_low
from typing import Any, NamedTuple

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import NOT_NEAREST
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import SensorMessage
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.picture_hook import load_hook
from edgefirst_ros.sensors.pictures import Parsed, PictureOptions, PictureSource, open_parser
from edgefirst_ros.sensors.video.bitstream import AccessUnit

USUAL = 31
"""Latest steps of a topic's stamps whose median is its usual interval."""
REORDERED = 5 * SECOND
"""ns of stamps within which pictures may be shown in another order than they are sent."""


class MessageOrder:
    """Numbers the messages of a topic, and finds where one is missing.

    `numbered`: a step other than 1 in the topic's sequence numbers means a loss.
    """

    def __init__(self, *, numbered: bool) -> None:
        self._numbered = numbered
        self.messages = 0
        """Messages so far."""
        self._last: tuple[int, int, int] | None = None  # file, sequence number and stamp of the last one
        self._steps: deque[int] = deque(maxlen=USUAL)  # latest steps of the stamps, ns

    def add(self, message: Message, stamp: int) -> tuple[int, bool]:
        """Return the number of the next message, and whether a message before it is missing.

        Its `stamp` in ns shows so where its publisher was started again; numbers of different files are not compared.
        """
        number, last = self.messages, self._last
        self.messages, self._last = number + 1, (message.file, message.sequence, stamp)
        if last is None:
            return number, False
        step, pause = message.sequence - last[1], stamp - last[2]
        lost = self._numbered and message.file == last[0] and step != 1
        if lost and step < 1:
            lost = bool(self._steps) and 2 * pause > 3 * median_low(self._steps)
        self._steps.append(pause)
        return number, lost


Candidate = tuple[int, SensorMessage]
"""Stamp with the camera's offset, ns, and message."""


class CameraMessage(NamedTuple):
    """A judged message of a further camera, on its way to the decoder."""

    camera: str
    message: SensorMessage


class Passed(NamedTuple):
    """No frame to come can need the messages of a camera up to a number."""

    camera: str
    number: int


def make_picture_options(settings: Settings) -> PictureOptions:
    """Return how the pictures of a camera are made: any of them, by one thread."""
    hook = load_hook(settings.picture_hook) if settings.picture_hook is not None else None
    encoder = PictureEncoder(settings.camera_format, settings.jpeg_quality, settings.max_width, hook)
    return PictureOptions(encoder, decoder=settings.decoder, limits=settings.limits)


class OtherCamera:
    """A further camera of a rig.

    Owns: `judge` belongs to the thread that pushes messages. The thread that chooses frames calls everything else, or
    has one other thread call it; they change `_waiting` and `_newest`.
    """

    def __init__(self, key: str, settings: Settings, facts: SequenceFacts, *, numbered: bool) -> None:
        """`key`: `camera.left`; `numbered`: as for `MessageOrder`."""
        self.key = key
        self._facts = facts
        self._order = MessageOrder(numbered=numbered)
        self._parse: Callable[[Message], Any] | None = None
        self._source = PictureSource(make_picture_options(settings))
        self._waiting: dict[int, SensorMessage] = {}
        """Clean messages whose pictures were neither taken nor skipped, by number."""
        self._newest: SensorMessage | None = None  # the last message whose picture was returned

    # ---- in the thread that pushes -------------------------------------------------------
    def judge(
        self, message: Message, stamp: int, parsed: Parsed | MessageError | None = None
    ) -> tuple[AccessUnit, MessageError | None]:
        """Return the unit of the next message, and why it has no picture, as far as headers show.

        `parsed`: as for `FrameBuilder.push`.
        """
        number, gap = self._order.add(message, stamp)
        self._parse = self._parse or open_parser(message.schema)
        try:
            content = parsed or self._parse(message)
        except MessageError as error:
            content = error
        if gap or isinstance(content, MessageError):
            self._source.mark_gap()
        elif content.depends:
            self._facts.video.add(content.form)
        unit = AccessUnit(number, content, gap)
        return unit, self._source.judge(unit)

    # ---- in the thread that chooses ------------------------------------------------------
    @property
    def note(self) -> str:
        return self._source.note

    @property
    def decodes(self) -> bool:
        """True if its pictures are decoded from video."""
        return self._source.is_video

    def add(self, message: SensorMessage) -> None:
        """Add the next judged message."""
        unit = message.content
        self._source.add(unit)
        if unit.fault is None and not isinstance(unit.content, MessageError):
            self._waiting[unit.number] = message

    def first_clean(self, near: Sequence[Candidate], *, last: bool) -> list[Candidate] | None:
        """Return the first of the messages near a frame that proves to have a picture, and make that.

        Empty if they have no picture; None if that needs further messages. Earlier groups of pictures stay undecoded.
        `last`: no more messages come, or they are not waited for.
        """
        for candidate in near:
            picture = self._picture(candidate[1], near, last=last)
            if picture is None:
                return None
            if isinstance(picture, Picture):
                return [candidate]
        return []

    def _picture(self, message: SensorMessage, near: Sequence[Candidate], *, last: bool) -> Any:
        """Return the picture of a message, or why it is missing; None if that needs further messages."""
        if message.picture is not None:
            return message.picture
        number = message.content.number
        if number not in self._waiting:
            return MessageError(NOT_NEAREST)
        cheap = {m.content.number for _, m in near if _find_entry(m) == _find_entry(message)}
        self._skip([n for n, other in self._waiting.items() if n not in cheap and _is_shown_before(other, message)])
        found = self._source.pop(message.content, last=last)
        if found is None:
            return None
        del self._waiting[number]
        message.picture = found
        if isinstance(found, MessageError):
            self._facts.counts.drop(message.topic, found.reason, why=found)
            return found
        self._skip([n for n, other in self._waiting.items() if _is_shown_before(other, message)])
        if self._newest is not None:
            self._newest.drop_pixels()
        self._newest = message
        return found

    def forget(self, number: int, needed: Collection[int]) -> None:
        """Skip the messages up to a number whose pictures no sample needs; `needed`: numbers that one may."""
        self._skip([n for n in self._waiting if n <= number and n not in needed])

    def _skip(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._source.skip(self._waiting.pop(number).content)

    def close(self) -> None:  # any thread may call it
        self._source.close()


def _find_entry(message: SensorMessage) -> int:
    """Return the number of the entry that its picture is decoded from; of still pictures all are equal."""
    return int((message.content.tiles or (message.content,))[0].last_entry)


def _is_shown_before(one: SensorMessage, other: SensorMessage) -> bool:
    """True if a picture is shown before another one: by stamps, and where the clock was set by the order sent."""
    if one.epoch == other.epoch and abs(one.stamp - other.stamp) <= REORDERED:
        return one.stamp < other.stamp
    return bool(one.content.number < other.content.number)
