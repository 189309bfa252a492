# SPDX-License-Identifier: Apache-2.0
"""From aligned frames to samples: which frames, their pictures, their members encoded side by side."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Generic, TypeVar

from edgefirst_ros.config import MODEL, SECOND, Settings
from edgefirst_ros.counts import CANNOT_BE_STORED, EMPTY, NOT_SAMPLED, OVERLOAD, lacks
from edgefirst_ros.dataset.writer import NewSample
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import count_workers
from edgefirst_ros.pipeline.cameras import CameraMessage, OtherCamera, Passed, make_picture_options
from edgefirst_ros.pipeline.encoding import SampleEncoder, SampleParts, assemble
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import WHOLE, Chosen, Frame
from edgefirst_ros.pipeline.frames import Item
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.pictures import PictureSource
from edgefirst_ros.sensors.video.bitstream import AccessUnit

T = TypeVar("T")


class Worker(Generic[T]):
    """Calls `handle` for each item, in order, in a thread of its own.

    `put` waits while `size` items wait (0: never), and raises the handler's error; items after a failure are dropped.

    Owns: `_error` is set once, by the worker's thread, and read by all; any thread may call the methods.
    """

    def __init__(self, name: str, handle: Callable[[T], None], size: int) -> None:
        self._handle = handle
        self._items: queue.Queue[T | None] = queue.Queue(size)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            if self._error is None:
                try:
                    self._handle(item)
                except BaseException as error:  # noqa: BLE001  it is raised again where the items come from
                    self._error = error

    def put(self, item: T) -> None:
        if self._error is not None:
            raise self._error
        self._items.put(item)

    @property
    def backlog(self) -> int:
        """Approximate number of waiting items."""
        return self._items.qsize()

    def close(self) -> None:
        """Wait until all items are handled; raises the handler's error."""
        self.stop()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Wait until all items are handled; never raises."""
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()


PATIENCE = 2.0
"""s a frame may wait while live; then it is dropped, and whole groups of pictures need no decoding."""
BACKLOG = 1.0
"""s after the start of a capture within which the frames of its backlog are complete."""
LAST_WORK = 3.0
"""s given to waiting frames when a live capture ends; a node must end soon after a signal."""


class Backlog:
    """Decides which frames are dropped because they, or the end of the capture, waited too long.

    Owns: `drain` belongs to the thread that pushes messages, `is_overdue` to the one that chooses frames; both `move`.
    Every attribute is one number or state, replaced as a whole.
    """

    def __init__(self, start_lag: float | None) -> None:
        """`start_lag`: s since the first message of a capture came, for which frames may wait longer; None: offline."""
        self._live = start_lag is not None
        """True while frames that waited too long are dropped: they cannot wait, and more messages will come."""
        self._patience = PATIENCE + (start_lag or 0.0)
        self._began = self._moved = time.monotonic()
        self._deadline = math.inf

    def move(self) -> None:
        """Note progress of what waits."""
        self._moved = time.monotonic()

    def drain(self) -> None:
        """Drop no sample for a while: no more messages will come."""
        if self._live:
            self._deadline, self._live = time.monotonic() + LAST_WORK, False

    @property
    def standstill(self) -> float:
        """Time since the last progress, s."""
        return time.monotonic() - self._moved

    @property
    def is_stuck(self) -> bool:
        """True without progress for so long that messages must be dropped, or memory fills up."""
        return self._live and self.standstill > self._patience

    @property
    def is_over(self) -> bool:
        """True if the time to drain is over."""
        return time.monotonic() > self._deadline

    def is_overdue(self, complete: float) -> bool:
        """True if a frame that was complete at `complete`, s of time.monotonic(), waited too long."""
        waited = time.monotonic() - complete
        if math.isinf(complete) or (self._live and waited > self._patience):
            return True
        if complete - self._began > BACKLOG and waited <= PATIENCE:
            self._patience = PATIENCE  # the backlog is worked off
        return False


SILENT = 4 * SECOND
"""ns of frames that wait for the picture of another camera; then no further message of it is waited for."""
Bucket = tuple[int, int]
"""Segment, and number of the interval of 1/rate s since the epoch."""


class SampleBuilder:
    """Takes `AccessUnit` and `Frame` as they come, and passes samples to `sink` in the order of the frames.

    Owns: `put`, `drain`, `finish` and `abandon` belong to the thread that pushes messages. The thread "choose" decodes,
    decides about the frames that wait, and only it changes `_waiting`, `_fallback`, `_pictures` and `_filled` until
    it has ended; while it waits, threads "camera" decode for it, each camera in one. The thread "write" puts encoded
    parts together and calls `sink`. Counts and pace say themselves who changes them.
    """

    def __init__(
        self,
        settings: Settings,
        facts: SequenceFacts,
        sink: Callable[[NewSample, Frame], None],
        *,
        start_lag: float | None = None,
        kept: int = 0,
        chosen: Chosen | None = None,
        cameras: Mapping[str, OtherCamera] = MappingProxyType({}),
    ) -> None:
        """`start_lag`: live, s since the first message came; samples are thinned where encoding cannot keep up.

        `kept`: so many of the first samples are in the dataset already; they come without members. `chosen`: how much
        of a frame is needed, which may be a keyframe; pictures that are not wanted are not decoded. `cameras`: others
        of the rig, whose messages come too.
        """
        self._chosen = chosen
        self._facts = facts
        self._settings = settings
        self._rate = settings.exact_rate
        self._filled: Bucket | None = None
        """The last bucket that has its own frame."""
        self._pace = Backlog(start_lag)
        eager = start_lag is None and chosen is None
        self._pictures = _make_pictures(settings, facts, eager=eager, kept=kept)
        self._encoder = SampleEncoder(settings, facts, kept)
        self._waiting: deque[Frame] = deque()
        self._fallback: SampleParts | None = None
        self._cameras = cameras
        self._side_by_side = ThreadPoolExecutor(min(len(cameras), count_workers(settings.jobs)) or 1, "camera")
        """Decodes the pictures of other cameras of a frame."""
        self._begun: SampleParts | None = None
        """The first waiting frame, if it is clean and only pictures of other cameras are missing."""

        def write(work: SampleParts | Callable[[], None]) -> None:
            if isinstance(work, SampleParts):
                sink(assemble(work, facts, settings), work.frame)
            else:
                work()

        self._writing: Worker[SampleParts | Callable[[], None]] = Worker(
            "write", write, 2 * count_workers(settings.jobs) + 2
        )
        size = 64 if start_lag is None else 0
        self._choosing: Worker[Item] = Worker("choose", self._choose, size)

    # ---- in the thread that pushes -------------------------------------------------------
    def put(self, item: Item) -> None:
        """Enqueue the next message or frame; raises what went wrong with earlier ones."""
        if not self._choosing.backlog:
            self._pace.move()
        elif self._pace.is_stuck and isinstance(item, Frame):
            item = Frame(item.unit, item.stamp, item.segment, since=-math.inf)  # overdue, and without its messages
        elif self._pace.is_stuck and isinstance(item, AccessUnit) and not _depends(item):
            item.drop_content()
        elif self._pace.is_stuck and isinstance(item, CameraMessage):
            item.message.content.leave_out()
        self._choosing.put(item)

    @property
    def note(self) -> str:
        notes = [self._pictures.note if self._pictures is not None else "", *(c.note for c in self._cameras.values())]
        return next(filter(None, notes), "")

    def drain(self) -> None:
        """Drop no sample for a while: no more messages will come."""
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
        return self._pace.standstill if self._choosing.backlog else 0.0

    def finish(self) -> None:
        """Wait until every sample is written; raises what went wrong."""
        self._choosing.close()
        self._resolve(last=True)
        self._choose_fallback()
        self._writing.close()

    def abandon(self) -> None:
        if self._pictures is not None:
            self._pictures.close()  # wakes the thread that waits for a picture
        self._choosing.stop()
        if self._pictures is not None:
            self._pictures.close()  # streams that were opened since
        for camera in self._cameras.values():
            camera.close()
        self._side_by_side.shutdown()
        self._writing.stop()
        self._encoder.close()

    # ---- in the thread that chooses ------------------------------------------------------
    def _choose(self, item: Item) -> None:
        self._pace.move()
        if isinstance(item, Frame):
            self._waiting.append(item)
        elif isinstance(item, AccessUnit):
            self._add_unit(item)
        elif isinstance(item, Passed):
            waiting = (near for frame in self._waiting for near in frame.candidates(item.camera))
            self._cameras[item.camera].forget(item.number, {message.content.number for _, message in waiting})
        elif not self._pace.is_over:
            self._cameras[item.camera].add(item.message)
        self._resolve(last=False)

    def _add_unit(self, unit: AccessUnit) -> None:
        broken = isinstance(unit.content, MessageError) and unit.content.reason != OVERLOAD  # else it has a frame
        if self._pictures is not None and (unit.gap or broken):
            self._pictures.mark_gap()
        if broken:
            self._drop(unit.content.reason, unit.content)
        elif self._pictures is not None and not self._pace.is_over:
            if unit.wanted or _depends(unit):
                if _depends(unit):
                    self._facts.video.add(unit.content.form)
                self._pictures.push(unit)
            if not unit.wanted:
                self._pictures.skip(unit)

    def _resolve(self, *, last: bool) -> None:
        while self._waiting and self._is_decided(self._waiting[0], last=last):
            self._waiting.popleft()

    def _bucket_of(self, frame: Frame) -> Bucket | None:
        if self._rate is None:
            return None
        return frame.segment, frame.stamp * self._rate.numerator // (self._rate.denominator * SECOND)

    def _missing(self, frame: Frame) -> str | None:
        """Return the first required sensor that a frame does not have; None if it has all."""
        model = [MODEL] if frame.result is not None else []
        present = {*frame.companions, self._facts.roles.sensor, *model}
        return next((sensor for sensor in self._settings.require if sensor not in present), None)

    def _is_second_choice(self, frame: Frame) -> bool:
        """True if another frame of the bucket would be preferred: one that the model processed."""
        return self._settings.prefer == MODEL and frame.result is None

    def _is_decided(self, frame: Frame, *, last: bool) -> bool:
        """Decide about the first waiting frame; False if that needs further messages."""
        if self._pace.is_over:
            self._begun = None
            return self._drop(OVERLOAD)
        if self._begun is not None:
            return self._gather(self._begun, last=last)
        keyframe = frame.unit.keyframe if self._pictures is not None else True
        bucket = self._bucket_of(frame)
        if self._fallback is not None and self._bucket_of(self._fallback.frame) != bucket:
            self._choose_fallback()
        second_choice = self._fallback is not None and self._is_second_choice(frame)
        unwanted = (self._settings.keyframes_only and not keyframe) or (bucket is not None and bucket == self._filled)
        if second_choice or unwanted:
            return self._skip(frame, NOT_SAMPLED)
        if self._pace.is_overdue(frame.since):
            return self._skip(frame, OVERLOAD)
        missing = self._missing(frame)
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
            picture = self._pictures.pop(frame.unit, last=last)
            if picture is None:
                return False
        else:
            picture = self._pictures.skip(frame.unit)
        if isinstance(picture, MessageError):
            return self._drop(picture.reason, picture)
        return self._gather(SampleParts(frame, picture, keyframe, part), last=last)

    def _gather(self, found: SampleParts, *, last: bool) -> bool:
        """Add the pictures of other cameras to a clean frame, and decide about it; False if more messages are needed.

        A silent camera is not waited for: its decoder is drained.
        """
        frame, self._begun = found.frame, found
        last = last or self._waiting[-1].stamp - frame.stamp > SILENT or self._pace.is_overdue(frame.since)
        keys = [key for key in self._cameras if key in frame.companions and found.part.has(key)]
        several = sum(self._cameras[key].decodes for key in keys) > 1
        call = self._side_by_side.map if several else map
        asked = list(call(lambda key: self._cameras[key].first_clean(frame.candidates(key), last=last), keys))
        for key, near in zip(keys, asked, strict=True):
            if near is None:
                return False
            if near:
                frame.companions[key] = near[0]
            else:
                del frame.companions[key]
        self._begun = None
        return self._select(found)

    def _select(self, found: SampleParts) -> bool:
        """Make a sample of a clean frame, unless it does not have a sensor or another frame may be preferred."""
        if self._is_second_choice(found.frame):
            self._fallback = found
            return True
        if self._fallback is not None:
            self._fallback = None
            self._drop(NOT_SAMPLED)
        return self._make_sample(found)

    def _choose_fallback(self) -> None:
        """Make a sample of the first clean frame of a bucket without a clean frame that the model processed."""
        if self._fallback is not None:
            found, self._fallback = self._fallback, None
            self._make_sample(found)

    def _make_sample(self, found: SampleParts) -> bool:
        frame, missing = found.frame, self._missing(found.frame)
        self._filled = self._bucket_of(frame) or self._filled  # by the first clean one, even if it is not used
        if missing is not None:
            return self._drop(lacks(missing))
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


def _depends(unit: AccessUnit) -> bool:
    """True if the picture of a message that is not pushed yet may need those before it."""
    return getattr(unit.content, "depends", False)


def _make_pictures(settings: Settings, facts: SequenceFacts, *, eager: bool, kept: int) -> PictureSource | None:
    """Return the pictures of the reference topic; None if it is not a camera. `eager`: all may be decoded."""
    if not facts.roles.camera or not settings.takes_pictures:
        return None
    threads = count_workers(settings.jobs) if settings.rate is None and eager else 1
    # Samples that are written already need only the size, and ones without a required sensor are not written.
    ahead = not kept and not settings.require
    options = make_picture_options(settings)._replace(
        keyframes_only=settings.keyframes_only, threads=threads, ahead=ahead
    )
    return PictureSource(options)
