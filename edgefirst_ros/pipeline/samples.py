# SPDX-License-Identifier: Apache-2.0
"""From aligned frames to samples: which frames, their pictures, their members encoded side by side."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from edgefirst_ros import streams
from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import CANNOT_BE_STORED, EMPTY, NOT_SAMPLED, OVERLOAD, Counts, lacks
from edgefirst_ros.dataset.names import host_of
from edgefirst_ros.dataset.writer import Sample
from edgefirst_ros.errors import MessageError
from edgefirst_ros.pipeline.annotations import Rows, context_of, rows_of_results
from edgefirst_ros.pipeline.frame import CameraMessage, Frame, SensorMessage
from edgefirst_ros.pipeline.worker import Worker
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sensors.companions import encode
from edgefirst_ros.sensors.degradation import degradation_of
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg, insert_png
from edgefirst_ros.sensors.navigation import yaw_pitch_roll
from edgefirst_ros.sensors.picture import PictureEncoder
from edgefirst_ros.sensors.pictures import Picture, Pictures, pictures_of
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.streams import VIDEO

SOFTWARE = "edgefirst_ros"
PATIENCE = 2.0
"""s a frame may wait for its turn while live; then it is left out, and whole groups of pictures need no decoding."""
BACKLOG = 1.0
"""s after the beginning of a capture within which frames of its backlog are complete."""
LAST_WORK = 3.0
"""s given to what still waits when a live capture ends; a node must be gone soon after it is told to."""


@dataclass(slots=True)
class _Job:
    """A sample on its way: what is encoded, and what is known already."""

    work: Frame
    picture: Picture | None
    keyframe: bool
    encoded: Callable[[], tuple[bytes, str | None]] | None
    """Gives the bytes of the picture, and how degraded it is where that is asked for."""
    rows: Future[Rows] | None


class SampleBuilder:
    """Takes `CameraMessage` and `Frame` as they come, and gives samples to `sink` in the order of the work."""

    def __init__(
        self,
        settings: Settings,
        sequence: str,
        roles: Roles,
        counts: Counts,
        calibration: Calibration,
        sink: Callable[[Sample], None],
        *,
        behind: float | None = None,
        skip: int = 0,
    ) -> None:
        """`behind`: what comes cannot wait, so samples are thinned where encoding cannot keep up.

        The first messages came so many s ago; until they are worked off frames may wait longer by that.
        `skip`: so many of the first samples are there already; they come without members.
        """
        self._settings = settings
        self._sequence = sequence
        self._roles = roles
        self._counts = counts
        self._calibration = calibration
        self._sink = sink
        self._rate = settings.exact_rate
        self._encoder = PictureEncoder(settings.camera_format, settings.jpeg_quality)
        self._pictures: Pictures | None = None
        if roles.camera:
            side_by_side = self._rate is None and behind is None
            self._pictures = pictures_of(
                roles.schema,
                self._encoder,
                keyframes_only=settings.keyframes,
                decoder=settings.decoder,
                limits=settings.limits,
                threads=settings.workers if side_by_side else 1,
                # Of samples that are there already the size is enough, and what lacks a sensor is not written.
                ahead=not skip and not settings.require,
            )
        self._waiting: deque[Frame] = deque()
        self._bucket: tuple[int, int] | None = None
        workers = settings.workers
        self._pool = ThreadPoolExecutor(workers, "encode")
        self._slots = threading.BoundedSemaphore(2 * workers)
        self._writing: Worker[_Job | Callable[[], None]] = Worker("write", self._write, 2 * workers + 2)
        self._live = behind is not None
        self._patience = PATIENCE + (behind or 0.0)
        self._began = self._turn = time.monotonic()
        self._until = math.inf
        self._skip = skip
        self.late_used: Counter[str] = Counter()
        """Of each topic how many messages that came late a sample has all the same."""
        self._choosing: Worker[CameraMessage | Frame] = Worker("choose", self._choose, 0 if self._live else 64)

    # ---- from outside --------------------------------------------------------------------
    def put(self, item: CameraMessage | Frame) -> None:
        """Hand over the next message or frame."""
        if not self._choosing.backlog:
            self._turn = time.monotonic()
        elif self._live and self.standstill > self._patience:  # the disk stands still: the memory must not fill up
            item = item.left_out() if isinstance(item, Frame) or self._roles.schema != VIDEO else item
        self._choosing.put(item)

    @property
    def note(self) -> str:
        """What the user should know of the decoder; empty when there is nothing."""
        return self._pictures.note if self._pictures is not None else ""

    def take_time(self) -> None:
        """Leave nothing out for a while: no more will come."""
        if self._live:
            self._until = time.monotonic() + LAST_WORK
            self._live = False

    def call_idle(self, what: Callable[[], None]) -> None:
        """Call something in the thread that writes, unless samples wait for it."""
        if not self._writing.backlog:
            self._writing.put(what)

    @property
    def backlog(self) -> int:
        """Messages and frames that wait for the decoder."""
        return self._choosing.backlog

    @property
    def standstill(self) -> float:
        """For how long nothing of what waits has moved on, s."""
        return time.monotonic() - self._turn if self._choosing.backlog else 0.0

    def finish(self) -> None:
        """Wait until every sample is written."""
        try:
            self._choosing.close()
            self._resolve(last=True)
            self._writing.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop all threads."""
        if self._pictures is not None:
            self._pictures.close()  # who waits for a picture waits no more
        self._choosing.stop()
        if self._pictures is not None:
            self._pictures.close()  # what was opened since
        self._writing.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- which frames --------------------------------------------------------------------
    def _choose(self, item: CameraMessage | Frame) -> None:
        self._turn = time.monotonic()
        if isinstance(item, Frame):
            self._waiting.append(item)
        else:
            if self._pictures is not None and (item.gap or isinstance(item.content, MessageError)):
                self._pictures.mark_gap()
            if isinstance(item.content, MessageError):
                self._drop(item.content.reason, item.content)
            elif self._pictures is not None and time.monotonic() <= self._until:
                content = item.content
                if content is None:
                    content = MessageError(OVERLOAD, "nothing could be written when it came")
                self._pictures.push(item.number, content)
        self._resolve(last=False)

    def _resolve(self, *, last: bool) -> None:
        while self._waiting and self._settled(self._waiting[0], last=last):
            self._waiting.popleft()

    def _settled(self, work: Frame, *, last: bool) -> bool:
        """Decide about the first frame that waits; False where more must come first."""
        now = time.monotonic()
        if now > self._until:
            self._drop(OVERLOAD)
            return True
        keyframe = self._pictures.keyframe(work.number) if self._pictures else True
        bucket = None
        if self._rate is not None:
            bucket = (work.segment, work.stamp * self._rate.numerator // (self._rate.denominator * SECOND))
        if (self._settings.keyframes and not keyframe) or (bucket is not None and bucket == self._bucket):
            return self._leave(work, NOT_SAMPLED)
        if math.isinf(work.since) or (self._live and now - work.since > self._patience):
            return self._leave(work, OVERLOAD)
        if work.since - self._began > BACKLOG and now - work.since <= PATIENCE:
            self._patience = PATIENCE
        there = {*work.companions, self._roles.sensor}
        missing = next((s for s in self._settings.require if s not in there), None)
        if missing is not None and bucket is None:
            return self._leave(work, lacks(missing))
        picture = None
        if self._pictures is not None:
            found = self._pictures.take(work.number, last=last)
            if found is None:
                return False
            if isinstance(found, MessageError):
                self._drop(found.reason, found)
                return True
            picture = found
        elif self._roles.sensor is not None and work.own is None:
            self._drop(CANNOT_BE_STORED)
            return True
        elif self._roles.sensor is None and not work.companions:
            self._drop(EMPTY)
            return True
        if bucket is not None:
            self._bucket = bucket  # its sample is the first that can be had, even if it lacks a sensor
        if missing is not None:
            self._drop(lacks(missing))
        else:
            self._take(work, picture, keyframe)
        return True

    def _leave(self, work: Frame, reason: str) -> bool:
        if self._pictures is not None:
            self._pictures.skip(work.number)
        self._drop(reason)
        return True

    def _drop(self, reason: str, error: MessageError | None = None) -> None:
        self._counts.drop(self._roles.reference, reason, why=error)

    # ---- encoding ------------------------------------------------------------------------
    def _submit(self, function: Callable[[], Any]) -> Future[Any]:
        self._slots.acquire()
        future = self._pool.submit(function)
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def _take(self, work: Frame, picture: Picture | None, keyframe: bool) -> None:
        """Begin to encode a sample."""
        self._counts[self._roles.reference].written += 1
        there, self._skip = self._skip > 0, max(0, self._skip - 1)
        encoded = None
        if picture is not None and not there:
            of_picture = functools.partial(self._picture, picture)
            by_itself = picture.ready and not self._settings.degradation
            encoded = of_picture if by_itself else self._submit(of_picture).result
        if work.own is not None and not there:
            sensor, item = work.own
            item.encoded = self._submit(functools.partial(encode, sensor, item.content, item.stamp, self._settings))
        for sensor, (_, item) in work.companions.items():
            if item.encoded is None and not there:  # a slow sensor's message serves several frames
                item.encoded = self._submit(functools.partial(encode, sensor, item.content, item.stamp, self._settings))
            self._use(item)
        self._writing.put(_Job(work, picture, keyframe, encoded, self._results(work, picture)))

    def _results(self, work: Frame, picture: Picture | None) -> Future[Rows] | None:
        if not work.results:
            return None
        for item in work.results:
            self._use(item)
        size = picture.size if picture is not None else None
        context = context_of(self._settings, self._roles, self._calibration, self._sequence, work.number, size)
        return self._submit(functools.partial(rows_of_results, work, context, self._settings))

    def _picture(self, picture: Picture) -> tuple[bytes, str | None]:
        data = picture.encode()
        return data, degradation_of(data) if self._settings.degradation else None

    def _use(self, item: SensorMessage) -> None:
        """Count a message that a sample has, once; those of the reference are counted as samples."""
        if item.topic != self._roles.reference:
            self._counts[item.topic].written += not item.used
            self.late_used[item.topic] += item.late and not item.used
        item.used = True

    # ---- writing -------------------------------------------------------------------------
    def _write(self, job: _Job | Callable[[], None]) -> None:
        if not isinstance(job, _Job):
            job()
            return
        work, picture = job.work, job.picture
        members: list[tuple[str, Sequence[Any]]] = []
        row: dict[str, object] = {"segment": work.segment, "keyframe": job.keyframe}
        common: dict[str, object] = {}
        if picture is not None:
            if job.encoded is not None:
                data, degradation = job.encoded()
                members.append((picture.kind, self._with_exif(work, picture, data)))
                common |= {"degradation": degradation} if degradation is not None else {}
            row["size"] = common["size"] = list(picture.size)
        if work.position is not None:
            place = work.position
            row.update(latitude=place.latitude, longitude=place.longitude, altitude=place.altitude)
            common["location"] = [place.latitude, place.longitude]
        if work.orientation is not None:
            row["orientation"] = list(work.orientation)
            common["pose"] = list(yaw_pitch_roll(work.orientation))
        if work.group is not None:
            common["group"] = work.group
        if work.own is not None and work.own[1].encoded is not None:
            members.append((streams.of_key(work.own[0]).kind, work.own[1].encoded.result()))
        for sensor, (stamp, item) in work.companions.items():
            known = streams.of_key(sensor)
            if item.encoded is not None:
                members.append((known.kind, item.encoded.result()))
            if known.column is not None:
                row.update({f"{known.column}_timestamp": stamp, f"{known.column}_skew": stamp - work.stamp})
        rows: list[dict[str, object]] = []
        if job.rows is not None:
            rows, dropped = job.rows.result()
            for (topic, reason), number in dropped.items():
                self._counts.drop(topic, reason, number)
        self._sink(Sample(self._sequence, work.number, work.stamp, members, row, rows, common))

    def _with_exif(self, work: Frame, picture: Picture, data: bytes) -> Sequence[Any]:
        from edgefirst_ros import __version__

        place, heading = work.position, None
        if self._settings.heading_from_imu and work.orientation is not None:
            heading = (90 - yaw_pitch_roll(work.orientation)[0]) % 360  # from counter-clockwise of east
        exif = encode_exif(
            ExifInfo(
                self._sequence,
                work.number,
                work.stamp,
                host_of(self._sequence),
                f"{SOFTWARE} {__version__}",
                place.latitude if place else None,
                place.longitude if place else None,
                place.altitude if place else None,
                place.error if place else None,
                heading,
                self._calibration.focal_35mm,
            )
        )
        return insert_png(data, exif) if picture.kind.endswith("png") else insert_jpeg(data, exif)
