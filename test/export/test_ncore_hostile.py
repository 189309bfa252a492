# SPDX-License-Identifier: Apache-2.0
"""NCore V4: sequences that are broken, or made to harm whoever reads them."""

import io
import json
import lzma
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import cbor2
import numcodecs
import numpy as np
import pytest
from late import late
from PIL import Image
from small_camera import small_camera

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.ncore import library
from edgefirst_ros.export.ncore.library import guard

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

US = 1_700_000_000_000_000


def png(width=8, height=6):
    file = io.BytesIO()
    Image.new("L", (width, height)).save(file, "PNG")
    return file.getvalue()


def bomb():
    """A picture that says that it has 2^16 x 2^16 pixels. PNG 11.2.1: width and height lie from byte 16 on."""
    return png()[:16] + (1 << 16).to_bytes(4, "big") * 2 + png()[24:]


def sequence(folder, pictures, spoil=None, own=False, camera="left", told=None):
    """A sequence with a camera, and with our own component; `spoil` is called with its group before the end.

    `own`: the group is that of the radar cubes; `camera`: its name; `told`: metadata of pictures.
    """
    lib = library.load_library()
    writer = v4.SequenceComponentGroupsWriter(
        lib.UPath(folder), "x", "x", lib.HalfClosedInterval(US, US + 1_000_001), {}, "directory"
    )
    new = writer.register_component_writer
    way = np.repeat(np.eye(4)[None], 2, 0)
    poses = new(v4.PosesComponent.Writer, "default")
    poses.store_dynamic_pose("rig", "world", way, np.array([US, US + 1_000_000], np.uint64))
    poses.store_static_pose(camera, "rig", np.eye(4))
    new(v4.IntrinsicsComponent.Writer, "default").store_camera_intrinsics(camera, small_camera(lib))
    made = new(v4.CameraSensorComponent.Writer, camera)
    for n, picture in enumerate(pictures):
        at = US + 100_000 * (n + 1)
        made.store_frame(picture, "png", np.array([at - 9, at], np.uint64), {}, told or {})
    if own:
        made = new(library.load_components()[0], "radar", "radar_cube")
        made.store_cube(b"cube", 1, {})
        made.store_timestamps([1])
    if spoil is not None:
        spoil(made._group)
    writer.finalize()
    return folder


@pytest.mark.parametrize("broken", [b"no picture", bomb(), b"\x89PNG\r\n\x1a\n"])
def test_a_picture_that_cannot_be_read_is_counted(tmp_path, broken):
    done = restore(sequence(tmp_path / "in", [png(), broken, png()]), "ncore", tmp_path / "out")
    assert {line.what: line.number for line in done.report.lines}["broken pictures"] == 1
    (path,) = (tmp_path / "out").glob("*.zip")
    assert [s.timestamp for s in Dataset(path).samples()] == [(US + 100_000) * 1000, (US + 300_000) * 1000]


def test_no_picture_at_all_is_said(tmp_path):
    with pytest.raises(DatasetError, match="no camera with JPEG or PNG pictures"):
        restore(sequence(tmp_path / "in", [b"no picture"]), "ncore", tmp_path / "out")


class Touch:
    """What creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("place", ["compressor", "filters"])
@pytest.mark.parametrize("own", [True, False])
def test_nothing_in_a_store_is_executed(tmp_path, place, own):
    from numcodecs import Pickle

    def spoil(group):
        name = "frames/1/cube" if own else f"frames/{US + 100_000}/image"
        del group[name]
        how = {"compressor": Pickle()} if place == "compressor" else {"compressor": None, "filters": [Pickle()]}
        group.create_dataset(name, shape=(5,), chunks=(5,), dtype="u1", **how).attrs["format"] = "png"
        group.chunk_store[f"{group.path}/{name}/0"] = pickle.dumps(Touch(tmp_path / "touched"))

    with pytest.raises(DatasetError, match="packed with"):
        restore(sequence(tmp_path / "in", [png()], spoil, own=own), "ncore", tmp_path / "out")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("frames/1/cube", {"shape": (1 << 40,), "chunks": (1 << 40,)}, "are more than"),
        ("further", {"shape": (1 << 31,), "chunks": (1 << 26,), "compressor": "default"}, "are more than"),
    ],
)
def test_an_array_is_no_larger_than_its_store(tmp_path, name, kind, says):
    def spoil(group):
        if name in group:
            del group[name]
        group.create_dataset(name, dtype="u1", **({"compressor": None} | kind))

    with pytest.raises(DatasetError, match=says):
        restore(sequence(tmp_path / "in", (), spoil, own=True), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("own", [True, False])
def test_components_without_a_version_are_refused(tmp_path, own, monkeypatch):
    source = sequence(tmp_path / "in", [png()], own=own)

    def without(*_):
        raise KeyError("component_version")

    monkeypatch.setattr(v4.SequenceComponentGroupsReader, "open_component_readers", without)
    with pytest.raises(DatasetError, match="cannot be read: KeyError"):
        restore(source, "ncore", tmp_path / "out")


@pytest.mark.parametrize("filled", [True, False])
def test_a_large_array_is_not_made_of_next_to_nothing(tmp_path, filled):
    """A gigabyte of one value, in a few kilobytes or none at all."""

    def spoil(group):
        name = f"frames/{US + 100_000}/image"
        del group[name]
        array = group.create_dataset(name, shape=(1 << 30,), chunks=(1 << 24,), dtype="u1")
        array.attrs["format"] = "png"
        if filled:
            array[: 1 << 24] = 7
            chunk = group.chunk_store[f"{array.path}/0"]
            for n in range(1, 64):
                group.chunk_store[f"{array.path}/{n}"] = chunk

    with pytest.raises(DatasetError, match=r"has 1073741824 bytes, in chunks of \d{6}" if filled else "image/0'"):
        restore(sequence(tmp_path / "in", [png()], spoil), "ncore", tmp_path / "out")


@pytest.mark.parametrize("said", ["unpacked", "packed"])
def test_a_chunk_is_as_large_as_its_array(tmp_path, said):
    """c-blosc, README_CHUNK_FORMAT: bytes 4 to 8 are the size unpacked, 12 to 16 the size packed."""

    def spoil(group):
        name = f"frames/{US + 100_000}/image"
        del group[name]
        array = group.create_dataset(name, shape=(5,), chunks=(5,), dtype="u1")
        array.attrs["format"] = "png"
        chunk = bytearray(numcodecs.Blosc().encode(bytes(1 << 27 if said == "unpacked" else 5)))
        if said == "packed":
            chunk[12:16] = (1 << 30).to_bytes(4, "little")
        group.chunk_store[f"{array.path}/0"] = bytes(chunk)

    with pytest.raises(DatasetError, match="another size than it has, or than the array"):
        restore(sequence(tmp_path / "in", [png()], spoil), "ncore", tmp_path / "out")


@pytest.mark.parametrize("separator", [".", "/"])
def test_the_numbers_of_a_chunk_may_be_a_path(tmp_path, separator):
    """Zarr storage specification version 2, Arrays: the `dimension_separator` may be a slash."""

    def spoil(group):
        form = {"shape": (1, 5), "chunks": (1, 5), "dtype": "u1", "dimension_separator": separator}
        array = group.create_dataset("more", **form)
        group.chunk_store[f"{array.path}/0{separator}0"] = numcodecs.Blosc().encode(bytes(1 << 27))

    sequence(tmp_path / "in", [png()], spoil)
    reader = v4.SequenceComponentGroupsReader([library.load_library().UPath(next((tmp_path / "in").iterdir()))])
    guard(reader)
    ((group, _),) = reader._component_stores.values()
    (array,) = (array for key, array in group["cameras/left"].arrays() if key == "more")
    with pytest.raises(ValueError, match="another size than it has, or than the array"):
        array[:]


METADATA = ".zmetadata.cbor.xz"


def archive(path, entries, index=None):
    """An .itar of entries by name, without the headers of a tar, which nobody reads; `index`: another, packed."""
    parts, told = [], {"items": [], "offset_datas": [], "sizes": []}
    for name, data in entries.items():
        told["items"].append(name)
        told["offset_datas"].append(sum(map(len, parts)) + 512)
        told["sizes"].append(len(data))
        parts += [bytes(512), data + bytes(-len(data) % 512)]
    packed = lzma.compress(cbor2.dumps(told)) if index is None else index
    end = struct.pack("<4sIQI", b"itar", 1, sum(map(len, parts)), len(packed))
    path.write_bytes(b"".join(parts) + packed + bytes(-len(packed) % 512) + end.ljust(512, b"\0"))


def lists(number):
    """Empty lists in a list, 56 bytes each in memory. RFC 8949, 3.1: major type 4."""
    return b"\x9a" + number.to_bytes(4, "big") + b"\x80" * number


def bombs(folder, where, many):
    """A store that is small, and whose index or metadata unpack to 32 MiB, and those to 2 GiB of objects."""
    folder.mkdir()
    if where == "index":
        archive(folder / "x.ncore4.zarr.itar", {METADATA: lzma.compress(cbor2.dumps({}))}, many)
    elif where == "metadata":
        archive(folder / "x.ncore4.zarr.itar", {METADATA: many})
    elif where == "sparse":
        entries = {METADATA: many}
        archive(folder / "x.ncore4.zarr.itar", entries)
        whole = (folder / "x.ncore4.zarr.itar").read_bytes()
        with (folder / "x.ncore4.zarr.itar").open("r+b") as file:
            file.seek((1 << 27) - 512)
            file.write(whole[-512:])
    else:
        (folder / "x.ncore4.zarr").mkdir()
        (folder / "x.ncore4.zarr" / METADATA).write_bytes(many)
    return folder


MEASURED = """
import sys
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
for path in sys.argv[2:]:
    try:
        restore(path, "ncore", sys.argv[1])
    except DatasetError as error:
        status = open("/proc/self/status").read()  # ru_maxrss would be that of the parent, where it is larger
        print(status.split("VmHWM:")[1].split()[0], error)
"""


def test_what_unpacks_without_end_is_refused(tmp_path):
    many = lzma.compress(lists(1 << 25))
    sources = [bombs(tmp_path / where, where, many) for where in ("index", "metadata", "sparse", "directory")]
    arguments = [sys.executable, "-c", MEASURED, tmp_path / "out", *sources]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    for source, line in zip(sources, done.stdout.splitlines(), strict=True):
        kilobytes, _, error = line.partition(" ")
        assert error.startswith(str(source))
        assert "not a readable NCore sequence" in error
        assert "more than its entries can need" in error
        assert int(kilobytes) < 1 << 20


@pytest.mark.parametrize(("key", "value"), [("shape", [-5]), ("chunks", [-5]), ("shape", [5.0]), ("shape", ["5"])])
def test_an_array_with_sides_that_are_no_lengths_is_refused(tmp_path, key, value):
    def spoil(group):
        path = f"{group.path}/frames/1/cube/.zarray"
        group.store[path] = json.dumps(json.loads(group.store[path]) | {key: value}).encode()

    with pytest.raises(DatasetError, match=r"frames/1/cube/\.zarray: shape .*, chunks "):
        restore(sequence(tmp_path / "in", (), spoil, own=True), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_store_that_is_read_is_not_written(tmp_path):
    sequence(tmp_path / "in", [png()])
    (store,) = (tmp_path / "in").iterdir()
    before = {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    reader = v4.SequenceComponentGroupsReader([library.load_library().UPath(store)])
    guard(reader)
    ((group, _),) = reader._component_stores.values()
    chunks = group.chunk_store
    assert (set(chunks), len(chunks)) == (before.keys(), len(before))
    key = next(name for name in before if "/image/" in name and name[-1].isdigit())
    assert key in chunks
    assert bytes(chunks[key]) == before[key]
    with pytest.raises(TypeError, match="does not support item"):
        chunks[key] = b"other"
    with pytest.raises(TypeError, match="does not support item"):
        del chunks[key]
    assert (store / key).read_bytes() == before[key]


def test_a_small_archive_is_read(tmp_path):
    """That the archives above are what the library reads."""
    sequence(tmp_path / "in", [png(), png()])
    (store,) = (tmp_path / "in").iterdir()
    entries = {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    (tmp_path / "packed").mkdir()
    archive(tmp_path / "packed" / "x.ncore4.zarr.itar", entries)
    restore(tmp_path / "packed", "ncore", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.zip")
    assert len(Dataset(path)) == 2


def test_stamps_that_are_missing(tmp_path):
    def spoil(group):
        del group[f"frames/{US + 100_000}"]

    with pytest.raises(DatasetError, match="cannot be read: KeyError"):
        restore(sequence(tmp_path / "in", [png()], spoil), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_who_ends_an_import_is_told_nothing_else(tmp_path):
    def end(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        restore(sequence(tmp_path / "in", [png()]), "ncore", tmp_path / "out", progress=end)


@pytest.mark.parametrize("camera", ["\x1b[31m", "C:x"])
def test_names_of_sensors_become_safe_ones(tmp_path, camera):
    other = sequence(tmp_path / "in", [png()], camera=camera)
    restore(other, "ncore", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.zip")
    assert len(Dataset(path)) == 1
    assert path.name.isprintable()


def test_labels_that_are_none(tmp_path):
    told = {"annotations": [
        {"object_id": "a", "label": ["x"], "label_index": -1, "box2d": [1, "x", 2, 3], "box2d_score": 1.01},
        {"object_id": "b", "label": "car", "label_index": 1, "box2d": [0, 0, 0.5, 0.5], "box2d_score": 0.5},
        {"object_id": "c", "label_index": (1 << 64) - 1, "box2d_score": 1},
        {"object_id": "d", "label_index": 1 << 64, "box2d_score": -0.01},
        {"object_id": 3}, 5,
    ]}  # fmt: skip
    restore(sequence(tmp_path / "in", [png()], told=told), "ncore", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.zip")
    rows = Dataset(path).annotations.select("object_id", "label", "label_index", "box2d_score").rows()
    largest = (1 << 64) - 1  # a larger number has no place in the column
    assert {row[0]: row[1:] for row in rows if row[0]} == {
        "a": (None, None, None),
        "b": ("car", 1, 0.5),
        "c": (None, largest, 1.0),
        "d": (None, None, None),
    }
