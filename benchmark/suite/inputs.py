# SPDX-License-Identifier: Apache-2.0
"""The recordings that are measured, made once, and kept in a folder that git ignores.

Making them happens in processes of their own: a child's peak memory counts from that of the process that starts it,
so the one that measures stays small.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
CACHE = HERE.parent / ".cache" / "benchmark"
"""Not within this folder, which tests copy."""
SCRATCH = CACHE / "out"
"""On the same disk as the inputs."""
PROGRAMS = HERE / "programs"
SHARED = HERE.parents[1] / "shared" / "data"
MAKER = ("make_recording.py", "encoding.py")
"""Programs on which the bytes of an input depend."""


@dataclass(frozen=True)
class Input:
    """A synthetic recording of `seconds`; what repeats in it is `period` s long and begins with a keyframe.

    `codec` None: no camera. `topics`: those besides the camera's. `noise` in steps of 8 bits.
    """

    name: str
    codec: str | None = "h264"
    size: tuple[int, int] = (1920, 1080)
    fps: float = 30.0
    bitrate: int = 5_000_000
    noise: float = 3.0
    seconds: float = 60.0
    period: float = 10.0
    topics: tuple[str, ...] = ("gps", "imu")


DRIVE = ("camera/info", "gps", "imu", "lidar/points", "model/info", "model/output", "radar/cube", "radar/info",
         "radar/targets", "tf_static")  # fmt: skip
H264 = Input("h264-1080p30")
H265 = Input("h265-1080p30", codec="h265")
H264_720 = Input("h264-720p30", size=(1280, 720))
H265_720 = Input("h265-720p30", codec="h265", size=(1280, 720))
H264_4K = Input("h264-2160p30", size=(3840, 2160), bitrate=20_000_000, seconds=10.0, period=5.0)
H265_4K = Input("h265-2160p30", codec="h265", size=(3840, 2160), bitrate=20_000_000, seconds=10.0, period=5.0)
FAST = Input("h264-1080p60", fps=60.0, bitrate=8_000_000, seconds=66.0, period=6.0)
JPEG = Input("jpeg-1080p30", codec="jpeg", noise=2.0, period=5.0)
LIDAR = Input("lidar", codec=None, topics=("gps", "imu", "lidar/points"), period=5.0)
LIDAR_SHORT = Input("lidar-short", codec=None, topics=("gps", "imu", "lidar/points"), seconds=5.0, period=5.0)
DRIVES = Input("all-topics", topics=DRIVE, seconds=20.0)
ONE = Input("one-frame", seconds=1 / 30, period=1 / 30)
SHORT, MIDDLE, LONG = (
    Input(f"light-{minutes}min", size=(320, 180), fps=10.0, bitrate=200_000, seconds=60.0 * minutes)
    for minutes in (1, 10, 60)
)


def recording(wanted: Input) -> Path:
    """The recording, made if it is not there."""
    return _made(wanted.name, asdict(wanted), "make_recording.py", ".mcap")


def stream(path: Path) -> Path:
    """The bare video of a recording, as ffmpeg reads it: the access units one after the other."""
    name = path.stem.rpartition("_")[0]
    return _made(f"{name}-stream", {"of": str(path)}, "make_stream.py", ".bin")


def shared(pattern: str) -> Path | None:
    """A recording of the shared data, where they are at hand."""
    return next(iter(sorted(SHARED.glob(pattern))), None)


def _made(name: str, parameters: dict[str, object], maker: str, suffix: str) -> Path:
    text = json.dumps(parameters, sort_keys=True)
    key = sha256(text.encode())
    for program in (maker, *MAKER):
        key.update((PROGRAMS / program).read_bytes())
    path = CACHE / f"{name}_{key.hexdigest()[:8]}{suffix}"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{name}_????????{suffix}"):
            old.unlink()
        print(f"making {path.name} ...", file=sys.stderr, flush=True)
        partial = path.with_suffix(".partial")
        subprocess.run([sys.executable, PROGRAMS / maker, partial, text], check=True)
        partial.rename(path)
    return path
