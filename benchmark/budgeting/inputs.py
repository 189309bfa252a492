# SPDX-License-Identifier: Apache-2.0
"""What the stages work on: recordings, and video of real pictures as the device's encoder makes it."""

import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np

from edgefirst_ros.messages import decode
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.streams import VIDEO
from edgefirst_ros.synthetic import Recipe, write_recording
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.scene import Scene

FPS, GOP = 30, 30
VIDEOS = {"h264": ("libx264", 1920, 1080), "h265": ("libx265", 1920, 1080), "720p": ("libx264", 1280, 720)}
PICTURES = Path(__file__).resolve().parents[3] / "shared" / "data" / "highway-h264_2018_08_02_16_15_20.mcap"
TILES = (0, 50, 100, 150)
"""Which pictures of it stand side by side, two by two, in the first one of 1080p."""
ALL = {"seconds": 2, "codec": "jpeg", "size": (1920, 1080), "cube_shape": (2, 200, 4, 512), "lidar_points": 20_000}
RECORDINGS = {
    "all1": {**ALL, "seconds": 1},
    "all2": ALL,
    "large": {"seconds": 0.4, "size": (128, 64), "topics": {"camera", "lidar/points"}, "lidar_points": 110_000},
}


def make(folder):
    """Write all of it into a folder."""
    for name, recipe in RECORDINGS.items():
        write_recording(folder / f"{name}.mcap", Recipe(**recipe))
    shown = pictures()
    for name, form in VIDEOS.items():
        (folder / name).write_bytes(pickle.dumps(video(shown, *form)))


def messages_of(path, schema=None):
    recording = McapRecording(path)
    topics = {m.topic for m in recording.walk() if schema in (None, m.schema)}
    return list(recording.iter_messages(topics))


def pictures():
    """60 pictures of a real street (synthetic ones where it is not there), uint8 (1080, 1920, 3) RGB."""
    import av

    if not PICTURES.exists():
        print("synthetic pictures: ../shared/data is not there")
        recipe = Recipe(seconds=2, size=(1920, 1080), noise=2.0)
        painter = Painter(recipe, Scene(recipe))
        return [painter.picture(index) for index in range(2 * FPS)]
    decoder, found = av.CodecContext.create("h264", "r"), []
    for message in messages_of(PICTURES, VIDEO):
        found += decoder.decode(av.Packet(decode(message).data.tobytes()))
    tiles = [[found[(index + tile) % len(found)].to_ndarray(format="rgb24") for tile in TILES] for index in range(60)]
    return [np.vstack([np.hstack(four[:2]), np.hstack(four[2:])]) for four in tiles]


def video(shown, codec, width, height):
    """Access units: CABAC, loop filter, no B-frames, as the device's encoder makes them."""
    import av

    encoder = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.bit_rate = width, height, "yuv420p", 5_000_000
    encoder.time_base, encoder.framerate, encoder.gop_size, encoder.thread_count = Fraction(1, FPS), FPS, GOP, 1
    encoder.colorspace, encoder.color_range = 1, 1
    settings = f"keyint={GOP}:min-keyint={GOP}:scenecut=0:bframes=0"
    encoder.options = {"x264-params": settings, "x265-params": f"{settings}:log-level=none:pools=none:frame-threads=1"}
    packets = []
    for picture in shown:
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[:height, :width]), format="rgb24")
        packets += encoder.encode(frame.reformat(format="yuv420p", dst_colorspace="ITU709", dst_color_range="MPEG"))
    return [bytes(packet) for packet in [*packets, *encoder.encode(None)]]
