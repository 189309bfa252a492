# SPDX-License-Identifier: Apache-2.0
"""Grayscale PNG files of 1, 8 and 16 bits, written and read: masks, labels and depth."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.picture_file import Buffer, png_chunks
from edgefirst_ros.sensors.png import NONE, SUB, encode_png, filtered

MAX_PIXELS = 1 << 26
"""Pictures of more pixels are not read."""


def encode_gray(values: NDArray[Any], *, smooth: bool = False) -> bytes:
    """Return a PNG of (height, width) bool, uint8 or uint16, of 1, 8 or 16 bits; the same values give the same bytes.

    `smooth`: what was measured, of which the differences pack better; not labels, of which the values do.
    """
    bits = 1 if values.dtype == np.bool_ else 8 * values.dtype.itemsize
    if bits == 1:
        body = np.packbits(values, axis=1)
    else:
        body = np.ascontiguousarray(values, values.dtype.newbyteorder(">")).view(np.uint8)
    lines = filtered(body, SUB if smooth else NONE, max(1, bits // 8))
    return encode_png(lines, values.shape[1], bits)


def decode_gray(png: bytes) -> NDArray[Any] | None:
    """(height, width) bool, uint8 or uint16 of a grayscale PNG; None when it is none or cannot be read."""
    from PIL import Image

    values = _plainly(png)
    if values is None:
        try:
            with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return None
                values = np.array(picture)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
    if values.dtype == np.int32:  # what older versions of Pillow make of 16 bits
        values = values.astype(np.uint16)
    return values if values.ndim == 2 and values.dtype in (np.bool_, np.uint8, np.uint16) else None


def is_filled(png: bytes) -> bool:
    """True if the values of a grayscale PNG are as many as its header says; raises MessageError for a broken file.

    Pillow takes those that lack for 0, and leaves out those that are too many.
    """
    width = height = bits = passes = 0
    packed: list[memoryview] = []
    for kind, body in png_chunks(png):
        if kind == b"IHDR":
            width, height, bits, _, _, _, passes = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed.append(body)
    length = height * (1 + (width * bits + 7) // 8)
    try:
        return bool(passes) or len(isal_zlib.decompressobj().decompress(b"".join(packed), length + 1)) == length
    except isal_zlib.error:  # type: ignore[misc]  # of which the stub says that it is an instance
        return False


def _plainly(png: bytes) -> NDArray[Any] | None:
    """Return the values of a picture that needs no Pillow; None of any other."""
    width = height = bits = 0
    ways: list[int] = []
    packed: list[memoryview] = []
    try:
        for kind, body in png_chunks(png):
            if kind == b"IHDR":
                width, height, bits, *ways = struct.unpack(">IIBBBBB", body)
            elif kind == b"IDAT":
                packed.append(body)
        if bits not in (1, 8, 16) or any(ways) or not 0 < width * height <= MAX_PIXELS:
            return None
        return unpacked(packed, width, height, bits)
    except (MessageError, isal_zlib.error):  # type: ignore[misc]  # of which the stub says that it is an instance
        return None


def unpacked(packed: Sequence[Buffer], width: int, height: int, bits: int) -> NDArray[Any] | None:
    """Return the values of a picture as `encode_gray` makes it, of its IDAT chunks: in a third of Pillow's time.

    (height, width) bool, uint8 or uint16. None where its lines have other filters, or their bytes are too many or too
    few. Raises isal_zlib.error where they cannot be unpacked.
    """
    step = (width * bits + 7) // 8
    unpacking = isal_zlib.decompressobj()
    plain = unpacking.decompress(b"".join(packed), height * (1 + step) + 1)
    if len(plain) != height * (1 + step) or not unpacking.eof:
        return None
    lines = np.frombuffer(plain, np.uint8).reshape(height, 1 + step)
    filters, body = lines[:, 0], lines[:, 1:]
    if (filters == SUB).all():
        body = np.add.accumulate(body.reshape(height, -1, max(1, bits // 8)), axis=1, dtype=np.uint8)
        body = body.reshape(height, step)
    elif filters.any():
        return None
    if bits == 1:
        return np.unpackbits(body, axis=1, count=width).view(np.bool_)
    return body if bits == 8 else np.ascontiguousarray(body).view(">u2").astype(np.uint16)
