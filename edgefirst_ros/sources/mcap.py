# SPDX-License-Identifier: Apache-2.0
"""Recordings in MCAP files, whole or damaged: read chunk by chunk, never seeking back, every loss reported."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgefirst_ros.errors import RecordingError
from edgefirst_ros.messages import Message
from edgefirst_ros.sources import mcap_walk
from edgefirst_ros.sources.mcap_walk import Chunk, McapWalk, split_message, unpack
from edgefirst_ros.sources.order import FileOrder, sort_recorded
from edgefirst_ros.sources.source import Channel, FileRecording, Repeats, in_span, open_raw, open_recording

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK = 1 << 20
_WAITING = 16  # most blocks that are read and not yet hashed
_LONG = 1 << 16  # bytes of a read that are hashed as they are returned; shorter ones are read again, many at once


class HashedFile(io.BufferedReader):
    """A recording whose bytes are hashed while it is read, so that little is read for only the hash.

    Owns: the digest belongs to the hashing thread; all else to the thread that reads.
    """

    def __init__(self, raw: io.FileIO) -> None:
        super().__init__(raw, _LONG)
        self._digest = hashlib.sha256()
        self._hashed = 0  # bytes that were handed to the thread
        self._blocks: Queue[Buffer] = Queue(_WAITING)
        self._thread = threading.Thread(target=self._work, name="hash", daemon=True)
        self._thread.start()

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as a file does; a long read is hashed without a copy, as far as it is not hashed yet."""
        data = super().read(size)
        if len(data) >= _LONG and self._hashed < (end := self.tell()):
            self._reach(end - len(data))
            self._hash_block(memoryview(data)[self._hashed - end + len(data) :])
        return data

    def advance(self, end: int) -> None:
        """Note that the reader has passed `end`: bytes read in short pieces are hashed, once they are a block.

        Raises OSError where it cannot be read again.
        """
        if end - self._hashed >= _BLOCK:
            self._reach(end)

    def sha256(self) -> str:
        """Return the hash of the whole file, as hex digits; waits for the thread."""
        self._reach(os.fstat(self.fileno()).st_size)
        self._end()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file and end the thread; you may close twice."""
        if not self.closed:
            self._end()
        super().close()

    def _reach(self, end: int) -> None:
        """Hash the bytes before `end` that were not read in one piece."""
        while self._hashed < end and (block := os.pread(self.fileno(), min(_BLOCK, end - self._hashed), self._hashed)):
            self._hash_block(memoryview(block))

    def _hash_block(self, data: memoryview) -> None:
        for at in range(0, len(data), _BLOCK):
            block = data[at : at + _BLOCK]  # a view keeps all of its data, so much data are copied
            self._blocks.put(block if len(data) <= _WAITING * _BLOCK else bytes(block))
        self._hashed += len(data)

    def _end(self) -> None:
        if self._thread.is_alive():
            self._blocks.put(b"")
            self._thread.join()

    def _work(self) -> None:
        while block := self._blocks.get():
            self._digest.update(block)


HELD_CHUNKS = 64 << 20
"""Bytes of unpacked chunks held while a recording that is out of order is sorted."""


class _Place(NamedTuple):
    """A chunk, its file, and the ids of the wanted channels in that file."""

    file: McapWalk
    chunk: Chunk
    wanted: frozenset[int]


class McapRecording(FileRecording):
    """MCAP files: a `Recording`.

    `walk()` reads everything once, checks every chunk, and stores the channels in `channels`, and the damage in
    `files`. `iter_messages()` then reads the messages of some topics in recorded order, any number of times; it first
    walks the rest. The border between two files cuts no message.
    """

    _files: Sequence[McapWalk]

    @property
    def channels(self) -> Mapping[int, Channel]:
        return self._files[0].channels if len(self._files) == 1 else super().channels

    def _begin(self, repeats: Repeats | None) -> Sequence[McapWalk]:
        order = FileOrder()
        return [McapWalk(path, number, repeats, order, self._largest) for number, path in enumerate(self._paths)]

    def _walk(self, file: McapWalk) -> Iterator[Message]:
        if not self._hashed:
            with open_recording(file.path) as opened:
                yield from file.messages(opened)
            return
        with HashedFile(open_raw(file.path)) as hashed:
            yield from file.messages(hashed, hashed.advance)
            file.sha256 = hashed.sha256()

    def iter_messages(
        self, topics: Collection[str] | None = None, start: int | None = None, end: int | None = None
    ) -> Iterator[Message]:
        """Yield the CDR messages of some topics in recorded order, as `Recording.iter_messages` says.

        Recorded order within a topic is that of `log_time`; sequence numbers put messages in order that are near each
        other (`order_topic`). Between topics it is file order, or that of `log_time` where the files are out of order.
        Raises RecordingError where a file cannot be read, or has changed since it was walked.
        """
        self._finish_walk()
        places = []
        for file in self._files:
            wanted = file.select_channels(topics)
            places += [_Place(file, c, wanted) for c in file.chunks if c.contents.counts.keys() & wanted]
        if self._files[0].order.is_recorded_order:
            found = self._file_order(place for place in places if place.chunk.contents.overlaps(start, end))
        else:
            found = self._iter_sorted(places, start, end)
        yield from (message for message in found if in_span(message.log_time, start, end))

    def _file_order(self, places: Iterable[_Place]) -> Iterator[Message]:
        left = 0
        for file, mine in itertools.groupby(places, attrgetter("file")):
            with open_recording(file.path) as opened, _check_unchanged(file.path):
                for place in mine:
                    left += place.chunk.contents.of(place.wanted)
                    for head, body in mcap_walk.read_messages(opened, place.chunk, place.wanted, self._largest):
                        message = file.message(head, body)
                        if not file.is_repeated(message):
                            left -= 1
                            yield message
        self._complete(left)

    def _complete(self, left: int) -> None:
        """Raise RecordingError where `left` messages of the first pass are not there any more."""
        if left:
            raise RecordingError(f"{self.path}: changed while it was read: {left} messages are missing")

    def _iter_sorted(self, places: Sequence[_Place], start: int | None, end: int | None) -> Iterator[Message]:
        """Yield messages of files that are out of order, by an index of 32 bytes a message."""
        rows = sort_recorded(self._index(places))
        self._complete(sum(place.chunk.contents.of(place.wanted) for place in places) - len(rows))
        held: OrderedDict[int, bytes] = OrderedDict()
        for log, key, at, length in zip(rows["log"], rows["chunk"], rows["at"], rows["length"], strict=True):
            if not in_span(min(int(log), mcap_walk.LATEST), start, end):
                continue
            number = int(key)
            if number not in held:
                held[number] = self._unpack(places[number])
                while len(held) > 1 and sum(map(len, held.values())) > HELD_CHUNKS:
                    held.popitem(last=False)
            held.move_to_end(number)
            yield places[number].file.message(*split_message(held[number], int(at), int(length)))

    def _unpack(self, place: _Place) -> bytes:
        with open_recording(place.file.path) as opened, _check_unchanged(place.file.path):
            return unpack(opened, place.chunk, self._largest)

    def _index(self, places: Sequence[_Place]) -> np.ndarray[Any, Any]:
        fields = ["topic", "file", "sequence", "log", "chunk", "at", "length"]
        kind = np.dtype(list(zip(fields, ("u4", "u4", "u4", "u8", "u4", "u4", "u4"), strict=True)))
        names = {place.file.channels[number].topic for place in places for number in place.wanted}
        topics = {topic: number for number, topic in enumerate(sorted(names))}
        parts = []
        for number, place in enumerate(places):
            data = self._unpack(place)
            walk, found = place.file, []
            for channel, at, length in mcap_walk.iter_messages(data, place.wanted):
                _, sequence, log, _ = mcap_walk.MESSAGE_HEAD.unpack_from(data, at)
                if not walk.repeated or not walk.is_repeated(walk.message(*split_message(data, at, length))):
                    topic = topics[walk.channels[channel].topic]
                    found.append((topic, walk.number, sequence, log, number, at, length))
            parts.append(np.array(found, kind))
        return np.concatenate(parts) if parts else np.empty(0, kind)


@contextmanager
def _check_unchanged(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise RecordingError(f"{path}: changed while it was read: {error}") from error
