# SPDX-License-Identifier: Apache-2.0
"""Chooses the frames of a recording that a page shows, so that only their members are made."""

from __future__ import annotations

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.pipeline.frame import ROWS, Frame, Part
from edgefirst_ros.streams import companions
from edgefirst_ros.sync.clock import Cut

PICTURES, LABELS, SKEWS = 16, 6, 4
"""Frames whose pictures are made: spread evenly, for their labels, for their skew."""
TARGETS, CLOUDS = 120, 40
"""Frames whose radar points are made, and those whose lidar points are, spread evenly."""
PATIENCE = 2
"""Slots without a cheap picture after which any is taken."""
WINDOW = 3 * SECOND
"""ns on both sides of the middle in which the cubes that are made lie, so that they follow each other."""
CUBES = 48
"""Most of them."""
CUBE, LIDAR = "radar.cube", "lidar.points"
RADAR = frozenset({"radar.targets", "radar.clusters"})
BESIDE = frozenset(sensor.key for sensor in companions() if sensor.key != CUBE)
"""Members made beside a picture: no cube is drawn there."""


class Chooser:
    """Chooses frames as they come. Owned by the thread that chooses frames."""

    def __init__(self, lasts: int, cut: Cut | None, settings: Settings) -> None:
        """`lasts`: length of the recording, ns; `cut`: what of it is shown."""
        self._settings = settings
        self._lasts = lasts
        self._cut = cut
        self._first: int | None = None
        self._length = 1
        self._parts: dict[int, Part] = {}
        """By frame number, of those that have more than rows."""
        self._labels: dict[str, int] = {}
        self._skews: dict[str, int] = {}
        self._picked = {"label": 0, "skew": 0}
        self._slots = {"picture": -1, "radar": -1, "lidar": -1}
        self._in_window = 0
        self._last: dict[str, int] = {}
        """Stamp of the message of a sensor that the frame before had."""

    def __call__(self, frame: Frame, keyframe: bool) -> Part:
        """Tell how much of a frame is wanted."""
        if frame.number not in self._parts and (part := self._part(frame, keyframe)) is not ROWS:
            self._parts[frame.number] = part
        return self._parts.get(frame.number, ROWS)

    def _part(self, frame: Frame, keyframe: bool) -> Part:
        if self._first is None:
            self._first = frame.stamp
            self._length = max(1, self._left(frame))
        at = frame.stamp - self._first
        looked = frame.result is not None
        fresh = {sensor for sensor in (CUBE, LIDAR) if self._is_fresh(sensor, frame)}
        sensors: set[str] = set()
        picture = self._is_new(frame) or self._is_due("picture", at, PICTURES, cheap=keyframe or looked)
        if picture:
            sensors |= BESIDE
        if self._is_due("radar", at, TARGETS, cheap=looked):
            sensors |= RADAR
        if self._is_due("lidar", at, CLOUDS, cheap=LIDAR in fresh):
            sensors.add(LIDAR)
        if CUBE in fresh and abs(at - self._length // 2) <= WINDOW and self._in_window < CUBES:
            sensors.add(CUBE)
            self._in_window += 1
        return Part(picture, sensors, masks=picture) if sensors else ROWS

    def _left(self, first: Frame) -> int:
        """About how long what is shown lasts from its first frame on, ns."""
        if self._cut is None:
            return self._lasts
        behind = self._lasts * (self._cut.frames - first.number) // max(1, self._cut.frames)
        return min(behind, self._cut.end - first.stamp)

    def _is_fresh(self, sensor: str, frame: Frame) -> bool:
        """True if it has another message of a sensor than the frame before."""
        own = frame.own[1].stamp if frame.own is not None and frame.own[0] == sensor else None
        stamp = frame.companions[sensor][0] if sensor in frame.companions else own
        if stamp is None or self._last.get(sensor) == stamp:
            return False
        self._last[sensor] = stamp
        return True

    def _is_new(self, frame: Frame) -> bool:
        """True if it shows more of a label, or a larger skew, than all frames before."""
        new = False
        boxes = getattr(frame.result.content, "boxes", ()) if frame.result is not None else ()
        counted: dict[str, int] = {}
        for box in boxes:
            counted[box.label] = counted.get(box.label, 0) + 1
        for label, number in counted.items():
            if label not in self._labels and self._picked["label"] < LABELS:
                self._labels[label] = number
                self._picked["label"] += not new
                new = True
        for sensor, (stamp, _) in frame.companions.items():
            far, tolerance = abs(stamp - frame.stamp), self._settings.stream(sensor)[0]
            if far > max(1.25 * self._skews.get(sensor, 0), tolerance / 4) and self._picked["skew"] < SKEWS:
                self._skews[sensor] = far
                self._picked["skew"] += not new
                new = True
        return new

    def _is_due(self, what: str, at: int, number: int, *, cheap: bool) -> bool:
        """True if it is the one of its slot, of `number` over the recording: the first `cheap` one, else any late one.

        A keyframe costs one picture, boxes are to be seen where the model looked, and a message that the frame before
        has too tells nothing new.
        """
        slot, within = divmod(at * number, self._length)
        late = slot - self._slots[what] > PATIENCE or (what != "picture" and 2 * within >= self._length)
        due = slot > self._slots[what] and (cheap or late)
        if due:
            self._slots[what] = slot
        return due
