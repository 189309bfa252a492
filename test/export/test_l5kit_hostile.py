# SPDX-License-Identifier: Apache-2.0
"""L5Kit: stores that are made to harm whoever reads them."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.l5kit.form import AGENT, FRAME, SCENE
from edgefirst_ros.export.l5kit.zarr2 import Reader, Writer, write_group

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
    assert len(Reader(path / "agents").read(0, 2)) == 2
    (path / "agents" / "0").write_bytes(lie(packed))
    with pytest.raises(DatasetError, match="has another size"):
        Reader(path / "agents").read(0, 2)


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


@pytest.mark.parametrize("name", ["frames", "agents"])
def test_more_than_anybody_has_in_one_is_refused_before_it_is_read(tmp_path, name):
    path = store(tmp_path / "a.zarr", [(0, 1 << 33)])
    scenes = Writer(tmp_path / "scenes", SCENE, 4)
    record = np.zeros(1, SCENE)
    record["frame_index_interval"] = 0, 1 << 33 if name == "frames" else 1
    scenes.append(record)
    scenes.close()
    (tmp_path / "scenes" / "0").replace(path / "scenes" / "0")
    changed(path / name / ".zarray", shape=[1 << 33])
    with pytest.raises(DatasetError, match=f"{name}: 0 to 8589934592 are asked for in one"):
        restore(path, "l5kit", tmp_path / "out")


def test_a_length_that_no_memory_has(tmp_path):
    path = store(tmp_path / "a.zarr", [(0, 2)])
    changed(path / "agents" / ".zarray", shape=[10**30])
    with pytest.raises(DatasetError, match="not a plain array"):
        restore(path, "l5kit", tmp_path / "out")
