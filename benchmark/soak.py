# SPDX-License-Identifier: Apache-2.0
"""Whether a long run stays as it began: memory and descriptors flat, every message accounted for.

    python benchmark/soak.py [--hours 2] [--live-minutes 10] [--only convert|live] [--folder DIR]

`convert`: a synthetic drive of all topics through `edgefirst-ros convert`. `live` (needs ROS 2): such a drive, played
at its own pace into a capture node. Both run in processes of their own, which are looked at once a second. What comes
out is compared with what the recipe of the drive says, by formulas of this file. Prints a line for each bar; exit code
1 when one is missed. Two hours take about 10 GB in DIR (default: a temporary folder), which is given back at the end.

A live run needs a machine of its own: where all of it stands still for 2 s, which the time between two looks tells, a
capture leaves frames out and counts them, and the run fails by that.
"""

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa

from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.synthetic import TOPICS, Recipe, write_recording

PROFILE = Path(__file__).resolve().parents[1] / "config" / "fastdds.xml"
CONVERTED = {"size": (320, 192), "fps": 10, "gop": 10, "cube_shape": (2, 32, 4, 64), "lidar_points": 1000}
PLAYED = {"size": (640, 360), "fps": 30, "cube_shape": (2, 64, 4, 128), "lidar_points": 4000}
COMPANIONS = ("radar/cube", "radar/targets", "lidar/points")
UNHEARD = {"radar/info", "radar/clusters", "model/boxes2d", "model/mask", "model/mask_compressed"}
"""Topics a capture has no use for: another takes their part, or there is none."""
TOLERANCE = 100_000_000
"""ns between a frame and its companion."""
NEVER_NEAREST = "nearest to no sample"
SPEED = 20.0
ERRORS = 3.0
"""Standard errors by which a slope may differ from none."""
SHARE = 0.01
"""Part of the RSS by which it may change over a whole run all the same."""
STEADY = (0.5, 0.95)
"""Part of the dataset's growth that is judged; behind it the tables are completed, which takes memory of its own."""
SETTLE = 5.0
"""s given to a capture behind the last message: what it looks ahead, and what the last frames take."""


@dataclass(frozen=True)
class Reading:
    """A process at one moment: s since the first look, RSS and its peak in MB, and bytes of the dataset's container."""

    seconds: float
    rss: float
    peak: float
    descriptors: int
    threads: int
    written: int


@dataclass(frozen=True)
class Bar:
    """One thing that must hold: what was found, and what was asked for."""

    name: str
    passed: bool
    found: str
    wanted: str

    def __str__(self) -> str:
        return f"{'PASS' if self.passed else 'FAIL'}  {self.name:12} {self.found}  (bar: {self.wanted})"


# ---- looking at a process --------------------------------------------------------------------
def look(pid, out, began):
    """A `Reading` of a process that writes to the folder `out`; None once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    facts = {name: words.split()[0] for name, _, words in (line.partition(":") for line in lines) if words.split()}
    if "VmRSS" not in facts:  # it has ended, and nobody has asked for its exit code yet
        return None
    written = max((path.stat().st_size for path in out.glob("*.zip*")), default=0)
    rss, peak = (int(facts[name]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Reading(time.monotonic() - began, rss, peak, descriptors, int(facts["Threads"]), written)


def watch(process, out, every, ended=lambda: False):
    """Readings, one in `every` s, until the process ends or `ended` says so."""
    began, readings = time.monotonic(), []
    while process.poll() is None and not ended():
        reading = look(process.pid, out, began)
        if reading is not None:
            readings.append(reading)
        time.sleep(max(0.0, began + len(readings) * every - time.monotonic()))
    return readings


def slope(x, y):
    """Slope of a straight line by least squares, and its standard error; nan where there are too few points."""
    if len(x) < 3:
        return float("nan"), float("nan")
    (steepness, _), covariance = np.polyfit(np.asarray(x) - np.mean(x), np.asarray(y), 1, cov=True)
    return float(steepness), float(np.sqrt(covariance[0, 0]))


def part(readings, begin, end):
    """Readings from one part of the dataset's growth to another, as (part, reading)."""
    whole = max((reading.written for reading in readings), default=0)
    return [(r.written / whole, r) for r in readings if r.written and begin <= r.written / whole < end]


def steady(readings, hours):
    """Bars for RSS and descriptors over the second half of `hours` of recording; the bytes written tell the place."""
    half = part(readings, *STEADY)
    rss = [reading.rss for _, reading in half]
    rise, error = slope([hours * at for at, _ in half], rss)
    allowed = SHARE * float(np.mean(rss)) if rss else 0.0
    open_files = [reading.descriptors for _, reading in half]
    return [
        Bar(
            "RSS slope",
            abs(rise) < ERRORS * error or abs(rise * hours) < allowed,
            f"{rise:+.2f} MB an hour, standard error {error:.2f}: {rise * hours:+.2f} MB over the run",
            f"within {ERRORS:g} standard errors, or {SHARE:.0%} of the RSS over the run: {allowed:.2f} MB",
        ),
        Bar(
            "descriptors",
            bool(open_files) and max(open_files) <= open_files[0],
            f"{open_files[0]} at half, at most {max(open_files)} behind it" if open_files else "no reading",
            "never more than at half",
        ),
    ]


def curve(readings):
    """Words for RSS, descriptors and threads along the run."""
    marks = {mark: next((r.rss for _, r in part(readings, mark, 1.1)), float("nan")) for mark in (0.1, 0.5, 1.0)}
    descriptors = [reading.descriptors for reading in readings]
    threads = [reading.threads for reading in readings]
    pause = max((b.seconds - a.seconds for a, b in itertools.pairwise(readings)), default=0.0)
    return (
        f"      {len(readings)} readings; RSS {', '.join(f'{rss:.1f} MB at {at:.0%}' for at, rss in marks.items())}, "
        f"peak {readings[-1].peak:.1f} MB\n      whole run: {min(descriptors)} to {max(descriptors)} descriptors, "
        f"{min(threads)} to {max(threads)} threads; at most {pause:.1f} s between two looks"
    )


# ---- what must come out ----------------------------------------------------------------------
def stamps(truth, name):
    """Stamps of all messages of a topic, int64 ns."""
    return np.array([truth.recipe.stamp(name, index) for index in range(truth.counts[name])], dtype=np.int64)


def nearest(frames, messages):
    """For each frame that has a message within the tolerance the index of the nearest, of two the earlier."""
    after = np.searchsorted(messages, frames).clip(1, len(messages) - 1)
    index = np.where(frames - messages[after - 1] <= messages[after] - frames, after - 1, after)
    return index[np.abs(messages[index] - frames) <= TOLERANCE]


def expected(truth, heard):
    """({topic: its counts}, members, rows of annotations) of a dataset that lacks nothing; `heard`: recipe's names."""
    frames = stamps(truth, "camera")
    counts = {truth.recipe.topic(n): {"seen": truth.counts[n], "written": 0, "dropped": {}} for n in sorted(heard)}
    counts[truth.recipe.topic("camera")]["written"] = members = len(frames)
    for name in COMPANIONS:
        joined = nearest(frames, stamps(truth, name))
        members += len(joined)
        count = counts[truth.recipe.topic(name)]
        count["written"] = len(np.unique(joined))
        if unused := count["seen"] - count["written"]:
            count["dropped"] = {NEVER_NEAREST: unused}
    results = np.intersect1d(stamps(truth, "model/output"), frames)
    counts[truth.recipe.topic("model/output")]["written"] = len(results)
    fused = nearest(frames, stamps(truth, "fusion/boxes3d"))
    counts[truth.recipe.topic("fusion/boxes3d")]["written"] = len(np.unique(fused))
    if unused := truth.counts["fusion/boxes3d"] - len(np.unique(fused)):
        counts[truth.recipe.topic("fusion/boxes3d")]["dropped"] = {NEVER_NEAREST: unused}
    if len(fused) != len(frames):
        raise ValueError("a frame without boxes of fusion: this arithmetic is for drives that have them everywhere")
    things = len(truth.scene.things(int(frames[0])))  # as many all along
    return counts, members, sum(len(truth.boxes(int(stamp))) for stamp in results) + things * len(frames)


def rows_of(path):
    """Rows of an Arrow file."""
    with pa.memory_map(os.fspath(path)) as file, pa.ipc.open_file(file) as table:
        return sum(table.get_batch(n).num_rows for n in range(table.num_record_batches))


def complete(container, truth, heard, exit_code):
    """Bars for what is in a dataset."""
    frames = container.with_suffix(".frames.arrow")
    if not container.exists() or not frames.exists():
        return [Bar("dataset", False, f"exit code {exit_code}, no {container.name}", "a dataset")]
    counts, members, rows = expected(truth, heard)
    with pa.memory_map(os.fspath(frames)) as file:
        found = json.loads(pa.ipc.open_file(file).schema.metadata[b"counts"])
    wrong = [
        f"{t}: {found.get(t)}, not {counts.get(t)}" for t in sorted({*found, *counts}) if found.get(t) != counts.get(t)
    ]
    with zipfile.ZipFile(container) as archive:
        sizes = (len(archive.namelist()), rows_of(container.with_suffix(".arrow")), rows_of(frames))
    wanted = (members, rows, truth.counts["camera"])
    seen = sum(count["seen"] for count in found.values())
    report = validate(container)
    return [
        Bar("exit code", exit_code == 0, str(exit_code), "0"),
        Bar("counts", not wrong, "; ".join(wrong) or f"{seen} messages of {len(found)} topics", "exactly the recipe's"),
        Bar("contents", sizes == wanted, "{} members, {} annotations, {} frames".format(*sizes),
            "{}, {}, {}".format(*wanted)),
        Bar("validate", report.ok, report.to_text().splitlines()[-1], "no errors"),
    ]  # fmt: skip


# ---- the two runs ----------------------------------------------------------------------------
def drive(path, seconds, recipe):
    """Write the drive; the truth of it."""
    began = time.monotonic()
    truth = write_recording(path, Recipe(seconds=seconds, topics=TOPICS, **recipe))
    size = path.stat().st_size / 1e9
    print(f"      {seconds:.0f} s of recording, {size:.2f} GB, made in {time.monotonic() - began:.0f} s", flush=True)
    return truth


def tail(log, lines=10):
    """Print the end of what a process said."""
    print("".join(f"      {line}\n" for line in log.read_text(errors="replace").splitlines()[-lines:]), end="")


def soak_convert(folder, seconds, every=1.0):
    """Convert a drive of so many seconds; the bars."""
    path, out, log = folder / "drive.mcap", folder / "converted", folder / "convert.log"
    truth = drive(path, seconds, CONVERTED)
    command = [sys.executable, "-m", "edgefirst_ros", "convert", str(path), "-o", str(out)]
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            readings = watch(process, out, every)
        finally:
            process.kill()
            exit_code = process.wait()
    speed = seconds / (time.monotonic() - began)
    path.unlink()
    if exit_code:
        tail(log)
    print(curve(readings))
    return [
        Bar("speed", speed >= SPEED, f"{speed:.1f} times real time", f"at least {SPEED:g}"),
        *steady(readings, seconds / 3600),
        *complete(out / "drive.zip", truth, TOPICS, exit_code),
    ]


def soak_live(folder, seconds, every=1.0):
    """Play a drive of so many seconds into a capture node; the bars."""
    path, out = folder / "live.mcap", folder / "captured"
    truth = drive(path, seconds, PLAYED)
    heard = TOPICS - UNHEARD
    variables = {"FASTDDS_DEFAULT_PROFILES_FILE": str(PROFILE), "FASTRTPS_DEFAULT_PROFILES_FILE": str(PROFILE)}
    environment = os.environ | variables | {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    logs = {verb: folder / f"{verb}.log" for verb in ("capture", "play")}

    def node(verb, **parameters):
        given = [text for key, value in parameters.items() for text in ("-p", f"{key}:={value}")]
        command = [sys.executable, "-m", "edgefirst_ros", verb, "--ros-args", *given]
        with logs[verb].open("wb") as output:
            return subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)

    capture = node("capture", out=out, sequence="live", time_base="header")
    player = node("play", recording=path, wait_for_subscribers=len(heard), wait_timeout=60.0)
    try:
        readings = watch(capture, out, every, ended=lambda: player.poll() is not None)
        played = player.poll()
        time.sleep(SETTLE)
        capture.send_signal(signal.SIGINT)
        exit_code = capture.wait(120)
    finally:
        for process in (player, capture):
            process.kill()
            process.wait()
    if exit_code or played:
        tail(logs["capture"])
    tail(logs["play"], 1)
    print(curve(readings))
    return [
        Bar("player", played == 0, f"exit code {played}", "0"),
        *steady(readings, seconds / 3600),
        *complete(out / "live.zip", truth, heard, exit_code),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0, help="length of the drive that is converted")
    parser.add_argument("--live-minutes", type=float, default=10.0, help="length of the drive that is played")
    parser.add_argument("--only", choices=["convert", "live"], help="one of the two runs")
    parser.add_argument("--folder", type=Path, help="where there is room")
    options = parser.parse_args()
    if not (options.hours >= 0.01 and options.live_minutes >= 0.1):
        parser.error(f"--hours {options.hours:g}, --live-minutes {options.live_minutes:g}: at least 0.01 and 0.1")
    if options.folder is not None and not options.folder.is_dir():
        parser.error(f"--folder {options.folder}: is not a folder; make it first")
    if options.only != "convert" and find_spec("rclpy") is None:
        parser.error("a live run needs ROS 2, and there is no rclpy; --only convert does without")
    bars = []
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        if options.only != "live":
            print("convert", flush=True)
            bars += show(soak_convert(Path(temporary), 3600 * options.hours))
        if options.only != "convert":
            print("live", flush=True)
            bars += show(soak_live(Path(temporary), 60 * options.live_minutes))
    return 0 if all(bar.passed for bar in bars) else 1


def show(bars):
    """Print the bars; returns them."""
    print("".join(f"{bar}\n" for bar in bars), flush=True)
    return bars


if __name__ == "__main__":
    sys.exit(main())
