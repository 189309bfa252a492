# SPDX-License-Identifier: Apache-2.0
"""Containers as programs see them: by name, from other processes, and where the disk fails while they are read."""

import errno
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from edgefirst_ros.dataset.storage import lock
from edgefirst_ros.dataset.storage.lock import open_file
from edgefirst_ros.dataset.storage.zip_read import Archive, Folder, count_members
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits

MEMBERS = {"s/s_001.lidar.pcd": b"points", "s/s_002.lidar.pcd": b"more points"}


def zipped(path: Path, *, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in MEMBERS.items():
            archive.writestr(name, data)
        archive.comment = comment
    return path


def unpacked(path: Path) -> Path:
    for name, data in MEMBERS.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_another_process_reads_the_same(tmp_path, kind):
    container = Archive(zipped(tmp_path / "d.zip")) if kind == "archive" else Folder(unpacked(tmp_path / "d"))
    again = pickle.loads(pickle.dumps(container))
    assert type(again) is type(container)
    assert {name: again.read(name) for name in again.names} == MEMBERS


@pytest.mark.parametrize("comment", [b"", b"of another tool"])
def test_members_begin_where_zipfile_says(tmp_path, comment):
    path = zipped(tmp_path / "d.zip", comment=comment)
    with zipfile.ZipFile(path) as archive:
        assert Archive(path).starts == [info.header_offset for info in archive.infolist()]


@pytest.mark.parametrize("ask", ["size", "read", "head"])
@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_a_member_that_is_not_there_is_named(tmp_path, kind, ask):
    container = Archive(zipped(tmp_path / "d")) if kind == "archive" else Folder(unpacked(tmp_path / "d"))
    with pytest.raises(DatasetError, match=r"/d: has no member 's/s_009\.lidar\.pcd'"):
        getattr(container, ask)("s/s_009.lidar.pcd", *([4] if ask == "head" else []))


def test_an_encrypted_member_is_refused(tmp_path):
    path = zipped(tmp_path / "d.zip")
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    archive = Archive(path)
    with pytest.raises(DatasetError, match=r"d\.zip: 's/s_001\.lidar\.pcd': is encrypted"):
        archive.read("s/s_001.lidar.pcd")
    assert archive.read("s/s_002.lidar.pcd") == b"more points"


def test_a_member_that_reaches_into_the_directory_is_refused(tmp_path):
    path = zipped(tmp_path / "d.zip", comment=b"x")
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    data[second + 20 : second + 28] = struct.pack("<2I", 40, 40)
    path.write_bytes(data)
    with zipfile.ZipFile(path) as found:
        start, begin = found.start_dir, found.infolist()[1].header_offset
    reaches = begin + 30 + len("s/s_002.lidar.pcd") + 40
    with pytest.raises(
        DatasetError, match=rf"'s/s_002\.lidar\.pcd' reaches to {reaches}, into the directory at {start}"
    ):
        Archive(path).refuse_overlaps()


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    def refused(_):
        raise OSError(errno.EIO, "Input/output error")

    unpacked(tmp_path / "d")
    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DatasetError, match=r"/d: cannot be listed: .*Input/output error"):
        Folder(tmp_path / "d")


def test_a_file_that_the_disk_does_not_give_is_an_error(tmp_path, monkeypatch):
    class Broken(io.FileIO):
        def read(self, *_):
            raise OSError(errno.EIO, "Input/output error")

    folder = Folder(unpacked(tmp_path / "d"))
    monkeypatch.setattr(os, "fdopen", Broken)
    with pytest.raises(DatasetError, match=r"'s/s_001\.lidar\.pcd': .*Input/output error"):
        folder.read("s/s_001.lidar.pcd")


def test_a_member_that_the_disk_does_not_give_is_one_that_is_damaged(tmp_path, monkeypatch):
    archive = Archive(zipped(tmp_path / "d.zip"))
    bad, real = archive.entries[0].header_offset, os.pread

    def refuse(fd, size, offset):
        if offset == bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", refuse)
    ((entry, why),) = archive.find_damaged()
    assert entry.filename == "s/s_001.lidar.pcd"
    assert why.startswith(f"{tmp_path}/d.zip: 's/s_001.lidar.pcd': ")
    assert why.endswith(f"30 bytes at {bad} cannot be read: Input/output error")


# ---- opening -------------------------------------------------------------------------------------
def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "d").write_bytes(b"")
    with pytest.raises(DatasetError, match="/d: is not a folder; remove it"):
        open_file(tmp_path / "d", folder=True)


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(DatasetError, match=r"cannot be opened: .*embedded null"):
        open_file(Path("a\0b"))


def test_what_becomes_a_pipe_while_it_is_opened_is_refused_and_closed(tmp_path, monkeypatch):
    path, opened, plain = tmp_path / "d.zip", [], os.open
    path.write_bytes(b"")

    def replaced(*arguments, **options):
        path.unlink()
        os.mkfifo(path)
        opened.append(plain(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr(lock.os, "open", replaced)
    with pytest.raises(DatasetError, match=r"d\.zip: is not a regular file"):
        open_file(path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(*opened)


# ---- sizes ---------------------------------------------------------------------------------------
def test_sizes_of_zip64_are_found_behind_other_fields_too(tmp_path):
    """Time stamps stand before the size where another program has written the directory."""
    name, data = b"s/s_001.lidar.pcd", b"points"
    extra = struct.pack("<2H", 0x5455, 5) + b"\1\0\0\0\0" + struct.pack("<2HQ", 1, 8, len(data))
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 33, 0, len(data), len(data), len(name), 0) + name + data
    numbers = 45, 45, 0, 0, 0, 33, 0, len(data), 0xFFFFFFFF, len(name), len(extra), 0, 0, 0, 0, 0
    directory = struct.pack("<4s6H3I5H2I", b"PK\1\2", *numbers) + name + extra
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(directory), len(local), 0)
    (tmp_path / "d.zip").write_bytes(local + directory + end)
    with zipfile.ZipFile(tmp_path / "d.zip") as archive:
        assert [info.file_size for info in archive.infolist()] == [6]
    assert count_members(tmp_path / "d.zip", lambda _: True) == (1, 6)


def test_a_stored_member_of_an_impossible_size_is_refused_only_when_it_is_read(tmp_path):
    """It says that its 4000 bytes are 4 million, which only packed ones could be: it counts for nothing."""
    path, name = tmp_path / "d.zip", "s/s_003.lidar.pcd"
    with zipfile.ZipFile(path, "w") as archive:
        for known, data in {**MEMBERS, name: bytes(4000)}.items():
            archive.writestr(known, data)
        archive.comment = b"of another tool"
    data = bytearray(path.read_bytes())
    place = data.rindex(b"PK\1\2") + 24
    data[place : place + 4] = struct.pack("<I", 4_000_000)
    path.write_bytes(data)
    archive = Archive(path, Limits(unpacked_bytes=1 << 20))
    assert archive.read("s/s_002.lidar.pcd") == b"more points"
    with pytest.raises(DatasetError, match="stored in 4000 bytes, must be 4000000"):
        archive.read(name)
