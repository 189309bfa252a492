# SPDX-License-Identifier: Apache-2.0
"""A recording as the pipeline sees it: all rows of its samples, and the members of a few, in a temporary folder.

Pictures are decoded where they are shown or their brightness is used; of the others only the headers are read.
"""

from __future__ import annotations

import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import make_safe
from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.messages import Message, read_header_stamp
from edgefirst_ros.pipeline.facts import DatasetFacts
from edgefirst_ros.pipeline.first_pass import FirstPass, walk
from edgefirst_ros.pipeline.frame import ROWS, Chosen, Frame, Part
from edgefirst_ros.pipeline.output import SequenceOutput, open_writer
from edgefirst_ros.pipeline.time_check import check_time
from edgefirst_ros.report.subject import ReportSubject, TopicMessages
from edgefirst_ros.sources.inputs import RecordingInput
from edgefirst_ros.streams import find_by_key
from edgefirst_ros.sync.clock import JUMP_BACK, JUMP_FORWARD, Cut

WRITTEN = {
    "jpeg_quality": 85,
    "camera_format": "jpeg",
    "pcd": "binary",
    "layout": "zip",
    "schema_version": Settings.model_fields["schema_version"].default,
    "split": {},
    "group": {},
    "stable": False,
    "lidar_images": False,
    "polygons": False,
}
"""Settings of the form of the temporary dataset."""


NEVER = -(1 << 62)


class _Watch:
    """Notes all messages of the first walk; its time ignores steps of a clock that is set."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, array[int], array[int]]] = {}
        """Type, times and delays of the messages of each topic."""
        self._now = 0
        self._last: int | None = None

    def add(self, message: Message) -> None:
        """Add a message."""
        if self._last is not None:
            step = message.log_time - self._last
            self._now += step if -JUMP_BACK < step < JUMP_FORWARD else 0
        self._last = message.log_time
        if message.topic not in self.topics:
            self.topics[message.topic] = message.schema, array("q"), array("q")
        _, times, delays = self.topics[message.topic]
        times.append(self._now)
        stamp = read_header_stamp(message)
        delays.append(message.log_time - stamp if stamp else NEVER)

    def list_topics(self) -> dict[str, TopicMessages]:
        """Return all topics, their times from the first message on."""
        first = min((min(times) for _, times, _ in self.topics.values()), default=0)
        found = {}
        for name, (schema, *its) in self.topics.items():
            times, delays = (np.frombuffer(one, np.int64) for one in its)
            order = np.argsort(times, kind="stable")
            late = np.where(delays == NEVER, np.nan, delays / SECOND)
            found[name] = TopicMessages(schema, (times[order] - first) / SECOND, late[order])
        return found


@contextmanager
def open_preview(
    given: RecordingInput, settings: Settings, *, members: bool, timed: bool, progress: Progress
) -> Iterator[ReportSubject]:
    """Yield a recording as samples, with the members that a report needs; without `members` only their rows.

    With `timed` it has offsets between its sensors. Raises RecordingError without a sample.
    """

    def choose(found: FirstPass) -> Chosen:
        if not members:
            return lambda frame, keyframe: ROWS
        sensors = filter(None, [*found.roles.companions, found.roles.sensor])
        return Chooser(found.span[1] - found.span[0], found.cut, settings, sensors)

    with open_recording(given, settings, choose, progress) as (subject, found):
        if timed:
            subject.time_check = check_time(found, settings, progress)
        yield subject


@contextmanager
def open_recording(
    given: RecordingInput,
    settings: Settings,
    choose: Callable[[FirstPass], Chosen],
    progress: Progress = ignore_progress,
) -> Iterator[tuple[ReportSubject, FirstPass]]:
    """Yield a recording as samples, with the members that `choose` needs. Raises RecordingError without any.

    Raises UsageError where several topics are to make samples: a page shows one camera.
    """
    if len(settings.references) > 1:
        raise UsageError(f"reference_topic: one is shown at a time, got {', '.join(map(str, settings.references))}")
    used, watch = settings.model_copy(update=WRITTEN), _Watch()
    first, *more = given.files

    def told(done: int, of: int) -> None:
        progress(f"reading {given.label}", done, of)

    found = walk(first, used, told, watch.add, hashed=True, more=more).conclude(used)
    with tempfile.TemporaryDirectory(prefix="edgefirst-report-") as folder:
        notes, place = _convert(found, make_safe(given.name), Path(folder), used, choose(found), progress)
        yield ReportSubject(given.name, str(given.path), Dataset(place), watch.list_topics(), notes), found


def _convert(
    found: FirstPass, name: str, folder: Path, settings: Settings, chosen: Chosen, progress: Progress
) -> tuple[list[str], Path]:
    """Write the samples into a folder; returns notes to the user, and the dataset."""
    recording, facts, whole = found.recording, found.sequence(name), DatasetFacts(settings)
    whole.begin(facts)
    with open_writer(settings, found.roles, folder, name, describe=dict) as writer:
        with SequenceOutput(settings, facts, writer, found, chosen=chosen) as output:
            output.read(found, partial(progress, f"looking at {name}"))
        if output.refused is not None:
            raise output.refused
        if not writer.samples:
            raise RecordingError(f"{recording.path}: it has no samples; edgefirst-ros info shows its content")
        whole.end()
        paths = writer.finish(whole.metadata(), whole.labels, whole.categories, whole.box3d_frame)
    many = len(recording.files) > 1
    notes = [
        f"{file.path.name + ', ' if many else ''}at byte {damage.offset}: {damage.what}"
        for file in recording.files
        for damage in file.damage
    ]
    notes += [*found.roles.notes, *found.calibration.notes]
    notes += filter(None, [found.unknown_labels, found.cut.note if found.cut is not None else ""])
    return notes, paths.container


PICTURES, LABELS, SKEWS = 16, 6, 4
"""Frames whose pictures are made: spread evenly, for their labels, for their skew."""
TARGETS, CLOUDS = 120, 40
"""Frames whose radar points are made, and those whose lidar points are, spread evenly."""
PATIENCE = 2
"""Slots without a cheap picture after which any is used."""
WINDOW = 3 * SECOND
"""ns on both sides of the middle in which the cubes that are made are, so that they follow each other."""
CUBES = 48
"""Most of them."""
CUBE, LIDAR, RADAR = "radar.cube", "lidar.points", ("radar.targets", "radar.clusters")


class Chooser:
    """Chooses frames as they come. Owned by the thread that chooses frames."""

    def __init__(self, lasts: int, cut: Cut | None, settings: Settings, sensors: Iterable[str]) -> None:
        """`lasts`: length of the recording, ns; `cut`: what of it is shown; `sensors`: keys of those that it has."""
        self._bases = {sensor: find_by_key(sensor).base for sensor in sensors}
        self._settings = settings
        self._lasts = lasts
        self._cut = cut
        self._first: int | None = None
        self._length = 1
        self._parts: dict[int, Part] = {}
        """By frame number, of those that have more than rows."""
        self._labels: set[str] = set()
        self._skews: dict[str, int] = {}
        self._picked = {"label": 0, "skew": 0}
        self._slots = {"picture": -1, "radar": -1, "lidar": -1}
        self._in_window: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        """Stamp of the message of a sensor that the frame before had."""

    def __call__(self, frame: Frame, keyframe: bool) -> Part:
        """Return the part of a frame that is needed."""
        if frame.number not in self._parts and (part := self._choose_part(frame, keyframe)) is not ROWS:
            self._parts[frame.number] = part
        return self._parts.get(frame.number, ROWS)

    def _choose_part(self, frame: Frame, keyframe: bool) -> Part:
        if self._first is None:
            self._first = frame.stamp
            self._length = max(1, self._lasts)
            if self._cut is not None:  # about as long as its part of the messages
                share = self._lasts * (self._cut.frames - frame.number) // max(1, self._cut.frames)
                self._length = max(1, min(share, self._cut.end - frame.stamp))
        at = frame.stamp - self._first
        looked = frame.result is not None
        fresh = {sensor for sensor in self._of(CUBE, LIDAR) if self._is_fresh(sensor, frame)}
        sensors: set[str] = set()
        picture = self._is_new(frame) or self._is_due("picture", at, PICTURES, cheap=keyframe or looked)
        if picture:
            sensors |= self._bases.keys() - self._of(CUBE)  # no cube is drawn beside a picture
        if self._is_due("radar", at, TARGETS, cheap=looked):
            sensors |= self._of(*RADAR)
        if self._is_due("lidar", at, CLOUDS, cheap=not fresh.isdisjoint(self._of(LIDAR))):
            sensors |= self._of(LIDAR)
        for cube in fresh & self._of(CUBE) if abs(at - self._length // 2) <= WINDOW else ():
            if self._in_window[cube] < CUBES:
                sensors.add(cube)
                self._in_window[cube] += 1
        return Part(picture, sensors, masks=picture) if picture or sensors else ROWS

    def _of(self, *bases: str) -> set[str]:
        return {sensor for sensor, base in self._bases.items() if base in bases}

    def _is_fresh(self, sensor: str, frame: Frame) -> bool:
        """True if it has another message of a sensor than the frame before."""
        own = frame.own[1].stamp if frame.own is not None and frame.own[0] == sensor else None
        stamp = frame.companions[sensor][0] if sensor in frame.companions else own
        if stamp is None or self._last.get(sensor) == stamp:
            return False
        self._last[sensor] = stamp
        return True

    def _is_new(self, frame: Frame) -> bool:
        """True if it shows a label that no frame before has, or a larger skew than all of them."""
        new = False
        boxes = getattr(frame.result.content, "boxes", ()) if frame.result is not None else ()
        for label in dict.fromkeys(box.label for box in boxes):
            if label not in self._labels and self._picked["label"] < LABELS:
                self._labels.add(label)
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

        A keyframe costs one picture, boxes show where the model ran, and a message of the frame before adds no
        information.
        """
        slot, within = divmod(at * number, self._length)
        late = slot - self._slots[what] > PATIENCE or (what != "picture" and 2 * within >= self._length)
        due = slot > self._slots[what] and (cheap or late)
        if due:
            self._slots[what] = slot
        return due
