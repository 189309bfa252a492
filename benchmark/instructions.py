# SPDX-License-Identifier: Apache-2.0
"""How many instructions each stage takes, and what that is on the device. Needs valgrind (3.19 or newer) and Linux.

    python benchmark/instructions.py [--ipc 0.8] [--ghz 1.6]

Every stage runs n and 2 n times under callgrind; the difference is what n of them take, so that start-up and set-up
cancel. The vectors are those of SSE (16 bytes, as NEON has) in libavcodec, swscale, libjpeg-turbo, numpy, Arrow and the
C library; ISA-L cannot be told so and takes AVX2. What the kernel does is not counted. docs/budget.md says more.
"""

import argparse
import ctypes
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgefirst_ros import convert
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.messages import CLOUD, CUBE, VIDEO, decode
from edgefirst_ros.pipeline import Pipeline
from edgefirst_ros.sensors.camera import VideoReader
from edgefirst_ros.sensors.cloud import encode_cloud
from edgefirst_ros.sensors.cube import encode_cube
from edgefirst_ros.sensors.degradation import degradation_of
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg
from edgefirst_ros.sensors.picture import PictureEncoder
from edgefirst_ros.sources.mcap import McapRecording, sha256
from edgefirst_ros.survey import walk
from edgefirst_ros.synthetic import START, Recipe, write_recording
from edgefirst_ros.synthetic.picture import Painter
from edgefirst_ros.synthetic.scene import Scene

FPS, GOP = 30, 30
VIDEOS = {"h264": ("libx264", 1920, 1080), "h265": ("libx265", 1920, 1080), "720p": ("libx264", 1280, 720)}
PICTURES = Path(__file__).resolve().parents[2] / "shared" / "data" / "highway-h264_2018_08_02_16_15_20.mcap"
TILES = (0, 50, 100, 150)
"""Which pictures of it stand side by side, two by two, in the first one of 1080p."""
ALL = {"seconds": 2, "codec": "jpeg", "size": (1920, 1080), "cube_shape": (2, 200, 4, 512), "lidar_points": 20_000}
RECORDINGS = {
    "all1": {**ALL, "seconds": 1},
    "all2": ALL,
    "large": {"seconds": 0.4, "size": (128, 64), "topics": {"camera", "lidar/points"}, "lidar_points": 110_000},
}
SSE = 0x3DB
"""AV_CPU_FLAG_* of MMX to SSE 4.2."""
NARROW = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-ERMS,-AVX2,-AVX_Fast_Unaligned_Load",  # rep movsb counts once a byte
    "JSIMD_FORCESSE2": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
    "ARROW_USER_SIMD_LEVEL": "SSE4_2",
    "PYTHONHASHSEED": "0",
}
COMMITS = 2.5
"""A second, at most: the writer waits 0.4 s from one to the next."""


class Stage(NamedTuple):
    """Something to be done n and 2 n times; `minus` names a stage that is part of it and is taken off."""

    unit: str
    rate: float
    n: int
    minus: str = ""


STAGES = {
    "decode H.264 1080p": Stage("frame", FPS, GOP),
    "decode H.265 1080p": Stage("frame", FPS, GOP),
    "decode H.264 720p": Stage("frame", FPS, GOP),
    "keyframe alone, H.264 1080p": Stage("keyframe", FPS / GOP, 1),
    "keyframe alone, H.265 1080p": Stage("keyframe", FPS / GOP, 1),
    "look at H.264, decode nothing": Stage("frame", FPS, GOP),
    "JPEG 90, 1080p": Stage("picture", FPS, 2),
    "JPEG 80, 1080p": Stage("picture", FPS, 2),
    "colours, limited range": Stage("picture", FPS, 2, minus="JPEG 90, 1080p"),
    "colours, NV12 of V4L2": Stage("picture", FPS, 2, minus="JPEG 90, 1080p"),
    "degradation": Stage("picture", FPS, 1),
    "cube 1.6 MB to PNG": Stage("cube", 18, 1),
    "lidar 20k points to PCD": Stage("cloud", 10, 100),
    "lidar 110k points to PCD": Stage("cloud", 10, 100),
    "radar targets to PCD": Stage("cloud", 18, 100),
    "decode and align messages": Stage("second", 1, 1),
    "write a sample, camera": Stage("sample", FPS, 20),
    "write a sample, all sensors": Stage("sample", FPS, 20),
    "commit": Stage("commit", COMMITS, 20, minus="write a sample, camera"),
    "walk through a recording": Stage("second", 1, 1),
    "hash a recording": Stage("second", 1, 1),
    "convert without video": Stage("second", 1, 1),
}
"""What is measured. A second is one of all topics, 34 MB: camera (as JPEG) and camera info at 30 Hz, cubes and radar
targets at 18 Hz, lidar, GPS and model at 10 Hz, IMU at 50 Hz."""


# ---- below valgrind ------------------------------------------------------------------------------
def narrow_codecs():
    """Keep libavutil's users from vectors of 32 bytes."""
    import av  # noqa: F401

    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libavutil" in line)
    ctypes.CDLL(path).av_force_cpu_flags(SSE)


def messages_of(path, schema=None):
    recording = McapRecording(path)
    topics = {m.topic for m in recording.survey() if schema in (None, m.schema)}
    return list(recording.messages(topics))


def decoding(codec, data, every=1):
    """Decode n frames; `every`: only each so-maniest is wanted, 0: none."""

    def run(n):
        reader = VideoReader(codec, alone=every > 1)
        for number in range(n * max(every, 1)):
            reader.push(number, data[number])
            if every and number % every == 0:
                assert not isinstance(reader.picture(number, last=True), str)
            else:
                reader.skip(number)

    return run


def repeated(what, *arguments):
    def run(n):
        for _ in range(n):
            what(*arguments)

    return run


def aligning(path, settings):
    """Take n seconds of messages as a capture does, into an assembly that does nothing."""
    found = walk(path, settings).conclude(settings)
    messages = list(found.recording.messages(found.roles.streamed, found.topics))

    class Nothing:
        late_used = {}  # noqa: RUF012

        def put(self, item):
            pass

    def run(n):
        counts = Counts()
        pipeline = Pipeline(
            settings, found.roles, found.base, counts, found.calibration, Nothing(), group_of=lambda _: None
        )
        for message in messages:
            if message.publish_time < START + n * 1_000_000_000:
                pipeline.push(message)
        pipeline.advance(None)

    return run


def first_picture(data):
    """A picture that is no keyframe."""
    reader = VideoReader("h264")
    for number in range(2):
        reader.push(number, data[number])
    return reader.picture(1, last=True)


def writing(folder, members, jpeg, *, commit=False):
    rows = [{"label": "car", "object_id": str(k), "box2d": [0.5, 0.5, 0.1, 0.1], "box2d_score": 0.9} for k in range(3)]
    place = {"latitude": 45.5, "longitude": -73.6, "altitude": 30.0, "orientation": [0.0, 0.0, 0.0, 1.0]}
    skews = {f"{name}_{what}": 1 for name in ("radar_cube", "lidar_points") for what in ("timestamp", "skew")}
    common = {"size": [1920, 1080], "location": [45.5, -73.6], "pose": [0.1, 0.0, 0.0]}
    runs = iter(range(1000))

    def run(n):
        with DatasetWriter(folder, f"w{next(runs)}-{commit}-{len(members)}") as writer:
            for frame in range(n):
                info = ExifInfo("drive", frame, START + frame, "maivin", "edgefirst_ros", 45.5, -73.6, 30.0, 1.0, None)
                picture = ("camera.jpeg", insert_jpeg(jpeg, encode_exif(info)))
                row = {"segment": 0, "keyframe": frame == 0, "size": [1920, 1080], **place, **skews}
                writer.write(Sample("drive", frame, START + frame, [picture, *members], row, rows, common))
                if commit:
                    writer.flush()

    return run


def work_of(folder):
    """Of each stage the function that does it n times."""
    settings, encoder = Settings(), PictureEncoder("jpeg", 90)
    h264, h265, small = (pickle.loads((folder / name).read_bytes()) for name in VIDEOS)
    frame = first_picture(h264)
    nv12 = frame.reformat(format="nv12")
    full = frame.reformat(format="yuvj420p", src_colorspace="ITU709", dst_colorspace="ITU601", dst_color_range=2)
    full.colorspace, full.color_range = 5, 2
    jpeg = encoder.encode(frame)
    cube = decode(messages_of(folder / "all2.mcap", CUBE)[0])
    clouds = {m.topic.rpartition("/")[2]: decode(m) for m in messages_of(folder / "all2.mcap", CLOUD)}
    large = decode(messages_of(folder / "large.mcap", CLOUD)[0])
    png, targets, points = encode_cube(cube, START), encode_cloud(clouds["targets"]), encode_cloud(clouds["points"])
    members = [("radar.png", [png]), ("radar.pcd", targets), ("lidar.pcd", points)]
    sizes = [len(jpeg), *(sum(memoryview(buffer).nbytes for buffer in buffers) for _, buffers in members)]
    (folder / "sizes").write_text(" ".join(map(str, sizes)))
    outs = iter(range(1000))
    work = [
        decoding("h264", h264),
        decoding("hevc", h265),
        decoding("h264", small),
        decoding("h264", h264, GOP),
        decoding("hevc", h265, GOP),
        decoding("h264", h264, 0),
        repeated(encoder.encode, full),
        repeated(PictureEncoder("jpeg", 80).encode, full),
        repeated(encoder.encode, frame),
        repeated(encoder.encode, nv12),
        repeated(degradation_of, jpeg),
        repeated(encode_cube, cube, START),
        repeated(encode_cloud, clouds["points"]),
        repeated(encode_cloud, large),
        repeated(encode_cloud, clouds["targets"]),
        aligning(folder / "all2.mcap", settings),
        writing(folder, [], jpeg),
        writing(folder, members, jpeg),
        writing(folder, [], jpeg, commit=True),
        lambda n: sum(1 for _ in McapRecording(folder / f"all{n}.mcap").survey()),
        lambda n: [sha256(folder / f"all{n}.mcap", threading.Event())],
        lambda n: convert(folder / f"all{n}.mcap", folder / f"out{next(outs)}"),
    ]
    return dict(zip(STAGES, work, strict=True))


def dump(name):
    """Have callgrind write down what it counted, and begin anew."""
    subprocess.run(["vgdb", f"--pid={os.getpid()}", "dump", name], check=True, capture_output=True)


def run_stages(folder):
    """What runs below valgrind."""
    narrow_codecs()
    now = time.monotonic()
    time.monotonic = lambda: now  # valgrind is slow: commits that go by time would come far too often
    for number, (name, work) in enumerate(work_of(folder).items()):
        work(1)
        dump("between")
        for times in (1, 2):
            work(times * STAGES[name].n)
            dump(f"{number} {times}")
        print(name, flush=True)


# ---- above ---------------------------------------------------------------------------------------
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


def counted(folder):
    """{stage: instructions a unit}."""
    totals = {}
    for path in folder.glob("count.*"):
        text = path.read_text()
        if trigger := re.search(r"^desc: Trigger: dump (\d+) (\d)$", text, re.MULTILINE):
            totals[int(trigger[1]), int(trigger[2])] = int(re.search(r"^totals: (\d+)$", text, re.MULTILINE)[1])
    costs = {
        name: (totals[number, 2] - totals[number, 1]) / stage.n for number, (name, stage) in enumerate(STAGES.items())
    }
    return {name: cost - costs.get(STAGES[name].minus, 0) for name, cost in costs.items()}


def decoded(rate):
    """Frames a second that are decoded for `rate` samples a second: each GOP up to the last one wanted."""
    return FPS if rate >= FPS else FPS - FPS / rate / 2 + 0.5


def modes(cost, everything):
    """Ways to capture: (name, instructions a second to decode, the same of everything, samples a second)."""
    sample = cost["write a sample, all sensors" if everything else "write a sample, camera"]
    jpeg, look = cost["JPEG 90, 1080p"], FPS * cost["look at H.264, decode nothing"]
    base = COMMITS * cost["commit"] + cost["decode and align messages"]
    for codec in ("H.264", "H.265", "V4L2", "H.264 keyframes", "H.265 keyframes"):
        keyframes = codec.endswith("keyframes")
        for rate in (FPS / GOP,) if keyframes else (FPS, 10, 5, 2, 1):
            colours = cost["colours, NV12 of V4L2" if codec == "V4L2" else "colours, limited range"]
            if codec == "V4L2":
                decoder = look
            elif keyframes:
                decoder = rate * cost[f"keyframe alone, {codec.split()[0]} 1080p"]
            else:
                decoder = look + decoded(rate) * (cost[f"decode {codec} 1080p"] - look / FPS)
            others = min(rate, 18) * (cost["cube 1.6 MB to PNG"] + cost["radar targets to PCD"]) if everything else 0
            yield (
                f"{codec}, {rate:g} a second",
                decoder,
                base + decoder + rate * (jpeg + colours + sample) + others,
                rate,
            )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ipc", type=float, default=0.8, help="instructions the device's core does in a cycle")
    parser.add_argument("--ghz", type=float, default=1.6, help="its clock")
    parser.add_argument("--stages", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stages:
        run_stages(options.stages)
        return
    core = options.ipc * options.ghz * 1e9
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, recipe in RECORDINGS.items():
            write_recording(folder / f"{name}.mcap", Recipe(**recipe))
        shown = pictures()
        for name, form in VIDEOS.items():
            (folder / name).write_bytes(pickle.dumps(video(shown, *form)))
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'count'}"]
        command = [*tool, sys.executable, __file__, "--stages", os.fspath(folder)]
        with (folder / "log").open("w") as log:
            done = subprocess.run(command, env={**os.environ, **NARROW}, stderr=log, check=False)
        if done.returncode:
            sys.exit((folder / "log").read_text())
        cost = counted(folder)
        jpeg, *others = map(int, (folder / "sizes").read_text().split())
    print(f"one core: {options.ipc:g} instructions a cycle at {options.ghz:g} GHz\n")
    print("| stage | unit | million instructions | a second | million a second | share of a core |")
    print("|---|---|---|---|---|---|")
    for name, (unit, rate, *_) in STAGES.items():
        load = cost[name] * rate
        print(f"| {name} | {unit} | {cost[name] / 1e6:.3g} | {rate:g} | {load / 1e6:.3g} | {load / core:.1%} |")
    for everything in (False, True):
        print(f"\n| capture of {'all topics' if everything else 'the camera'} | decoding thread | all | MB/s |")
        print("|---|---|---|---|")
        size = jpeg + (sum(others) if everything else 0)
        for name, decoder, load, rate in modes(cost, everything):
            print(f"| {name} | {decoder / core:.2f} | {load / core:.2f} | {rate * size / 1e6:.1f} |")
    parts = {"walk through a recording": 1, "hash a recording": 1, "decode and align messages": 1}
    parts |= {"cube 1.6 MB to PNG": 18, "radar targets to PCD": 18, "write a sample, all sensors": FPS}
    whole = cost["convert without video"] / sum(cost[name] * times for name, times in parts.items())
    print(f"\nconversion without video / sum of its stages: {whole:.2f}")
    print(f"bytes: JPEG {jpeg}, cube {others[0]}, targets {others[1]}, lidar {others[2]}")


if __name__ == "__main__":
    main()
