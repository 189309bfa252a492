# SPDX-License-Identifier: Apache-2.0
"""A recording as the pipeline sees it: all rows of its samples, and the members of a few, in a folder that goes again.

Pictures are decoded where they are shown or their brightness is taken; of the others only the headers are read.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.names import safe_name
from edgefirst_ros.errors import RecordingError
from edgefirst_ros.messages import Message, header_stamp
from edgefirst_ros.pipeline.facts import DatasetFacts, SequenceFacts
from edgefirst_ros.pipeline.first_pass import FirstPass, walk
from edgefirst_ros.pipeline.frame import Frame
from edgefirst_ros.pipeline.output import SequenceOutput, open_writer
from edgefirst_ros.pipeline.samples import Chosen, Part
from edgefirst_ros.progress import Progress, quiet
from edgefirst_ros.report.subject import Subject, TopicTimes
from edgefirst_ros.sync.clock import JUMP_BACK, JUMP_FORWARD

PICTURES, LABELS, SKEWS, CLOUDS = 16, 6, 4, 120
"""Frames whose pictures are made, spread evenly, for their labels, for their skew; those for companions alone."""
PATIENCE = 2
"""Slots without a cheap picture after which any is taken."""
WINDOW = 3 * SECOND
"""ns on both sides of the middle in which all companions are kept, so that cubes follow each other."""
MOST_IN_WINDOW = 48
"""Frames with another radar cube that are kept in there."""
QUALITY = 85


@dataclass
class _Topic:
    """When messages of a topic came: 16 bytes each."""

    schema: str
    times: array[int] = field(default_factory=lambda: array("q"))
    delays: array[int] = field(default_factory=lambda: array("q"))


NEVER = -(1 << 62)


class _Watch:
    """Takes all messages of the first walk; a clock that is set moves nothing."""

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self._now = 0
        self._last: int | None = None

    def take(self, message: Message) -> None:
        """Take note of a message."""
        if self._last is not None:
            step = message.log_time - self._last
            self._now += step if -JUMP_BACK < step < JUMP_FORWARD else 0
        self._last = message.log_time
        topic = self.topics.setdefault(message.topic, _Topic(message.schema))
        topic.times.append(self._now)
        stamp = header_stamp(message)
        topic.delays.append(message.log_time - stamp if stamp else NEVER)

    def found(self) -> dict[str, TopicTimes]:
        """All topics, their times from the first message on."""
        first = min((min(one.times) for one in self.topics.values()), default=0)
        found = {}
        for name, one in self.topics.items():
            times, delays = np.frombuffer(one.times, np.int64), np.frombuffer(one.delays, np.int64)
            order = np.argsort(times, kind="stable")
            late = np.where(delays == NEVER, np.nan, delays / SECOND)
            found[name] = TopicTimes(one.schema, (times[order] - first) / SECOND, late[order])
        return found


class _Chooser:
    """Chooses frames as they come: the first of each label, every larger skew, keyframes spread evenly."""

    def __init__(self, span: tuple[int, int], settings: Settings) -> None:
        self._settings = settings
        self._length = max(span[1] - span[0], 1)
        self._first: int | None = None
        self._parts: dict[int, Part] = {}
        """By frame number, of those that have more than rows."""
        self._labels: dict[str, int] = {}
        self._skews: dict[str, int] = {}
        self._picked = {"label": 0, "skew": 0}
        self._slots = {"picture": -1, "companions": -1}
        self._in_window = 0
        self._cube: int | None = None

    def __call__(self, frame: Frame, keyframe: bool) -> Part:
        """Tell how much of a frame is wanted."""
        if frame.number not in self._parts and (part := self._part(frame, keyframe)) is not Part.ROWS:
            self._parts[frame.number] = part
        return self._parts.get(frame.number, Part.ROWS)

    def _part(self, frame: Frame, keyframe: bool) -> Part:
        self._first = frame.stamp if self._first is None else self._first
        at = frame.stamp - self._first
        looked = frame.result is not None
        if self._is_new(frame) or self._is_due("picture", at, PICTURES, cheap=keyframe or looked):
            return Part.ALL
        if self._in_middle(frame, at) or self._is_due("companions", at, CLOUDS, cheap=looked):
            return Part.COMPANIONS
        return Part.ROWS

    def _is_new(self, frame: Frame) -> bool:
        """Whether it shows more of a label, or a larger skew, than all frames before."""
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
        """Whether it is the one of its slot, of `number` over the recording: the first `cheap` one, else any late one.

        A keyframe costs one picture, and boxes are to be seen where the model looked.
        """
        slot, within = divmod(at * number, self._length)
        late = slot - self._slots[what] > PATIENCE or (what == "companions" and 2 * within >= self._length)
        due = slot > self._slots[what] and (cheap or late)
        if due:
            self._slots[what] = slot
        return due

    def _in_middle(self, frame: Frame, at: int) -> bool:
        """Whether it has another cube than the frame before, near the middle."""
        cube = frame.companions.get("radar.cube")
        if cube is None or abs(at - self._length // 2) > WINDOW or self._in_window >= MOST_IN_WINDOW:
            return False
        new = cube[0] != self._cube
        self._cube = cube[0]
        self._in_window += new
        return new


@contextmanager
def preview(path: Path, *, members: bool = True, progress: Progress = quiet) -> Iterator[Subject]:
    """Give a recording as samples, with the members that a report needs; without `members` only their rows.

    Raises RecordingError where there is no sample.
    """
    with recorded(path, _some if members else _rows, progress) as (subject, _):
        yield subject


def _some(found: FirstPass) -> Chosen:
    return _Chooser(found.span, Settings())


def _rows(found: FirstPass) -> Chosen:
    return lambda frame, keyframe: Part.ROWS


@contextmanager
def recorded(
    path: Path, choose: Callable[[FirstPass], Chosen], progress: Progress = quiet
) -> Iterator[tuple[Subject, FirstPass]]:
    """Give a recording as samples, with the members that `choose` wants. Raises RecordingError where there is none."""
    settings, watch = Settings(jpeg_quality=QUALITY), _Watch()
    walked = walk(path, settings, lambda done, of: progress(f"reading {path.name}", done, of), watch.take, hashed=True)
    found = walked.conclude(settings)
    name = safe_name(path.stem)
    with tempfile.TemporaryDirectory(prefix="edgefirst-report-") as folder:
        notes, place = _convert(found, name, Path(folder), settings, choose(found), progress)
        yield Subject(path.stem, path, Dataset(place), watch.found(), notes), found


def _convert(
    found: FirstPass, name: str, folder: Path, settings: Settings, chosen: Chosen, progress: Progress
) -> tuple[list[str], Path]:
    """Write the samples into a folder; returns what the user should know, and the dataset."""
    roles, counts, recording = found.roles, Counts(), found.recording
    found.count(counts)
    sources = [file.plain for file in recording.files]
    facts = SequenceFacts(name, roles, found.base, found.calibration, counts, sources)
    whole = DatasetFacts(settings)
    whole.begin(facts)
    with open_writer(settings, roles, folder, name, describe=dict) as writer:
        streamed = {topic: schema for topic, schema in found.topics.items() if topic in roles.streamed}
        with SequenceOutput(
            settings,
            facts,
            writer,
            overlapping=found.overlapping,
            preceded=found.preceded,
            numbered=found.numbered,
            chosen=chosen,
        ) as output:
            for done, message in enumerate(recording.iter_messages(streamed)):
                output.push(message)
                progress(f"looking at {name}", done, found.wanted)
            output.finish()
        if output.refused is not None:
            raise output.refused
        if not writer.samples:
            raise RecordingError(
                f"{recording.path}: no sample can be made of it; edgefirst-ros info says what is in it"
            )
        whole.end()
        paths = writer.finish(whole.metadata(), whole.labels)
    notes = [f"at byte {damage.offset}: {damage.what}" for damage in recording.damage]
    notes += [*found.roles.notes, *found.calibration.notes]
    return notes, paths.container
