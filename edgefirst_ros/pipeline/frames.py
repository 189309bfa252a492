# SPDX-License-Identifier: Apache-2.0
"""The street: messages of one recording or capture in, frames with all that belongs to them out."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.config import Settings, nanoseconds
from edgefirst_ros.counts import LATE, NO_ATTITUDE, NO_FIX, NO_SAMPLE, NOT_NEAREST, Counts
from edgefirst_ros.dataset.split import GroupOf, guarded
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message, decode, header_stamp
from edgefirst_ros.pipeline.frame import CameraMessage, Frame, SensorMessage
from edgefirst_ros.pipeline.samples import SampleBuilder
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sensors.companions import storable
from edgefirst_ros.sensors.detections import mapped_labels
from edgefirst_ros.sensors.navigation import AttitudeTrack, FixTrack, attitude_of, fix_of
from edgefirst_ros.sensors.video_message import ReferenceParser, VideoMessage
from edgefirst_ros.sources.topics import Roles
from edgefirst_ros.sync.align import Aligned, Aligner, Stream
from edgefirst_ros.sync.clock import RunningClock, Segments, TimeBase

BOXES3D, MASK = "fusion.boxes3d", "model.mask"
"""Streams that are aligned besides the companions: with frames, and with the model's boxes."""
REMEMBERED = 2048
"""Frames that are gone of which is known that a model's result came too late for them."""
SWEEP = 250_000_000
"""ns of recording between two looks at what can be forgotten."""


@dataclass(slots=True)
class _Frame:
    """What comes along with a frame through the alignment."""

    segment: int
    join: int
    """Stamp by which model results are joined."""
    own: SensorMessage | None


@dataclass(slots=True)
class _Result:
    """A model's result and when it came; `settled` once it has the mask that belongs to it."""

    arrived: int
    item: SensorMessage
    settled: bool


class _Tracks:
    """Positions and attitudes of one stretch of time without a clock set back."""

    def __init__(self, max_gap: int) -> None:
        self.fixes = FixTrack(max_gap)
        self.attitudes = AttitudeTrack(max_gap)
        self.newest = 0
        """Stamp of the last fix or attitude."""


class FrameBuilder:
    """Aligns messages pushed in recorded order and hands frames to an `SampleBuilder`.

    `overlapping`: the segments that share a time with another or come near it, as a clock set back makes them; None
    where that is not known beforehand (live): then every clock set back begins a stretch of its own;
    `numbered`: a step other than 1 in the reference topic's sequence numbers means a loss.
    """

    def __init__(
        self,
        settings: Settings,
        roles: Roles,
        base: TimeBase,
        counts: Counts,
        calibration: Calibration,
        assembly: SampleBuilder,
        *,
        group_of: GroupOf,
        overlapping: Collection[int] | None = None,
        numbered: bool = False,
    ) -> None:
        self._settings = settings
        self._roles = roles
        self._base = base
        self._counts = counts
        self._calibration = calibration
        self._assembly = assembly
        self._group_of = guarded(group_of, nanoseconds(settings.split_gap))
        self._overlapping = overlapping
        self._numbered = numbered
        self._lookahead = nanoseconds(settings.lookahead) + base.spread
        self._gap = nanoseconds(settings.max_gap)
        self._sensors: dict[str, list[str]] = {}
        streams = {}
        for sensor, topic in roles.companions.items():
            if topic != roles.reference:
                tolerance, offset, reuse = settings.stream(sensor)
                streams[sensor] = Stream(tolerance, offset, reuse)
                self._sensors.setdefault(topic, []).append(sensor)
        tolerance = nanoseconds(settings.tolerance)
        if roles.boxes3d is not None:
            streams[BOXES3D] = Stream(tolerance)
        self._aligner: Aligner[_Frame, SensorMessage] = Aligner(streams, self._lookahead)
        self._masks: Aligner[_Result, SensorMessage] = Aligner({MASK: Stream(tolerance, reuse=False)}, self._lookahead)
        self._parser = ReferenceParser()
        self._clock = RunningClock()
        self._segments = Segments()
        self._frames = 0
        self._sequence: int | None = None
        self._gap_before = False
        self._tracks: dict[int, _Tracks] = {}
        self._ready: deque[Aligned[_Frame, SensorMessage]] = deque()
        self._results: OrderedDict[int, _Result] = OrderedDict()
        self._boxes = 0
        self._given: Counter[str] = Counter()
        self._gone: OrderedDict[int, None] = OrderedDict()
        self._late: Counter[str] = Counter()
        self._swept = 0
        calibration.labels = mapped_labels(calibration.labels, settings.label_map)

    # ---- messages ------------------------------------------------------------------------
    def push(self, message: Message, now: int | None = None, video: VideoMessage | None = None) -> None:
        """Take the next message; `now` is a time in ns that only runs forward (default: that of the recording).

        `video`: the message parsed, where that was done on its way.
        """
        now = self._clock.tick(message.log_time) if now is None else now
        if message.topic == self._roles.reference:
            self._reference(message, now, video)
        else:
            try:
                self._companion(message, now, decode(message))
            except MessageError as error:
                self._counts.drop(message.topic, error.reason, why=error)
        self.advance(now)

    def _reference(self, message: Message, now: int, video: VideoMessage | None) -> None:
        number, self._frames = self._frames, self._frames + 1
        if self._numbered and self._sequence is not None and message.sequence != self._sequence + 1:
            self._gap_before = True
        self._sequence = message.sequence
        gap, self._gap_before = self._gap_before, False
        try:
            content = video or self._parser.parse(message)
        except MessageError as error:
            self._assembly.put(CameraMessage(number, error))
            return
        self._assembly.put(CameraMessage(number, content, gap))
        stamp = self._base.stamp(message)
        segment = self._segments.add(stamp)
        own = None
        if self._roles.sensor is not None:
            try:
                storable(self._roles.sensor, content, self._settings.limits)
                own = SensorMessage(message.topic, content, stamp)
            except MessageError:
                pass  # its frame is counted as one that cannot be stored
        join = (header_stamp(message) or 0) if self._base.by_header else stamp
        self._aligner.add_frame(stamp, number, now, _Frame(segment, join, own), segment, self._group())
        if message.topic in (self._roles.gps, self._roles.imu, self._roles.model):
            self._companion(message, now, content)

    def _group(self) -> int:
        """Where segments overlap in time, messages meet only those recorded during the same one."""
        current = self._segments.current
        if self._overlapping is None:
            return self._segments.set_back
        return current if current in self._overlapping else -1

    def _companion(self, message: Message, now: int, content: Any) -> None:
        stamp, group, topic = self._base.stamp(message), self._group(), message.topic
        for sensor in self._sensors.get(topic, ()):
            storable(sensor, content, self._settings.limits)
            offset = self._aligner.streams[sensor].offset
            late = self._aligner.late(sensor, stamp, group)
            self._late[topic] += late
            self._aligner.add(sensor, stamp, now, SensorMessage(topic, content, stamp + offset, late=late), group)
        if topic in (self._roles.gps, self._roles.imu):
            self._track(group).newest = stamp
        if topic == self._roles.gps:
            fix = fix_of(content, stamp)
            if fix is None:
                self._counts.drop(topic, NO_FIX)
            else:
                self._track(group).fixes.add(fix, now)
        if topic == self._roles.imu:
            attitude = attitude_of(content)
            if attitude is None:
                self._counts.drop(topic, NO_ATTITUDE)
            else:
                self._track(group).attitudes.add(stamp, attitude, now)
        self._given[topic] += 1
        if topic == self._roles.model:
            join = (header_stamp(message) or 0) if self._base.by_header else stamp
            late = join in self._gone and topic != self._roles.reference
            self._late[topic] += late  # unless a frame with that stamp is still to come, behind a clock set back
            result = _Result(now, SensorMessage(topic, content, stamp, late=late), self._roles.masks is None)
            self._results.setdefault(join, result)
            if not result.settled:
                self._boxes += 1
                self._masks.add_frame(_published(message), self._boxes, now, result, group=group)
        if topic == self._roles.masks:
            self._masks.add(MASK, _published(message), now, SensorMessage(topic, content, stamp), group)
        if topic == self._roles.boxes3d:
            self._aligner.add(BOXES3D, stamp, now, SensorMessage(topic, content, stamp), group)
        if topic in self._roles.statics:
            self._calibration.take(message.schema, content)
            self._calibration.labels = mapped_labels(self._calibration.labels, self._settings.label_map)

    def _track(self, group: int) -> _Tracks:
        if group not in self._tracks:
            self._tracks[group] = _Tracks(self._gap)
        return self._tracks[group]

    # ---- frames --------------------------------------------------------------------------
    def advance(self, now: int | None) -> None:
        """Hand on the frames that are complete by `now`; all for None."""
        self._ready.extend(self._aligner.release(now))
        for boxes in self._masks.release(now):
            near = boxes.nearest[MASK]
            boxes.item.item.mask, boxes.item.settled = near.item if near is not None else None, True
        while self._ready and (now is None or self._complete(self._ready[0], now)):
            self._assembly.put(self._work(self._ready.popleft()))
        if now is not None and now - self._swept > SWEEP:
            self._swept = now
            self._forget(now)

    def _complete(self, frame: Aligned[_Frame, SensorMessage], now: int) -> bool:
        """Whether all fixes, attitudes and masks have come that could change those of the frame."""
        result = self._results.get(frame.item.join)
        if result is not None and not result.settled:
            return False
        if frame.arrived + self._lookahead > now:
            return False  # whatever the tracks have
        tracks = self._track(frame.group)
        horizon = max(tracks.fixes.horizon(frame.stamp), tracks.attitudes.horizon(frame.stamp), frame.stamp)
        return frame.arrived + horizon - frame.stamp + self._lookahead <= now

    def _work(self, frame: Aligned[_Frame, SensorMessage]) -> Frame:
        tracks = self._track(frame.group)
        work = Frame(frame.number, frame.stamp, frame.item.segment)
        for sensor in self._roles.companions:
            near = frame.nearest.get(sensor)
            if near is not None:
                work.companions[sensor] = (near.stamp, near.item)
        if self._roles.sensor is not None and frame.item.own is not None:
            work.own = (self._roles.sensor, frame.item.own)
        work.position = tracks.fixes.position(frame.stamp)
        work.orientation = tracks.attitudes.orientation(frame.stamp)
        result = self._results.get(frame.item.join)
        work.result = result.item if result is not None else None
        self._gone[frame.item.join] = None
        if len(self._gone) > REMEMBERED:
            self._gone.popitem(last=False)
        boxes3d = frame.nearest.get(BOXES3D)
        work.boxes3d = boxes3d.item if boxes3d is not None else None
        work.group = self._group_of(frame.stamp)
        return work

    def _forget(self, now: int) -> None:
        """Let go of what no frame that waits or is still to come can need."""
        waiting = [*self._ready, *self._aligner.waiting()]
        oldest = min((frame.arrived for frame in waiting), default=now)
        while self._results and next(iter(self._results.values())).arrived < oldest - 2 * self._lookahead:
            self._results.popitem(last=False)
        came = oldest - self._lookahead - 2 * self._gap
        for group, tracks in self._tracks.items():
            first = min((f.stamp for f in waiting if f.group == group), default=None)
            if first is None:  # the camera is silent, maybe for ever
                first = tracks.newest - 2 * self._lookahead
            tracks.fixes.forget(first - self._lookahead, came)
            tracks.attitudes.forget(first - self._lookahead, came)

    def finish(self) -> None:
        """Hand on what is left, and wait until it is written."""
        self._assembly.take_time()
        self.advance(None)
        self._assembly.finish()
        self._late.subtract(self._assembly.late_used)
        for topic, number in self._late.items():
            self._counts.drop(topic, LATE, number)
        for results in (self._roles.model, self._roles.masks, self._roles.boxes3d):
            if results is not None and results != self._roles.reference:
                unused = self._given[results] - self._counts[results].written - self._late[results]
                self._counts.drop(results, NO_SAMPLE, max(0, unused))
        for tracks in self._tracks.values():
            tracks.fixes.close()
            if self._roles.gps is not None:
                self._counts.drop(self._roles.gps, NO_FIX, tracks.fixes.refused)


def _published(message: Message) -> int:
    """The stamp by which masks find their boxes: what a message without a header has (dataset.md 9, "Time")."""
    return message.publish_time or message.log_time


def count_unused(counts: Counts, roles: Roles) -> None:
    """Count the companions' messages that were nearest to no sample; called once all are seen."""
    for topic in set(roles.companions.values()) & set(counts.topics) - {roles.reference}:
        count = counts[topic]
        counts.drop(topic, NOT_NEAREST, count.seen - count.written - sum(count.dropped.values()))
