# SPDX-License-Identifier: Apache-2.0
"""From messages to frames: each message of the reference topic with its aligned messages."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgefirst_ros.config import Settings, to_ns
from edgefirst_ros.counts import CUT, NO_ATTITUDE, NO_FIX, NO_MODEL, PAUSED, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Cubes, Message, decode, read_header_stamp
from edgefirst_ros.pipeline.cameras import CameraMessage, MessageOrder, OtherCamera, Passed
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.frame import Frame, SensorMessage, Usage
from edgefirst_ros.pipeline.tracks import Navigation, Poses
from edgefirst_ros.sensors.calibration import read_frame_id
from edgefirst_ros.sensors.companions import check_storable
from edgefirst_ros.sensors.detections import is_idle
from edgefirst_ros.sensors.pictures import Parsed, open_parser
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.streams import CAMERA
from edgefirst_ros.sync.align import Aligned, Aligner, Stream
from edgefirst_ros.sync.clock import JUMP_BACK, RunningClock, Segments

if TYPE_CHECKING:
    from edgefirst_ros.pipeline.first_pass import FirstPass

Item = AccessUnit | Frame | CameraMessage | Passed
"""Item handed on, from which samples are made."""
MASK = "model.mask"
REMEMBERED = 2048
"""Frames that are remembered: those that came, and those handed on, for which a result would be late."""

Joint = tuple[int, int]
"""Epoch of a frame and the stamp that results join it by: after a clock set back the same stamps come again."""


@dataclass(slots=True)
class _Result:
    """A result and when it came; `complete` once its mask is known, or cannot come any more."""

    arrived: int
    message: SensorMessage
    complete: bool


class ModelResults:
    """Model results by the frame that they join. Owned by the thread that pushes messages."""

    def __init__(self, tolerance: int, lookahead: int) -> None:
        """`tolerance`: largest distance of a mask's stamp from that of its boxes; both in ns."""
        self._lookahead = lookahead
        self._results: OrderedDict[Joint, _Result] = OrderedDict()
        self.masks: Aligner[_Result, SensorMessage] = Aligner({MASK: Stream(tolerance, reuse=False)}, lookahead)
        """Masks without a header, to be added, and the results that they join."""
        self._boxes = 0
        self._taken: OrderedDict[Joint, None] = OrderedDict()
        self._came: OrderedDict[int, int] = OrderedDict()
        """Epoch of the last frame that came, by the stamp that results join it by."""

    def expect(self, stamp: int, epoch: int) -> Joint:
        """Note a frame that came; return the key by which its result is looked up."""
        self._came[stamp] = epoch
        self._came.move_to_end(stamp)
        if len(self._came) > REMEMBERED:
            self._came.popitem(last=False)
        return epoch, stamp

    def joint(self, stamp: int, epoch: int) -> Joint:
        """Return which frame a result of this stamp joins that comes in `epoch`.

        The last one that came with the stamp: the first results after a clock set back are still of frames before it.
        Where that one has its result, or no frame came, one that is still to come.
        """
        last = self._came.get(stamp, epoch), stamp
        return (epoch, stamp) if last in self._results else last

    def add(self, join: Joint, message: SensorMessage, now: int, *, mask_stamp: int | None, epoch: int) -> None:
        """Take a result; `mask_stamp`: the stamp by which a mask without a header finds it, None: it has no mask."""
        result = _Result(now, message, complete=mask_stamp is None)
        self._results.setdefault(join, result)
        if mask_stamp is not None:
            self._boxes += 1
            self.masks.add_frame(mask_stamp, self._boxes, now, result, epoch=epoch)

    def advance(self, now: int | None) -> None:
        """Join masks to the results whose masks must have come by `now`, ns; None: all."""
        for boxes in self.masks.release(now):
            near = boxes.nearest[MASK]
            boxes.item.message.mask, boxes.item.complete = near.item if near is not None else None, True

    def is_late(self, join: Joint) -> bool:
        """True if the frame of a result was handed on already."""
        return join in self._taken

    def is_complete(self, join: Joint) -> bool:
        """True if no further message can belong to the model result of a frame."""
        result = self._results.get(join)
        return result is None or result.complete

    def pop(self, join: Joint) -> SensorMessage | None:
        """Remove and return the model result of a frame that is handed on; None without one."""
        self._taken[join] = None
        if len(self._taken) > REMEMBERED:
            self._taken.popitem(last=False)
        result = self._results.get(join)
        return result.message if result is not None else None

    def forget(self, oldest: int) -> None:
        """Drop results older than any waiting frame; `oldest`: arrival of the first one that waits."""
        while self._results and next(iter(self._results.values())).arrived < oldest - 2 * self._lookahead:
            self._results.popitem(last=False)


BOXES3D = "fusion.boxes3d"
"""Key of 3D boxes, which are aligned with frames in addition to the companions."""
SWEEP = 250_000_000
"""ns of recording between two sweeps of messages that are not needed any more."""


@dataclass(slots=True)
class _Anchor:
    """Payload of a message of the reference topic in the alignment."""

    unit: AccessUnit
    segment: int
    join: Joint  # key by which the model result is looked up
    own: SensorMessage | None


class FrameBuilder:
    """Aligns messages pushed in recorded order.

    `hand_on` gets every message of the reference topic at once, as `AccessUnit`, and its `Frame` when no message that
    is still to come can change it; also those of other `cameras`, by their keys.

    Owns: everything here belongs to the thread that pushes messages, in which `hand_on` is called too.
    """

    def __init__(
        self,
        settings: Settings,
        facts: SequenceFacts,
        usage: Usage,
        hand_on: Callable[[Item], None],
        *,
        cameras: Mapping[str, OtherCamera] = MappingProxyType({}),
        found: FirstPass | None = None,
    ) -> None:
        """`found`: the first pass of the recording; frames outside its cut are counted, and left out. None: live."""
        self._settings = settings
        self._facts = facts
        self._usage = usage
        self._hand_on = hand_on
        self._farthest = to_ns(settings.lookahead)
        """ns from a frame up to which its nearest message counts as outside the tolerance."""
        self._lookahead = self._farthest + facts.base.spread
        self._sensors: dict[str, list[str]] = {}  # topic -> the companion sensors it serves
        roles, tolerance, streams = facts.roles, to_ns(settings.tolerance), {}
        for sensor, topic in roles.companions.items():
            if topic != roles.reference:
                in_time = topic in facts.base.judged
                streams[sensor] = Stream(*settings.stream(sensor), alternatives=sensor in cameras, in_time=in_time)
                self._sensors.setdefault(topic, []).append(sensor)
        if roles.boxes3d is not None:
            streams[BOXES3D] = Stream(tolerance)
        self._aligner: Aligner[_Anchor, SensorMessage] = Aligner(streams, self._lookahead)
        self.closest = self._aligner.closest
        self._results = ModelResults(tolerance, self._lookahead)
        max_gap = to_ns(settings.max_gap)
        self._navigation = Navigation(max_gap)
        self._poses = Poses(max_gap, roles.pose_frames, lambda: facts.calibration.static_transforms)
        self._own = roles.sensor or CAMERA.key
        self._offsets = {key: settings.stream(key)[1] for key in ("gps", "imu", "pose", self._own)}
        """Added to the stamps of messages that are not aligned as companions, ns."""
        self._parse: Callable[[Message], Any] = open_parser(roles.schema) if roles.camera else decode
        self._overlapping = None if found is None else found.overlapping
        preceded = {} if found is None else found.preceded
        self._preceded = {n: stamp for n, stamp in preceded.items() if n not in (self._overlapping or ())}
        self._order = MessageOrder(numbered=found is None or roles.reference in found.numbered)
        self._clock = RunningClock()
        self._segments = Segments()
        self._cameras = cameras
        self._arrived: dict[str, deque[tuple[int, int]]] = {key: deque() for key in cameras}
        """Arrival and number of the messages of other cameras that frames to come may need."""
        self._ready: deque[Aligned[_Anchor, SensorMessage]] = deque()
        self._swept = 0
        self._cut = None if found is None else found.cut
        self._wanted = 0  # frames inside the cut that were not handed on yet
        self.paused = False
        """True while messages of the reference topic become no frames; they are decoded, as later ones need them."""

    # ---- messages ------------------------------------------------------------------------
    def push(self, message: Message, now: int | None = None, parsed: Parsed | MessageError | None = None) -> None:
        """Add the next message; `now` is a monotonic time in ns (default: the running time of the recording).

        `parsed`: the message of a camera, or why it cannot be read, if it was parsed before.
        """
        reference, stamp = message.topic == self._facts.roles.reference, self._facts.base.stamp(message)
        if now is None:
            now = self._clock.tick(message.log_time, stamp if reference else None)
        if reference:
            self._push_reference(message, stamp, now, parsed)
        elif camera := next((key for key in self._sensors.get(message.topic, ()) if key in self._cameras), None):
            self._push_camera(camera, message, stamp, now, parsed)
        else:
            try:
                self._push_other(message, decode(message), stamp, now)
            except MessageError as error:
                self._facts.counts.drop(message.topic, error.reason, why=error)
        self.advance(now)

    def _push_reference(self, message: Message, raw: int, now: int, parsed: Parsed | MessageError | None) -> None:
        roles, stamp = self._facts.roles, raw + self._offsets[self._own]
        number, gap = self._order.add(message, stamp)
        try:
            content = parsed or self._parse(message)
        except MessageError as error:
            content = error
        unit = AccessUnit(number, content, gap)
        if isinstance(content, MessageError):
            self._hand_on(unit)
            return
        unit.wanted = not self.paused and (self._cut is None or self._cut.holds(stamp))
        self._wanted += unit.wanted
        self._hand_on(unit)
        self._record_frame_id(CAMERA.key, message)
        segment = self._segments.add(stamp)
        own = None
        if roles.sensor is not None:
            try:
                check_storable(roles.sensor, content, self._settings.limits)
                self._facts.calibration.record_frame(roles.sensor, content)
                own = SensorMessage(message.topic, content, stamp)
            except MessageError:
                pass  # its frame is counted as one that cannot be stored
        epoch = self._epoch
        anchor = _Anchor(unit, segment, self._results.expect(self._join_stamp(message, raw), epoch), own)
        self._aligner.add_frame(stamp, number, now, anchor, segment, epoch)
        if message.topic in (roles.gps, roles.imu, roles.pose, roles.model):
            self._push_other(message, content, raw, now)

    def _record_frame_id(self, camera: str, message: Message) -> None:
        pictures = self._facts.calibration.cameras.get(camera)
        if pictures is not None and pictures.frame_id is None:
            pictures.frame_id = read_frame_id(decode(message)) or ""

    @property
    def _epoch(self) -> int:
        return self._segments.epoch(self._overlapping)

    def _push_camera(
        self, key: str, message: Message, stamp: int, now: int, parsed: Parsed | MessageError | None
    ) -> None:
        """Hand on a message of another camera, and align it if it is clean."""
        topic, epoch = message.topic, self._epoch
        unit, fault = self._cameras[key].judge(message, stamp, parsed)
        late = self._aligner.late(key, stamp, epoch)
        found = SensorMessage(topic, unit, stamp + self._aligner.streams[key].offset, late=late, epoch=epoch)
        self._hand_on(CameraMessage(key, found))
        if fault is not None:
            self._facts.counts.drop(topic, fault.reason, why=fault)
            return
        self._record_frame_id(key, message)
        self._usage.add(found, self._segments.current)
        self._aligner.add(key, stamp, now, found, epoch)
        self._arrived[key].append((now, unit.number))

    def _push_other(self, message: Message, content: Any, stamp: int, now: int) -> None:
        """Pass a message to every role of its topic; raises MessageError if it cannot be stored."""
        facts, roles, topic = self._facts, self._facts.roles, message.topic
        epoch = self._epoch
        for sensor in self._sensors.get(topic, ()):
            check_storable(sensor, content, self._settings.limits)
            facts.calibration.record_frame(sensor, content)
            late = self._aligner.late(sensor, stamp, epoch)
            found = SensorMessage(topic, content, stamp + self._aligner.streams[sensor].offset, late=late)
            self._usage.add(found, self._segments.current)
            self._aligner.add(sensor, stamp, now, found, epoch)
        offsets = self._offsets
        if topic == roles.gps:
            facts.calibration.record_frame("gps", content)
            if not self._navigation.add_fix(content, stamp + offsets["gps"], now, epoch):
                facts.counts.drop(topic, NO_FIX)
        if topic == roles.imu:
            facts.calibration.record_frame("imu", content)
            if not self._navigation.add_attitude(content, stamp + offsets["imu"], now, epoch):
                facts.counts.drop(topic, NO_ATTITUDE)
        if topic == roles.pose:
            self._push_pose(message, content, stamp + offsets["pose"], now)
        if topic == roles.model and is_idle(content):
            facts.counts.drop(topic, NO_MODEL)
        elif topic == roles.model:
            self._push_result(message, content, stamp, now)
        if topic == roles.masks:
            mask = SensorMessage(topic, content, stamp)
            self._usage.add(mask, self._segments.current)
            self._results.masks.add(MASK, _read_joint_stamp(message), now, mask, epoch)
        if topic == roles.boxes3d:
            if isinstance(content, Cubes):  # of the picture with the same stamp
                stamp += offsets[self._own]
            boxes = SensorMessage(topic, content, stamp)
            self._usage.add(boxes, self._segments.current)
            self._aligner.add(BOXES3D, stamp, now, boxes, epoch)
        if topic in roles.statics:
            facts.calibration.add(message.schema, content, message.log_time, topic)
            self._poses.renew()

    def _push_pose(self, message: Message, content: Any, stamp: int, now: int) -> None:
        facts, topic = self._facts, message.topic
        own = facts.base.base == "header" and topic not in facts.base.replaced
        offset = self._offsets["pose"] if own else None
        back = max(JUMP_BACK, self._lookahead)
        fault = self._poses.add(message.schema, content, stamp, offset, now, lambda at: self._segments.of(at, back))
        if fault:
            facts.counts.drop(topic, fault)
        if self._poses.source is not None and not facts.pose:
            frame, child = self._poses.source
            facts.pose.update(frame=frame, topic=topic, type=message.schema, child=child)

    def _push_result(self, message: Message, content: Any, stamp: int, now: int) -> None:
        roles, topic, epoch = self._facts.roles, message.topic, self._epoch
        join = self._results.joint(self._join_stamp(message, stamp), epoch)
        # Unless a frame with that stamp is still to come, after the clock was set back.
        late = self._results.is_late(join) and topic != roles.reference
        result = SensorMessage(topic, content, stamp + self._offsets[self._own], late=late)
        self._usage.add(result, self._segments.current)
        mask_stamp = _read_joint_stamp(message) if roles.masks is not None else None
        self._results.add(join, result, now, mask_stamp=mask_stamp, epoch=epoch)

    def _join_stamp(self, message: Message, stamp: int) -> int:
        """Return the stamp by which results join frames; `stamp`: that of the time base."""
        base = self._facts.base
        if not base.by_header or (base.base == "header" and message.topic not in base.replaced):
            return stamp
        return read_header_stamp(message) or 0

    # ---- frames --------------------------------------------------------------------------
    def advance(self, now: int | None) -> None:
        """Hand on the frames that are complete by `now`, ns; None: all."""
        self._ready += self._aligner.release(now)
        self._results.advance(now)
        while self._ready and (now is None or self._is_complete(self._ready[0], now)):
            aligned = self._ready.popleft()
            frame = self._frame(aligned)
            if aligned.item.unit.wanted:
                self._wanted -= 1
                self._hand_on(frame)
            else:
                self._facts.counts.drop(self._facts.roles.reference, CUT if self._cut is not None else PAUSED)
        if now is not None and now - self._swept > SWEEP:
            self._swept = now
            self._forget(now)

    @property
    def is_through(self) -> bool:
        """True if every frame inside the cut was handed on; False without a cut."""
        return self._cut is not None and not self._wanted and self._order.messages > self._cut.last

    def count_rest(self) -> None:
        """Count the messages of the reference topic that are not pushed any more, once `is_through`."""
        if self._cut is not None:
            whole, broken = self._cut.count_left(self._order.messages)
            self._facts.counts.drop(self._facts.roles.reference, CUT, whole)
            self._facts.counts.drop(self._facts.roles.reference, UNDECODABLE, broken)

    def _is_complete(self, aligned: Aligned[_Anchor, SensorMessage], now: int) -> bool:
        """True if all fixes, attitudes and masks have come that could change the frame."""
        if not self._results.is_complete(aligned.item.join) or aligned.arrived + self._lookahead > now:
            return False  # no horizon is earlier than the frame
        later = self._preceded.get(aligned.item.segment)  # a fix recorded in a later one may be needed
        if later is not None and aligned.stamp <= later:
            wait = 2 * to_ns(self._settings.max_gap)  # no longer, or waiting frames would have no bound
            return aligned.arrived + wait + self._lookahead <= now
        located = (aligned.nearest.get(key) for key in (BOXES3D, *self._cameras))
        stamps = [aligned.stamp, *(near.stamp for near in located if near is not None)]
        stamps += [near.stamp for others in aligned.others.values() for near in others]
        segment = aligned.item.segment
        known = (self._navigation.horizon(stamp, aligned.epoch) for stamp in stamps)
        horizon = max(*known, *(self._poses.horizon(stamp, segment) for stamp in stamps))
        return aligned.arrived + horizon - aligned.stamp + self._lookahead <= now

    def _frame(self, aligned: Aligned[_Anchor, SensorMessage]) -> Frame:
        roles, anchor = self._facts.roles, aligned.item
        frame = Frame(anchor.unit, aligned.stamp, anchor.segment, epoch=aligned.epoch)
        for sensor in roles.companions:
            near, far = aligned.nearest.get(sensor), aligned.outside.get(sensor)
            if far is not None and not far.item.late and abs(far.stamp - aligned.stamp) <= self._farthest:
                frame.outside.append(far.item)
            if near is not None:
                frame.companions[sensor] = (near.stamp, near.item)
                if sensor in self._cameras:
                    frame.others[sensor] = [(other.stamp, other.item) for other in aligned.others[sensor]]
                    for other in (near, *aligned.others[sensor]):
                        other.item.place = other.item.place or self._navigation.at(other.stamp, aligned.epoch)
        if roles.sensor is not None and anchor.own is not None:
            frame.own = (roles.sensor, anchor.own)
        frame.position, frame.orientation = self._navigation.at(aligned.stamp, aligned.epoch)
        frame.pose = self._poses.at(aligned.stamp, anchor.segment)
        frame.result = self._results.pop(anchor.join)
        boxes3d = aligned.nearest.get(BOXES3D)
        if boxes3d is not None and isinstance(boxes3d.item.content, Cubes):
            if boxes3d.stamp == aligned.stamp:
                frame.boxes3d = boxes3d.item
                frame.world = self._poses.world(aligned.stamp, anchor.segment)
        elif boxes3d is not None:
            frame.boxes3d = boxes3d.item
            moved = self._poses.motion(boxes3d.stamp, aligned.stamp, anchor.segment)
            if moved is None:
                moved = self._navigation.motion(boxes3d.stamp, aligned.stamp, aligned.epoch)
            frame.motion = moved
        return frame

    def _forget(self, now: int) -> None:
        """Drop messages that no waiting or future frame can need."""
        waiting = [*self._ready, *self._aligner.waiting()]
        oldest = min((aligned.arrived for aligned in waiting), default=now)
        self._results.forget(oldest)
        first: dict[int, int] = {}
        of_segment: dict[int, int] = {}
        for aligned in waiting:
            for by, key in ((first, aligned.epoch), (of_segment, aligned.item.segment)):
                by[key] = min(by.get(key, aligned.stamp), aligned.stamp)
        reach = self._lookahead + self._aligner.max_skew
        came_before = oldest - reach - 2 * to_ns(self._settings.max_gap)
        self._navigation.forget(first, reach, came_before)
        self._poses.forget(of_segment, self._segments.current, reach, came_before)
        for camera, arrived in self._arrived.items():
            passed = -1
            while arrived and arrived[0][0] < oldest - reach:
                passed = arrived.popleft()[1]
            if passed >= 0:
                self._hand_on(Passed(camera, passed))

    def close(self) -> None:
        """Count the fixes without a neighbour within `max_gap`, once all frames are handed on."""
        refused = self._navigation.close()
        if self._facts.roles.gps is not None:
            self._facts.counts.drop(self._facts.roles.gps, NO_FIX, refused)


def _read_joint_stamp(message: Message) -> int:
    """Return the stamp that joins masks to boxes: that of a message without a header."""
    return message.publish_time or message.log_time
