# SPDX-License-Identifier: Apache-2.0
"""A drive with a fault of every kind, planted where it is known.

python test/report/planted.py DRIVE.mcap
"""

import struct
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from mcap.reader import make_reader
from mcap.writer import Writer

from edgefirst_ros.synthetic import Recipe, recording, write_recording
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.scene import TRANSFORMS

SECONDS = 30
LATE = (5.0, 15.0)
"""s in which the stamps of the radar's targets are 200 ms late."""
DELIVERED_LATE = (3.0, 6.0)
"""s in which these come 200 ms late, in a drive of its own."""
LATER = 200_000_000
LOST = (18.0, 19.0)
"""s without lidar."""
STEP, BACK = 24.0, -3_000_000_000
MODEL_ENDS, NIGHT = 20.0, 22.0
"""s from which on the model says nothing, and from which on it is dark."""
TURNED = (-0.5792, 0.4056, -0.4056, 0.5792)
"""The camera's rotation, 20 degrees to the side of what is true."""
RECIPE = {
    "seconds": float(SECONDS),
    "codec": "jpeg",
    "fps": 10.0,
    "model_every": 1,
    "objects": 5,
    "size": (320, 180),
    "cube_shape": (1, 32, 2, 32),
    "lidar_points": 500,
    "rates": {"radar/cube": 10.0, "imu": 20.0},
}


def write(path):
    """Write the drive."""
    night = Painter.picture

    def picture(self, index):
        rgb = night(self, index)
        return rgb if index < NIGHT * 10 else (rgb * 0.12).astype(np.uint8)

    wrong = (replace(TRANSFORMS[0], rotation=TURNED), *TRANSFORMS[1:])
    recipe = Recipe(
        **RECIPE,
        drop={
            "lidar/points": range(int(LOST[0] * 10), int(LOST[1] * 10)),
            "model/output": range(int(MODEL_ENDS * 10), SECONDS * 10),
        },
        clock_steps=[(STEP, BACK)],
    )
    raw = Path(path).with_suffix(".raw")
    with mock.patch.object(Painter, "picture", picture), mock.patch.object(recording, "TRANSFORMS", wrong):
        write_recording(raw, recipe)
    late(raw, path, recipe.start, LATE)
    raw.unlink()


def write_delivered_late(path):
    """Write a short drive of camera and radar, whose targets come 200 ms late to the recorder for a while."""
    recipe = Recipe(**{**RECIPE, "seconds": 10.0, "topics": {"camera", "radar/targets"}})
    raw = Path(path).with_suffix(".raw")
    write_recording(raw, recipe)
    late(raw, path, recipe.start, DELIVERED_LATE, stamps=False)
    raw.unlink()


def late(source, path, start, span, *, stamps=True):
    """Copy a recording, with the stamps of the targets late for a while, or else their delivery."""
    low, high = (start + round(at * 1e9) for at in span)
    with source.open("rb") as read, Path(path).open("wb") as file:
        reader, writer = make_reader(read), Writer(file)
        writer.start(profile="", library="planted")
        known, messages = {}, []
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            if channel.topic not in known:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                known[channel.topic] = writer.register_channel(channel.topic, channel.message_encoding, number)
            data, came = message.data, message.log_time
            if channel.topic == "/radar/targets":
                seconds, rest = struct.unpack_from("<iI", data, 4)
                stamp = seconds * 10**9 + rest
                if low <= stamp < high and stamps:
                    data = data[:4] + struct.pack("<iI", *divmod(stamp + LATER, 10**9)) + data[12:]
                elif low <= stamp < high:
                    came += LATER
            messages.append((known[channel.topic], came, data, message.publish_time, message.sequence))
        for message in messages if stamps else sorted(messages, key=lambda one: one[1]):
            writer.add_message(*message)
        writer.finish()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
