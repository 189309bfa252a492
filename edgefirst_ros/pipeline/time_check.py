# SPDX-License-Identifier: Apache-2.0
"""Time check of a recording: offsets between its sensors, estimated from their content, and drift of their clocks.

Offsets are printed for a rig and never applied.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from edgefirst_ros import streams
from edgefirst_ros.config import SECOND, Settings, to_ns
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.errors import DatasetError, MessageError
from edgefirst_ros.messages import Message, decode
from edgefirst_ros.pipeline.first_pass import TOLD_EVERY, FirstPass
from edgefirst_ros.pipeline.tracks import Poses
from edgefirst_ros.sensors import motion
from edgefirst_ros.sensors.motion import SPEED, TURN, Motion
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.pictures import PictureOptions, PictureSource, open_parser
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sync.offsets import Drift, Offset, find_drift, find_offset

AGREE = 0.02
"""s within which two sensors agree."""
LONGEST = 120
"""s of pictures and scans that are read: those in which the vehicle turns most."""
REORDERED = 16
"""Pictures that may be recorded before one that is shown earlier."""
CAMERA, LIDAR, RADAR = "camera", "lidar.points", "radar.targets"


class Pair(NamedTuple):
    """Two sensors, compared by one motion."""

    first: str
    second: str
    motion: str
    """`turn` or `speed`."""
    offset: Offset
    """Added to the second one's stamps it makes them those of the first."""


@dataclass
class TimeCheck:
    """Offsets between the sensors of a recording, and drifts of their clocks."""

    pairs: list[Pair]
    drifts: dict[str, Drift] = field(default_factory=dict)
    """{sensor: drift of its clock against log_time}."""
    offsets: dict[str, dict[str, float]] = field(default_factory=dict)
    """{sensor whose stamps count: {sensor: s to be added to its stamps}}, one entry for sensors that are compared."""

    def plain(self) -> dict[str, Any]:
        pairs = [
            {"first": one.first, "second": one.second, "motion": one.motion, **one.offset._asdict()}
            | {"certain": one.offset.certain}
            for one in self.pairs
        ]
        drift = {key: one._asdict() for key, one in self.drifts.items()}
        return {"pairs": pairs, "drift": drift, "offsets": self.offsets}


def check_time(found: FirstPass, settings: Settings, progress: Progress = ignore_progress) -> TimeCheck:
    """Estimate the offsets between the sensors of a recording after its first pass.

    Args:
        found: The first pass.
        settings: The settings it was made with; their offsets are in effect, and included in those that are found.
        progress: Is called with (step, done, total).

    Returns:
        The time check.
    """
    check = _Check(found, settings, progress)
    with np.errstate(all="ignore"):  # values that are not finite do not count
        check.read()
        done = TimeCheck(list(check.compare()))
    for key, clock in sorted(check.clocks.items()):
        own_clock = found.base.base != "log" and check.topics[key] not in found.base.replaced
        done.drifts[key] = find_drift(*clock) if own_clock else Drift(None, "log_time is used for its stamps")
    own = {key: settings.stream(key)[1] / SECOND for key in check.topics}
    done.offsets = {
        reference: {key: round(value + own[key], 3) + 0.0 for key, value in of.items()}
        for reference, of in join_pairs(done.pairs).items()
    }
    return done


class _Check:
    """Reads the messages of all sensors, and compares their motions."""

    def __init__(self, found: FirstPass, settings: Settings, progress: Progress) -> None:
        roles = found.roles
        own = roles.sensor or (CAMERA if roles.camera else "")
        named = {own: roles.reference, **roles.companions, "gps": roles.gps, "imu": roles.imu, "pose": roles.pose}
        self.topics: dict[str, str] = {key: topic for key, topic in named.items() if key and topic}
        self.turning = "imu" if "imu" in self.topics or "pose" not in self.topics else "pose"
        """The sensor by which turns are compared."""
        self.clocks: dict[str, tuple[array[int], array[int]]] = {}
        """Stamps and log times of each sensor, ns."""
        self._found, self._settings, self._progress = found, settings, progress
        statics = found.calibration.static_transforms
        self._poses = Poses(to_ns(settings.max_gap), roles.pose_frames, lambda: statics)
        self._motions: dict[tuple[str, str], Motion] = {}

    def of_form(self, form: str, *, radar: bool = False) -> list[str]:
        """Return the keys of the sensors with members of a form, in order; of clouds those of radars or of lidars."""
        keys = [key for key in self.topics if key not in streams.ROLES and streams.is_radar(key) == radar]
        return [key for key in keys if streams.find_by_key(key).form == form]

    def read(self) -> None:
        """Read the stamps of all sensors and what takes little time, then pictures and scans."""
        gyro, poses = motion.GyroMotion(), motion.PlaceMotion()
        sensors: dict[str, motion.SensorMotion] = {"imu": gyro, "gps": motion.PlaceMotion()}
        sensors |= {key: motion.DopplerMotion() for key in self.of_form("cloud", radar=True)}
        for key, stamp, message in self._iter(self.topics):
            stamps, logs = self.clocks.setdefault(key, (array("q"), array("q")))
            stamps.append(stamp)
            logs.append(message.log_time)
            with suppress(MessageError, DatasetError):
                if key in sensors:
                    sensors[key].add(stamp, decode(message))
                elif key == "pose":
                    self._poses.add(message.schema, decode(message), stamp, None, 0, lambda stamp: 0)
        for stamp in self.clocks.get("pose", ((), ()))[0]:
            if (pose := self._poses.at(stamp, 0)) is not None:
                poses.add_pose(stamp, pose.position, pose.orientation)
        scans = {key: motion.ScanMotion() for key in self.of_form("cloud")}
        cameras = {key: _Camera(self._found.topics[self.topics[key]], self._settings) for key in self.of_form("camera")}
        turning = {"imu": gyro, "pose": poses}[self.turning]
        if self.turning in self.topics:
            bulk = {key: self.topics[key] for key in (*scans, *cameras)}
            for key, stamp, message in self._iter(bulk, *self._turning(self.turning, turning.motions[TURN])):
                with suppress(MessageError, DatasetError):
                    scans[key].add(stamp, decode(message)) if key in scans else cameras[key].add(stamp, message)
            for camera in cameras.values():
                camera.close()
        sensors |= {"pose": poses, **scans, **{key: camera.motion for key, camera in cameras.items()}}
        self._motions = {(key, what): one for key, of in sensors.items() for what, one in of.motions.items()}

    def _iter(
        self, topics: Mapping[str, str], start: int | None = None, end: int | None = None
    ) -> Iterator[tuple[str, int, Message]]:
        """Yield key, stamp in ns and message of some sensors, between two log times in ns."""
        keys = {topic: key for key, topic in topics.items()}
        offsets = {key: self._settings.stream(key)[1] for key in topics}
        recording, wanted = self._found.recording, {topic: self._found.topics[topic] for topic in keys}
        total = sum(channel.seen for channel in recording.channels.values() if channel.topic in keys)
        for number, message in enumerate(recording.iter_messages(wanted, start, end)):
            if not number % TOLD_EVERY:
                self._progress("checking time", number, total)
            key = keys[message.topic]
            yield key, self._found.base.stamp(message) + offsets[key], message

    def _turning(self, key: str, turned: Motion) -> tuple[int | None, int | None]:
        """Return the log times in ns between which the vehicle turns most, `LONGEST` apart; None: the whole drive."""
        begin, end = self._found.span
        if end - begin <= LONGEST * SECOND or len(turned.stamps) < 2:
            return None, None
        stamps, logs = self.clocks[key]
        times = np.array(turned.stamps) - stamps[0] + logs[0]
        total = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(turned.totals, axis=0)).sum(axis=1))])
        ends = np.clip(np.searchsorted(times, times + LONGEST * SECOND), None, len(times) - 1)
        first = int(times[(total[ends] - total).argmax()])
        return first, first + LONGEST * SECOND

    def compare(self) -> Iterator[Pair]:
        """Yield all pairs of sensors that measure one motion; of the usual ones also those that are missing."""
        wanted = [(key, self.turning, TURN) for key in self.of_form("camera") or [CAMERA]]
        wanted += [(key, self.turning, TURN) for key in self.of_form("cloud") or [LIDAR]]
        wanted += [(key, "imu", TURN) for key in ("gps", "pose") if {key, "imu"} <= self.topics.keys()]
        speeds = [key for key in ("gps", "pose") if key in self.topics] or ["gps"]
        wanted += [(key, of, SPEED) for key in self.of_form("cloud", radar=True) or [RADAR] for of in speeds]
        for first, second, what in wanted:
            absent = [key for key in (first, second) if key not in self.topics]
            offset = Offset(None, f"the recording has no {' and no '.join(absent)}")
            if not absent:
                offset = find_offset(self._motions[first, what], self._motions[second, what], what)
            yield Pair(first, second, what, offset)


class _Camera:
    """Motion of a camera, whose pictures are decoded in the order in which they are shown."""

    def __init__(self, schema: str, settings: Settings) -> None:
        self.motion = motion.PictureMotion()
        self._parse = open_parser(schema)
        self._pictures = PictureSource(PictureOptions(motion.SmallPictures(), limits=settings.limits))
        self._waiting: list[tuple[int, int, AccessUnit]] = []
        self._number = 0

    def add(self, stamp: int, message: Message) -> None:
        """Add a message. Raises MessageError if it is undecodable."""
        self._number += 1
        try:
            unit = AccessUnit(self._number, self._parse(message))
        except MessageError:
            self._pictures.mark_gap()
            raise
        self._pictures.push(unit)
        heapq.heappush(self._waiting, (stamp, self._number, unit))
        while len(self._waiting) > REORDERED and self._advance(last=False):
            pass

    def close(self) -> None:
        """Take the pictures that wait."""
        while self._waiting and self._advance(last=True):
            pass
        self._pictures.close()

    def _advance(self, *, last: bool) -> bool:
        stamp, _, unit = self._waiting[0]
        found = self._pictures.pop(unit, last=last)
        if found is None:
            return False
        heapq.heappop(self._waiting)
        if isinstance(found, Picture):
            self.motion.add(stamp, found.frame)
        return True


def join_pairs(pairs: list[Pair]) -> dict[str, dict[str, float]]:
    """Return {sensor whose stamps count: {sensor: offset in s}} of sensors that known offsets join.

    The most certain pairs are used. The camera's stamps count, or those of the first sensor, unless most sensors agree
    with each other and not with it.
    """
    groups: dict[str, dict[str, float]] = {}
    known = [pair for pair in pairs if pair.offset.certain]
    for pair in sorted(known, key=lambda pair: pair.offset.uncertainty or 0.0):
        first = groups.setdefault(pair.first, {pair.first: 0.0})
        second = groups.setdefault(pair.second, {pair.second: 0.0})
        if first is not second:
            moved = first[pair.first] + (pair.offset.seconds or 0.0) - second[pair.second]
            first |= {key: value + moved for key, value in second.items()}
            groups |= dict.fromkeys(second, first)
    found: dict[str, dict[str, float]] = {}
    for group in {id(group): group for group in groups.values()}.values():
        order = [key for key in (*(pair.first for pair in pairs), *(pair.second for pair in pairs)) if key in group]
        agreeing = {key: sum(abs(group[key] - value) <= AGREE for value in group.values()) for key in order}
        most = [key for key in order if 2 * agreeing[key] > len(group)]
        reference = min(most or order, key=lambda key: (key != CAMERA, order.index(key)))
        found[reference] = {key: group[key] - group[reference] for key in sorted(group) if key != reference}
    return found
