# SPDX-License-Identifier: Apache-2.0
"""How long it takes until anything happens at all, in seconds; beside it `python -c pass` and the libraries alone."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import Program, cpu, median, rounds, run, wall
from suite.table import Line, seconds

HELP, FRAME, PICTURE = 0.10, 0.40, 0.35


LIBRARIES = "import numpy, av, pyarrow, pydantic, yaml, PIL.Image"
"""Those that a conversion cannot do without."""
READ = "import sys; from edgefirst_ros import Dataset; Dataset(sys.argv[1])[0].image()"


def startup(number: int) -> Iterator[Line]:
    """`--help`, the conversion of a recording of one frame, and the first picture of a dataset."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    one = str(inputs.recording(inputs.ONE))
    with tempfile.TemporaryDirectory(dir=SCRATCH) as temporary:
        command = [commands.OURS, "convert", one, "-o", temporary, "--name", "one"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        programs = {
            "python": Program([sys.executable, "-c", "pass"]),
            "libraries": Program([sys.executable, "-c", LIBRARIES]),
            "help": Program([commands.OURS, "--help"]),
            "convert": commands.convert(Path(one)),
            "picture": Program([sys.executable, "-c", READ, f"{temporary}/one.zip"]),
        }
        for program in programs.values():
            run(program, SCRATCH)  # byte code, page cache
        found = rounds(programs, SCRATCH, 2 * number)
    python, libraries = (seconds(median(found[name], wall)) for name in ("python", "libraries"))
    for name, what, bar in (
        ("help", "edgefirst-ros --help", HELP),
        ("convert", "convert of one frame", FRAME),
        ("picture", "first picture of a dataset", PICTURE),
    ):
        ours = seconds(median(found[name], wall))
        bare = f"python {python}, libraries {libraries}"
        yield Line(what, ours, bare, [one.wall for one in found[name]], at_most=bar, unit=" s")
        ratios = [mine.cpu / theirs.cpu for mine, theirs in zip(found[name], found["libraries"], strict=True)]
        mine, theirs = (f"{seconds(median(found[it], cpu))} CPU" for it in (name, "libraries"))
        yield Line(f"{what}, against loading libraries", mine, theirs, ratios)
