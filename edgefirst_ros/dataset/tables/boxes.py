# SPDX-License-Identifier: Apache-2.0
"""Layouts of 2D boxes, and conversion between them.

Source: EdgeFirst Annotation Schema 2026.04, "File-Level Metadata" (box2d_format, box2d_normalized).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYOUTS = ("cxcywh", "xyxy", "ltwh")
"""Centre and size; two corners; left, top and size."""


def converted(boxes: NDArray[Any], found: str, wanted: str) -> NDArray[np.float64]:
    """Return boxes (N, 4) of layout `found` in layout `wanted`. Raises ValueError for an unknown layout."""
    first, second = np.asarray(boxes[:, :2], np.float64), np.asarray(boxes[:, 2:], np.float64)
    if found != wanted:
        left_top = {"cxcywh": first - second / 2, "xyxy": first, "ltwh": first}
        size = {"cxcywh": second, "xyxy": second - first, "ltwh": second}
        if found not in left_top:
            raise ValueError(f"{found!r} is not a box layout")
        first, second = left_top[found], size[found]
        if wanted == "cxcywh":
            first = first + second / 2
        elif wanted == "xyxy":
            second = first + second
        elif wanted != "ltwh":
            raise ValueError(f"{wanted!r} is not a box layout")
    return np.concatenate((first, second), axis=1)
