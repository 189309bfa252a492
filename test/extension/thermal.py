# SPDX-License-Identifier: Apache-2.0
"""Pictures of a thermal camera: mono16 as 16-bit grayscale PNG. In a test this is put into `sensors/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefirst_ros.config import Settings
from edgefirst_ros.counts import CANNOT_BE_STORED
from edgefirst_ros.errors import MessageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.companions import decode_depth
from edgefirst_ros.sensors.png import encode_gray


def check_thermal(message: Any, limits: Limits) -> None:
    """Raise MessageError when an Image is no whole mono16 one."""
    size = message.width * message.height
    if message.encoding != "mono16" or message.step != 2 * message.width or len(message.data) != 2 * size:
        raise MessageError(CANNOT_BE_STORED, f"{message.encoding} of {len(message.data)} bytes")
    if not 0 < size <= limits.picture_pixels:
        raise MessageError(CANNOT_BE_STORED, f"{message.width} x {message.height} pixels")


def encode_thermal(message: Any, _stamp: int, _settings: Settings) -> Sequence[bytes]:
    """Return the PNG of a mono16 Image."""
    values = np.frombuffer(message.data.view(), "<u2").reshape(message.height, message.width)
    return [encode_gray(values, smooth=True)]


def decode_thermal(png: bytes) -> NDArray[np.uint16]:
    """Return (height, width) uint16; raises MessageError where it cannot be read."""
    return decode_depth(png)
