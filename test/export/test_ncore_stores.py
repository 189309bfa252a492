# SPDX-License-Identifier: Apache-2.0
"""The stores of NCore: written in order by a thread of their own, the same every time, and described as they are."""

import hashlib
import json
import lzma

import cbor2
import numpy as np
import pytest
from late import late

from edgefirst_ros import convert
from edgefirst_ros.export import export as run
from edgefirst_ros.export.ncore import groups, library
from edgefirst_ros.synthetic import TOPICS

stores = late("ncore.impl.data.stores", reason="nvidia-ncore is not installed")
zarr = late("zarr", reason="zarr is not installed")


@pytest.fixture(scope="module")
def source(recording, tmp_path_factory):
    out = tmp_path_factory.mktemp("stores")
    topics = frozenset(TOPICS - {"model/boxes2d", "model/mask", "model/mask_compressed"})
    convert(
        recording(seconds=1, size=(320, 180), cube_shape=(2, 16, 4, 32), lidar_points=200, topics=topics),
        out,
        name="drive",
    )
    return out / "drive"


def test_the_same_values_are_packed_into_the_same_bytes():
    values = np.random.default_rng(3).normal(size=(110_000, 3)).astype(np.float32)
    written = []
    store = groups.Store(
        lambda entries: written.extend((key, bytes(data)) for key, data in entries),
        lambda: written.append(("closed", b"")),
    )
    for number in range(100):  # Blosc's threads put their blocks behind each other as they come
        groups.Group(store).create_dataset(str(number), values)
    store.close()
    assert [key for key, _ in written] == [f"{n}/{name}" for n in range(100) for name in (".zarray", "0.0")] + [
        "closed"
    ]
    assert len({data for key, data in written if key.endswith("0.0")}) == 1
    assert dict(store) == {key: data for key, data in written if key.endswith(".zarray")}


def test_groups_that_are_done_are_forgotten_and_all_is_written_once(tmp_path):
    """As those of the frames of a long drive: of each there are metadata and values."""
    store = groups.Store(groups.into_folder(str(tmp_path)), lambda: None)
    frames = groups.Group(store).create_group("frames")
    made = []
    for number in range(3 * groups.REMEMBERED):
        made.append(frames.require_group(str(number)))
        frames.require_group(str(number)).create_dataset("x", np.arange(number, number + 3))
        frames.require_group(str(number)).attrs.put({"number": number})
    newest = range(len(made))[-groups.REMEMBERED :]
    assert all(frames.require_group(str(number)) is made[number] for number in newest)
    assert len(frames._groups) == groups.REMEMBERED
    store.close()
    read = zarr.open_group(str(tmp_path / "frames"), mode="r")
    assert sorted(map(int, read)) == list(range(len(made)))
    for number, group in ((int(name), group) for name, group in read.groups()):
        assert group["x"][:].tolist() == [number, number + 1, number + 2]
        assert dict(group.attrs) == {"number": number}


def test_what_cannot_be_written_is_said_and_ends_the_writing():
    written = []

    def full(entries: object) -> None:
        written.append(entries)
        raise OSError(28, "No space left on device")

    store = groups.Store(full, lambda: None)
    large = bytes(groups.BATCH)

    def put_many() -> None:
        for number in range(1000):
            store[str(number)] = large

    with pytest.raises(OSError, match="No space"):
        put_many()
    store.abandon()
    count = len(written)
    assert count < 1000
    with pytest.raises(RuntimeError):  # nothing is taken any more
        store["more"] = large
    assert len(written) == count


def test_a_tar_store_has_the_bytes_that_the_library_writes(tmp_path):
    random = np.random.default_rng(5)
    sizes = [0, 1, 511, 512, 513, 5000, 200_000]
    names = ["frames/1/.zarray", "x" * 100, "y" * 101, "deep/" * 60 + "0.0", "größe/0"]
    entries = [(f"{n}{name}", random.bytes(size)) for name in names for n, size in enumerate(sizes)]
    with stores.IndexedTarStore(tmp_path / "theirs.zarr.itar", mode="w") as theirs:
        for key, data in entries:
            theirs[key] = data
    begun = stores.IndexedTarStore(tmp_path / "ours.zarr.itar", mode="w")
    begun[entries[0][0]] = entries[0][1]  # the library has written to it before
    tar = groups.Tar(begun)
    ours = groups.Store(tar.put, tar.close)
    for key, data in entries[1:]:
        ours[key] = data
    ours.close()
    made = (tmp_path / "ours.zarr.itar").read_bytes()
    assert made == (tmp_path / "theirs.zarr.itar").read_bytes()
    assert tar.md5() == hashlib.md5(made).hexdigest()
    read = stores.IndexedTarStore(tmp_path / "ours.zarr.itar", mode="r")
    assert {key: read[key] for key in read} == dict(entries)


def test_an_entry_is_put_once(tmp_path):
    tar = groups.Tar(stores.IndexedTarStore(tmp_path / "twice.zarr.itar", mode="w"))
    ours = groups.Store(tar.put, tar.close)
    ours["0.0"] = b"first"
    ours["0.0"] = b"second"
    with pytest.raises(ValueError, match=r"0\.0 is there already"):
        ours.close()
    ours.abandon()


def test_a_tar_file_ends_at_the_entry_before_the_one_that_the_disk_refuses(tmp_path, monkeypatch):
    tar = groups.Tar(stores.IndexedTarStore(tmp_path / "full.zarr.itar", mode="w"))
    ours = groups.Store(tar.put, tar.close)
    ours["first"] = bytes(groups.BATCH)
    ours["second"] = b"small"

    def refused(*_: object) -> int:
        raise OSError(28, "No space left on device")

    ours._waiting[0].result()  # the first is written
    there = (tmp_path / "full.zarr.itar").read_bytes()
    monkeypatch.setattr("os.pwritev", refused)
    with pytest.raises(OSError, match="No space"):
        ours.close()
    assert (tmp_path / "full.zarr.itar").read_bytes() == there
    ours.abandon()


@pytest.mark.parametrize("kind", ["directory", "itar"])
def test_metadata_are_those_of_the_store_and_the_summary_those_of_the_library(source, tmp_path, kind):
    run(source, "ncore", tmp_path / "once", store=kind)
    paths = sorted(path for path in (tmp_path / "once").glob("*/*.zarr*"))
    assert len(paths) == 3
    for path in paths:
        store = zarr.DirectoryStore(path) if kind == "directory" else stores.IndexedTarStore(path, mode="r")
        told = cbor2.loads(lzma.decompress(store[".zmetadata.cbor.xz"]))["metadata"]
        there = {key for key in store if key.endswith((".zarray", ".zattrs", ".zgroup"))}
        assert told == {key: json.loads(store[key]) for key in there}
    lib = library.library()
    (summary,) = (tmp_path / "once").glob("*/*.json")
    found = json.loads(summary.read_text())
    wanted = lib.SequenceComponentGroupsReader(paths).get_sequence_meta().to_dict()
    assert found.keys() == wanted.keys()
    for name in found.keys() - {"component_stores"}:
        assert found[name] == json.loads(json.dumps(wanted[name]))
    by_path = {store["path"]: store for store in json.loads(json.dumps(wanted["component_stores"]))}
    assert {store["path"]: store for store in found["component_stores"]} == by_path


def test_the_same_dataset_gives_the_same_files(source, tmp_path):
    first, again = {}, {}
    for folder, files in (("first", first), ("again", again)):
        run(source, "ncore", tmp_path / folder, store="directory")
        for path in sorted((tmp_path / folder).rglob("*")):
            if path.is_file():
                files[str(path.relative_to(tmp_path / folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    assert first == again
