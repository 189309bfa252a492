# SPDX-License-Identifier: Apache-2.0
"""Assigns roles to topics: camera, companions, GPS, IMU, pose, model."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from posixpath import commonpath
from typing import Any, NamedTuple

from edgefirst_ros import streams
from edgefirst_ros.config import Settings
from edgefirst_ros.config.load import list_setting_fields
from edgefirst_ros.errors import RecordingError, UsageError, join_names, sort_nearest
from edgefirst_ros.messages import KNOWN_TOPICS, find_known_name
from edgefirst_ros.sources.tiles import find_whole
from edgefirst_ros.streams import CAMERA_INFO, CAMERA_TYPES, CLOUD, CUBE, CUBES, DETECT, FIX, IMU, MASK, MODEL, VIDEO

STATICS = tuple(topic.name for topic in streams.list_topics() if topic.static)
"""Topics with static content, such as camera/info and tf_static."""
FEW = 5
"""Topics that a note names; of more than that their number is reported."""
CAMERA_NAMES = tuple(topic.name for topic in streams.CAMERA.topics)
"""The device's names for its cameras, the preferred one first."""
NOT_OF_SENSORS = ("std_msgs/", "diagnostic_msgs/", "lifecycle_msgs/", "rcl_interfaces/")
"""Packages of events and states, such as those of other captures."""
INFO = "camera/info"
CAMERA = streams.CAMERA.key
SET_REFERENCE = "set reference_topic (--reference-topic)"
SET_ONE = f"{SET_REFERENCE} to one of them, or use a rig for all (edgefirst-ros rig drafts one of a recording)"
NO_PICTURES = ("/compressedDepth", "/zstd")
"""Ends of the names of topics of image_transport whose messages have the type of pictures, but hold no JPEG or PNG."""
RESULTS = ("model/output", "model/boxes2d", "model/mask", "model/mask_compressed", "model/info")
"""Topics of the model that processes the pictures of a camera."""
_PLAIN = re.compile(r"[/\w.~-]+")  # names that YAML reads as text without quotes


def find_namespace(topic: str, schema: str) -> str:
    """Return what distinguishes the topics of one camera from those of another: `front` of `/front/camera/h264`.

    For a topic without a known name it is the path before its last segment, and before one like `image_raw`, or `info`
    of CameraInfo.
    """
    path = topic.removeprefix("/").removeprefix("rt/").removeprefix("/")
    name = find_known_name(topic, schema)
    if name is not None:
        return "/".join(path.split("/")[: -1 - name.count("/")])
    before = path.rpartition("/")[0]
    parent, _, last = before.rpartition("/")
    inner = last.startswith("image") if schema in CAMERA_TYPES else schema == CAMERA_INFO and last == "info"
    return parent if inner else before


class Cameras:
    """The cameras of a recording by their namespaces: whose results and CameraInfo a topic holds."""

    def __init__(self, topics: Mapping[str, str], reference: str) -> None:
        """`reference`: the topic of the pictures that become samples."""
        schema, self.reference = topics[reference], reference
        self.own = find_namespace(reference, schema)
        known = {t: find_known_name(t, s) for t, s in topics.items() if s in CAMERA_TYPES}
        pictures = {t: find_namespace(t, topics[t]) for t, name in known.items() if name in (None, *CAMERA_NAMES)}
        self.others = {t: space for t, space in sorted(pictures.items()) if space != self.own}
        """{topic of another camera: its namespace}."""
        counted = CAMERA_NAMES if find_known_name(reference, schema) is not None else (None, *CAMERA_NAMES)
        spaces = {space for t, space in pictures.items() if known[t] in counted}
        self.several = len({*spaces, self.own}) > 1
        """True if a topic that has no camera's prefix may be of any of them."""

    def is_own(self, space: str) -> bool:
        """True if a namespace is that of the reference, or holds it and no other camera."""
        holds = partial(_holds, space)
        return space == self.own or (holds(self.own) and not any(map(holds, self.others.values())))

    def is_foreign(self, space: str) -> bool:
        """True if a namespace is neither the reference's nor that of a camera that exists, and not the root."""
        return bool(space) and not self.is_own(space) and self.owner(space) is None

    def owner(self, space: str) -> str | None:
        """Return the topic of another camera to which a namespace belongs; else None."""
        if self.is_own(space):
            return None
        return next((t for t, other in self.others.items() if other == space or _holds(space, other)), None)

    def may_own(self, space: str) -> bool:
        """True if the reference may own a namespace: its own, or, as the only camera, one of no camera."""
        return self.is_own(space) or (not self.several and self.owner(space) is None)


def _holds(space: str, inner: str) -> bool:
    return bool(space) and inner.startswith(f"{space}/")


def prefer_own(
    found: Mapping[str, tuple[str, str]], own: str, device: str, given: Collection[str | None]
) -> dict[str, tuple[str, str]]:
    """Return the topics without those of other hosts that rival the own one, and without the results of such cameras.

    An own topic with an unknown name gets that of the device.

    Args:
        found: {topic: (name in the system, type)}.
        own: The topic that is preferred, one of `found`.
        device: Its name on the device.
        given: Topics that the settings name, which stay as they are.

    Returns:
        The others, in the form of `found`.
    """
    others = {t: s for t, (_, s) in found.items() if t not in (own, *given)}
    rivals = [t for t, s in others.items() if find_known_name(t, s) == device]
    spaces = {find_namespace(t, others[t]) for t in rivals if device in CAMERA_NAMES}
    theirs = [
        t for t, s in others.items() if find_known_name(t, s) in (INFO, *RESULTS) and find_namespace(t, s) in spaces
    ]
    kept = {t: one for t, one in found.items() if t not in (*rivals, *theirs)}
    if own not in given and find_known_name(own, found[own][1]) != device:
        kept[f"/{device}"] = kept.pop(own)
    return kept


class Infos(NamedTuple):
    """Topics of CameraInfo of a camera."""

    own: str | None
    """The one that is named for it, or has the prefix of its topic."""
    among: frozenset[str]
    """All that may be its own."""


@dataclass(slots=True)
class Roles:
    """The topics in use, by their names in the recording.

    They stay as they are; only live may a part that has had no message yet get another topic (`find_late_parts`).
    """

    reference: str
    schema: str
    sensor: str | None
    """Companion sensor of the reference topic, or None (a camera, or another stream)."""
    companions: dict[str, str]
    gps: str | None = None
    imu: str | None = None
    pose: str | None = None
    """Topic of poses of the vehicle, or of transforms."""
    pose_frames: tuple[str, str] | None = None
    """Fixed and moving frame of the pose, if it comes from transforms; None where the topic has poses."""
    model: str | None = None
    masks: str | None = None
    """Topic of masks without a header, which belong to the messages of `model`."""
    boxes3d: str | None = None
    """Topic of Detect messages with 3D boxes."""
    statics: frozenset[str] = frozenset()
    """Topics of camera/info, model/info and tf_static."""
    infos: dict[str, Infos] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    guessed: bool = False
    """True if a role was assigned only by type, or is open because several topics match."""
    missing: tuple[str, ...] = ()
    """Keys of the rig without a topic in the recording."""
    unused: list[dict[str, Any]] = field(default_factory=list)
    """Topics of usable types without a role: {"topic", "type", "count": None, "use": the setting that uses it}."""
    base_frame: str | None = None
    """Frame of the vehicle that the rig names; None: base_link."""

    @property
    def camera(self) -> bool:
        """True if the samples have camera pictures."""
        return self.schema in CAMERA_TYPES and self.sensor is None

    @property
    def navigation(self) -> tuple[str | None, ...]:
        """Topics of positions, attitudes and poses."""
        return self.gps, self.imu, self.pose

    @property
    def cameras(self) -> dict[str, str]:
        """Topics of the cameras whose pictures the samples have: that of the frames, and others of the rig."""
        others = {key: topic for key, topic in self.companions.items() if streams.find_by_key(key).form == "camera"}
        return ({CAMERA: self.reference} if self.camera else {}) | others

    def offset(self, topic: str, settings: Settings) -> int:
        """Return the offset that is added to the stamps of a topic in use, ns."""
        keys = {of: key for key, of in self.companions.items()} | {
            getattr(self, key): key for key in ("gps", "imu", "pose")
        }
        return settings.stream(keys.get(topic, self.sensor or CAMERA))[1]

    @property
    def other_infos(self) -> frozenset[str]:
        """Topics of CameraInfo that are named for cameras other than that of the frames."""
        return frozenset(of.own for key, of in self.infos.items() if key != CAMERA and of.own is not None)

    @property
    def streamed(self) -> frozenset[str]:
        """Topics of which every message is read."""
        results = self.model, self.masks, self.boxes3d
        return frozenset(t for t in (self.reference, *self.companions.values(), *self.navigation, *results) if t)

    @property
    def aligned(self) -> frozenset[str]:
        """Topics in addition to the reference that are aligned by time."""
        others = *self.companions.values(), *self.navigation, self.boxes3d
        return frozenset(topic for topic in others if topic) - {self.reference}


@dataclass(slots=True)
class _Finder:
    topics: Mapping[str, str]
    live: bool = False  # True if a topic that is named in the settings may still come
    notes: list[str] = field(default_factory=list)
    preferred: list[str] = field(default_factory=list)
    """Notes of topics that are preferred to others, which is not a guess."""
    prefix: str | None = None
    cameras: Cameras | None = None  # None where the reference is not a camera
    given: dict[str, str] = field(default_factory=dict)
    """Topics that the rig assigns to a sensor, or excludes, and their keys: no other role uses them."""

    def find_named(self, key: str, types: Collection[str], settings: Settings, part: str = "topic") -> str | None:
        """Return the topic that the rig, or a short form of it, assigns to a key; None without one.

        Raises UsageError if a glob does not match one topic, or the topic has another type or another key.
        """
        name = getattr(settings.sensor(key), part)
        if name is None:
            return None
        where = key if part == "topic" else f"{key}.{part}"
        giver = settings.giver(key) if part == "topic" else "rig"
        others = {given.removeprefix("/") for given in settings.given_topics} - {name.removeprefix("/")}
        topic = _find_topic(name, self.topics)
        if topic is not None and topic.removeprefix("/") in others:  # it has the name behind a host, and is another's
            topic = None
        if topic is None and is_glob(name):
            found = sorted(t for t in self.topics if fnmatchcase(t, name) or fnmatchcase(t.removeprefix("/"), name))
            if len(found) != 1 and not (self.live and not found):
                what, known = ", ".join(found[:FEW]) or "no topic", sort_nearest(name, self.topics)
                raise UsageError(f"{giver}: {where}: {name!r} matches {what}; expected exactly one; there are {known}")
            topic = found[0] if found else None
        if topic is None:
            if is_glob(name):  # of a capture: a recording's matches one, or is an error
                self.notes.append(f"{where}: {name} matches no topic, so it is not recorded")
            elif not self.live:
                who = "the rig" if giver == "rig" else giver
                self.notes.append(f"{where}: {who} assigns it {name}, which {_describe_absence(name, self.topics)}")
            return None
        if self.topics[topic] not in types:
            fitting = sorted(t for t, schema in self.topics.items() if schema in types)
            known = sort_nearest(name, fitting) if fitting else "no such topics"
            what = f"{topic} is {self.topics[topic]}, expected {' or '.join(types)}"
            raise UsageError(f"{giver}: {where}: {what}; there are {known}")
        owner = self.given.setdefault(topic, where)
        if owner not in ("", where):
            raise UsageError(f"{giver}: {where}: {topic} is the topic of {owner}; expected one of its own")
        return topic

    def only_companions(
        self, found: dict[str, str], reference: str, settings: Settings, radars: Container[str]
    ) -> None:
        """Assign the reference and the only other cloud and cube with unknown names to sensors without a topic."""
        named = {_find_topic(name, self.topics) for name in settings.given_topics}
        wanted = {sensor.key for sensor in settings.companions if settings.sensor(sensor.key).topic is None}
        for schema in (CLOUD, CUBE):
            alike = [topic for topic in self.unknown(schema) if topic not in found.values()]
            alike = [topic for topic in alike if topic.removeprefix("/") not in KNOWN_TOPICS and topic not in named]
            keys = {topic: guess_key(topic, schema, settings, radars) for topic in alike}
            only = f"the only {schema} topic"
            if len(alike) > 1 and keys.get(reference) in wanted - found.keys():
                only = f"the only other {schema} topic"
                self.notes.append(f"{reference} is used as {keys[reference]}: samples are made of it")
                found[keys[reference]] = reference
                alike.remove(reference)
            open_keys = wanted & set(keys.values()) - found.keys()
            if len(alike) > 1 and open_keys:
                lines = " or ".join(f"{keys[topic]}: {{topic: {quote(topic)}}}" for topic in alike)
                self.single(schema, alike, f"; name one in a rig: {lines}")
            elif alike and keys[alike[0]] in open_keys:
                self.notes.append(f"{alike[0]} is used as {keys[alike[0]]}: it is {only}")
                found[keys[alike[0]]] = alike[0]

    @property
    def free(self) -> list[tuple[str, str]]:
        """The topics without a key of the rig, and their types."""
        return sorted((t, s) for t, s in self.topics.items() if t not in self.given)

    def list_known(self, name: str, among: Collection[str] | None = None) -> list[str]:
        """Return the topics with a known name; one with the camera's host, or without host, comes before others."""
        found = [t for t, s in self.free if find_known_name(t, s) == name and (among is None or t in among)]
        bare = [t for t in found if t.removeprefix("/").removeprefix("rt/").removeprefix("/") == name]
        own = [t for t in found if self.prefix is not None and t.removesuffix(name) == self.prefix]
        if bare and len(found) > 1 and (own or bare)[0] == bare[0]:
            others = join_names((topic for topic in found if topic != bare[0]), FEW)
            note = f"{name}: {bare[0]} is used, which names no host; not {others}"
            self.preferred += [] if note in self.preferred else [note]
        return own or bare[:1] or found

    def of_type(self, schema: str) -> list[str]:
        return sorted(t for t, s in self.topics.items() if s == schema)

    def unknown(self, schema: str) -> list[str]:
        """Topics of a type with unknown names; a topic with a known name never gets another role."""
        return [t for t, s in self.free if s == schema and find_known_name(t, s) is None]

    def one(self, name: str, among: Collection[str] | None = None) -> str | None:
        """Return the topic with a known name; None if absent, or, with a note, if several match."""
        return self.single(name, self.list_known(name, among))

    def single(self, name: str, found: Sequence[str], hint: str = "") -> str | None:
        if len(found) > 1:
            self.notes.append(f"{name}: not used, because several topics are possible: {', '.join(found)}{hint}")
        return found[0] if len(found) == 1 else None

    def chosen(self, name: str, types: Collection[str], key: str) -> str | None:
        """Return the topic that the setting `key` names; live it may still come. Raises UsageError if it is missing."""
        topic = _find_topic(name, self.topics)
        if topic is not None and self.topics[topic] in types:
            return topic
        if self.live:
            return None
        known = sort_nearest(name, [topic for schema in types for topic in self.of_type(schema)])
        raise UsageError(f"{key} {name!r} is not a {' or '.join(types)} topic of the recording; there are {known}")

    def of_camera(self, name: str, beside: str | None = None) -> str | None:
        """Return the topic with a known name that belongs to the reference; None, with a note, without one.

        `beside`: the topic of results that the settings name; then those with its prefix belong to it.
        """
        if self.cameras is None:
            return self.one(name)
        found = {t: find_namespace(t, s) for t, s in self.free if find_known_name(t, s) == name}
        beside_space = None if beside is None else find_namespace(beside, self.topics[beside])
        mine = [t for t, space in found.items() if space == beside_space]
        mine = mine or [t for t, space in found.items() if self.cameras.is_own(space)]
        mine = mine or [t for t, space in found.items() if self.cameras.may_own(space)]
        if self.live and len(mine) == 1 and beside is None and self.cameras.is_foreign(found[mine[0]]):
            self.notes.append(f"{mine[0]} is used as {name}: no other camera has its prefix")
        if found and not mine:
            topic, space = next(iter(found.items()))
            owner = self.cameras.owner(space)
            whose = f"it belongs to {owner}" if owner is not None else "it may belong to each of several cameras"
            self.preferred.append(f"{topic} is not used: {whose}; name it with model_topic to use it")
        return self.one(name, mine)

    def infos(self, named: str | None, cameras: Cameras | None) -> Infos:
        """Return the topics of camera/info of a camera; `named`: the one that the rig assigns to it.

        `cameras`: those of the recording with this one as the reference; None if it is not a camera.
        """
        if named is not None:
            return Infos(named, frozenset({named}))
        if cameras is None:
            topic = self.one(INFO)
            return Infos(None, frozenset({topic} if topic is not None else ()))
        spaces = {t: find_namespace(t, s) for t, s in self.free if s == CAMERA_INFO}
        own = [t for t, space in spaces.items() if space == cameras.own and find_known_name(t, CAMERA_INFO) == INFO]
        own += [t for t, space in spaces.items() if space == cameras.reference.removeprefix("/")]
        if own:
            return Infos(own[0], frozenset(own[:1]))
        return Infos(None, frozenset(t for t, space in spaces.items() if cameras.owner(space) is None))

    def transforms(self, name: str, reference: str) -> str | None:
        """Return the topic of transforms, `tf` or `tf_static`; of several vehicles that of the reference topic's."""
        ways = {t: [f"/{one.lstrip('/')}" for one in (t, reference)] for t in self.list_known(name)}
        shared = {t: len(commonpath(both)) for t, both in ways.items()}
        return self.single(name, [t for t in shared if shared[t] == max(shared.values())])

    def pose(self, settings: Settings, reference: str) -> str | None:
        """Return the topic of poses: the named one, that of transforms between named frames, else the only one."""
        own = settings.sensor("pose")
        if own.tf is not None:
            topic = self.transforms("tf", reference)
            if topic is None and not self.live:
                frames = " and ".join(own.tf)
                self.notes.append(f"pose: the rig names {frames} of /tf, but the recording has no topic /tf")
            return topic
        if own.topic is not None:
            return self.find_named("pose", streams.ROLES["pose"], settings)
        return self.by_type("pose", streams.ROLES["pose"])

    def only(self, name: str, schema: str, settings: Settings) -> str | None:
        """Return a topic by its setting, by its known name, or as the only one of its type without a known name."""
        key = f"{name}_topic"
        if (chosen := getattr(settings, key)) is not None:
            return self.chosen(chosen, (schema,), key)
        return self.by_type(name, (schema,), self.list_known(name))

    def by_type(self, name: str, types: Collection[str], known: Sequence[str] = ()) -> str | None:
        """Return the only `known` topic for a role; without any, with a note, the only one of its types."""
        alike = known or [topic for schema in types for topic in self.unknown(schema)]
        topic = self.single(name, alike, f"; name one with {name}_topic")
        if topic is not None and not known:
            self.notes.append(f"{topic} is used as {name}: it is the only {self.topics[topic]} topic")
        return topic

    def model(self, chosen: str | None) -> str | None:
        """Return the topic of the model's results: the chosen one, else the newer form's, else the older one's."""
        if chosen is None:
            found = self.of_camera("model/output") or self.of_camera("model/boxes2d")
            alike = [topic for schema in (MODEL, DETECT) for topic in self.unknown(schema)]
            if found is None and len(alike) == 1 and not (self.cameras is not None and self.cameras.several):
                self.notes.append(f"{alike[0]} is used as model: it is the only {self.topics[alike[0]]} topic")
                return alike[0]
            return found
        return self.chosen(chosen, (MODEL, DETECT), "model_topic")

    def masks(self, model: str | None, beside: str | None) -> str | None:
        """Return the topic of masks without a header, which only older results need; plain before packed."""
        topic = self.of_camera("model/mask", beside) or self.of_camera("model/mask_compressed", beside)
        if topic is not None and model is None:
            self.notes.append(f"{topic}: masks are not used: they have no header, and without boxes they fit no frame")
        return topic if model is not None and self.topics[model] == DETECT else None

    def camera(self, depths: Container[str] = ()) -> str:
        for name in CAMERA_NAMES:
            found = self.list_known(name)
            if len(found) == 1:
                return found[0]
            if found:
                raise UsageError(f"several cameras: {', '.join(found)}; {SET_ONE}")
        for schema in CAMERA_TYPES:
            found = self.unknown(schema)
            if len(found) > 1:
                raise UsageError(f"several topics could be the camera: {', '.join(found)}; {SET_ONE}")
            if found:
                self.notes.append(f"{found[0]} is used as the camera: it is the only {schema} topic")
                return found[0]
        sensors = [topic for topic, schema in self.topics.items() if not schema.startswith(NOT_OF_SENSORS)]
        there = sort_nearest(CAMERA_NAMES[0], sensors or self.topics)
        passed = join_names([topic for topic in sensors if topic in depths], FEW)
        raise RecordingError(
            f"no camera topic, such as /{CAMERA_NAMES[0]}; topics: {there}; "
            f"{f'no camera, but depth, labels, 16 bits a pixel or a radar: {passed}; ' if passed else ''}"
            f"to make samples of another topic, {SET_REFERENCE}"
        )


def describe_option(use: str, *, rigged: bool) -> str:
    """Return the option of the command line for a setting in YAML that uses a topic.

    If `rigged`, it is a line for the rig in use, which the option would replace.
    """
    name, _, value = use.partition(": ")
    if name == "rig":
        if rigged:  # a role has one topic
            one = value.partition(":")[0] in streams.ROLES
            return f"write {value} in the rig" if one else f"add {value} to the rig"
        return f"--rig {shlex.quote(f'{{{value}}}')}"
    value = json.loads(value) if value.startswith('"') else value.strip("[]").replace(", ", ",")
    return f"{list_setting_fields(Settings)[name].flag}={shlex.quote(value)}"


def quote(text: str) -> str:
    """Return a text as YAML, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def choose_topics(
    topics: Mapping[str, str],
    settings: Settings,
    *,
    live: bool = False,
    radars: Container[str] = (),
    depths: Container[str] = (),
) -> Roles:
    """Assign a topic to each role; `topics` are the CDR topics with their types.

    `radars`: the clouds of a radar, by their fields; live these are not known, and their names count. `depths`: the
    pictures of depth, labels or a radar, which only a name makes those of a camera.

    Raises UsageError where several topics are candidates or the named one is missing, RecordingError without a camera.
    `live`: a named topic in addition to the reference may still come, and is not an error.
    """
    radars = find_radars(topics) if live else radars
    alone = (t for t in topics if settings.is_left_alone(t) or t in depths or t.endswith(NO_PICTURES))
    finder = _Finder(topics, live, given=dict.fromkeys(alone, ""))
    cameras = [sensor.key for sensor in settings.companions if sensor.form == "camera"]  # beside that of the frames
    given = {key: finder.find_named(key, CAMERA_TYPES, settings) for key in cameras}
    infos_of = {key: finder.find_named(key, (CAMERA_INFO,), settings, "info") for key in cameras}
    in_rig = settings.own_rig.sensors
    with_topic = {key for key, sensor in in_rig.items() if sensor.topic is not None}
    if isinstance(settings.reference_topic, tuple):
        raise UsageError(f"one camera at a time: {', '.join(settings.reference_topic)}; start a capture for each")
    if CAMERA in with_topic and settings.reference_topic is None:
        named = finder.find_named(CAMERA, CAMERA_TYPES, settings)
        if named is None:
            wanted = str(in_rig[CAMERA].topic)
            absent = _describe_absence(wanted, topics, live=live)
            raise UsageError(f"rig: {CAMERA}: {wanted} {absent}; there are {sort_nearest(wanted, topics)}")
        reference = named
    elif settings.reference_topic is None:
        reference = finder.camera(depths)
    else:
        named = _find_topic(settings.reference_topic, topics)
        if named is None:
            wanted = settings.reference_topic
            alike = finder.list_known(wanted.removeprefix("/"))
            found = f"could be {' or '.join(alike)}" if alike else _describe_absence(wanted, topics, live=live)
            raise UsageError(f"reference topic {wanted!r} {found}; there are {sort_nearest(wanted, topics)}")
        reference = named
    name = find_known_name(reference, topics[reference])
    if name is not None:
        finder.prefix = reference.removesuffix(name)
    if topics[reference] in CAMERA_TYPES and name in (None, *CAMERA_NAMES):
        finder.cameras = Cameras(topics, reference)
    for sensor in settings.companions:
        if sensor.key not in given:
            given[sensor.key] = finder.find_named(sensor.key, sensor.types, settings)
    for key in in_rig.keys() & streams.ROLES.keys() - {"pose"}:
        given[key] = finder.find_named(key, streams.ROLES[key], settings)
    info = finder.find_named(CAMERA, (CAMERA_INFO,), settings, "info")
    model_info = finder.find_named("model", KNOWN_TOPICS["model/info"], settings, "info")
    given_masks = finder.find_named("model", (MASK,), settings, "masks")
    offered = (
        (s.key, given[s.key] if settings.sensor(s.key).topic is not None else finder.one(s.topic.name))
        for s in settings.companions
    )
    companions = {key: topic for key, topic in offered if topic is not None}
    finder.only_companions(companions, reference, settings, radars)
    # in the order of members
    companions = {one.key: companions[one.key] for one in settings.companions if one.key in companions}
    pictures = streams.list_companions() if topics[reference] in CAMERA_TYPES else ()
    known = (sensor.key for sensor in pictures if sensor.topic.name == name)
    own = next((key for key, topic in companions.items() if topic == reference), next(known, None))
    if own is not None and (sensor := streams.find_by_key(own)).instance is not None:
        raise UsageError(f"{reference} is {own} of the rig; to make samples of it, it must be {sensor.base}")
    if own is None and not settings.takes_pictures:
        finder.notes.append("camera is not among the sensors: samples have only the times of its pictures")
    missing = [] if live else [key for key in settings.sensors if key not in (*companions, own, CAMERA)]
    finder.notes += [f"{sensor}: was requested, but the recording has no topic of it" for sensor in missing]
    pose = finder.pose(settings, reference)
    model = given["model"] if "model" in with_topic else finder.model(settings.model_topic)
    beside = model if settings.model_topic is not None else None
    infos = {CAMERA: finder.infos(info, finder.cameras)}
    for key, named in infos_of.items():
        if (topic := given[key]) is not None:
            infos[key] = finder.infos(named, Cameras(topics, topic))
    statics = [
        *(topic for of in infos.values() for topic in of.among),
        model_info or finder.of_camera("model/info", beside),
        finder.transforms("tf_static", reference),
    ]
    masks = (given_masks or finder.masks(model, beside)) if settings.masks or settings.polygons else None
    fused, cubes = "fusion/boxes3d", finder.of_type(CUBES)
    boxes3d = given["boxes3d"] if "boxes3d" in with_topic else finder.one(fused) or finder.single(fused, cubes)
    boxes3d = boxes3d if boxes3d not in (reference, model) else None
    gps = given["gps"] if "gps" in with_topic else finder.only("gps", FIX, settings)
    imu = given["imu"] if "imu" in with_topic else finder.only("imu", IMU, settings)
    roles = Roles(
        reference, topics[reference], own, companions, gps, imu, pose, settings.sensor("pose").tf, model, masks,
        boxes3d, statics=frozenset(topic for topic in statics if topic), infos=infos, guessed=bool(finder.notes),
        notes=(*finder.notes, *finder.preferred), base_frame=settings.own_rig.base_frame,
    )  # fmt: skip
    roles.missing = find_missing_keys(roles, settings, topics)
    roles.unused = list_unused({t: s for t, s in topics.items() if t not in depths}, roles, settings, radars)
    return roles


def find_radars(topics: Iterable[str]) -> list[str]:
    """Return the topics that are probably of a radar, by their names."""
    return [topic for topic in topics if "radar" in topic.lower()]


def find_missing_keys(roles: Roles, settings: Settings, there: Container[str]) -> tuple[str, ...]:
    """Return the keys whose topic, named by a rig or a short form, is missing `there`."""
    topics = {sensor.key: roles.companions.get(sensor.key) for sensor in settings.companions}
    topics |= {role: getattr(roles, role) for role in streams.ROLES}
    given = (key for key in topics if settings.sensor(key).topic is not None or settings.sensor(key).tf is not None)
    return tuple(key for key in given if topics[key] not in there)


def guess_key(topic: str, schema: str, settings: Settings, radars: Container[str]) -> str:
    """Return the sensor that a cloud or a cube is probably of; `radars`: clouds whose fields are those of a radar."""
    if schema == CUBE:
        return "radar.cube"
    return f"radar.{settings.radar_points}" if topic in radars else "lidar.points"


USABLE = frozenset({*CAMERA_TYPES, CLOUD, CUBE, *(schema for types in streams.ROLES.values() for schema in types)})
"""Types of topics that a dataset could use."""
ROLE_OF = {FIX: "gps", IMU: "imu", MODEL: "model", DETECT: "model", CUBES: "boxes3d"}
ROLE_OF |= dict.fromkeys(streams.ROLES["pose"], "pose")
"""Type -> role of a topic without members that has it."""


def list_unused(
    topics: Mapping[str, str], roles: Roles, settings: Settings, radars: Container[str]
) -> list[dict[str, Any]]:
    """Return the topics of usable types without a role, as `Roles.unused` has them, but those the rig ignores."""
    used = {*roles.streamed, *roles.statics}
    usable = {t: s for t, s in sorted(topics.items()) if s in USABLE and t not in used}
    left = {t: s for t, s in usable.items() if not t.endswith(NO_PICTURES) and not settings.is_left_alone(t)}
    own = {key: of for key, of in settings.own_rig.sensors.items() if of.topic is not None or of.tf is not None}
    sensors = {sensor.topic.name: sensor for sensor in streams.list_companions()}
    instances = (streams.find_by_key(key) for key in own if key not in streams.ROLES)
    sensors |= {_find_topic(own[sensor.key].topic or "", topics) or "": sensor for sensor in instances}

    taken = set(own)

    def use_of(topic: str, schema: str) -> str:
        sensor = sensors.get(topic) or sensors.get(find_known_name(topic, schema) or "")
        name, value = (sensor.setting if sensor is not None else None) or ("", None)
        if name and getattr(settings, name) != value:
            return f"{name}: {str(value).lower()}"
        if sensor is not None and settings.sensors and sensor.key not in settings.sensors:
            return f"sensors: [{', '.join((*settings.sensors, sensor.key))}]"
        key = ROLE_OF.get(schema) or (guess_key(topic, schema, settings, radars) if schema in (CLOUD, CUBE) else CAMERA)
        short = "reference_topic" if key == CAMERA else f"{key}_topic"
        if key not in own and short in Settings.model_fields:
            return f"{short}: {quote(topic)}"
        if key == CAMERA or key in own.keys() - streams.ROLES.keys() or roles.companions.get(key) in topics:
            names = find_namespace(topic, schema), topic
            words = filter(None, (re.sub("[^a-z0-9]+", "_", name.lower()).strip("_") for name in names))
            key = streams.make_free_key(key, [*words] or ["more"], taken)
        return f"rig: {key}: {{topic: {quote(topic)}}}"

    return [{"topic": t, "type": schema, "count": None, "use": use_of(t, schema)} for t, schema in left.items()]


def is_glob(name: str) -> bool:
    """True if a topic of a rig is a pattern that one topic must match."""
    return any(letter in name for letter in "*?[")


def _describe_absence(name: str, topics: Mapping[str, str], *, live: bool = False) -> str:
    """Return in words why no topic has a name that the user gives."""
    for candidate in (name, "/" + name):
        whole = find_whole(candidate, VIDEO)
        if whole is not None and whole[0] in topics:
            return f"is a tile of the picture {whole[0]}"
    return "is not published" if live else "is not in the recording"


def _find_topic(name: str, topics: Mapping[str, str]) -> str | None:
    """Return the topic that a user names: exactly, without leading slash, or by the device's name; else None."""
    for candidate in (name, "/" + name):
        if candidate in topics:
            return candidate
    found = [t for t, schema in topics.items() if find_known_name(t, schema) == name.removeprefix("/")]
    return found[0] if len(found) == 1 else None
