# SPDX-License-Identifier: Apache-2.0
"""Whether a recording gives the same bytes each time: in fresh processes, in fresh threads, with any number of jobs.

    python benchmark/same_bytes.py [RECORDING] [--times 200] [--threads 20] [--jobs 1 2 5]

Each process converts `--threads` times, in threads that all live to its end, so that stacks and heaps lie elsewhere
each time. Without RECORDING a synthetic drive of all sensors with masks is converted. Prints how many digests each
file of the dataset has; exit code 1 when there is more than one.
"""

import argparse
import collections
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from edgefirst_ros import convert
from edgefirst_ros.synthetic import Recipe, make_recording_name, write_recording

DRIVE = {"seconds": 2, "size": (320, 192), "cube_shape": (2, 64, 4, 128), "lidar_points": 500}


def digests(recording, jobs, folder):
    """SHA-256 of the files of a conversion, by what follows the dataset's name."""
    outcome = convert(recording, folder, jobs=jobs)
    return {
        path.name.removeprefix(outcome.paths.container.stem): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def converted(recording, jobs):
    """Convert once for each of `jobs`, in threads that live to the end; print a line of JSON for each."""
    found, done = [], threading.Event()

    def work(number):
        try:
            with tempfile.TemporaryDirectory() as folder:
                found.append(digests(recording, number, Path(folder)))
        finally:
            turn.release()
        done.wait()

    turn = threading.Semaphore(0)
    for number in jobs:
        threading.Thread(target=work, args=(number,), daemon=True).start()
        turn.acquire()
    done.set()
    print("\n".join(map(json.dumps, found)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recording", nargs="?", type=Path)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 5])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        converted(options.recording, options.jobs)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        recording = options.recording
        if recording is None:
            recipe = Recipe(**DRIVE)
            recording = Path(folder) / make_recording_name(recipe.host, 0)
            write_recording(recording, recipe)
        seen = collections.defaultdict(collections.Counter)
        numbers = itertools.islice(itertools.cycle(options.jobs), options.times)
        while jobs := list(itertools.islice(numbers, options.threads)):
            command = [sys.executable, __file__, str(recording), "--inside", "--jobs", *map(str, jobs)]
            said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            for line in said.splitlines():
                for kind, digest in json.loads(line).items():
                    seen[kind][digest] += 1
    for kind, counts in sorted(seen.items()):
        print(f"{kind:15} {counts.total()} files, {len(counts)} digest{'s'[: len(counts) > 1]}  {', '.join(counts)}")
    return int(any(len(counts) > 1 or counts.total() != options.times for counts in seen.values()))


if __name__ == "__main__":
    sys.exit(main())
