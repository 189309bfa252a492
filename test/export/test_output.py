# SPDX-License-Identifier: Apache-2.0
"""An output is there whole or not at all, and nothing of others is touched."""

import errno
import os

import pytest

from edgefirst_ros.dataset.storage import lock
from edgefirst_ros.errors import DatasetError, InUseError, StorageError, UsageError
from edgefirst_ros.export import output
from edgefirst_ros.export.output import refuse_inside, staged


def test_the_output_appears_at_the_end(tmp_path):
    out = tmp_path / "a" / "out"
    with staged(out) as folder:
        (folder / "x").write_text("1")
        assert not out.exists()
    assert (out / "x").read_text() == "1"
    assert os.listdir(tmp_path / "a") == ["out"]


def test_nothing_is_left_of_what_fails(tmp_path):
    def interrupted():
        with staged(tmp_path / "out") as folder:
            (folder / "x").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_an_unfinished_dataset_of_that_name_stays(tmp_path):
    """A conversion to a folder is made in NAME.partial."""
    (tmp_path / "drive.partial").mkdir()
    (tmp_path / "drive.partial" / "drive_000.camera.jpeg").write_text("1")
    with staged(tmp_path / "drive") as folder:
        (folder / "x").write_text("1")
    assert (tmp_path / "drive.partial" / "drive_000.camera.jpeg").read_text() == "1"


def test_two_at_once(tmp_path):
    with (
        staged(tmp_path / "out") as folder,
        pytest.raises(InUseError, match="another writer"),
        staged(tmp_path / "out"),
    ):
        pass
    assert folder.name not in os.listdir(tmp_path)
    with pytest.raises(DatasetError, match="exists already"), staged(tmp_path / "out"):
        pass


def test_what_a_killed_one_left_is_replaced(tmp_path):
    with staged(tmp_path / "out") as folder:
        name = folder.name
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / name).mkdir()
    (tmp_path / name / "old").write_text("1")
    with staged(tmp_path / "out") as folder:
        assert folder.name == name
        assert os.listdir(folder) == []


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_there_already_is_kept(tmp_path, kind):
    out = tmp_path / "out"
    out.mkdir() if kind == "folder" else out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="exists already"), staged(out):
        pass
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_in_its_place_is_not_followed(tmp_path):
    with staged(tmp_path / "out") as folder:
        name = folder.name
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(DatasetError), staged(tmp_path / "out"):
        pass
    assert (tmp_path / "moved").is_dir()


def test_a_system_that_refuses_is_told_with_the_file(tmp_path):
    def write(number):
        with staged(tmp_path / "out") as folder:
            if number is None:
                (folder / "missing" / "x").write_bytes(b"1")
            raise OSError(number, os.strerror(number))

    with pytest.raises(StorageError, match=r"missing/x: cannot be read or written: No such file"):
        write(None)
    with pytest.raises(StorageError, match=r"out: cannot be read or written: No space left on device; free"):
        write(errno.ENOSPC)
    assert os.listdir(tmp_path) == []


def test_an_output_whose_name_the_disk_does_not_keep_is_taken_back(tmp_path, monkeypatch):
    def refuse(path):
        if path == tmp_path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(output, "sync_folder", refuse)
    with pytest.raises(StorageError, match="Input/output error"), staged(tmp_path / "out") as folder:
        (folder / "x").write_text("1")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_opened_is_taken_back(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(StorageError, match="Too many open files"), staged(tmp_path / "out"):
        pass
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"file is not a folder"), staged(tmp_path / "file" / "out"):
        pass


def test_an_output_inside_of_what_is_read(tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "link").symlink_to("given")
    refuse_inside(tmp_path / "given2", tmp_path / "given")
    refuse_inside(tmp_path / "new", tmp_path / "given.zip")
    for out in ("given/new", "link/deep/new"):
        with pytest.raises(UsageError, match="outside of it"):
            refuse_inside(tmp_path / out, tmp_path / "given")
