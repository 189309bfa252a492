# SPDX-License-Identifier: Apache-2.0
"""A few of the states that benchmark/powercut.py tries: what a disk may hold after a power cut, or a program's kill."""

import importlib
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from unfinished_datasets import leave

MODES = ("new", "resume", "live")
LAYOUTS = ("zip", "directory")


@pytest.fixture(scope="module")
def powercut():
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder = str(Path(__file__).parents[3] / "benchmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return importlib.import_module("powercut")


@pytest.fixture(scope="module")
def traced(powercut, tmp_path_factory):
    """{(mode, layout): disk before it, calls, output}: a conversion, one that goes on, and a capture."""

    def prepare(mode, layout, out):
        if mode == "resume":
            leave(out, map(powercut.sample, range(5)), commits=powercut.COMMITS, layout=layout, fsync=True, name="d")

    cases = [(mode, layout) for mode in MODES for layout in LAYOUTS]
    return dict(zip(cases, powercut.trace(cases, tmp_path_factory.mktemp("traced"), prepare), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_power_cuts_and_kills_lose_no_committed_sample(powercut, traced, tmp_path, layout):
    found = Counter()
    for mode, points in (("new", 8), ("resume", 8), ("live", 10)):
        disk, calls, out = traced[mode, layout]
        judge, tally = powercut.Judge(mode, layout, powercut.content_of(out, layout), None), powercut.Tally()
        chance, kills = random.Random(f"{mode} {layout}"), mode == "live"
        every = sum(name != "mark" for name, _ in calls) // points
        powercut.replay(disk, calls, judge, tmp_path / mode, chance, 1, tally, every=every, kills=kills)
        assert tally.faults == []
        found += tally.states
    assert min(found["ordered"], found["posix"], found["killed"]) > 8
