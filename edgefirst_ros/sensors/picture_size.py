# SPDX-License-Identifier: Apache-2.0
"""Pictures scaled down to a largest width, and the intrinsics of their camera with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

AREA, FULL_CHROMA, ACCURATE = 0x20, 0x2000, 0x40000
"""Flags of swscale: area average, and what keeps RGB exact."""

Size = tuple[int, int]
"""Width and height, pixels."""


def scaled_size(width: int, height: int, most: int | None) -> Size:
    """Return the size of a picture of at most `most` pixels in width (None: any): even, in the same aspect."""
    if most is None or width <= most:
        return width, height
    narrow = most - most % 2
    return narrow, max(2, 2 * round(height * narrow / width / 2))


def scaled_info(info: Mapping[str, Any], before: Size, after: Size) -> dict[str, Any]:
    """Return the CameraInfo of pictures that were scaled, as image_proc's resize does it.

    The first line of k and p goes with the width, the second with the height. An info of another size than the
    pictures had keeps that proportion.
    """
    across, down = after[0] / before[0], after[1] / before[1]
    lines = across, down, 1.0
    return {
        **info,
        "width": round(info["width"] * across),
        "height": round(info["height"] * down),
        "k": [value * lines[n // 3] for n, value in enumerate(info["k"])],
        "p": [value * lines[n // 4] for n, value in enumerate(info["p"])],
    }
