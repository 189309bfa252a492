# SPDX-License-Identifier: Apache-2.0
"""Paths that are no UTF-8: a verb works there, or refuses and leaves everything as it is."""

import os
import shutil

import handmade_dataset as made
import pytest

import edgefirst_ros
from edgefirst_ros.errors import UsageError

ODD = os.fsdecode(b"o\xffdd")
VERBS = {
    "export": ("data.zip", "--to", "roverd", "-o", "{odd}/new"),
    "import": ("data.zip", "--from", "roverd", "-o", "{odd}/new"),
    "merge": ("data.zip", "-o", "{odd}/new"),
    "migrate": ("data.arrow", "-o", "{odd}/new.parquet"),
    "convert": ("data.zip", "-o", "{odd}/new"),
    "demo": ("-o", "{odd}/new"),
    "split": ("{odd}/data.zip", "--split", "train=1"),
    "validate": ("{odd}/data.zip", "--fix"),
    "recover": ("{odd}/data.zip",),
    "info": ("{odd}/data.zip",),
}
WORK = {"split": 0, "validate": 0, "recover": 0, "info": 0}
"""Exit codes of those that write nothing new; the others are wrong usage."""


def state(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_that_is_no_utf8(run, tmp_path, verb):
    made.write(tmp_path, made.good())
    folder = tmp_path / ODD
    folder.mkdir()
    for path in tmp_path.glob("data.*"):
        shutil.copy(path, folder / path.name)
    before = state(tmp_path)
    done = run(verb, *(argument.format(odd=folder) for argument in VERBS[verb]))
    assert done.returncode == WORK.get(verb, 2), done.stderr
    if verb != "split":
        assert state(tmp_path) == before
    if verb not in WORK:
        assert "not a valid path in UTF-8" in done.stderr
        assert not (folder / "new").exists()


FOLDERS = {
    "export": ("data.zip", "--to", "roverd"),
    "import": ("data.zip", "--from", "roverd"),
    "merge": ("data.zip",),
    "convert": ("drive.mcap",),
    "demo": (),
    "capture": ("--zenoh",),
}


@pytest.mark.parametrize("name", ["set.zip", "set.arrow", "set.json", "set.db3"])
@pytest.mark.parametrize("verb", FOLDERS)
def test_a_folder_is_not_made_under_the_name_of_a_file(run, recording, tmp_path, verb, name):
    made.write(tmp_path, made.good())
    shutil.copy(recording(seconds=0.2), tmp_path / "drive.mcap")
    before = state(tmp_path)
    out = tmp_path / "new" / name
    done = run(verb, *FOLDERS[verb], "-o", str(out))
    assert done.returncode == 2
    assert f"{out} has the name of a file; expected a folder, such as {out.with_suffix('')}\n" in done.stderr
    assert state(tmp_path) == before
    out.mkdir(parents=True)
    if verb in ("merge", "convert"):
        assert run(verb, *FOLDERS[verb], "-o", str(out)).returncode == 0, "a folder of that name is one"


EMPTY = [
    *((verb, *(["-o", "new"] if verb in ("convert", "merge", "export", "import", "migrate", "demo") else []), "")
      for verb in ("convert", "info", "validate", "report", "view", "merge", "recover", "migrate", "export", "import",
                   "label", "split", "rig", "play")),
    ("fleet", "convert", "", "-o", "new"),
    ("fleet", "report", "", "-o", "new"),
    ("info", "data.zip", ""),
    ("convert", "data.zip", "-o", ""),
    ("convert", "data.zip", "--out="),
    ("merge", "data.zip", "--name", "", "-o", "new"),
]  # fmt: skip


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_an_empty_argument_is_not_this_folder(run, recording, tmp_path, arguments):
    """Such as a variable of the shell that is not set: everything below this folder would be converted."""
    made.write(tmp_path, made.good())
    shutil.copy(recording(seconds=0.2), tmp_path / "drive.mcap")
    before = state(tmp_path)
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a value, got ''; a variable of the shell may not be set" in done.stderr
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    "call",
    [
        lambda: edgefirst_ros.convert("", "new"),
        lambda: edgefirst_ros.convert("drive.mcap", ""),
        lambda: edgefirst_ros.merge(["data.zip", ""], "new"),
        lambda: edgefirst_ros.merge(["data.zip"], ""),
        lambda: edgefirst_ros.export("", "coco", "new"),
        lambda: edgefirst_ros.export("data.zip", "coco", ""),
        lambda: edgefirst_ros.restore("", "roverd", "new"),
        lambda: edgefirst_ros.migrate("data.arrow", ""),
        lambda: edgefirst_ros.label("", "coco", "labels.json"),
        lambda: edgefirst_ros.label("data.zip", "coco", ""),
        lambda: edgefirst_ros.split("", {"train": 1.0}),
        lambda: edgefirst_ros.Dataset(""),
        lambda: edgefirst_ros.Dataset(["data.zip", ""]),
    ],
)
def test_an_empty_name_in_python_is_not_this_folder(recording, tmp_path, monkeypatch, call):
    made.write(tmp_path, made.good())
    shutil.copy(recording(seconds=0.2), tmp_path / "drive.mcap")
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)
    with pytest.raises(UsageError, match="a path, got ''"):
        call()
    assert state(tmp_path) == before
