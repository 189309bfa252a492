# SPDX-License-Identifier: Apache-2.0
"""The hardware's video decoder by V4L2: opened, and tried with a keyframe before it is trusted."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgefirst_ros.limits import Limits

NAME = "{codec}_v4l2m2m"
"""Name of the decoder in libavcodec."""
FURTHEST = 1.0
"""Steps of 255 by which its luma may differ from that of software, on average: decoding is exact by the standards."""


def open_hardware(codec: str) -> Any:
    """Return an open decoder; raises ValueError that says why there is none. `codec`: h264 or hevc."""
    import av

    try:
        with av.logging.Capture():
            context: Any = av.CodecContext.create(NAME.format(codec=codec), "r")
            context.open()
    except (av.FFmpegError, ValueError) as error:
        raise ValueError(f"the decoder {NAME.format(codec=codec)} cannot be opened ({error})") from None
    return context


def self_test(codec: str, keyframe: bytes, limits: Limits) -> str | None:
    """Decode a keyframe in hardware and in software; return what is wrong with that of the hardware, "" for nothing.

    None where nothing can be said, because software cannot decode it either.
    """
    import av

    software: Any = av.CodecContext.create(codec, "r")
    software.thread_count = 1
    software.options = {"max_pixels": str(limits.picture_pixels)}
    wanted = _luma(software, keyframe)
    if wanted is None:
        return None
    name = NAME.format(codec=codec)
    try:
        found = _luma(open_hardware(codec), keyframe)
    except ValueError as error:
        return str(error)
    if found is None:
        return f"the decoder {name} gave no picture of a keyframe that software can decode"
    return difference(name, found, wanted)


def difference(name: str, found: npt.NDArray[np.uint8], wanted: npt.NDArray[np.uint8]) -> str:
    """Return in words how the luma (height, width) that a decoder gave differs from what it should be; "" if not."""
    if found.shape != wanted.shape:
        sizes = (f"{luma.shape[1]} x {luma.shape[0]}" for luma in (found, wanted))
        return f"the decoder {name} gave a picture of {' in place of '.join(sizes)}"
    off = float(np.abs(found.astype(np.int16) - wanted).mean())
    return f"the decoder {name} gave another picture than software: {off:.1f} of 255 off" if off > FURTHEST else ""


def _luma(context: Any, keyframe: bytes) -> npt.NDArray[np.uint8] | None:
    """Return the luma (height, width) of a keyframe; None where it does not decode without complaint."""
    import av

    frames: list[Any] = []
    try:
        with av.logging.Capture():
            for packet in (av.Packet(keyframe), None):
                frames += context.decode(packet)
    except av.FFmpegError:
        return None
    if not frames or frames[0].is_corrupt:
        return None
    frame = frames[0]
    plane = frame.planes[0]
    rows = np.frombuffer(plane, np.uint8)[: plane.line_size * frame.height].reshape(frame.height, plane.line_size)
    return rows[:, : frame.width].copy()
