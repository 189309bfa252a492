# SPDX-License-Identifier: Apache-2.0
"""Datasets as others take them: exports against copying, and samples at random in two processes of a training loop."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import Program, median, rounds, run, wall, warm
from suite.table import Line, seconds

ROVERD, NCORE, LOADING = 2.5, 4.0, 1.0


def exports(number: int) -> Iterator[Line]:
    """All sensors to roverd and to both stores of NCore, against `cp` of the dataset and a sync."""
    with _dataset() as container:
        for path in container.parent.iterdir():
            warm(path)
        copy = f"cp --reflink=never '{container.parent}'/* {{out}}/ && sync {{out}}/*"
        export = [commands.OURS, "export", str(container), "-o", "{out}/made", "--to"]
        ways = {"roverd": ["roverd"], "NCore, itar": ["ncore"], "NCore, directory": ["ncore", "--store", "directory"]}
        programs = {name: Program([*export, *way]) for name, way in ways.items()}
        found = rounds({"copy": Program(["sh", "-c", copy]), **programs}, SCRATCH, number)
        peer = f"cp + sync {seconds(median(found['copy'], wall))}"
        for name in ways:
            ratios = [mine.wall / theirs.wall for mine, theirs in zip(found[name], found["copy"], strict=True)]
            bar = ROVERD if name == "roverd" else NCORE
            yield Line(f"export to {name}", seconds(median(found[name], wall)), peer, ratios, at_most=bar)


def training(number: int) -> Iterator[Line]:
    """Pictures and cubes a second against PIL and numpy on loose files, by two spawned processes each."""
    with _dataset("--rate", "5") as container:
        for kind in ("camera", "radar.cube"):
            told = json.loads(
                run(commands.ours_in_python("workers.py", str(container), str(number), kind), SCRATCH).said
            )
            ratios = [mine / theirs for mine, theirs in zip(told["ours"], told["loose"], strict=True)]
            ours, loose = (f"{statistics.median(told[name]):.0f} samples/s" for name in ("ours", "loose"))
            note = f"MB of a worker by round: {', '.join(f'{size:.0f}' for size in told['worker_mb'])}"
            what = f"two workers, {kind} at random"
            yield Line(what, ours, f"loose files {loose}", ratios, at_least=LOADING, note=note)


@contextmanager
def _dataset(*options: str) -> Iterator[Path]:
    """Give the dataset of the drive of all topics, for as long as it is needed."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as temporary:
        recording = str(inputs.recording(inputs.DRIVES))
        command = [commands.OURS, "convert", recording, "-o", temporary, "--name", "drive", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield Path(temporary) / "drive.zip"
