# SPDX-License-Identifier: Apache-2.0
"""L5Kit: what its own reader finds in an export, against the scene that was recorded; defects that must be found."""

import json
import math

import numpy as np
import pytest
from l5kit_truth import ATTRIBUTES, PLACED, RECIPES, east_north_up, faults, opened, thing_id
from shared_data import REAL

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export
from edgefirst_ros.synthetic import START
from edgefirst_ros.synthetic.scene import Scene


@pytest.fixture
def arrays(exported):
    """scenes, frames, agents as the official reader has them; a test may spoil them."""
    return {name: opened(exported)[name].copy() for name in ("scenes", "frames", "agents")}


@pytest.fixture(scope="module")
def origin():
    """The first place with a fix: that of the second frame."""
    return Scene(RECIPES[0]).position(START + 10**9 // 15)


def attributes_of(exported):
    attributes = json.loads(str(opened(exported)["attributes"]))
    return {key: attributes[key] for key in ATTRIBUTES}


def test_the_official_reader_finds_the_scene(exported, arrays, origin):
    assert faults(arrays, attributes_of(exported), origin) == set()
    assert len(arrays["scenes"]) == 2
    assert arrays["scenes"]["host"].tolist() == ["maivin-demo", "second"]
    assert len(arrays["frames"]) == 2 * PLACED
    assert len(opened(exported)["tl_faces"]) == 0


def shifted(arrays):
    arrays["frames"]["agent_index_interval"] += 1


def transposed(arrays):
    arrays["frames"]["ego_rotation"] = np.swapaxes(arrays["frames"]["ego_rotation"], 1, 2)


def reversed_time(arrays):
    arrays["frames"]["timestamp"] = arrays["frames"]["timestamp"][::-1]


def sixteen(arrays):
    kind = [(n, arrays["agents"].dtype[n]) for n in arrays["agents"].dtype.names[:-1]]
    short = np.zeros(len(arrays["agents"]), [*kind, ("label_probabilities", "<f4", (16,))])
    for name in short.dtype.names[:-1]:
        short[name] = arrays["agents"][name]
    arrays["agents"] = short


def in_ego_frame(arrays):
    for frame in arrays["frames"]:
        part = arrays["agents"][slice(*frame["agent_index_interval"])]
        part["centroid"] = (part["centroid"] - frame["ego_translation"][:2]) @ frame["ego_rotation"][:2, :2]


def large_tracks(arrays):
    arrays["agents"]["track_id"] += np.uint64(2**63)


def mirrored(arrays):
    arrays["agents"]["yaw"] *= -1


def moved_on(arrays):
    arrays["frames"]["timestamp"] += 50_000_000


@pytest.mark.parametrize(
    ("defect", "seen"),
    [
        (shifted, "intervals"), (transposed, "rotation"), (reversed_time, "time"), (sixteen, "types"),
        (in_ego_frame, "place"), (large_tracks, "tracks"), (mirrored, "yaw"), (moved_on, "translation"),
    ],
)  # fmt: skip
def test_planted_defects_are_found(exported, arrays, origin, defect, seen):
    defect(arrays)
    assert seen in faults(arrays, attributes_of(exported), origin)


def test_sixteen_labels_in_the_attributes_are_found(exported, arrays, origin):
    attributes = attributes_of(exported)
    attributes["labels"] = attributes["labels"][:16]
    assert "attributes" in faults(arrays, attributes, origin)


def test_a_scene_alone(exported, arrays):
    frames, agents = (opened(exported)[f"last_{name}"] for name in ("frames", "agents"))
    first, last = arrays["scenes"]["frame_index_interval"][1]
    assert len(frames) == last - first
    assert frames["agent_index_interval"][0, 0] == 0
    assert frames["agent_index_interval"][-1, 1] == len(agents)
    assert set(agents["track_id"].tolist()) == {1, 2, 3, 4}  # a scene numbers its own


def test_a_thing_keeps_its_track(boxed, exported, arrays):
    ids = boxed.annotations.drop_nulls("box3d").select("name", "timestamp", "object_id").rows()
    known = {}
    for scene, name in zip(arrays["scenes"], boxed.sequences, strict=True):
        for frame in arrays["frames"][slice(*scene["frame_index_interval"])]:
            tracks = arrays["agents"][slice(*frame["agent_index_interval"])]["track_id"].tolist()
            things = [thing for sequence, stamp, thing in ids if (sequence, stamp) == (name, frame["timestamp"])]
            for track, thing in zip(tracks, things, strict=True):
                known.setdefault((name, track), set()).add(thing)
    assert len(known) == 8
    assert {min(things) for things in known.values()} == {thing_id(scene, n) for scene in range(2) for n in range(4)}
    assert all(len(things) == 1 for things in known.values())


def test_the_heading_is_where_the_vehicle_goes(exported, arrays):
    """By L5Kit's own idea of yaw, and by nothing but displacements."""
    for scene in arrays["scenes"]:
        span = slice(*scene["frame_index_interval"])
        ways = np.diff(arrays["frames"]["ego_translation"][span, :2], axis=0)
        for yaw, way in zip(opened(exported)["yaws"][span], ways, strict=False):
            assert yaw == pytest.approx(math.atan2(way[1], way[0]), abs=0.05)


def test_the_world_has_its_place_on_the_earth(exported, arrays, origin):
    pymap3d = pytest.importorskip("pymap3d")
    world = np.array(json.loads((exported / "meta.json").read_text())["world_to_ecef"])
    there = world @ [*arrays["frames"]["ego_translation"][-1], 1]
    time = int(arrays["frames"]["timestamp"][-1])
    assert there[:3] == pytest.approx(pymap3d.geodetic2ecef(*Scene(RECIPES[1]).position(time)), abs=0.02)
    assert world[:3, 3] == pytest.approx(pymap3d.geodetic2ecef(*origin), abs=0.02)


# ---- real recordings ---------------------------------------------------------------------------
@pytest.mark.skipif(not REAL, reason="no real recordings are at hand")
def test_real_drives(tmp_path):
    """Those with fixes and attitudes: displacements agree with the fixes, and the rest is refused with the reason."""
    for recording in REAL:
        outcome = convert(recording, tmp_path / "out", name=recording.stem, rate=2)
        dataset = Dataset(outcome.paths.container)
        known = dataset.frames.drop_nulls(["latitude", "orientation"])
        if not len(known):
            with pytest.raises(DatasetError, match="both a position and an attitude"):
                export(dataset, "l5kit", tmp_path / recording.stem)
            continue
        export(dataset, "l5kit", tmp_path / recording.stem)
        frames = opened(tmp_path / recording.stem)["frames"]
        assert frames["timestamp"].tolist() == known["timestamp"].to_list()
        places = [row["latitude"], row["longitude"], row["altitude"] or 0] if (row := known.row(-1, named=True)) else []
        first = known.row(0, named=True)
        wanted = east_north_up(places, [first["latitude"], first["longitude"], first["altitude"] or 0])
        assert frames["ego_translation"][-1] == pytest.approx(wanted, abs=1e-3)
