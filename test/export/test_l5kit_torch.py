# SPDX-License-Identifier: Apache-2.0
"""L5Kit: what its EgoDataset and AgentDataset, which need torch, make of an export; the scene says what is right."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from l5kit_truth import PLACED, RECIPES, east_north_up, scan_of, truth_of

from edgefirst_ros.synthetic import START
from edgefirst_ros.synthetic.scene import Scene

pytest.importorskip("torch", reason="torch is not installed")
dataset = pytest.importorskip("l5kit.dataset", reason="l5kit is not installed", exc_type=ImportError)
pl = pytest.importorskip("polars")
from l5kit.data import ChunkedDataset  # noqa: E402
from l5kit.rasterization import build_rasterizer  # noqa: E402

PAST, FUTURE = 4, 6
CONFIG = {
    "format_version": 4,
    "model_params": {
        "history_num_frames": PAST,
        "future_num_frames": FUTURE,
        "step_time": 1 / 15,
        "render_ego_history": True,
    },
    "raster_params": {
        "raster_size": [64, 64],
        "pixel_size": [0.5, 0.5],
        "ego_center": [0.25, 0.5],
        "dataset_meta_key": "meta.json",
        "map_type": "box_debug",
        "filter_agents_threshold": 0.5,
        "disable_traffic_light_faces": True,
        "set_origin_to_bottom": True,
    },
}
MAPS = SimpleNamespace(require=str)
"""What finds L5Kit's files; a box needs none."""
ORIGIN = Scene(RECIPES[0]).position(START + 10**9 // 15)


@pytest.fixture
def store(exported, monkeypatch):
    monkeypatch.setattr(np, "int", int, raising=False)  # l5kit 1.5.0 was made for an older numpy
    return ChunkedDataset(str(exported / "scenes.zarr")).open()


def angle(value):
    return abs(math.remainder(float(value), math.tau))


def seen_from(place, yaw, points):
    """(N, 2) of points (N, 2) from a place, x ahead and y to the left."""
    cos, sin = math.cos(yaw), math.sin(yaw)
    return (np.array(points).reshape(-1, 2) - place) @ np.array([[cos, -sin], [sin, cos]])


def check(item, way, yaws, now):
    """An item against the truth: places (N, 2) and yaws (N,) of the whole scene, `now` its frame."""
    assert np.linalg.norm(item["centroid"] - way[now]) < 0.02
    assert angle(item["yaw"] - yaws[now]) < 0.005
    after, before = way[now + 1 : now + 1 + FUTURE], way[max(0, now - PAST) : now][::-1]
    assert item["target_availabilities"].tolist() == [1.0] * len(after) + [0.0] * (FUTURE - len(after))
    told = [item["target_positions"][: len(after)], item["history_positions"][1 : 1 + len(before)]]
    for found, wanted in zip(told, (after, before), strict=True):
        assert np.abs(found - seen_from(way[now], yaws[now], wanted)).max(initial=0) < 0.1
    turns = item["target_yaws"][: len(after), 0] - (yaws[now + 1 : now + 1 + FUTURE] - yaws[now])
    assert max(map(angle, turns), default=0) < 0.005
    assert np.count_nonzero(item["image"])


def test_the_vehicle(store):
    items = dataset.EgoDataset(CONFIG, store, build_rasterizer(CONFIG, MAPS))
    assert len(items) == 2 * PLACED
    for number, recipe in enumerate(RECIPES):
        scene = Scene(recipe)
        times = store.frames["timestamp"][slice(*store.scenes[number]["frame_index_interval"])].tolist()
        way = np.array([east_north_up(scene.position(time), ORIGIN)[:2] for time in times])
        yaws = np.array([scene.yaw(time) for time in times])
        for now in range(0, PLACED, 3):
            item = items[number * PLACED + now]
            assert (item["track_id"], item["timestamp"]) == (-1, times[now])
            check(item, way, yaws, now)


def test_the_agents(store, exported):
    everyone = np.ones(len(store.agents), bool)
    with pytest.warns(RuntimeWarning, match="custom agents_mask"):
        items = dataset.AgentDataset(CONFIG, store, build_rasterizer(CONFIG, MAPS), agents_mask=everyone)
    numbers = {}  # tracks are numbered as the things of the first scan
    for number, scene in enumerate(store.scenes[:]):
        first = int(store.frames[int(scene["frame_index_interval"][0])]["timestamp"])
        drawn = Scene(RECIPES[number])
        things = enumerate(drawn.things(scan_of(drawn, first)), 1)
        numbers |= {(number, track): thing.number for track, thing in things}
    compared = 0
    for item in (items[n] for n in range(0, len(items), 7)):
        scene, thing = Scene(RECIPES[item["scene_index"]]), numbers[item["scene_index"], int(item["track_id"])]
        frames = store.frames[slice(*store.scenes[item["scene_index"]]["frame_index_interval"])]
        times, now = frames["timestamp"].tolist(), frames["timestamp"].tolist().index(int(item["timestamp"]))
        span = range(max(0, now - PAST), min(len(times), now + 1 + FUTURE))
        way = np.array([truth_of(scene, thing, times[n], ORIGIN)[:2] for n in span])
        check(item, way, np.array([scene.yaw(times[n]) for n in span]), now - span.start)
        compared += 1
    assert compared > 30
