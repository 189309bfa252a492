# SPDX-License-Identifier: Apache-2.0
"""PNG files: their chunks, checked; written with the same bytes on every processor; grayscale read back.

Deflate is that of zlib at level 1, window 15, memLevel 9, strategy Z_RLE: it looks for runs only and has no hash table,
so zlib-ng makes the bytes of zlib with any vector instructions. ISA-L's differ by processor, on x86 also by the address
of its state, so it only unpacks: it does a cube in four fifths of zlib-ng's time.
Source: PNG 3, "Chunks", "Filtering", "Compression".
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import MessageError
from edgefirst_ros.sensors.jpeg import Buffer

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_SIDE = 65535
GRAY, RGB = 0, 2
"""Colour types."""
COLOUR = 25
"""Place of the colour type in a PNG file."""
NONE, SUB, UP = 0, 1, 2
"""Filters of a line: as it is, less the pixel to the left, less the line above."""
LEVEL, WINDOW, MEMORY = 1, 15, 9
MAX_PIXELS = 1 << 26
"""Grayscale pictures of more pixels are not read."""


# ---- chunks ------------------------------------------------------------------------------------
def make_chunk(kind: bytes, body: Buffer) -> bytes:
    """Return one PNG chunk."""
    return b"".join(_chunk(kind, body))


def _chunk(kind: bytes, body: Buffer) -> tuple[bytes, Buffer, bytes]:
    """Return the parts of a PNG chunk: length and kind, body, CRC."""
    crc = zlib_ng.crc32(body, zlib_ng.crc32(kind))
    return struct.pack(">I4s", len(body), kind), body, struct.pack(">I", crc)


def iter_chunks(png: Buffer) -> Iterator[tuple[bytes, memoryview]]:
    """Yield (kind, body) of every chunk up to and with IEND.

    Raises MessageError(UNDECODABLE) when the signature, a length or a CRC is wrong, IHDR does not come first, or
    IEND is missing.
    """
    data = memoryview(png).cast("B")
    if data[:8] != PNG_SIGNATURE:
        raise MessageError(UNDECODABLE, "no PNG signature")
    position, kind = 8, b""
    while kind != b"IEND":
        if position + 12 > len(data):
            raise MessageError(UNDECODABLE, "PNG ends without IEND")
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 8 + length
        if end + 4 > len(data):
            raise MessageError(UNDECODABLE, f"PNG ends within {kind!r}")
        if (position == 8) != (kind == b"IHDR") or (kind == b"IHDR" and length != 13):
            raise MessageError(UNDECODABLE, f"{kind!r} of {length} bytes at {position} of a PNG")
        if zlib_ng.crc32(data[position + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise MessageError(UNDECODABLE, f"wrong CRC in {kind!r}")
        yield kind, data[position + 8 : end]
        position = end + 4


class PngFile(NamedTuple):
    """Header, texts and packed pixels of a PNG."""

    width: int
    height: int
    bits: int
    colour: int
    plain: bool
    """True if it is neither interlaced nor packed or filtered by another method than the first."""
    packed: bytes
    texts: dict[str, str]
    """Its tEXt chunks by keyword."""


def read_png(png: Buffer) -> PngFile:
    """Read the chunks of a PNG. Raises MessageError(UNDECODABLE) as `iter_chunks`."""
    header: tuple[int, ...] = (0,) * 7
    packed: list[memoryview] = []
    texts: dict[str, str] = {}
    for kind, body in iter_chunks(png):
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"IDAT":
            packed.append(body)
        elif kind == b"tEXt":
            keyword, _, text = bytes(body).partition(b"\0")
            texts[keyword.decode("latin-1")] = text.decode("latin-1")
    width, height, bits, colour, *ways = header
    return PngFile(width, height, bits, colour, not any(ways), b"".join(packed), texts)


def check_png(png: Buffer) -> tuple[int, int]:
    """Return (width, height) in pixels of a PNG whose chunks are whole: signature, IHDR, CRCs, IDAT, IEND.

    Raises MessageError(UNDECODABLE) otherwise.
    """
    width = height = packed = 0
    for kind, body in iter_chunks(png):
        if kind == b"IHDR":
            width, height = struct.unpack_from(">II", body)
        packed += len(body) if kind == b"IDAT" else 0
    if not 0 < width <= MAX_SIDE or not 0 < height <= MAX_SIDE or not packed:
        raise MessageError(UNDECODABLE, f"PNG of {width} x {height} pixels in {packed} bytes")
    return width, height


# ---- writing -----------------------------------------------------------------------------------
def encode_png(
    lines: NDArray[np.uint8], width: int, bits: int, colour: int = GRAY, texts: Iterable[tuple[str, str]] = ()
) -> bytes:
    """Return the PNG file of `make_parts`."""
    return b"".join(make_parts(lines, width, bits, colour, texts))


def make_parts(
    lines: NDArray[np.uint8], width: int, bits: int, colour: int = GRAY, texts: Iterable[tuple[str, str]] = ()
) -> list[Buffer]:
    """Return a PNG file of filtered `lines`, uint8 (height, 1 + bytes), each with its filter first, in one IDAT chunk.

    Its parts follow one another, so that the packed lines, which are large, are not copied. `bits` are those of a
    sample (1, 8 or 16, the high byte first); `texts` are (keyword, value), both Latin-1.
    """
    head = make_chunk(b"IHDR", struct.pack(">IIBBBBB", width, len(lines), bits, colour, 0, 0, 0))
    told = (make_chunk(b"tEXt", f"{key}\0{value}".encode("latin-1")) for key, value in texts)
    begin, packed, crc = _chunk(b"IDAT", deflate(lines))
    return [b"".join((PNG_SIGNATURE, head, *told, begin)), packed, b"".join((crc, make_chunk(b"IEND", b"")))]


def deflate(data: Buffer | NDArray[np.uint8]) -> bytes:
    """Return the zlib stream of contiguous `data`, the same as that of zlib with these parameters."""
    packer = zlib_ng.compressobj(LEVEL, zlib_ng.DEFLATED, WINDOW, MEMORY, zlib_ng.Z_RLE)
    return packer.compress(data) + packer.flush()


def filter_lines(body: NDArray[np.uint8], kind: int = NONE, step: int = 1) -> NDArray[np.uint8]:
    """Return lines (height, 1 + bytes) of the bytes of pixels (height, bytes), all with the filter `kind`.

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


def encode_gray(values: NDArray[Any], *, smooth: bool = False) -> bytes:
    """Return a PNG of (height, width) bool, uint8 or uint16, of 1, 8 or 16 bits; the same values make the same bytes.

    `smooth`: measured values, whose differences pack better; not labels, whose values do.
    """
    bits = 1 if values.dtype == np.bool_ else 8 * values.dtype.itemsize
    if bits == 1:
        body = np.packbits(values, axis=1)
    else:
        body = np.ascontiguousarray(values, values.dtype.newbyteorder(">")).view(np.uint8)
    lines = filter_lines(body, SUB if smooth else NONE, max(1, bits // 8))
    return encode_png(lines, values.shape[1], bits)


# ---- reading -----------------------------------------------------------------------------------
def decode_gray(png: bytes) -> NDArray[Any] | None:
    """Return (height, width) bool, uint8 or uint16 of a grayscale PNG; None for any other, or if it cannot be read."""
    from PIL import Image

    values: NDArray[Any] | None = None
    # the stub says that the error is an instance; Pillow reads some of these pictures
    with contextlib.suppress(MessageError, isal_zlib.error):  # type: ignore[arg-type]
        found = read_png(png)
        if found.bits in (1, 8, 16) and found.colour == GRAY and 0 < found.width * found.height <= MAX_PIXELS:
            values = unpack_gray(found)
    if values is None:
        try:
            with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return None
                values = np.array(picture)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
    if values.dtype == np.int32:  # 16 bits in older versions of Pillow
        values = values.astype(np.uint16)
    return values if values.ndim == 2 and values.dtype in (np.bool_, np.uint8, np.uint16) else None


def is_filled(png: bytes) -> bool:
    """Return whether a grayscale PNG has as many values as its header says; raises MessageError for a broken file.

    Pillow reads missing values as 0, and ignores those that are too many.
    """
    found = read_png(png)
    length = found.height * (1 + (found.width * found.bits + 7) // 8)
    try:
        return not found.plain or len(isal_zlib.decompressobj().decompress(found.packed, length + 1)) == length
    except isal_zlib.error:  # type: ignore[misc]  # of which the stub says that it is an instance
        return False


def unpack_gray(png: PngFile) -> NDArray[Any] | None:
    """Return the values of a picture as `encode_gray` makes it, in a third of Pillow's time.

    (height, width) bool, uint8 or uint16. None if its lines have other filters, or their bytes are too many or too few.
    Raises isal_zlib.error if they cannot be unpacked.
    """
    width, height, bits = png.width, png.height, png.bits
    step = (width * bits + 7) // 8
    unpacking = isal_zlib.decompressobj()
    plain = unpacking.decompress(png.packed, height * (1 + step) + 1)
    if not png.plain or len(plain) != height * (1 + step) or not unpacking.eof:
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
