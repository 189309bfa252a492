# SPDX-License-Identifier: Apache-2.0
"""Buckets and folders give the same answers; what a network does to them is repaired or told."""

import errno
import hashlib
import os
import subprocess
import sys

import pytest
from object_server import KEY, SECRET
from open_files import list_open_files

from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.objects import bucket
from edgefirst_ros.dataset.objects.bucket import Patience
from edgefirst_ros.dataset.objects.location import Location, StoredObject
from edgefirst_ros.dataset.objects.places import STATES, get_one_place, is_fleet
from edgefirst_ros.dataset.objects.store import download, open_store, remove_partials, upload_dataset
from edgefirst_ros.errors import DatasetError, ObjectStoreError, StorageError, UsageError

LARGE = os.urandom((11 << 20) + 7)
"""Three parts."""


@pytest.fixture(params=["s3", "folder"])
def place(request, tmp_path):
    if request.param == "folder":
        return Location.of(tmp_path / "folder")
    request.getfixturevalue("s3")
    return Location.of(f"s3://drives/{tmp_path.name}")


def file_of(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_what_was_put_is_found_listed_and_read(place, tmp_path):
    store = open_store(place)
    assert store.stat((place / "a").key) is None
    assert store.tail((place / "a").key, 5) is None
    assert list(store.objects(place.key)) == []
    small = store.write((place / "b/small").key, b"0123456789")
    empty = store.put((place / "b/empty").key, file_of(tmp_path, b"", "empty"))
    large = store.put((place / "large").key, file_of(tmp_path, LARGE, "large"))
    assert {found.key: found for found in store.objects(place.key)} == {f.key: f for f in (small, empty, large)}
    assert store.stat(small.key) == small
    assert store.read(small.key, 2, 5, etag=small.etag) == b"234"
    assert store.read(small.key, 8) == b"89"
    assert store.tail(small.key, 3) == (small, b"789")
    assert store.tail(small.key, 300) == (small, b"0123456789")
    assert b"".join(store.stream(empty)) == b""
    assert b"".join(store.stream(large)) == LARGE
    store.delete(small.key)
    store.delete(small.key)
    assert store.stat(small.key) is None


def test_what_was_put_stays_where_the_file_changes_later(place, tmp_path):
    path = file_of(tmp_path, b"0123456789")
    found = open_store(place).put((place / "a").key, path)
    with path.open("r+b") as file:
        file.write(b"abc")
    assert open_store(place).read(found.key) == b"0123456789"


@pytest.mark.parametrize("links", [True, False])
def test_a_file_of_scratch_on_the_same_disk_is_put_without_a_copy(tmp_path, monkeypatch, links):
    place = Location.of(tmp_path / "folder")
    store = open_store(place)
    store.write((place / "a").key, b"an older one")
    path = file_of(tmp_path, LARGE)
    before = path.stat()
    if not links:  # as between two disks

        def refused(*_):
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refused)
    found = store.put((place / "a").key, path, scratch=True)
    path.unlink()
    there = (place / "a").path.stat()
    assert (there.st_ino == before.st_ino, there.st_nlink, there.st_mode) == (links, 1, before.st_mode)
    assert store.stat(found.key) == found
    assert store.read(found.key) == LARGE
    assert [one.name for one in place.path.iterdir()] == ["a"]


KILLED = """
import os, signal, sys
from edgefirst_ros.dataset.objects.store import FolderStore

os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
FolderStore().write(sys.argv[1], b"half")
"""


def test_what_a_killed_writer_left_is_removed_and_what_one_is_writing_stays(tmp_path, monkeypatch):
    place = Location.of(tmp_path / "sets")
    for name in ("below/a", "b"):
        subprocess.run([sys.executable, "-c", KILLED, (place / name).key], check=False)
    (place.path / "day.zip.partial").touch()  # of `convert`
    left = sorted(path.name for path in place.path.rglob("*.partial"))
    assert [name.split(".")[0] for name in left] == ["a", "b", "day"]
    replace, seen = os.replace, []

    def sweeping(old, new):
        remove_partials(place.path, deep=False)
        seen.extend(path.name.split(".")[0] for path in place.path.rglob("*.partial"))
        replace(old, new)

    monkeypatch.setattr(os, "replace", sweeping)
    open_store(place).write((place / "c").key, b"whole")
    assert sorted(seen) == ["a", "c", "day"]
    remove_partials(place.path)
    there = sorted(path.name for path in place.path.rglob("*") if path.is_file())
    assert there == ["c", "day.zip.partial"]
    assert (place / "c").path.read_bytes() == b"whole"
    assert list_open_files(place.path) == []


def test_the_place_of_a_fleet_has_its_states(place):
    store = open_store(place)
    store.write((place / "day/a.zip").key, b"content")
    store.write((place / "fleet" / STATES / "a.json").key, b"{}")
    assert is_fleet(str(place / "fleet"))
    assert not is_fleet(str(place / "day"))
    assert not is_fleet(str(place / "day/a.zip"))


@pytest.mark.usefixtures("s3")
def test_one_dataset_is_neither_a_recording_nor_two(tmp_path):
    place = Location.of(f"s3://drives/{tmp_path.name}")
    store = open_store(place)
    for name in ("a.mcap", "b.zip", "c1.zip", "c2.zip"):
        store.write((place / name).key, b"content")
    assert str(get_one_place(f"{place}/b*")) == f"{place}/b.zip"
    for glob, number in (("a*", 1), ("c*", 2)):
        with pytest.raises(UsageError, match=rf"matches {number} datasets or recordings; expected one dataset"):
            get_one_place(f"{place}/{glob}")


def test_the_tag_changes_with_the_content_of_equal_size(place):
    store = open_store(place)
    first = store.write((place / "x").key, b"aaaa")
    second = store.write((place / "x").key, b"bbbb")
    assert first.etag != second.etag
    with pytest.raises(ObjectStoreError):
        store.read(first.key, etag=first.etag)


def test_a_download_is_hashed_on_the_way_and_replaces_nothing(place, tmp_path):
    store = open_store(place)
    found = store.put((place / "large").key, file_of(tmp_path, LARGE))
    assert download(store, found, tmp_path / "copy") == (found, hashlib.sha256(LARGE).hexdigest())
    assert (tmp_path / "copy").read_bytes() == LARGE
    with pytest.raises(StorageError, match="exists"):
        download(store, found, tmp_path / "copy")


def dataset_in(folder, content=b"zip"):
    paths = DatasetPaths(folder, "drive")
    folder.mkdir()
    paths.container.write_bytes(content)
    paths.arrow.write_bytes(b"arrow")
    paths.frames.write_bytes(b"frames")
    return paths


def test_a_dataset_goes_up_container_last_and_again_without_effect(place, tmp_path):
    paths = dataset_in(tmp_path / "out")
    first = upload_dataset(paths, str(place))
    assert [found.key.rpartition("/")[2] for found in first] == ["drive.arrow", "drive.frames.arrow", "drive.zip"]
    assert upload_dataset(paths, place) == first  # nothing was put anew: same tags, also of a folder
    other = dataset_in(tmp_path / "other", b"another")
    with pytest.raises(DatasetError, match=r"drive.zip exists"):
        upload_dataset(other, place)
    assert upload_dataset(other, place, overwrite=True)[2].size == 7


def test_a_dataset_that_is_a_folder_is_not_uploaded(tmp_path):
    with pytest.raises(UsageError, match="layout zip"):
        upload_dataset(DatasetPaths(tmp_path, "drive", "directory"), tmp_path / "to")


def test_parts_are_proved_by_the_tag_and_another_tag_by_reading_back(s3, tmp_path, monkeypatch):
    path, store = file_of(tmp_path, LARGE), open_store(Location.of("s3://drives"))
    found = store.put("proved", path)
    reference = s3.client.head_object(Bucket="drives", Key="proved")
    assert (found.etag, found.size) == (reference["ETag"].strip('"'), reference["ContentLength"])
    assert found.etag.endswith("-3")
    read = []
    monkeypatch.setattr(bucket.BucketStore, "stream", lambda self, found: read.append(found) or iter([LARGE]))
    assert store.holds(found, path)
    assert not read
    assert store.holds(StoredObject("proved", len(LARGE), "of-another-kind"), path)
    assert len(read) == 1
    path.write_bytes(LARGE[::-1])
    assert not store.holds(found, path)


def test_a_missing_library_is_said_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ObjectStoreError, match=r"pip install 'edgefirst-ros\[fleet\]'") as caught:
        open_store(Location.of("s3://drives"))
    assert caught.value.exit_code == 1


# ---- a network ---------------------------------------------------------------------------------
def test_a_download_that_breaks_off_goes_on_where_it_was(s3, line, tmp_path):
    s3.put("broken", LARGE)
    found = open_store(Location.of("s3://drives")).stat("broken")
    line.faults = [("reset", 3 << 20), ("reset", 5 << 20)]
    store = open_store(Location.of("s3://drives"), patience=30)  # connections of its own
    assert download(store, found, tmp_path / "copy") == (found, hashlib.sha256(LARGE).hexdigest())
    assert line.connections >= 3


def test_an_upload_whose_line_breaks_off_is_done_again(s3, line, tmp_path):
    line.faults = [("reset", 0), ("reset", 100), ("stall", 0)]
    store = open_store(Location.of("s3://drives"), patience=3)
    found = store.put("sent", file_of(tmp_path, LARGE))
    assert s3.objects("sent") == {"sent": LARGE}
    assert found.size == len(LARGE)


def test_a_line_that_stalls_is_given_up(s3, line):
    s3.put("stalls", b"x")
    line.always = ("stall", 0)
    with pytest.raises(ObjectStoreError, match=r"drives/stalls: given up after . s: no answer in time"):
        open_store(Location.of("s3://drives"), patience=1.5).read("stalls")


def test_errors_of_the_server_are_retried_and_then_told(s3, line):
    s3.put("kept", b"kept")
    sorry = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    line.faults = [("answer", sorry)] * 5
    assert open_store(Location.of("s3://drives"), patience=30).read("kept") == b"kept"
    line.always = ("answer", sorry)
    with pytest.raises(ObjectStoreError, match=r"given up after .*: 503"):
        open_store(Location.of("s3://drives"), patience=1.5).read("kept")


def test_a_refusal_is_told_at_once_without_anything_secret(s3, line):
    body = (
        f"<Error><Code>SignatureDoesNotMatch</Code><Message>{SECRET} is wrong</Message>"
        f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId><StringToSign>x</StringToSign></Error>"
    ).encode()
    line.always = (
        "answer",
        b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
    )
    with pytest.raises(ObjectStoreError, match="403 Forbidden: SignatureDoesNotMatch") as caught:
        open_store(Location.of("s3://drives")).write("x", b"x")
    assert line.connections == 1
    assert SECRET not in str(caught.value)
    assert KEY not in str(caught.value)
    assert "check the credentials" in str(caught.value)


def test_what_is_wrong_with_the_place_is_said(s3, monkeypatch):
    with pytest.raises(ObjectStoreError, match="404 Not Found: NoSuchBucket"):
        open_store(Location.of("s3://nowhere")).read("x")
    with pytest.raises(ObjectStoreError, match="NoSuchBucket"):
        list(open_store(Location.of("s3://nowhere")).objects("x"))
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(ObjectStoreError, match="AWS_ALLOW_HTTP=true"):
        open_store(Location.of("s3://drives")).stat("x")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(ObjectStoreError, match="connection refused"):
        open_store(Location.of("s3://drives"), patience=5).stat("x")


def test_an_object_replaced_while_it_is_read_is_told(s3, tmp_path):
    store = open_store(Location.of("s3://drives"))
    s3.put("moving", b"old")
    found = store.stat("moving")
    s3.put("moving", b"new")
    with pytest.raises(ObjectStoreError, match="replaced"):
        download(store, found, tmp_path / "copy")


def test_patience_ends_before_its_time_and_begins_anew_with_progress(monkeypatch):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    patience = Patience(60)

    def wait_for_ever():
        while True:
            patience.wait(TimeoutError("TimedOut"), "x")

    with pytest.raises(ObjectStoreError, match="given up"):
        wait_for_ever()
    assert 30 < now[0] <= 60 - 20  # the last request may take 20 s
    patience.progress()
    patience.wait(TimeoutError("TimedOut"), "x")


# ---- folders -----------------------------------------------------------------------------------
def test_names_of_files_may_be_odd_and_what_is_being_written_is_no_object(tmp_path):
    names = ["a b.mcap", "x%20y.mcap", "h#1.mcap", "ü\n.mcap", "st*r.mcap"]
    for name in names:
        (tmp_path / name).write_bytes(b"1")
    (tmp_path / "x.zip.1-2.partial").write_bytes(b"1")
    os.mkfifo(tmp_path / "pipe")
    place = Location.of(tmp_path)
    found = [entry.key.rpartition("/")[2] for entry in open_store(place).objects(place.key)]
    assert found == sorted(names)


def test_a_folder_that_refuses_is_told_and_nothing_half_stays(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    place = Location.of(tmp_path / "file")
    with pytest.raises(ObjectStoreError, match=r"Not a directory|File exists"):
        open_store(place).write((place / "below").key, b"x")
    with pytest.raises(ObjectStoreError, match="No such file"):
        open_store(place).read((place.parent / "absent").key)
    (tmp_path / "taken").mkdir()
    with pytest.raises(ObjectStoreError, match="directory"):
        open_store(place).write((place.parent / "taken").key, b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "taken"]
