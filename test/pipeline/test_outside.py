# SPDX-License-Identifier: Apache-2.0
"""Why a companion's message is in no sample: outside the tolerance, or nearest to none."""

import random

import pytest

from edgefirst_ros import convert
from edgefirst_ros.config import Settings
from edgefirst_ros.pipeline import usage
from edgefirst_ros.pipeline.frame import Frame, SensorMessage
from edgefirst_ros.pipeline.usage import OutsideTolerance

MS = 1_000_000
LIDAR = {"lidar.points": "/lidar/points"}


@pytest.mark.parametrize(
    ("offered", "samples", "number"),
    [
        ([0], [100], 0),  # just within
        ([0], [101], 1),
        ([0], [1000], 1),  # just as far as the lookahead
        ([0], [1001], 0),
        ([0, 900], [500], 1),  # of two equally far the earlier
        ([0, 900], [440, 460], 2),
        ([0], [50, 400], 0),  # one sample has it
        ([0, 0], [400], 1),  # of one stamp the first
        ([0, 300], [310, 700], 0),  # the nearest of the second is in the first
        ([], [5], 0),
    ],
)
def test_what_is_outside(offered, samples, number):
    outside = OutsideTolerance(Settings())
    for stamp in offered:
        outside.offer("lidar.points", stamp * MS, 0)
    for stamp in samples:
        frame = Frame(0, stamp * MS, 0)
        near = min(offered, key=lambda other: abs(other - stamp), default=1000)
        if abs(near - stamp) <= 100:
            frame.companions["lidar.points"] = near * MS, SensorMessage("/lidar/points", None, near * MS)
        outside.observe(frame, LIDAR)
    assert outside.count("lidar.points") == number
    assert outside.count("radar.cube") == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_long_recording_is_counted_as_a_short_one(monkeypatch, seed):
    """What is settled on the way, and forgotten, makes no difference; what is held does not grow."""
    chance = random.Random(seed)
    found = []
    for held, age in ((1 << 40, usage.AGE), (50, 3_000 * MS)):
        monkeypatch.setattr(usage, "HELD", held)
        monkeypatch.setattr(usage, "AGE", age)
        chance.seed(seed)
        outside, stamps, most = OutsideTolerance(Settings()), [], 0
        for n in range(3000):
            stamps.append((n * 330 + chance.randrange(200)) * MS)
            outside.offer("lidar.points", stamps[-1], 0)
            frame = Frame(n, (n * 330 - 1000 + chance.randrange(330)) * MS, 0)
            near = min(stamps[-12:], key=lambda other: (abs(other - frame.stamp), other))
            if abs(near - frame.stamp) <= 100 * MS:
                frame.companions["lidar.points"] = near, SensorMessage("/lidar/points", None, near)
            outside.observe(frame, LIDAR)
            most = max(most, sum(len(t.offered) + len(t.used) + len(t.lacking) for t in outside._tracks.values()))
        found.append(outside.count("lidar.points"))
        assert (most < 300) == (held == 50)
    assert found[0] == found[1] > 500


def test_where_there_is_no_sample_little_is_held(monkeypatch):
    monkeypatch.setattr(usage, "MOST", 100)
    outside = OutsideTolerance(Settings())
    for n in range(1000):
        outside.offer("lidar.points", n * MS, 0)
    assert len(outside._tracks["lidar.points", 0].offered) <= 100


def test_epochs_do_not_meet():
    outside = OutsideTolerance(Settings())
    outside.offer("lidar.points", 0, 0)
    outside.observe(Frame(0, 400 * MS, 0, epoch=1), LIDAR)
    assert outside.count("lidar.points") == 0


def test_a_conversion_tells_them_apart(recording, tmp_path, judge, capsys):
    """Ten messages a second, samples at full seconds, and only what lies within 5 ms is taken."""
    path = recording(seconds=3.0, fps=10.0, size=(128, 64), codec="jpeg", lidar_points=20,
                     topics=frozenset({"camera", "lidar/points"}))  # fmt: skip
    outcome = convert(path, tmp_path, name="out", rate=1, tolerance=0.005)
    count = outcome.counts.plain()["/lidar/points"]
    assert count["dropped"] == {"outside tolerance": 3, "nearest to no sample": 27}
    assert (
        judge(path, outcome.paths.container, "--rate", "1", "--tolerance", "0.005", "--section10", capsys=capsys) == []
    )
