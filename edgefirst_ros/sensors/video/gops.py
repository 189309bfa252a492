# SPDX-License-Identifier: Apache-2.0
"""Video of which all pictures or all keyframes are wanted: GOPs are decoded side by side.

A GOP (group of pictures) begins with a unit behind which nothing refers to earlier ones, so each has a `VideoReader` of
its own, and the pictures are those that one reader would give for the whole stream. Only where parameter sets are
damaged the one may withhold a picture that the other gives.

A picture is encoded by the thread that decoded it, while it is in the cache of its core.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.picture import Picture
from edgefirst_ros.sensors.video.bitstream import AccessUnit, with_sets
from edgefirst_ros.sensors.video.reader import LARGEST_BACKLOG, VideoReader

MOST_THREADS = 16
"""Most threads: each has a decoder, and about a second of messages waits for the pictures it is ahead by."""
AHEAD_BYTES = 48 << 20
"""Of pictures a thread, that are held while others are asked for: 16 of 1920 x 1080 where they are not encoded."""
AHEAD_UNITS = 32
"""Units a thread that are taken in before their pictures are waited for: what belongs to them is held for so long."""
SHORTEST = 8
"""Units a GOP has at least, so that a stream of keyframes does not become as many decoders."""
SHORTEST_KEYFRAMES_ONLY = 2
"""The same where only keyframes are decoded: seconds may lie between them."""


class _GopState(Enum):
    """State of the thread of a GOP."""

    QUEUED = auto()
    """Without a thread so far."""
    DECODING = auto()
    STARVED = auto()
    """Waiting for more access units."""


@dataclass(slots=True)
class _Gop:
    """A GOP, decoded by one reader.

    Owns: all fields are read and changed under the lock of the `GopReader`.
    """

    units: deque[AccessUnit] = field(default_factory=deque)
    """Access units that its thread has not taken yet."""
    taken_in: int = 0
    """Number of its access units so far."""
    held: int = 0
    """Bytes of its pictures that are given and not taken."""
    state: _GopState = _GopState.QUEUED
    complete: bool = False
    """No more units come."""
    error: BaseException | None = None
    """Exception of its thread."""


class GopReader:
    """As `VideoReader`, by `threads` decoders in software (at most 16); `close` ends them.

    `picture` gives None also where more units may be pushed while the picture is in the making. `keyframes_only`: only
    these are asked for. With `encode` pictures are what that function makes of an av.VideoFrame.

    Owns: one thread pushes, asks and skips, and alone changes `_last`, `_sets` and `_waiting`; any thread may close.
    What the threads of the GOPs share with it is changed under the lock of `_given`, `_pushed` and `_taken`: also
    `given` and `finished` of a unit, and `outcome` once `given`.
    """

    note = ""

    def __init__(
        self,
        codec: str,
        threads: int,
        *,
        keyframes_only: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        encode: Callable[[Any], Picture | MessageError] | None = None,
    ) -> None:
        self.codec = codec
        self._encode = encode
        self._keyframes_only = keyframes_only
        self._limits = limits
        self._threads = min(threads, MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, "decode")
        lock = threading.Lock()
        self._given = threading.Condition(lock)
        """Wakes who asks for a picture."""
        self._pushed = threading.Condition(lock)
        """Wakes threads that wait for units."""
        self._taken = threading.Condition(lock)
        """Wakes threads that wait for room."""
        self._waiting = 0  # units that were pushed, and neither taken nor skipped
        self._last: _Gop | None = None
        self._sets = b""  # parameter sets of all units so far
        self._waiting_bytes = 0
        self._held = 0  # bytes of pictures given and not taken, of all GOPs
        self._asked: _Gop | None = None  # the GOP whose picture is waited for
        self._closed = False

    # ---- units ---------------------------------------------------------------------------
    def push(self, unit: AccessUnit) -> None:
        """Add the next access unit in decode order; numbers must rise."""
        gop, sets = self._last, unit.sets
        if unit.keyframe or not self._keyframes_only:
            shortest = SHORTEST_KEYFRAMES_ONLY if self._keyframes_only else SHORTEST
            if gop is None or (unit.entry and unit.closed and gop.taken_in >= shortest):
                gop = self._begin()
            with self._pushed:
                unit.gop, unit.finished = gop, not unit.wanted
                self._waiting += unit.wanted
                gop.units.append(unit)
                gop.taken_in += 1
                self._waiting_bytes += len(unit.data)
                self._pushed.notify_all()
        else:
            unit.drop_bytes()
        self._sets = with_sets(self._sets, sets)

    def _begin(self) -> _Gop:
        self._end()
        gop = self._last = _Gop()
        self._pool.submit(self._decode, gop, self._sets)
        return gop

    def _end(self) -> None:
        """Mark the last GOP as complete."""
        if self._last is not None:
            with self._pushed:
                self._last.complete = True
                self._pushed.notify_all()

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, unit: AccessUnit, *, last: bool = False) -> Any:
        """Take the picture of a unit: as `VideoReader.picture`.

        Raises what was raised while it was made, and ValueError if the reader is closed.
        """
        if last:
            self._end()
        gop = unit.gop
        with self._given:
            while not unit.given:
                if gop.error is not None:
                    raise gop.error
                if self._closed:
                    raise ValueError("the reader is closed")
                starved = gop.state is _GopState.STARVED and not gop.complete
                if not last and (starved or self._more()):
                    return None
                self._asked = gop
                self._taken.notify_all()
                self._given.wait()
            self._asked = None
            return self._take(unit)

    def _more(self) -> bool:
        """Return whether more units can be added before pictures are waited for."""
        return self._waiting < AHEAD_UNITS * (self._threads + 1) and self._waiting_bytes < LARGEST_BACKLOG

    def skip(self, unit: AccessUnit) -> None:
        """Say that the picture of a unit is not wanted."""
        with self._taken:
            if unit.gop is None or unit.finished:
                return
            if unit.given:
                self._take(unit)
            else:
                unit.finished = True
                self._waiting -= 1

    def _take(self, unit: AccessUnit) -> Any:
        found, unit.outcome = unit.outcome, None
        unit.finished, size = True, size_of(found)
        unit.gop.held -= size
        self._held -= size
        self._waiting -= 1
        self._taken.notify_all()
        return found

    def close(self) -> None:
        """End all threads."""
        with self._given:
            self._closed = True
            for waiting in (self._given, self._pushed, self._taken):
                waiting.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # ---- in the threads that decode --------------------------------------------------------
    def _decode(self, gop: _Gop, sets: bytes) -> None:
        try:
            reader = VideoReader(self.codec, keyframes_only=self._keyframes_only, limits=self._limits, sets=sets)
            self._work(gop, reader)
        except BaseException as error:  # noqa: BLE001  it is raised where the picture is asked for
            with self._given:
                gop.error = error
                self._given.notify_all()

    def _work(self, gop: _Gop, reader: VideoReader) -> None:
        pending: deque[AccessUnit] = deque()
        last = False
        while not last and not self._closed:
            last = self._next_unit(gop, reader, pending)
            while pending:
                unit = pending[0]
                if unit.finished:
                    reader.skip(pending.popleft())
                    continue
                found = reader.picture(unit, last=last)
                if found is None:
                    break
                if self._encode is not None and not isinstance(found, str):
                    found = self._encode(found)
                self._give(pending.popleft(), found)

    def _next_unit(self, gop: _Gop, reader: VideoReader, pending: deque[AccessUnit]) -> bool:
        """Push the GOP's next unit; return True if there is none any more."""
        with self._pushed:
            if not gop.units:
                self._given.notify_all()
            while not gop.units and not gop.complete and not self._closed:
                gop.state = _GopState.STARVED
                self._pushed.wait()
            gop.state = _GopState.DECODING
            if not gop.units:
                return True
            unit = gop.units.popleft()
            self._waiting_bytes -= len(unit.data)
        reader.push(unit)
        pending.append(unit)
        return False

    def _give(self, unit: AccessUnit, found: Any) -> None:
        """Put a picture where it can be asked for, once there is room."""
        gop = unit.gop
        with self._taken:
            while self._is_full(gop) and not self._closed and self._can_wait(gop):
                self._taken.wait()
            unit.outcome = None if unit.finished else found
            if not unit.finished:
                unit.given = True
                gop.held += size_of(found)
                self._held += size_of(found)
                if gop is self._asked:
                    self._given.notify_all()

    def _is_full(self, gop: _Gop) -> bool:
        return gop.held > AHEAD_BYTES or self._held > AHEAD_BYTES * self._threads

    def _can_wait(self, gop: _Gop) -> bool:
        """Return whether the picture that is waited for, if any, comes without this GOP going on."""
        return self._asked is None or (self._asked is not gop and self._asked.state is not _GopState.QUEUED)


def size_of(found: Any) -> int:
    """Return the bytes that the outcome of a unit holds."""
    if isinstance(found, Picture):
        return len(found.data or b"")
    return 0 if isinstance(found, str | MessageError) else sum(plane.buffer_size for plane in found.planes)
