# SPDX-License-Identifier: Apache-2.0
"""Topics of a running system, independent of the transport: their roles, late topics, statistics."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Protocol

from edgefirst_ros import streams
from edgefirst_ros.config import Settings
from edgefirst_ros.errors import EdgeFirstError, RecordingError
from edgefirst_ros.messages import KNOWN_TOPICS, Message, find_known_name
from edgefirst_ros.sources.tiles import TileJoiner, find_whole, list_tiles
from edgefirst_ros.sources.topics import (
    INFO,
    RESULTS,
    STATICS,
    Cameras,
    Infos,
    Roles,
    choose_topics,
    describe_option,
    find_missing_keys,
    find_namespace,
    find_radars,
    is_glob,
    list_unused,
)
from edgefirst_ros.streams import CAMERA_INFO, CAMERA_TYPES, DETECT, FIX, IMU, MASK, MODEL, TF_MESSAGE, TILED, VIDEO


class Settling:
    """Decides when roles can be assigned: a node discovers topics one after the other, in any order.

    A topic that could be the camera only by its type must not be used before the real one is known. A lost announcement
    is repeated only after some seconds.
    """

    QUIET = 1.0
    """s without a topic that appeared or went."""
    QUIET_TO_GUESS = 5.0
    """The same in s if a role would be assigned by only the type."""
    LONGEST = 10.0
    """Total limit in s, if topics never cease to come and go."""

    def __init__(self) -> None:
        self._topics: dict[str, str] | None = None
        self._began = self._changed = 0.0

    def is_settled(self, topics: dict[str, str], now: float, *, guessed: bool = False) -> bool:
        """True if the topics have settled; `topics`: all at `now`, s of time.monotonic()."""
        if self._topics is None:
            self._began = now
        if topics != self._topics:
            self._topics, self._changed = topics, now
        quiet = self.QUIET_TO_GUESS if guessed else self.QUIET
        return now - self._changed >= quiet or now - self._began >= self.LONGEST


class CameraWait:
    """Waits for a camera, or the requested reference topic, and until the topics have settled."""

    wanted: int | None = None
    """Time of a start command that waits for the camera, ns of time.monotonic_ns(); None without one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._settling = Settling()
        self.reason = ""
        """Reason of the wait, as a line for the log."""

    def find_roles(self, offers: Offers, now: float) -> Roles | None:
        """Return the roles once they can be assigned, else None; `now` in s of time.monotonic()."""
        topics = offers.topics
        try:
            roles = choose_topics(topics, self._settings, live=True)
        except EdgeFirstError as error:
            self._settling = Settling()
            waits = isinstance(error, RecordingError) or self._settings.reference_topic is not None
            others = "".join(f"; {topic}: {what}" for topic, what in offers.mixed.items())
            self.reason = f"waiting: {error}{others}" if waits else f"{error}{others}"
            return None
        if not self._settling.is_settled(topics, now, guessed=roles.guessed):
            return None
        return expect_topics(roles, self._settings)


Deliver = Callable[[Message, int, int, int], None]
"""Called with a message, when it came (time.monotonic_ns()), and how many were lost before it: known, and guessed."""
USABLE = frozenset(kind for kinds in KNOWN_TOPICS.values() for kind in kinds)
"""Message types of the device's topics."""


@dataclass(slots=True)
class TopicState:
    """One recorded topic and its statistics.

    Owns: the transport's threads call `count_arrival` and `set_publishers`, which take the lock; the thread that looks
    for topics changes `mixed` and `fault`; any thread may read.
    """

    name: str
    """Its name in the system; messages of a remapped topic are delivered under the device's name."""
    delivered_as: str
    schema: str
    received: int = 0
    lost: int = 0
    guessed: int = 0
    """Further losses estimated by gaps of stamps."""
    number: int = 0
    """Publication number of the newest message."""
    last: int = 0
    """When it came, ns of time.monotonic_ns()."""
    gap: int = 0
    """Longest time between two messages, ns."""
    publishers: int = 0
    reliable: bool = False
    """True if the transport retransmits lost messages."""
    mixed: str = ""
    """Other types, or a number, of its publishers, in words; empty for one publisher."""
    fault: str = ""
    """Why no message can come, in words; empty if one can."""
    withdrawn: bool = False
    """True if its messages are another camera's, and not recorded any more."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count_arrival(self, number: int | None, now: int, lost: int = 0) -> tuple[int, int]:
        """Count a message that came at `now`, ns; return its publication number and how many were lost before it.

        `number`: as counted by the transport; None if it does not count, but reports how many were `lost`.
        """
        with self._lock:
            if not number:
                number, missing = self.number + 1 + lost, lost
            else:
                if number <= self.number:  # each publisher counts for itself: this is another one, maybe beside it
                    self.publishers = 0
                missing = max(0, number - self.number - 1) if self.number and self.publishers == 1 else 0
            if self.received:
                self.gap = max(self.gap, now - self.last)
            self.received, self.lost, self.number, self.last = self.received + 1, self.lost + missing, number, now
            return number, missing

    def set_publishers(self, publishers: int) -> None:
        """Note the number of publishers; one that comes back starts its sequence numbers again."""
        with self._lock:
            if not publishers or self.publishers != publishers:
                self.publishers, self.number = publishers, 0  # the next message may be of any of them


@dataclass(frozen=True, slots=True)
class Passage:
    """Reception of a message, for transports that buffer messages before they deliver them."""

    now: int
    """When it came, ns of time.monotonic_ns()."""
    received: int
    """Arrival in ns since the epoch."""
    lost: int = 0
    """Messages of its topic lost before it, by sequence numbers or because they were dropped here."""
    guessed: int = 0
    """Further losses estimated by a gap of stamps."""


class Arrive(Protocol):
    """Callback with the bytes of a message and its publication number, None without one; from any thread."""

    def __call__(self, data: bytes, number: int | None, passage: Passage | None = None, /) -> None:
        """Receive a message; without `passage` it came just now."""


@dataclass(frozen=True, slots=True)
class Offers:
    """Topics that are published now."""

    names: Mapping[str, tuple[str, str]]
    """{topic as the device names it: (name in the system, type)}."""
    mixed: Mapping[str, str] = field(default_factory=dict)
    """{name in the system: the fault}, for topics with several types or without a possible subscription."""

    @property
    def topics(self) -> dict[str, str]:
        """The topics with their types."""
        return {topic: schema for topic, (_, schema) in self.names.items()}


class Transport(Protocol):
    """A middleware (ROS 2, Zenoh) that provides topics and messages. It does not know roles."""

    def list_topics(self, expected: Mapping[str, tuple[str, ...]]) -> Offers:
        """Return the topics that are published now.

        `expected`: the types that topics in use may have; where given, topics of types without a part may be dropped.
        """

    def listen(self, state: TopicState, arrive: Arrive, *, once: bool) -> bool:
        """Subscribe to a topic, or again if its publishers changed; set publishers and fault of `state`.

        `once`: it is published only once, and late subscribers need it too. False where it has no publisher any more.
        """

    def close(self) -> None:
        """Close all subscriptions; new ones may follow."""


class Log(Protocol):
    """Logger with levels."""

    def info(self, text: str, /) -> object:
        """Log normal operation."""

    def warning(self, text: str, /) -> object:
        """Log notes for the user."""

    def error(self, text: str, /) -> object:
        """Log what cannot be recorded."""


class LiveSource:
    """Subscribes to the topics that have a role, and delivers their messages; `refresh` must be called regularly.

    A part whose topic does not come is given to one that would have it in a recording, while `roles` are in use.
    Owns: one thread calls `refresh` and `close`; only these change `states`, `unused` and the roles; the transport's
    threads deliver messages.
    """

    def __init__(self, transport: Transport, settings: Settings, roles: Roles, deliver: Deliver, log: Log) -> None:
        """`deliver` is called with every message, in the transport's threads."""
        self._transport = transport
        self._settings = settings
        self._roles = roles
        self._deliver = deliver
        self._log = log
        self._types: dict[str, tuple[str, ...]] = {}
        self._names: dict[str, str] = {}
        self._parts: dict[str, str] = {}  # topic -> the name under which it is delivered
        self._offered: dict[str, str] | None = None
        """The topics at the last refresh; None if the roles have changed since."""
        self._late: dict[str, str | None] = {}  # {field of Roles: topic that came late and would get it}
        self._settling = Settling()
        self._foreign = Settling()  # topics of a camera that may still come
        self.states: dict[str, TopicState] = {}
        self.unused: dict[str, str] = {}
        """{topic that could have been meant: why it is not recorded}."""
        self._began: float | None = None  # time of the first refresh, s
        self._noted: set[str] = set()  # unused topics, and keys without a topic, that were logged
        self._expect(transport.list_topics({}).topics)

    def _expect(self, topics: Mapping[str, str]) -> None:
        self._types = list_expected_types(self._roles, self._settings)
        self._names = {
            find_known_name(t, topics.get(t, types[0])) or find_static(t) or t.removeprefix("/"): t
            for t, types in self._types.items()
            if t not in self._roles.other_infos
        }

    def refresh(self, now: float) -> None:
        """Look for topics that appeared, and for publishers that changed; `now` in s of time.monotonic()."""
        offers = self._transport.list_topics(self._types)
        fitting, unused = {}, self._find_foreign(offers, now)
        for topic, (name, schema) in offers.names.items():
            if topic in unused or (schema not in CAMERA_TYPES and self._settings.is_left_alone(topic)):
                continue  # results are of one of all cameras
            state = self.states.get(name)
            types = (state.schema,) if state is not None else self._types.get(topic, (schema,))
            if schema in types:
                fitting[topic] = schema
            else:
                unused[topic] = f"not recorded: its type is {schema}, expected is {' or '.join(types)}"
                if state is not None:
                    state.fault = unused[topic]
        known = Counter(find_known_name(topic, schema) for topic, schema in fitting.items())
        for topic, schema in fitting.items():
            as_topic = self._find_name(topic, schema, fitting, known)
            if as_topic is not None:
                name = offers.names[topic][0]
                self._listen(name, schema, as_topic, offers.mixed.get(name, ""))
                self._parts[topic] = as_topic
            elif topic in self._types:
                taken = next(other for other, part in self._parts.items() if part == topic)
                unused[topic] = f"not recorded: its part is that of {taken}, and cannot change any more"
        here = {offers.names[topic][0] for topic in fitting}
        for state in self.states.values():
            if state.name not in here:
                state.set_publishers(0)
        unused |= {name: what for name, what in offers.mixed.items() if name not in self.states}
        unused |= self._give_late_parts(fitting, now)
        for topic, why in unused.items():
            if self.unused.get(topic) != why:
                self._log.warning(f"{topic}: {why}")
        self.unused = unused
        self._began = self._began if self._began is not None else now
        self._report_topics(offers.topics, late=now - self._began >= Settling.QUIET_TO_GUESS)

    def _find_name(
        self, topic: str, schema: str, offered: Mapping[str, str], known: Mapping[str | None, int]
    ) -> str | None:
        """Return the name under which a topic is delivered, or None when it has no part.

        `known`: how many of the topics `offered` have each of the device's names.
        """
        name = find_known_name(topic, schema)
        part = topic if topic in self._types else self._names.get(name or "")
        if part is None or part in self._parts.values():
            return self._parts.get(topic)  # topics with a role keep it
        if topic != part and (part in offered or known[name] > 1 or not self._may_be_of_camera(topic, schema, offered)):
            return None
        return part

    def _find_foreign(self, offers: Offers, now: float) -> dict[str, str]:
        """Find topics of another camera that is or may be still to come; return why each is not recorded."""
        roles, topics = self._roles, offers.topics
        if not roles.camera:
            return {}
        cameras = Cameras({**topics, roles.reference: roles.schema}, roles.reference)
        chosen = RESULTS if self._settings.model_topic is not None else ()
        named = ((t, s) for t, s in topics.items() if t not in roles.other_infos)
        of_cameras = {t: find_namespace(t, s) for t, s in named if find_known_name(t, s) in (INFO, *RESULTS)}
        waits = {t: space for t, space in of_cameras.items() if t not in self._types and cameras.is_foreign(space)}
        if not waits:
            self._foreign = Settling()
        elif self._foreign.is_settled(topics, now, guessed=True):
            waits = {}
        found = dict.fromkeys(waits, "not recorded yet: its own camera may still come")
        given = [name.removeprefix("/") for name in self._settings.given_topics]
        for topic in [t for t in of_cameras if t in self._parts and find_known_name(t, topics[t]) not in chosen]:
            if any(fnmatchcase(topic.removeprefix("/"), name) for name in given):
                continue
            owner = cameras.owner(of_cameras[topic])
            if owner is not None:
                self.states[offers.names[topic][0]].withdrawn = True
                found[topic] = f"not recorded any more: it belongs to {owner}"
        return found

    def _may_be_of_camera(self, topic: str, schema: str, offered: Mapping[str, str]) -> bool:
        """False for results or CameraInfo that belong to another camera."""
        roles = self._roles
        if not roles.camera or find_known_name(topic, schema) not in (INFO, *RESULTS):
            return True
        return Cameras({**offered, roles.reference: roles.schema}, roles.reference).may_own(
            find_namespace(topic, schema)
        )

    def _report_topics(self, offered: Mapping[str, str], *, late: bool) -> None:
        """Note the usable topics without a role, and the keys of the rig whose topics have not come.

        A transport may stop to offer topics without a role: those that were noted before stay. `late`: topics had time.
        """
        roles, known = self._roles, {of["topic"]: of for of in self._roles.unused}
        others = list_unused(offered, roles, self._settings, find_radars(offered))
        found = known | {of["topic"]: of for of in others if of["topic"] not in self._late.values()}
        roles.unused = [of for topic, of in found.items() if topic not in self._parts]
        roles.missing = find_missing_keys(roles, self._settings, [*self._parts.values()])
        for of in roles.unused:
            if of["topic"] not in {*self._noted, *self.unused}:
                use = describe_option(of["use"], rigged=self._settings.rig is not None)
                self._log.warning(f"{of['topic']} is not used; to use it: {use}")
        absent = [key for key in roles.missing if late and key not in self._noted]
        for key in absent:
            topic = self._settings.sensor(key).topic or "/tf"
            self._log.warning(f"{key}: {topic} is not published so far; is its name right?")
        self._noted |= {*absent, *(of["topic"] for of in roles.unused)}

    def _listen(self, name: str, schema: str, as_topic: str, mixed: str) -> None:
        state = self.states.get(name) or TopicState(name, as_topic, schema)
        if not self._transport.listen(state, partial(self._arrive, state), once=as_topic in self._roles.statics):
            return
        self.states[name] = state
        if state.publishers > 1 and as_topic not in self._roles.statics and schema != TF_MESSAGE:
            more = f"{state.publishers} publishers send on it, so their messages are mixed"
            mixed = "; ".join(filter(None, [mixed, f"{more}; one that was killed still counts for some seconds"]))
        if mixed and mixed != state.mixed:
            self._log.warning(f"{name}: {mixed}")
        state.mixed = mixed

    def _arrive(self, state: TopicState, data: bytes, number: int | None, passage: Passage | None = None, /) -> None:
        if state.withdrawn:
            return
        way = passage or Passage(time.monotonic_ns(), time.time_ns())
        number, lost = state.count_arrival(number, way.now, way.lost)
        state.guessed += way.guessed  # only one thread delivers where losses are guessed
        message = Message(state.delivered_as, state.schema, way.received, way.received, number, data)
        self._deliver(message, way.now, lost, way.guessed)

    def _give_late_parts(self, topics: dict[str, str], now: float) -> dict[str, str]:
        """Assign roles to topics that came late, once these have settled; returns the topics that are too late."""
        roles, used = self._roles, {*self._parts, *self._parts.values()}
        if topics != self._offered:
            self._offered = topics
            self._late = find_late_parts(roles, topics, self._settings, used)
        fixed = {part for part in self._late if getattr(roles, part) in used}
        if "model" in fixed:
            fixed.add("masks")  # they are the other results'
        changes = {part: topic for part, topic in self._late.items() if part not in fixed}
        judged = {part: changes.get("model") or t if part == "masks" else t for part, t in changes.items()}
        named = {part: changes[part] for part, t in judged.items() if t and find_known_name(t, topics[t])}
        if not changes:
            self._settling = Settling()
        elif self._settling.is_settled(topics, now, guessed=not named):
            for part, topic in (named or changes).items():
                if topic in topics:
                    self._log.info(f"{topic} came late and is recorded as {part} from now on")
                setattr(roles, part, topic)
            self._expect(topics)
            self._offered = None
        return {
            topic: f"not recorded as {part}: that was {getattr(roles, part)} so far, and cannot change any more"
            for part, topic in self._late.items()
            if topic in topics and getattr(roles, part) in used
        }

    def close(self) -> None:
        """Close all subscriptions."""
        self._transport.close()


class JoiningTransport(Transport):
    """A transport around another one that offers chosen topics only, and presents its tiles as one topic.

    Owns: one thread calls `list_topics`, `listen` and `close`; tiles come in any, and are joined under the lock.
    """

    def __init__(self, transport: Transport, chosen: Iterable[str] = ()) -> None:
        """`chosen`: names, or regular expressions that fit the whole of them, with or without slash; empty: all."""
        self._transport = transport
        self._chosen = re.compile("|".join(f"(?:/?{topic.removeprefix('/')})" for topic in chosen) or ".*")
        self._names: dict[str, str] = {}  # topics of tiles -> their names in the system
        self._parts: dict[str, TopicState] = {}
        self._joiners: dict[str, TileJoiner] = {}
        self._lock = threading.Lock()

    def list_topics(self, expected: Mapping[str, tuple[str, ...]]) -> Offers:
        """Return the topics that have publishers now; those of tiles as one, once its first tile came."""
        tiled = [topic for topic, types in expected.items() if TILED in types]
        parts = {part: (schema,) for topic in tiled for part, schema in list_tiles(topic, TILED)}
        offers = self._transport.list_topics({**expected, **parts})
        names: dict[str, tuple[str, str]] = {}
        fits = self._chosen.fullmatch
        for topic, (name, schema) in offers.names.items():
            if not fits(topic) and not fits(name):
                continue
            whole = find_whole(topic, schema)
            if whole is None:
                names[topic] = name, schema
                continue
            self._names[topic] = name
            if whole[1] == 0:
                names[whole[0]] = name, TILED
        return Offers(names, {name: what for name, what in offers.mixed.items() if fits(name)})

    def listen(self, state: TopicState, arrive: Arrive, *, once: bool) -> bool:
        """Subscribe a topic, as `Transport.listen` says; one of tiles by all that exist."""
        if state.schema != TILED:
            return self._transport.listen(state, arrive, once=once)
        whole = find_whole(next(topic for topic, name in self._names.items() if name == state.name), VIDEO)
        joiner = self._joiners.setdefault(state.name, TileJoiner(state.delivered_as))
        heard = False
        for tile, (topic, _) in enumerate(list_tiles(whole[0] if whole is not None else "", TILED)):
            if topic in self._names:
                part = self._parts.setdefault(topic, TopicState(self._names[topic], topic, VIDEO))
                heard = (
                    self._transport.listen(part, self._make_receiver(part, tile, joiner, arrive), once=once) or heard
                )
                state.fault = part.fault or state.fault
        state.set_publishers(1)
        return heard

    def _make_receiver(self, part: TopicState, tile: int, joiner: TileJoiner, arrive: Arrive) -> Arrive:
        def take(data: bytes, number: int | None, passage: Passage | None = None, /) -> None:
            with self._lock:
                way = passage or Passage(time.monotonic_ns(), time.time_ns())
                number, _ = part.count_arrival(number, way.now, way.lost)
                message = Message(part.name, VIDEO, way.received, way.received, number, data)
                for joined in joiner.add(message, tile, way.guessed):
                    came = Passage(way.now, joined.message.log_time, joined.lost, joined.guessed)
                    arrive(joined.message.data, None, came)

        return take

    def close(self) -> None:
        self._transport.close()
        self._parts, self._joiners = {}, {}


# ---- topics that may still come
def expect_topics(roles: Roles, settings: Settings) -> Roles:
    """Return the roles completed by the names of topics that may still come: the rig's, else the device's."""
    taken = {*roles.streamed, *roles.statics, *map(_expect_name, settings.given_topics)}

    def keep_free(topic: str) -> str | None:
        return None if topic in taken or settings.is_left_alone(topic) else topic

    def expect(key: str, name: str) -> str | None:
        given = settings.sensor(key).topic
        return keep_free(_expect_name(name)) if given is None else _expect_name(given)

    may_come = ((sensor.key, expect(sensor.key, sensor.topic.name)) for sensor in settings.companions)
    companions = {key: topic for key, topic in may_come if topic and not is_glob(topic)} | roles.companions
    pose = "tf" if roles.pose_frames is not None else settings.sensor("pose").topic
    name = find_known_name(roles.reference, roles.schema)
    space = find_namespace(roles.reference, roles.schema) if roles.camera else ""
    prefix = roles.reference.removesuffix(name) if roles.camera and name else f"/{space}/" if space else "/"
    own = {part: f"{prefix}{part}" for part in (INFO, *RESULTS)}
    info = settings.sensor("model").info
    masked = roles.model is not None and find_known_name(roles.model, DETECT) == "model/boxes2d"
    masked = masked and (settings.masks or settings.polygons)
    heard = {*filter(None, map(find_static, roles.statics))}
    heard |= {INFO} if roles.camera else set()
    parts = {part: keep_free(own.get(part) or _expect_name(part)) for part in STATICS if part not in heard}
    parts |= {"model/info": _expect_name(info)} if info is not None and "model/info" in parts else {}
    statics = {*roles.statics, *filter(None, parts.values())}
    cameras = replace(roles, companions=companions).cameras
    infos = {
        key: _expect_info(roles.infos.get(key), topic, settings.sensor(key).info, keep_free)
        for key, topic in cameras.items()
    }
    statics |= {topic for of in infos.values() for topic in of.among}
    return replace(
        roles, companions=companions, statics=frozenset(statics), infos=roles.infos | infos,
        gps=roles.gps or expect("gps", "gps"),
        imu=roles.imu or expect("imu", "imu"),
        pose=roles.pose or (_expect_name(pose) if pose is not None else None),
        model=roles.model or expect("model", own["model/output"]),
        masks=roles.masks or (keep_free(own["model/mask"]) if masked else None),
        boxes3d=roles.boxes3d or expect("boxes3d", "fusion/boxes3d"),
    )  # fmt: skip


def _expect_info(found: Infos | None, topic: str, named: str | None, keep_free: Callable[[str], str | None]) -> Infos:
    """Return the topics of CameraInfo of a camera with the one that may still come.

    `named`: that of the rig; `keep_free` returns None for a topic of another role.
    """
    if found is not None and found.own is not None:
        return found
    among = found.among if found is not None else frozenset()
    name = next(filter(None, (find_known_name(topic, schema) for schema in CAMERA_TYPES)), None)
    space = find_namespace(topic, CAMERA_TYPES[0])
    own = f"{topic.removesuffix(name)}{INFO}" if name else f"/{space}/{INFO}" if space else f"/{INFO}"
    if named is not None:
        return Infos(_expect_name(named), among | {_expect_name(named)})
    if keep_free(own) is None:
        return Infos(None, among)
    return Infos(own if find_known_name(own, CAMERA_INFO) == INFO else None, among | {own})


def find_static(topic: str) -> str | None:
    """Return the device's name of a topic with static content, at any depth; None of other topics."""
    return next((part for part in STATICS if topic.endswith(part)), None)


def list_expected_types(roles: Roles, settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return the types that each topic in use may have; with another one it has no part, as in a recording."""
    model: tuple[str, ...] = (MODEL, DETECT)
    if settings.model_topic is None and roles.model is not None:
        model = next((KNOWN_TOPICS[n] for n in ("model/output", "model/boxes2d") if roles.model.endswith(n)), model)
    parts = {roles.gps: (FIX,), roles.imu: (IMU,), roles.model: model, roles.masks: (MASK,), roles.boxes3d: (DETECT,)}
    parts[roles.pose] = streams.ROLES["pose"] if roles.pose_frames is None else KNOWN_TOPICS["tf"]
    parts |= {topic: streams.find_by_key(sensor).types for sensor, topic in roles.companions.items()}
    parts |= dict.fromkeys(roles.statics, KNOWN_TOPICS["model/info"])
    parts |= dict.fromkeys((topic for of in roles.infos.values() for topic in of.among), (CAMERA_INFO,))
    parts |= {topic: KNOWN_TOPICS[part] for topic in roles.statics if (part := find_static(topic)) is not None}
    return {topic: types for topic, types in parts.items() if topic} | {roles.reference: (roles.schema,)}


def find_late_parts(
    roles: Roles, topics: Mapping[str, str], settings: Settings, used: Container[str]
) -> dict[str, str | None]:
    """Return the roles that the current `topics` would assign to another topic: {field of Roles: topic}.

    Not to one of those `used`, which have a role. A role whose own topic is used cannot change any more.
    """
    fixed = settings.model_copy(update={"reference_topic": roles.reference})
    found = expect_topics(choose_topics({**topics, roles.reference: roles.schema}, fixed, live=True), fixed)
    parts = ("gps", "imu", "pose", "model") if found.model != roles.model else ("gps", "imu", "pose", "masks")
    now = {part: getattr(found, part) for part in parts}
    late = {p: t for p, t in now.items() if t in topics and t != getattr(roles, p) and t not in used}
    return late | ({"masks": found.masks} if "model" in late else {})


def _expect_name(name: str) -> str:
    """Return the name that a topic will have once it is published."""
    return "/" + name.removeprefix("/")
