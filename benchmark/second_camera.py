# SPDX-License-Identifier: Apache-2.0
"""Cost of a second camera of a rig: processor time beside the conversions of each camera, and memory by length.

python benchmark/second_camera.py [--against CHECKOUT] [FOLDER]

CHECKOUT is an earlier source tree, whose conversion of the first camera is measured in the same rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from edgefirst_ros.synthetic import Recipe, write_recording

ROUNDS = 3
LENGTHS = (10, 30)
CODECS = ("h264", "jpeg")
SIZE = (1280, 720)
PROGRAM = "from edgefirst_ros.cli.app import app; app()"


def record(folder: Path, codec: str, seconds: int) -> Path:
    """Write the pictures of two cameras into one recording."""
    from mcap.reader import make_reader
    from mcap.writer import CompressionType, Writer

    path = folder / f"{codec}-{seconds}.mcap"
    if path.exists():
        return path
    found = []
    for number, topic in enumerate(("/front/camera", "/left/camera")):
        own = folder / "own.mcap"
        recipe = Recipe(seconds=float(seconds), codec=codec, size=SIZE, seed=number, topics={"camera"})
        write_recording(own, Recipe(**{**recipe.__dict__, "rename": {"camera": topic}}))
        with own.open("rb") as file:
            found += list(make_reader(file).iter_messages(log_time_order=False))
    with path.open("wb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start(profile="ros2")
        channels: dict[str, int] = {}
        for schema, channel, message in sorted(found, key=lambda one: one[2].log_time):
            if channel.topic not in channels and schema is not None:
                number = writer.register_schema(schema.name, schema.encoding, schema.data)
                channels[channel.topic] = writer.register_channel(channel.topic, channel.message_encoding, number)
            place = channels[channel.topic]
            writer.add_message(place, message.log_time, message.data, message.publish_time, message.sequence)
        writer.finish()
    return path


def measure(recording: Path, options: list[str], checkout: str | None = None) -> tuple[float, float]:
    """Return processor time (user and system) in s, and the largest memory in MB, of a conversion."""
    out = recording.with_suffix("")
    shutil.rmtree(out, ignore_errors=True)
    line = [sys.executable, "-c", PROGRAM, "convert", str(recording), "-o", str(out), *options]
    environment = {**os.environ, **({"PYTHONPATH": checkout} if checkout is not None else {})}
    folder = recording.parent  # not a checkout: Python would take the package from there
    process = subprocess.Popen(line, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    shutil.rmtree(out, ignore_errors=True)
    if status:
        raise SystemExit(f"{' '.join(line)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print a row for each codec and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--against", help="source tree of an earlier version")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    print("codec, s | front, s | left, s | both, s | second / its own | both, MB | front / earlier")
    for codec in CODECS:
        for seconds in LENGTHS:
            path = record(folder, codec, seconds)
            front, left = "/front/camera", "/left/camera"
            rig = f"{{camera: {front}, camera.left: {left}}}"
            ways = {"front": ["--reference-topic", front], "left": ["--reference-topic", left], "both": ["--rig", rig]}
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ways, "earlier")}
            for _ in range(ROUNDS):
                for name, options in ways.items():
                    found[name].append(measure(path, options))
                if given.against:
                    found["earlier"].append(measure(path, ways["front"], given.against))
            used = {name: statistics.median(one[0] for one in its) for name, its in found.items() if its}
            share = (used["both"] - used["front"]) / used["left"]
            peak = max(one[1] for one in found["both"])
            before = f"{used['front'] / used['earlier']:.3f}" if given.against else "-"
            times = " | ".join(f"{used[name]:.2f}" for name in ways)
            print(f"{codec}, {seconds} | {times} | {share:.2f} | {peak:.0f} | {before}", flush=True)


if __name__ == "__main__":
    main()
