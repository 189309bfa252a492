# SPDX-License-Identifier: Apache-2.0
"""Plain arguments of verbs that are nodes, beside --ros-args."""

import pytest

from edgefirst_ros.cli import play, replay, ros
from edgefirst_ros.errors import UsageError


@pytest.fixture
def given(monkeypatch):
    """What the node is given."""
    found = []
    for verb in (play, replay):
        monkeypatch.setattr(verb, "run_node", lambda name, arguments: found.append((name, arguments)))
    return found


@pytest.mark.parametrize(
    ("verb", "arguments", "node"),
    [
        (play.play, ["REC.mcap"], ["--ros-args", "-p", 'recording:="REC.mcap"']),
        (
            play.play,
            ["--rate", "2.0", "REC.mcap", "--loop", "--ros-args", "-r", "__ns:=/front"],
            ["--ros-args", "-p", 'recording:="REC.mcap"', "-p", "rate:=2.0", "-p", "loop:=true", "-r", "__ns:=/front"],
        ),
        (play.play, ["--ros-args", "-p", "recording:=REC.mcap"], ["--ros-args", "-p", "recording:=REC.mcap"]),
        (play.play, [], []),
        (
            replay.replay,
            ["a.mcap", "b c.mcap", "-o", "12", "--rate=5.0"],
            ["--ros-args", "-p", 'recordings:=["a.mcap", "b c.mcap"]', "-p", 'out:="12"', "-p", "rate:=5.0"],
        ),
        (
            replay.replay,
            ["a.mcap", "--out", "o", "--split-block", "2.0"],
            ["--ros-args", "-p", 'recordings:=["a.mcap"]', "-p", 'out:="o"', "-p", "split_block:=2.0"],
        ),
        (
            replay.replay,
            ["--require", "radar.cube,model", "--sensors=['camera']"],
            ["--ros-args", "-p", 'require:=["radar.cube", "model"]', "-p", "sensors:=['camera']"],
        ),
    ],
)
def test_plain_arguments_become_parameters(given, verb, arguments, node):
    verb(arguments)
    assert given[0][1] == node


@pytest.mark.parametrize(
    ("arguments", "what"),
    [(["a", "b"], "expected one recording, got a, b"), (["-x", "1"], "unknown option -x")],
)
def test_what_fits_nothing_is_refused(given, arguments, what):
    with pytest.raises(UsageError, match=what):
        play.play(arguments)
    assert not given
    assert ros.as_ros_arguments(["--ros-args", "x"], {}, dict) == ["--ros-args", "x"]
    with pytest.raises(UsageError, match="got a --start 1; with --zenoh there are --rate and --loop alone"):
        play.play(["a", "--start", "1"], endpoint="tcp/127.0.0.1:1")
