# SPDX-License-Identifier: Apache-2.0
"""`view` of datasets and recordings with faults: what is left is logged, what is not is noted."""

import io
import os
import re
import struct

import handmade_dataset as made
import numpy as np
import pytest
from bags import messages, write
from late import late
from logged import rows
from PIL import Image

from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.report.view.run import view

late("rerun", reason="rerun-sdk is not installed")

CAMERA = {"seconds": 1, "size": (160, 96), "fps": 10.0, "gop": 5, "topics": {"camera"}}
GARBAGE = b"neither a picture nor points"


def logged(folder, parts, **options):
    """Outcome and rows of a dataset that is made of parts."""
    done = view(made.write(folder, parts), save=folder / "x.rrd", **options)
    return done, rows(folder / "x.rrd")


def test_members_that_cannot_be_read_are_noted_and_the_others_logged(tmp_path):
    parts = made.good()
    for frame, kind in ((3, "radar.pcd"), (4, "radar.png"), (7, "lidar.pcd")):
        parts.members[made.name_of(frame, kind)] = GARBAGE
    done, found = logged(tmp_path, parts)
    assert done.samples == 3
    assert [note.partition(":")[0] for note in done.notes] == [
        "radar.targets of frame 3", "radar.cube of frame 4", "lidar.points of frame 7"
    ]  # fmt: skip
    assert found["/camera/image", "EncodedImage:blob"] == 3
    assert found["/lidar", "Points3D:positions"] == 2
    assert found["/cube", "Tensor:data"] == 1
    assert ("/radar", "Points3D:positions") not in found


def test_unfinished_datasets_beside_the_one_that_is_shown_are_noted(tmp_path):
    made.write(tmp_path / "in", made.good())
    (tmp_path / "in" / "new.zip.partial").write_bytes(b"PK")
    done = view(tmp_path / "in", save=tmp_path / "x.rrd")
    place = tmp_path / "in" / "new"
    assert (done.samples, done.notes) == (3, [f"{place} is unfinished: edgefirst-ros recover {place} completes it"])


def test_a_mask_that_is_garbage_is_noted_and_the_others_are_logged(tmp_path):
    parts = made.good()
    parts.annotations[1]["mask"] = GARBAGE
    done, found = logged(tmp_path, parts, only=["model"])
    (note,) = done.notes
    assert re.match(r"a mask .*cannot be read|mask .*: a mask cannot be read", note)
    assert found["/camera/boxes", "Boxes2D:centers"] == found["/camera/masks", "SegmentationImage:buffer"] == 1


def test_masks_of_another_size_than_the_picture_are_left_out(tmp_path):
    parts, small = made.good(), io.BytesIO()
    Image.fromarray(np.full((4, 4), 255, np.uint8)).save(small, "PNG")
    for row in parts.annotations[:3]:
        row["mask"] = small.getvalue()
    done, found = logged(tmp_path, parts, only=["model"])
    assert done.notes == []
    assert found["/camera/boxes", "Boxes2D:centers"] == 1
    assert ("/camera/masks", "SegmentationImage:buffer") not in found


def test_without_masks_and_labels_boxes_are_logged_alone(tmp_path):
    parts = made.good()
    for name in ("mask", "label"):
        parts.annotation_schema = parts.annotation_schema.remove(parts.annotation_schema.get_field_index(name))
    _, found = logged(tmp_path, parts, only=["model"])
    assert found["/camera/boxes", "Boxes2D:centers"] == 1
    assert ("/camera/masks", "SegmentationImage:buffer") not in found


def test_boxes_of_pictures_whose_size_nobody_says_are_not_logged(tmp_path):
    parts = made.good()
    del parts.frames_metadata["camera_info"]
    for row in parts.frames:
        row["size"] = None
    _, found = logged(tmp_path, parts)
    assert found["/camera/image", "EncodedImage:blob"] == 3
    assert not [entity for entity, _ in found if entity.startswith("/camera/boxes")]


# ---- recordings --------------------------------------------------------------------------------
def camera(recording, path, change):
    """A recording of ten access units, two of them keyframes, with the CDR of some changed by number."""
    found = messages(recording(**CAMERA))
    assert len(found) == 10
    for number, (_, _, message) in enumerate(found):
        message.data = change(number, message.data)
    return write(path, found)


def test_a_message_that_cannot_be_decoded_is_left_out_of_the_video(recording, tmp_path):
    path = camera(recording, tmp_path / "r.mcap", lambda number, data: b"\0\1\0\0" if number == 3 else data)
    done = view(path, save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    assert found["/camera/video", "VideoStream:sample"] == 9
    assert ("/camera/image", "EncodedImage:blob") not in found
    assert done.samples == 8  # frame 4 needs the one that is gone; from the keyframe at 5 on all are whole


def test_video_is_shown_where_there_is_nothing_beside_it(recording, tmp_path):
    done = view(recording(**CAMERA), save=tmp_path / "x.rrd")
    assert (done.samples, done.entities, done.notes) == (10, ["camera"], [])
    assert rows(tmp_path / "x.rrd")["/camera/video", "VideoStream:sample"] == 10


def test_video_goes_on_where_the_other_sensors_end(recording, tmp_path):
    lost = {"lidar/points": range(3, 10)}
    options = CAMERA | {"topics": {"camera", "lidar/points"}, "lidar_points": 10, "drop": lost}
    done = view(recording(**options), save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    assert (done.samples, found["/camera/video", "VideoStream:sample"]) == (10, 10)
    assert found["/lidar", "Points3D:positions"] == 3
    view(recording(**options), frame=7, save=tmp_path / "y.rrd")
    assert rows(tmp_path / "y.rrd")["/camera/video", "VideoStream:sample"] == 3  # from the keyframe at 5 on


def test_video_whose_stamps_go_back_is_decoded(recording, tmp_path):
    def back(number, data):
        """The stamps of 2 and 3 exchanged, 100 ms apart."""
        seconds, rest = struct.unpack_from("<iI", data, 4)
        moved = seconds * 10**9 + rest + {2: 100_000_000, 3: -100_000_000}.get(number, 0)
        return data[:4] + struct.pack("<iI", *divmod(moved, 10**9)) + data[12:]

    view(camera(recording, tmp_path / "r.mcap", back), save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    assert ("/camera/video", "VideoStream:sample") not in found
    assert found["/camera/image", "EncodedImage:blob"] > 0


# ---- what is refused ---------------------------------------------------------------------------
def test_a_file_and_the_browser_exclude_each_other(tmp_path):
    path = made.write(tmp_path, made.good())
    with pytest.raises(UsageError, match="--save and --web cannot be combined"):
        view(path, save=tmp_path / "x.rrd", web=True)
    assert not (tmp_path / "x.rrd").exists()


def test_a_dataset_with_nothing_that_is_wanted_is_refused_and_leaves_no_file(tmp_path):
    parts = made.good()
    parts.members = {name: data for name, data in parts.members.items() if "radar" not in name}
    for row in parts.frames:
        row.update({name: None for name in row if name.startswith("radar") or name in ("latitude", "longitude")})
    del parts.frames_metadata["static_transforms"]
    path = made.write(tmp_path, parts)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(DatasetError, match=re.escape(f"{path}: it has none of radar.cube")):
        view(path, only=["radar.cube"], save=tmp_path / "x.rrd")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("only", [["camera.right"], ["camera", "camera.right"], ["lidar.points.rear", "model"]])
def test_a_further_sensor_that_the_dataset_does_not_have_is_refused(tmp_path, only):
    paths = made.write(tmp_path, made.good())
    with pytest.raises(UsageError, match=r"unknown sensor '[a-z.]+'; known: .*camera"):
        view(paths, save=tmp_path / "x.rrd", only=only)
    assert not (tmp_path / "x.rrd").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    path = made.write(tmp_path, made.good())
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DatasetError, match=re.escape(f"{tmp_path}/file/x.rrd: cannot be written: ")):
        view(path, save=tmp_path / "file" / "x.rrd")
    assert (tmp_path / "file").read_text() == "mine"
