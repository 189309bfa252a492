# SPDX-License-Identifier: Apache-2.0
"""L5Kit: the way back, and arrays against the library whose form they have."""

import json
import math
import shutil
import uuid

import numpy as np
import polars as pl
import pytest
from l5kit_truth import run_official

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.errors import DatasetError, EdgeFirstError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.l5kit.zarr2 import RecordArray, Writer, write_group
from edgefirst_ros.synthetic import START


def test_boxes_come_back(boxed, exported, tmp_path):
    """On the ground plane of the vehicle, named after host and start, with frames that are counted."""
    done = restore(exported, "l5kit", tmp_path / "back")
    arrow = done.out / "out.arrow"
    assert read_annotations(arrow).metadata["box3d_normalized"] == "false"
    kept = boxed.frames.filter(pl.col("latitude").is_not_null()).select("name", "frame")
    wanted = boxed.annotations.drop_nulls("box3d").join(kept, ["name", "frame"], "semi")
    found = pl.read_ipc(arrow).drop_nulls("box3d")
    assert found["timestamp"].to_list() == wanted["timestamp"].to_list()
    assert set(found["box3d_score"].to_list()) == {1.0}
    assert found["object_id"].n_unique() == wanted["object_id"].n_unique() == 8
    names = {"car": "car", "person": "pedestrian"}
    assert found["label"].cast(str).to_list() == [names[label] for label in wanted["label"].cast(str)]
    there, here = found["box3d"].to_numpy(), wanted["box3d"].to_numpy()
    assert np.abs(there - here)[:, [0, 1, 3, 4, 5]].max() < 0.06  # the sway of 2 degrees, at 0.9 m of height
    np.testing.assert_allclose(there[:, 2], here[:, 5] / 2, atol=0.01)


def test_frames_without_boxes_come_back_empty(boxed_path, tmp_path):
    dataset = Dataset(boxed_path)
    stamp = dataset.frames.filter(pl.col("frame") == 7)["timestamp"].to_list()
    dataset.annotations = dataset.annotations.filter(pl.col("frame") != 7)
    export(dataset, "l5kit", tmp_path / "out")
    restore(tmp_path / "out", "l5kit", tmp_path / "back")
    rows = pl.read_ipc(tmp_path / "back" / "out.arrow").filter(pl.col("timestamp").is_in(stamp))
    assert rows["box3d"].null_count() == len(rows) == 2


def foreign(path):
    """A store that the official writer makes: a bus 30 degrees to the left of the vehicle, which looks north."""
    run_official("--write", path, START)
    return path


def test_agents_of_another_origin(tmp_path):
    pytest.importorskip("numcodecs")
    store = foreign(tmp_path / "sample.zarr")
    restore(store, "l5kit", tmp_path / "back")
    (row,) = pl.read_ipc(tmp_path / "back" / "sample.arrow").iter_rows(named=True)
    assert (row["name"], row["frame"], row["timestamp"]) == ("host-a013_2026_01_15_12_00_00", 0, START)
    assert (row["label"], row["box3d_score"]) == ("bus", 0.75)
    assert row["object_id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, "host-a013_2026_01_15_12_00_00/7"))
    # 20 m ahead, 5 m to the left; half its height above the ground; the hull around it.
    half = math.sqrt(3) / 2
    assert row["box3d"] == pytest.approx([20, 5, 1.5, 10 * half + 2 / 2, 10 / 2 + 2 * half, 3], abs=1e-5)


def test_blosc_without_its_library_is_said(tmp_path, monkeypatch):
    store = foreign(tmp_path / "sample.zarr")
    monkeypatch.setitem(__import__("sys").modules, "numcodecs", None)
    with pytest.raises(EdgeFirstError, match=r"pip install 'edgefirst-ros\[l5kit\]'"):
        restore(store, "l5kit", tmp_path / "back")
    assert [entry.name for entry in tmp_path.iterdir()] == ["sample.zarr"]


def spoilt(exported, folder, change):
    shutil.copytree(exported, folder)
    change(folder)
    return folder


def rewritten(name, **values):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "scenes.zarr" / ".zgroup").unlink(), "not a folder with scenes.zarr"),
        (lambda folder: (folder / "scenes.zarr" / "agents" / "0").write_bytes(b"garbage"), "0: cannot be unpacked"),
        (lambda folder: (folder / "scenes.zarr" / "agents" / "0").unlink(), "agents/0: cannot be opened: No such file"),
        (lambda folder: (folder / "scenes.zarr" / "frames" / ".zarray").write_text("{"), "cannot be read as JSON"),
        (rewritten("scenes.zarr/frames/.zarray", dtype=[["a", "<i8"]]), "has records of"),
        (rewritten("scenes.zarr/frames/.zarray", dtype="<i8"), "is not an array of records"),
        (rewritten("scenes.zarr/agents/.zarray", shape=[5]), "has 5 records"),
        (rewritten("scenes.zarr/agents/.zarray", chunks=[10**12]), "not a plain array"),
        (rewritten("scenes.zarr/agents/.zarray", order="F"), "not a plain array"),
        (rewritten("scenes.zarr/agents/.zarray", shape=["5"]), "not a plain array"),
    ],
)  # fmt: skip
def test_what_is_broken_is_refused(exported, tmp_path, change, says):
    source = spoilt(exported, tmp_path / "source", change)
    with pytest.raises(DatasetError, match=says):
        restore(source, "l5kit", tmp_path / "back")
    assert [entry.name for entry in tmp_path.iterdir()] == ["source"]


def test_time_that_runs_backwards_is_refused(exported, tmp_path):
    zarr = pytest.importorskip("zarr")
    source = spoilt(exported, tmp_path / "source", lambda folder: None)
    frames = zarr.open(str(source / "scenes.zarr" / "frames"), mode="r+")
    frames[:] = frames[:][::-1]
    with pytest.raises(DatasetError, match="do not follow each other in time"):
        restore(source, "l5kit", tmp_path / "back")


# ---- arrays ------------------------------------------------------------------------------------
KIND = np.dtype([("a", "<i8"), ("b", "<f4", (3,)), ("c", "<U4")])


@pytest.mark.parametrize("lengths", [[], [1], [4], [3, 1, 4], [9], [2, 2, 2, 13]])
def test_arrays_are_those_of_the_official_library(tmp_path, lengths):
    zarr = pytest.importorskip("zarr")
    write_group(tmp_path / "group", {"x": [1]})
    writer = Writer(tmp_path / "group" / "array", KIND, 4)
    rng = np.random.default_rng(0)
    parts = []
    for length in lengths:
        part = np.zeros(length, KIND)
        part["a"], part["b"] = rng.integers(-9, 9, length), rng.normal(size=(length, 3))
        part["c"] = [f"é{n}" for n in range(length)]
        parts.append(part)
        writer.append(part)
    writer.close()
    whole = np.concatenate([np.zeros(0, KIND), *parts])
    group = zarr.open_group(str(tmp_path / "group"), mode="r")
    assert dict(group.attrs) == {"x": [1]}
    assert group["array"].dtype == KIND
    assert (group["array"][:] == whole).all()
    reader = RecordArray(tmp_path / "group" / "array")
    assert len(reader) == len(whole)
    assert (reader.read(0, len(whole)) == whole).all()
    assert [record.tobytes() for record in reader.each()] == [record.tobytes() for record in whole]


@pytest.mark.parametrize("name", ["Zlib", "GZip", "Blosc", None])
def test_chunks_of_other_packers_are_read(tmp_path, name):
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    whole = np.zeros(11, KIND)
    whole["a"] = np.arange(11)
    packer = getattr(numcodecs, name)() if name else None
    zarr.save_array(str(tmp_path / "array"), whole, chunks=(4,), compressor=packer)
    reader = RecordArray(tmp_path / "array")
    assert (reader.read(2, 11) == whole[2:]).all()
