# SPDX-License-Identifier: Apache-2.0
"""Joins pictures that the camera sends as four tiles, by their equal stamps."""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from edgefirst_ros.messages import Message, join_tiles, read_header_stamp
from edgefirst_ros.sources.source import Channel, RecordedFile, Recording
from edgefirst_ros.streams import TILED, TILES, VIDEO

LONGEST_WAIT = 2_000_000_000
"""ns of stamps for which a tile is waited for; a later one counts as missing."""
MOST_WAITING = 256
"""Most stamps that wait for tiles, and that are remembered as joined."""


@functools.lru_cache(maxsize=4096)  # asked with every message
def find_whole(topic: str, schema: str) -> tuple[str, int] | None:
    """Return the topic of the picture that a topic's messages are a tile of, and which one; None for no tile."""
    name = topic.rpartition("/")[2]
    if schema != VIDEO or name not in TILES or not topic.removesuffix(f"/{name}").endswith("camera/h264"):
        return None
    return f"{topic.removesuffix(name)}{TILES[0]}", TILES.index(name)


@dataclass(slots=True)
class _Pending:
    """A stamp with missing tiles."""

    place: int  # its place in the order of stamps
    first: Message
    tiles: list[bytes | None]
    missing: list[tuple[int, int]]  # losses before each tile that came: known, and estimated


class Joined(NamedTuple):
    """A message of all tiles, and the losses before it: known, and estimated."""

    message: Message
    lost: int
    guessed: int


class TileJoiner:
    """Joins the tiles of one picture topic, in the order in which the first of each stamp came.

    A tile is missing where its stream is already at a stamp further on in that order, which of B-frames is not the
    order of time: then the message has no picture for it. Where all four of a stamp are lost, the number of the message
    steps by more than one.
    Owns: one thread at a time calls it.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._pending: dict[int, _Pending] = {}
        self._joined_stamps: deque[int] = deque(maxlen=MOST_WAITING)
        self._places = 0
        self._reached = [-1] * len(TILES)  # place of the newest stamp of each tile
        self._last: list[tuple[int, int] | None] = [None] * len(TILES)
        """File and number of the last message of each tile."""
        self._number = -1
        self._stamps = [0] * len(TILES)  # stamp of the last message of each tile, ns

    def add(self, message: Message, tile: int, guessed: int = 0) -> Iterator[Joined]:
        """Take the next message of a tile; yield the joined ones that are complete, or can be no more.

        `guessed`: how many of that tile seem to be lost before it, in addition to what its number says.
        """
        stamp = read_header_stamp(message) or 0
        last, self._last[tile] = self._last[tile], (message.file, message.sequence)
        missing = message.sequence - last[1] - 1 if last is not None and last[0] == message.file else 0
        if stamp < self._stamps[tile] - LONGEST_WAIT:  # the clock was set back: the same stamps may come again
            self._joined_stamps.clear()
        self._stamps[tile] = stamp
        if stamp not in self._pending:
            self._pending[stamp] = _Pending(self._places, message, [None] * len(TILES), [])
            self._places += 1
        pending = self._pending[stamp]
        pending.tiles[tile] = message.data
        pending.missing.append((max(0, missing), guessed))
        if stamp in self._joined_stamps:  # too late
            yield self._join(stamp)
            return
        self._reached[tile] = max(self._reached[tile], pending.place)
        while self._pending and self._is_ready(*next(iter(self._pending.items()))):
            yield self._join(next(iter(self._pending)))

    def _is_ready(self, stamp: int, pending: _Pending) -> bool:
        open_ones = zip(pending.tiles, self._reached, strict=True)
        if all(data is not None or reached > pending.place for data, reached in open_ones):
            return True
        return len(self._pending) >= MOST_WAITING or max(self._pending) - stamp >= LONGEST_WAIT

    def flush(self) -> Iterator[Joined]:
        """Yield what still waits; no further tile will come."""
        while self._pending:
            yield self._join(next(iter(self._pending)))

    def _join(self, stamp: int) -> Joined:
        pending = self._pending.pop(stamp)
        self._joined_stamps.append(stamp)
        lost, guessed = (min(numbers) for numbers in zip(*pending.missing, strict=True))  # of every tile that came
        self._number += 1 + lost
        data = join_tiles(stamp, pending.tiles)
        whole = pending.first._replace(
            topic=self._topic, schema=TILED, sequence=self._number, data=data, definition=b""
        )
        return Joined(whole, lost, guessed)


class TiledRecording(Recording):
    """A recording whose tiles are one topic; everything else is as in the recording itself."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.path: Path = recording.path
        self._joined: defaultdict[str, set[int]] = defaultdict(set)
        """Topic of the whole picture -> stamps of which it has a tile."""

    @property
    def files(self) -> Sequence[RecordedFile]:
        return self._recording.files

    @property
    def repeated(self) -> Mapping[str, int]:
        """{topic: messages that two of its files have}; except tiles, which are counted by stamps."""
        types = self._recording.topics
        return {t: n for t, n in self._recording.repeated.items() if find_whole(t, types.get(t, "")) is None}

    @property
    def topics(self) -> Mapping[str, str]:
        found = {}
        for topic, schema in self._recording.topics.items():
            whole = find_whole(topic, schema)
            found[topic if whole is None else whole[0]] = schema if whole is None else TILED
        return found

    @property
    def channels(self) -> Mapping[int, Channel]:
        """Channels by id, as `walk()` found them; the tiles as one, with as many messages as stamps."""
        found: dict[int, Channel] = {}
        for number, channel in self._recording.channels.items():
            whole = find_whole(channel.topic, channel.schema)
            if whole is None:
                found[number] = channel
            elif not any(other.topic == whole[0] for other in found.values()):
                seen = len(self._joined[whole[0]])
                found[number] = replace(channel, topic=whole[0], schema=TILED, definition=b"", seen=seen)
        return found

    def walk(self) -> Iterator[Message]:
        self._joined.clear()
        for message in _join_messages(self._recording.walk()):
            if message.schema == TILED:
                stamps, stamp = self._joined[message.topic], read_header_stamp(message) or 0
                if stamp in stamps:
                    continue  # its other tiles are far away, in another file
                stamps.add(stamp)
            yield message

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        wanted: Collection[str] | None = topics
        if isinstance(topics, Mapping):
            wanted = {name: s for topic, schema in topics.items() for name, s in list_tiles(topic, schema)}
        elif topics is not None:
            types = self.topics
            wanted = {name for topic in topics for name, _ in list_tiles(topic, types.get(topic, ""))}
        return _join_messages(self._recording.iter_messages(wanted, start, end))


def list_tiles(topic: str, schema: str) -> list[tuple[str, str]]:
    """Return (topic, type) of the tiles that make up a topic."""
    if schema != TILED:
        return [(topic, schema)]
    return [(f"{topic.removesuffix(TILES[0])}{name}", VIDEO) for name in TILES]


def _join_messages(messages: Iterator[Message]) -> Iterator[Message]:
    joiners: dict[str, TileJoiner] = {}
    for message in messages:
        whole = find_whole(message.topic, message.schema)
        if whole is None:
            yield message
        else:
            joiner = joiners.setdefault(whole[0], TileJoiner(whole[0]))
            yield from (joined.message for joined in joiner.add(message, whole[1]))
    for joiner in joiners.values():
        yield from (joined.message for joined in joiner.flush())
