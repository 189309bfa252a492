# SPDX-License-Identifier: Apache-2.0
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefirst_ros.dataset.names import (
    KINDS,
    DatasetPaths,
    Member,
    check_name,
    find_host,
    locate,
    make_member_name,
    make_safe,
    parse_member,
)
from edgefirst_ros.dataset.objects.places import list_dataset_places
from edgefirst_ros.errors import DatasetError, UsageError

SEQUENCE = "maivin-7_2026_01_02_03_04_05"

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)  # surrogates too


@pytest.mark.parametrize(
    ("frame", "kind", "name"),
    [
        (7, "camera.jpeg", f"{SEQUENCE}/{SEQUENCE}_007.camera.jpeg"),
        (0, "radar.png", f"{SEQUENCE}/{SEQUENCE}_000.radar.png"),
        (12345, "lidar.pcd", f"{SEQUENCE}/{SEQUENCE}_12345.lidar.pcd"),
    ],
)
def test_member_name(frame, kind, name):
    assert make_member_name(SEQUENCE, frame, kind) == name
    assert parse_member(name) == Member(SEQUENCE, frame, kind)


@pytest.mark.parametrize(
    ("sequence", "frame", "kind"),
    [
        ("a", -1, "camera.jpeg"),
        ("a", 2**32, "camera.jpeg"),
        ("a", 1, "camera.bmp"),
        ("..", 1, "radar.pcd"),
        ("a/b", 1, "radar.pcd"),
    ],
)
def test_member_name_refuses(sequence, frame, kind):
    with pytest.raises(DatasetError):
        make_member_name(sequence, frame, kind)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "a/b_001.camera.jpeg",
        "a/a_001.camera.bmp",
        "a/a_.camera.jpeg",
        "a/a_-01.camera.jpeg",
        "../.._001.radar.pcd",
        "a/a_99999999999.radar.pcd",
        "a/a_4294967296.radar.pcd",
        "a/a_١٢٣.radar.pcd",
        "x/a/a_001.radar.pcd",
        "a\\b/a\\b_001.radar.pcd",
        "a/a_001.radar.pcd\n",
    ],
)
def test_no_member(name):
    assert parse_member(name) is None


def test_other_padding_is_read():
    assert parse_member("a/a_7.radar.pcd") == parse_member("a/a_000007.radar.pcd") == Member("a", 7, "radar.pcd")


@given(st.from_regex(r"[a-zA-Z0-9_äß. -]{1,40}", fullmatch=True), st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_names_round_trip(text, frame, kind):
    sequence = make_safe(text)
    assert parse_member(make_member_name(sequence, frame, kind)) == Member(sequence, frame, kind)


@pytest.mark.parametrize(
    "name",
    [
        SEQUENCE,
        "Führerstand 3_2026_01_02_03_04_05",
        "横浜",
        "a b",
        "host.local_2026_01_02_03_04_05",
        "a" * 180,
        "é" * 90,
        "console",
        "com10",
        "x.zip.1",
    ],
)
def test_normal_names_stay(name):
    assert make_safe(name) == check_name(name) == name


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("", "recording"),
        ("   ", "recording"),
        (".", "_"),
        ("..", "__"),
        ("../../x", "___.._x"),
        ("/etc/passwd", "_etc_passwd"),
        ("C:\\x", "C__x"),
        ("a\0b", "a_b"),
        ("a\nb\x1b[31m\x7f\x85", "a_b_[31m__"),
        ('a*?"<>|:b', "a_______b"),
        ("-rf", "_rf"),
        (".hidden", "_hidden"),
        ("trail. .", "trail___"),
        ("con", "_con"),
        ("NUL.txt", "_NUL.txt"),
        ("com1", "_com1"),
        ("LPT³.x", "_LPT³.x"),
        ("\ud800x", "_x"),
        ("a\u202egpj", "a_gpj"),
        ("a\u2028b", "a_b"),
        ("drive.zip", "drive_zip"),
        ("drive.frames", "drive_frames"),
        ("drive.PARTIAL", "drive_PARTIAL"),
    ],
)
def test_bad_names(text, safe):
    assert make_safe(text) == safe
    with pytest.raises(UsageError):
        check_name(text)


def test_long_names_are_cut_and_stay_apart():
    first, second = make_safe("ä" * 300), make_safe("ä" * 301)
    assert first != second
    assert first.startswith("ä" * 80)
    assert len(first.encode()) <= 180


@given(ANY_TEXT)
def test_safe_name_is_safe(text):
    name = make_safe(text)
    assert make_safe(name) == name
    assert 0 < len(name.encode()) <= 180
    assert not set(name) & set('/\\:*?"<>|\0\n\r\t')
    assert name[0] not in ".- "
    assert name[-1] not in ". "
    assert Path("/out", name).parent == Path("/out")


@pytest.mark.parametrize(
    ("sequence", "host"),
    [
        (SEQUENCE, "maivin-7"),
        ("a_b_2026_01_02_03_04_05", "a_b"),
        ("drive", "drive"),
        ("_2026_01_02_03_04_05", "_2026_01_02_03_04_05"),
        ("a_2026_01_02", "a_2026_01_02"),
    ],
)
def test_host_of(sequence, host):
    assert find_host(sequence) == host


def make(root, layout):
    paths = DatasetPaths(root, "d.x", layout)
    if layout == "zip":
        paths.container.touch()
    else:
        paths.members.mkdir(parents=True)
    paths.arrow.touch()
    paths.frames.touch()
    return paths


def test_final_places():
    paths = DatasetPaths(Path("/o"), "n", "zip")
    assert [str(p) for p in (paths.container, paths.members, paths.arrow, paths.frames)] == [
        "/o/n.zip",
        "/o/n.zip",
        "/o/n.arrow",
        "/o/n.frames.arrow",
    ]
    paths = DatasetPaths(Path("/o"), "n", "directory")
    assert [str(p) for p in (paths.container, paths.members, paths.arrow, paths.frames)] == [
        "/o/n",
        "/o/n/n",
        "/o/n/n.arrow",
        "/o/n/n.frames.arrow",
    ]


@pytest.mark.parametrize("given_name", ["d.x.zip", "d.x", "d.x.arrow", "d.x.frames.arrow"])
def test_locate_zip(tmp_path, given_name):
    assert make(tmp_path, "zip") == locate(tmp_path / given_name)


@pytest.mark.parametrize("given_name", ["d.x", "d.x/", "d.x.arrow", "d.x/d.x.arrow", "d.x/d.x.frames.arrow", "d.x.zip"])
def test_locate_directory(tmp_path, given_name):
    paths = make(tmp_path, "directory")
    assert locate(f"{tmp_path}/{given_name}") == paths


def test_locate_relative(tmp_path, monkeypatch):
    paths = make(tmp_path, "directory")
    monkeypatch.chdir(paths.container)
    assert locate(".") == paths


def test_a_folder_of_datasets_that_is_named_by_dots_is_no_dataset(tmp_path, monkeypatch):
    folder, archive = make(tmp_path, "directory"), make(tmp_path, "zip")
    monkeypatch.chdir(tmp_path)
    assert list_dataset_places(".") == [Path(folder.name), Path(archive.container.name)]
    monkeypatch.chdir(folder.container)
    assert list_dataset_places("..") == [Path("..", folder.name), Path("..", archive.container.name)]
    assert list_dataset_places(".") == [Path()]


def test_locate_takes_the_folder_that_was_named(tmp_path):
    folder, archive = make(tmp_path, "directory"), make(tmp_path, "zip")
    assert locate(tmp_path / "d.x") == folder
    assert locate(tmp_path / "d.x.zip") == locate(tmp_path / "d.x.arrow") == archive


def test_locate_tables_alone(tmp_path):
    paths = make(tmp_path, "zip")
    paths.container.unlink()
    assert locate(paths.arrow) == paths


@pytest.mark.parametrize("given_name", ["none", "none.zip", "none/", "empty", "/", "a\0b", "none.arrow", "x" * 300])
def test_locate_nothing(tmp_path, given_name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError):
        locate(f"{tmp_path}/{given_name}" if given_name != "/" else "/")


def test_locate_tells_of_an_unfinished_one(tmp_path):
    (tmp_path / "d.zip.partial").touch()
    with pytest.raises(DatasetError, match=r"d\.zip.*unfinished"):
        locate(tmp_path / "d.zip")


def test_a_folder_that_is_gone_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(DatasetError, match=r"drive: cannot be accessed: .*No such file or directory"):
        locate("drive")


def test_a_folder_that_may_not_be_searched_is_not_taken_for_an_empty_one(tmp_path, monkeypatch):
    def refused(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    with pytest.raises(DatasetError, match=r"/d: no such file or directory; expected OUT/NAME"):
        locate(tmp_path / "d")
    monkeypatch.setattr(os, "lstat", refused)
    with pytest.raises(DatasetError, match=r"/d: cannot be accessed: Permission denied"):
        locate(tmp_path / "d")
