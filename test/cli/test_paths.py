# SPDX-License-Identifier: Apache-2.0
"""Paths that are no UTF-8: a verb works there, or refuses and leaves everything as it is."""

import os
import shutil

import handmade_dataset as made
import pytest

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
