# SPDX-License-Identifier: Apache-2.0
"""Command lines of what is compared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from suite.inputs import PROGRAMS, SCRATCH, Input, recording, stream
from suite.measure import Cores, Program, run

OURS = str(Path(sys.executable).with_name("edgefirst-ros"))
FFMPEG = shutil.which("ffmpeg")
NO_FFMPEG = "ffmpeg is not installed here"


def convert(path: Path, *options: str, cores: Cores | None = None) -> Program:
    """Our conversion, whole program."""
    return Program([OURS, "convert", str(path), "-o", "{out}", *options], cores)


def script(path: Path) -> Program:
    """The plain script."""
    return ours_in_python("plain_script.py", str(path), "{out}")


def floor(path: Path) -> Program:
    """The codec floor; it tells its processor seconds itself."""
    return ours_in_python("floor.py", str(path))


def ours_in_python(name: str, *arguments: str) -> Program:
    """A program of the suite."""
    return Program([sys.executable, str(PROGRAMS / name), *arguments])


def to_jpeg(path: Path, quality: int, *before: str) -> Program:
    """ffmpeg: the video of a recording to JPEG files; `before`: options of the decoder."""
    after = ["-q:v", str(quality), "-fps_mode", "passthrough", "{out}/%06d.jpg"]
    return Program([FFMPEG or "ffmpeg", "-v", "error", *before, "-i", str(stream(path)), *after])


def equal_quality(given: Input) -> tuple[int, float, float]:
    """(-q:v of ffmpeg that gives pictures no better than ours, PSNR of ours, of ffmpeg's in dB) for an input."""
    short = recording(replace(given, name=f"{given.name}-head", seconds=2.0, period=2.0))
    program = ours_in_python("psnr.py", str(short), str(stream(short)), OURS, FFMPEG or "ffmpeg")
    found = json.loads(run(program, SCRATCH).said)
    return found["q"], found["ours"], found["ffmpeg"]


def ffmpeg_version() -> str:
    """First words of what ffmpeg says about itself."""
    if FFMPEG is None:
        return NO_FFMPEG
    said = subprocess.run([FFMPEG, "-version"], check=True, capture_output=True, text=True).stdout
    return " ".join(said.split()[:3])
