# SPDX-License-Identifier: Apache-2.0
"""Drafts a rig from the types, rates, frame_ids and transforms of recordings."""

from __future__ import annotations

import glob
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile
from typing import Any

from edgefirst_ros import streams
from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.config.rig import check_key
from edgefirst_ros.counts import Progress, ignore_progress
from edgefirst_ros.errors import MessageError, RecordingError, UsageError, escape_line, join_names, pluralize
from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.messages import KNOWN_TOPICS, Message, decode, find_known_name
from edgefirst_ros.pipeline.first_pass import CameraFacts, walk
from edgefirst_ros.sensors.calibration import Calibration
from edgefirst_ros.sensors.navigation import read_attitude
from edgefirst_ros.sensors.transforms import BASE, climb
from edgefirst_ros.sources.inputs import RecordingInput
from edgefirst_ros.sources.topics import CAMERA_NAMES, USABLE, find_namespace, guess_key, quote
from edgefirst_ros.streams import CAMERA_INFO, CAMERA_TYPES, MASK

BASES = (BASE, "base_footprint")
"""Usual frames of a vehicle, the preferred one first."""
WORLDS = ("odom", "map", "earth")
"""Usual frames in which a vehicle moves. Source: REP 105."""
FRONT = "front"
COLOURS = {"rgb", "color"}
ASIDE = {"thermal", "ir", "infrared", "dvs", "semantic", "segmentation"}
"""Words in the names of topics whose pictures are not as people see things."""
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(slots=True)
class _Found:
    """A topic of a usable type: messages in all recordings, with facts of its first message."""

    topic: str
    schema: str
    size: int  # bytes of the first message
    messages: int = 0
    seconds: float = 0.0  # time in which they were recorded, summed over the recordings
    frame_id: str = ""
    placed: bool = True  # False for a cloud whose points have no x, y, z, and an IMU without attitude
    coloured: bool = False  # True for a cloud whose points have colours, as those of depth cameras
    camera: CameraFacts | None = None

    @property
    def comment(self) -> str:
        rate = (
            f"{(self.messages - 1) / self.seconds:.1f} Hz" if self.seconds > 0 else pluralize(self.messages, "message")
        )
        parts = [rate, *([f"frame_id {self.frame_id}"] if self.frame_id else [])]
        if self.camera is not None and self.camera.size is not None:
            parts.append(f"{self.camera.codec} {self.camera.size[0]} x {self.camera.size[1]}")
        return escape_line(", ".join([*parts, self.schema]))


@dataclass(slots=True)
class _Line:
    key: str
    parts: dict[str, Any]
    comment: str


@dataclass(slots=True)
class _Draft:
    """Collects facts of topics from recordings, and assigns a topic to each sensor."""

    topics: dict[str, _Found] = field(default_factory=dict)
    radars: dict[str, int] = field(default_factory=dict)  # as `Walked.radars`
    static: list[tuple[str, str]] = field(default_factory=list)  # (parent, child) of the static transforms
    transforms: Calibration = field(default_factory=Calibration)  # those of /tf
    lines: list[_Line] = field(default_factory=list)
    left: list[_Line] = field(default_factory=list)  # lines of topics that are not used

    def read(self, given: RecordingInput, report: Progress) -> None:
        wanted = {*USABLE, CAMERA_INFO, MASK, *KNOWN_TOPICS["model/info"]}
        times: dict[str, tuple[int, int]] = {}

        def observe(message: Message) -> None:
            if find_known_name(message.topic, message.schema) == "tf":
                with suppress(MessageError):
                    self.transforms.add(message.schema, decode(message), message.log_time)
            if message.schema in wanted:
                first, last = times.get(message.topic, (message.log_time, message.log_time))
                times[message.topic] = min(first, message.log_time), max(last, message.log_time)
                self._add_message(message)

        first, *more = given.files
        walked = walk(first, Settings(), partial(report, f"reading {given.label}"), observe, more=more)
        for topic, (begin, end) in times.items():
            found, schema = self.topics[topic], walked.topics.get(topic, "")
            found.seconds += (end - begin) / SECOND
            found.frame_id = found.frame_id or walked.frame_ids.get(topic, "")
            if schema and found.schema != schema:
                what = f"{topic} is {schema}, in another recording {found.schema}"
                raise UsageError(f"{given.path}: {what}; draft a rig of each")
        self.radars |= walked.radars
        known = [one for calibration in walked.calibrations.values() for one in calibration.static_transforms]
        known = known or self.transforms.constant().static_transforms
        self.static += [(one["parent"], one["child"]) for one in known]

    def _add_message(self, message: Message) -> None:
        found = self.topics.get(message.topic)
        if found is None:
            found = self.topics[message.topic] = _Found(message.topic, message.schema, len(message.data))
            if message.schema in CAMERA_TYPES:
                found.camera = CameraFacts(message.topic, message.schema, DEFAULT_LIMITS)
            elif message.schema == streams.CLOUD:
                with suppress(MessageError):
                    names = {field.name for field in decode(message).fields}
                    found.placed, found.coloured = {"x", "y", "z"} <= names, "rgb" in names
            elif message.schema == streams.IMU:
                with suppress(MessageError):
                    found.placed = read_attitude(decode(message)) is not None
        found.messages += 1
        if found.camera is not None:
            found.camera.offer(message)

    def conclude(self) -> None:
        groups = defaultdict[str, list[_Found]](list)
        for found in self.topics.values():
            if (key := self._guess(found)) is not None:
                groups[key].append(found)
        self._cameras(groups.pop(streams.CAMERA.key, []))
        for key in (*(sensor.key for sensor in streams.list_companions()), *streams.ROLES):
            if key in groups:
                self._sensor(key, groups[key])
        self._pose()
        self._name_left()

    def _guess(self, found: _Found) -> str | None:
        """Return the sensor or role that a topic is probably of; None for a topic that only accompanies another one."""
        name = find_known_name(found.topic, found.schema)
        own = [sensor.key for sensor in streams.list_companions() if sensor.topic.name == name]
        if own:
            return own[0]
        if found.camera is not None:
            return streams.CAMERA.key
        if found.schema in (streams.CLOUD, streams.CUBE):
            return guess_key(found.topic, found.schema, Settings(), self.radars)
        if name == "fusion/boxes3d":
            return "boxes3d"
        return next((key for key, types in streams.ROLES.items() if found.schema in types), None)

    def _beside(self, found: _Found, *names: str) -> str | None:
        """Return a topic of the types of the device's topics `names` that belongs to another: by its namespace."""
        for name in names:
            fits = [one for one in self.topics.values() if one.schema in KNOWN_TOPICS[name]]
            if len(names) > 1:  # several topics have that type
                fits = [one for one in fits if find_known_name(one.topic, one.schema) == name]
            for space in (found.topic.removeprefix("/"), find_namespace(found.topic, found.schema)):
                own = sorted(one.topic for one in fits if find_namespace(one.topic, one.schema) == space)
                if own:
                    return own[0]
        return None

    def _cameras(self, group: list[_Found]) -> None:
        """Draft the cameras; of several topics with one namespace and frame_id the preferred form."""

        def order(found: _Found) -> tuple[int, int, str]:
            name = find_known_name(found.topic, found.schema)
            known = CAMERA_NAMES.index(name) if name in CAMERA_NAMES else len(CAMERA_NAMES)
            return known, streams.CAMERA_TYPES.index(found.schema), found.topic

        seen: dict[tuple[str, str], _Found] = {}
        for found in sorted(group, key=order):
            place = find_namespace(found.topic, found.schema), found.frame_id
            if found.camera is None or found.camera.size is None:
                self._comment_out(streams.CAMERA.key, found, "no camera picture in it can be decoded")
            elif place in seen:
                self._comment_out(streams.CAMERA.key, found, f"of the same camera as {seen[place].topic}")
            else:
                seen[place] = found
        number = Counter(space for space, _ in seen)
        spaces = {found.topic: space for (space, _), found in seen.items()}
        names = {topic: space if space and number[space] == 1 else topic for topic, space in spaces.items()}

        def place_of(one: _Found) -> tuple[Any, ...]:
            words = set(_WORD.findall(one.topic.lower()))
            front, length = _in_front(names[one.topic])
            known = order(one)[0]
            return bool(ASIDE & words), spaces[one.topic] != "", known, front, not COLOURS & words, length, one.topic

        ordered = sorted(seen.values(), key=place_of)
        infos = sorted(one.topic for one in self.topics.values() if one.schema == streams.CAMERA_INFO)
        only = infos[0] if len(infos) == len(ordered) == 1 else None
        for key, found in _with_instances(streams.CAMERA.key, ordered, names):
            info = self._beside(found, "camera/info") if number[spaces[found.topic]] == 1 else None
            info = info or only
            parts = {"topic": found.topic} | ({"info": info} if info is not None else {})
            first = key == streams.CAMERA.key
            note = "the reference: its frames are the samples, " if first else ""
            guessed = "guessed to be the main camera, " if first and len(ordered) > 1 else ""
            self._use(key, parts, f"{note}{guessed}{found.comment}")

    def _sensor(self, key: str, group: list[_Found]) -> None:
        """Draft a companion or a role; of several clouds with one frame_id that with the largest messages."""
        sensor = None if key in streams.ROLES else streams.find_by_key(key)
        camera = next((self.topics[line.parts["topic"]] for line in self.lines if line.key == "camera"), None)
        space = "" if camera is None else find_namespace(camera.topic, camera.schema)

        seen = {one.frame_id for one in self.topics.values() if one.camera is not None} - {""}

        def order(found: _Found) -> tuple[Any, ...]:
            name = find_known_name(found.topic, found.schema)
            type_place = streams.ROLES[key].index(found.schema) if sensor is None else 0
            beside = sensor is None and find_namespace(found.topic, found.schema) != space
            size, (front, length) = found.messages if sensor is None else found.size, _in_front(found.topic)
            first = front and key.startswith("radar")  # before its size; of lidars the one on the roof sees most
            radar = -self.radars.get(found.topic, 0)  # targets come before the objects that are made of them
            worse = not found.placed or (key == "pose" and found.frame_id == "earth")  # z of ECEF is not up
            worse = worse or (sensor is not None and (found.coloured or found.frame_id in seen))
            return worse, name is None, beside, type_place, radar, first, -size, front, length, found.topic

        world = {
            *WORLDS,
            *self._world(),
            *(one.frame_id for one in self.topics.values() if one.schema == streams.ODOMETRY),
        }
        world -= {self.base_frame(), BASE, ""}
        frames: dict[str, str] = {}
        used: list[_Found] = []
        for found in sorted(group, key=order):
            others = find_known_name(found.topic, found.schema) not in (None, key.replace(".", "/"))
            if sensor is not None and not sensor.default:
                name, value = sensor.setting or ("", "")
                self._comment_out(key, found, f"to use it, also write `{name}: {str(value).lower()}`")
            elif sensor is not None and not found.placed:
                self._comment_out(key, found, "its points have no x, y, z")
            elif sensor is not None and found.frame_id in world:
                self._comment_out(key, found, "in a frame in which the vehicle moves, so it may be a map")
            elif sensor is not None and others:
                self._comment_out(key, found, "by its name made from another topic")
            elif sensor is not None and found.frame_id and found.frame_id in frames:
                self._comment_out(
                    key, found, f"has the frame_id of {frames[found.frame_id]}, so it may be made from that"
                )
            elif key == "pose" and found.frame_id == BASE:
                self._comment_out(key, found, "in the vehicle's own frame, which does not move against itself")
            elif key == "pose" and (found.messages < 2 or found.seconds > Settings().max_gap * (found.messages - 1)):
                self._comment_out(
                    key, found, "its messages are too far apart for poses between them, as those of goals"
                )
            elif sensor is None and used:
                self._comment_out(key, found, f"{used[0].topic} is used")
            else:
                used.append(found)
                frames[found.frame_id] = found.topic
        for name, found in _with_instances(key, used, {one.topic: one.topic for one in used}):
            parts = {"topic": found.topic}
            if key == "model":
                masks = self._beside(found, "model/mask", "model/mask_compressed")
                parts |= {"info": info} if (info := self._beside(found, "model/info")) is not None else {}
                parts |= {"masks": masks} if masks is not None and found.schema == streams.DETECT else {}
            known = find_known_name(found.topic, found.schema) is not None
            guess = "" if known else f"guessed from type{' and fields or name' if found.topic in self.radars else ''}, "
            self._use(name, parts, f"{guess}{found.comment}")

    def _pose(self) -> None:
        """Draft poses from the transforms that move the vehicle, unless a topic has them."""
        base, world = self.base_frame(), self._world()
        if self.lines and base is not None and world and all(line.key != "pose" for line in self.lines):
            self._use("pose", {"tf": [world[-1], base]}, "guessed from the transforms that move")

    def _world(self) -> list[str]:
        """Return the frames in which transforms move the vehicle, the nearest first."""
        base, above = self.base_frame(), {child: parent for parent, child in self.static}
        above |= {one["child"]: one["parent"] for one in self.transforms.static_transforms}  # moving ones too
        try:
            way = climb(above, base) if base is not None else []
        except ValueError:  # the transforms are a loop
            return []
        return list(dropwhile(lambda frame: frame not in self.transforms.moving, way))[1:]

    def _name_left(self) -> None:
        """Give each sensor that is not used a key of its own, so that its line only has to be uncommented."""
        used = {line.key: line for line in self.lines if line.key not in streams.ROLES}
        taken = set(used)
        for line in self.left:
            if line.key in used:
                pair = [self.topics[one.parts["topic"]] for one in (used[line.key], line)]
                names = {one.topic: one.topic for one in pair}
                line.key = [key for key, _ in _with_instances(line.key, pair, names, taken)][1]

    def _use(self, key: str, parts: dict[str, Any], comment: str) -> None:
        try:
            check_key(key)
        except ValueError:
            self.left.append(_Line(key, parts, comment))
        else:
            self.lines.append(_Line(key, parts, comment))

    def _comment_out(self, key: str, found: _Found, why: str) -> None:
        self.left.append(_Line(key, {"topic": found.topic}, f"{why}; {found.comment}"))

    def base_frame(self) -> str | None:
        """Return the frame of the vehicle: a usual name, else the root above most frames of sensors."""
        parents = {child: parent for parent, child in self.static}
        frames = {*parents, *parents.values()}
        usual = [name for name in BASES if name in frames]
        roots = defaultdict[str, int](int)
        for found in self.topics.values():
            frame, seen = found.frame_id, set[str]()
            while frame in parents and frame not in seen:
                seen.add(frame)
                frame = parents[frame]
            if frame in frames:
                roots[frame] += 1
        return usual[0] if usual else min(roots, key=lambda one: (-roots[one], one), default=None)


def _in_front(name: str) -> tuple[bool, int]:
    """Return a key that sorts a sensor in front first, and then the shortest name."""
    words = _WORD.findall(name.lower())
    return FRONT not in words, len(words)


def _with_instances(
    key: str, found: Sequence[_Found], names: Mapping[str, str], taken: set[str] | None = None
) -> Iterable[tuple[str, _Found]]:
    """Yield (key, topic): the first one has the plain key, others an instance named by the words that differ.

    Keys that are `taken` get a number; those that are yielded are added.
    """
    words = {one.topic: _WORD.findall(names[one.topic].lower()) for one in found}
    shared = set.intersection(*map(set, words.values())) if words else set()
    taken = set() if taken is None else taken
    for number, one in enumerate(found):
        if not number:
            yield key, one
            continue
        own = "_".join(word for word in words[one.topic] if word not in shared) or "_".join(words[one.topic]) or "more"
        yield streams.make_free_key(key, [own], taken, number), one


def draft_rig(recordings: Sequence[RecordingInput], report: Progress = ignore_progress) -> str:
    """Return a rig as YAML text with comments, drafted from recordings of one vehicle.

    Raises RecordingError if one cannot be read or no topic is usable, UsageError if they differ in types.
    """
    draft = _Draft()
    for given in recordings:
        draft.read(given, report)
    draft.conclude()
    named = join_names((one.label for one in recordings), 3)
    seen = [line for line in draft.lines if line.key not in streams.ROLES]
    seen.sort(key=lambda line: streams.is_radar(line.key))
    if not seen:
        what = "no topic has pictures, clouds or cubes that can be samples"
        raise RecordingError(f"{named}: {what}; edgefirst-ros info lists the topics")
    text = [
        f"# Drafted by `edgefirst-ros rig` from {escape_line(named)}.",
        "# Rates, frame_ids and types are those of the recording. Check the guesses, then convert with --config.",
    ]
    if all(line.key != "camera" for line in draft.lines):
        text.append("# No camera was found: the messages of this topic become the samples.")
        text.append(f"reference_topic: {quote(seen[0].parts['topic'])}")
    text.append("rig:")
    text += [_write_line(line) for line in draft.lines]
    base = draft.base_frame()
    if base is not None:
        text.append(f"  base_frame: {quote(base)}  # guessed from the static transforms")
    if draft.left:
        text.append("  # Not used; uncomment a line to use its topic. gps, imu, pose, model and boxes3d have one.")
        text.append("  # List topics that you never want under `unused`.")
        text += [_write_line(line, "# ") for line in draft.left]
    return "\n".join(text) + "\n"


def _write_line(line: _Line, before: str = "") -> str:
    # A topic with letters of globs becomes a glob that matches only itself.
    topics = {name: quote(glob.escape(value)) for name, value in line.parts.items() if isinstance(value, str)}
    frames = {name: f"[{', '.join(map(quote, value))}]" for name, value in line.parts.items() if name not in topics}
    parts = ", ".join(f"{name}: {text}" for name, text in (topics | frames).items())
    return f"  {before}{line.key}: {{{parts}}}  # {line.comment}"
