# SPDX-License-Identifier: Apache-2.0
"""What passes through unchanged: against copying the recording, from the page cache to the same disk.

Ours is on the disk when it ends; what `cp` wrote is in the page cache only, unless it is synced. Both are shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import Program, median, rounds, wall, warm
from suite.table import Line, seconds

BAR = 2.0


def copying(number: int) -> Iterator[Line]:
    """JPEG with EXIF added, and clouds."""
    for what, given, options in (
        ("JPEG passed through + EXIF", inputs.JPEG, ()),
        ("lidar clouds -> PCD", inputs.LIDAR, ("--reference-topic", "/lidar/points")),
    ):
        path = inputs.recording(given)
        warm(path)
        copy = f"cp --reflink=never '{path}' {{out}}/copy"
        programs = {
            "ours": commands.convert(path, *options),
            "cp": Program(["sh", "-c", copy]),
            "cp + sync": Program(["sh", "-c", f"{copy} && sync {{out}}/copy"]),
        }
        found = rounds(programs, SCRATCH, number)
        for peer in ("cp", "cp + sync"):
            ratios = [mine.wall / theirs.wall for mine, theirs in zip(found["ours"], found[peer], strict=True)]
            ours, theirs = seconds(median(found["ours"], wall)), f"{peer} {seconds(median(found[peer], wall))}"
            name = f"{what}, {path.stat().st_size / 1e6:.0f} MB, against {peer}"
            yield Line(name, ours, theirs, ratios, at_most=BAR)
