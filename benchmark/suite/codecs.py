# SPDX-License-Identifier: Apache-2.0
"""What is spent beside the codecs: the codec floor on whole drives, two cores against one, cubes against Pillow."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from suite import commands, inputs
from suite.inputs import SCRATCH
from suite.measure import cpu, median, rounds, run, wall, warm
from suite.table import Line, seconds
from suite.video import of_floor

FLOORS, SPEED_UP, CUBE = {"all topics, synthetic": 1.45, "verdin": 1.8}, 1.8, 1 / 20
NO_SHARED = "not at hand: ../shared/data beside the repository"


def floor(number: int) -> Iterator[Line]:
    """Processor seconds of the whole conversion against those of the codecs alone."""
    drives = {"all topics, synthetic": inputs.recording(inputs.DRIVES), "verdin": inputs.shared("verdin*.mcap")}
    for name, path in drives.items():
        if path is None:
            yield Line(name, note=NO_SHARED)
            continue
        warm(path)
        found = rounds({"ours": commands.convert(path), "floor": commands.floor(path)}, SCRATCH, number)
        ratios = [mine.cpu / of_floor(bare) for mine, bare in zip(found["ours"], found["floor"], strict=True)]
        told = json.loads(found["floor"][0].said)
        note = (
            f"{told['pictures']} pictures, {told['cubes']} cubes; "
            f"ours on the clock {seconds(median(found['ours'], wall))}"
        )
        ours = f"{seconds(median(found['ours'], cpu))} CPU"
        bare = f"codec floor {seconds(median(found['floor'], of_floor))} CPU"
        yield Line(f"{name}: processor time", ours, bare, ratios, at_most=FLOORS[name], note=note)


def cores(number: int) -> Iterator[Line]:
    """The same conversion on two cores and on one."""
    there = sorted(os.sched_getaffinity(0))[:2]
    if len(there) < 2:
        yield Line("two cores against one", note="there is one core")
        return
    for given in (inputs.H264, inputs.H265):
        path = inputs.recording(given)
        warm(path)
        programs = {
            "one": commands.convert(path, cores=frozenset(there[:1])),
            "two": commands.convert(path, cores=frozenset(there)),
        }
        found = rounds(programs, SCRATCH, number)
        ratios = [one.wall / two.wall for one, two in zip(found["one"], found["two"], strict=True)]
        two, one = seconds(median(found["two"], wall)), f"one core {seconds(median(found['one'], wall))}"
        yield Line(f"speed-up of two cores, {given.name}", two, one, ratios, at_least=SPEED_UP)


def cubes(number: int) -> Iterator[Line]:
    """PNG of a cube against Pillow's default, in process."""
    drives = {"synthetic": inputs.recording(inputs.DRIVES), "real (verdin)": inputs.shared("verdin*.mcap")}
    for name, path in drives.items():
        if path is None:
            yield Line(f"cube -> PNG, {name}", note=NO_SHARED)
            continue
        told = json.loads(run(commands.ours_in_python("cube_png.py", str(path), str(number)), SCRATCH).said)
        ratios = [mine / theirs for mine, theirs in zip(told["ours"], told["pillow"], strict=True)]
        ours, pillow = sorted(told["ours"])[number // 2], sorted(told["pillow"])[number // 2]
        note = f"{told['raw'] / 1e6:.2f} MB to {told['ours_bytes'] / 1e6:.2f}, Pillow {told['pillow_bytes'] / 1e6:.2f}"
        yield Line(f"cube -> PNG, {name}", f"{ours:.2f} ms", f"Pillow {pillow:.1f} ms", ratios, at_most=CUBE, note=note)
