# SPDX-License-Identifier: Apache-2.0
"""From aligned frames to samples: which frames, their pictures, their members encoded side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import CANNOT_BE_STORED, EMPTY, NOT_SAMPLED, OVERLOAD, lacks
from edgefirst_ros.dataset.writer import Sample
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import workers
from edgefirst_ros.pipeline.encoding import SampleEncoder, SampleParts, assemble
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import WHOLE, Chosen, Frame
from edgefirst_ros.pipeline.pace import Pace
from edgefirst_ros.pipeline.sampling import Sampling
from edgefirst_ros.pipeline.usage import Usage
from edgefirst_ros.pipeline.worker import Worker
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.picture_hook import load_hook
from edgefirst_ros.sensors.pictures import PictureOptions, PictureSource, open_pictures
from edgefirst_ros.sensors.video.bitstream import AccessUnit


class SampleBuilder:
    """Takes `AccessUnit` and `Frame` as they come, and gives samples to `sink` in the order of the frames.

    Owns: `put`, `drain`, `finish` and `abandon` belong to the thread that pushes messages. The thread "choose" decodes,
    decides about the frames that wait, and alone changes `_waiting`, `_fallback`, `_pictures` and `_sampling` until it
    has ended. The thread "write" puts encoded parts together and calls `sink`. Counts and pace say themselves who
    changes them.
    """

    def __init__(
        self,
        settings: Settings,
        facts: SequenceFacts,
        usage: Usage,
        sink: Callable[[Sample], None],
        *,
        start_lag: float | None = None,
        already_written: int = 0,
        chosen: Chosen | None = None,
    ) -> None:
        """`start_lag`: live, s since the first message came; samples are thinned where encoding cannot keep up.

        `already_written`: so many of the first samples are in the dataset; they come without members. `chosen`: how
        much of a frame is wanted, which may be a keyframe; pictures that are not wanted are not decoded.
        """
        self._chosen = chosen
        self._facts = facts
        self._usage = usage
        self._sampling = Sampling(settings, facts.roles.sensor)
        self._pace = Pace(start_lag)
        eager = start_lag is None and chosen is None
        self._pictures = _pictures(settings, facts, eager=eager, already_written=already_written)
        self._depends = self._pictures is not None and self._pictures.depends
        self._encoder = SampleEncoder(settings, facts, already_written)
        self._waiting: deque[Frame] = deque()
        self._fallback: SampleParts | None = None

        def write(work: SampleParts | Callable[[], None]) -> None:
            if isinstance(work, SampleParts):
                sink(assemble(work, facts, settings))
            else:
                work()

        self._writing: Worker[SampleParts | Callable[[], None]] = Worker("write", write, 2 * workers(settings.jobs) + 2)
        size = 64 if start_lag is None else 0
        self._choosing: Worker[AccessUnit | Frame] = Worker("choose", self._choose, size)

    # ---- in the thread that pushes -------------------------------------------------------
    def put(self, item: AccessUnit | Frame) -> None:
        """Enqueue the next message or frame; raises what went wrong with earlier ones."""
        if not self._choosing.backlog:
            self._pace.move()
        elif self._pace.is_stuck and isinstance(item, Frame):
            item = item.make_overdue()
        elif self._pace.is_stuck and isinstance(item, AccessUnit) and not self._depends:
            item.leave_out()
        self._choosing.put(item)

    @property
    def note(self) -> str:
        """Note of the decoder to the user; empty without any."""
        return self._pictures.note if self._pictures is not None else ""

    def drain(self) -> None:
        """Leave nothing out for a while: no more messages will come."""
        self._pace.drain()

    def call_idle(self, what: Callable[[], None]) -> None:
        """Call `what` in the writer thread, unless samples wait for it."""
        if not self._writing.backlog:
            self._writing.put(what)

    @property
    def backlog(self) -> int:
        """Number of messages and frames that wait for the decoder."""
        return self._choosing.backlog

    @property
    def standstill(self) -> float:
        """Time without progress of what waits, s."""
        return self._pace.standstill if self._choosing.backlog else 0.0

    def finish(self) -> None:
        """Wait until every sample is written; raises what went wrong."""
        self._choosing.close()
        self._resolve(last=True)
        self._take_fallback()
        self._writing.close()

    def abandon(self) -> None:
        """Stop all threads."""
        if self._pictures is not None:
            self._pictures.close()  # wakes the thread that waits for a picture
        self._choosing.stop()
        if self._pictures is not None:
            self._pictures.close()  # streams that were opened since
        self._writing.stop()
        self._encoder.close()

    # ---- in the thread that chooses ------------------------------------------------------
    def _choose(self, item: AccessUnit | Frame) -> None:
        self._pace.move()
        if isinstance(item, Frame):
            self._waiting.append(item)
        else:
            self._add_unit(item)
        self._resolve(last=False)

    def _add_unit(self, unit: AccessUnit) -> None:
        broken = isinstance(unit.content, MessageError)
        if self._pictures is not None and (unit.gap or broken):
            self._pictures.mark_gap()
        if broken:
            self._drop(unit.content.reason, unit.content)
        elif self._pictures is not None and not self._pace.is_over:
            if unit.content is None:
                unit.content = MessageError(OVERLOAD, "it arrived while no sample could be written")
            if unit.wanted or self._depends:
                self._pictures.push(unit)
            if not unit.wanted:
                self._pictures.skip(unit)

    def _resolve(self, *, last: bool) -> None:
        while self._waiting and self._is_decided(self._waiting[0], last=last):
            self._waiting.popleft()

    def _is_decided(self, frame: Frame, *, last: bool) -> bool:
        """Decide about the first waiting frame; False if that needs further messages."""
        if self._pace.is_over:
            return self._drop(OVERLOAD)
        keyframe = frame.unit.keyframe if self._pictures is not None else True
        bucket = self._sampling.bucket_of(frame)
        if self._fallback is not None and self._sampling.bucket_of(self._fallback.frame) != bucket:
            self._take_fallback()
        second_choice = self._sampling.is_second_choice(frame) and self._fallback is not None
        if second_choice or self._sampling.passes_over(bucket, keyframe=keyframe):
            return self._skip(frame, NOT_SAMPLED)
        if self._pace.is_overdue(frame.since):
            return self._skip(frame, OVERLOAD)
        missing = self._sampling.missing(frame)
        if missing is not None and bucket is None:
            return self._skip(frame, lacks(missing))
        part = WHOLE if self._chosen is None else self._chosen(frame, keyframe)
        picture: Picture | MessageError | None = None
        if self._pictures is None:
            if self._facts.roles.sensor is not None and frame.own is None:
                return self._drop(CANNOT_BE_STORED)
            if self._facts.roles.sensor is None and not frame.companions:
                return self._drop(EMPTY)
        elif part.picture:
            picture = self._pictures.take(frame.unit, last=last)
            if picture is None:
                return False
        else:
            picture = self._pictures.skip(frame.unit)
        if isinstance(picture, MessageError):
            return self._drop(picture.reason, picture)
        return self._select(SampleParts(frame, picture, keyframe, part))

    def _select(self, found: SampleParts) -> bool:
        """Make a sample of a clean frame, unless it lacks a sensor or another frame may be preferred."""
        if self._sampling.is_second_choice(found.frame):
            self._fallback = found
            return True
        if self._fallback is not None:
            self._fallback = None
            self._drop(NOT_SAMPLED)
        return self._make_sample(found)

    def _take_fallback(self) -> None:
        """Make a sample of the first clean frame of a bucket without a clean frame that the model processed."""
        if self._fallback is not None:
            found, self._fallback = self._fallback, None
            self._make_sample(found)

    def _make_sample(self, found: SampleParts) -> bool:
        frame, missing = found.frame, self._sampling.missing(found.frame)
        self._sampling.fill(self._sampling.bucket_of(frame))
        if missing is not None:
            return self._drop(lacks(missing))
        self._facts.counts.write(self._facts.roles.reference)
        self._usage.observe(frame)
        self._encoder.begin(found)
        self._writing.put(found)
        return True

    def _skip(self, frame: Frame, reason: str) -> bool:
        """Drop a frame whose picture was not requested."""
        if self._pictures is not None:
            self._pictures.skip(frame.unit)
        return self._drop(reason)

    def _drop(self, reason: str, error: MessageError | None = None) -> bool:
        """Count a dropped frame; returns True: it is decided."""
        self._facts.counts.drop(self._facts.roles.reference, reason, why=error)
        return True


def _pictures(settings: Settings, facts: SequenceFacts, *, eager: bool, already_written: int) -> PictureSource | None:
    """Return the pictures of the reference topic; None if it is no camera. `eager`: all may be decoded."""
    if not facts.roles.camera or not settings.takes_pictures:
        return None
    hook = load_hook(settings.picture_hook) if settings.picture_hook is not None else None
    options = PictureOptions(
        PictureEncoder(settings.camera_format, settings.jpeg_quality, settings.max_width, hook),
        keyframes_only=settings.keyframes,
        decoder=settings.decoder,
        limits=settings.limits,
        threads=workers(settings.jobs) if settings.rate is None and eager else 1,
        # Of samples that are written already the size is enough, and what lacks a sensor is not written.
        ahead=not already_written and not settings.require,
    )
    return open_pictures(facts.roles.schema, options)
