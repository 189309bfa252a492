# SPDX-License-Identifier: Apache-2.0
"""The codec floor: the bytes of a recording through the bare codecs, with nothing else around them.

    floor.py RECORDING

What is read stands in memory before the clock starts; what comes out is thrown away. The calls are those the package
makes (sensors/video, picture.py, cube.py): video decoding, conversion of range and matrix, JPEG, and for cubes
byte order, deflate and CRC. They must follow the package's, so the first picture and the first cube are compared
with what it makes of them, byte by byte. Prints JSON: processor seconds, and how much was coded.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import simplejpeg
from av.filter import Graph
from preload import messages
from zlib_ng import zlib_ng

from edgefirst_ros.config import Settings
from edgefirst_ros.messages import decode
from edgefirst_ros.sensors.cube import BLOCK, encode_cube
from edgefirst_ros.sensors.picture import PictureEncoder
from edgefirst_ros.sensors.pictures import find_codec
from edgefirst_ros.streams import CUBE, VIDEO

QUALITY = Settings().jpeg_quality


class Video:
    """One stream: decoder, colour filter and JPEG encoder. BT.709 or BT.601, limited, 4:2:0 as cameras send it."""

    def __init__(self, codec: str) -> None:
        self.decoder: Any = av.CodecContext.create(codec, "r")
        self.decoder.thread_count = 1
        self.decoder.options = {"strict": "1"}
        self.filter: Any = None

    def code(self, data: bytes | None) -> int:
        """Pictures that came out for an access unit (None: for the end of the stream)."""
        frames = self.decode(data)
        for frame in frames:
            self.jpeg(frame)
        return len(frames)

    def decode(self, data: bytes | None) -> list[Any]:
        return self.decoder.decode(av.Packet(data) if data is not None else None)  # type: ignore[no-any-return]

    def jpeg(self, frame: Any) -> bytes:
        if self.filter is None:
            self.filter = colours(frame)
        self.filter.vpush(frame)
        planes = map(_plane, self.filter.vpull().planes)
        return simplejpeg.encode_jpeg_yuv_planes(*planes, quality=QUALITY)  # type: ignore[no-any-return]


def colours(frame: Any) -> Any:
    """The filter from the colours of a stream to JPEG's."""
    matrix = (
        "bt709" if int(frame.colorspace) == 1 or (int(frame.colorspace) == 2 and frame.width >= 1280) else "smpte170m"
    )
    graph = Graph()
    graph.threads = 1
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 1000))
    same = "primaries=bt709:iprimaries=bt709:trc=bt709:itrc=bt709"
    given = f"ispace={matrix}:irange=tv:{same}:space=smpte170m:range=pc:format=yuv420p"
    graph.link_nodes(source, graph.add("colorspace", given), graph.add("buffersink")).configure()
    return graph


def _plane(plane: Any) -> Any:
    lines = np.frombuffer(plane, np.uint8)[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)
    return np.ascontiguousarray(lines[:, : plane.width])  # a copy only where lines are padded


def cube(values: Any) -> bytes:
    """The IDAT chunk's data of (rows, columns) int16."""
    height, width = values.shape
    lines = np.zeros((height, 2 * width + 1), np.uint8)
    step = max(1, BLOCK // (2 * width))
    for first in range(0, height, step):
        flipped = values[first : first + step].view("<u2") ^ 0x8000
        lines[first : first + step, 1:] = flipped.astype(">u2").view(np.uint8)
    packer = zlib_ng.compressobj(1, zlib_ng.DEFLATED, 15, 9, zlib_ng.Z_RLE)
    packed: bytes = packer.compress(lines) + packer.flush()
    zlib_ng.crc32(packed)
    return packed


def compare(codec: str, units: list[bytes], cubes: list[Any], message: Any) -> None:
    """Stop with an error where the package makes something else than what is timed here."""
    video = Video(codec)
    frame = next((frame for unit in units for frame in video.decode(unit)), None)
    if frame is not None and video.jpeg(frame) != PictureEncoder("jpeg", QUALITY).encode(frame):
        sys.exit("the floor's pictures are not the package's any more: bring floor.py up to date")
    if message is not None and cube(cubes[0]) not in encode_cube(message, 0):
        sys.exit("the floor's cubes are not the package's any more: bring floor.py up to date")


def main() -> None:
    units, cubes, codec, first = [], [], "h264", None
    for message in messages(Path(sys.argv[1]), VIDEO, CUBE):
        content = decode(message)
        if message.schema == VIDEO:
            codec = find_codec(content.format)
            units.append(content.data.tobytes())
        else:
            first = first or content
            shape = np.frombuffer(content.shape.view(), "<u2")
            cubes.append(np.frombuffer(content.cube.tobytes(), "<i2").reshape(int(shape[0]) * int(shape[1]), -1))
    compare(codec, units, cubes, first)
    video = Video(codec)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    pictures = sum(map(video.code, [*units, None])) if units else 0
    for values in cubes:
        cube(values)
    after = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "cpu": after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime,
        "wall": time.perf_counter() - began,
        "pictures": pictures,
        "cubes": len(cubes),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
