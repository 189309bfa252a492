# SPDX-License-Identifier: Apache-2.0
"""The parts of a sample encoded side by side: picture, members of companions, annotation rows."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.config import Settings
from edgefirst_ros.limits import workers
from edgefirst_ros.pipeline.annotations import Rows, context_of, rows_of_results
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import Frame, Part, SensorMessage
from edgefirst_ros.sensors.companions import encode, is_quick
from edgefirst_ros.sensors.degradation import degradation_of
from edgefirst_ros.sensors.picture import Picture


@dataclass(slots=True)
class SampleParts:
    """A sample in progress: its frame and picture, and once encoding has begun the futures of its parts.

    Owns: the thread that chooses frames makes it, and hands it on to the thread that writes.
    """

    frame: Frame
    picture: Picture | None
    keyframe: bool
    part: Part
    """The wanted part: a companion's message shared with other samples may be encoded, but not be a member of this."""
    image: Callable[[], tuple[bytes, str | None]] | None = None
    """Waits for and returns the encoded picture, and its degradation if that is asked for."""
    rows: Future[Rows] | None = None


class SampleEncoder:
    """Encodes the parts of samples in a thread pool; blocks while too much is in progress.

    Owns: `begin` belongs to the thread that chooses frames, and it alone counts the samples that are written already.
    """

    def __init__(self, settings: Settings, facts: SequenceFacts, already_written: int) -> None:
        """`already_written`: number of first samples that need no members."""
        self._settings = settings
        self._without_masks = settings.model_copy(update={"masks": False, "polygons": False})
        self._facts = facts
        self._already_written = already_written
        threads = workers(settings.jobs)
        self._pool = ThreadPoolExecutor(threads, "encode")
        self._slots = threading.BoundedSemaphore(2 * threads)

    def begin(self, sample: SampleParts) -> None:
        """Start to encode the wanted parts of the next sample."""
        frame, picture, part = sample.frame, sample.picture, sample.part
        wanted = self._already_written == 0
        self._already_written = max(0, self._already_written - 1)
        if wanted:
            if picture is not None:
                of_picture = functools.partial(self._image, picture)
                ready = picture.data is not None and not self._settings.degradation
                sample.image = of_picture if ready else self._submit(of_picture).result
            if frame.own is not None and part.has(frame.own[0]):
                self._encode(*frame.own)
            for sensor, (_, message) in frame.companions.items():
                if part.has(sensor):
                    self._encode(sensor, message)
        sample.rows = self._rows(frame, picture, masks=part.masks)

    def close(self) -> None:
        """End all threads; what has not started is not encoded."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _encode(self, sensor: str, message: SensorMessage) -> None:
        if message.encoded is None:  # a slow sensor's message serves several frames
            encoding = functools.partial(encode, sensor, message.content, message.stamp, self._settings)
            message.encoded = _called(encoding) if is_quick(sensor, self._settings) else self._submit(encoding)

    def _rows(self, frame: Frame, picture: Picture | None, *, masks: bool) -> Future[Rows] | None:
        if not frame.results:
            return None
        settings = self._settings if masks else self._without_masks
        facts = self._facts
        size = picture.size if picture is not None else facts.calibration.size if masks else None
        context = context_of(settings, facts, frame.number, size)
        return self._submit(functools.partial(rows_of_results, frame, context, settings))

    def _image(self, picture: Picture) -> tuple[bytes, str | None]:
        data = picture.encode()
        return data, degradation_of(data) if self._settings.degradation else None

    def _submit(self, function: Callable[[], Any]) -> Future[Any]:
        self._slots.acquire()
        future = self._pool.submit(function)
        future.add_done_callback(lambda _: self._slots.release())
        return future


def _called(function: Callable[[], Any]) -> Future[Any]:
    """Return a future with the result of a function that takes less time than handing it to another thread."""
    future: Future[Any] = Future()
    future.set_result(function())
    return future
