# SPDX-License-Identifier: Apache-2.0
"""Locks where two writers come to one place at the same moment: the race is made by calls of the system."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from open_files import list_open_files

from edgefirst_ros.dataset.publish import refuse_irreplaceable
from edgefirst_ros.dataset.storage import lock
from edgefirst_ros.dataset.storage.lock import claim, refuse_planted, reopen_path, write_at
from edgefirst_ros.errors import DatasetError, InUseError


def once(monkeypatch, module, name, before):
    """Have `before` happen ahead of the first call of a function of the system."""
    plain, waiting = getattr(module, name), [before]

    def call(*arguments, **options):
        if waiting:
            waiting.pop()()
        return plain(*arguments, **options)

    monkeypatch.setattr(module, name, call)


def test_a_file_that_another_writer_removes_before_it_is_looked_at_is_made(tmp_path, monkeypatch):
    path = tmp_path / "d.partial"
    path.write_bytes(b"left")
    once(monkeypatch, os, "lstat", path.unlink)
    fd = claim(path)
    assert os.path.samestat(os.fstat(fd), path.stat())
    assert path.read_bytes() == b""
    os.close(fd)


def test_a_file_that_another_writer_removes_before_it_is_locked_is_made(tmp_path, monkeypatch):
    path = tmp_path / "d.partial"
    path.write_bytes(b"left")
    once(monkeypatch, fcntl, "flock", path.unlink)
    fd = claim(path)
    assert os.path.samestat(os.fstat(fd), path.stat())
    os.close(fd)


def test_a_file_that_another_writer_replaces_before_it_is_locked_is_in_use(tmp_path, monkeypatch):
    path = tmp_path / "d.partial"
    path.write_bytes(b"left")

    def replace():
        (tmp_path / "new").write_bytes(b"of another")
        (tmp_path / "new").rename(path)

    once(monkeypatch, fcntl, "flock", replace)
    before = list_open_files(tmp_path)
    with pytest.raises(InUseError, match=r"d\.partial: another writer is at work"):
        reopen_path(path)
    assert list_open_files(tmp_path) == before
    assert path.read_bytes() == b"of another"


def of_another(path: Path) -> os.stat_result:
    values = list(path.lstat())
    values[4] += 1
    return os.stat_result(values)


def test_a_file_of_another_user_in_a_folder_of_all_is_not_continued(tmp_path):
    path = tmp_path / "d.partial"
    path.write_bytes(b"planted")
    refuse_planted(path, of_another(path))  # the folder is ours
    tmp_path.chmod(0o777)
    with pytest.raises(DatasetError, match=rf"d\.partial: belongs to another user \(uid {os.getuid() + 1}\)"):
        refuse_planted(path, of_another(path))
    refuse_planted(path, path.lstat())


def test_what_another_user_has_in_a_sticky_folder_is_not_to_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "d.zip"
    path.write_bytes(b"")
    tmp_path.chmod(0o1777)
    refuse_irreplaceable(path)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4321)
    with pytest.raises(DatasetError, match=rf"d\.zip: belongs to another user \(uid {os.getuid()}\)"):
        refuse_irreplaceable(path)


def test_a_folder_that_cannot_be_emptied_is_not_to_be_replaced(tmp_path, monkeypatch):
    (tmp_path / "d/d/s").mkdir(parents=True)
    refuse_irreplaceable(tmp_path / "d")
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "s")
    with pytest.raises(DatasetError, match="/d/d/s: you may not remove its files"):
        refuse_irreplaceable(tmp_path / "d")


def test_a_disk_that_takes_nothing_and_says_nothing_is_an_error(tmp_path, monkeypatch):
    """What was written of it before is cut off again."""
    path, plain = tmp_path / "d.zip", os.pwritev
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "pwritev", lambda fd, views, at: plain(fd, [views[0][:2]], at) if at == 6 else 0)
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(OSError, match="the disk wrote 0 bytes") as refused:
        write_at(fd, [memoryview(b"behind it")], 6)
    os.close(fd)
    assert refused.value.errno == errno.EIO
    assert path.read_bytes() == b"before"


def test_a_system_that_cannot_sync_one_disk_syncs_all(monkeypatch):
    calls = []
    monkeypatch.setattr(lock.ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(os, "sync", lambda: calls.append("sync"))
    lock.sync_disk(0)
    assert calls == ["sync"]
