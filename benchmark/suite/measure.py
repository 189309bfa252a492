# SPDX-License-Identifier: Apache-2.0
"""Runs of whole programs: wall and processor seconds, peak memory; alternating rounds, medians."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Cores = frozenset[int]


class ProgramError(Exception):
    """A program that was to be measured failed; says what it wrote."""


@dataclass(frozen=True)
class Run:
    """One run of a program: `wall` and `cpu` (user and system, with those of its children) in s, `rss` in bytes.

    `rss` is the largest of any one process; `said` what it wrote to standard output.
    """

    wall: float
    cpu: float
    rss: int
    said: str


@dataclass(frozen=True)
class Program:
    """A command line. `{out}` in an argument stands for a fresh folder, removed afterwards.

    `cores`: those it may use, None for all of this process. `codes`: exit codes that mean success.
    """

    arguments: Sequence[str]
    cores: Cores | None = None
    codes: tuple[int, ...] = (0,)


def run(program: Program, scratch: Path) -> Run:
    """Run once. What earlier runs left to be written goes to disk first, outside the time. Raises ProgramError."""
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=scratch) as out:
        return _measured(program, Path(out))


def _measured(program: Program, out: Path) -> Run:
    os.sync()
    before = os.sched_getaffinity(0)
    try:
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complaint:
            os.sched_setaffinity(0, program.cores or before)  # inherited; cheaper and safer than a preexec_fn
            began = time.perf_counter()
            arguments = [argument.replace("{out}", str(out)) for argument in program.arguments]
            process = subprocess.Popen(
                arguments, env=_environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=complaint
            )
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - began
            os.sched_setaffinity(0, before)
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read().decode(errors="replace")
            if process.returncode not in program.codes:
                complaint.seek(0)
                tail = (text + complaint.read().decode(errors="replace")).strip()[-2000:]
                raise ProgramError(f"exit code {process.returncode}: {' '.join(arguments)}\n{tail}")
        return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text)
    finally:
        os.sched_setaffinity(0, before)


def _environment() -> dict[str, str]:
    """As an installed program has it: its modules are compiled once, and not at every start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def rounds(programs: Mapping[str, Program], scratch: Path, number: int) -> dict[str, list[Run]]:
    """Runs of each program: one of each a round, in turn, every other round backwards.

    What a run wrote is emptied after it, and removed after the last: ext4 gives no inode again for minutes, and whoever
    makes files after 19,000 were removed waits while it passes over them.
    """
    found: dict[str, list[Run]] = {name: [] for name in programs}
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rounds-", dir=scratch) as kept:
        for turn in range(number):
            for name in list(programs)[:: -1 if turn % 2 else 1]:
                out = Path(tempfile.mkdtemp(dir=kept))
                found[name].append(_measured(programs[name], out))
                _emptied(out)
    return found


def _emptied(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            os.truncate(file, 0)


def median(runs: Sequence[Run], of: Callable[[Run], float]) -> float:
    """Median of something over the runs."""
    return statistics.median(map(of, runs))


def wall(run: Run) -> float:
    """Seconds on the clock."""
    return run.wall


def cpu(run: Run) -> float:
    """Seconds of all processors."""
    return run.cpu


def rss(run: Run) -> float:
    """Peak memory in bytes."""
    return run.rss


def warm(path: Path) -> None:
    """Bring a file into the page cache."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass
