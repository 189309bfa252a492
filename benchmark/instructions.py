# SPDX-License-Identifier: Apache-2.0
"""How many instructions each stage takes, and what that is on the device. Needs valgrind (3.19 or newer) and Linux.

    python benchmark/instructions.py [--ipc 0.8] [--ghz 1.6]

Every stage runs n and 2 n times under callgrind; the difference is what n of them take, so that start-up and set-up
cancel. The vectors are those of SSE (16 bytes, as NEON has) in libavcodec, swscale, libjpeg-turbo, numpy, Arrow and the
C library; zlib-ng cannot be told so and takes AVX2. The kernel is not counted. benchmark/RESULTS.md says more.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from budgeting.inputs import FPS, GOP, make
from budgeting.stages import COMMITS, STAGES, run_stages

NARROW = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-ERMS,-AVX2,-AVX_Fast_Unaligned_Load",  # rep movsb counts once a byte
    "JSIMD_FORCESSE2": "1",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4",
    "ARROW_USER_SIMD_LEVEL": "SSE4_2",
    "PYTHONHASHSEED": "0",
}


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
        make(folder)
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
