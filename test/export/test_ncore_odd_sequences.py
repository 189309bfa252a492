# SPDX-License-Identifier: Apache-2.0
"""NCore: sequences of others with sensors, labels and pictures that a dataset has no place for, or that are broken."""

import io
from dataclasses import replace

import numpy as np
import pytest
from late import late
from PIL import Image
from small_camera import small_camera

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import restore
from edgefirst_ros.export.ncore import library
from edgefirst_ros.export.ncore.components import make_camera_info

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

US = 1_700_000_000_000_000
SIZE = (8, 6)
STAMPS = [US + 100_000, US + 200_000]
"""Of the two pictures, µs."""


def picture(form):
    file = io.BytesIO()
    Image.new("L", SIZE).save(file, form)
    return file.getvalue()


def sequence(
    folder,
    add=lambda new, lib: None,
    *,
    poses=True,
    forms=("png", "png"),
    name="x",
    told=None,
    model=None,
    frame_told=None,
):
    """A sequence of two pictures; `add` registers further components."""
    lib = library.load_library()
    writer = v4.SequenceComponentGroupsWriter(
        lib.UPath(folder), name, name, lib.HalfClosedInterval(US, US + 1_000_001), told or {}, "directory"
    )
    new = writer.register_component_writer
    if poses:
        way = new(v4.PosesComponent.Writer, "default")
        ends = np.array([US, US + 1_000_000], np.uint64)
        way.store_dynamic_pose("rig", "world", np.repeat(np.eye(4)[None], 2, 0), ends)
        way.store_static_pose("left", "rig", np.eye(4))
    new(v4.IntrinsicsComponent.Writer, "default").store_camera_intrinsics("left", model or small_camera(lib))
    camera = new(v4.CameraSensorComponent.Writer, "left")
    for stamp, form in zip(STAMPS, forms, strict=True):
        camera.store_frame(picture(form), form, np.array([stamp] * 2, np.uint64), {}, frame_told or {})
    add(new, lib)
    writer.finalize()
    return folder


def restored(source, out):
    """The dataset of the one camera, and the lines of the report by what was imported."""
    done = restore(source, "ncore", out)
    (path,) = out.glob("*.zip")
    return Dataset(path), {line.what: line for line in done.report.lines}


def labels(new, lib, kind, dtype, values, *, suffix=()):
    """Add camera labels of the first picture: an array, or the bytes of a PNG file."""
    packed = isinstance(values, bytes)
    form = (lib.LabelEncoding.IMAGE_ENCODED, "png") if packed else (lib.LabelEncoding.RAW, None)
    schema = lib.LabelSchema(np.dtype(dtype), suffix, *form, None)
    descriptor = lib.CameraLabelDescriptor("left", kind, schema, lib.LabelSource.EXTERNAL)
    writer = new(v4.CameraLabelsComponent.Writer, descriptor.default_instance_name, descriptor=descriptor)
    writer.store_label(values if packed else np.asarray(values, dtype), STAMPS[0], {})


# ---- sensors -------------------------------------------------------------------------------------
def test_further_lidars_are_instances_and_clouds_without_a_sensor_are_told(tmp_path):
    def add(new, lib):
        way = np.array([[1, 0, 0]], "f4")
        for n, name in enumerate(("low", "top")):
            stamps = np.array([STAMPS[0]] * 2, np.uint64)
            range_, one = np.array([[5 + n]], "f4"), np.ones((1, 1), "f4")
            new(v4.LidarSensorComponent.Writer, name).store_frame(way, stamps[:1], None, range_, one, stamps, {}, {})
        unit = lib.PointCloud.CoordinateUnit.METERS
        clouds = new(v4.PointCloudsComponent.Writer, "map", coordinate_unit=unit)
        clouds.store_pc(way, "world", US)

    dataset, lines = restored(sequence(tmp_path / "in", add), tmp_path / "out")
    assert [lines[name].where for name in ("low", "top")] == ["lidar.pcd", "lidar-top.pcd"]
    assert lines["map"].lost == "point clouds without a sensor have no place"
    first = next(iter(dataset.samples()))
    assert [first.lidar(key)["x"].tolist() for key in ("lidar.points", "lidar.points.top")] == [[5], [6]]
    assert first.row["lidar_points_top_timestamp"] == STAMPS[0] * 1000


def test_a_sequence_without_poses_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="NCore sequence 'x' has no component poses"):
        restore(sequence(tmp_path / "in", poses=False), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pictures_that_are_neither_jpeg_nor_png_are_left_out(tmp_path):
    dataset, lines = restored(sequence(tmp_path / "in", forms=("webp", "png")), tmp_path / "out")
    assert (lines["pictures"].number, lines["pictures"].lost) == (1, "neither JPEG nor PNG")
    assert [sample.timestamp for sample in dataset.samples()] == [STAMPS[1] * 1000]


def test_a_box_in_a_frame_that_no_pose_reaches_is_counted(tmp_path):
    def add(new, lib):
        box = lib.BBox3((5.0, 0.0, 0.0), (4.0, 2.0, 1.0), (0.0, 0.0, 0.0))
        seen = [
            lib.CuboidTrackObservation(name, "car", STAMPS[0], frame, STAMPS[0], box, lib.LabelSource.EXTERNAL)
            for name, frame in (("a", "left"), ("b", "trailer"))
        ]
        new(v4.CuboidsComponent.Writer, "default").store_observations(seen)

    dataset, lines = restored(sequence(tmp_path / "in", add), tmp_path / "out")
    assert (lines["cuboids"].number, lines["cuboids without a picture"].number) == (1, 1)
    # In the axes of the camera, as there is neither a lidar nor a radar.
    assert [list(box) for box in dataset.annotations["box3d"].drop_nulls()] == [[5, 0, 0, 4, 2, 1]]


def test_what_of_a_camera_has_no_place_is_counted(tmp_path):
    """Masks of the vehicle itself, a rolling shutter, metadata of the sequence and of frames."""

    def add(new, lib):
        new(v4.MasksComponent.Writer, "default").store_camera_masks(
            "left", {"ego": Image.new("L", (8, 6)), "sky": Image.new("L", (8, 6))}
        )

    rolling = replace(
        small_camera(library.load_library()), shutter_type=library.load_library().ShutterType.ROLLING_TOP_TO_BOTTOM
    )
    folder = sequence(
        tmp_path / "in", add, told={"weather": "rain", "town": "x"}, model=rolling, frame_told={"gain": 3}
    )
    dataset, lines = restored(folder, tmp_path / "out")
    assert {what: lines[what].number for what in ("camera masks", "shutters", "generic metadata")} == {
        "camera masks": 2,
        "shutters": 1,
        "generic metadata": 4,
    }
    assert validate(dataset.paths.container).ok


def test_a_pinhole_without_distortion_has_five_zeros():
    """The centre of the first pixel is (0.5, 0.5) in NCore, and (0, 0) in ROS."""
    lib = library.load_library()
    model = lib.IdealPinholeCameraModelParameters(
        resolution=np.array(SIZE, np.uint64),
        shutter_type=lib.ShutterType.GLOBAL,
        principal_point=np.array([4.5, 3.5], "f4"),
        focal_length=np.array([5, 6], "f4"),
    )
    found = make_camera_info(model, "left")
    assert (found["distortion_model"], found["d"]) == ("plumb_bob", [0.0] * 5)
    assert found["k"] == [5, 0, 4, 0, 6, 3, 0, 0, 1]
    assert (found["width"], found["height"], found["frame_id"]) == (8, 6, "left")


# ---- labels of pictures --------------------------------------------------------------------------
def test_labels_of_other_kinds_are_counted(tmp_path):
    def add(new, lib):
        flow = np.zeros((6, 8, 2))
        labels(new, lib, lib.LabelType.FLOW_OPTICAL_FORWARD_PX, "f4", flow, suffix=(2,))
        depths = np.full((6, 8), 1.25)
        depths[0, :4] = np.nan, 0.0, np.inf, 70.0
        labels(new, lib, lib.LabelType.DEPTH_Z_M, "f4", depths)

    dataset, lines = restored(sequence(tmp_path / "in", add), tmp_path / "out")
    assert (lines["labels"].number, lines["depth"].number) == (1, 1)
    first = next(iter(dataset.samples()))
    found = np.asarray(Image.open(io.BytesIO(first.read("depth"))))
    assert found[0].tolist() == [0, 0, 0, 65535, *[1250] * 4]  # unknown is 0; mm have 16 bits
    assert np.array_equal(found[1:], np.full((5, 8), 1250))


@pytest.mark.parametrize("largest", [255, 256])
def test_classes_over_255_have_no_mask(tmp_path, largest):
    classes = np.zeros((6, 8))
    classes[2, 3] = largest

    def add(new, lib):
        labels(new, lib, lib.LabelType.SEGMENTATION_SEMANTIC, "u2", classes)

    dataset, lines = restored(sequence(tmp_path / "in", add), tmp_path / "out")
    masks = dataset.annotations["mask"].drop_nulls().to_list()
    if largest == 255:
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(masks[0]))), classes)
        assert (lines["classes"].number, "labels" in lines) == (1, False)
    else:
        assert masks == []
        assert (lines["labels"].number, "classes" in lines) == (1, False)


def test_labels_that_cannot_be_read_are_counted_and_the_picture_is_taken(tmp_path):
    def add(new, lib):
        labels(new, lib, lib.LabelType.SEGMENTATION_INSTANCE, "u2", picture("PNG")[:40])  # it ends before its pixels

    dataset, lines = restored(sequence(tmp_path / "in", add), tmp_path / "out")
    assert (lines["broken labels"].number, lines["broken labels"].lost) == (1, "they cannot be read")
    assert "instances" not in lines
    assert len(dataset) == 2
