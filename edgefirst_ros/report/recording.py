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
from edgefirst_ros.errors import RecordingError, UsageError
from edgefirst_ros.messages import Message, header_stamp
from edgefirst_ros.pipeline.facts import DatasetFacts, SequenceFacts
from edgefirst_ros.pipeline.first_pass import TOLD_EVERY, FirstPass, walk
from edgefirst_ros.pipeline.frame import ROWS, Chosen
from edgefirst_ros.pipeline.output import SequenceOutput, open_writer
from edgefirst_ros.progress import Progress, quiet
from edgefirst_ros.report.choosing import Chooser
from edgefirst_ros.report.subject import Subject, TopicTimes
from edgefirst_ros.sources.inputs import RecordingInput
from edgefirst_ros.sync.clock import JUMP_BACK, JUMP_FORWARD

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
"""Settings that say how a dataset is written: those of the one that goes again."""


@dataclass
class _Topic:
    """Times of a topic's messages, 16 bytes each."""

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
        topic = self.topics.get(message.topic)
        if topic is None:
            topic = self.topics[message.topic] = _Topic(message.schema)
        topic.times.append(self._now)
        stamp = header_stamp(message)
        topic.delays.append(message.log_time - stamp if stamp else NEVER)

    def found(self) -> dict[str, TopicTimes]:
        """Return all topics, their times from the first message on."""
        first = min((min(one.times) for one in self.topics.values()), default=0)
        found = {}
        for name, one in self.topics.items():
            times, delays = np.frombuffer(one.times, np.int64), np.frombuffer(one.delays, np.int64)
            order = np.argsort(times, kind="stable")
            late = np.where(delays == NEVER, np.nan, delays / SECOND)
            found[name] = TopicTimes(one.schema, (times[order] - first) / SECOND, late[order])
        return found


@contextmanager
def preview(
    given: RecordingInput, settings: Settings, *, members: bool = True, progress: Progress = quiet
) -> Iterator[Subject]:
    """Give a recording as samples, with the members that a report needs; without `members` only their rows.

    Raises RecordingError where there is no sample.
    """

    def some(found: FirstPass) -> Chosen:
        return Chooser(found.span[1] - found.span[0], found.cut, settings)

    def rows(found: FirstPass) -> Chosen:
        return lambda frame, keyframe: ROWS

    with recorded(given, settings, some if members else rows, progress) as (subject, _):
        yield subject


@contextmanager
def recorded(
    given: RecordingInput, settings: Settings, choose: Callable[[FirstPass], Chosen], progress: Progress = quiet
) -> Iterator[tuple[Subject, FirstPass]]:
    """Give a recording as samples, with the members that `choose` wants. Raises RecordingError where there is none.

    Raises UsageError where several topics are to make samples: a page shows one camera.
    """
    if len(settings.references) > 1:
        raise UsageError(f"reference_topic: one is shown at a time, got {', '.join(map(str, settings.references))}")
    used, watch = settings.model_copy(update=WRITTEN), _Watch()
    first, *more = given.files

    def told(done: int, of: int) -> None:
        progress(f"reading {given.label}", done, of)

    found = walk(first, used, told, watch.take, hashed=True, more=more).conclude(used)
    with tempfile.TemporaryDirectory(prefix="edgefirst-report-") as folder:
        notes, place = _convert(found, safe_name(given.name), Path(folder), used, choose(found), progress)
        yield Subject(given.name, given.path, Dataset(place), watch.found(), notes), found


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
            cut=found.cut,
            chosen=chosen,
        ) as output:
            wanted = found.wanted
            for done, message in enumerate(recording.iter_messages(streamed)):
                if output.is_through:
                    break
                output.push(message)
                if not done % TOLD_EVERY:
                    progress(f"looking at {name}", done, wanted)
            output.finish()
        if output.refused is not None:
            raise output.refused
        if not writer.samples:
            raise RecordingError(
                f"{recording.path}: no sample can be made of it; edgefirst-ros info says what is in it"
            )
        whole.end()
        paths = writer.finish(whole.metadata(), whole.labels, whole.categories, whole.box3d_frame)
    many = len(recording.files) > 1
    notes = [
        f"{file.path.name + ', ' if many else ''}at byte {damage.offset}: {damage.what}"
        for file in recording.files
        for damage in file.damage
    ]
    notes += [*found.roles.notes, *found.calibration.notes, *([found.unknown_labels] if found.unknown_labels else [])]
    notes += [found.cut.note] if found.cut is not None and found.cut.note else []
    return notes, paths.container
