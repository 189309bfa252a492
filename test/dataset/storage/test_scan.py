# SPDX-License-Identifier: Apache-2.0
"""Members by their local headers: of archives of this program and of others, cut at every byte."""

import io
import os
import zipfile
import zlib

import pytest
from handmade_dataset import cloud, cube_png, good, write
from unfinished_datasets import SEQUENCE, cut, finish, picture, readers_accept, sample, spans, table

from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.storage.zip_write import Lost, scan
from edgefirst_ros.errors import DatasetError


def scanned(path, trusted=0):
    """What `scan` yields, in order."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(scan(fd, trusted))
    finally:
        os.close(fd)


def names(found):
    return [one.text for one in found if not isinstance(one, Lost)]


def holes(found):
    return [(one.start, one.end, one.name) for one in found if isinstance(one, Lost)]


def foreign(members, deflated):
    """Bytes of an archive written by zipfile."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            kind = zipfile.ZIP_DEFLATED if name in deflated else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), data, kind)
    return file.getvalue()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return finish(tmp_path_factory.mktemp("own"), map(sample, range(3))).container


@pytest.mark.parametrize("trusted", [0, 1 << 60])
def test_own_archive_cut_at_every_byte(own, tmp_path, trusted):
    known = spans(own)
    path = tmp_path / "cut.zip"
    path.write_bytes(own.read_bytes())
    for size in range(known[-1][2], -1, -1):
        cut(path, size)
        found = scanned(path, trusted)
        assert names(found) == [name for name, _, end in known if end <= size]
        begun = [(start, size, name) for name, start, end in known if start < size < end]
        assert [hole[:2] for hole in holes(found)] == [hole[:2] for hole in begun]


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (b"PK\3", "cut: its end is missing"),
        (b"PK\3\4" + bytes(20), "cut: its end is missing"),
        (b"xyz", "no header of a member"),
        (b"x" * 40, "no header of a member"),
    ],
)
def test_a_short_end_is_a_header_that_is_cut_or_none(own, tmp_path, end, why):
    path = tmp_path / "end.zip"
    path.write_bytes(own.read_bytes()[: spans(own)[-1][2]] + end)
    assert [one.why for one in scanned(path) if isinstance(one, Lost)] == [why]


@pytest.mark.parametrize("where", ["header", "data"])
def test_members_behind_a_hole(own, tmp_path, where):
    known = spans(own)
    for name, start, end in known[:-1]:
        data = bytearray(own.read_bytes())
        place = slice(start, start + 30) if where == "header" else slice(end - 100, end - 50)
        data[place] = bytes(place.stop - place.start)
        path = tmp_path / "hole.zip"
        path.write_bytes(data)
        found = scanned(path)
        assert names(found) == [other for other, _, _ in known if other != name]
        assert [hole[:2] for hole in holes(found)] == [(start, end)]


def test_the_last_member_damaged_before_the_directory(own, tmp_path):
    known = spans(own)
    data = bytearray(own.read_bytes())
    data[known[-1][1] : known[-1][1] + 30] = bytes(30)
    (tmp_path / "hole.zip").write_bytes(data)
    found = scanned(tmp_path / "hole.zip")
    assert names(found) == [name for name, _, _ in known[:-1]]
    assert [hole[:2] for hole in holes(found)] == [known[-1][1:]]


# ---- foreign datasets ------------------------------------------------------------------------
def test_a_foreign_dataset_that_lost_its_end(tmp_path):
    """Other padding of frame numbers, packed clouds, no journals."""
    members = {}
    for frame in range(12):
        members[f"{SEQUENCE}/{SEQUENCE}_{frame:06d}.camera.jpeg"] = picture(frame)
        members[f"{SEQUENCE}/{SEQUENCE}_{frame:06d}.radar.png"] = cube_png(frame)
        members[f"{SEQUENCE}/{SEQUENCE}_{frame:06d}.lidar.pcd"] = cloud(frame, 50)
    path = tmp_path / "drive.zip"
    path.write_bytes(foreign(members, {name for name in members if name.endswith("pcd")}))
    known = spans(path)
    size = known[20][2] + 5
    cut(path, size)
    before = path.read_bytes()
    assert recover(tmp_path / "drive", dry_run=True).members == 21
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["drive.zip"]
    report = recover(tmp_path / "drive")
    assert (report.samples, report.members, report.rows_rebuilt) == (7, 21, 7)
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == dict(list(members.items())[:21])
    assert sorted(os.listdir(tmp_path)) == ["drive.arrow", "drive.frames.arrow", "drive.zip"]
    assert table(tmp_path / "drive.frames.arrow")["frame"].to_list() == list(range(7))
    assert set(readers_accept(path).values()) == {0}
    assert recover(tmp_path / "drive").complete


def test_tables_of_another_tool_are_kept(tmp_path):
    path = write(tmp_path, good())
    tables = {name: (tmp_path / name).read_bytes() for name in ("data.arrow", "data.frames.arrow")}
    cut(path, path.stat().st_size - 30)
    report = recover(path)
    assert len(report.notes) == 2
    assert {name: (tmp_path / name).read_bytes() for name in tables} == tables
    with zipfile.ZipFile(path) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == good().members


def test_what_is_no_archive_stays_as_it_is(tmp_path):
    (tmp_path / "data.zip").write_bytes(b"no archive at all" * 100)
    with pytest.raises(DatasetError, match="no whole member"):
        recover(tmp_path / "data.zip")
    assert os.listdir(tmp_path) == ["data.zip"]
    assert (tmp_path / "data.zip").read_bytes() == b"no archive at all" * 100


def test_a_deflated_member_that_unpacks_without_end(tmp_path):
    """Its checksum is compared in pieces; what it unpacks to is never held."""
    packed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = b"".join(packed.compress(bytes(1 << 20)) for _ in range(64)) + packed.flush()
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("s/s_1.radar.pcd", cloud(1))
    whole = path.read_bytes()[: spans(path)[-1][2]]
    name = b"s/s_2.radar.pcd"
    header = b"PK\x03\x04" + b"\x14\0\0\0\x08\0\0\0\0\0" + zlib.crc32(b"").to_bytes(4, "little")
    header += len(data).to_bytes(4, "little") + (10).to_bytes(4, "little") + len(name).to_bytes(2, "little") + b"\0\0"
    path.write_bytes(whole + header + name + data)
    assert names(scanned(path)) == ["s/s_1.radar.pcd"]


def test_packed_members_that_are_encrypted_or_broken_are_lost(tmp_path):
    """Both are told by the name in their header; what follows is found."""
    members = {f"s/s_{number:03}.lidar.pcd": bytes(range(256)) * 40 for number in range(4)}
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        places = [info.header_offset for info in archive.infolist()]
    data = bytearray(path.read_bytes())
    data[places[0] + 6] |= 1
    data[places[2] + 30 + len("s/s_002.lidar.pcd")] = 0xFF  # a block of a kind that deflate has not
    path.write_bytes(data)
    found = scanned(path)
    assert names(found) == ["s/s_001.lidar.pcd", "s/s_003.lidar.pcd"]
    assert holes(found) == [(places[n], places[n + 1], f"s/s_{n:03}.lidar.pcd") for n in (0, 2)]


def test_the_begin_of_a_directory_at_the_end_is_no_directory(tmp_path):
    path = tmp_path / "d.zip"
    data = b"no member at all PK\1\2 and a little more"
    path.write_bytes(data)
    assert holes(scanned(path)) == [(0, len(data), "")]


def test_a_member_whose_size_is_behind_its_data_is_lost(own, tmp_path):
    (_, start, end), *others = spans(own)
    data = bytearray(own.read_bytes())
    data[start + 6] |= 8
    data[start + 14 : start + 26] = bytes(12)  # checksum and sizes
    (tmp_path / "piped.zip").write_bytes(data)
    found = scanned(tmp_path / "piped.zip")
    assert names(found) == [other for other, _, _ in others]
    assert holes(found) == [(start, end, "")]
