# SPDX-License-Identifier: Apache-2.0
"""Plain arguments of verbs that are nodes, beside --ros-args."""

import itertools

import pytest

from edgefirst_ros.cli import play, replay
from edgefirst_ros.cli.options import list_settings
from edgefirst_ros.errors import UsageError


@pytest.fixture
def given(monkeypatch):
    """What the node is given."""
    found = []
    for verb in (play, replay):
        monkeypatch.setattr(verb, "run_node", lambda name, arguments: found.append((name, arguments)))
    return found


@pytest.mark.parametrize(
    ("arguments", "node"),
    [
        (["REC.mcap"], ["--ros-args", "-p", 'recording:="REC.mcap"']),
        (
            ["--rate", "2.0", "REC.mcap", "--loop", "--topics", "imu,gps", "--ros-args", "-r", "__ns:=/front"],
            ["--ros-args", "-r", "__ns:=/front", "--ros-args", "-p", "rate:=2.0", "-p", "loop:=true",
             "-p", 'topics:=["imu", "gps"]', "-p", 'recording:="REC.mcap"'],
        ),
        (["--ros-args", "-p", "recording:=REC.mcap"], ["--ros-args", "-p", "recording:=REC.mcap"]),
        ([], []),
    ],
)  # fmt: skip
def test_plain_arguments_become_parameters(call, given, arguments, node):
    assert call("play", *arguments).exit_code == 0
    assert given[0][1] == node


@pytest.mark.parametrize("arguments", [["REC.mcap", "--loop"], ["--loop", "REC.mcap"]])
def test_options_of_play_stand_before_or_after_the_recording(call, given, arguments):
    call("play", *arguments)
    assert given[0][1][2::2] == ["loop:=true", 'recording:="REC.mcap"']


@pytest.mark.parametrize(
    ("arguments", "node"),
    [
        (
            ["a.mcap", "b c.mcap", "-o", "12", "--rate=5.0"],
            {"recordings": '["a.mcap", "b c.mcap"]', "out": '"12"', "rate": "5.0"},
        ),
        (
            ["a.mcap", "--out", "o", "--set", "split_block=2.0", "--join", "--set", "camera_format=png"],
            {"recordings": '["a.mcap"]', "out": '"o"', "split_block": "2.0", "join": "true", "camera_format": '"png"'},
        ),
        (
            ["--require", "radar.cube,model", "--sensors=['camera']", "--layout", "zip", "--overwrite"],
            {"require": '["radar.cube", "model"]', "sensors": "['camera']", "layout": '"zip"', "overwrite": "true"},
        ),
        (["--ros-args", "-p", "rate:=1.0", "-p", "out:=x", "--rate", "2.0"], {"rate": "2.0", "out": "x"}),
        (["--ros-args", "-p", "out:=x", "-r", "__ns:=/front"], {"out": "x"}),
        (["file:///d/a.mcap", "b.mcap"], {"recordings": '["/d/a.mcap", "b.mcap"]'}),
    ],
)
def test_options_of_replay_become_parameters(given, call, arguments, node):
    assert call("replay", *arguments).exit_code == 0
    words = given[0][1]
    pairs = [text.split(":=", 1) for before, text in itertools.pairwise(words) if before == "-p"]
    assert dict(pairs) == node
    assert words[0] == "--ros-args"
    assert ("-r" in words) == ("-r" in arguments)


def test_help_of_replay_lists_what_it_accepts(call):
    shown = call("replay", "--help").output
    optional = [field for field in list_settings("convert").values() if field.schema["option"] is not None]
    assert len(optional) > 15
    for option in ("-o, --out", "--name", "--join", "--overwrite", "--set", *(field.flag for field in optional)):
        assert option in shown


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["play", "a", "b"], "expected one recording, got 'b'; arguments of a ROS 2 node follow --ros-args"),
        (["play", "a", "-x", "1"], "expected one recording, got '-x'"),
        (["play", "a", "--jobs=3"], "expected one recording, got '--jobs=3'; for other settings use --set NAME=VALUE"),
        (["replay", "a", "--lookahead", "3"], "expected recordings, got '--lookahead'"),
        (["capture", "a"], "expected options, got 'a'"),
        (
            ["control", "status", "--zenoh", "10.0.0.1"],
            "expected one command, got '10.0.0.1'; an address is such as tcp/127.0.0.1:7447",
        ),
        (["play", "a", "--zenoh", "peer", "--rate", "0"], "--rate: expected a number at least 0.01, at most 100, got"),
        (["play", "a", "--zenoh", "peer", "--ros-args"], "--ros-args and --zenoh cannot be combined"),
        (["play", "--zenoh", "peer"], "recording is not set"),
        (["play", "a", "--zenoh", "peer", "--clock"], "--clock and --zenoh cannot be combined"),
        (["play", "s3://b/x.mcap"], "s3://b/x.mcap: play does not read from a bucket; fetch the file"),
        (["replay", "gs://b/x.mcap"], "gs://b/x.mcap: replay does not read from a bucket; fetch the file"),
    ],
)
def test_what_fits_nothing_is_refused(call, given, arguments, what):
    error = call(*arguments).exception
    assert isinstance(error, UsageError)
    assert str(error).startswith(what)
    assert not given
