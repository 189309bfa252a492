# SPDX-License-Identifier: Apache-2.0
"""A bucket in memory that lies: breaks off, keeps other bytes than were sent, or has no ranges from the end."""

import errno
import os
import pickle

import pytest

from edgefirst_ros.dataset.objects.bucket import Patience
from edgefirst_ros.dataset.objects.location import Location, StoredObject
from edgefirst_ros.dataset.objects.store import open_store
from edgefirst_ros.errors import ObjectStoreError

obstore = pytest.importorskip("obstore")


@pytest.fixture
def opened(monkeypatch):
    """Function that gives the store of a bucket, whose objects are in memory; nobody waits for it."""
    memory = obstore.store.MemoryStore()
    monkeypatch.setattr(obstore.store, "from_url", lambda *_, **__: memory)
    monkeypatch.setattr(Patience.__init__, "__kwdefaults__", {"clock": lambda: 0.0, "sleep": lambda _: None})
    return lambda uri="s3://drives": open_store(Location.of(uri), patience=5.0)


def test_on_azure_the_end_of_an_object_is_asked_for_by_its_place(opened):
    store = opened("az://drives")
    written = store.write("a", b"0123456789")
    assert store.tail("a", 3) == (written, b"789")
    assert store.tail("a", 30) == (written, b"0123456789")
    assert store.tail("none", 3) is None


def test_another_process_asks_the_same_bucket(opened):
    store = opened()
    store.write("a", b"0123456789")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"0123456789"


def test_a_stream_that_ends_early_is_continued(opened, monkeypatch):
    store, plain, asked = opened(), obstore.get, []

    class Short:
        def __init__(self, answer):
            self._answer, self.meta = answer, answer.meta

        def stream(self, _):
            yield self._answer.bytes().to_bytes()[:4]

    def get(memory, key, options):
        asked.append(options["range"])
        return Short(plain(memory, key, options={"range": options["range"]}))

    written = store.write("a", b"0123456789")
    monkeypatch.setattr(obstore, "get", get)
    assert b"".join(store.stream(written)) == b"0123456789"
    assert asked == [(0, 10), (4, 10), (8, 10)]


def test_other_bytes_than_were_sent_are_an_error(opened, monkeypatch, tmp_path):
    store, plain = opened(), obstore.put
    (tmp_path / "file").write_bytes(b"0123456789")
    assert store.put("a", tmp_path / "file").size == 10
    monkeypatch.setattr(obstore, "put", lambda memory, key, *_, **__: plain(memory, key, b"012345678X"))
    with pytest.raises(
        ObjectStoreError, match="s3://drives/b: differs from the file that was sent: its checksum is another one"
    ):
        store.put("b", tmp_path / "file")


def test_a_bucket_that_is_not_there_is_more_than_an_object_that_is_not_there(opened, monkeypatch):
    store = opened()
    store.delete("a")

    def refused(*_):
        raise FileNotFoundError("Object at location a not found: <Code>NoSuchBucket</Code>")

    monkeypatch.setattr(obstore, "delete", refused)
    with pytest.raises(ObjectStoreError, match=r"s3://drives/a: .*NoSuchBucket"):
        store.delete("a")


# ---- folders -------------------------------------------------------------------------------------
def test_what_a_disk_refuses_is_told_with_the_path(tmp_path, monkeypatch):
    store, place = open_store(Location.of(tmp_path)), Location.of(tmp_path)
    (tmp_path / "b").mkdir()
    gone = StoredObject((place / "gone").key, 3, "")
    for ask in (
        lambda: store.stat(f"{place.key}/a\0"),
        lambda: b"".join(store.stream(gone)),
        lambda: store.holds(gone, tmp_path / "none"),
        lambda: store.delete((place / "b").key),
    ):
        with pytest.raises(ObjectStoreError, match=str(tmp_path)):
            ask()
    assert (tmp_path / "b").is_dir()


def test_a_folder_that_may_not_be_listed_is_no_empty_one(tmp_path, monkeypatch):
    for name in ("a/1", "b/2", "c/3"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    place, plain = Location.of(tmp_path), os.scandir

    def scandir(path):
        if str(path).endswith("/b"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = open_store(place).objects(place.key)
    assert next(found).key == (place / "a/1").key
    with pytest.raises(ObjectStoreError, match=r"/b: .*[Pp]ermission denied"):
        list(found)
