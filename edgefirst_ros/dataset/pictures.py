# SPDX-License-Identifier: Apache-2.0
"""Decodes pictures of a dataset into arrays, with limits against hostile bytes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from edgefirst_ros.errors import DatasetError, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_PIXELS = 1 << 26
"""Pictures of more pixels are refused (an 8K picture has 2**25)."""
MAX_SCANNED = 1 << 30
"""A JPEG of more pixels times scans is refused: a scan of a few bytes goes over all of them."""
START_OF_SCAN = b"\xff\xda"


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """Return (height, width, 3) uint8 RGB of a JPEG or PNG. Raises DatasetError."""
    import simplejpeg
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise DatasetError(f"{width} x {height} pixels, more than {MAX_PIXELS}")
            if picture.format == "JPEG" and data.count(START_OF_SCAN) * width * height > MAX_SCANNED:
                raise DatasetError(f"{data.count(START_OF_SCAN)} scans of {width} x {height} pixels")
            if picture.format == "JPEG" and picture.mode in ("RGB", "L"):
                pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="RGB")
                return pixels
            return np.array(picture.convert("RGB"))
    except DatasetError:
        raise
    except Exception as error:  # whatever the libraries raise on bad bytes
        raise DatasetError(f"not a readable picture: {text_of(error)}") from error
