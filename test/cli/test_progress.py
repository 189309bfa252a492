# SPDX-License-Identifier: Apache-2.0
"""Progress: units, rate and time left, within the width of a terminal."""

import ast
import io
import re
import time
from pathlib import Path

import pytest

import edgefirst_ros
from edgefirst_ros.cli import output as module
from edgefirst_ros.cli.output import describe_rate, describe_time, show_progress
from edgefirst_ros.counts import UNITS

LONG = "a_rather_long_host_name_of_a_vehicle_00000001_2026_01_15_12_00_00.mcap"


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize(
    ("step", "done", "shown"),
    [
        ("reading a.mcap", 83_180_954, "41.6 MB/s"),
        ("uploading a", 83_180_954, "41.6 MB/s"),
        ("converting a", 4_624, "2,312 messages/s"),
        ("merging a", 5, "2.5 samples/s"),
        ("converting a", 0, ""),
    ],
)
def test_a_rate_has_the_unit_of_its_step(step, done, shown):
    assert describe_rate(step, done, 2.0) == shown


def test_a_time_is_minutes_and_seconds():
    assert [describe_time(s) for s in (12.4, 75, 3723)] == ["0:12", "1:15", "1:02:03"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_rate_and_time_left_fit_the_terminal(monkeypatch, width):
    screen = Screen(terminal=True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(module, "EVERY", 0)
    for name, value in {"COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with show_progress(quiet=False) as report:
        for done in range(1, 6):
            report(f"reading {LONG}", done * 10_000_000, 1 << 40)
            time.sleep(0.02)
    lines = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").splitlines()
    (last,) = [line.rstrip() for line in lines if line.startswith("reading")][-1:]
    assert len(last) <= width
    assert re.search(r"^reading a_.* 0% [\d,.]+ MB/s (?:\d+:)?\d+:\d\d$", last), last


def test_a_line_of_a_log_has_rate_and_time_left(monkeypatch):
    screen = Screen(terminal=False)
    monkeypatch.setattr("sys.stderr", screen)
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    with show_progress(quiet=False) as report:
        report("converting a", 0, 4000)
        report("converting a", 1000, 4000)
    assert screen.getvalue().splitlines() == [
        "converting a: 0 %",
        "converting a: 25 %, 50 messages/s, 1:00 left",
    ]


def test_every_step_of_the_package_has_a_unit():
    """The step is the first argument of a call with three: a text, what is done, and of how much."""
    found = {}
    for file in Path(edgefirst_ros.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and len(node.args) == 3):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            text = node.args[0]
            text = text.values[0] if isinstance(text, ast.JoinedStr) else text
            if name in ("progress", "_progress", "report", "tell") and isinstance(text, ast.Constant):
                found.setdefault(str(text.value).split(" ")[0], file.name)
    assert len(found) > 8
    assert set(found) <= {*UNITS, "labels"}, found
