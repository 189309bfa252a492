# SPDX-License-Identifier: Apache-2.0
"""Camera tiles of a running system as one topic, independent of the transport."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from edgefirst_ros.messages import Message
from edgefirst_ros.sources.live import Arrive, Offers, Passage, TopicState, Transport
from edgefirst_ros.sources.tiles import TileJoiner, parts_of, whole_of
from edgefirst_ros.streams import TILED, VIDEO


class TilingTransport(Transport):
    """A transport around another one that presents its tiles as one topic.

    Owns: one thread calls `look`, `listen` and `close`; tiles come in any, and are joined under the lock.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._names: dict[str, str] = {}
        """Topics of tiles -> their names in the system."""
        self._parts: dict[str, TopicState] = {}
        self._joiners: dict[str, TileJoiner] = {}
        self._lock = threading.Lock()

    def look(self, expected: Mapping[str, tuple[str, ...]]) -> Offers:
        """Return the topics that somebody publishes now; those of tiles as one, once its first tile is there."""
        parts = {
            part: (schema,)
            for topic, types in expected.items()
            if TILED in types
            for part, schema in parts_of(topic, TILED)
        }
        offers = self._transport.look({**expected, **parts})
        names: dict[str, tuple[str, str]] = {}
        for topic, (name, schema) in offers.names.items():
            whole = whole_of(topic, schema)
            if whole is None:
                names[topic] = name, schema
                continue
            self._names[topic] = name
            if whole[1] == 0:
                names[whole[0]] = name, TILED
        return Offers(names, offers.mixed)

    def listen(self, state: TopicState, arrive: Arrive, *, once: bool) -> bool:
        """Subscribe a topic, as `Transport.listen` says; one of tiles by all that are there."""
        if state.schema != TILED:
            return self._transport.listen(state, arrive, once=once)
        whole = whole_of(next(topic for topic, name in self._names.items() if name == state.name), VIDEO)
        joiner = self._joiners.setdefault(state.name, TileJoiner(state.delivered_as))
        heard = False
        for tile, (topic, _) in enumerate(parts_of(whole[0] if whole is not None else "", TILED)):
            if topic in self._names:
                part = self._parts.setdefault(topic, TopicState(self._names[topic], topic, VIDEO))
                heard = self._transport.listen(part, self._take(part, tile, joiner, arrive), once=once) or heard
                state.fault = part.fault or state.fault
        state.heard_of(1)
        return heard

    def _take(self, part: TopicState, tile: int, joiner: TileJoiner, arrive: Arrive) -> Arrive:
        """Return the callback for messages of a tile."""

        def take(data: bytes, number: int | None, passage: Passage | None = None, /) -> None:
            with self._lock:
                way = passage or Passage(time.monotonic_ns(), time.time_ns())
                number, _ = part.arrived(number, way.now, way.lost)
                message = Message(part.name, VIDEO, way.received, way.received, number, data)
                for joined in joiner.add(message, tile, way.guessed):
                    came = Passage(way.now, joined.message.log_time, joined.lost, joined.guessed)
                    arrive(joined.message.data, None, came)

        return take

    def close(self) -> None:
        """Close all subscriptions; new ones may follow."""
        self._transport.close()
        self._parts, self._joiners = {}, {}
