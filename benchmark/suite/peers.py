# SPDX-License-Identifier: Apache-2.0
"""Other converters from PyPI, each in an environment of its own below the cache.

No bars: they do less, and some of it wrong. pymcap-cli decodes video into another recording first and exports its
pictures then; clouds it writes as text.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from suite import commands, inputs
from suite.inputs import CACHE, SCRATCH
from suite.measure import Program, ProgramError, median, rounds, run, wall, warm
from suite.table import Line, seconds

PYMCAP, UNBAG = "pymcap-cli[image,pointcloud,video]==0.34.0", "ros2-unbag==1.2.3"


def peers(number: int) -> Iterator[Line]:
    """Video, JPEG and clouds against pymcap-cli; ros2_unbag where there is a ROS 2 for it."""
    try:
        tool = _installed(PYMCAP, "pymcap-cli")
    except ProgramError as error:
        yield Line("pymcap-cli", note=_last_line(error))
    else:
        yield from _pymcap(str(tool), number)
    try:
        run(Program([str(_installed(UNBAG, "ros2-unbag")), "--help"]), SCRATCH)
    except ProgramError as error:
        yield Line("ros2_unbag", note=f"cannot run: {_last_line(error)} (it needs an installed ROS 2)")
    else:
        yield Line("ros2_unbag", note="runs here; video it refuses, and how it does the rest is not measured")


def _pymcap(tool: str, number: int) -> Iterator[Line]:
    video = f"{tool} --quiet rosdecompress '{{path}}' -o {{out}}/d.mcap && "
    video += f"{tool} --quiet export-images {{out}}/d.mcap -o {{out}}/pictures"
    images = f"{tool} --quiet export-images '{{path}}' -o {{out}}/pictures"
    clouds = f"{tool} --quiet export-pcd '{{path}}' -o {{out}}/clouds"
    for what, given, command, options in (
        ("H.264 1080p30, 60 s -> JPEG", inputs.H264, video, ()),
        ("H.265 1080p30, 60 s -> JPEG", inputs.H265, video, ()),
        ("JPEG passed through, 60 s", inputs.JPEG, images, ()),
        ("lidar clouds -> PCD, 5 s", inputs.LIDAR_SHORT, clouds, ("--reference-topic", "/lidar/points")),
    ):
        path = inputs.recording(given)
        warm(path)
        programs = {
            "ours": commands.convert(path, *options),
            "pymcap": Program(["sh", "-c", command.replace("{path}", str(path))]),
        }
        try:
            found = rounds(programs, SCRATCH, number)
        except ProgramError as error:
            yield Line(what, note=f"pymcap-cli: {_last_line(error)}")
            continue
        ratios = [mine.wall / theirs.wall for mine, theirs in zip(found["ours"], found["pymcap"], strict=True)]
        ours, theirs = (seconds(median(found[name], wall)) for name in ("ours", "pymcap"))
        yield Line(what, ours, f"pymcap-cli {theirs}", ratios)


def _installed(package: str, program: str) -> Path:
    """The program of a package, installed where it is not yet. Raises ProgramError."""
    folder = CACHE / f"venv-{program}"
    found = folder / "bin" / program
    if not found.exists():
        print(f"installing {package} ...", file=sys.stderr, flush=True)
        try:
            run(Program([sys.executable, "-m", "venv", str(folder)]), SCRATCH)
            run(Program([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", package]), SCRATCH)
        except ProgramError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    if not found.exists():
        raise ProgramError(f"{package} has no program {program}")
    return found


def _last_line(error: ProgramError) -> str:
    return str(error).strip().splitlines()[-1]
