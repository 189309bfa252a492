# SPDX-License-Identifier: Apache-2.0
"""The structure of JPEG files: their segments, and checks that all are present.

The pixels are not decoded. Source: ITU-T T.81.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator

from edgefirst_ros.counts import UNDECODABLE
from edgefirst_ros.errors import MessageError

Buffer = bytes | bytearray | memoryview
SOI, EOI, SOS, DQT, DHT, APP0, APP1 = 0xD8, 0xD9, 0xDA, 0xDB, 0xC4, 0xE0, 0xE1
FRAMES = frozenset(range(0xC0, 0xD0)) - {DHT, 0xC8, 0xCC}
"""JPEG markers that begin a frame and state its size."""
BETWEEN = frozenset({DHT, 0xCC, SOS, DQT, 0xDC, 0xDD, *range(APP0, 0xF0), 0xFE})
"""Markers of segments allowed between the scans: tables, the number of lines, data of applications."""
HUFFMAN = re.compile(bytes((0xFF, DHT)))
"""Begin of Huffman tables."""
MOST_SEGMENTS = 1000
"""Of these; a progressive picture has some dozens."""
MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
"""End of coded pixels: a marker that is not a stuffed byte, restart marker or fill byte."""


def iter_segments(jpeg: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, begin, end) in bytes of the segments after SOI, up to and with the first SOS.

    Raises MessageError(UNDECODABLE) when SOI is missing or a segment is broken or cut.
    """
    data = memoryview(jpeg).cast("B")
    if data[:2] != bytes((0xFF, SOI)):
        raise MessageError(UNDECODABLE, f"no JPEG: begins with {bytes(data[:4]).hex(' ')} instead of ff d8")
    marker, position = SOI, 2
    while marker != SOS:
        while bytes(data[position : position + 2]) == b"\xff\xff":
            position += 1
        if position + 4 > len(data) or data[position] != 0xFF:
            raise MessageError(UNDECODABLE, f"JPEG without a segment at {position} of {len(data)} bytes")
        marker = data[position + 1]
        end = position + 2 + int.from_bytes(data[position + 2 : position + 4], "big")
        if marker < 0xC0 or 0xD0 <= marker <= EOI or end < position + 4 or end > len(data):
            raise MessageError(UNDECODABLE, f"JPEG segment {marker:02x} at {position} is broken or cut")
        yield marker, position, end
        position = end


@functools.cache
def make_usual_tables() -> bytes:
    """Return the Huffman tables of T.81, annex K, which a frame of MJPG may leave out, as segments."""
    import numpy as np
    import simplejpeg

    usual = simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8))
    return b"".join(usual[begin:end] for marker, begin, end in iter_segments(usual) if marker == DHT)


def read_jpeg_size(jpeg: Buffer) -> tuple[int, int]:
    """Return (width, height) in pixels of a JPEG from its frame header.

    Raises MessageError(UNDECODABLE) without one.
    """
    data = memoryview(jpeg).cast("B")
    for marker, begin, end in iter_segments(data):
        if marker in FRAMES:
            return _read_frame_size(data[begin + 4 : end])
    raise MessageError(UNDECODABLE, "JPEG without a frame header")


def check_jpeg(jpeg: Buffer) -> tuple[int, int]:
    """Return (width, height) in pixels of a JPEG whose structure is whole.

    SOI, well-formed segments with a quantisation table and a frame header, scans with only permitted markers, EOI at
    the end; bytes after it are tolerated. Raises MessageError(UNDECODABLE) otherwise.
    """
    data = memoryview(jpeg).cast("B")
    size, tables, scan = None, 0, 0
    for marker, begin, end in iter_segments(data):
        if marker in FRAMES:
            size = _read_frame_size(data[begin + 4 : end])
        tables += marker == DQT
        scan = end if marker == SOS else 0
    if size is None or not tables or not scan:
        missing = "frame header" if size is None else "scan" if tables else "quantisation table"
        raise MessageError(UNDECODABLE, f"JPEG without a {missing}")
    _check_scans(data, scan)
    return size


def _check_scans(data: memoryview, scan: int) -> None:
    """Raise MessageError for a marker in coded pixels, where decoders stop: one in 256 changed bytes begins one."""
    next_at, segments = scan, 0
    while (found := MARKER.search(data, next_at)) is not None:
        place, marker = found.start(), data[found.start() + 1]
        if marker == EOI:
            return
        length = int.from_bytes(data[place + 2 : place + 4], "big")
        next_at, segments = place + 2 + length, segments + 1
        whole = length >= 8 if marker == SOS else length >= 2 and bytes(data[next_at : next_at + 1]) == b"\xff"
        if marker not in BETWEEN or not whole or segments > MOST_SEGMENTS:
            raise MessageError(UNDECODABLE, f"JPEG with marker {marker:02x} in its pixels, at {place}")
    raise MessageError(UNDECODABLE, "JPEG without its end")


def _read_frame_size(body: memoryview) -> tuple[int, int]:
    if len(body) < 6 or not body[5] or len(body) != 6 + 3 * body[5]:
        raise MessageError(UNDECODABLE, f"JPEG frame header of {len(body)} bytes")
    height, width = struct.unpack_from(">HH", body, 1)
    if not width or not height:
        raise MessageError(UNDECODABLE, f"JPEG of {width} x {height} pixels")
    return width, height
