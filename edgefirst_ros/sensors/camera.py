# SPDX-License-Identifier: Apache-2.0
"""Video: from access units to pictures, each under the number of the message that carries it.

A picture is given only when it and everything it refers to came whole and was decoded without complaint. Nothing is
ever paired by counting: each unit goes into the decoder with its number as pts, and the number is read back.
"""

from __future__ import annotations

import contextlib
import logging
import re
from dataclasses import dataclass
from typing import Any

from edgefirst_ros.config import DEFAULT_LIMITS, Limits
from edgefirst_ros.counts import AFTER_LOSS, DAMAGED, NO_OUTPUT, NO_PICTURE, UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.bitstream import H264, H265, START_CODE, Tracker, Unit, parameter_sets, with_sets

CODECS = {"h264": "h264", "avc": "h264", "h265": "hevc", "hevc": "hevc"}
"""`format` of a CompressedVideo -> decoder."""
HARMLESS = (
    "mmco: unref short failure",  # a picture was to be forgotten that is already
    "number of reference frames",  # more are kept than announced; the oldest is dropped
    "Increasing reorder buffer",  # output order only
)
"""What libavcodec says at level error without any harm to a picture."""
HARMFUL = re.compile(r"Skipping invalid undecodable NALU: ([12]?\d|3[01])\s")
"""What it says only as a warning: of a slice of H.265 that breaks off, where the rest is what another picture left.
It says the same of messages beside the picture, which cameras fill as they like."""
BEYOND = b"\xff" * 1024
"""What stands behind each unit of H.265: a slice that was cut goes on in it, mostly as coefficients that cannot be.
libavcodec does not look where a slice ends, and decodes zeros for the rest of the picture without a word."""
LARGEST_BACKLOG = 64 << 20
"""Bytes of units that wait to be wanted; with more, the oldest are decoded all the same."""
UNIT_BYTES = 500
"""What a unit that waits takes beside its data."""
LARGEST_PREFIX = 1 << 20
"""Bytes of parameter sets kept."""


def codec_of(form: str) -> str:
    """Name of the decoder for the `format` of a CompressedVideo; raises MessageError for an unknown one."""
    try:
        return CODECS[form.strip().lower()]
    except KeyError:
        raise MessageError(UNDECODABLE, f"video format {form!r}; expected h264 or h265") from None


def _harms(level: int, text: str) -> bool:
    """Whether what libavcodec says means that a picture is not as it was."""
    import av

    if level > av.logging.ERROR:
        return HARMFUL.match(text) is not None
    return not any(harmless in text for harmless in HARMLESS)


def _with_end(data: bytes, codec: str) -> bytes:
    """An access unit of which libavcodec mostly notices where it was cut, if it ends with a slice."""
    last = data.rfind(START_CODE)
    slice_last = codec == "hevc" and 0 <= last < len(data) - 3 and data[last + 3] >> 1 & 63 < 32
    return data + BEYOND if slice_last else data


def tracker_of(codec: str) -> Tracker:
    """What follows the headers of a stream for a decoder, h264 or hevc."""
    return H264() if codec == "h264" else H265()


@dataclass(slots=True)
class _Waiting:
    """A unit that has not been fed to the decoder yet."""

    data: bytes
    sets: bytes  # parameter sets of units before it that are not fed
    unit: Unit
    entry: int  # the last entry up to here
    start: int  # the entry from which this picture can be decoded
    fresh: bool  # what came before it is lost
    skipped: bool = False

    @property
    def weight(self) -> int:
        return len(self.data) + len(self.sets) + UNIT_BYTES


class VideoReader:
    """Pictures of one video stream, on demand.

    Push every message in decode order; then ask for the pictures that are wanted, in the order in which they are
    shown, and `skip` the others. Groups of pictures that nobody wants are never decoded. One thread decodes, so that
    what the decoder complains about can be laid at the door of the unit it was given. `alone`: only keyframes are
    wanted, so nothing behind one is needed to bring it out. `decoder`: software, v4l2m2m (the hardware's, or software
    where it cannot be opened, which `note` then says), or auto (the same without a word). Units whose parameter sets
    announce more than `limits.picture_pixels` pixels count as damaged: nothing is allocated for them. `sets`: parameter
    sets of what came before.
    """

    def __init__(
        self,
        codec: str,
        *,
        alone: bool = False,
        decoder: str = "software",
        limits: Limits = DEFAULT_LIMITS,
        sets: bytes = b"",
    ) -> None:
        import av

        av.logging.set_level(av.logging.WARNING)  # without a level nothing can be captured
        av.logging.set_skip_repeated(False)  # the same complaint about two units is two complaints
        logging.getLogger("libav").setLevel(logging.ERROR)  # warnings of others, about nothing that matters here
        self.codec = codec
        self._alone = alone
        self._limits = limits
        self._tracker = tracker_of(codec)
        self.note = ""
        self._hardware = decoder != "software"
        self._asked_for = decoder == "v4l2m2m"
        self._decoder = self._open()
        self._sets = b""  # parameter sets of all units up to the last one fed
        self._waiting: dict[int, _Waiting] = {}  # in decode order
        self._waiting_bytes = 0
        self._inside: dict[int, Unit] = {}  # fed, nothing came out yet
        self._pictures: dict[int, Any] = {}
        self._faults: dict[int, str] = {}
        self._skipped: set[int] = set()  # fed, and not wanted
        self._prefix = sets  # parameter sets of units that are not fed
        self._entry = self._entry_before = -1
        self._heading = False  # more leading pictures of the last entry may come
        self._interrupted = False  # units were lost since the last one pushed
        self._hurt = False  # the decoder met damage: what it keeps of that may show in any later picture
        self._lost = False  # a reference of what follows is damaged or not in the decoder
        self._leading_lost = False  # the same for leading pictures of the last entry fed

    # ---- units ---------------------------------------------------------------------------
    def lost(self) -> None:
        """A message before the next one is lost or cannot be read."""
        self._tracker.lost()
        self._interrupted = True

    def push(self, number: int, data: bytes, unit: Unit | None = None) -> Unit:
        """Take the next access unit in decode order; numbers must rise. `unit`: its headers, where they were read."""
        unit = unit or self._tracker.unit(data)
        if unit.fault != NO_PICTURE:
            self._heading = (unit.entry and not unit.closed) or (self._heading and unit.leading)
        if unit.fault is not None:
            self._faults[number] = unit.fault
            self._prefix += data if unit.fault == NO_PICTURE else parameter_sets(data, self.codec)
            self._prefix = self._prefix[-LARGEST_PREFIX:]
            self._interrupted = self._interrupted or not (unit.leading or unit.fault == NO_PICTURE)
            return unit
        if unit.entry:
            self._entry_before, self._entry = self._entry, number
        start = self._entry_before if unit.leading else self._entry
        self._waiting[number] = _Waiting(data, self._prefix, unit, self._entry, start, unit.entry and self._interrupted)
        self._waiting_bytes += self._waiting[number].weight
        self._prefix = b""
        self._interrupted = self._interrupted and not unit.entry
        while self._waiting_bytes > LARGEST_BACKLOG:
            self._feed()
        return unit

    # ---- pictures ------------------------------------------------------------------------
    def picture(self, number: int, *, last: bool = False) -> Any:
        """The picture of a message.

        Returns an av.VideoFrame, a str that says why there is none, or None where more units must be pushed first;
        never None when `last` says that no more will come.
        """
        self._drop_unwanted(number)
        while True:
            if number in self._pictures:
                return self._pictures.pop(number)
            if number in self._faults:
                return self._faults.pop(number)
            if number in self._inside and (self._alone or (last and not self._waiting)):
                self._drain()
            elif self._waiting:
                self._feed()
            elif number in self._inside:
                return None
            else:
                raise ValueError(f"no unit {number} was pushed, or its picture was taken already")

    def skip(self, number: int) -> None:
        """Say that the picture of a message is not wanted."""
        self._pictures.pop(number, None)
        self._faults.pop(number, None)
        if number in self._inside:
            self._skipped.add(number)
        elif number in self._waiting:
            self._waiting[number].skipped = True
            wanted = next((n for n, waiting in self._waiting.items() if not waiting.skipped), None)
            if wanted is not None:
                self._drop_unwanted(wanted)

    def _drop_unwanted(self, number: int) -> None:
        """Drop what waits before the entry that a picture needs, where nobody wants it."""
        if number not in self._waiting:
            return
        start = self._waiting[number].start
        if start not in self._waiting or next(iter(self._waiting)) == start:
            return
        if start == self._entry and self._heading and not self._alone:
            return  # a leading picture that is still to come may be wanted
        unwanted = [n for n, w in self._waiting.items() if n < start or (w.unit.leading and w.entry == start)]
        if all(self._waiting[n].skipped for n in unwanted):
            sets = b""
            for n in unwanted:
                waiting = self._waiting.pop(n)
                self._waiting_bytes -= waiting.weight
                sets += waiting.sets + parameter_sets(waiting.data, self.codec) if n < start else b""
            sets = sets[-LARGEST_PREFIX:]
            self._waiting_bytes += len(sets)
            self._waiting[start].sets = sets + self._waiting[start].sets
            self._waiting[start].fresh = True

    def _feed(self) -> None:
        """Give the decoder the next unit."""
        number = next(iter(self._waiting))
        waiting = self._waiting.pop(number)
        self._waiting_bytes -= waiting.weight
        unit = waiting.unit
        if unit.entry:
            self._leading_lost = self._lost
            if self._lost or waiting.fresh or unit.closed:
                self._drain()
            self._lost = False
        self._prime(waiting.sets)
        for sets in (waiting.sets, parameter_sets(waiting.data, self.codec)):
            self._sets = with_sets(self._sets, sets, LARGEST_PREFIX)
        self._inside[number] = unit
        if waiting.skipped:
            self._skipped.add(number)
        if self._lost or (unit.leading and self._leading_lost):
            self._fault(number, AFTER_LOSS)
            return
        frames, clean = self._decode(waiting.data, number)
        if not clean:
            self._hurt = True
            self._damage(number)
        self._collect(frames)

    def _decode(self, data: bytes, number: int | None) -> tuple[list[Any], bool]:
        """Pictures that come out for this data, and whether it went in without complaint."""
        import av

        packet = av.Packet(data if self._hardware else _with_end(data, self.codec))
        packet.pts = packet.dts = number
        frames: list[Any] = []
        with av.logging.Capture() as log:
            try:
                frames = self._decoder.decode(packet)
            except av.FFmpegError:
                return [], False
        return frames, not any(_harms(level, text) for level, _, text in log)

    def _prime(self, sets: bytes) -> None:
        """Give the decoder parameter sets by themselves: they may be damaged though the unit behind them is not."""
        if sets:
            self._collect(self._decode(sets, None)[0])

    def _open(self) -> Any:
        import av

        if self._hardware:
            name = f"{self.codec}_v4l2m2m"
            try:
                with av.logging.Capture():
                    hardware: Any = av.CodecContext.create(name, "r")
                    hardware.open()
                return hardware
            except (av.FFmpegError, ValueError) as error:
                self._hardware = False
                if self._asked_for:
                    self.note = f"the decoder {name} cannot be opened ({error}): video is decoded in software"
        decoder: Any = av.CodecContext.create(self.codec, "r")
        decoder.thread_count = 1
        # strict: hold back as many pictures for reordering as the stream may need
        decoder.options = {"strict": "1", "max_pixels": str(self._limits.picture_pixels)}
        return decoder

    def _drain(self) -> None:
        """Bring out all that is inside the decoder; it can go on with an entry only."""
        import av

        if self._inside:
            with av.logging.Capture(), contextlib.suppress(av.FFmpegError):  # what does not come out is counted below
                self._collect(self._decoder.decode(None))
            for number in list(self._inside):
                self._fault(number, NO_OUTPUT)
        if self._hurt:  # flushing does not clear all: coefficients left of a broken block go into the next one
            self._decoder = self._open()
            self._prime(self._sets)
        else:
            self._decoder.flush_buffers()
        self._hurt = False
        self._lost = True

    def _collect(self, frames: list[Any]) -> None:
        for frame in frames:
            number = frame.pts
            if frame.is_corrupt:
                self._damage(number)
            if self._inside.pop(number, None) is None:
                continue  # found damaged already
            if number in self._skipped:
                self._skipped.discard(number)
            else:
                self._pictures[number] = frame

    def _damage(self, number: int) -> None:
        """Withhold the picture of a unit the decoder complained about, and those that may depend on it."""
        unit = self._inside.get(number)
        if unit is None:
            return
        self._fault(number, DAMAGED)
        if unit.leading:
            self._leading_lost = True
        elif unit.reference:
            self._lost = True

    def _fault(self, number: int, reason: str) -> None:
        self._inside.pop(number, None)
        if number in self._skipped:
            self._skipped.discard(number)
        else:
            self._faults[number] = reason
