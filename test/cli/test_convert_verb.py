# SPDX-License-Identifier: Apache-2.0
"""`convert` refuses wrong options before it reads, can be interrupted, and keeps the dataset without its report."""

import json
import os

import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.errors import UsageError

SMALL = {"seconds": 0.5, "size": (160, 96), "codec": "jpeg", "fps": 10.0, "topics": {"camera"}}


@pytest.fixture
def path(recording):
    return recording(**SMALL)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sequence", "a=x.mcap", "--sequence", "a=y.mcap"], "--sequence: the same name is given twice"),
        (["--sequence", "a"], "--sequence: expected NAME=FILE, got 'a'"),
        (["--sequence", "=x.mcap"], "--sequence: expected NAME=FILE, got '=x.mcap'"),
        (["--upload", "there", "--layout", "directory"], "--upload: only a dataset that is one ZIP can be uploaded"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(call, path, tmp_path, options, said):
    done = call("convert", path, "-o", "out", *options)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(said)
    assert done.exception.exit_code == 2
    assert os.listdir(tmp_path) == []


def test_a_sequence_gets_the_name_that_was_given(call, path, tmp_path):
    done = call("convert", path, "-o", "out", "--name", "drive", "--sequence", f"monday={path}", "--json")
    assert (done.exit_code, json.loads(done.stdout)["samples"]) == (0, 5)
    assert Dataset(tmp_path / "out" / "drive.zip").sequences == ["monday"]


def test_an_interrupt_says_how_to_go_on(call, path, monkeypatch, tmp_path):
    from edgefirst_ros.pipeline import conversion

    monkeypatch.setattr(conversion, "convert", interrupted)
    done = call("convert", path, "-o", "out")
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == (
        "interrupted: the same command continues from here, edgefirst-ros recover completes the samples so far\n"
    )


def interrupted(*arguments, **options):
    """Stand for a conversion in which Ctrl-C is pressed."""
    raise KeyboardInterrupt


def test_a_page_that_is_there_stays_and_the_dataset_is_whole(call, path, tmp_path):
    pytest.importorskip("plotly", reason="plotly is not installed")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "drive.html").write_text("mine")
    done = call("convert", path, "-o", "out", "--name", "drive", "--report")
    assert done.exit_code == 0
    assert f"note: no report: {tmp_path}/out/drive.html: exists already; --overwrite replaces it" in done.stdout
    assert (tmp_path / "out" / "drive.html").read_text() == "mine"
    assert len(Dataset(tmp_path / "out" / "drive.zip")) == 5
