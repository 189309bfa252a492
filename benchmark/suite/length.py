# SPDX-License-Identifier: Apache-2.0
"""Long recordings: time must grow with the length, and memory must not."""

from __future__ import annotations

from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import median, rounds, rss, wall, warm
from suite.table import Line, seconds

LINEAR, FLAT = 1.1, 1.1
"""How much more a minute may cost, and memory be, in the longer one."""


def length(number: int) -> Iterator[Line]:
    """1, 10 and 60 minutes of a light recording: 320x180 at 10 Hz, where what is done beside the codecs weighs most."""
    lengths = {1: inputs.SHORT, 10: inputs.MIDDLE, 60: inputs.LONG}
    paths = {minutes: inputs.recording(given) for minutes, given in lengths.items()}
    for path in paths.values():
        warm(path)
    found = rounds({str(minutes): commands.convert(path) for minutes, path in paths.items()}, SCRATCH, number)
    short, middle, long = (found[str(minutes)] for minutes in (1, 10, 60))
    early = [(b.wall - a.wall) / 9 for a, b in zip(short, middle, strict=True)]
    late = [(b.wall - a.wall) / 50 for a, b in zip(middle, long, strict=True)]
    note = ", ".join(f"{minutes} min {seconds(median(runs, wall))}" for minutes, runs in found.items())
    ratios = [b / a for a, b in zip(early, late, strict=True)]
    more = sorted(late)[number // 2], sorted(early)[number // 2]
    ours, theirs = (f"{value * 1e3:.0f} ms/min" for value in more)
    yield Line("time: minutes 10 to 60 against 1 to 10", ours, theirs, ratios, at_most=LINEAR, note=note)
    sizes = [median(runs, rss) / 1e6 for runs in (short, middle, long)]
    ratios = [b.rss / a.rss for a, b in zip(middle, long, strict=True)]
    note = f"1 min {sizes[0]:.0f} MB"
    yield Line("memory: 60 min against 10", f"{sizes[2]:.0f} MB", f"{sizes[1]:.0f} MB", ratios, at_most=FLAT, note=note)
