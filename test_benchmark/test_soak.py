# SPDX-License-Identifier: Apache-2.0
"""The soak test in small: what it measures is right, it finds what is planted, and a short drive passes it."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from edgefirst_ros import convert
from edgefirst_ros.synthetic import TOPICS, Recipe, write_recording

SMALL = {"size": (320, 192), "fps": 30, "gop": 10, "cube_shape": (2, 16, 4, 32), "lidar_points": 100}


@pytest.fixture(scope="module")
def soak():
    import soak

    return soak


def failed(bars):
    return {bar.name for bar in bars if not bar.passed}


# ---- what is measured ------------------------------------------------------------------------
def test_slope(soak):
    """By hand: the sum of squares of x is 5, of the products 4, of the residuals 1.8 with two degrees of freedom."""
    assert soak.slope([0, 1, 2, 3], [1, 3, 2, 4]) == pytest.approx((4 / 5, (1.8 / 2 / 5) ** 0.5))
    assert soak.slope([0, 1, 2, 3], [7, 7, 7, 7]) == pytest.approx((0, 0))


def test_too_few_readings_are_no_proof(soak):
    reading = soak.Reading(seconds=1, rss=100, peak=100, descriptors=9, threads=1, written=10)
    assert "RSS slope" in failed(soak.steady([reading], hours=1))
    assert failed(soak.steady([], hours=1)) == {"RSS slope", "descriptors"}


def test_nearest(soak):
    ms = 1_000_000
    messages = np.array([0, 100, 300, 800]) * ms
    frames = np.array([-100, -101, 49, 50, 51, 200, 201, 400, 401, 700, 900, 901]) * ms
    assert soak.nearest(frames, messages).tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]


PROCESS = """
    import os, sys
    with open(sys.argv[1], "wb", buffering=0) as file:
        print("begun", flush=True)
        for line in sys.stdin:
            if line == "write\\n":
                file.write(bytes(100_000))
            if line == "open\\n":
                os.dup(0)
            if line == "fill\\n":
                kept = b"x" * 50_000_000
            print(line, end="", flush=True)
"""


def test_a_process_is_watched(soak, tmp_path):
    """One that does a step only when it is told to, and one step between two looks."""
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), tmp_path / "x.zip.partial"]
    steps = iter(["begun", "write", "write", "open", "fill", None])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def told():
            step = next(steps)
            if step is None:
                process.stdin.close()
                process.wait()
            else:
                if step != "begun":
                    print(step, file=process.stdin, flush=True)
                assert process.stdout.readline() == f"{step}\n"
            return False

        readings = soak.watch(process, tmp_path, 0, told)
    assert [reading.written for reading in readings] == [0, 100_000, 200_000, 200_000, 200_000]
    opened = [reading.descriptors - readings[0].descriptors for reading in readings]
    assert opened == [0, 0, 0, 1, 1]
    assert readings[4].rss > readings[3].rss + 45
    assert readings[4].peak >= readings[4].rss


@pytest.mark.parametrize(
    ("fault", "found"), [("none", set()), ("memory", {"RSS slope"}), ("descriptors", {"descriptors"})]
)
def test_what_is_not_steady_is_found(soak, fault, found):
    """RSS goes up and down by 1 MB; what is planted is 50 MB over the run, and a descriptor in its last part."""
    readings = [
        soak.Reading(
            seconds=step,
            rss=100 + step % 2 + (step / 4 if fault == "memory" else 0),
            peak=200,
            descriptors=9 + (fault == "descriptors" and step > 150),
            threads=1,
            written=step * 100_000,
        )
        for step in range(1, 201)
    ]
    assert failed(soak.steady(readings, hours=1)) == found


# ---- what came out ---------------------------------------------------------------------------
@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """A short drive, and the truth of it."""
    path = tmp_path_factory.mktemp("drive") / "drive.mcap"
    return path, write_recording(path, Recipe(seconds=3, topics=TOPICS, **SMALL))


def test_nothing_is_missing(soak, drive, tmp_path):
    path, truth = drive
    outcome = convert(path, tmp_path)
    assert failed(soak.complete(outcome.paths.container, truth, TOPICS, outcome.exit_code)) == set()


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        ({"drop": {"imu": {70}}}, {"counts"}),
        ({"drop": {"radar/cube": {20}}}, {"counts"}),
        ({"drop": {"model/output": {4}}}, {"counts", "contents"}),
        ({"drop_video": {12}}, {"counts", "contents", "exit code"}),
    ],
)
def test_one_message_less_is_found(soak, drive, tmp_path, lost, found):
    _, truth = drive
    write_recording(tmp_path / "drive.mcap", Recipe(seconds=3, topics=TOPICS, **SMALL, **lost))
    outcome = convert(tmp_path / "drive.mcap", tmp_path)
    assert failed(soak.complete(outcome.paths.container, truth, TOPICS, outcome.exit_code)) == found


def test_no_dataset_is_no_success(soak, drive, tmp_path):
    assert failed(soak.complete(tmp_path / "drive.zip", drive[1], TOPICS, 0)) == {"dataset"}


def test_a_short_drive(soak, tmp_path, capsys):
    """All bars but speed and memory, which depend on what else the machine does: a run of hours tells of them."""
    bars = soak.soak_convert(tmp_path, 10, every=0.02)
    assert [bar.name for bar in bars[:3]] == ["speed", "RSS slope", "descriptors"]
    assert len(bars) == 7
    assert failed(bars[3:]) == set(), capsys.readouterr().out
