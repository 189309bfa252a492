# SPDX-License-Identifier: Apache-2.0
"""Recordings as drivers of other vehicles write them: names of frames and topics, fields of clouds."""

import re

import numpy as np
import pytest
import yaml
from bags import messages, write
from edgefirst.schemas import sensor_msgs
from edgefirst.schemas.geometry_msgs import Quaternion, Vector3
from pose_recordings import ODOMETRY, POSE, STATIC, TF, add_messages, head, poses, static_message, transforms_message
from rosbags.typesys import Stores, get_typestore
from same_dataset import assert_same_dataset
from typer.testing import CliRunner

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.streams import CLOUD, IMAGE, IMU
from edgefirst_ros.synthetic import START
from edgefirst_ros.synthetic.messages import make_cloud

SMALL = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 50}


# ---- frames of ROS 1 --------------------------------------------------------------------------
@pytest.mark.parametrize("slashed", ["clouds", "transforms", "all"])
def test_a_leading_slash_of_a_frame_means_nothing(recording, tmp_path, slashed):
    """Drivers and bags of ROS 1 write /velodyne and velodyne for one frame; tf2 takes the slash off."""
    store = get_typestore(Stores.ROS2_HUMBLE)
    moving = poses(ODOMETRY, lambda at: ((at - START, 0, 0), (0, 0, 0, 1)), START, 1.0, child="camera_optical")
    plain = add_messages(recording(**SMALL), tmp_path / "plain" / "drive.mcap", moving)
    found = messages(plain)
    for schema, _, message in found:
        named = slashed == "all" or (slashed == "clouds") == schema.name.endswith("PointCloud2")
        if named and schema.name in store.types:
            content = store.deserialize_cdr(message.data, schema.name)
            for part in (content.header, content):
                for name in {"frame_id", "child_frame_id"} & set(vars(part)):
                    object.__setattr__(part, name, f"/{getattr(part, name)}")
            message.data = bytes(store.serialize_cdr(content, schema.name))
    (tmp_path / "slashed").mkdir()
    path = write(tmp_path / "slashed" / "drive.mcap", found)
    for one in (plain, path):
        convert(one, one.parent, rig={"base_frame": "/base_link", "pose": "/odom"})
    assert_same_dataset(path.parent, plain.parent, "drive")


@pytest.mark.parametrize("space", ["/robot", "/fleet/robot"])
def test_transforms_are_those_of_the_vehicle_of_the_camera(recording, tmp_path, space):
    """Two robots in one recording, each with a namespace around its topics, and not around its frames."""
    still, stamps = (0, 0, 0, 1), range(START, START + 10**9 + 1, 10**8)
    sent = [
        *((START, f"{space}{n}/tf_static", TF, transforms_message([(START, "base_link", "camera", (n, 0, 0), still)]))
        for n in (1, 2)),
        *((at, f"{space}{n}/tf", TF, transforms_message([(at, "odom", "base_link", (n, 0, 0), still)]))
        for at in stamps for n in (1, 2)),
    ]  # fmt: skip
    names = {"camera": f"{space}2/camera/image_raw/compressed"}
    path = add_messages(recording(**SMALL, topics={"camera"}, rename=names), tmp_path / "drive.mcap", sent)
    outcome = convert(path, tmp_path, rig={"pose": {"tf": ["odom", "base_link"]}})
    dataset = Dataset(outcome.paths.container)
    assert [one["translation"] for one in dataset.calibration("drive").static_transforms] == [[2, 0, 0]]
    assert dataset[5].pose.position == (2, 0, 0)
    assert not any("several topics" in note or "no static" in note for note in outcome.notes)


@pytest.mark.parametrize("static", [False, True])
def test_a_draft_takes_the_pose_of_a_base_above_which_a_frame_moves(recording, tmp_path, static):
    """As on robots with a base_footprint, whose way to base_link is on /tf_static, or on /tf as of ROS 1."""
    foot = ("base_footprint", "base_link", (0, 0, 0.3), (0, 0, 0, 1))
    sent = [(START, "/tf_static", STATIC, static_message(START, *foot))] if static else []
    for n in range(11):
        at = START + n * 10**8
        moved = [(at, "odom", "base_footprint", (n, 0, 0), (0, 0, 0, 1)), (at, "map", "odom", (0, 0, 0), (0, 0, 0, 1))]
        sent.append((at, "/tf", TF, transforms_message(moved if static else [*moved, (at, *foot)])))
    sent += poses(POSE, lambda _: ((9, 9, 0), (0, 0, 0, 1)), START + 10**9, 0, topic="/goal_pose")
    for topic, frame, number in (("/map/points", "map", 90), ("/lidar/points", "lidar", 9)):
        points = np.zeros(number, [(axis, "<f4") for axis in "xyz"])
        sent.append((START + 10**9 + 1, topic, CLOUD, make_cloud(points, frame, START + 10**9)))
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sent)
    config = tmp_path / "rig.yaml"
    assert CliRunner().invoke(app, ["rig", str(path), "-o", str(config)]).exit_code == 0
    assert yaml.safe_load(config.read_text())["rig"]["pose"] == {"tf": ["map", "base_link"]}
    assert "# pose: {topic: /goal_pose}  # its messages are too far apart" in config.read_text()
    assert "# lidar.points.map: {topic: /map/points}  # in a frame in which the vehicle moves" in config.read_text()
    dataset = Dataset(convert(path, tmp_path, config=config).paths.container)
    place = ((dataset[5].timestamp - START) / 10**8, 0, 0.3)
    assert dataset[5].pose.position == pytest.approx(place)


def test_a_draft_prefers_poses_in_a_map_to_those_in_ecef(recording, tmp_path):
    """A MicroStrain sends both."""
    still = ((0, 0, 0), (0, 0, 0, 1))
    sent = [
        message
        for name in ("earth", "map")
        for message in poses(ODOMETRY, lambda _: still, START, 1.0, topic=f"/ekf/odometry_{name}", frame=name)
    ]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sorted(sent))
    assert "\n  pose: {topic: /ekf/odometry_map}" in CliRunner().invoke(app, ["rig", str(path)]).output


def test_cameras_of_one_namespace_are_told_apart_by_their_frames(recording, tmp_path):
    """As in the bags of Ford's vehicles; two forms of one camera have its frame."""
    frames = {"/image_left": "left", "/image_right": "right", "/image_right_rect": "right"}
    sent = [
        (at, topic, IMAGE, sensor_msgs.Image(head(at, frame), 2, 2, "mono8", 0, 2, bytes(4)).to_bytes())
        for at in range(START, START + 10**9, 10**8)
        for topic, frame in frames.items()
    ]
    path = add_messages(recording(**SMALL, topics={"lidar/points"}), tmp_path / "drive.mcap", sent)
    config = tmp_path / "rig.yaml"
    assert CliRunner().invoke(app, ["rig", str(path), "-o", str(config)]).exit_code == 0
    assert (
        "# camera.right_rect: {topic: /image_right_rect}  # of the same camera as /image_right;" in config.read_text()
    )
    rig = yaml.safe_load(config.read_text())["rig"]
    assert {key: of["topic"] for key, of in rig.items() if key.startswith("camera")} == {
        "camera": "/image_left", "camera.right": "/image_right"}  # fmt: skip
    counts = convert(path, tmp_path, config=config).counts
    assert counts["/image_left"].written == counts["/image_right"].written == 10


@pytest.mark.parametrize(
    ("main", "other"),
    [
        ("/camera/head/image_raw", "/thermal_image_raw"),  # M2DGR
        ("/k4a/rgb/image_raw", "/k4a/ir/image_raw"),
        ("/oak/rgb/image_raw", "/oak/left/image_rect"),
        ("/stereo/left/image_raw", "/dvs/image_raw"),
        ("/ego/rgb_view/image", "/ego/semantic_segmentation_front/image"),  # CARLA
    ],
)
def test_a_draft_makes_samples_of_pictures_as_people_see_them(recording, tmp_path, main, other):
    sent = [
        (at, topic, IMAGE, sensor_msgs.Image(head(at, topic), 2, 2, "mono8", 0, 2, bytes(4)).to_bytes())
        for at in range(START, START + 10**9, 10**8)
        for topic in (main, other)
    ]
    path = add_messages(recording(**SMALL, topics={"lidar/points"}), tmp_path / "drive.mcap", sent)
    rig = yaml.safe_load(CliRunner().invoke(app, ["rig", str(path)]).output)["rig"]
    assert rig["camera"]["topic"] == main
    assert [of["topic"] for key, of in rig.items() if key.startswith("camera.")] == [other]


# ---- fields of clouds -------------------------------------------------------------------------
TARGETS = ("x", "y", "z", "radial_speed", "power", "rcs")
OBJECTS = ("x", "y", "z", "speed_absolute", "heading", "length", "quality")
UMRR = {"/smart_radar/port_objects_0": OBJECTS, "/smart_radar/port_targets_0": TARGETS}
ARS548 = {"/PointCloudDetection": ("x", "y", "z", "v", "r", "RCS"), "/PointCloudObject": ("x", "y", "z", "vx", "vy")}
EAGLE = {"/radar_trk": ("x", "y", "z", "Doppler"), "/radar_enhanced_pcl": ("x", "y", "z", "Doppler", "Alpha", "Beta")}
MULTISCAN = {"/cloud_polar": ("azimuth", "elevation", "range"), "/cloud": ("x", "y", "z", "i")}


@pytest.mark.parametrize(
    ("clouds", "key", "topic"),
    [
        (UMRR, "radar.targets", "/smart_radar/port_targets_0"),  # not the tracks that the radar makes of them
        (ARS548, "radar.targets", "/PointCloudDetection"),
        (EAGLE, "radar.targets", "/radar_enhanced_pcl"),
        (MULTISCAN, "lidar.points", "/cloud"),
    ],
)
def test_a_draft_takes_the_cloud_that_was_measured(recording, tmp_path, clouds, key, topic):
    sent = [
        (at, name, CLOUD, make_cloud(np.zeros(8, [(field, "<f4") for field in fields]), name[:7], at))
        for at in range(START, START + 10**9, 10**8)
        for name, fields in clouds.items()
    ]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sent)
    done = CliRunner().invoke(app, ["rig", str(path)])
    rig = yaml.safe_load(done.output)["rig"]
    assert {name: of["topic"] for name, of in rig.items()} == {"camera": "/camera/jpeg", key: topic}
    config = tmp_path / "rig.yaml"
    config.write_text(re.sub(f"# (?={key})", "", done.output))  # the user uncomments those that are left
    counts = convert(path, tmp_path, config=config).counts
    assert all(counts[name].written for name in clouds)


@pytest.mark.parametrize(
    ("fields", "frame"), [(("x", "y", "z", "rgb"), "zed_left"), (("x", "y", "z"), "camera_optical")]
)
def test_a_draft_prefers_the_cloud_of_a_lidar_to_that_of_a_depth_camera(recording, tmp_path, fields, frame):
    """The latter is larger, and has colours, or the frame of pictures."""
    sent = [
        (at, name, CLOUD, make_cloud(np.zeros(number, [(field, "<f4") for field in names]), of, at))
        for at in range(START, START + 10**9, 10**8)
        for name, names, of, number in (
            ("/depth/points", fields, frame, 90),
            ("/ouster/points", ("x", "y", "z", "intensity"), "os_lidar", 9),
        )
    ]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sent)
    rig = yaml.safe_load(CliRunner().invoke(app, ["rig", str(path)]).output)["rig"]
    assert {key: of["topic"] for key, of in rig.items() if key.startswith("lidar")} == {
        "lidar.points": "/ouster/points", "lidar.points.depth": "/depth/points"}  # fmt: skip


def test_a_draft_prefers_the_imu_that_knows_its_attitude(recording, tmp_path):
    """That of a Livox has a known name, and more messages."""
    sent = [
        (at, topic, IMU, sensor_msgs.Imu(head(at, ""), turn, [0] * 9, Vector3(0, 0, 0.1)).to_bytes())
        for topic, turn, rate in (
            ("/livox/imu", Quaternion(0, 0, 0, 1), 200),
            ("/imu/data", Quaternion(0, 0, 0.6, 0.8), 100),
        )
        for at in range(START, START + 10**9, 10**9 // rate)
    ]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sorted(sent))
    assert "imu: {topic: /imu/data}" in CliRunner().invoke(app, ["rig", str(path)]).output
    outcome = convert(path, tmp_path, rig={"imu": "/livox/imu"})
    assert outcome.counts["/livox/imu"].dropped["no attitude"] > 0
    assert Dataset(outcome.paths.container).frames["orientation"].null_count() == outcome.samples


def test_every_lidar_gets_a_key_whatever_its_name(recording, tmp_path):
    names = ["/top", *(f"/{'点' * n}" for n in range(1, 20)), "/a_lidar_at_the_left_rear_corner_of_the_roof"]
    points = np.zeros(8, [(field, "<f4") for field in "xyz"])
    sent = [(START + n, name, CLOUD, make_cloud(points, name, START + n)) for n, name in enumerate(names)]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sent)
    rig = yaml.safe_load(CliRunner().invoke(app, ["rig", str(path)]).output)["rig"]
    assert {of["topic"] for key, of in rig.items() if key.startswith("lidar.points")} == set(names)
