# SPDX-License-Identifier: Apache-2.0
"""Crashes between any two steps of the end of a dataset, and of its recovery: the old or the new one is whole."""

import os
import shutil
import sys

import polars as pl
import pytest
from unfinished_datasets import everything, finish, leave, sample, vanish

from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.errors import DatasetError

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib of 3.10 keeps calls of its own")
STEPS = ("replace", "rename", "unlink", "rmdir", "fsync", "ftruncate", "pwritev")


class Crash(BaseException):
    """The process ends here."""


class Crashing:
    """Lets the n-th of the calls that change a disk fail, and all behind it: nothing happens after the end."""

    def __init__(self, monkeypatch, at):
        self.calls, self._at = 0, at
        for name in STEPS:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real):
        def call(*arguments, **options):
            self.calls += 1
            if self.calls >= self._at:
                raise Crash
            return real(*arguments, **options)

        return call


def samples(first):
    return [sample(frame) for frame in range(first, first + 2)]


@pytest.fixture
def wanted(tmp_path):
    """Function that gives the files of a dataset finished without a crash."""

    def make(first, layout):
        paths = finish(tmp_path / f"whole-{first}", samples(first), layout=layout)
        return {name: data for name, data in everything(paths.out).items() if data is not None}

    return make


def files(out):
    return {name: data for name, data in everything(out).items() if data is not None}


def same(found, wanted):
    """Byte for byte, but for the metadata of the frames: there it says that it was recovered."""
    assert found.keys() == wanted.keys()
    for name, data in wanted.items():
        if name.endswith(".frames.arrow"):
            assert pl.read_ipc(found[name]).equals(pl.read_ipc(data))
        else:
            assert found[name] == data, name


def crash_while(monkeypatch, at, what):
    """Run until the n-th step; returns whether it came to its end before."""
    with monkeypatch.context() as patch:
        Crashing(patch, at)
        try:
            what()
        except Crash:
            return False
    return True


@pytest.mark.parametrize("older", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_crash_at_every_step_of_the_end(tmp_path, monkeypatch, layout, older, wanted):
    out, new, old = tmp_path / "out", wanted(10, layout), wanted(0, layout)
    for at in range(1, 200):
        shutil.rmtree(out, ignore_errors=True)
        if older:
            finish(out, samples(0), layout=layout)
        writer = DatasetWriter(out, "drive", layout=layout, overwrite=True)
        for one in samples(10):
            writer.write(one)
        writer.flush()
        through = crash_while(monkeypatch, at, lambda writer=writer: writer.finish({"counts": {}}))
        vanish(writer)
        before = files(out)
        try:
            recover(out / "drive")
        except DatasetError:
            assert {name: before[name] for name in old} == old
            recover(out / "drive", overwrite=True)
        same(files(out), new)
        if through:
            break
    assert at > (12 if layout == "zip" else 10)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_crash_at_every_step_of_a_recovery(tmp_path, monkeypatch, layout, wanted):
    out, new = tmp_path / "out", wanted(10, layout)
    left = leave(tmp_path / "left", samples(10), commits={0}, layout=layout)
    for at in range(1, 200):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(left.out, out)
        if crash_while(monkeypatch, at, lambda: recover(out / "drive")):
            break
        recover(out / "drive")
        same(files(out), new)
    assert at > 10
