# SPDX-License-Identifier: Apache-2.0
"""L5Kit: the report, labels, what is refused, and tracks."""

import json
import math

import numpy as np
import polars as pl
import pytest
from calibrated import calibrated
from l5kit_truth import PLACED

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.l5kit.write import LONGEST_GAP
from edgefirst_ros.export.l5kit.zarr2 import RecordArray


def test_the_report_says_where_everything_went(boxed, exported):
    lines = {line["what"]: line for line in json.loads((exported / "export-report.json").read_text())["lines"]}
    assert set(boxed.annotation_columns) <= lines.keys()
    boxes = boxed.annotations["box3d"].drop_nulls().len()
    assert lines["box3d"]["number"] == boxes
    assert "height" in lines["box3d"]["lost"]
    for kind in ("camera.jpeg", "radar.png", "radar.pcd", "lidar.pcd"):
        assert (lines[kind]["where"], lines[kind]["lost"], lines[kind]["number"]) == ("", "has no place there", 120)
    assert lines["samples without a pose"]["number"] == 120 - 2 * PLACED
    assert lines["samples"]["number"] == 2 * PLACED


def test_boxes_of_samples_without_a_pose_are_said(boxed, tmp_path):
    there = boxed.annotations.drop_nulls("box3d")
    first = pl.col("frame") < 30
    boxed.frames = boxed.frames.with_columns(
        latitude=pl.when(first).then(None).otherwise(pl.col("latitude")),
    )
    report = export(boxed, "l5kit", tmp_path / "out").report
    kept = boxed.frames.drop_nulls(["latitude", "orientation"]).select("name", "frame")
    number = len(there) - len(there.cast({"name": pl.String}).join(kept, ["name", "frame"]))
    assert number > 0
    (line,) = (line for line in report.lines if line.what == "box3d")
    assert f"{number} of samples that are dropped" in line.lost


@pytest.mark.parametrize(("given", "number"), [("TRUCK", 7), ("PERCEPTION_LABEL_ANIMAL", 15), ("cyclist", 12)])
def test_labels_by_a_map(boxed, tmp_path, given, number):
    export(boxed, "l5kit", tmp_path / "out", labels={"car": given})
    shares = RecordArray(tmp_path / "out" / "scenes.zarr" / "agents")
    found = np.argmax(shares.read(0, len(shares))["label_probabilities"], axis=1)
    assert set(found.tolist()) == {14, number}


def test_labels_without_a_class_are_unknown_and_said(boxed, tmp_path):
    renamed = boxed.annotations.with_columns(label=pl.col("label").cast(str).replace("car", "sofa"))
    scores = pl.when(pl.col("box3d").is_not_null()).then(0.25).cast(pl.Float32)
    boxed.annotations = renamed.with_columns(box3d_score=scores)
    lines = export(boxed, "l5kit", tmp_path / "out").report.lines
    (label,) = (line for line in lines if line.what == "label")
    assert "sofa" in label.lost
    reader = RecordArray(tmp_path / "out" / "scenes.zarr" / "agents")
    shares = reader.read(0, len(reader))["label_probabilities"]
    assert {tuple(np.flatnonzero(row).tolist()) for row in shares} == {(1,), (1, 14)}
    assert set(shares[shares[:, 14] > 0, 14].tolist()) == {0.25}
    assert shares.sum(1) == pytest.approx(1)
    restore(tmp_path / "out", "l5kit", tmp_path / "back")
    back = pl.read_ipc(tmp_path / "back" / "out.arrow").drop_nulls("box3d")
    assert set(back["label"].cast(str)) == {None, "pedestrian"}
    assert set(back.filter(pl.col("label").cast(str) == "pedestrian")["box3d_score"].to_list()) == {0.25}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"to": "l5kit", "labels": {"car": "sofa"}}, r"'sofa' for 'car' is not a class"),
        ({"to": "roverd", "labels": {"car": "CAR"}}, r"'labels' \(--label-map\) for roverd; it is one of l5kit"),
        ({"to": "l5kit", "store": "itar"}, r"'store' \(--store\) for l5kit; it is one of ncore"),
        ({"to": "kitti"}, "--to: expected one of coco, yolo, ncore, l5kit, roverd"),
    ],
)
def test_what_cannot_be_asked_for(boxed, tmp_path, options, says):
    with pytest.raises(UsageError, match=says):
        export(boxed, out=tmp_path / "out", **options)
    assert not list(tmp_path.iterdir())


def test_without_poses_nothing_is_written(boxed, tmp_path):
    boxed.frames = boxed.frames.with_columns(latitude=pl.lit(None, pl.Float64))
    with pytest.raises(DatasetError, match="both a position and an attitude"):
        export(boxed, "l5kit", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_boxes_need_no_transforms(boxed_path, tmp_path):
    """They are in the axes of the vehicle."""
    dataset = calibrated(Dataset(boxed_path), static_transforms=[])
    lines = {line.what: line for line in export(dataset, "l5kit", tmp_path / "out").report.lines}
    assert lines["(estimated)"].number > 0


def test_boxes_without_tracks_have_no_velocity(boxed_path, tmp_path):
    export(boxed_path, "l5kit", tmp_path / "out")  # fusion names each box anew in each frame
    reader = RecordArray(tmp_path / "out" / "scenes.zarr" / "agents")
    assert not reader.read(0, len(reader))["velocity"].any()


def test_no_velocity_over_long_gaps(boxed, tmp_path):
    """Of two sightings further apart than is looked back: none of either."""
    ends = pl.col("frame").is_in([5, 5 + math.ceil(LONGEST_GAP * 15) + 2]) | pl.col("box3d").is_null()
    boxed.annotations = boxed.annotations.filter(ends)
    export(boxed, "l5kit", tmp_path / "out")
    reader = RecordArray(tmp_path / "out" / "scenes.zarr" / "agents")
    assert len(reader) == 16
    assert not reader.read(0, 16)["velocity"].any()


def test_a_track_is_once_in_a_frame_and_broken_boxes_are_left_out(boxed_path, tmp_path):
    dataset = Dataset(boxed_path)
    boxes = dataset.annotations.filter(pl.col("box3d").is_not_null() & (pl.col("frame") < 5))
    twice = boxes.with_columns(object_id=pl.lit("same"))
    nameless = boxes.with_columns(object_id=pl.lit(None, pl.String))
    broken = boxes.with_columns(box3d=pl.lit([1, 2, float("nan"), 4, 5, 6], pl.Array(pl.Float32, 6)))
    dataset.annotations = pl.concat([twice, nameless, broken])
    lines = {line.what: line for line in export(dataset, "l5kit", tmp_path / "out").report.lines}
    assert f"{2 * 4 * 4} that are not finite" in lines["box3d"].lost  # of frames 1 to 4 in two scenes, 4 things each
    reader = RecordArray(tmp_path / "out" / "scenes.zarr" / "frames")
    agents = RecordArray(tmp_path / "out" / "scenes.zarr" / "agents")
    first, second = (reader.read(n, n + 1)[0]["agent_index_interval"] for n in (0, 1))
    one, other = (agents.read(*map(int, span))["track_id"].tolist() for span in (first, second))
    assert sorted(one) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert set(one) & set(other) == {1, 2, 3, 4}  # those that are named go on
