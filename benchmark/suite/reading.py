# SPDX-License-Identifier: Apache-2.0
"""Datasets as training reads them: random samples, pictures decoded."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import run
from suite.table import Line

BAR = 0.95


def reading(number: int) -> Iterator[Line]:
    """Random samples a second, against PIL on loose files; large pictures and small ones."""
    for given, options in ((inputs.H264, ("--rate", "2")), (inputs.SHORT, ())):
        SCRATCH.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as temporary:
            command = [
                commands.OURS,
                "convert",
                str(inputs.recording(given)),
                "-o",
                temporary,
                "--name",
                "read",
                *options,
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            program = commands.ours_in_python("random_access.py", str(Path(temporary) / "read.zip"), str(number))
            told = json.loads(run(program, SCRATCH).said)
        ratios = [mine / theirs for mine, theirs in zip(told["ours"], told["pil"], strict=True)]
        ours, pil = (f"{statistics.median(told[name]):.0f} samples/s" for name in ("ours", "pil"))
        what = f"random samples, {given.size[0]}x{given.size[1]}"
        yield Line(what, ours, f"PIL, loose files {pil}", ratios, at_least=BAR)
