# SPDX-License-Identifier: Apache-2.0
"""Kills conversions and captures at random moments (SIGKILL) and looks at what is there afterwards.

    python benchmark/kill.py convert|capture [--kills 100] [--seed 1] [--judge judge.py] [--folder DIR]

A synthetic recording is converted once without interruption; that is what every remainder is compared with. `convert`:
the command is started, killed, its remainder copied and the copy recovered; then the same command continues with the
remainder, and may be killed again, until it is through: the result must be the same as without, byte for byte.
`capture` (needs ROS 2): the recording is played into a node at its own pace; the node is killed while it records or
completes. What it last told to be committed must be there. Prints a line for each kind of outcome; exit code 1 when
something is missing, not valid or different. Recoveries go in this process; the judge, if one is given, must find
nothing wrong but frames that are not there (CAM01).
"""

import argparse
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

PROFILE = Path(__file__).resolve().parents[1] / "config" / "fastdds.xml"
COMMAND = (sys.executable, "-m", "edgefirst_ros")
RECIPE = {"size": (640, 360), "gop": 15, "cube_shape": (2, 64, 4, 128), "lidar_points": 2000}
PATIENCE = 10.0  # s behind the recording after which a capture that never began is killed all the same
ENOUGH = 50  # faults after which no more conversions are begun
COMPLETING, SETTLE = 0.15, 3.0
"""Share of the captures that are killed after they were told to end, and s that they are given before that: what is
told to end earlier has its last frames without what would have come later.
"""
ALLOWED = ("CAM01", "FRAMES10")
"""Checks of the judge that a part of a conversion need not pass: frames that must be there, and the recording's hash,
which is known only some time after the first samples. A capture has no source file at all.
"""
LIVE_ALLOWED = (*ALLOWED, "FRAMES11")  # it has not seen all messages
OF_FRAME = ("name", "frame", "group", "size", "location", "pose", "timestamp")  # columns that need no model
OF_MEMBERS = ("ZIP", "CAM", "EXIF", "CUBE", "PCD")  # judged where the rows of the sample being written were made anew


@dataclass
class Tally:
    """What became of all kills."""

    outcomes: Counter = field(default_factory=Counter)
    faults: list = field(default_factory=list)
    committed: int = 0
    recovered: int = 0
    remade: int = 0
    late: int = 0  # captures without the first messages: what they have is not compared with the conversion
    unheard: int = 0  # samples of captures without the model's results, which came late or were lost on the way

    def fault(self, what):
        """Take note of what is wrong, and say it."""
        self.faults.append(what)
        print(f"FAULT {what}", flush=True)

    def show(self, what, seconds):
        print(f"\n{what}: {sum(self.outcomes.values())} kills in {seconds:.0f} s")
        print("\n".join(f"  {number:5} {outcome}" for outcome, number in self.outcomes.most_common()))
        print(f"  {self.committed:5} samples reported committed, {self.recovered} recovered, {self.remade} rows remade")
        print(f"  {self.late:5} captures without the first messages")
        print(f"  {self.unheard:5} samples of captures without their results of the model")


class Reference:
    """The dataset of an uninterrupted conversion."""

    def __init__(self, recording, folder):
        self.recording, self.name = recording, recording.stem
        began = time.monotonic()
        subprocess.run(convert_command(recording, folder), check=True, stdout=subprocess.DEVNULL)
        self.seconds = time.monotonic() - began
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.members = members_of(folder / f"{self.name}.zip")
        self.frames = rows_of(folder / f"{self.name}.frames.arrow")
        self.annotations = rows_of(folder / f"{self.name}.arrow")

    def faults(self, out, committed, remade, *, unheard=frozenset(), late=False):
        """What is wrong with a recovered dataset of which so many samples were reported committed.

        The last `remade` of its rows were made anew. `unheard`: samples that may have other annotations.
        `late`: it has not got the first messages, so numbers differ.
        """
        found = members_of(out / f"{self.name}.zip")
        frames, annotations = rows_of(out / f"{self.name}.frames.arrow"), rows_of(out / f"{self.name}.arrow")
        if len(frames) - remade < committed:
            yield f"{committed} samples were committed, {len(frames)} are there, {remade} of them remade"
        if remade > 1:
            yield f"{remade} rows were made anew: only that of the sample being written may be"
        if not late:
            differing = [name for name, data in found.items() if self.members.get(name) != data]
            if differing:
                yield f"{len(differing)} members differ: {differing[:3]}"
            sure = frames[: len(frames) - remade]
            kept = {key_of(row) for row in sure}
            missing = {name for key in kept for name in self.of_sample(key)} - set(found)
            if missing:
                yield f"{len(missing)} members of samples are missing: {min(missing)}"
            if sure != [row for row in self.frames if key_of(row) in kept]:
                yield "the rows of frames are not those of the uninterrupted conversion"
            mine, theirs = by_sample(annotations, kept), by_sample(self.annotations, kept)
            other = sorted(key for key in kept - unheard if mine.get(key) != theirs.get(key))
            if other or list(mine) != list(theirs):
                yield f"annotations of {len(other)} samples are not those of the uninterrupted conversion: {other[:3]}"
        if {name.partition(".")[0].rpartition("_")[2] for name in found} != {f"{row['frame']:03d}" for row in frames}:
            yield "samples of the table and of the members differ"
        report = validate(out / self.name)
        if not report.ok:
            yield f"not valid: {report.to_text()[-400:]}"

    def unheard(self, out):
        """Samples of a capture with one row and nothing of the model in it, where the conversion has more."""
        everything = {key_of(row) for row in self.frames}
        mine, theirs = (by_sample(rows, everything) for rows in (rows_of(out / f"{self.name}.arrow"), self.annotations))
        return {
            key
            for key, rows in mine.items()
            if rows == [{name: theirs[key][0][name] for name in OF_FRAME if name in theirs[key][0]}] != theirs[key]
        }

    def is_late(self, out):
        """Whether a capture did not get the first messages of the recording."""
        stamps = {key_of(row): row["timestamp"] for row in self.frames}
        return any(stamps.get(key_of(row)) != row["timestamp"] for row in rows_of(out / f"{self.name}.frames.arrow"))

    def of_sample(self, key):
        """Names of a sample's members."""
        sequence, frame = key
        start = f"{sequence}/{sequence}_{frame:03d}."
        return [name for name in self.members if name.startswith(start)]


def convert_command(recording, out):
    return [*COMMAND, "convert", recording, "-o", out, "--json", "--resume"]


def key_of(row):
    return row["name"], row["frame"]


def by_sample(rows, wanted):
    """{key of a sample: its rows} of those that are wanted, in the order of the table."""
    found = {}
    for row in rows:
        if key_of(row) in wanted:
            found.setdefault(key_of(row), []).append(row)
    return found


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rows_of(path):
    """Rows of a table, without what is null: columns that nobody filled so far are not there."""
    with pa.OSFile(str(path)) as file:
        rows = pa.ipc.open_file(file).read_all().to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def committed_rows(log):
    """Samples up to the last commit of a row log, read by its documented form alone."""
    committed = place = checksum = 0
    data = log.read_bytes() if log.is_file() else b""
    while place + 16 <= len(data):
        stated, *lengths = struct.unpack_from("<4I", data, place)
        end = place + 16 + sum(lengths)
        checksum = zlib.crc32(data[place + 4 : end], checksum)
        if end > len(data) or stated != checksum:
            break
        facts = json.loads(data[place + 16 :][: lengths[0]])
        committed = facts["commit"]["samples"] if "commit" in facts else committed
        place = end
    return committed


def judged(judge, recording, dataset, allowed, only=()):
    """Lines of what the judge finds wrong."""
    if judge is None:
        return []
    command = [sys.executable, judge, recording, dataset, *(("--only", *only) if only else ())]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    if not any(line.startswith("PASS") for line in lines):
        return [f"the judge says nothing: {run.stderr[-300:]}"]
    return [line for line in lines if line.startswith("FAIL") and line.split()[1] not in allowed]


def settle(tally, reference, out, committed, judge, *, live=False):
    """Recover what is in `out` and add the outcome to `tally`."""
    tally.committed += committed
    try:
        report = recover(out / reference.name)
    except DatasetError as error:
        nothing = "no whole member" in str(error) or "expected OUT/NAME of a dataset" in str(error)
        tally.outcomes["killed before the first sample"] += 1
        if committed or not nothing:
            tally.fault(f"{committed} samples were committed: {error}")
        if os.listdir(out):
            tally.fault(f"left behind: {os.listdir(out)}")
        return
    tally.outcomes["complete already" if report.complete else "recovered"] += 1
    tally.remade += report.rows_rebuilt
    tally.recovered += len(rows_of(out / f"{reference.name}.frames.arrow"))
    late = live and reference.is_late(out)
    tally.late += late
    unheard = reference.unheard(out) if live and not late else set()
    tally.unheard += len(unheard)
    wrong = list(reference.faults(out, committed, report.rows_rebuilt, unheard=unheard, late=late))
    if not late:
        only = OF_MEMBERS if report.rows_rebuilt or unheard else ()
        wrong += judged(judge, reference.recording, out / reference.name, LIVE_ALLOWED if live else ALLOWED, only)
    if set(os.listdir(out)) != set(reference.files):
        wrong.append(f"files: {sorted(os.listdir(out))}")
    for fault in wrong:
        tally.fault(f"kill {sum(tally.outcomes.values())}: {fault}")


# ---- conversions -----------------------------------------------------------------------------
def kill_conversions(reference, folder, kills, chance, judge):
    tally, out, copy = Tally(), folder / "out", folder / "copy"
    whole = finished = 0
    while sum(tally.outcomes.values()) < kills and len(tally.faults) < ENOUGH:
        out.mkdir(exist_ok=True)
        process = subprocess.Popen(
            convert_command(reference.recording, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while not any(out.iterdir()) and process.poll() is None:
            time.sleep(0.002)
        try:
            _, errors = process.communicate(timeout=chance.uniform(0, reference.seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(out, copy)
            committed = committed_rows(out / f"{reference.name}.rows.journal")
            settle(tally, reference, copy, committed, judge)
            continue
        finished += 1
        other = {path.name for path in out.iterdir() if path.read_bytes() != reference.files.get(path.name)}
        whole += process.returncode == 0 and not other
        if process.returncode or other:
            tally.fault(f"continued, exit code {process.returncode}, other bytes in {sorted(other)}: {errors[-300:]}")
        shutil.rmtree(out)
    print(f"{finished} conversions went on to their end, {whole} of them with the same bytes as the uninterrupted one")
    return tally


# ---- captures --------------------------------------------------------------------------------
class Stage:
    """Plays the recording, and hears what captures say; in this process."""

    def __init__(self, recording):
        import importlib

        import rclpy
        from rclpy.qos import QoSProfile

        from edgefirst_ros.sources.mcap import McapRecording

        rclpy.init()
        self.rclpy, self.node = rclpy, rclpy.create_node("kill")
        source = McapRecording(recording)
        for _ in source.walk():
            pass
        self._publishers = {}
        for channel in source.channels.values():
            package, _, name = channel.schema.partition("/msg/")
            kind = getattr(importlib.import_module(f"{package}.msg"), name)
            self._publishers[channel.topic] = self.node.create_publisher(kind, channel.topic, QoSProfile(depth=200))
        self.messages = list(source.iter_messages(set(self._publishers)))
        self.seconds = (self.messages[-1].log_time - self.messages[0].log_time) / 1e9

    def ready(self, process):
        """Wait until all that a capture listens to is connected."""
        unheard = {"/radar/info", "/radar/clusters", "/model/boxes2d", "/model/mask", "/model/mask_compressed"}
        wanted = [p for topic, p in self._publishers.items() if topic not in unheard]
        while any(p.get_subscription_count() != 1 for p in wanted) and process.poll() is None:
            time.sleep(0.02)
        time.sleep(1.5)  # the other side learns of the connection later, on a busy machine a second later

    def play(self, ended):
        began, first = time.monotonic(), self.messages[0].log_time
        for message in self.messages:
            if ended.wait(max(0.0, began + (message.log_time - first) / 1e9 - time.monotonic())):
                return
            self._publishers[message.topic].publish(message.data)

    def listen(self, seconds):
        """Ask a capture until `seconds` after it began a dataset; returns how many samples it said to be committed."""
        from std_srvs.srv import Trigger

        client, committed, began = self.node.create_client(Trigger, "/capture/status"), 0, False
        until = time.monotonic() + self.seconds + PATIENCE
        while time.monotonic() < until:
            if not client.service_is_ready():
                time.sleep(0.01)
                continue
            answer = client.call_async(Trigger.Request())
            self.rclpy.spin_until_future_complete(self.node, answer, timeout_sec=max(0.0, until - time.monotonic()))
            facts = json.loads(answer.result().message) if answer.done() else {}
            committed = max(committed, facts.get("committed", 0))
            if facts.get("recording") and not began:
                began, until = True, time.monotonic() + seconds
        self.node.destroy_client(client)
        return committed


def kill_captures(reference, folder, kills, chance, judge, lookahead=1.0):
    tally, stage = Tally(), Stage(reference.recording)
    parameters = {"out": folder / "out", "sequence": reference.name, "time_base": "header", "lookahead": lookahead}
    arguments = [part for key, value in parameters.items() for part in ("-p", f"{key}:={value}")]
    with (folder / "log").open("wb") as log:
        for _ in range(kills):
            (folder / "out").mkdir()
            process = subprocess.Popen([*COMMAND, "capture", "--ros-args", *arguments], stdout=log, stderr=log)
            stage.ready(process)
            ended = threading.Event()
            player = threading.Thread(target=stage.play, args=(ended,))
            player.start()
            completing = chance.random() < COMPLETING
            committed = stage.listen(stage.seconds + SETTLE if completing else chance.uniform(0, stage.seconds))
            if completing:
                process.send_signal(signal.SIGINT)
                time.sleep(chance.uniform(0, 0.4))
            process.kill()
            process.wait()
            ended.set()
            player.join()
            settle(tally, reference, folder / "out", committed, judge, live=True)
            shutil.rmtree(folder / "out")
    stage.rclpy.shutdown()
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("convert", "capture"))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the recording")
    parser.add_argument("--judge", type=Path, help="the judge's script")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder if not given")
    options = parser.parse_args()
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(PROFILE))
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        recording = folder / make_recording_name("maivin-kill", START)
        write_recording(recording, Recipe(seconds=options.seconds, **RECIPE))
        reference = Reference(recording, folder / "whole")
        kill = {"convert": kill_conversions, "capture": kill_captures}[options.what]
        tally = kill(reference, folder, options.kills, random.Random(options.seed), options.judge)
    tally.show(options.what, time.monotonic() - began)
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
