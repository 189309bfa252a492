# SPDX-License-Identifier: Apache-2.0
"""NCore V4: boxes in space have the time of the points that they were found in."""

import polars as pl
import pytest
from calibrated import calibrated
from late import late

from edgefirst_ros import Dataset, convert
from edgefirst_ros.export import export
from edgefirst_ros.synthetic import TOPICS

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")


RECIPE = {"seconds": 2, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "topics": TOPICS - {"radar/cube"}}


@pytest.mark.parametrize(
    ("radar", "sensor", "column"),
    [
        ("targets", "lidar", "lidar_points_timestamp"),
        ("targets", "radar", "radar_targets_timestamp"),
        ("clusters", "radar", "radar_clusters_timestamp"),
    ],
)
def test_boxes_are_of_their_points_time(recording, tmp_path, radar, sensor, column):
    dataset = Dataset(convert(recording(**RECIPE), tmp_path / "in", radar_points=radar).paths.container)
    if sensor == "radar":  # boxes lie at the lidar where there is one
        without = [known for known in dataset.metadata["static_transforms"] if known["child"] != "lidar"]
        calibrated(dataset, static_transforms=without)
        dataset.members = lambda key, ask=dataset.members: {k: n for k, n in ask(key).items() if k != "lidar.pcd"}
        dataset.frames = dataset.frames.drop("lidar_points_timestamp")
    export(dataset, "ncore", tmp_path / "out")
    (summary,) = (tmp_path / "out").glob("*/*.json")
    loader = v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))
    seen = list(loader.get_cuboid_track_observations())
    measured = {stamp // 1000 for stamp in dataset.frames[column].drop_nulls().to_list()}
    samples = {stamp // 1000 for stamp in dataset.frames["timestamp"].to_list()}
    assert len(measured - samples) > 10
    assert len(seen) > 10
    assert {one.reference_frame_id for one in seen} == {sensor}
    assert {one.timestamp_us for one in seen} <= measured


def test_every_box_is_told_of(recording, tmp_path):
    """Also those of samples without a pose: measured where there is one, they are cuboids, else counted."""
    dataset = Dataset(convert(recording(**RECIPE), tmp_path / "in").paths.container)
    known = pl.when(pl.col("frame").is_between(7, 13)).then(pl.col("latitude"))
    dataset.frames = dataset.frames.with_columns(known.alias("latitude"))
    report = export(dataset, "ncore", tmp_path / "out").report
    said = {line.what: line.number for line in report.lines}
    boxes = dataset.annotations.drop_nulls("box3d")
    assert said["boxes"] + said.get("boxes again", 0) + said["boxes outside"] == len(boxes)
    start, stop = (row // 1000 for row in dataset.frames.drop_nulls("latitude")["timestamp"].sort()[[0, -1]])
    times = dict(dataset.frames.select("frame", "lidar_points_timestamp").iter_rows())
    there = {(times[row["frame"]], *row["box3d"]) for row in boxes.to_dicts()}
    assert said["boxes"] == sum(start <= time // 1000 <= stop for time, *_ in there)
