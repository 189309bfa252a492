# SPDX-License-Identifier: Apache-2.0
"""NCore: datasets of other tools, of which a part has no home there: told in the report."""

import io
import json

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from late import late
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export
from edgefirst_ros.export.ncore import components

data = late("ncore.data", reason="nvidia-ncore is not installed")
v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

WIDTH, HEIGHT = made.SIZE


def placed(parts, *frames):
    """Give a position and an attitude to these frames alone."""
    for row in parts.frames:
        known = row["frame"] in frames
        row |= {name: value if known else None for name, value in (("latitude", 45.5), ("longitude", -73.6))}
        row["orientation"] = (0.0, 0.0, 0.0, 1.0) if known else None


def dataset_of(folder, change):
    parts = made.good()
    change(parts)
    return Dataset(made.write(folder / "in", parts))


def exported(dataset, out):
    """The lines of the report, by what was exported."""
    return {line.what: line for line in export(dataset, "ncore", out).report.lines}


def loader(folder):
    (summary,) = folder.glob("*/*.json")
    return v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))


def png(values):
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def test_a_sample_without_a_position_between_others_is_in_the_camera(tmp_path):
    dataset = dataset_of(tmp_path, lambda parts: placed(parts, 3, 7))
    lines = exported(dataset, tmp_path / "out")
    assert lines["samples without a position between others"].number == 1
    assert "samples before the first and after the last position" not in lines
    camera = loader(tmp_path / "out").get_camera_sensor("camera")
    assert camera.frames_timestamps_us[:, 1].tolist() == [made.stamp_of(frame) // 1000 for frame in made.FRAMES]


def test_pictures_of_the_lidar_and_depth_of_8_bits_are_kept_as_they_are(tmp_path):
    extra = {
        made.name_of(3, "lidar.png"): png(np.full((4, 4), 500, np.uint16)),
        made.name_of(3, "depth.png"): png(np.full((HEIGHT, WIDTH), 200, np.uint8)),
        made.name_of(4, "depth.png"): png(np.full((HEIGHT, WIDTH), 1500, np.uint16)),
    }
    dataset = dataset_of(tmp_path, lambda parts: parts.members.update(extra))
    lines = exported(dataset, tmp_path / "out")
    assert (lines["lidar.png"].number, lines["lidar.png"].lost) == (1, "has no place in NCore")
    assert (lines["depth without a place"].number, lines["depth without a place"].lost) == (1, "no 16-bit grayscale")
    assert lines["depth"].number == 1
    (source,) = loader(tmp_path / "out").query_camera_labels("camera", data.LabelType.DEPTH_Z_M)
    (stamp,) = source.label_timestamps_us.tolist()
    assert stamp == made.stamp_of(4) // 1000
    assert np.allclose(source.get_label(stamp).get_data(), 1.5)  # m


def clouds_without_places(parts):
    for frame in made.FRAMES:
        parts.members[made.name_of(frame, "lidar.pcd")] = made.cloud(frame, 3, 2, "a b c reflect")


def test_clouds_without_places_are_counted(tmp_path):
    dataset = dataset_of(tmp_path, clouds_without_places)
    lines = exported(dataset, tmp_path / "out")
    line = lines["lidar.pcd without a place"]
    assert (line.number, line.lost) == (2, "has no x, y and z")
    assert "lidar.pcd" not in lines
    assert loader(tmp_path / "out").lidar_ids == []


BOX = [10, -1, 2, 4, 2, 1.5]


def boxed(parts):
    """Give a box in space to the first annotation."""
    parts.annotation_schema = parts.annotation_schema.append(pa.field("box3d", pa.list_(pa.float32(), 6)))
    parts.annotations[0]["box3d"] = BOX


def test_a_message_outside_of_several_samples_is_counted_once(tmp_path):
    def change(parts):
        placed(parts, *made.FRAMES)
        names = [made.name_of(frame, "lidar.pcd") for frame in made.FRAMES]
        cloud = next(parts.members[name] for name in names if name in parts.members)
        parts.members |= dict.fromkeys(names, cloud)
        for row, at in zip(parts.frames, (0, made.STEP * 1000, made.STEP * 1000), strict=True):
            row |= {"lidar_points_timestamp": parts.frames[0]["timestamp"] + at, "lidar_points_skew": 0}

    found = export(dataset_of(tmp_path, change), "ncore", tmp_path / "out").report.lines
    told = {line.what: line.number for line in found if line.what in ("lidar.pcd", "lidar.pcd outside")}
    assert told == {"lidar.pcd": 1, "lidar.pcd outside": 1}


def test_boxes_need_no_sensor(tmp_path):
    """Without any cloud that has places, they are in the axes of the vehicle all the same."""

    def change(parts):
        clouds_without_places(parts)
        boxed(parts)

    assert exported(dataset_of(tmp_path, change), tmp_path / "out")["boxes"].number == 1
    opened = loader(tmp_path / "out")
    (seen,) = opened.get_cuboid_track_observations()
    assert (seen.reference_frame_id, seen.bbox3.centroid, seen.bbox3.dim) == ("rig", (10, -1, 2), (4, 2, 1.5))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_boxes_that_are_not_finite_are_counted(tmp_path, value):
    dataset = dataset_of(tmp_path, boxed)
    boxes = [BOX, [*BOX[:5], value], [value, *BOX[1:]], *[None] * (len(dataset.annotations) - 3)]
    column = pl.Series(boxes, dtype=pl.Array(pl.Float32, 6))
    dataset.annotations = dataset.annotations.with_columns(box3d=column)
    lines = exported(dataset, tmp_path / "out")
    assert (lines["boxes"].number, lines["boxes not finite"].number) == (1, 2)
    (seen,) = loader(tmp_path / "out").get_cuboid_track_observations()
    assert seen.bbox3.centroid == (10, -1, 2)


def test_a_picture_without_a_size_that_is_none_is_named(tmp_path):
    def change(parts):
        placed(parts, *made.FRAMES)
        parts.members[made.name_of(3, "camera.jpeg")] = b"no picture"
        for row in parts.frames:
            row["size"] = None

    with pytest.raises(DatasetError, match=f"'{made.SEQUENCE}': frame 3: the picture cannot be read: .*no JPEG"):
        exported(dataset_of(tmp_path, change), tmp_path / "out")


def test_more_instances_than_their_numbers_can_tell_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(components, "MOST_INSTANCES", 1)
    whole = np.full((HEIGHT, WIDTH), 255, np.uint8)

    def change(parts):
        placed(parts, *made.FRAMES)
        row = {"name": made.SEQUENCE, "frame": 3, "label": "car", "box2d": [0.5, 0.5, 1, 1], "mask": png(whole)}
        parts.annotations = [row, dict(row)]

    lines = exported(dataset_of(tmp_path, change), tmp_path / "out")
    assert lines["instances"].number == 1
    assert lines["masks without a place"].number == 1


def test_sequences_that_would_have_one_folder_are_refused(tmp_path):
    """A colon is none of a folder's name on every system, and becomes an underscore."""

    def twice(parts):
        whole, parts.members = parts.members, {}
        rows, parts.frames, parts.annotations = parts.frames, [], []
        for name in ("host:x", "host_x"):
            parts.members |= {member.replace(made.SEQUENCE, name): data for member, data in whole.items()}
            parts.frames += [row | {"name": name} for row in rows]
        known = {key: json.loads(parts.frames_metadata[key]) for key in ("camera_info", "static_transforms")}
        facts = {"sources": [0], "time_base": {"base": "header", "topics": {}}, "counts": {}, **known}
        parts.frames_metadata["sequences"] = json.dumps(dict.fromkeys(("host:x", "host_x"), facts))

    with pytest.raises(DatasetError, match=r"'host_x' and another sequence have the same folder name"):
        export(dataset_of(tmp_path, twice), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()
