# SPDX-License-Identifier: Apache-2.0
"""Calls of the system that fail while an unfinished dataset is completed: an error of the disk, and nothing is lost."""

import errno
import io
import os
import shutil

import pytest
from unfinished_datasets import copy, everything, finish, leave, members, rewound, sample

from edgefirst_ros.dataset.recovery.recover import recover, recover_all
from edgefirst_ros.errors import EdgeFirstError, StorageError

ON_DESCRIPTORS = ("pread", "pwritev", "fstat", "ftruncate", "fsync")
ON_PATHS = ("stat", "lstat", "open", "scandir", "listdir", "unlink", "mkdir", "rename", "replace", "rmdir")


def refuse():
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class Disk:
    """The calls for what is below a folder, of which the one numbered `at`, from 1, fails."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch

    def begin(self, root, at):
        self.root, self.at, self.calls = os.fspath(root), at, 0
        for owner, name in [(os, name) for name in (*ON_DESCRIPTORS, *ON_PATHS)] + [(io, "open")]:
            self._monkeypatch.setattr(owner, name, self._failing(getattr(owner, name)))

    def end(self):
        """Fail no more; returns whether a call failed."""
        self._monkeypatch.undo()
        return self.calls >= self.at

    def _failing(self, real):
        def call(place, *arguments, **options):
            named = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)
            self.calls += named.startswith(self.root)
            if self.calls == self.at and named.startswith(self.root):
                refuse()
            return real(place, *arguments, **options)

        return call


@pytest.fixture
def disk(monkeypatch):
    with pytest.MonkeyPatch.context() as quick:
        for place in ("os.fsync", "edgefirst_ros.dataset.storage.folder.sync_disk"):  # nothing here is about waiting
            quick.setattr(place, lambda *_: None)
        yield Disk(monkeypatch)


@pytest.fixture(params=["zip", "directory"])
def left(request, tmp_path):
    """Two samples, one of them committed."""
    return leave(tmp_path / "left", map(sample, range(2)), commits={0}, layout=request.param)


def every_call(left, out, disk, action):
    """Let each call of an action on a copy fail, each time another one; yields what it gave, or its error."""
    before, paths = everything(left.out), copy(left, out)
    failed, at = True, 0
    while failed:
        at += 1
        if everything(out) != before:
            paths = copy(left, out)
        disk.begin(paths.out, at)
        try:
            result = action(paths)
        except EdgeFirstError as error:
            result = error
        finally:
            failed = disk.end()
        yield paths, result
    assert at > 30


def test_recover(left, tmp_path, disk):
    """It ends with an error that a user is told; the next run completes all, unless a loss was told."""
    refused, completed = 0, []
    for paths, result in every_call(left, tmp_path / "out", disk, lambda paths: recover(paths.container)):
        refused += isinstance(result, StorageError)
        there = everything(paths.out)
        if there not in completed and (isinstance(result, EdgeFirstError) or not result.lost_stretches):
            completed.append(there)
            recover(paths.container)
            assert len(members(paths)) == 6
    assert refused > 20


def test_a_dry_run(left, tmp_path, disk):
    before, refused = everything(left.out), 0
    for paths, result in every_call(left, tmp_path / "out", disk, lambda paths: recover(paths.container, dry_run=True)):
        refused += isinstance(result, StorageError)
        assert everything(paths.out) == before
    assert refused > 20


def test_continue(left, tmp_path, disk):
    """What a conversion does with an unfinished dataset before it goes on."""
    results = [result for _, result in every_call(left, tmp_path / "out", disk, rewound)]
    assert {result for result in results if not isinstance(result, EdgeFirstError)} <= {0, 1}
    assert sum(isinstance(result, StorageError) for result in results) > 10


def test_a_finished_folder_that_cannot_be_listed(tmp_path, monkeypatch):
    finished = finish(tmp_path / "out", map(sample, range(2)), layout="directory")
    shutil.copytree(leave(tmp_path / "left", [sample(0)], layout="directory").folder_partial, finished.folder_partial)
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: refuse() if path == finished.folder else listed(path))
    with pytest.raises(StorageError, match=str(finished.folder)):
        recover(finished.folder_partial, overwrite=True)


def test_a_folder_that_cannot_be_searched(tmp_path, monkeypatch):
    """A capture says so and goes on."""
    monkeypatch.setattr(os, "listdir", lambda _: refuse())
    said = []
    recover_all(tmp_path, said.append)
    assert len(said) == 1
    assert str(tmp_path) in said[0]
