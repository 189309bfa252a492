# SPDX-License-Identifier: Apache-2.0
"""What a good user writes with rosbags, PyAV and Pillow.

    plain_script.py RECORDING OUT

Every picture is decoded and written as JPEG of quality 90, clouds as their bytes, cubes as 16-bit PNG, each as a
file. No alignment, no EXIF, no headers of PCD, no tables: less than the converter does. The container is read by
mcap, because rosbags opens no recording without the profile `ros2`, and the device writes none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
from mcap.reader import make_reader
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

TYPES = {
    "foxglove_msgs/msg/CompressedVideo": "builtin_interfaces/Time timestamp\nstring frame_id\n"
    "uint8[] data\nstring format",
    "edgefirst_msgs/msg/RadarCube": "std_msgs/Header header\nuint64 timestamp\nuint8[] layout\nuint16[] shape\n"
    "float32[] scales\nint16[] cube\nbool is_complex",
}


def main() -> None:
    recording, out = Path(sys.argv[1]), Path(sys.argv[2])
    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, text in TYPES.items():
        store.register(get_types_from_msg(text, name))
    out.mkdir(parents=True, exist_ok=True)
    decoder: Any = None
    count = 0
    with recording.open("rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            kind = schema.name if schema else ""
            if kind not in TYPES and kind != "sensor_msgs/msg/PointCloud2":
                continue
            content: Any = store.deserialize_cdr(message.data, kind)
            if kind == "foxglove_msgs/msg/CompressedVideo":
                decoder = decoder or av.CodecContext.create("h264" if content.format == "h264" else "hevc", "r")
                for frame in decoder.decode(av.Packet(bytes(content.data))):
                    frame.to_image().save(out / f"{count:06d}.jpeg", quality=90)
                    count += 1
            elif kind == "edgefirst_msgs/msg/RadarCube":
                shape = [int(n) for n in content.shape]
                picture = (content.cube.astype(np.int32) + 32768).astype(np.uint16).reshape(shape[0] * shape[1], -1)
                Image.fromarray(picture).save(out / f"{message.log_time}.png")
            else:
                name = channel.topic.strip("/").replace("/", "_")
                (out / f"{name}_{message.log_time}.pcd").write_bytes(content.data.tobytes())
    for frame in decoder.decode(None) if decoder else ():
        frame.to_image().save(out / f"{count:06d}.jpeg", quality=90)
        count += 1


if __name__ == "__main__":
    main()
