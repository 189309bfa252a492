# SPDX-License-Identifier: Apache-2.0
"""Hostile input: recordings, messages, pictures, datasets and settings with faults put in, fed to the package.

    python benchmark/fuzz.py [--seed 1] [--inputs 10000] [--kind png ...] [--only N ...] [--keep FOLDER]
    python benchmark/fuzz.py --properties 20 [--seed 1]

Inputs are made from small valid ones by mutations that know the formats; the same seed and number give the same input.
They are fed to what a user would call, in processes of their own. A finding is: any exception but EdgeFirstError, the
death of the process, more than 5 s of processor time (or 60 s without an end), memory that grows by more than 1 GB
(`left`: 300 MB), anything changed outside of the output folder. Of unfinished datasets (`left`) also: a sample that is
not genuine once it is completed or continued, one that is missing without need, a loss that is not told. Findings are
printed with their number, to be repeated with --only, and written to the folder of --keep. Exit code 1 when there are
any.

`--properties` runs the properties that test/ states (streams, tables, positions and so on) with other examples than
`make test`, so many rounds with a seed each. What either finds becomes a fixed case in test/.
"""

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fuzzing import KINDS, mutate, properties, seeds

BATCH = 2500
LONGEST_CPU = 5.0
LONGEST_WALL = 60.0
"""s without an end: waiting for something, or a machine that is busy with other things."""
LONGEST_START = 300.0
LARGEST_RISE = 1 << 30
RISES = {"left": 300 << 20}
"""Bytes, where less must do."""
LOOK = 0.2
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass
class Finding:
    """What one input did that it must not."""

    kind: str
    number: int
    what: str


@dataclass
class Result:
    """What became of the inputs of a kind."""

    kind: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    """s of processor time."""
    largest: int = 0
    """Bytes by which memory grew for one input."""
    seconds: float = 0.0
    """Of all batches, from start to end."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Result") -> None:
        """Take over the figures of a batch."""
        self.inputs += other.inputs
        self.accepted += other.accepted
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)
        self.seconds += other.seconds
        self.findings += other.findings


class Child:
    """A process that is fed, watched from outside."""

    def __init__(self, kind: str, seed: int, numbers: list[int], given: Path, scratch: Path) -> None:
        self.scratch = Path(tempfile.mkdtemp(dir=scratch)) / "a" / "b" / "c" / "d"
        self.scratch.mkdir(parents=True)
        reading, writing = os.pipe()
        self.errors = (self.scratch.parents[3] / "stderr").open("w+b")
        command = [sys.executable, "-m", "fuzzing.worker", kind, str(seed), str(given), str(self.scratch), str(writing)]
        self.process = subprocess.Popen(
            [*command, *map(str, numbers)],
            pass_fds=(writing,),
            cwd=Path(__file__).parent,
            stdout=self.errors,
            stderr=self.errors,
        )
        os.close(writing)
        self._pipe = os.fdopen(reading, "rb", buffering=0)
        self._rest = b""

    def lines(self, seconds: float) -> Iterator[dict]:
        """What the process has said, after at most `seconds`; raises EOFError when it has ended."""
        if not select.select([self._pipe], [], [], seconds)[0]:
            return
        data = self._pipe.read(1 << 16)
        if not data:
            raise EOFError
        *whole, self._rest = (self._rest + data).split(b"\n")
        yield from map(json.loads, whole)

    def figures(self) -> tuple[float, int]:
        """(s of processor time, bytes of memory) of the process so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0, 0
        return (int(fields[11]) + int(fields[12])) / TICKS, pages * PAGE

    def end(self, *, trace: bool) -> str:
        """End the process and clear up; returns the last of what it printed."""
        if trace and self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)  # faulthandler says where it was
            time.sleep(LOOK)
        self.process.kill() if self.process.poll() is None else None
        self.process.wait()
        self._pipe.close()
        self.errors.seek(0)
        said = self.errors.read()[-4000:].decode("utf-8", "replace")
        self.errors.close()
        shutil.rmtree(self.scratch.parents[3], ignore_errors=True)
        return said

    def strays(self) -> list[str]:
        """Files beside the folder the process may write to."""
        top = self.scratch.parents[3]
        return [str(path) for path in top.rglob("*") if self.scratch not in (path, *path.parents)
                and path not in self.scratch.parents and path != top / "stderr"]  # fmt: skip


def run_batch(kind: str, seed: int, numbers: list[int], given: Path, scratch: Path) -> Result:
    """Feed some inputs; behind one that ends the process another takes over."""
    result, left, began = Result(kind), list(numbers), time.monotonic()
    while left:
        child = Child(kind, seed, left, given, scratch)
        fault, begun = _watch(child, left, result)
        strays = child.strays()
        said = child.end(trace=bool(fault))
        if strays:
            result.findings.append(Finding(kind, numbers[0], f"files outside of the output folder: {strays}"))
        if left and not begun:
            raise RuntimeError(f"{kind}: the process cannot be fed\n{fault}\n{said}")
        if left:
            fault = fault or f"the process ended with {child.process.returncode}"
            result.findings.append(Finding(kind, left.pop(0), f"{fault}\n{said}"))
            result.inputs += 1
    result.seconds = time.monotonic() - began
    return result


def _watch(child: Child, left: list[int], result: Result) -> tuple[str, bool]:
    """Follow a process until it ends; takes what is done off `left`.

    Returns why it must be ended, or nothing, and whether it had begun with the first of `left`.
    """
    running, began, start, before = False, time.monotonic(), 0.0, 0
    while True:
        try:
            for said in child.lines(LOOK):
                began = time.monotonic()
                running = "begin" in said
                if running:
                    start, before = child.figures()[0], said["rss"]
                else:
                    left.pop(0)
                    _note(said, result)
        except EOFError:
            child.process.wait()
            return "", running
        cpu, memory = child.figures()
        if not running:
            if time.monotonic() - began > LONGEST_START:
                return "the process does not begin", False
        elif cpu - start > 2 * LONGEST_CPU:
            return f"over {2 * LONGEST_CPU} s of processor time", True
        elif time.monotonic() - began > LONGEST_WALL:
            return f"no end after {LONGEST_WALL} s", True
        elif memory - before > 2 * LARGEST_RISE:
            return f"over {2 * LARGEST_RISE} bytes of memory", True


def _note(said: dict, result: Result) -> None:
    """Take over what a process says of one input."""
    result.inputs += 1
    result.slowest, result.largest = max(result.slowest, said["cpu"]), max(result.largest, said["rise"])
    fault = said["fault"]
    if said["cpu"] > LONGEST_CPU:
        fault += f"\n{said['cpu']:.1f} s of processor time"
    if said["rise"] > RISES.get(result.kind, LARGEST_RISE):
        fault += f"\nmemory grew by {said['rise']} bytes"
    if fault:
        result.findings.append(Finding(result.kind, said["end"], fault.strip()))
    elif said["accepted"]:
        result.accepted += 1
    else:
        result.refused += 1


def fuzz(kinds: list[str], seed: int, numbers: list[int], jobs: int, keep: Path | None = None) -> list[Result]:
    """Feed the inputs of these numbers, of every kind."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, ThreadPoolExecutor(jobs) as pool:
        given, scratch = Path(folder) / "seeds", Path(folder) / "scratch"
        given.mkdir()
        scratch.mkdir()
        seeds.make(given)
        parts = [(kind, numbers[n : n + BATCH]) for kind in kinds for n in range(0, len(numbers), BATCH)]
        totals = {kind: Result(kind) for kind in kinds}
        for result in pool.map(lambda part: run_batch(part[0], seed, part[1], given, scratch), parts):
            totals[result.kind].add(result)
            for finding in result.findings:
                print(f"{finding.kind} --seed {seed} --only {finding.number}: {finding.what}\n", flush=True)
                if keep:
                    data = mutate.hostile(finding.kind, finding.number, seed, seeds.load(given, finding.kind))
                    (keep / f"{finding.kind}-{seed}-{finding.number}").write_bytes(data)
            done = totals[result.kind]
            print(f"{done.kind}: {done.inputs} of {len(numbers)}, {len(done.findings)} findings", file=sys.stderr)
    return list(totals.values())


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--inputs", type=int, default=10_000)
    options.add_argument("--kind", choices=KINDS, nargs="+", default=list(KINDS))
    options.add_argument("--only", type=int, nargs="+", help="numbers of the inputs")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("--keep", type=Path, help="folder for the inputs of findings")
    options.add_argument("--properties", type=int, metavar="ROUNDS", help="search with the properties of test/ instead")
    given = options.parse_args()
    if given.properties:
        failed = properties.search(range(given.seed, given.seed + given.properties), given.jobs)
        print(f"{given.properties} rounds, seeds that found something: {failed or 'none'}")
        return 1 if failed else 0
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    results = fuzz(given.kind, given.seed, given.only or list(range(given.inputs)), given.jobs, given.keep)
    print(
        f"{'kind':6} {'inputs':>8} {'accepted':>9} {'refused':>8} {'findings':>9} {'worst s':>8} {'worst MB':>9} "
        f"{'a second':>9}"
    )
    for one in results:
        print(f"{one.kind:6} {one.inputs:8} {one.accepted:9} {one.refused:8} {len(one.findings):9} "
              f"{one.slowest:8.2f} {one.largest / 1e6:9.1f} {one.inputs / one.seconds:9.1f}")  # fmt: skip
    return 1 if any(result.findings for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
