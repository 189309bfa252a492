# SPDX-License-Identifier: Apache-2.0
"""The first pass through a recording: its topics, the clock, calibration and labels."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np

from edgefirst_ros import streams
from edgefirst_ros.config import Settings, to_ns
from edgefirst_ros.counts import OTHER_TYPE, RECORDED_TWICE, UNDECODABLE, Counts, name_encoding
from edgefirst_ros.errors import MessageError, RecordingError, UsageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.messages import KNOWN_TOPICS, Message, decode, find_known_name, list_transforms, read_header_stamp
from edgefirst_ros.pipeline.facts import SequenceFacts, open_calibration
from edgefirst_ros.sensors.calibration import MOST_TRANSFORMS, Calibration, read_frame_id
from edgefirst_ros.sensors.cloud import SPEEDS
from edgefirst_ros.sensors.detections import find_unknown_labels
from edgefirst_ros.sensors.picture import Picture, PictureEncoder
from edgefirst_ros.sensors.pictures import PictureOptions, PictureSource, open_parser
from edgefirst_ros.sensors.transforms import find_chain
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sources.inputs import open_files
from edgefirst_ros.sources.order import order_topic
from edgefirst_ros.sources.source import Damage, Recording
from edgefirst_ros.sources.tiles import TiledRecording
from edgefirst_ros.sources.topics import STATICS, Roles, choose_topics, find_radars
from edgefirst_ros.streams import (
    CAMERA_INFO,
    CAMERA_TYPES,
    CLOUD,
    COMPRESSED_IMAGE,
    CUBE,
    CUBES,
    DETECT,
    FIX,
    IMAGE,
    IMU,
    ROLES,
)
from edgefirst_ros.sync.clock import Cut, Segments, TimeBase, TopicTimes, choose

MOST_TRIED = 1000
"""Messages that are tried at most."""


class CameraFacts:
    """Decodes messages of one topic until one yields a picture. Owned by the thread of the first pass."""

    def __init__(self, topic: str, schema: str, limits: Limits) -> None:
        self.topic = topic
        self.codec = ""
        self.size: tuple[int, int] | None = None
        """Width and height, pixels; None while no picture was found."""
        self._schema = schema
        self._parse = open_parser(schema)
        self._number = 0
        options = PictureOptions(PictureEncoder("jpeg", 90), keyframes_only=True, limits=limits)
        self._pictures = PictureSource(options)

    @property
    def is_done(self) -> bool:
        """True if a picture was found, or enough messages were tried."""
        return self.size is not None or self._number >= MOST_TRIED

    def offer(self, message: Message) -> None:
        """Try the next message, unless a picture was found."""
        if self.is_done or message.schema != self._schema:
            return
        self._number += 1
        try:
            parsed = self._parse(message)
        except MessageError:
            return
        self.codec = parsed.form
        if is_no_camera(self.topic, self.codec):
            return
        unit = AccessUnit(self._number, parsed)
        self._pictures.push(unit)
        if not unit.keyframe:
            self._pictures.skip(unit)
            return
        found = self._pictures.pop(unit, last=True)
        if isinstance(found, Picture):
            self.size = found.size
            self._pictures.close()

    def plain(self) -> dict[str, Any]:
        """{"topic", "codec", "width", "height"}; a null size where no picture was found, codec where no message was."""
        width, height = self.size or (None, None)
        return {"topic": self.topic, "codec": self.codec or None, "width": width, "height": height}


STATIC_TYPES = (CAMERA_INFO, *KNOWN_TOPICS["model/info"])
"""Types of calibration and labels, under any topic."""
DEPTHS = ("16UC1", "16SC1", "32SC1", "32FC1")
"""Encodings of depth, disparity and labels, also at the beginning of the `format` of compressed pictures of these."""
SCANNED = re.compile(r"(?i)(radar|navtech)/(polar|cartesian)")
"""In the names of topics with scans of a turning radar as pictures, such as those of Navtech's."""
RANGES = "mono16"
"""Encoding of the images that lidars make of their scans: an Ouster makes four."""
RADAR = {"rcs", "vx", *SPEEDS} - {"velocity", "v"}
"""Fields of clouds that only radars have, in small letters."""
ALIGNED = frozenset(topic.name for topic in streams.list_topics() if topic.aligned)
"""The device's names of topics that are aligned with the frames by time."""
TOLD_EVERY = 32
"""Messages between two reports of progress."""


@dataclass(slots=True)
class _StampSequence:
    """Sequence numbers and stamps of all messages of a topic that may be the reference, 32 bytes each."""

    numbers: array[int] = field(default_factory=lambda: array("I"))
    files: array[int] = field(default_factory=lambda: array("I"))
    header: array[int] = field(default_factory=lambda: array("q"))
    publish: array[int] = field(default_factory=lambda: array("q"))
    log: array[int] = field(default_factory=lambda: array("q"))
    unreadable: set[int] = field(default_factory=set)

    def add(self, message: Message, usable: bool) -> None:
        if not usable:
            self.unreadable.add(len(self.log))
        self.numbers.append(message.sequence)
        self.files.append(message.file)
        self.header.append(read_header_stamp(message) or 0)
        self.publish.append(message.publish_time)
        self.log.append(message.log_time)

    def sort_recorded(self) -> list[int]:
        """Positions of the messages in recorded order."""
        numbers, files = (np.frombuffer(of, np.uint32).astype(np.int64) for of in (self.numbers, self.files))
        order: list[int] = order_topic(numbers, np.frombuffer(self.log, np.int64), files).order.tolist()
        return order

    def is_numbered(self) -> bool:
        """True if the sequence numbers of a file usually step by 1."""
        order = self.sort_recorded()
        numbers, files = (np.frombuffer(of, np.uint32)[order].astype(np.int64) for of in (self.numbers, self.files))
        steps = np.diff(numbers)[np.diff(files) == 0]
        return len(steps) > 0 and median_low(steps.tolist()) == 1

    def stamps(self, base: str) -> Iterator[tuple[int, int]]:
        """Number and stamp in ns of each readable message, in recorded order."""
        values: array[int] = getattr(self, base)
        return ((number, values[n]) for number, n in enumerate(self.sort_recorded()) if n not in self.unreadable)


@dataclass(slots=True)
class FirstPass:
    """Result of the first pass."""

    recording: Recording
    topics: dict[str, str]
    """CDR topics that have messages, with their types."""
    roles: Roles
    base: TimeBase
    calibration: Calibration
    overlapping: set[int]
    """Segments of the reference clock that share a time with another, or come within the largest tolerance of it."""
    preceded: dict[int, int]
    """Segments that begin within `max_gap` after one recorded later, and up to which stamp that matters."""
    segments: int
    numbered: frozenset[str]
    """Topics of frames and cameras in whose sequence numbers a step other than 1 means a loss."""
    span: tuple[int, int]
    """First and last `log_time`, ns."""
    duration: int
    """ns from the first stamp of the reference to the last, without the steps of its clock."""
    unreadable: dict[str, int]
    """Undecodable messages of topics that only the first pass reads."""
    cut: Cut | None
    """Begin and end of the samples; None: the whole recording."""
    unknown_labels: str
    """Labels of the label map that the model does not have, in words."""

    @property
    def wanted(self) -> int:
        """Number of messages that the second pass reads."""
        channels, streamed = self.recording.channels.values(), self.roles.streamed
        seen = sum(c.seen for c in channels if self.topics.get(c.topic) == c.schema and c.topic in streamed)
        return seen - sum(number for topic, number in self.recording.repeated.items() if topic in streamed)

    def sequence(self, name: str, first_source: int = 0) -> SequenceFacts:
        """Return the facts of the sequence to be made, its sources from `first_source` on.

        Messages count as seen, and those that only the first pass reads by their outcome.
        """
        counts = Counts()
        in_use = self.roles.streamed | self.roles.statics
        for topic, number in self.recording.repeated.items():
            counts.drop(topic, RECORDED_TWICE, number)
        for channel in self.recording.channels.values():
            counts.see(channel.topic, channel.seen)
            if not channel.readable:
                counts.drop(channel.topic, name_encoding(channel.encoding), channel.seen)
            elif channel.topic in in_use and channel.schema != self.topics[channel.topic]:
                counts.drop(channel.topic, OTHER_TYPE, channel.seen)
        for topic in self.roles.statics:
            counts.drop(topic, UNDECODABLE, self.unreadable.get(topic, 0))
        sources = [file.plain for file in self.recording.files]
        return SequenceFacts(name, self.roles, self.base, self.calibration, counts, sources, first_source)


class Walked:
    """A recording in the first pass: facts of all topics that may get a role; which do is known only at the end."""

    def __init__(self, recording: Recording, settings: Settings) -> None:
        self.recording = recording
        self._asked = tuple(topic.removeprefix("/") for topic in settings.references if topic is not None)
        self.times: dict[str, TopicTimes] = {}
        self.sequences: dict[str, _StampSequence] = {}
        self.calibrations: dict[str, Calibration] = {}
        self.unreadable: dict[str, int] = {}
        self.frame_ids: dict[str, str] = {}
        """frame_id of the first message of each topic that has one."""
        self._ignored: set[str] = set()
        self._types: dict[str, str] = {}
        self.radars: dict[str, int] = {}
        """Topics of clouds with fields that only radars have, and their number, or with `radar` in their name."""
        self.depths: set[str] = set()
        """Topics of pictures that are not a camera's, by their first message."""
        self._given = settings.given_topics
        self._frames = settings.sensor("pose").tf
        self.parents: dict[str, str] = {}
        """First parent of each frame of /tf, if the pose comes from there."""
        self.reparented: set[str] = set()
        """Frames of /tf with several parents."""
        self.transforms = Calibration()
        """Transforms of /tf, as long as there are no static ones: those that never change count as such."""
        self._tf: set[str] = set()
        self._static = False
        self.first: int | None = None
        self.last = 0
        self._shared = True  # the sequence numbers of a file rise from message to message, across topics
        self._number = 0, -1  # file and sequence number of the last message
        self._switches, self._topic = 0, ""  # how often another topic followed, and that of the last message

    def add(self, message: Message) -> None:
        topic, number = message.topic, (message.file, message.sequence)
        self._shared, self._number = self._shared and number > self._number, number
        self._switches, self._topic = self._switches + (topic != self._topic), topic
        if self._types.setdefault(topic, message.schema) != message.schema:
            return
        self.first = message.log_time if self.first is None else min(self.first, message.log_time)
        self.last = max(self.last, message.log_time)
        ignored = topic in self._ignored or (topic not in self.times and not self._open(message))
        moving = topic in self._tf and not self._static
        if ignored and not moving:
            return
        usable = True
        try:
            content = decode(message)
            if moving:
                with suppress(MessageError):  # more than any vehicle has
                    self.transforms.add(message.schema, content, message.log_time)
            if ignored:
                return
            times = self.times[topic]
            if not times.publish.distances:
                self._classify_topic(topic, message.schema, content)
            times.add(message)
            if topic in self.calibrations:
                self.calibrations[topic].add(message.schema, content, message.log_time, topic)
                self._static = self._static or bool(self.calibrations[topic].static_transforms)
            if self._frames is not None and find_known_name(topic, message.schema) == "tf":
                self._add_transforms(message.schema, content)
            if topic not in self.frame_ids and (frame_id := read_frame_id(content)):
                self.frame_ids[topic] = frame_id
        except MessageError:
            if ignored:
                return
            usable = False
            self.unreadable[topic] = self.unreadable.get(topic, 0) + 1
        if topic in self.sequences:
            self.sequences[topic].add(message, usable)

    def _classify_topic(self, topic: str, schema: str, content: Any) -> None:
        """Note by its first message whether a topic has clouds of a radar, or pictures that are not a camera's."""
        if schema == CLOUD:
            names = {field.name.lower() for field in content.fields}
            if RADAR & names or find_radars([topic]):
                self.radars[topic] = len(RADAR & names)
        elif schema in (COMPRESSED_IMAGE, IMAGE):
            form = content.encoding if schema == IMAGE else content.format
            ranges = form == RANGES and schema == IMAGE and find_known_name(topic, IMAGE) is None
            self.depths |= {topic} if ranges or is_no_camera(topic, form) else set()

    def _add_transforms(self, schema: str, content: Any) -> None:
        for one in list_transforms(schema, content):
            if len(self.parents) < MOST_TRANSFORMS:
                parent = self.parents.setdefault(one.child_frame_id, one.frame_id)
                self.reparented |= {one.child_frame_id} if parent != one.frame_id else set()

    def _open(self, message: Message) -> bool:
        """Start to collect a topic; False if it can have no role."""
        topic, schema = message.topic, message.schema
        name = find_known_name(topic, schema)
        asked = topic.endswith(self._asked) if self._asked else False
        if name in STATICS or schema in STATIC_TYPES:
            self.calibrations[topic] = Calibration()
        self._tf |= {topic} if name == "tf" else set()
        if schema in CAMERA_TYPES or asked:
            self.sequences[topic] = _StampSequence()
        elif (
            name not in (*STATICS, *ALIGNED)
            and schema not in (FIX, IMU, CUBES, *ROLES["pose"], *STATIC_TYPES)
            and not (name == "tf" and self._frames is not None)
            and not (name is None and schema in (CLOUD, CUBE, DETECT))
            and not any(fnmatchcase(topic, f"*{given.removeprefix('/')}") for given in self._given)
        ):
            self._ignored.add(topic)
            return False
        self.times[topic] = TopicTimes(topic)
        return True

    @property
    def topics(self) -> dict[str, str]:
        """CDR topics that have messages, with their types."""
        return dict(self.recording.topics)

    def conclude(self, settings: Settings) -> FirstPass:
        """Assign roles to the topics and choose the clock; raises RecordingError or UsageError."""
        path, recording = self.recording.path, self.recording
        cause = describe_damage(recording.damage)
        if not self.topics:
            others = sorted({f"{c.topic} ({c.encoding})" for c in recording.channels.values() if c.seen})
            what = f"messages in CDR in it, only {', '.join(others[:5])}" if others else "messages in it"
            raise RecordingError(f"{path}: {cause}there are no {what}")
        try:
            roles = choose_topics(self.topics, settings, radars=self.radars, depths=self.depths)
        except (RecordingError, UsageError) as error:
            raise type(error)(f"{path}: {cause}{error}") from None
        turned = (f"{c.topic}: {note}" for c in recording.channels.values() for note in c.notes)
        roles.notes = (*roles.notes, *turned)
        times = self.times[roles.reference]
        offset_of = partial(roles.offset, settings=settings)
        base = choose(settings.time_base, times, [self.times[topic] for topic in sorted(roles.aligned)], offset_of)
        roles.notes += base.notes
        segments = Segments()
        sequence = self.sequences[roles.reference]
        offset = offset_of(roles.reference)
        stamps = [(number, stamp + offset) for number, stamp in sequence.stamps(base.base)]
        for _, stamp in stamps:
            segments.add(stamp)
        cut = None
        if settings.start is not None or settings.end is not None:
            span = settings.span_of(segments.spans[0][0] if segments.spans else 0)
            cut = Cut.of(span, stamps, len(sequence.numbers))
        cameras = {topic: self.sequences[topic] for topic in roles.cameras.values()}
        calibration = open_calibration(roles, self.frame_ids)
        for topic in sorted(roles.statics):
            calibration.merge(self.calibrations[topic])
        if not calibration.static_transforms:
            calibration.merge(self.transforms.constant())
            if calibration.static_transforms:
                roles.notes += ("no static transforms were recorded: those of /tf that never change count as such",)
        if roles.pose is not None and roles.pose_frames is not None:
            parents = self.parents | {of["child"]: of["parent"] for of in calibration.static_transforms}
            try:
                steps = find_chain(parents, *roles.pose_frames)
            except ValueError as error:
                raise UsageError(f"{path}: {cause}rig: pose: tf: {error}") from None
            twice = sorted({child for _, child, _ in steps} & self.reparented)
            roles.notes += tuple(
                f"{roles.pose}: {child} has several parents: {parents[child]} counts" for child in twice
            )
        for camera in calibration.lacking_size:
            pictures = calibration.cameras[camera]
            pictures.size = _find_size(recording, pictures.topic, self.topics[pictures.topic], settings)
        labels = calibration.labels
        unknown = find_unknown_labels(labels, settings.label_map) if labels is not None else ""
        own = (settings.stream(sensor)[0] for sensor, topic in roles.companions.items() if topic != roles.reference)
        largest = max((to_ns(settings.tolerance), *own))  # of companions, boxes and masks
        counting = {roles.reference: sequence, **cameras} if self._switches < 3 or not self._shared else {}
        numbered = frozenset(topic for topic, of in counting.items() if of.is_numbered())
        overlapping, preceded = segments.overlapping(largest), segments.find_preceded(to_ns(settings.max_gap))
        span, duration = (self.first or 0, self.last), sum(last - first for first, last in segments.spans)
        return FirstPass(
            recording, self.topics, roles, base, calibration, overlapping, preceded, len(segments.spans), numbered,
            span, duration, self.unreadable, cut, unknown,
        )  # fmt: skip


def _find_size(recording: Recording, topic: str, schema: str, settings: Settings) -> tuple[int, int] | None:
    """Return the size of the first picture of a camera that can be decoded, pixels; None without one."""
    camera = CameraFacts(topic, schema, settings.limits)
    for message in recording.iter_messages({topic: schema}):
        camera.offer(message)
        if camera.is_done:
            break
    return camera.size


def is_no_camera(topic: str, form: str) -> bool:
    """True if pictures are not a camera's, but of depth, labels or a radar, by their `encoding` or `format` or name."""
    return form.startswith(DEPTHS) or SCANNED.search(topic) is not None


def describe_damage(damage: Sequence[Damage]) -> str:
    """Return the damage of a recording, as the begin of a message about missing data; empty where it is whole."""
    if not damage:
        return ""
    what = "cut" if any("cut" in one.what for one in damage) else "damaged"
    return f"the recording is {what}: {'; '.join(map(str, damage[:3]))}; "


def walk(
    path: Path,
    settings: Settings,
    progress: Callable[[int, int], None] | None = None,
    observe: Callable[[Message], None] | None = None,
    *,
    hashed: bool = False,
    more: Iterable[Path] = (),
) -> Walked:
    """Read through a recording once; `more`: the files that follow the first one.

    `progress` is called with the bytes done and the size of the file, `observe` with every CDR message; `hashed`:
    the recording's SHA-256 is made on the way. Raises EdgeFirstError when it is not a recording.
    """
    recording: Recording = TiledRecording(open_files(path, settings.limits, hashed=hashed, more=more))
    found = Walked(recording, settings)
    for number, message in enumerate(recording.walk()):
        found.add(message)
        if observe:
            observe(message)
        if progress and not number % TOLD_EVERY:
            progress(recording.position, recording.size)
    return found
