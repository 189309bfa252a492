# SPDX-License-Identifier: Apache-2.0
"""The table: one line a comparison, printed as it is found."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

WIDTHS = (58, 14, 30, 26, 9)
HEAD = ("what", "ours", "compared with", "ratio (lowest to highest)", "bar")


@dataclass(frozen=True)
class Line:
    """One comparison. `ratios`: ours / theirs of each round. `at_most` or `at_least`: the bar on their median.

    With a `unit` they are no ratios but absolute figures. Without any the line only tells: `note` says what could not
    be run, and why.
    """

    what: str
    ours: str = ""
    theirs: str = ""
    ratios: Sequence[float] = ()
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    unit: str = ""

    @property
    def ratio(self) -> float:
        """Median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def passed(self) -> bool | None:
        """Whether the bar is met; None without one."""
        if not self.ratios or (self.at_most is None and self.at_least is None):
            return None
        over = self.at_most is not None and self.ratio > self.at_most
        return not over and not (self.at_least is not None and self.ratio < self.at_least)

    def text(self) -> str:
        ratio = bar = ""
        if self.ratios:
            ratio = f"{self.ratio:.3f}{self.unit}"
            ratio += f" ({min(self.ratios):.3f} to {max(self.ratios):.3f})" if len(self.ratios) > 1 else ""
        if self.at_most is not None:
            bar = f"<= {self.at_most:.3g}{self.unit}"
        if self.at_least is not None:
            bar = f">= {self.at_least:.3g}{self.unit}"
        result = {True: "pass", False: "FAIL", None: ""}[self.passed]
        cells = (self.what, self.ours, self.theirs, ratio, bar)
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)) + f"  {result}"
        return line.rstrip() + (f"\n    {self.note}" if self.note else "")


def head(number: int, ffmpeg: str) -> str:
    """What the table was measured on and with, and its heading."""
    cores = sorted(os.sched_getaffinity(0))
    names = ("av", "isal", "mcap", "numpy", "pillow", "polars", "rosbags", "simplejpeg", "zlib-ng")
    told = [
        f"{processor()}, cores {','.join(map(str, cores))}; load {os.getloadavg()[0]:.2f}; {platform.platform()}",
        f"Python {platform.python_version()}; {ffmpeg}; " + ", ".join(f"{name} {version(name)}" for name in names),
        f"medians of {number} rounds; s: on the clock unless it says CPU",
        "",
        "  ".join(cell.ljust(width) for cell, width in zip(HEAD, WIDTHS, strict=True)).rstrip(),
    ]
    return "\n".join(told)


def processor() -> str:
    """Name of the processor as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def seconds(value: float) -> str:
    """A time in s."""
    return f"{value:.2f} s" if value >= 1 else f"{value:.3f} s"
