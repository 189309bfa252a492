# SPDX-License-Identifier: Apache-2.0
"""PNG files with the same bytes on every processor and in every thread.

Deflate is that of zlib at level 1, window 15, memLevel 9, strategy Z_RLE: it looks for runs alone and has no hash
table, so zlib-ng makes the bytes of zlib whatever vectors it has.  ISA-L's differ by processor, on x86 also by the
address of its state.  Source: PNG 3, "Filtering", "Compression".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.sensors.picture_file import PNG_SIGNATURE, Buffer, png_parts

GRAY, RGB = 0, 2
"""Colour types."""
NONE, SUB, UP = 0, 1, 2
"""Filters of a line: as it is, less the pixel to the left, less the line above."""
LEVEL, WINDOW, MEMORY = 1, 15, 9


def encode_png(
    lines: NDArray[np.uint8], width: int, bits: int, colour: int = GRAY, texts: Iterable[tuple[str, str]] = ()
) -> bytes:
    """Return a PNG file of filtered `lines`, uint8 (height, 1 + bytes), each with its filter first, in one IDAT chunk.

    `bits` are those of a sample (1, 8 or 16, the high byte first); `texts` are (keyword, value), both Latin-1.
    """
    described = [png_parts(b"tEXt", f"{key}\0{value}".encode("latin-1")) for key, value in texts]
    chunks = (
        png_parts(b"IHDR", struct.pack(">IIBBBBB", width, len(lines), bits, colour, 0, 0, 0)),
        *described,
        png_parts(b"IDAT", deflate(lines)),
        png_parts(b"IEND", b""),
    )
    return b"".join((PNG_SIGNATURE, *(part for chunk in chunks for part in chunk)))


def deflate(data: Buffer | NDArray[np.uint8]) -> bytes:
    """Return the zlib stream of contiguous `data`, the same as that of zlib with these parameters."""
    packer = zlib_ng.compressobj(LEVEL, zlib_ng.DEFLATED, WINDOW, MEMORY, zlib_ng.Z_RLE)
    return packer.compress(data) + packer.flush()


def filtered(body: NDArray[np.uint8], kind: int = NONE, step: int = 1) -> NDArray[np.uint8]:
    """Lines (height, 1 + bytes) of the bytes of pixels (height, bytes), all with the filter `kind`.

    `step` is the number of bytes from one pixel to the next (1 below 8 bits).
    """
    lines = np.empty((len(body), 1 + body.shape[1]), np.uint8)
    lines[:, 0] = kind
    lines[:, 1:] = body
    if kind == SUB:
        lines[:, 1 + step :] -= body[:, :-step]
    elif kind == UP:
        lines[1:, 1:] -= body[:-1]
    return lines
