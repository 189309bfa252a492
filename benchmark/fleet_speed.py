# SPDX-License-Identifier: Apache-2.0
"""What a fleet's recording costs besides its conversion, and what a second worker brings: parts of fleet_runs.py."""

import os
import resource
import shutil
import threading
import time
from collections import Counter
from functools import partial
from statistics import median

from edgefirst_ros.config import Settings
from edgefirst_ros.fleet import converting, work
from edgefirst_ros.fleet.converting import Conversion
from edgefirst_ros.fleet.dask_engine import open_dask
from edgefirst_ros.fleet.engine import Driver, Task
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 8, 2, 16), "lidar_points": 10}
QUIET = 0.1
"""Processors that other programs may take in a round that counts."""


def nothing(plain):
    """What a task costs that does nothing."""
    return {"verdict": "ok", "error": None, "n": plain["n"]}


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def processor_seconds():
    """Of this process and all below it."""
    import psutil

    own = psutil.Process()
    return sum(sum(one.cpu_times()[:2]) for one in (own, *own.children(recursive=True)))


def machine_seconds():
    """Processor time of everything on the machine."""
    import psutil

    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait


class Noting:
    """The work of a recording that adds a line to a file: the worker, and the processor time of the conversion, s.

    Without that of the main thread, in which a worker of Dask does everything but its tasks.
    """

    def __init__(self, path):
        self._path = path

    def __call__(self, plain):
        convert = work.convert
        work.convert = partial(self._timed, convert)
        try:
            return work.work(plain)
        finally:
            work.convert = convert

    def _timed(self, convert, *given, **options):
        began = self._taken()
        try:
            return convert(*given, **options)
        finally:
            with open(self._path, "a") as file:
                file.write(f"{os.getpid()} {self._taken() - began}\n")

    def _taken(self):
        main = time.pthread_getcpuclockid(threading.main_thread().ident)
        return time.process_time() - time.clock_gettime(main)


def read_notes(path):
    """Number of conversions by worker, and the processor time of all, s; the file is removed."""
    lines = [line.split() for line in path.read_text().splitlines()]
    path.unlink()
    return Counter(worker for worker, _ in lines), sum(float(seconds) for _, seconds in lines)


def make_drives(folder, number, **recipe):
    """A folder of so many recordings, all the same."""
    folder.mkdir()
    write_recording(folder / "drive00000.mcap", Recipe(**recipe))
    for n in range(1, number):
        os.link(folder / "drive00000.mcap", folder / f"drive{n:05}.mcap")
    return folder


class Run:
    """One run of recordings by warm workers: each has converted before the clocks start, so libraries are loaded."""

    def __init__(self, drives, folder, settings, workers):
        notes, whole = folder / "notes", Conversion([str(drives)], str(folder / "sets"), settings)
        converting.work = Noting(str(notes))
        with open_dask(None, workers) as engine:
            self._warm(engine, drives, folder, settings, workers, notes)
            began, own, machine = time.monotonic(), processor_seconds(), machine_seconds()
            self.verdicts = whole.run(engine, lambda tally: None).verdicts
            self.seconds = time.monotonic() - began
            self.worked = processor_seconds() - own
            self.others = (machine_seconds() - machine - self.worked) / self.seconds
            """Processors that other programs took."""
        self.shares, self.alone = read_notes(notes)
        shutil.rmtree(folder / "sets")

    def _warm(self, engine, drives, folder, settings, workers, notes):
        to, warm = folder / "warm", Counter()
        some = [str(drives / f"drive{n:05}.mcap") for n in range(2 * workers)]
        while len(warm) < workers:
            Conversion(some, str(to), settings).run(engine, lambda tally: None)
            shutil.rmtree(to)
            warm += read_notes(notes)[0]


def overhead(options, folder):
    """Tasks that do nothing, then a tenth as many recordings of a few KB, by one worker.

    In processor time of driver, scheduler and worker, less that of the conversions, which is taken within them: the
    speed of a machine that others use differs from one minute to the next.
    """
    peaks = []
    with open_dask(None, 1) as engine:
        tasks = (Task(nothing, {"n": n}, 1) for n in range(options.recordings))
        began, worked = time.monotonic(), processor_seconds()
        for number, _ in enumerate(Driver(engine).run(tasks), 1):
            if number % max(1, options.recordings // 5) == 0:
                peaks.append(round(megabytes()))
        seconds, worked = time.monotonic() - began, processor_seconds() - worked
    each, worked = 1000 * seconds / options.recordings, 1000 * worked / options.recordings
    print(
        f"{options.recordings} tasks that do nothing: {each:.2f} ms each, {worked:.2f} ms of processor time; "
        f"MB of driver and scheduler after each fifth: {peaks}",
        flush=True,
    )
    number = max(2, options.recordings // 10)
    drives = make_drives(folder / "drives", number, **SMALL)
    run = Run(drives, folder, Settings(rate=1, jobs=1), 1)
    each, worked, alone = (1000 * taken / number for taken in (run.seconds, run.worked, run.alone))
    print(
        f"{number} recordings of {(drives / 'drive00000.mcap').stat().st_size} bytes, {dict(run.verdicts)}: "
        f"{each:.1f} ms each, {worked:.1f} ms of processor time, of convert alone {alone:.1f} ms: "
        f"{worked - alone:.1f} ms more; peak {megabytes():.0f} MB"
    )
    return worked - alone < 25 and run.verdicts == {"ok": number}


def scaling(options, folder):
    """The same recordings by one worker and by two, in turn; beside each the processor time that it took.

    Rounds in which other programs took more than QUIET processors count only where there is none without. One worker
    is busy on more than one processor, as driver and scheduler run beside it and a conversion reads while it encodes:
    what two can be faster at most is told too, all processors of this machine over those.
    """
    drives = make_drives(folder / "drives", 12, seconds=6, size=(640, 480))
    rounds = []
    for number in range(options.rounds):
        runs = {workers: Run(drives, folder, Settings(), workers) for workers in ((1, 2) if number % 2 else (2, 1))}
        one, two = runs[1], runs[2]
        rounds.append(
            {
                "ratio": one.seconds / two.seconds,
                "dearer": two.worked / one.worked,
                "most": os.cpu_count() / (one.worked / one.seconds),
                "beside": 1 - one.alone / one.worked,
                "others": max(one.others, two.others),
            }
        )
        print(
            f"round {number + 1}: {one.seconds:.1f} s by one, {two.seconds:.1f} s by two: {rounds[-1]['ratio']:.2f}; "
            f"processor time {one.worked:.1f} and {two.worked:.1f} s, of conversions {one.alone:.1f} and "
            f"{two.alone:.1f}; processors that others took {one.others:.2f} and {two.others:.2f}; "
            f"each of two did {sorted(two.shares.values())}",
            flush=True,
        )
    quiet = [one for one in rounds if one["others"] < QUIET] or rounds
    middle = {name: median(one[name] for one in quiet) for name in quiet[0]}
    print(
        f"{len(quiet)} of {len(rounds)} rounds, medians: {middle['ratio']:.2f} times as fast, at most "
        f"{middle['most']:.2f}; processor time of two to one {middle['dearer']:.2f}; beside conversions "
        f"{middle['beside']:.1%}; others took {middle['others']:.2f}"
    )
    return middle["ratio"] >= 1.8
