# SPDX-License-Identifier: Apache-2.0
"""Fuzzing in small: hostile input of every kind is met without a finding, and what is planted is found."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgefirst_ros.errors import EdgeFirstError
from edgefirst_ros.sensors.png import check_png

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmark"
KINDS = ["mcap", "cdr", "h264", "h265", "jpeg", "png", "pcd", "zip", "arrow", "yaml", "left", "meta", "store", "place"]
NUMBERED = """

def _number():
    import builtins, sys
    calls = builtins.calls = getattr(builtins, "calls", -1) + 1
    return int([-1, -1, -1, *sys.argv[6:]][calls])  # three inputs before the first are for warming up
"""
PLANTED = f"""{NUMBERED}

def _settings(folder, data):
    import os, threading
    import numpy as np
    number = _number()
    if number == 1:
        raise EdgeFirstError("refused")
    if number == 2:
        raise KeyError("planted")
    if number == 3:
        (folder.parent / "escape").write_text("x")
    if number == 4:
        threading.Thread(target=int, args=("planted",)).start()
    if number == 5:
        np.empty(1 << 36, np.uint8)  # nothing is touched
    if number == 6:
        np.ones(50_000_000, np.uint8)
    if number == 7:
        os.symlink("/", folder / ".." / "link")
    if number == 8:
        while True:
            pass
    return True
"""
DYING = f"""{NUMBERED}

def _settings(folder, data):
    import os
    if _number() == 2:
        os.abort()
    return True
"""


def run(script, *options):
    done = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False)
    table = {row[0]: row[1:] for row in re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+) +(\d+) ", done.stdout, re.MULTILINE)}
    return done, {kind: tuple(map(int, row)) for kind, row in table.items()}


def test_hostile_input_of_every_kind_is_met_without_a_finding():
    done, table = run(BENCHMARK / "fuzz.py", "--inputs", "6", "--seed", "7")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(table) == KINDS
    for kind, (inputs, accepted, refused, findings) in table.items():
        assert (inputs, accepted + refused, findings) == (6, 6, 0), kind


@pytest.fixture
def planted(tmp_path):
    """Function that gives the script with a target of its own for `yaml`, and limits that are met soon."""

    def make(target):
        shutil.copytree(BENCHMARK, tmp_path / "project" / "benchmark", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(BENCHMARK.parent / "config", tmp_path / "project" / "config")
        script = tmp_path / "project" / "benchmark" / "fuzz.py"
        text = script.read_text().replace("LONGEST_CPU = 5.0", "LONGEST_CPU = 1.5")
        script.write_text(text.replace("LARGEST_RISE = 1 << 30", "LARGEST_RISE = 30 << 20"))
        with (script.parent / "fuzzing" / "targets.py").open("a") as file:
            file.write(target)
        return script

    return make


def test_what_is_planted_is_found(planted, tmp_path):
    keep = tmp_path / "keep"
    done, table = run(planted(PLANTED), "--kind", "yaml", "--inputs", "9", "--keep", str(keep))
    assert done.returncode == 1
    found = dict(re.findall(r"^yaml --seed 1 --only (\d): (.*?)(?=^yaml |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    assert set(found) == set("2345678") | {"0"}  # files left behind belong to the batch
    assert table["yaml"] == (9, 1, 1, 8)
    assert "KeyError: 'planted'" in found["2"]
    assert "outside of the output folder" in found["3"]
    assert "in a thread: ValueError" in found["4"]
    assert "MemoryError" in found["5"]
    assert "memory grew by" in found["6"]
    assert "os.symlink outside" in found["7"]
    assert "processor time" in found["8"]
    assert "_settings" in found["8"]  # where it was
    assert "escape" in found["0"]
    assert {path.name for path in keep.iterdir()} == {f"yaml-1-{n}" for n in "02345678"}


def test_behind_an_input_that_ends_the_process_the_others_are_fed(planted):
    done, table = run(planted(DYING), "--kind", "yaml", "--inputs", "4")
    assert done.returncode == 1
    assert table["yaml"] == (4, 3, 0, 1)
    assert "the process ended with -6" in done.stdout


@pytest.fixture
def mutate():
    from fuzzing import mutate

    return mutate


def test_properties_are_searched_with_the_seeds_asked_for(monkeypatch):
    from fuzzing import properties

    seeds = []

    def run(command, **options):
        seeds.append(command[-1])
        return subprocess.CompletedProcess(command, int(command[-1].endswith("=4")))

    monkeypatch.setattr(subprocess, "run", run)
    assert properties.search(range(3, 6), jobs=1) == [4]
    assert seeds == [f"--hypothesis-seed={n}" for n in (3, 4, 5)]


def test_the_same_seed_and_number_give_the_same_input(mutate):
    from fuzzing import foreign, places

    seeds = [bytes(range(200)), b"PK\3\4" + bytes(50)]
    own = {"store": [foreign.packed("ncore", "index", b'{"a": [1, 2, 3]}')], "place": places.seeds()}
    made = [
        [mutate.hostile(kind, number, 1, own.get(kind, seeds)) for number in range(30)]
        for kind in KINDS
        for _ in range(2)
    ]
    assert made[::2] == made[1::2]
    assert all(len(set(inputs)) > 5 for inputs in made)
    assert mutate.hostile("zip", 3, 2, seeds) != mutate.hostile("zip", 3, 1, seeds)


def test_checksums_are_put_right_for_a_share(mutate):
    """So that more is met than the first comparison."""
    from fuzzing.seeds import _pngs

    seeds, whole, changed = list(_pngs()), 0, 0
    for number in range(200):
        data = mutate.hostile("png", number, 1, seeds)
        changed += data not in seeds
        try:
            check_png(data)
            whole += data not in seeds
        except EdgeFirstError:
            pass
    assert changed > 180
    assert whole > 50


def test_unfinished_datasets_are_the_same_every_time(tmp_path):
    from fuzzing.leftover import CASES, Bundle, make

    first, second = (list(make(tmp_path / name)) for name in ("first", "second"))
    assert first == second
    for number, data in enumerate(first):
        bundle = Bundle.unpacked(data)
        assert bundle.case == number
        assert bundle.packed() == data
        assert [Path(name).name for name in bundle.files if name.endswith(".journal")] == ["d.rows.journal"]
        assert ("d.zip.partial" in bundle.files) == (CASES[number].layout == "zip")
