# SPDX-License-Identifier: Apache-2.0
"""libavcodec for one video stream: pictures under the number of the unit they came in, and whether it complained.

Decoding in hardware by V4L2 is tried with a keyframe before it is trusted. PyAV takes 50 ms to load, so this module is
imported with the first reader.
"""

from __future__ import annotations

import logging
import re
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from edgefirst_ros.limits import DEFAULT_LIMITS, Limits
from edgefirst_ros.sensors.picture import view_lines
from edgefirst_ros.sensors.video.bitstream import START_CODE, Buffer, with_sets

HARDWARE = "{codec}_v4l2m2m"
"""Name of a hardware's decoder in libavcodec."""
FURTHEST = 1.0
"""Steps of 255 by which its luma may differ from that of software, on average: decoding is exact by the standards."""
HARMLESS = (
    "mmco: unref short failure",  # a picture was to be forgotten that is already
    "number of reference frames",  # more than announced; the oldest is dropped
    "Increasing reorder buffer",  # output order only
)
"""Messages of libavcodec at level error that do not mean a damaged picture."""
HARMFUL = re.compile(r"Skipping invalid undecodable NALU: ([12]?\d|3[01])\s|concealing \d+ DC")
"""Messages of libavcodec at level warning or information that mean a damaged picture.

The first is of a slice of H.265 that breaks off, so that the rest shows pixels of another picture. It also exists for
other types of NAL units, which cameras fill as they like. The second is of missing blocks of H.264, which libavcodec
makes up: it marks the picture too, but pictures that refer to it may come out before it does."""
BEYOND = b"\xff" * 1024
"""Bytes after each unit of H.265: a cut slice continues in them, mostly as impossible coefficients. libavcodec does not
check where a slice ends, and silently decodes zeros for the rest of the picture."""


class Decoder:
    """A decoder of one thread, so that each of its errors belongs to the unit it is decoding.

    `codec`: h264 or hevc. `kind`: software, or v4l2m2m or auto: the hardware's, which has to decode the first keyframe
    as software does; software where it cannot, which `note` then says. It allocates no memory for pictures of more than
    `limits.picture_pixels` pixels: their units count as damaged.
    """

    def __init__(self, codec: str, kind: str = "software", limits: Limits = DEFAULT_LIMITS) -> None:
        av.logging.set_level(av.logging.INFO)  # without a level messages cannot be captured
        av.logging.set_skip_repeated(False)  # the same message about two units counts twice
        logging.getLogger("libav").setLevel(logging.ERROR)  # messages outside a capture do not matter
        self.codec = codec
        self.note = ""
        self._limits = limits
        self._hardware = kind != "software"
        self._tested = False
        self._hurt = False  # it met damage, whose remains may show in any later picture
        self._sets = b""  # parameter sets of all units so far
        self._context = self._open()

    def learn(self, sets: bytes) -> None:
        """Keep parameter sets for a decoder opened again, whether those decoded now read them or not."""
        self._sets = with_sets(self._sets, sets)

    def decode(self, data: Buffer, number: int | None) -> tuple[list[Any], bool]:
        """Decode a unit with its number as pts; (pictures that come out, whether it went in without complaint).

        Pictures are av.VideoFrame. Parameter sets by themselves have no number: they may be damaged though the unit
        after them is not.
        """
        if self._hardware and not self._tested and number is not None:
            fault = check_hardware(self.codec, b"".join((self._sets, data)), self._limits)
            self._tested = fault is not None
            if fault:
                self._fall_back(fault)
                self._open_again()
        whole: Any = data if self._hardware else _with_end(data, self.codec)
        packet = av.Packet(whole)
        packet.pts = packet.dts = number
        frames: list[Any] = []
        clean = True
        with av.logging.Capture() as log:
            try:
                frames = self._context.decode(packet)
            except av.FFmpegError:
                clean = False
        for level, _, text in log:
            harms = HARMFUL.match(text) if level > av.logging.ERROR else not any(of in text for of in HARMLESS)
            clean = clean and not harms
            if "exceeds specified max pixel count" in text:
                size = text.partition(" exceeds")[0].partition("size ")[2]
                most = f"{self._limits.picture_pixels} pixels (limits.picture_pixels)"
                self.note = f"pictures of {size} have more than {most}: they count as damaged"
        self._hurt = self._hurt or (number is not None and not clean)
        return frames, clean

    def drain(self) -> list[Any]:
        """Return all pictures that are still inside; afterwards only `restart` may come."""
        with av.logging.Capture():
            try:
                frames: list[Any] = self._context.decode(None)
            except av.FFmpegError:  # the reader finds missing pictures by number
                frames = []
        return frames

    def restart(self) -> None:
        """Forget all pictures: it can continue with an entry only."""
        if self._hurt:  # flushing does not clear all: coefficients of a broken block enter the next one
            self._open_again()
        else:
            self._context.flush_buffers()
        self._hurt = False

    def _open_again(self) -> None:
        self._context = self._open()
        if self._sets:
            self.decode(self._sets, None)

    def _fall_back(self, why: str) -> None:
        self._hardware = False
        self.note = f"{why}: video is decoded in software"

    def _open(self) -> Any:
        if self._hardware:
            try:
                return open_hardware(self.codec)
            except ValueError as error:
                self._fall_back(str(error))
        return _open_software(self.codec, self._limits)


def _open_software(codec: str, limits: Limits) -> Any:
    decoder: Any = av.CodecContext.create(codec, "r")
    decoder.thread_count = 1
    # strict: hold back as many pictures for reordering as the stream may need
    decoder.options = {"strict": "1", "max_pixels": str(limits.picture_pixels)}
    return decoder


def _with_end(data: Buffer, codec: str) -> Buffer:
    """Return an access unit of which libavcodec mostly notices where it was cut, if it ends with a slice."""
    if codec != "hevc":
        return data
    longer = b"".join((data, BEYOND))
    last = longer.rfind(START_CODE, 0, len(data))
    slice_last = 0 <= last < len(data) - 3 and longer[last + 3] >> 1 & 63 < 32
    return longer if slice_last else data


# ---- hardware ----------------------------------------------------------------------------------
def open_hardware(codec: str) -> Any:
    """Return an open decoder; raises ValueError with the cause if it cannot be opened. `codec`: h264 or hevc."""
    try:
        with av.logging.Capture():
            context: Any = av.CodecContext.create(HARDWARE.format(codec=codec), "r")
            context.open()
    except (av.FFmpegError, ValueError) as error:
        raise ValueError(f"the decoder {HARDWARE.format(codec=codec)} cannot be opened ({error})") from None
    return context


def check_hardware(codec: str, keyframe: bytes, limits: Limits) -> str | None:
    """Decode a keyframe in hardware and in software; return the fault with that of the hardware, "" without one.

    None where they cannot be compared, because software cannot decode it either.
    """
    wanted = _decode_luma(_open_software(codec, limits), keyframe)
    if wanted is None:
        return None
    name = HARDWARE.format(codec=codec)
    try:
        found = _decode_luma(open_hardware(codec), keyframe)
    except ValueError as error:
        return str(error)
    if found is None:
        return f"the decoder {name} gave no picture of a keyframe that software can decode"
    return describe_difference(name, found, wanted)


def describe_difference(name: str, found: npt.NDArray[np.uint8], wanted: npt.NDArray[np.uint8]) -> str:
    """Return in words how the luma (height, width) of a decoder differs from the expected one; "" if not."""
    if found.shape != wanted.shape:
        sizes = (f"{luma.shape[1]} x {luma.shape[0]}" for luma in (found, wanted))
        return f"the decoder {name} gave a picture of {' in place of '.join(sizes)}"
    off = float(np.abs(found.astype(np.int16) - wanted).mean())
    return f"the decoder {name} gave another picture than software: {off:.1f} of 255 off" if off > FURTHEST else ""


def _decode_luma(context: Any, keyframe: bytes) -> npt.NDArray[np.uint8] | None:
    """Return the luma (height, width) of a keyframe; None if it does not decode without errors."""
    frames: list[Any] = []
    try:
        with av.logging.Capture():
            for packet in (av.Packet(keyframe), None):
                frames += context.decode(packet)
    except av.FFmpegError:
        return None
    if not frames or frames[0].is_corrupt:
        return None
    return view_lines(frames[0].planes[0])[:, : frames[0].width].copy()
