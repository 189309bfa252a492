# SPDX-License-Identifier: Apache-2.0
"""Exports of datasets whose tables lack columns, or values, that a table of ours always has."""

import itertools

import numpy as np
import polars as pl
import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export
from edgefirst_ros.synthetic import TOPICS

RECIPE = {"seconds": 1, "fps": 6.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
RECIPE |= {"cube_shape": (1, 8, 2, 8), "topics": frozenset(TOPICS - {"radar/clusters"})}
NEEDED = {
    "ncore": {"timestamp", "latitude", "longitude", "orientation"},
    "l5kit": {"timestamp", "latitude", "longitude", "orientation"},
    "roverd": {"timestamp"},
}


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    return convert(recording(**RECIPE), tmp_path_factory.mktemp("whole"), name="drive").paths.container


def columns(path, table):
    return [name for name in getattr(Dataset(path), table).columns if name not in ("name", "frame")]


@pytest.mark.parametrize("system", ["ncore", "l5kit", "roverd"])
def test_frames_without_a_column(path, tmp_path, system):
    if system == "ncore":
        pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    refused = set()
    for name in columns(path, "frames"):
        dataset = Dataset(path)
        dataset.frames = dataset.frames.drop(name)
        try:
            export(dataset, system, tmp_path / name)
        except DatasetError:
            refused.add(name)
    assert refused == NEEDED[system]


@pytest.mark.parametrize("system", ["ncore", "l5kit", "roverd"])
def test_annotations_with_a_column_that_nobody_filled(path, tmp_path, system):
    if system == "ncore":
        pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    names = columns(path, "annotations")
    # half of them at a time, so that for each two there is a half with the one and without the other
    for bit, on in itertools.product(range(len(names).bit_length()), (0, 1)):
        dataset = Dataset(path)
        schema = dataset.annotations.schema
        half = [pl.lit(None, schema[name]).alias(name) for n, name in enumerate(names) if n >> bit & 1 == on]
        dataset.annotations = dataset.annotations.with_columns(half)
        assert export(dataset, system, tmp_path / f"{bit}-{on}").exit_code == 0


def test_places_without_an_altitude(path, tmp_path):
    dataset = Dataset(path)
    dataset.frames = dataset.frames.drop("altitude")
    export(dataset, "roverd", tmp_path / "out")
    (sensor,) = (tmp_path / "out").glob("*/_gps")
    found = np.fromfile(sensor / "lla", "<f8").reshape(-1, 3)
    known = dataset.frames.drop_nulls("latitude")
    assert found[:, 0].tolist() == known["latitude"].to_list()
    assert found[:, 1].tolist() == known["longitude"].to_list()
    assert np.isnan(found[:, 2]).all()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("longitude", pl.lit(None, pl.Float64)),
        ("latitude", pl.lit(float("nan"))),
        ("orientation", pl.lit([0.0] * 4, pl.Array(pl.Float64, 4))),
        ("orientation", pl.lit([0.0, 0.0, 0.0, float("nan")], pl.Array(pl.Float64, 4))),
    ],
)
def test_half_a_pose_is_none(path, tmp_path, column, value):
    """In a table that others wrote: no number that is not finite goes into a pose."""
    dataset = Dataset(path)
    third = pl.when(pl.col("frame") == 3).then(value).otherwise(pl.col(column))
    dataset.frames = dataset.frames.with_columns(third.alias(column))
    with_pose = len(dataset.frames.drop_nulls(["latitude", "orientation"]).filter(pl.col("frame") != 3))
    report = export(dataset, "l5kit", tmp_path / "out").report
    assert {line.what: line.number for line in report.lines}["samples"] == with_pose
