# SPDX-License-Identifier: Apache-2.0
"""A recording as nuscenes2mcap writes it, by its ready rig: expected values are by hand.

All transforms are on /tf. Boxes are in the map at the stamps of the lidar. /pose is zero in the vehicle's own frame.
Fixes have no stamps. Source: foxglove/nuscenes2mcap, convert_to_mcap.py.
"""

import io
from pathlib import Path

import numpy as np
import pytest
import yaml
from foxglove_schemas_protobuf.CameraCalibration_pb2 import CameraCalibration
from foxglove_schemas_protobuf.CompressedImage_pb2 import CompressedImage
from foxglove_schemas_protobuf.FrameTransform_pb2 import FrameTransform
from foxglove_schemas_protobuf.LocationFix_pb2 import LocationFix
from foxglove_schemas_protobuf.PackedElementField_pb2 import PackedElementField
from foxglove_schemas_protobuf.PointCloud_pb2 import PointCloud
from foxglove_schemas_protobuf.PoseInFrame_pb2 import PoseInFrame
from foxglove_schemas_protobuf.SceneUpdate_pb2 import SceneUpdate
from google.protobuf.timestamp_pb2 import Timestamp
from mcap_protobuf.writer import Writer
from PIL import Image
from typer.testing import CliRunner

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.synthetic import START

RIG = Path(__file__).parents[2] / "config" / "rigs" / "nuscenes2mcap.yaml"
S = 1_000_000_000
LIDAR = [START + n * S // 20 for n in range(41)]
CAMERA = [START + S // 50 + n * S // 12 for n in range(22)]
KEYFRAMES = LIDAR[::10]
SPEED = 5.0
"""m/s along x of the map, without a turn."""
MOUNTS = {"cam_front": ((1.7, 0.0, 1.5), (-0.5, 0.5, -0.5, 0.5)), "lidar_top": ((0.9, 0.0, 1.8), (0.0, 0.0, 0.0, 1.0)),
          "radar_front": ((3.4, 0.0, 0.5), (0.0, 0.0, 0.0, 1.0))}  # fmt: skip


def stamp(ns):
    found = Timestamp()
    found.FromNanoseconds(ns)
    return found


def transform(ns, parent, child, place, turn):
    found = FrameTransform(timestamp=stamp(ns), parent_frame_id=parent, child_frame_id=child)
    found.translation.x, found.translation.y, found.translation.z = place
    found.rotation.x, found.rotation.y, found.rotation.z, found.rotation.w = turn
    return found


def cloud(ns, frame, names):
    fields = [PackedElementField(name=name, offset=4 * n, type=7) for n, name in enumerate(names)]
    points = np.ones((20, len(names)), np.float32).tobytes()
    found = PointCloud(timestamp=stamp(ns), frame_id=frame, point_stride=4 * len(names), fields=fields, data=points)
    found.pose.orientation.w = 1
    return found


def scene(ns):
    """A car that stands at x = 10 m of the map."""
    found = SceneUpdate()
    entity = found.entities.add(frame_id="map", id="ab12")
    entity.timestamp.CopyFrom(stamp(ns))
    entity.metadata.add(key="category", value="vehicle.car")
    cube = entity.cubes.add()
    cube.pose.position.x, cube.pose.position.y, cube.pose.position.z = 10, 2, 1
    cube.pose.orientation.w = 1
    cube.size.x, cube.size.y, cube.size.z = 4, 2, 1.5
    return found


def sent(capitals):
    def name(text):
        return text.upper() if capitals else text

    picture = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 120, 150)).save(picture, "jpeg")
    info = CameraCalibration(frame_id=name("cam_front"), width=64, height=48, K=[50, 0, 32, 0, 50, 24, 0, 0, 1])
    for ns in CAMERA:
        image = CompressedImage(timestamp=stamp(ns), frame_id=name("cam_front"), format="jpeg", data=picture.getvalue())
        yield ns, f"/{name('cam_front')}/image_rect_compressed", image
        yield ns, f"/{name('cam_front')}/camera_info", info
    for ns in LIDAR:
        yield ns, f"/{name('lidar_top')}", cloud(ns, name("lidar_top"), ("x", "y", "z", "intensity"))
        yield ns, f"/{name('radar_front')}", cloud(ns, name("radar_front"), ("x", "y", "z", "rcs", "vx_comp"))
        way = (SPEED * (ns - START) / S, 0, 0)
        yield ns, "/tf", transform(ns, "map", "base_link", way, (0, 0, 0, 1))
    for ns in KEYFRAMES:
        for frame, mount in MOUNTS.items():
            yield ns, "/tf", transform(ns, "base_link", name(frame), *mount)
        zero = PoseInFrame(timestamp=stamp(ns), frame_id="base_link")
        zero.pose.orientation.w = 1
        yield ns, "/pose", zero
        yield ns, "/gps", LocationFix(latitude=42.3, longitude=-71.04, altitude=10)
        yield ns, "/markers/annotations", scene(ns)
        yield ns, "/markers/car", SceneUpdate()


@pytest.fixture(params=[False, True], ids=["now", "capitals"])
def recording(request, tmp_path):
    path = tmp_path / "scene-0061.mcap"
    with path.open("wb") as file:
        writer = Writer(file)
        for ns, topic, message in sorted(sent(request.param), key=lambda one: one[:2]):
            writer.write_message(topic, message, ns, ns)
        writer.finish()
    return path


def test_the_ready_rig_gives_pictures_clouds_poses_and_calibration(recording, tmp_path):
    outcome = convert(recording, tmp_path / "out", config=RIG)
    dataset = Dataset(outcome.paths.container)
    assert len(dataset) == len(CAMERA)
    for sample, ns in zip(dataset, CAMERA, strict=True):
        assert len(sample.decode("lidar.pcd")) == len(sample.decode("radar.pcd")) == 20
        assert sample.pose.position == pytest.approx((SPEED * (ns - START) / S, 0, 0), abs=1e-6)
    known = dataset.calibration("scene-0061")
    assert known.calibration == "given"
    assert {one["child"].lower(): (tuple(one["translation"]), tuple(one["rotation"])) for one in known.static_transforms
            } == MOUNTS  # fmt: skip
    assert outcome.counts["/markers/annotations"].dropped == {"belongs to no sample": len(KEYFRAMES)}


def test_a_draft_finds_the_frame_of_the_vehicle_and_no_pose_in_it(recording):
    done = CliRunner().invoke(app, ["rig", str(recording)])
    assert done.exit_code == 0, done.exception
    rig = yaml.safe_load(done.stdout)["rig"]
    assert rig["base_frame"] == "base_link"
    assert rig["pose"] == {"tf": ["map", "base_link"]}
    assert "# pose: {topic: /pose}  # in the vehicle's own frame" in done.stdout


def test_boxes_of_the_map_are_moved_to_the_vehicle(recording, tmp_path):
    topic = next(one for one in ("/lidar_top", "/LIDAR_TOP") if one[1:].encode() in recording.read_bytes())
    rig = {"pose": {"tf": ["map", "base_link"]}, "boxes3d": "/markers/annotations"}
    outcome = convert(recording, tmp_path / "out", reference_topic=topic, rig=rig)
    dataset = Dataset(outcome.paths.container)
    assert dataset.metadata["box3d_frame"] == "base_link"
    rows = dataset.annotations.drop_nulls("box3d")
    assert rows["frame"].to_list() == [LIDAR.index(ns) for ns in KEYFRAMES]
    assert set(rows["label"]) == {"vehicle.car"}
    expected = [[10 - SPEED * (ns - START) / S, 2, 1, 4, 2, 1.5] for ns in KEYFRAMES]
    np.testing.assert_allclose(rows["box3d"].to_numpy(), expected, atol=1e-5)


def test_boxes_of_the_map_are_dropped_where_the_pose_is_unknown(recording, tmp_path):
    topic = next(one for one in ("/lidar_top", "/LIDAR_TOP") if one[1:].encode() in recording.read_bytes())
    rig = {"pose": {"tf": ["map", "base_link"], "offset": 0.6}, "boxes3d": "/markers/annotations"}
    outcome = convert(recording, tmp_path / "out", reference_topic=topic, rig=rig)
    dropped = {"box in the fixed frame, and the pose is unknown": 2}  # at 0 and 0.5 s: poses begin at 0.6 s
    assert outcome.counts["/markers/annotations"].dropped == dropped


def test_a_pose_in_the_vehicles_own_frame_is_none(recording, tmp_path):
    """Without a rig /pose is the only topic of poses; it is zero, and positions are those of the fixes."""
    camera = next(one for one in ("/cam_front", "/CAM_FRONT") if one[1:].encode() in recording.read_bytes())
    outcome = convert(recording, tmp_path / "out", reference_topic=f"{camera}/image_rect_compressed")
    assert outcome.counts["/pose"].dropped == {"pose in the vehicle's own frame": len(KEYFRAMES)}
    sample = Dataset(outcome.paths.container)[5]
    assert sample.pose is None
    assert (sample.position.latitude, sample.position.longitude) == (42.3, -71.04)
