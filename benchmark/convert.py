# SPDX-License-Identifier: Apache-2.0
"""How fast recordings are converted: against real time, and against the script a good user would write.

    python benchmark/convert.py [REC.mcap ...]

Without arguments a synthetic drive of all topics is made, and the recordings of `../shared/data` are taken where they
are at hand. Runs alternate; medians of five. The script (rosbags, PyAV, Pillow) decodes every picture, writes JPEG
quality 90, PCD and 16-bit PNG as files, and aligns by nearest log time: less than the converter does.
"""

import io
import statistics
import sys
import tempfile
import time
from pathlib import Path

import av
import numpy as np
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from edgefirst_ros import convert
from edgefirst_ros.synthetic import Recipe, write_recording

RUNS = 5
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TYPES = {
    "foxglove_msgs/msg/CompressedVideo": "builtin_interfaces/Time timestamp\nstring frame_id\n"
    "uint8[] data\nstring format",
    "edgefirst_msgs/msg/RadarCube": "std_msgs/Header header\nuint64 timestamp\nuint8[] layout\nuint16[] shape\n"
    "float32[] scales\nint16[] cube\nbool is_complex",
}


def plain_script(recording, out):
    """What a good user writes."""
    from mcap.reader import make_reader

    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in TYPES.items():
        store.register(get_types_from_msg(text, name))
    out.mkdir()
    decoder, count = None, 0
    with recording.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            if schema.name in TYPES or schema.name == "sensor_msgs/msg/PointCloud2":
                content = store.deserialize_cdr(message.data, schema.name)
            if schema.name == "foxglove_msgs/msg/CompressedVideo":
                decoder = decoder or av.CodecContext.create("h264" if content.format == "h264" else "hevc", "r")
                for frame in decoder.decode(av.Packet(bytes(content.data))):
                    frame.to_image().save(out / f"{count:06d}.jpeg", quality=90)
                    count += 1
            elif schema.name == "edgefirst_msgs/msg/RadarCube":
                shape = [int(n) for n in content.shape]
                picture = (content.cube.astype(np.int32) + 32768).astype(np.uint16).reshape(shape[0] * shape[1], -1)
                png = io.BytesIO()
                Image.fromarray(picture).save(png, "PNG")
                (out / f"{message.log_time}.png").write_bytes(png.getvalue())
            elif schema.name == "sensor_msgs/msg/PointCloud2":
                (out / f"{channel.topic.strip('/').replace('/', '_')}_{message.log_time}.pcd").write_bytes(
                    content.data.tobytes()
                )
    if decoder:
        for frame in decoder.decode(None):
            frame.to_image().save(out / f"{count:06d}.jpeg", quality=90)


def measure(recording, folder):
    """(seconds of ours, seconds of the script, length of the recording) for each run."""
    rows = []
    for run in range(RUNS + 1):
        outcome = convert(recording, folder / f"ours{run}")
        began = time.monotonic()
        plain_script(recording, folder / f"script{run}")
        if run:  # the first one warms up
            rows.append((outcome.seconds, time.monotonic() - began, outcome.duration))
    return rows


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        recordings = [Path(name) for name in sys.argv[1:]]
        if not recordings:
            synthetic = folder / "synthetic-all-topics.mcap"
            write_recording(synthetic, Recipe(seconds=20, cube_shape=(2, 200, 4, 256), lidar_points=30_000))
            recordings = [synthetic, *sorted(SHARED.glob("verdin*.mcap")), *sorted(SHARED.glob("gopro*.mcap"))]
        print(f"{'recording':44} {'length, s':>9} {'times real time':>16} {'ours / script':>14}")
        for number, recording in enumerate(recordings):
            (folder / str(number)).mkdir()
            rows = measure(recording, folder / str(number))
            speed = statistics.median(length / ours for ours, _, length in rows)
            ratio = statistics.median(ours / script for ours, script, _ in rows)
            print(f"{recording.stem[:44]:44} {rows[0][2]:9.1f} {speed:16.1f} {ratio:14.2f}", flush=True)


if __name__ == "__main__":
    main()
