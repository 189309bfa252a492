# SPDX-License-Identifier: Apache-2.0
"""Make a recording: one period of it is built (and its video encoded) once, then repeated with stamps that go on.

    make_recording.py OUT PARAMETERS-AS-JSON

The camera's pictures are those of `edgefirst_ros.synthetic`, with noise, but encoded as a camera does rather than in
the fastest way there is. A period is a whole number of GOPs, and each of them decodes by itself: so a stream of many
periods is as good as one that was encoded at a stretch. Pictures repeat, hence what is in them (bar code) too.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import simplejpeg
from encoding import GOP, encode
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer

from edgefirst_ros.synthetic import Recipe, messages, write_recording
from edgefirst_ros.synthetic.definitions import make_definition
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.scene import Scene
from edgefirst_ros.synthetic.video import Unit

SECOND = 1_000_000_000


class Message(NamedTuple):
    log_time: int
    topic: str
    schema: str
    publish_time: int
    data: bytes


def jpeg(picture: Any) -> bytes:
    """As a camera encodes it."""
    data: bytes = simplejpeg.encode_jpeg(picture, quality=90, colorsubsampling="420")
    return data


def camera(recipe: Recipe, bitrate: int) -> Iterator[Message]:
    """Messages of the camera over one period."""
    painter = Painter(recipe, Scene(recipe))
    pictures = (painter.picture(index) for index in range(recipe.frames))
    stills = recipe.codec == "jpeg"
    data = map(jpeg, pictures) if stills else encode(pictures, recipe.codec, recipe.size, recipe.fps, bitrate)
    for index, unit in enumerate(data):
        stamp = recipe.stamp("camera", index)
        content = messages.make_camera(recipe, Unit(index, unit), stamp)
        schema = messages.find_schema("camera", recipe.codec)
        yield Message(recipe.receive_time("camera", index, stamp), recipe.topic("camera"), schema, stamp, content)


def others(recipe: Recipe) -> Iterator[Message]:
    """Messages of all other topics over one period."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "period.mcap"
        write_recording(path, recipe)
        with path.open("rb") as file:
            for schema, channel, message in make_reader(file).iter_messages():
                kind = schema.name if schema else ""
                yield Message(message.log_time, channel.topic, kind, message.publish_time, message.data)


def later(data: bytes, shift: int) -> bytes:
    """A message `shift` ns later: its stamp (int32 s, uint32 ns) stands behind 4 bytes of encapsulation."""
    sec, nanosec = struct.unpack_from("<iI", data, 4)
    return data[:4] + struct.pack("<iI", *divmod(sec * SECOND + nanosec + shift, SECOND)) + data[12:]


def main() -> None:
    out, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    period = min(given["period"], given["seconds"])
    recipe = Recipe(
        seconds=period,
        topics=frozenset(given["topics"]),
        codec=given["codec"] or "h264",
        size=tuple(given["size"]),
        fps=given["fps"],
        gop=GOP,
        noise=given["noise"],
        cube_shape=(2, 200, 4, 512),
        lidar_points=110_000,
    )
    found = [*others(recipe), *(camera(recipe, given["bitrate"]) if given["codec"] else ())]
    found.sort(key=lambda message: message.log_time)
    counts: dict[str, int] = {}
    channels: dict[str, int] = {}
    with out.open("wb") as file:
        writer: Any = Writer(file, chunk_size=1 << 20, compression=CompressionType.NONE)
        writer.start(profile="", library="edgefirst_ros benchmark")
        for message in found:
            if message.topic not in channels:
                schema = writer.register_schema(message.schema, "ros2msg", make_definition(message.schema))
                channels[message.topic] = writer.register_channel(message.topic, "cdr", schema)
        for repeat in range(max(1, round(given["seconds"] / period))):
            shift = round(repeat * period * SECOND)
            for message in found:
                number = counts[message.topic] = counts.get(message.topic, -1) + 1
                writer.add_message(
                    channels[message.topic],
                    log_time=message.log_time + shift,
                    publish_time=message.publish_time + shift,
                    sequence=number,
                    data=later(message.data, shift),
                )
        writer.finish()


if __name__ == "__main__":
    main()
