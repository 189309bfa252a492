# SPDX-License-Identifier: Apache-2.0
"""Half an hour on board over Zenoh: capture at real time, upload, a network that is gone for minutes, power cuts.

    python benchmark/onboard.py drive [--minutes 30] [--outage 10 5] [--size 1280 720]
    python benchmark/onboard.py cuts [--rounds 50] [--seed 1]

`drive`: a drive of all topics is published at its own pace on the device's bus; the capture begins a dataset every two
minutes, sends each to an S3 server (moto) in a process of its own, and removes it once its checksums were compared.
`--outage BEGIN MINUTES`: nothing answers then. What is in the bucket at the end is counted against what was published.
`cuts`: datasets of a folder are sent, and the process is killed (-9) at random moments, as often as `--rounds` says,
some while a slow line holds up every answer. After each kill every dataset is whole in the folder or in the bucket,
and at the end all are in the bucket, each object with the bytes that it had in the folder.

Needs moto, boto3, obstore and eclipse-zenoh (the extra `test`). Exit code 1 when a bar is missed.
"""

import argparse
import hashlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))  # a real S3 server, and a line to it with faults

from live import Zenoh, play, resident
from object_server import S3, Line

from edgefirst_ros import convert
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.synthetic import START, Recipe, recording_name, write_recording

ENDS = (".zip", ".arrow", ".frames.arrow")
EVERY = 120
"""s of a dataset."""
GROWTH = 1.15
"""Most that the last third of the time may take of the memory of the second."""
LAST = 600
"""s in which what waits must be sent at the end: a storage that failed is asked again after 300 s at most."""
SENDER = """
import sys, time
from types import SimpleNamespace
from edgefirst_ros.config import LiveSettings
from edgefirst_ros.pipeline import upload
upload.LOOK_EVERY, upload.PAUSES = 0.05, (0.05, 0.2)
say = lambda text: None
live = LiveSettings(out=sys.argv[1], upload=sys.argv[2], keep=False)
found = upload.Uploader(live, SimpleNamespace(info=say, warning=say, error=say))
print("ready", flush=True)
while found.status()["waiting"] or not found.status()["sent"]:
    time.sleep(0.05)
time.sleep(0.2)
found.close()
"""


def bar(what, held, found):
    print(f"{'held  ' if held else 'MISSED'} {what}: {found}", flush=True)
    return held


def drive(options, server, line, temporary):
    """Capture, and count."""
    path = temporary / recording_name("maivin-live", START)
    recipe = Recipe(seconds=20, size=tuple(options.size), cube_shape=(2, 64, 4, 128), lidar_points=8_000, noise=2.0)
    write_recording(path, recipe)
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    bus, out = Zenoh(dict(recording.topics)), temporary / "out"
    settings = {"out": out, "max_seconds": EVERY, "upload": "s3://drives/car", "keep": "false", "time_base": "header"}
    capture = subprocess.Popen(bus.capture(settings | {"keyframes": str(options.keyframes).lower()}))
    published, memory, over = {}, [], threading.Event()
    threading.Thread(target=resident, args=(capture, memory, over), daemon=True).start()
    begin, minutes = options.outage

    def outage():
        if not over.wait(60 * begin):
            line.always = ("reset", 0)
            print(f"{begin:g} min: nothing answers", flush=True)
        if not over.wait(60 * minutes):
            line.always = None
            print(f"{begin + minutes:g} min: it answers again; waiting: {bus.status()['upload']}", flush=True)

    threading.Thread(target=outage, daemon=True).start()
    play(bus, recording, 1.0, round(60 * options.minutes / 20), published)
    time.sleep(4.0)
    status = bus.status()
    order(bus, "stop")
    deadline = time.monotonic() + LAST
    while time.monotonic() < deadline and list(out.glob("*.zip*")):
        time.sleep(1.0)
    over.set()
    left = sorted(file.name for file in out.iterdir())
    capture.send_signal(signal.SIGINT)
    _, code, used = os.wait4(capture.pid, 0)
    bus.close()
    objects = server.objects("car/")
    frames = [pl.read_ipc(data) for key, data in objects.items() if key.endswith(".frames.arrow")]
    stamps = [stamp for frame in frames for stamp in frame["timestamp"]]
    topics = status["topics"]
    dropped = {}
    for count in status["counts"].values():
        for reason, number in count["dropped"].items():
            dropped[reason] = dropped.get(reason, 0) + number
    third = len(memory) // 3
    parts = [statistics.mean(memory[n * third : (n + 1) * third]) for n in range(3)]
    length = (max(published.values()) - min(published.values())) / 60
    print(f"{length:.1f} min, {len(published)} frames published, {len(stamps)} samples in {len(frames)} datasets")
    print(
        f"cores {(used.ru_utime + used.ru_stime) / 60 / length:.2f}, load {os.getloadavg()[2]:.1f}, dropped {dropped}"
    )
    return all(
        [
            bar("nothing lost on the way", not sum(one["lost"] for one in topics.values()), f"{len(topics)} topics"),
            bar("every sample is in the bucket, once", len(stamps) == len(set(stamps)) and stamps, len(set(stamps))),
            bar("all of them were published", set(stamps) <= set(published), len(set(stamps) - set(published))),
            bar("nothing is left on the card", not left, left),
            bar("memory is flat", parts[2] <= GROWTH * parts[1], ", ".join(f"{part:.0f} MB" for part in parts)),
            bar("exit code", os.waitstatus_to_exitcode(code) in (0, 3), os.waitstatus_to_exitcode(code)),
        ]
    )


def order(bus, what):
    """Give a capture an order, as `edgefirst-ros control` does."""
    subprocess.run([sys.executable, "-m", "edgefirst_ros", "control", what, "--zenoh", bus.endpoint], check=True)


def cuts(options, server, line, temporary):
    """Kill, look, and go on."""
    random.seed(options.seed)
    source = temporary / recording_name("maivin-cut", START)
    write_recording(source, Recipe(seconds=2, size=(320, 180)))
    bad = sent = 0
    for number in range(options.rounds):
        out, prefix = temporary / f"out{number}", f"cut{number}"
        out.mkdir()
        whole = {}
        for name in ("a", "b", "c"):
            convert(source, out, name=name)
            whole |= {f"{name}{end}": hashlib.sha256((out / f"{name}{end}").read_bytes()).hexdigest() for end in ENDS}
        command = [sys.executable, "-c", SENDER, str(out), f"s3://drives/{prefix}"]
        for cut in range(options.cuts + 1):
            line.faults = [("stall", random.randrange(200))] if random.random() < 0.3 else []
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            process.stdout.readline()
            if cut < options.cuts:
                time.sleep(random.random() * 0.4)
                process.kill()
            else:
                process.wait(120)
            process.wait()
            line.faults = []
            there = {key.partition("/")[2]: data for key, data in server.objects(f"{prefix}/").items()}
            for name in ("a", "b", "c"):
                files = [f"{name}{end}" for end in ENDS]
                here = all((out / file).exists() for file in files)
                away = all(hashlib.sha256(there.get(file, b"")).hexdigest() == whole[file] for file in files)
                bad += not (here or away)
        sent += sum(hashlib.sha256(there.get(file, b"")).hexdigest() == digest for file, digest in whole.items())
        left = [file.name for file in out.iterdir()]
        bad += bool(left)
        if left:
            print(f"round {number}: left on the card: {left}")
    total = options.rounds * options.cuts
    return bar(
        f"{total} kills, {options.rounds * 3} datasets: each whole in the folder or in the bucket, at the end in it",
        not bad and sent == options.rounds * 3 * len(ENDS),
        f"{sent} objects with their bytes, {bad} findings",
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("drive")
    one.add_argument("--minutes", type=float, default=30.0)
    one.add_argument("--outage", type=float, nargs=2, default=(10.0, 5.0), metavar=("BEGIN", "MINUTES"))
    one.add_argument("--size", type=int, nargs=2, default=(1280, 720))
    one.add_argument("--keyframes", action="store_true")
    one.set_defaults(run=drive)
    one = verbs.add_parser("cuts")
    one.add_argument("--rounds", type=int, default=10)
    one.add_argument("--cuts", type=int, default=5)
    one.add_argument("--seed", type=int, default=1)
    one.set_defaults(run=cuts)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as temporary,
        pytest.MonkeyPatch.context() as patch,
        S3(patch) as server,
        Line(server.port) as line,
    ):
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        return 0 if options.run(options, server, line, Path(temporary)) else 1


if __name__ == "__main__":
    sys.exit(main())
