# SPDX-License-Identifier: Apache-2.0
"""Video of which all pictures or all keyframes are wanted: groups coded side by side, given out as asked for.

A group begins with a unit behind which nothing refers to what came before it, so each has a `VideoReader` of its own,
and the pictures are those that one reader would give for the whole stream. Only where parameter sets are damaged the
one may withhold a picture that the other gives.

A picture is encoded by the thread that decoded it, while it lies in the cache of its core.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.bitstream import LARGEST_SETS, Tracker, Unit, parameter_sets, with_sets
from edgefirst_ros.sensors.camera import LARGEST_BACKLOG, VideoReader, tracker_of

MOST_THREADS = 16
"""Each holds a decoder, and messages of a second or so wait for the pictures it is ahead by."""
AHEAD_BYTES = 48 << 20
"""Of pictures a thread, that are held while others are asked for: 16 of 1920 x 1080 where they are not encoded."""
AHEAD_UNITS = 32
"""Units a thread that are taken in before their pictures are waited for: what belongs to them is held for so long."""
SHORTEST = 8
"""Units a group has at least, so that a stream of keyframes does not become as many decoders."""
SHORTEST_ALONE = 2
"""The same where only keyframes are decoded: seconds may lie between them."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A picture as the bytes of its file."""

    width: int
    height: int
    data: bytes


class _Group:
    """What is to be decoded by one reader, and what came out."""

    def __init__(self) -> None:
        self.units: deque[tuple[int, bytes, Unit] | None] = deque()  # None: something is lost here
        self.found: dict[int, Any] = {}
        self.skipped: set[int] = set()
        self.taken_in = 0
        self.held = 0  # bytes of pictures found
        self.started = False
        self.closed = False  # no more units come
        self.idle = False  # waits for units
        self.error: BaseException | None = None


class GroupReader:
    """As `VideoReader`, by `threads` decoders in software (at most 16); `close` ends them.

    `picture` gives None also where more units may be pushed while the picture is in the making. `alone`: only keyframes
    are asked for. With `encode`, a function that makes a file of an av.VideoFrame, pictures are `Encoded`.
    """

    note = ""

    def __init__(
        self,
        codec: str,
        threads: int,
        *,
        alone: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.codec = codec
        self._encode = encode
        self._alone = alone
        self._limits = limits
        self._tracker: Tracker = tracker_of(codec)
        self._threads = min(threads, MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "decode")
        self._changed = threading.Condition()
        self._of: dict[int, _Group] = {}  # pushed, neither taken nor skipped
        self._last: _Group | None = None
        self._sets = b""  # parameter sets of all units so far
        self._waiting_bytes = 0
        self._held = 0  # bytes of pictures found, of all groups
        self._asked: _Group | None = None  # the group whose picture is waited for
        self._given_up = False

    # ---- units ---------------------------------------------------------------------------
    def lost(self) -> None:
        """A message before the next one is lost or cannot be read."""
        self._tracker.lost()
        with self._changed:
            if self._last is not None:
                self._last.units.append(None)
                self._changed.notify_all()

    def push(self, number: int, data: bytes) -> Unit:
        """Take the next access unit in decode order; numbers must rise."""
        unit = self._tracker.unit(data)
        group = self._last
        if unit.keyframe or not self._alone:
            shortest = SHORTEST_ALONE if self._alone else SHORTEST
            if group is None or (unit.entry and unit.closed and group.taken_in >= shortest):
                group = self._begin()
            with self._changed:
                group.units.append((number, data, unit))
                group.taken_in += 1
                self._waiting_bytes += len(data)
                self._of[number] = group
                self._changed.notify_all()
        self._sets = with_sets(self._sets, parameter_sets(data, self.codec), LARGEST_SETS)
        return unit

    def _begin(self) -> _Group:
        self._end()
        group = self._last = _Group()
        self._pool.submit(self._decode, group, self._sets)
        return group

    def _end(self) -> None:
        """No more units come for the last group."""
        if self._last is not None:
            with self._changed:
                self._last.closed = True
                self._changed.notify_all()

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, number: int, *, last: bool = False) -> Any:
        """The picture of a message: as `VideoReader.picture`."""
        if last:
            self._end()
        group = self._of[number]
        with self._changed:
            while number not in group.found:
                if group.error is not None:
                    raise group.error
                if self._given_up:
                    raise ValueError("the reader is closed")
                if not last and ((group.idle and not group.closed) or self._more()):
                    return None
                self._asked = group
                self._changed.notify_all()
                self._changed.wait()
            self._asked = None
            del self._of[number]
            return self._out(group, number)

    def _more(self) -> bool:
        """Whether more units can be taken in before pictures are waited for."""
        return len(self._of) < AHEAD_UNITS * (self._threads + 1) and self._waiting_bytes < LARGEST_BACKLOG

    def skip(self, number: int) -> None:
        """Say that the picture of a message is not wanted."""
        with self._changed:
            group = self._of.pop(number, None)
            if group is not None and number in group.found:
                self._out(group, number)
            elif group is not None:
                group.skipped.add(number)

    def _out(self, group: _Group, number: int) -> Any:
        found = group.found.pop(number)
        group.held -= _size(found)
        self._held -= _size(found)
        self._changed.notify_all()
        return found

    def close(self) -> None:
        """End all threads."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- in the threads that decode --------------------------------------------------------
    def _decode(self, group: _Group, sets: bytes) -> None:
        try:
            self._work(group, VideoReader(self.codec, alone=self._alone, limits=self._limits, sets=sets))
        except BaseException as error:  # noqa: BLE001  it is raised where the picture is asked for
            with self._changed:
                group.error = error
                self._changed.notify_all()

    def _work(self, group: _Group, reader: VideoReader) -> None:
        group.started = True
        pending: deque[int] = deque()
        last = False
        while not last and not self._given_up:
            last = self._next_unit(group, reader, pending)
            while pending:
                if pending[0] in group.skipped:
                    reader.skip(pending.popleft())
                    continue
                found = reader.picture(pending[0], last=last)
                if found is None:
                    break
                if self._encode is not None and not isinstance(found, str):
                    found = Encoded(found.width, found.height, self._encode(found))
                self._give(group, pending.popleft(), found)

    def _next_unit(self, group: _Group, reader: VideoReader, pending: deque[int]) -> bool:
        """Push the group's next unit; True where there is none any more."""
        with self._changed:
            while not group.units and not group.closed and not self._given_up:
                group.idle = True
                self._changed.notify_all()
                self._changed.wait()
            group.idle = False
            if not group.units:
                return True
            unit = group.units.popleft()
            self._waiting_bytes -= len(unit[1]) if unit is not None else 0
        if unit is None:
            reader.lost()
        else:
            reader.push(*unit)
            pending.append(unit[0])
        return False

    def _give(self, group: _Group, number: int, found: Any) -> None:
        """Put a picture where it can be asked for, once there is room."""
        with self._changed:
            while self._is_full(group) and not self._given_up and self._can_wait(group):
                self._changed.wait()
            if number not in group.skipped:
                group.found[number] = found
                group.held += _size(found)
                self._held += _size(found)
                self._changed.notify_all()

    def _is_full(self, group: _Group) -> bool:
        return group.held > AHEAD_BYTES or self._held > AHEAD_BYTES * self._threads

    def _can_wait(self, group: _Group) -> bool:
        """Whether the picture that is waited for, if any, comes without this group going on."""
        return self._asked is None or (self._asked is not group and self._asked.started)


def _size(found: Any) -> int:
    """Bytes of a picture."""
    if isinstance(found, Encoded):
        return len(found.data)
    return 0 if isinstance(found, str) else sum(plane.buffer_size for plane in found.planes)
