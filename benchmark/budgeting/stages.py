# SPDX-License-Identifier: Apache-2.0
"""What is counted: each stage as a function that does it n times, run below valgrind."""

import ctypes
import os
import pickle
import subprocess
import time
from typing import NamedTuple

from budgeting.inputs import FPS, GOP, VIDEOS, messages_of
from edgefirst_ros import convert
from edgefirst_ros.config import Settings
from edgefirst_ros.counts import Counts
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.messages import decode
from edgefirst_ros.pipeline.facts import SequenceFacts
from edgefirst_ros.pipeline.first_pass import walk
from edgefirst_ros.pipeline.frame import Usage
from edgefirst_ros.pipeline.frames import FrameBuilder
from edgefirst_ros.sensors.cloud import encode_cloud
from edgefirst_ros.sensors.cube import encode_cube
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg
from edgefirst_ros.sensors.picture import PictureEncoder, judge_picture
from edgefirst_ros.sensors.video.bitstream import AccessUnit
from edgefirst_ros.sensors.video.h264 import H264Headers, H264Tracker
from edgefirst_ros.sensors.video.h265 import H265Headers, H265Tracker
from edgefirst_ros.sensors.video.reader import VideoReader
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.sources.source import hash_file
from edgefirst_ros.streams import CLOUD, CUBE
from edgefirst_ros.synthetic import START

SSE = 0x3DB
"""AV_CPU_FLAG_* of MMX to SSE 4.2."""
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


def narrow_codecs():
    """Keep libavutil's users from vectors of 32 bytes."""
    import av  # noqa: F401

    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libavutil" in line)
    ctypes.CDLL(path).av_force_cpu_flags(SSE)


def judging(codec):
    """What a conversion does with a unit before it is decoded."""
    headers = H264Headers() if codec == "h264" else H265Headers()
    tracker = H264Tracker() if codec == "h264" else H265Tracker()
    return lambda number, data: tracker.judge(AccessUnit(number), data, headers.read(data))


def decoding(codec, data, every=1):
    """Decode n frames; `every`: only each so-maniest is wanted, 0: none."""

    def run(n):
        reader, judged = VideoReader(codec, keyframes_only=every > 1), judging(codec)
        for number in range(n * max(every, 1)):
            unit = judged(number, data[number])
            reader.push(unit)
            if every and number % every == 0:
                assert not isinstance(reader.picture(unit, last=True), str)
            else:
                reader.skip(unit)

    return run


def repeated(what, *arguments):
    def run(n):
        for _ in range(n):
            what(*arguments)

    return run


def aligning(path, settings):
    """Take n seconds of messages as a capture does, and do nothing with the frames."""
    found = walk(path, settings).conclude(settings)
    messages = list(found.recording.iter_messages(found.roles.streamed))

    def run(n):
        facts = SequenceFacts("drive", found.roles, found.base, found.calibration, Counts())
        usage = Usage(facts.counts, facts.roles)
        frames = FrameBuilder(settings, facts, usage, lambda item: None)
        for message in messages:
            if message.publish_time < START + n * 1_000_000_000:
                frames.push(message)
        frames.advance(None)

    return run


def first_picture(data):
    """A picture that is no keyframe."""
    reader, judged = VideoReader("h264"), judging("h264")
    for unit in (judged(number, data[number]) for number in range(2)):
        reader.push(unit)
    return reader.picture(unit, last=True)


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
                writer.write(NewSample("drive", frame, START + frame, [picture, *members], row, rows, common))
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
        repeated(judge_picture, jpeg),
        repeated(encode_cube, cube, START),
        repeated(encode_cloud, clouds["points"]),
        repeated(encode_cloud, large),
        repeated(encode_cloud, clouds["targets"]),
        aligning(folder / "all2.mcap", settings),
        writing(folder, [], jpeg),
        writing(folder, members, jpeg),
        writing(folder, [], jpeg, commit=True),
        lambda n: sum(1 for _ in McapRecording(folder / f"all{n}.mcap").walk()),
        lambda n: hash_file(folder / f"all{n}.mcap"),
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
