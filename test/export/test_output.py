# SPDX-License-Identifier: Apache-2.0
"""An output is there whole or not at all, and nothing of others is touched."""

import errno
import os
import resource

import pytest

from edgefirst_ros.dataset.storage import lock
from edgefirst_ros.errors import DatasetError, InUseError, StorageError, UsageError
from edgefirst_ros.export import output
from edgefirst_ros.export.output import refuse_inside, stage_folder, write_files


def test_the_output_appears_at_the_end(tmp_path):
    out = tmp_path / "a" / "out"
    with stage_folder(out) as folder:
        (folder / "x").write_text("1")
        assert not out.exists()
    assert (out / "x").read_text() == "1"
    assert os.listdir(tmp_path / "a") == ["out"]


def test_nothing_is_left_of_what_fails(tmp_path):
    def interrupted():
        with stage_folder(tmp_path / "out") as folder:
            (folder / "x").write_text("1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_an_unfinished_dataset_of_that_name_stays(tmp_path):
    """A conversion to a folder is made in NAME.partial."""
    (tmp_path / "drive.partial").mkdir()
    (tmp_path / "drive.partial" / "drive_000.camera.jpeg").write_text("1")
    with stage_folder(tmp_path / "drive") as folder:
        (folder / "x").write_text("1")
    assert (tmp_path / "drive.partial" / "drive_000.camera.jpeg").read_text() == "1"


def test_two_at_once(tmp_path):
    with (
        stage_folder(tmp_path / "out") as folder,
        pytest.raises(InUseError, match="another writer"),
        stage_folder(tmp_path / "out"),
    ):
        pass
    assert folder.name not in os.listdir(tmp_path)
    with pytest.raises(DatasetError, match="exists already"), stage_folder(tmp_path / "out"):
        pass


def test_what_a_killed_one_left_is_replaced(tmp_path):
    with stage_folder(tmp_path / "out") as folder:
        name = folder.name
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / name).mkdir()
    (tmp_path / name / "old").write_text("1")
    with stage_folder(tmp_path / "out") as folder:
        assert folder.name == name
        assert os.listdir(folder) == []


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_there_already_is_kept(tmp_path, kind):
    out = tmp_path / "out"
    out.mkdir() if kind == "folder" else out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="exists already"), stage_folder(out):
        pass
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_in_its_place_is_not_followed(tmp_path):
    with stage_folder(tmp_path / "out") as folder:
        name = folder.name
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(DatasetError), stage_folder(tmp_path / "out"):
        pass
    assert (tmp_path / "moved").is_dir()


def test_a_system_that_refuses_is_told_with_the_file(tmp_path):
    def write(number):
        with stage_folder(tmp_path / "out") as folder:
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
    with pytest.raises(StorageError, match="Input/output error"), stage_folder(tmp_path / "out") as folder:
        (folder / "x").write_text("1")
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_opened_is_taken_back(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(StorageError, match="Too many open files"), stage_folder(tmp_path / "out"):
        pass
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"file is not a folder"), stage_folder(tmp_path / "file" / "out"):
        pass


def test_an_output_inside_of_what_is_read(tmp_path):
    (tmp_path / "given").mkdir()
    (tmp_path / "link").symlink_to("given")
    refuse_inside(tmp_path / "given2", tmp_path / "given")
    refuse_inside(tmp_path / "new", tmp_path / "given.zip")
    for out in ("given/new", "link/deep/new"):
        with pytest.raises(UsageError, match="outside of it"):
            refuse_inside(tmp_path / out, tmp_path / "given")


def test_files_are_written_by_the_end(tmp_path):
    given = {"a": b"", "b": b"1", "c": bytes(range(256)) * (1 << 14), os.fsdecode(b"\xff"): b"name"}
    with write_files() as write:
        for name, data in given.items():
            write(str(tmp_path / name), data)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == given


def test_a_file_that_cannot_be_written_is_told_without_those_after_it(tmp_path):
    written = []

    def write_all():
        with write_files() as write:
            for name in ["a", "a", *"bcdefg"]:
                write(str(tmp_path / name), bytes(1 << 20))
                written.append(name)

    with pytest.raises(FileExistsError, match="File exists") as caught:
        write_all()
    assert os.fsdecode(caught.value.filename) == str(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]
    assert written != ["a", "a", *"bcdefg"]


def test_one_that_fails_at_the_end_is_told(tmp_path):
    with pytest.raises(FileNotFoundError), write_files() as write:
        write(str(tmp_path / "missing" / "a"), b"1")


def test_a_file_too_large_for_the_disk_is_told_by_its_name(tmp_path):
    def write_all():
        with stage_folder(tmp_path / "out") as folder, write_files() as write:
            write(f"{folder}/small", b"1")
            write(f"{folder}/large", bytes(5000))

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(StorageError, match=r"/large: cannot be read or written: File too large; write to a disk"):
            write_all()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_an_error_between_files_stays_and_what_was_given_is_written(tmp_path):
    def fail():
        with write_files() as write:
            write(str(tmp_path / "a"), b"1")
            raise BrokenPipeError("of another")

    with pytest.raises(BrokenPipeError, match="of another"):
        fail()
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_writer_that_dies_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(output.sys, "executable", "/bin/false")
    with pytest.raises(ChildProcessError), write_files() as write:
        write(str(tmp_path / "a"), b"1")
