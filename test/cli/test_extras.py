# SPDX-License-Identifier: Apache-2.0
"""Verbs whose libraries an extra installs, in an environment without that extra."""

import os
import shutil
import sys

import pytest

from edgefirst_ros.pipeline.conversion import convert


@pytest.fixture
def without(tmp_path):
    """Function that returns the environment of a command for which modules are not installed."""

    def make(*modules):
        folder = tmp_path / "blocked"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\n")
        return {**os.environ, "PYTHONPATH": os.fspath(folder)}

    return make


VERBS = {
    "report": ("report", ["jinja2"], ["report", "out/drive.zip", "-o", "x.html"]),
    "convert --report": ("report", ["plotly"], ["convert", "REC", "-o", "other", "--report"]),
    "capture, setting report": ("report", ["plotly"], ["capture", "--zenoh", "--set", "report=true"]),
    "view": ("view", ["rerun"], ["view", "out/drive.zip", "--save", "x.rrd"]),
    "capture --zenoh": ("zenoh", ["zenoh"], ["capture", "--zenoh"]),
    "control --zenoh": ("zenoh", ["zenoh"], ["control", "status", "--zenoh"]),
    "play --zenoh": ("zenoh", ["zenoh"], ["play", "REC", "--zenoh", "tcp/127.0.0.1:9"]),
    "fleet convert": ("fleet", ["distributed"], ["fleet", "convert", "REC", "-o", "fleet"]),
    "fleet status s3://": ("fleet", ["obstore"], ["fleet", "status", "s3://drives/may"]),
    "convert --set pcd": ("lzf", ["lzf"], ["convert", "REC", "-o", "other", "--set", "pcd=binary_compressed"]),
    "export --to ncore": ("ncore-light", ["ncore"], ["export", "out/drive.zip", "--to", "ncore", "-o", "nc"]),
}


@pytest.fixture(scope="module")
def path(recording):
    return recording(seconds=1, size=(128, 64), fps=10.0, topics={"camera"})


@pytest.fixture(scope="module")
def converted(path, tmp_path_factory):
    return convert(path, tmp_path_factory.mktemp("made"), name="drive").paths.out


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_extra_ends_with_1_and_both_ways_to_install_it(run, path, converted, without, tmp_path, verb):
    extra, modules, arguments = VERBS[verb]
    if verb == "view" and sys.version_info < (3, 11):
        pytest.skip("rerun has no wheels for Python 3.10")
    shutil.copytree(converted, tmp_path / "out")
    before = sorted(tmp_path.rglob("*"))
    done = run(*[path if one == "REC" else one for one in arguments], env=without(*modules))
    assert done.returncode == 1, done.stderr
    assert f"pip install 'edgefirst-ros[{extra}]'" in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr
    made = set(tmp_path.rglob("*")) - set(before) - set((tmp_path / "blocked").rglob("*"))
    assert made <= {tmp_path / "blocked"}  # which `without` makes, and Python compiles what is in it
