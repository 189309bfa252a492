# SPDX-License-Identifier: Apache-2.0
"""`edgefirst-ros split` and the options of groups at a terminal."""

import json
import os

import pytest

from edgefirst_ros import convert
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 1.0, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "topics": {"camera", "radar/cube"}}
SMALL |= {"cube_shape": (1, 8, 2, 8)}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Two datasets."""
    place = tmp_path_factory.mktemp("datasets")
    made = []
    for seed, name in enumerate(("day", "night")):
        write_recording(place / f"{name}.mcap", Recipe(seed=seed, **SMALL))
        made.append(convert(place / f"{name}.mcap", place).paths)
    return made


def test_datasets_are_split_as_one_set(run, datasets):
    names = [os.fspath(paths.container) for paths in datasets]
    done = run("split", *names, "--split", "train=0.5,val=0.5", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["tables"] == [os.fspath(paths.arrow) for paths in datasets]
    expected = {"samples": 10, "sensors": {"radar.cube": 10}, "labels": {}}
    assert told["groups"] == {"train": expected, "val": expected}
    assert (told["without_group"], told["notes"]) == (0, [])
    done = run("split", *names, "--group", "test=n*", "--group", "test=nig?t", "--group", "val=x,train=d*")
    assert done.returncode == 2
    assert "val=x matches no sequence; known: day, night" in done.stderr
    done = run("split", *names, "--group", "test=n*", "--group", "test=nig?t")
    assert (
        "group              test  train\nsamples              10     10\nsensor radar.cube    10     10\n"
        in done.stdout
    )
    assert "without a group" not in done.stdout  # the samples of the other dataset keep theirs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "expected --split or --group, such as --split train=0.8,val=0.2"),
        (["--stable"], "--stable needs --split"),
        (
            ["--split", "a=0.4"],
            "--split: expected shares above 0 that add up to 1, got 0.4; set all at once: train=0.8,",
        ),
        (["--split", "train=80,val=20"], "got 80, 20; set all at once: train=0.8,val=0.2"),
        (
            ["--split", "train=1,val=0"],
            "expected shares above 0 that add up to 1, got 1, 0; set all at once: train=0.8,",
        ),
        (["--group", "day=test"], "day=test matches no sequence; the group is first: test=day; known: day"),
        (["--group", "night*"], "expected GROUP=GLOB such as test=night*, got 'night*'"),
        (["--split", "a=1", "--split-block", "3"], "--set split_block=..."),
        (["--split", "a=1", "--set", "rate=3"], "expected one of split, split_block, split_gap, stable, group"),
        (["--split", "a=1", "--rate", "3"], "No such option: --rate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_gives_exit_code_2(run, datasets, arguments, says):
    done = run("split", datasets[0].arrow, *arguments)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())


def test_a_recording_is_no_dataset(run, datasets):
    recording = datasets[0].out / "day.mcap"
    done = run("split", recording, "--split", "a=1")
    assert done.returncode == 1
    assert f"{recording} is a recording; make a dataset of it: edgefirst-ros convert" in done.stderr


def test_convert_refuses_a_pattern_before_it_reads(run, datasets, tmp_path):
    recordings = [datasets[0].out / "day.mcap", datasets[0].out / "night.mcap"]
    done = run("convert", *recordings, "-o", "out", "--group", "test=nihgt")
    assert done.returncode == 2
    assert "--group test=nihgt matches no sequence; known: night, day" in done.stderr
    assert not (tmp_path / "out").exists()


def test_merge_shows_what_groups_have(run, datasets):
    names = [paths.container for paths in datasets]
    done = run("merge", *names, "-o", "all", "--group", "test=night", "--split", "train=1")
    assert done.returncode == 0, done.stderr
    assert "group              train  test\nsamples               10    10\n" in done.stdout
    done = run("merge", *names, "-o", "all", "--overwrite", "--split", "a=0.5,b=0.5", "--stable", "--json")
    assert sum(counts["samples"] for counts in json.loads(done.stdout)["groups"].values()) == 20
