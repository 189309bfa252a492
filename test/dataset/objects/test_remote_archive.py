# SPDX-License-Identifier: Apache-2.0
"""A ZIP that is read by requests, here of a folder: what `zipfile` reads, and an error where bytes are missing."""

import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from edgefirst_ros.dataset import remote_archive
from edgefirst_ros.dataset.objects.location import Location
from edgefirst_ros.dataset.objects.store import FolderStore
from edgefirst_ros.dataset.remote_archive import RemoteArchive
from edgefirst_ros.dataset.storage import zip_read
from edgefirst_ros.dataset.storage.zip_read import Archive
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import DEFAULT_LIMITS

MEMBERS = {f"s/s_{number:03}.lidar.pcd": bytes([number]) * (10 * number) for number in range(30)}


def zipped(path: Path, extra: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in MEMBERS.items():
            info = zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6))
            info.extra = extra
            archive.writestr(info, data)
    return path


def opened(path: Path) -> RemoteArchive:
    return RemoteArchive(path, Location.of(path), DEFAULT_LIMITS)


def test_another_process_reads_the_same(tmp_path):
    again = pickle.loads(pickle.dumps(opened(zipped(tmp_path / "d.zip"))))
    assert {name: again.read(name) for name in again.names} == MEMBERS


def test_a_directory_longer_than_the_first_request_is_read_on(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_archive, "TAIL", 100)
    archive = opened(zipped(tmp_path / "d.zip"))
    assert {name: archive.read(name) for name in archive.names} == MEMBERS


def test_members_behind_long_extra_fields_take_a_second_request(tmp_path):
    archive = opened(zipped(tmp_path / "d.zip", struct.pack("<2H", 0xCAFE, 996) + bytes(996)))
    assert {name: archive.read(name) for name in archive.names} == MEMBERS


def test_a_member_without_its_header_is_named(tmp_path):
    path = zipped(tmp_path / "d.zip")
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("s/s_002.lidar.pcd").header_offset
    data = bytearray(path.read_bytes())
    data[start] = 0
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=rf"'s/s_002\.lidar\.pcd': no local header at {start}"):
        opened(path).read("s/s_002.lidar.pcd")


def test_nothing_is_asked_for_beyond_the_end(tmp_path):
    path = zipped(tmp_path / "d.zip")
    archive, size = opened(path), path.stat().st_size
    assert archive.pread(4, 0) == b"PK\3\4"
    assert archive.pread(0, size) == b""
    for length, offset in ((1, size), (5, size - 4), (4, -1)):
        with pytest.raises(DatasetError, match=f"{length} bytes at {offset} reach past its end at {size}"):
            archive.pread(length, offset)


def test_an_answer_that_is_short_is_an_error(tmp_path, monkeypatch):
    archive = opened(zipped(tmp_path / "d.zip"))
    monkeypatch.setattr(FolderStore, "read", lambda *_, **__: b"PK")
    with pytest.raises(DatasetError, match=r"d\.zip: got 2 of 4 bytes"):
        archive.pread(4, 0)


def false_end(size, *, disk=0, comment=b"", zip64=False):
    """An end record that names all `size` bytes before it as the directory."""
    small = min(size, 0xFFFFFFFF if zip64 else size)
    end = struct.pack("<4s4H2LH", b"PK\5\6", disk, 0, 9, 9, 0xFFFFFFFF if zip64 else small, 0, len(comment)) + comment
    if not zip64:
        return end
    return (
        struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 9, 9, size, 0)
        + struct.pack("<4sLQL", b"PK\6\7", 0, size, 1)
        + end
    )


ENDS = {
    "plain": {},
    "a comment": {"comment": b"here"},
    "a disk": {"disk": 1},
    "zip64": {"zip64": True},
    "zip64 and a comment": {"zip64": True, "comment": b"here"},
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("where", ["bucket", "disk"])
def test_a_false_end_record_does_not_make_it_read_the_whole_file(tmp_path, monkeypatch, where, end):
    """It names all that is before it, 1 GB, as its directory; a block of 8 MB shows that it is not one."""
    path = tmp_path / "d.zip"
    size = 1 << 30
    with path.open("wb") as file:
        file.seek(size)
        file.write(false_end(size, **ENDS[end]))
    asked = []
    monkeypatch.setattr(FolderStore, "read", read_noted(FolderStore.read, asked))
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=r"d\.zip: not a readable ZIP archive: its end record names a directory"):
            opened(path) if where == "bucket" else Archive(path)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    assert sum(asked) <= remote_archive.LARGEST_TAIL + remote_archive.TAIL


def read_noted(read, asked):
    """A `read` of a store that notes how many bytes were asked for."""

    def noted(self, *asked_for, **options):
        asked.append(len(found := read(self, *asked_for, **options)))
        return found

    return noted


def test_a_directory_of_several_blocks_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_archive, "TAIL", 100)
    monkeypatch.setattr(zip_read, "BLOCK", 500)
    archive = opened(zipped(tmp_path / "d.zip"))
    assert {name: archive.read(name) for name in archive.names} == MEMBERS


@pytest.mark.parametrize(("between", "requests"), [(200_000, 5), (600_000, 8)])
def test_members_of_a_sample_come_by_one_request_unless_much_is_between_them(tmp_path, monkeypatch, between, requests):
    """Of four samples: the first shows which members are read, of the others both come together; 256 KiB are much."""
    path, read = tmp_path / "d.zip", {}
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4):
            for kind, size in ((".camera.jpeg", 1000), (".lidar.pcd", between), (".radar.pcd", 1000)):
                archive.writestr(f"s/s_{number:03}{kind}", bytes([number]) * size)
                read |= {f"s/s_{number:03}{kind}": bytes([number]) * size} if size == 1000 else {}
    asked, archive = [], opened(path)
    monkeypatch.setattr(FolderStore, "read", read_noted(FolderStore.read, asked))
    assert {name: archive.read(name) for name in read} == read
    assert len(asked) == requests
    assert (sum(asked) < between) is (requests == 8)
