# SPDX-License-Identifier: Apache-2.0
"""How long it takes until anything happens at all, in seconds; beside it `python -c pass` and `import numpy`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import Program, median, rounds, run, wall
from suite.table import Line, seconds

HELP, FRAME = 0.25, 0.8


def startup(number: int) -> Iterator[Line]:
    """`--help`, and the conversion of a recording of one frame."""
    programs = {
        "python": Program([sys.executable, "-c", "pass"]),
        "numpy": Program([sys.executable, "-c", "import numpy"]),
        "help": Program([commands.OURS, "--help"]),
        "convert": commands.convert(inputs.recording(inputs.ONE)),
    }
    for program in programs.values():
        run(program, SCRATCH)  # byte code, page cache
    found = rounds(programs, SCRATCH, 2 * number)
    python, numpy = (seconds(median(found[name], wall)) for name in ("python", "numpy"))
    for name, what, bar in (("help", "edgefirst-ros --help", HELP), ("convert", "convert of one frame", FRAME)):
        times = [one.wall for one in found[name]]
        ours, bare = seconds(median(found[name], wall)), f"python {python}, numpy {numpy}"
        yield Line(what, ours, bare, times, at_most=bar, unit=" s")
