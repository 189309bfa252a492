# SPDX-License-Identifier: Apache-2.0
"""Half an hour on board over Zenoh: capture at real time, upload, a network that is gone for minutes, power cuts,
health.

    python benchmark/onboard.py drive [--minutes 30] [--outage 10 5] [--size 1280 720] [--every 120]
    python benchmark/onboard.py cuts [--rounds 50] [--seed 1]
    python benchmark/onboard.py status [--times 20] [--bus "ROS 2"]

`drive`: a drive of all topics is published at its own pace on the device's bus; the capture begins a dataset every two
minutes, sends each to an S3 server (moto), and removes it once its checksums were compared. Server, line to it, router
and capture are processes of their own. `--outage BEGIN MINUTES`: nothing answers then. What is in the bucket at the end
is counted against what was published, and each file that goes from the card has to be there by then, byte for byte.
`cuts`: datasets of a folder are sent, and the process is killed (-9) at random moments, as often as `--rounds` says,
some while a slow line holds up every answer. After each kill every dataset is whole in the folder or in the bucket,
and at the end all are in the bucket, each object with the bytes that it had in the folder.
`status`: `control status` is called so often in each situation of a capture, over Zenoh and ROS 2, four at a time; the
table shows how often the exit code was the one of the situation.

Needs moto, boto3, obstore and eclipse-zenoh (the extra `test`). Exit code 1 when a bar is missed.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow.ipc
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test"))  # a real S3 server, and a line to it with faults

from live import Zenoh, play, resident
from object_server import S3, Line

from edgefirst_ros import convert
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.synthetic import START, Recipe, make_recording_name, write_recording

ENDS = (".zip", ".arrow", ".frames.arrow")
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


def say(text):
    print(text, flush=True)


def bar(what, held, found):
    say(f"{'held  ' if held else 'MISSED'} {what}: {found}")
    return held


class Apart(S3):
    """The S3 server in a process of its own: what it takes of the processor is not the publisher's."""

    def start(self):
        self._process, port = apart(serve)
        return port

    def stop(self):
        self._process.send(None)


def apart(target, *arguments):
    """Run `target(pipe, ...)` in a process of its own; returns the pipe to it, and what it said first."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    context.Process(target=target, args=(other, *arguments), daemon=True).start()
    return pipe, pipe.recv()


def serve(pipe):
    with pytest.MonkeyPatch.context() as patch:
        server = S3(patch)
        pipe.send(server.start())
        pipe.recv()


def lead(pipe, port):
    """A line to a port that is cut and mended as it is told."""
    with Line(port) as line:
        pipe.send(line.port)
        while (told := pipe.recv()) is not None:
            if told == "cut":
                line.cut()
            else:
                line.always = None


class Card:
    """Looks at the folder of a capture: which finished files are there, with which bytes, and when they go."""

    def __init__(self, out, server):
        self._out, self._server = out, server
        self.digests, self.gone, self.early = {}, {}, []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.2):
            there = {file.name for file in self._out.glob("*")} if self._out.exists() else set()
            for name in sorted(self.digests.keys() - self.gone.keys() - there):
                self.gone[name] = time.monotonic()
                self._compare(name)
            for container in sorted(name for name in there if name.endswith(".zip")):
                paths = DatasetPaths(self._out, container.removesuffix(".zip"))
                for end in ENDS if container not in self.digests and paths.finished else ():
                    file = self._out / f"{paths.name}{end}"
                    self.digests[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()

    def _compare(self, name):
        """A file that is gone has to be in the bucket already."""
        try:
            body = self._server.client.get_object(Bucket="drives", Key=f"car/{name}")["Body"]
            if digest_of(body) != self.digests[name]:
                self.early.append(f"{name} differs")
        except self._server.client.exceptions.NoSuchKey:
            self.early.append(f"{name} is nowhere")


def digest_of(body):
    """Of an object, a part at a time."""
    digest = hashlib.sha256()
    for part in body.iter_chunks(1 << 20):
        digest.update(part)
    return digest.hexdigest()


def drive(options, patch, temporary):
    """Capture, and count."""
    path = temporary / make_recording_name("maivin-live", START)
    recipe = Recipe(seconds=20, size=tuple(options.size), cube_shape=(2, 64, 4, 64), lidar_points=4_000, noise=1.0)
    write_recording(path, recipe)
    recording = McapRecording(path)
    for _ in recording.walk():
        pass
    with Apart(patch) as server:
        line, port = apart(lead, server.port)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        held = captured(options, recording, server, line, temporary / "out")
        line.send(None)
        return held


def captured(options, recording, server, line, out):
    bus = Zenoh(dict(recording.topics))
    settings = {"out": out, "max_seconds": options.every, "upload": "s3://drives/car", "keep": "false"}
    settings |= {"time_base": "header", "keyframes": str(options.keyframes).lower()}
    capture = subprocess.Popen(bus.capture(settings))
    published, memory, over, card = {}, [], threading.Event(), Card(out, server)
    threading.Thread(target=resident, args=(capture, memory, over), daemon=True).start()
    begin, minutes = options.outage
    away = []

    def outage():
        for wait, what in ((begin, "cut"), (minutes, "mend")):
            if over.wait(60 * wait):
                return
            line.send(what)
            away.append(time.monotonic())
            say(f"{time.monotonic() - started:.0f} s: {what}; upload: {bus.status()['upload']}")

    started = time.monotonic()
    threading.Thread(target=outage, daemon=True).start()
    play(bus, recording, 1.0, round(60 * options.minutes / 20), published)
    time.sleep(4.0)
    status = bus.status()
    order(bus, "stop")
    deadline = time.monotonic() + LAST
    while time.monotonic() < deadline and list(out.iterdir()):
        time.sleep(1.0)
    over.set()
    card.close()
    left = sorted(file.name for file in out.iterdir())
    capture.send_signal(signal.SIGINT)
    _, code, used = os.wait4(capture.pid, 0)
    bus.close()
    length = (max(published.values()) - min(published.values())) / 60
    cores = (used.ru_utime + used.ru_stime) / 60 / length
    say(f"{length:.1f} min, {sum(bus.published.values())} messages, cores {cores:.2f}, load {os.getloadavg()[2]:.1f}")
    return all(
        [*found_in(server, published, bus.published, status), *held_by(card, away, left), flat(memory), ended(code)]
    )


def found_in(server, published, sent, status):
    """What the bucket holds against what was published: {stamp: when} of the frames, messages by key."""
    stamps, seen, written, dropped, uneven = [], Counter(), Counter(), {}, 0
    keys = sorted(key for key in server.keys("car/") if key.endswith(".frames.arrow"))
    for key in keys:
        data = server.client.get_object(Bucket="drives", Key=key)["Body"].read()
        stamps += pl.read_ipc(data)["timestamp"].to_list()
        counts = json.loads(pyarrow.ipc.open_file(data).schema.metadata[b"counts"])
        for topic, count in counts.items():
            seen[topic] += count["seen"]
            written[topic] += count["written"]
            dropped.setdefault(topic, Counter()).update(count["dropped"])
            uneven += bool(count["written"]) and count["seen"] != count["written"] + sum(count["dropped"].values())
    for topic in sorted(seen):
        print(f"  {topic:16} published {sent[f'rt{topic}']:7} seen {seen[topic]:7} written {written[topic]:7}", end=" ")
        print({reason: n for reason, n in dropped[topic].items() if n})
    came = {key: (t["received"], t["lost"], t["lost_by_stamps"]) for key, t in status["topics"].items()}
    unknown = {key: (sent[key], n) for key, n in came.items() if sum(n) != sent[key]}
    camera = "/camera/h264"
    ways = Counter({"received": 0, "lost": 0, "by stamps": 0})
    for numbers in came.values():
        ways.update(dict(zip(ways, numbers, strict=True)))
    yield bar("published = received + counted as lost, of every topic", not unknown, unknown or dict(ways))
    yield bar("every dataset: seen = written + dropped, of every sensor", keys and not uneven, f"{len(keys)} datasets")
    yield bar("frames published are seen, once", seen[camera] == len(published), f"{seen[camera]} of {len(published)}")
    known = set(stamps) <= set(published) and len(set(stamps)) == len(stamps) == written[camera]
    yield bar("samples are frames that were published, each once", known, len(stamps))


def held_by(card, away, left):
    """What the card kept until it was in the bucket."""
    yield bar("nothing is left on the card", not left, left)
    yield bar("what went was in the bucket with its bytes", card.gone and not card.early, card.early or len(card.gone))
    if len(away) == 2:
        cut, mended = away
        within = [name for name, at in card.gone.items() if cut + 1.0 < at < mended]
        later = sorted(at - mended for at in card.gone.values() if at >= mended)
        yield bar("nothing went while nothing answered", not within, within or f"{mended - cut:.0f} s")
        yield bar("it goes on", later, f"the next file {later[0]:.0f} s after" if later else "never")


def flat(memory):
    third = len(memory) // 3
    parts = [statistics.mean(memory[n * third : (n + 1) * third]) for n in range(3)]
    found = ", ".join(f"{part:.0f} MB" for part in parts)
    return bar("memory is flat", parts[2] <= GROWTH * parts[1], f"{found} by thirds, at most {max(memory):.0f} MB")


def ended(code):
    return bar("exit code", os.waitstatus_to_exitcode(code) in (0, 3), os.waitstatus_to_exitcode(code))


def order(bus, what):
    """Give a capture an order, as `edgefirst-ros control` does."""
    subprocess.run([sys.executable, "-m", "edgefirst_ros", "control", what, "--zenoh", bus.endpoint], check=True)


def cuts(options, patch, temporary):
    with S3(patch) as server, Line(server.port) as line:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{line.port}")
        return killed(options, server, line, temporary)


def killed(options, server, line, temporary):
    """Kill, look, and go on."""
    random.seed(options.seed)
    source = temporary / make_recording_name("maivin-cut", START)
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


BUSY = "while True: pass"
BUSES = ("Zenoh", "ROS 2")


class Health:
    """Calls `control status` in situations of a capture on one bus, and notes the exit codes."""

    def __init__(self, way, times, temporary):
        self._way, self._times, self._out = way, times, temporary / "out"
        self.found = {}

    def run(self, *arguments):
        command = [sys.executable, "-m", "edgefirst_ros", *arguments, *self._way]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @contextmanager
    def beside(self, *commands):
        """End these processes afterwards."""
        yield
        for process in commands:
            process.terminate()
        for process in commands:
            process.wait()

    def capture(self, **settings):
        given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return self.run("capture", "--set", f"out={self._out}", *given)

    def code(self, *_):
        return self.run("control", "status").wait()

    def ask(self, situation, code, wait=True):
        """Ask as often as it takes to get into a situation, and then as often as the table says."""
        deadline = time.monotonic() + 120
        while wait and self.code() != code and time.monotonic() < deadline:
            pass
        with ThreadPoolExecutor(4) as pool:
            codes = Counter(pool.map(self.code, range(self._times)))
        self.found[situation, code] = codes
        say(f"{situation}: {dict(codes)}, load {os.getloadavg()[0]:.0f}")

    def all(self, path):
        self.ask("nobody there", 1, wait=False)
        with self.beside(self.capture(autostart="false", min_free_bytes=0)):
            self.ask("idle on purpose", 0)
            self.run("control", "start").wait()
            self.ask("waiting for a camera", 3)
            with self.beside(self.run("play", str(path), "--loop")):
                self.ask("recording", 0)
                with self.beside(*(subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(10))):
                    self.ask("recording beside ten busy processes", 0, wait=False)
                self.run("control", "pause").wait()
                self.ask("paused", 0)
                self.run("control", "resume").wait()
            self.ask("publishers gone", 5)
        with self.beside(self.capture(min_free_bytes=1 << 60), self.run("play", str(path), "--loop")):
            self.ask("failed: no room on the disk", 4)
        return self.found


def status(options, patch, temporary):
    path, bus = temporary / make_recording_name("maivin-live", START), Zenoh({})
    write_recording(path, Recipe(seconds=4, size=(320, 180), gop=15, topics=("camera", "gps")))
    patch.setenv("ROS_DOMAIN_ID", str(random.randrange(1, 100)))
    patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    ways = {way: [] if way == "ROS 2" else ["--zenoh", bus.endpoint] for way in options.bus or BUSES}
    found = {way: Health(arguments, options.times, temporary / way).all(path) for way, arguments in ways.items()}
    bus.close()
    say(f"{'situation':40} {'exit code':>9} " + " ".join(f"{way:>10}" for way in ways))
    for situation, code in found[next(iter(ways))]:
        shares = [f"{found[way][situation, code][code]} of {options.times}" for way in ways]
        say(f"{situation:40} {code:9} " + " ".join(f"{share:>10}" for share in shares))
    return all(codes == {code: options.times} for one in found.values() for (_, code), codes in one.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("drive")
    one.add_argument("--minutes", type=float, default=30.0)
    one.add_argument("--outage", type=float, nargs=2, default=(10.0, 5.0), metavar=("BEGIN", "MINUTES"))
    one.add_argument("--size", type=int, nargs=2, default=(1280, 720))
    one.add_argument("--every", type=float, default=120.0, metavar="S", help="s of a dataset")
    one.add_argument("--keyframes", action="store_true")
    one.set_defaults(run=drive)
    one = verbs.add_parser("cuts")
    one.add_argument("--rounds", type=int, default=10)
    one.add_argument("--cuts", type=int, default=5)
    one.add_argument("--seed", type=int, default=1)
    one.set_defaults(run=cuts)
    one = verbs.add_parser("status")
    one.add_argument("--times", type=int, default=20)
    one.add_argument("--bus", action="append", choices=BUSES)
    one.set_defaults(run=status)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        return 0 if options.run(options, patch, Path(temporary)) else 1


if __name__ == "__main__":
    sys.exit(main())
