# SPDX-License-Identifier: Apache-2.0
"""L5Kit: stores that are made to harm whoever reads them."""

import json
import pickle
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.l5kit.write import AGENT, FRAME, SCENE
from edgefirst_ros.export.l5kit.zarr2 import RecordArray, Writer, write_group

SECOND = 10**9


def store(path, agents, *, scenes=1):
    """A store; `agents`: for each frame the interval of its agents. All scenes have all frames; there are 2 agents."""
    write_group(path, {})
    whole = np.zeros(scenes, SCENE), np.zeros(len(agents), FRAME), np.zeros(2, AGENT)
    whole[0]["frame_index_interval"] = 0, len(agents)
    whole[1]["timestamp"] = np.arange(len(agents)) * SECOND
    whole[1]["agent_index_interval"] = agents
    whole[1]["ego_rotation"] = np.eye(3)
    for name, records in zip(("scenes", "frames", "agents"), whole, strict=True):
        writer = Writer(path / name, records.dtype, 4)
        writer.append(records)
        writer.close()
    return path


def changed(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


class Touch:
    """What creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("codec", ["pickle", "bz2", "lzma", "zstd", ["a"]])
def test_other_packers_are_refused_before_they_are_called(tmp_path, codec):
    path = store(tmp_path / "a.zarr", [(0, 2)])
    changed(path / "agents" / ".zarray", compressor={"id": codec})
    (path / "agents" / "0").write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    with pytest.raises(DatasetError, match="is packed with"):
        restore(path, "l5kit", tmp_path / "out")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "lie",
    [lambda data: data[:-1], lambda data: data[:15], lambda data: data[:4] + b"\0\0\0\x7f" + data[8:]],
)
def test_blosc_that_lies_about_its_size_is_refused(tmp_path, lie):
    numcodecs = pytest.importorskip("numcodecs")
    path = store(tmp_path / "a.zarr", [(0, 2)])
    changed(path / "agents" / ".zarray", compressor={"id": "blosc"})
    packed = numcodecs.Blosc().encode(np.zeros(4, AGENT).tobytes())
    (path / "agents" / "0").write_bytes(packed)
    assert len(RecordArray(path / "agents").read(0, 2)) == 2
    (path / "agents" / "0").write_bytes(lie(packed))
    with pytest.raises(DatasetError, match="has another size"):
        RecordArray(path / "agents").read(0, 2)


@pytest.mark.parametrize("agents", [[(0, 2), (0, 2)], [(0, 2), (1, 2)], [(1, 2), (0, 1)]])
def test_agents_of_several_frames_are_refused(tmp_path, agents):
    with pytest.raises(DatasetError, match=r"agents: 0 to|agents: 1 to"):
        restore(store(tmp_path / "a.zarr", agents), "l5kit", tmp_path / "out")


def test_frames_of_several_scenes_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="frames: 0 to 2"):
        restore(store(tmp_path / "a.zarr", [(0, 0), (0, 0)], scenes=2), "l5kit", tmp_path / "out")


def test_frames_without_agents_may_say_anything_of_them(tmp_path):
    done = restore(store(tmp_path / "a.zarr", [(0, 1), (0, 0), (1, 2), (0, 0)]), "l5kit", tmp_path / "out")
    assert [line.number for line in done.report.lines if line.what.startswith("agents.centroid")] == [2]


@pytest.mark.parametrize(
    ("name", "number"),
    [("frames", 1 << 33), ("agents", 1 << 33), ("frames", (1 << 20) + 1), ("agents", (1 << 16) + 1)],
)
def test_more_than_anybody_has_in_one_is_refused_before_it_is_read(tmp_path, name, number):
    path = store(tmp_path / "a.zarr", [(0, number)])
    scenes = Writer(tmp_path / "scenes", SCENE, 4)
    record = np.zeros(1, SCENE)
    record["frame_index_interval"] = 0, number if name == "frames" else 1
    scenes.append(record)
    scenes.close()
    (tmp_path / "scenes" / "0").replace(path / "scenes" / "0")
    changed(path / name / ".zarray", shape=[number])
    with pytest.raises(DatasetError, match=f"{name}: 0 to {number} were requested in one"):
        restore(path, "l5kit", tmp_path / "out")


@pytest.mark.parametrize("length", [0, 5, 4 * AGENT.itemsize - 1, 4 * AGENT.itemsize + 1])
def test_a_chunk_of_another_size_than_the_array_says(tmp_path, length):
    path = store(tmp_path / "a.zarr", [(0, 2)])
    (path / "agents" / "0").write_bytes(zlib.compress(bytes(length)))
    with pytest.raises(DatasetError, match=rf"agents/0: has {length} bytes unpacked, must have {4 * AGENT.itemsize}"):
        restore(path, "l5kit", tmp_path / "out")


@pytest.mark.parametrize(("field", "value"), [("centroid", np.inf), ("yaw", np.nan), ("extent", np.nan)])
def test_agents_that_are_not_finite_are_left_out_and_counted(tmp_path, field, value):
    path = store(tmp_path / "a.zarr", [(0, 2)])
    agents = np.zeros(4, AGENT)
    agents["extent"] = 4, 2, 1
    agents[field][1] = value
    (path / "agents" / "0").write_bytes(zlib.compress(agents.tobytes()))
    done = restore(path, "l5kit", tmp_path / "out")
    lines = {line.what: line for line in done.report.lines}
    assert lines["agents.centroid, extent, yaw"].number == 1
    assert (lines["agents that are not finite"].number, lines["agents that are not finite"].lost) == (1, "dropped")
    (box,) = pl.read_ipc(tmp_path / "out" / "a.arrow")["box3d"].to_list()
    # It is on the ground at the origin of a vehicle that looks along it: x forward, y left, z up.
    assert box == pytest.approx([0, 0, 0.5, 4, 2, 1])


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (-(1 << 63), "l5kit_1677_09_21_00_12_43"),
        (0, "l5kit_1970_01_01_00_00_00"),
        ((1 << 63) - 1, "l5kit_2262_04_11_23_47_16"),
    ],
)
def test_a_scene_is_named_after_any_start(tmp_path, start, name):
    """2^63 ns are 9223372036.854775808 s, which GNU date adds to 1970."""
    path = store(tmp_path / "a.zarr", [(0, 2)])
    scenes = np.zeros(4, SCENE)
    scenes["frame_index_interval"][0] = 0, 1
    scenes["start_time"][0] = start
    (path / "scenes" / "0").write_bytes(zlib.compress(scenes.tobytes()))
    restore(path, "l5kit", tmp_path / "out")
    assert pl.read_ipc(tmp_path / "out" / "a.arrow")["name"].unique().to_list() == [name]


def test_a_length_that_no_memory_has(tmp_path):
    path = store(tmp_path / "a.zarr", [(0, 2)])
    changed(path / "agents" / ".zarray", shape=[10**30])
    with pytest.raises(DatasetError, match="not a plain array"):
        restore(path, "l5kit", tmp_path / "out")
