# SPDX-License-Identifier: Apache-2.0
"""Output into a pipe whose reader is gone, as by `| head`: the exit code stays, and nothing is said of it."""

import os
import subprocess

import pytest

from edgefirst_ros.pipeline.conversion import convert

SMALL = {"seconds": 1, "size": (160, 96), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}


def run_into_closed_pipe(command, *arguments, cwd, errors_too=False):
    """Exit code, and what was written to standard error."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            stdout=write,
            stderr=write if errors_too else subprocess.PIPE,
            cwd=cwd,
            check=False,
        )
    finally:
        os.close(write)
    return done.returncode, (done.stderr or b"").decode()


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("convert", "--help"), ("info", "-h"), ("fleet", "convert", "-h")],
    ids=" ".join,
)
def test_help_ends_with_0(command, tmp_path, arguments):
    assert run_into_closed_pipe(command, *arguments, cwd=tmp_path) == (0, "")
    assert run_into_closed_pipe(command, *arguments, cwd=tmp_path, errors_too=True)[0] == 0


def test_help_of_a_fresh_interpreter_ends_with_0(cold_command, tmp_path):
    assert run_into_closed_pipe(cold_command, "--help", cwd=tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("info", "out/drive.zip"), 0),
        (("info", "out/drive.zip", "--json"), 0),
        (("validate", "out/drive.zip"), 0),
        (("validate", "nowhere.zip"), 1),
        (("export", "out/drive.zip", "--to", "coco", "-o", "coco"), 0),
        (("convert", "nowhere.mcap", "-o", "x"), 1),
        (("convert", "--rate"), 2),
        (("split", "out/drive.zip"), 2),
        (("demo", "-o", "d", "--seconds", "1"), 0),
    ],
    ids=lambda value: value if isinstance(value, int) else " ".join(value),
)
def test_verbs_keep_their_exit_code(command, recording, tmp_path, arguments, code):
    convert(recording(**SMALL), tmp_path / "out", name="drive")
    assert run_into_closed_pipe(command, *arguments, cwd=tmp_path, errors_too=True)[0] == code
    if arguments[0] == "demo":
        assert len(list((tmp_path / "d").glob("*.zip"))) == 1
