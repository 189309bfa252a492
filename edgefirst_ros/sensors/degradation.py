# SPDX-License-Identifier: Apache-2.0
"""Degradation of a picture, estimated from the picture alone: blur, low contrast, under- or overexposure.

Source: EdgeFirst Annotation Schema 2026.04, "Sample Metadata" (none, low, medium, high); the measures and the limits
between these are our own.
"""

from __future__ import annotations

import io
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

LEVELS = ("none", "low", "medium", "high")
BLUR = (0.50, 0.60, 0.70)
"""Blur from which a picture is of low, medium, high degradation; sharp ones of several cameras have 0.2 to 0.46."""
FLATNESS = (-64, -40, -20)
"""The same of the span of brightness, negative, in steps of 8 bits: that from the 5th to the 95th percentile."""
CLIPPED = (0.25, 0.40, 0.60)
"""The same of the share of pixels that are next to black or white."""
DARK, BRIGHT = 8, 247
WINDOW = 9
"""Pixels over which a picture is blurred once more."""
EVERY = 4
"""Of the lines, and of the columns, one in so many is looked at for blur."""


def degradation_of(picture: bytes) -> str:
    """`none`, `low`, `medium` or `high` for the bytes of a JPEG or PNG: the worst of blur, contrast and exposure."""
    return degradation(_brightness(picture))


def degradation(luma: NDArray[np.uint8]) -> str:
    """Return the degradation of a luma picture, uint8 (height, width), full range."""
    low, high = np.percentile(luma[::EVERY, ::EVERY], (5, 95))
    clipped = float(np.mean((luma <= DARK) | (luma >= BRIGHT)))
    measured = ((blur(luma), BLUR), (float(low - high), FLATNESS), (clipped, CLIPPED))
    return LEVELS[max(bisect_right(limits, value) for value, limits in measured)]


def blur(luma: NDArray[np.uint8]) -> float:
    """0 (sharp) to 1: how little is lost of the differences of neighbours when the picture is blurred once more.

    Of the two directions the worse one, so that motion blur counts. Source: F. Crete et al., "The Blur Effect", 2007.
    """
    return max(_blur_along_lines(luma[::EVERY]), _blur_along_lines(luma[:, ::EVERY].T))


def _blur_along_lines(lines: NDArray[np.uint8]) -> float:
    padded = np.pad(np.ascontiguousarray(lines, np.int32), ((0, 0), (WINDOW // 2 + 1, WINDOW // 2)), "edge")
    sums = np.cumsum(padded, axis=1, dtype=np.int32)
    blurred = sums[:, WINDOW:] - sums[:, :-WINDOW]  # WINDOW times as large
    before = np.abs(np.diff(padded[:, WINDOW // 2 + 1 : -(WINDOW // 2)], axis=1)) * WINDOW
    lost = np.maximum(before - np.abs(np.diff(blurred, axis=1)), 0).sum(dtype=np.int64)
    total = before.sum(dtype=np.int64)
    return 1.0 - float(lost) / float(total) if total else 1.0


def _brightness(picture: bytes) -> NDArray[np.uint8]:
    if picture.startswith(b"\xff\xd8"):
        import simplejpeg

        luma: NDArray[np.uint8] = simplejpeg.decode_jpeg(picture, colorspace="GRAY")[..., 0]
        return luma
    from PIL import Image

    with Image.open(io.BytesIO(picture), formats=("PNG",)) as image:
        return np.asarray(image.convert("L"))
