# SPDX-License-Identifier: Apache-2.0
"""Zenoh as a transport: the device's own bus, rmw_zenoh and the bridge of ROS 2; one subscription a topic in use."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.errors import UsageError, pluralize
from edgefirst_ros.messages import KNOWN_TOPICS
from edgefirst_ros.sources.live import Arrive, Offers, TopicState, Transport
from edgefirst_ros.sources.tiles import find_whole
from edgefirst_ros.sources.topics import CAMERA, CAMERA_NAMES, RESULTS, STATICS, is_glob, prefer_own
from edgefirst_ros.sources.zenoh_intake import MOST_KEYS, Gaps, Intake, Lane, read_sample
from edgefirst_ros.sources.zenoh_keys import (
    TILE_NAMES,
    TOKENS,
    Announced,
    list_candidates,
    name_topic,
    read_token,
    strip_name,
)
from edgefirst_ros.sources.zenoh_session import load_library

DOUBLES = 5.0
"""s for which a message may come by a second subscription, once that is given up: callbacks may be under way."""
MOST_TOKENS = 4096
"""Most publishers that are noted."""
MODELS = tuple(name for name in RESULTS if name not in STATICS)
"""Topics of the model's results: until one has come, any may."""


class ZenohTransport(Transport):
    """Discovers publishers by their tokens, and those without tokens by their messages.

    The device's services have no tokens: all possible keys of topics in use are subscribed beforehand, and only the
    right key once a topic has its role. Messages that come in the meantime stay (`Intake`).
    Owns: one thread calls `list_topics`, `listen` and `close`; tokens come in threads of Zenoh, under the lock.
    """

    def __init__(self, session: Any, settings: Settings, live: LiveSettings, namespace: str = "") -> None:
        """`session`: an open one, which is not closed here. `namespace`: topics under it are preferred."""
        self._zenoh = load_library()
        self._session = session
        self._settings = settings
        self._live = live
        self._namespace = namespace.strip("/")
        self._names = _list_wanted_names(settings)
        self._anchors = _list_cameras(settings)
        self._hints = {*CAMERA_NAMES, *TILE_NAMES} - self._names
        """Plain names of cameras that are not asked for: messages name them, and whose the other topics are."""
        self._sources = itertools.count()
        self._tokens: dict[str, Announced] = {}
        self._untold = False
        self._lock = threading.Lock()
        self._intake: Intake | None = None
        self._candidates: dict[str, list[Any]] = {}
        self._listened: dict[str, tuple[str, Any]] = {}  # {key in use: its plain name and subscription}
        self._doubled: list[Lane] = []  # two subscriptions bring them
        self._settled: list[tuple[float, Lane]] = []  # with the time when the others ended
        direct = partial(self._zenoh.handlers.Callback, indirect=False)
        watch = session.liveliness().declare_subscriber
        self._watching = [watch(key, direct(self._token), history=True) for key in TOKENS]

    # ---- topics --------------------------------------------------------------------------
    def list_topics(self, expected: Mapping[str, tuple[str, ...]]) -> Offers:
        intake = self._intake
        if intake is None:
            intake = self._intake = Intake(self._live.depth, self._live.pretrigger_bytes)
        now = time.monotonic()
        for lane in [lane for since, lane in self._settled if now - since >= DOUBLES]:
            intake.single(lane)
        self._settled = [(since, lane) for since, lane in self._settled if now - since < DOUBLES]
        names = self._list_expected_names(expected) if expected else self._names | self._hints
        self._subscribe_candidates(names, intake)
        self._settled += [(now, lane) for lane in self._doubled if lane.name not in self._candidates]
        # those whose topic may still come from another host
        self._doubled = [lane for lane in self._doubled if lane.name in self._candidates]
        if self._listened:
            intake.release()
        with self._lock:
            announced = {one.key: one for one in self._tokens.values()}
        lanes = {lane.key: lane for lane in intake.lanes()}
        found: dict[str, tuple[str, str]] = {}
        mixed = {lane.key: _is_foreign(lane) for lane in lanes.values() if lane.foreign}
        if intake.ignored:
            mixed["further keys"] = f"not used: messages of {MOST_KEYS} keys are stored, and more keys exist"
        if self._untold:
            mixed["further publishers"] = f"not used: {MOST_TOKENS} are noted, and more exist"
        keys = sorted({*announced, *lanes}, key=lambda key: (key not in self._listened, key.startswith("rt/"), key))
        for key in keys:
            one, own = announced.get(key), lanes.get(key)
            topic, schema = (name_topic(key), None) if one is None else (one.topic, one.schema)
            schema = schema if own is None else own.schema or schema
            if schema is None:
                mixed[key] = f"not used: its type is unknown, its encoding is {lanes[key].encoding or 'not given'}"
                continue
            name = strip_name(topic)
            if name in KNOWN_TOPICS and schema not in KNOWN_TOPICS[name] and find_whole(topic, schema) is None:
                mixed[key] = f"not used: its type is {schema}, expected is {' or '.join(KNOWN_TOPICS[name])}"
            elif topic in found:
                mixed[key] = f"not used: {topic} is heard as {found[topic][0]}"
            else:
                found[topic] = key, schema
        return Offers(self._prefer_namespace(found), mixed)

    def _prefer_namespace(self, found: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
        """Topics, without those whose part one under the namespace has; that one is named as the device names it."""
        begin = f"/{self._namespace}/"
        given = (*self._settings.given_topics, *self._settings.references)
        for topic, (_, schema) in list(found.items()):
            device = topic.removeprefix(begin).removeprefix("rt/")
            if topic in found and topic.startswith(begin) and schema in KNOWN_TOPICS.get(device, ()):
                found = prefer_own(found, topic, device, given)
        return found

    def _list_expected_names(self, expected: Iterable[str]) -> set[str]:
        """Plain names of topics that may still come, once the roles are assigned."""
        names = Counter(map(strip_name, expected))
        heard = Counter(name for name, _ in self._listened.values())
        if self._settings.model_topic is None and names.keys() & {*MODELS} and not heard.keys() & {*MODELS}:
            names |= Counter(MODELS)
        return {*(names - heard)}  # hosts may have a topic of the same name each

    def _token(self, sample: Any) -> None:
        """Note a publisher that came or ended; in a thread of Zenoh."""
        key = str(sample.key_expr)
        announced = read_token(key)
        with self._lock:
            if announced is not None and str(sample.kind).endswith("PUT"):
                if key in self._tokens or len(self._tokens) < MOST_TOKENS:
                    self._tokens[key] = announced
                else:
                    self._untold = True
            else:
                self._tokens.pop(key, None)

    # ---- subscriptions -------------------------------------------------------------------
    def _subscribe(self, key: str, name: str, intake: Intake, *, kept: bool = False) -> Any:
        """Subscribe a key expression; `kept`: request earlier messages, too."""
        source, anchor = next(self._sources), name in self._anchors

        def take(sample: Any) -> None:
            came = read_sample(sample)
            if came is not None and not self._is_anothers(str(sample.key_expr), name):
                intake.put(str(sample.key_expr), name, came, source, anchor=anchor, kept=name not in self._hints)

        callback = self._zenoh.handlers.Callback(take, indirect=False)  # in a thread of Zenoh: it only puts
        if kept:
            import zenoh.ext

            history = zenoh.ext.HistoryConfig(detect_late_publishers=True)
            return zenoh.ext.declare_advanced_subscriber(self._session, key, callback, history=history)
        return self._session.declare_subscriber(key, callback)

    def _is_anothers(self, key: str, name: str) -> bool:
        """True if a key is a place of a topic of this plain name, but in use by one of another name, or a longer one's.

        The topics `points` and `top/points` both may come on `rt/top/points`, and only one of them does.
        """
        listened = self._listened.get(key)
        if listened is not None:
            return listened[0] != name
        return any(len(other) > len(name) and f"/{key}".endswith(f"/{other}") for other in (*self._candidates,))

    def _subscribe_candidates(self, names: set[str], intake: Intake) -> None:
        """Subscribe to the places of topics of these names, and end such subscriptions for other names."""
        gone = self._candidates.keys() - names
        for name in gone:
            for subscription in self._candidates.pop(name):
                subscription.undeclare()
        if gone:
            intake.forget({lane.key for lane in intake.lanes() if lane.name in gone}, self._hints | self._anchors)
        for name in names - self._candidates.keys():
            keys = list_candidates(name, self._namespace)
            self._candidates[name] = [self._subscribe(key, name, intake) for key in keys]

    def listen(self, state: TopicState, arrive: Arrive, *, once: bool) -> bool:
        """Subscribe the key of a topic, as `Transport.listen` says; its stored messages are handed on first."""
        intake, key = self._intake, state.name
        with self._lock:
            publishers = sum(one.key == key for one in self._tokens.values())
        if intake is None or not (publishers or key in {lane.key for lane in intake.lanes()}):
            return False
        if key not in self._listened:
            name = strip_name(state.delivered_as)
            self._doubled.append(intake.listen(key, name, state, arrive, Gaps(by_stamps=not once)))
            subscription = self._subscribe(key, name, intake, kept=once and publishers > 0)
            self._listened[key] = name, subscription
        state.set_publishers(max(1, publishers))
        return True

    def close(self) -> None:
        """End all subscriptions once their messages are handed on; others may follow."""
        listened = (subscription for _, subscription in self._listened.values())
        for subscription in itertools.chain(listened, *self._candidates.values()):
            subscription.undeclare()
        self._listened, self._candidates, self._doubled, self._settled = {}, {}, [], []
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()


def _list_cameras(settings: Settings) -> set[str]:
    chosen = settings.reference_topic or settings.sensor(CAMERA).topic
    topics = (chosen,) if isinstance(chosen, str) else chosen  # choosing topics rejects several
    names = {*CAMERA_NAMES} if topics is None else {strip_name(topic) for topic in topics}
    return names | ({*TILE_NAMES} if names & {*TILE_NAMES} else set())


def _list_wanted_names(settings: Settings) -> set[str]:
    """Plain names of the topics that a capture has use for.

    Raises UsageError for a pattern: keys are subscribed by their names, before anybody publishes them.
    """
    given = settings.given_topics
    if (pattern := next(filter(is_glob, given), None)) is not None:
        raise UsageError(f"rig: {pattern!r} is a pattern; expected the whole name of the topic to record it from Zenoh")
    chosen = (settings.gps_topic, settings.imu_topic, settings.model_topic)
    gps, imu, model = (None if topic is None else strip_name(topic) for topic in chosen)
    names = {*STATICS, gps or "gps", imu or "imu", "fusion/boxes3d"}
    names |= {sensor.topic.name for sensor in settings.companions if sensor.instance is None}
    names |= {strip_name(topic) for topic in given}
    names |= {*_list_cameras(settings), *(["tf"] if settings.sensor("pose").tf is not None else [])}
    return names | ({*MODELS} if model is None else {model, *MODELS[2:]})


def _is_foreign(lane: Lane) -> str:
    others = ", ".join(f"{pluralize(n, 'message')} of {encoding}" for encoding, n in sorted(lane.foreign.items()))
    return f"left out: {others}; its first message was of {lane.encoding}"
