# SPDX-License-Identifier: Apache-2.0
"""Drives with boxes in space for the tests of L5Kit, and what must hold of an export of them."""

import functools
import math
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from edgefirst_ros.synthetic import DEFAULT_TOPICS, START, Recipe
from edgefirst_ros.synthetic.scene import Scene

DRIVE = {"seconds": 4, "size": (320, 180), "fps": 15.0, "codec": "jpeg", "model_every": 3}
DRIVE |= {"cube_shape": (2, 16, 4, 32), "lidar_points": 200, "topics": DEFAULT_TOPICS | {"fusion/boxes3d"}}
HOUR = 3600 * 10**9
RECIPES = [Recipe(**DRIVE), Recipe(**DRIVE, seed=1, host="second", start=START + HOUR, heading=-2.5)]
PLACED = 58
"""Frames of each between the first fix, at 3 ms, and the last, at 3903 ms; there are 60, one every 66.7 ms."""
ATTRIBUTES = ("format_version", "labels")
NAMED = uuid.UUID("5f0c5f4e-0000-4000-8000-000000000000")


PYTHON = Path(sys.prefix) / "l5kit" / "bin" / "python"


def run_official(*arguments):
    """Run the official library in its own environment; the test is skipped where it is not installed."""
    if not PYTHON.is_file():
        pytest.skip("the official L5Kit reader is not installed (make .venv-test/ready installs it)")
    command = [PYTHON, Path(__file__).with_name("l5kit_judge.py"), *arguments]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@functools.cache
def opened(path=None):
    """{name: array} of an export as the official reader has it, beside its types (NAME_kind) and labels."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.npz"
        run_official(out, *([path] if path else []))
        with np.load(out) as found:
            return dict(found)


def thing_id(scene, number):
    return str(uuid.UUID(int=NAMED.int + 100 * scene + number))


def tracked(dataset):
    """The dataset with one id for each thing, which fusion does not tell: its boxes are in the order of the scene's."""
    times = {(row["name"], row["frame"]): row["lidar_points_timestamp"] for row in dataset.frames.iter_rows(named=True)}
    ids, counted = [], {}
    for row in dataset.annotations.iter_rows(named=True):
        key = row["name"], row["frame"]
        if row["box3d"] is not None:
            n = counted[key] = counted.get(key, -1) + 1
            scene = dataset.sequences.index(row["name"])
            ids.append(thing_id(scene, Scene(RECIPES[scene]).things(times[key])[n].number))
        else:
            ids.append(row["object_id"])
    dataset.annotations = dataset.annotations.with_columns(object_id=pl.Series(ids))
    return dataset


# ---- what must hold ----------------------------------------------------------------------------
def east_north_up(place, origin):
    pymap3d = pytest.importorskip("pymap3d")
    return np.array(pymap3d.geodetic2enu(*place, *origin))


def turn(scene, time):
    transforms3d = pytest.importorskip("transforms3d")
    x, y, z, w = scene.orientation(time)
    return transforms3d.quaternions.quat2mat([w, x, y, z])


def scan_of(scene, time):
    """Stamp of the scan nearest to a time, ns: ten a second, the first 13 ms after the start."""
    first = scene.recipe.start + 13_000_000
    return first + round((time - first) / 10**8) * 10**8


def truth_of(scene, thing, time, origin):
    """Where a thing is in the world, m."""
    (centre,) = (found.centre for found in scene.things(time) if found.number == thing)
    return east_north_up(scene.position(time), origin) + turn(scene, time) @ centre


def faults(arrays, attributes, origin):
    """What is wrong with scenes, frames and agents (structured arrays), by the format's rules and against the truth."""
    official, found = opened(), set()
    scenes, frames, agents = (arrays[name] for name in ("scenes", "frames", "agents"))
    if any(arrays[f"{name}s"].dtype != official[f"{name}_kind"].dtype for name in ("scene", "frame", "agent")):
        return {"types"}
    if attributes != {"format_version": 2, "labels": official["labels"].tolist()}:
        found.add("attributes")
    for intervals, of in ((scenes["frame_index_interval"], frames), (frames["agent_index_interval"], agents)):
        ends = intervals.reshape(-1)
        if ends[0] != 0 or ends[-1] != len(of) or (ends[1:-1:2] != ends[2::2]).any() or (np.diff(ends) < 0).any():
            found.add("intervals")
    if agents["track_id"].max() >= 2**63:
        found.add("tracks")
    for number, record in enumerate(scenes):
        scene = Scene(RECIPES[number])
        part = frames[slice(*record["frame_index_interval"])]
        if (np.diff(part["timestamp"]) <= 0).any() or (part["timestamp"][0], part["timestamp"][-1]) != (
            record["start_time"],
            record["end_time"],
        ):
            found.add("time")
        for frame in part[3:-3:5]:  # at the ends the pose at the time of the scan is not known
            found |= faults_of_frame(scene, number, frame, agents, origin)
    return found


def faults_of_frame(scene, number, frame, agents, origin):
    found, time = set(), int(frame["timestamp"])
    if (
        np.abs(frame["ego_translation"] - east_north_up(scene.position(time), origin)).max() > 0.002
    ):  # a fix every metre of a curve
        found.add("translation")
    if np.abs(frame["ego_rotation"] - turn(scene, time)).max() > 0.001:
        found.add("rotation")
    here = agents[slice(*frame["agent_index_interval"])]
    things = sorted(scene.things(time), key=lambda thing: thing.number)
    if len(here) != len(things):
        return found | {"number"}
    for thing in things:
        centre = truth_of(scene, thing.number, scan_of(scene, time), origin)[:2]
        agent = here[np.argmin(np.linalg.norm(here["centroid"] - centre, axis=1))]
        step = 10**9 // 15  # between frames
        scans = (scan_of(scene, time + step), scan_of(scene, time - step))
        ahead, behind = (truth_of(scene, thing.number, scan, origin)[:2] for scan in scans)
        width, height = thing.size[1:]
        name = {"car": "PERCEPTION_LABEL_CAR", "person": "PERCEPTION_LABEL_PEDESTRIAN"}[thing.label]
        share = opened()["labels"].tolist().index(name)
        checks = {
            "place": np.linalg.norm(agent["centroid"] - centre) < 0.03,
            "velocity": np.linalg.norm(agent["velocity"] - (ahead - behind) / (2 * step / 1e9)) < 0.5,
            "yaw": abs(math.remainder(agent["yaw"] - scene.yaw(time), math.tau)) < 0.005,
            "extent": np.allclose(agent["extent"], (width, width, height)),  # fusion knows no length
            "label": agent["label_probabilities"][share] == agent["label_probabilities"].sum() == 1,
        }
        found |= {name for name, kept in checks.items() if not kept}
    return found
