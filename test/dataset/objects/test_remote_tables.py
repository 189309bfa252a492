# SPDX-License-Identifier: Apache-2.0
"""Tables of a dataset in a bucket: fetched into memory, as a whole or not at all. The bucket is in memory too."""

import errno
import os

import handmade_dataset as made
import polars as pl
import pytest
from open_files import list_open_files

from edgefirst_ros.dataset import remote_archive
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.errors import ObjectStoreError, StorageError

obstore = pytest.importorskip("obstore")
URI = "s3://drives/sets/data.zip"
TABLES = "memfd:data"


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """A bucket with the files of a dataset."""
    memory = obstore.store.MemoryStore()
    monkeypatch.setattr(obstore.store, "from_url", lambda *_, **__: memory)
    made.write(tmp_path, made.good())
    for path in tmp_path.iterdir():
        obstore.put(memory, f"sets/{path.name}", path.read_bytes())
    return memory


@pytest.mark.parametrize("at_once", [remote_archive.AT_ONCE, 100], ids=["by one request", "by several"])
def test_tables_are_those_of_the_disk(bucket, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(remote_archive, "AT_ONCE", at_once)
    dataset = Dataset(URI)
    assert dataset.frames.equals(pl.read_ipc(tmp_path / "data.frames.arrow"))
    assert dataset.annotations["label"].cast(pl.String).to_list() == ["car", "person", "car", None, None]


@pytest.mark.parametrize("table", ["data.arrow", "data.frames.arrow"])
def test_a_table_that_is_not_there_is_none(bucket, table):
    obstore.delete(bucket, f"sets/{table}")
    dataset = Dataset(URI)
    assert (len(dataset.annotations), dataset.frames is None) == ((0, False) if table == "data.arrow" else (5, True))
    assert [sample.frame for sample in dataset] == [3, 4, 7]


def test_a_dataset_that_memory_does_not_hold_is_an_error(bucket, monkeypatch):
    def full(_):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(os, "memfd_create", full)
    with pytest.raises(StorageError, match=rf"{URI}: cannot hold it in memory: Cannot allocate memory"):
        Dataset(URI)


def test_a_table_that_breaks_off_leaves_nothing_in_memory(bucket, monkeypatch):
    """The last bytes are there, and the whole of it is asked for; then the bucket refuses."""
    plain = obstore.get

    def get(memory, key, **options):
        if key.endswith(".arrow") and isinstance(options["options"]["range"], tuple):
            raise obstore.exceptions.PermissionDeniedError("Access denied")
        return plain(memory, key, **options)

    monkeypatch.setattr(remote_archive, "AT_ONCE", 100)
    monkeypatch.setattr(obstore, "get", get)
    before = list_open_files(TABLES)
    with pytest.raises(ObjectStoreError, match=r"s3://drives/sets/data\.arrow: .*denied"):
        Dataset(URI)
    assert list_open_files(TABLES) == before
