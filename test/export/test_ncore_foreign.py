# SPDX-License-Identifier: Apache-2.0
"""NCore V4: what sequences and cameras of others are, where something could be lost or taken for another."""

import io

import numpy as np
import pytest
from late import late
from PIL import Image
from small_camera import small_camera

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.ncore import components, library

v4 = late("ncore.data.v4", reason="nvidia-ncore is not installed")

US = 1_700_000_000_000_000
STEP = 100_000
"""Between pictures, µs; the lidar turns twice as fast."""
STILL = np.repeat(np.eye(4)[None], 2, 0)


def png():
    file = io.BytesIO()
    Image.new("L", (8, 6)).save(file, "PNG")
    return file.getvalue()


def sequence(folder, seen, way=STILL, earth=None):
    """Four pictures, a lidar every 50 ms, and cuboids `seen`: (track, µs after the start, x).

    `way`: poses of the vehicle in its world at the start and after 1 s; `earth`: pose of the world in world_global.
    """
    lib = library.load_library()
    writer = v4.SequenceComponentGroupsWriter(
        lib.UPath(folder), "x", "x", lib.HalfClosedInterval(US, US + 1_000_001), {}, "itar"
    )
    new = writer.register_component_writer
    poses = new(v4.PosesComponent.Writer, "default")
    poses.store_dynamic_pose("rig", "world", way, np.array([US, US + 1_000_000], "u8"))
    if earth is not None:
        poses.store_static_pose("world", "world_global", earth)
    for sensor in ("left", "top"):
        poses.store_static_pose(sensor, "rig", np.eye(4))
    new(v4.IntrinsicsComponent.Writer, "default").store_camera_intrinsics("left", small_camera(lib))
    camera, lidar = new(v4.CameraSensorComponent.Writer, "left"), new(v4.LidarSensorComponent.Writer, "top")
    for n in range(4):
        at = np.array([US + STEP * (n + 1)] * 2, np.uint64)
        camera.store_frame(png(), "png", at, {}, {})
    for n in range(1, 9):
        at = np.array([US + STEP // 2 * n] * 2, np.uint64)
        one = np.array([[1, 0, 0]], "f4")
        lidar.store_frame(one, at[:1], None, np.array([[n]], "f4"), np.zeros((1, 1), "f4"), at, {}, {})
    new(v4.CuboidsComponent.Writer, "default").store_observations(
        [
            lib.CuboidTrackObservation(
                track,
                "car",
                US + after,
                "top",
                US + after,
                lib.BBox3((x, 0.0, 0.0), (4.0, 2.0, 1.0), (0.0, 0.0, 0.0)),
                lib.LabelSource.EXTERNAL,
            )
            for track, after, x in seen
        ]
    )
    writer.finalize()
    return folder


def test_of_several_boxes_of_a_track_the_nearest_stays(tmp_path):
    """A lidar twice as fast as the camera: two boxes of each track for a picture."""
    seen = [("a", 200_000, 10.0), ("b", 210_000, 20.0), ("a", 230_000, 11.0), ("b", 240_000, 21.0), ("c", 330_000, 5.0)]
    for order in (seen, seen[::-1]):
        out = tmp_path / f"out{order[0][0]}"
        report = restore(sequence(tmp_path / f"in{order[0][0]}", order), "ncore", out).report
        (path,) = out.glob("*.zip")
        rows = Dataset(path).annotations.drop_nulls("box3d")
        assert sorted((frame, box[0]) for frame, box in rows.select("frame", "box3d").iter_rows()) == [
            (1, 10.0),
            (1, 20.0),
            (2, 5.0),
        ]
        said = {line.what: line.number for line in report.lines}
        assert (said["cuboids"], said["cuboids again"]) == (3, 2)


def test_the_nearest_cloud_and_its_stamp(tmp_path):
    restore(sequence(tmp_path / "in", []), "ncore", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.zip")
    for n, sample in enumerate(Dataset(path).samples()):
        assert sample.row["lidar_points_timestamp"] == sample.timestamp == (US + STEP * (n + 1)) * 1000
        assert sample.lidar()["x"].tolist() == [2 * (n + 1)]


@pytest.mark.parametrize("earth", [None, np.eye(4)])
def test_a_way_that_is_not_on_the_earth_is_that_of_the_poses(tmp_path, earth):
    """As NVIDIA's converters of Waymo's and of its own drives store it."""
    way = STILL @ np.array([[0, -1, 0, 5], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], float)
    way[1, 0, 3] += 10  # m/s
    report = restore(sequence(tmp_path / "in", [], way, earth), "ncore", tmp_path / "out").report
    (path,) = (tmp_path / "out").glob("*.zip")
    dataset = Dataset(path)
    samples = list(dataset.samples())
    np.testing.assert_allclose([s.row["pose_position"] for s in samples], [[6 + n, 0, 0] for n in range(4)], atol=1e-6)
    half = np.sqrt(0.5)
    np.testing.assert_allclose([s.row["pose_orientation"] for s in samples], [[0, 0, half, half]] * 4, atol=1e-6)
    assert dataset.metadata["pose_frame"] == "world"
    assert {line.what: line.number for line in report.lines}["poses"] == 4
    assert not [f for f in validate(path).findings if f.severity == "error"]
    export(path, "ncore", tmp_path / "again")
    restore(tmp_path / "again", "ncore", tmp_path / "back")
    (path,) = (tmp_path / "back").glob("*.zip")
    places = [s.row["pose_position"] for s in Dataset(path).samples()]
    np.testing.assert_allclose(places, [[n, 0, 0] for n in range(4)], atol=1e-6)


@pytest.mark.parametrize("d", [[], [0.0] * 4, [0.0] * 5, [0.25, 0.0, 0.0, 0.0, 0.0]])
def test_a_fisheye_is_one_whatever_its_coefficients(d):
    """Its picture is not that of a pinhole even where all of them are 0."""
    k = [400.0, 0, 320, 0, 400, 180, 0, 0, 1]
    info = {"frame_id": "camera", "width": 640, "height": 360, "distortion_model": "equidistant", "d": d, "k": k}
    model = components.make_camera_model(info, (640, 360))
    assert model.type() == "opencv-fisheye"
    assert list(model.radial_coeffs) == [*d, 0, 0, 0, 0][:4]
