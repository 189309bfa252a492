# SPDX-License-Identifier: Apache-2.0
"""What is said once, from the vendor's own messages."""

from __future__ import annotations

import types

import numpy as np
import pytest
from edgefirst.schemas import edgefirst_msgs, geometry_msgs, sensor_msgs, std_msgs

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Transforms, list_transforms
from edgefirst_ros.sensors.calibration import Calibration, PictureFacts, find_frames, judge
from edgefirst_ros.streams import TF_MESSAGE, TRANSFORM

CAMERA_INFO, MODEL_INFO = "sensor_msgs/msg/CameraInfo", "edgefirst_msgs/msg/ModelInfo"


def camera(fx=1000.0, width=1920, name="camera"):
    k = [fx, 0, 960, 0, fx + 1, 540, 0, 0, 1]
    return sensor_msgs.CameraInfo(
        std_msgs.Header(frame_id=name), 1080, width, "plumb_bob", [0.1, -0.2, 0, 0, 0.5], k, list(np.eye(3).flat),
        list(range(12)),
    )  # fmt: skip


def transform(child, x, parent="base_link"):
    moved = geometry_msgs.Transform(geometry_msgs.Vector3(x, 2, 3), geometry_msgs.Quaternion(0, 0, 0, 2))
    return geometry_msgs.TransformStamped(std_msgs.Header(frame_id=parent), child, moved)


def test_camera_info():
    found = Calibration()
    assert (found.camera_info, found.focal_35mm()) == (None, None)
    found.add(CAMERA_INFO, camera())
    found.add(CAMERA_INFO, camera(fx=5.0, name="other"))
    assert found.camera_info == {
        "frame_id": "camera", "width": 1920, "height": 1080, "distortion_model": "plumb_bob",
        "d": [0.1, -0.2, 0, 0, 0.5], "k": [1000, 0, 960, 0, 1001, 540, 0, 0, 1], "r": [1, 0, 0, 0, 1, 0, 0, 0, 1],
        "p": list(range(12)),
    }  # fmt: skip
    assert found.focal_35mm() == 19  # 36 * 1000 / 1920 = 18.75


@pytest.mark.parametrize(
    ("roi", "shown", "middle"),
    [
        ((0, 0, 0, 0), (1920, 1080), (960, 540)),
        ((0, 0, 1920, 1080), (1920, 1080), (960, 540)),
        ((200, 100, 640, 480), (640, 480), (760, 440)),
        ((200, 100, 1900, 480), (1920, 1080), (960, 540)),  # more than there is
    ],
)
def test_a_region_of_interest_is_what_the_pictures_show(roi, shown, middle):
    """Of cameras that send a part of what they see; k and p are of the whole. Source: sensor_msgs/CameraInfo."""
    found, whole = Calibration(), camera()
    x, y, width, height = roi
    part, p = sensor_msgs.RegionOfInterest(x, y, height, width), [1000, 0, 960, 0, 0, 1001, 540, 0, 0, 0, 1, 0]
    header = std_msgs.Header(frame_id="camera")
    size = whole.height, whole.width
    sent = sensor_msgs.CameraInfo(header, *size, "plumb_bob", whole.d, whole.k, whole.r, p, roi=part)
    found.add(CAMERA_INFO, sent)
    info = found.camera_info
    assert (info["width"], info["height"]) == shown
    assert (info["k"][2], info["k"][5]) == (info["p"][2], info["p"][6]) == middle
    assert (info["k"][0], info["p"][5]) == (1000, 1001)


@pytest.mark.parametrize(("sent", "frame"), [("", "rgb_optical"), ("camera", "camera")])
def test_an_info_without_a_frame_has_that_of_the_pictures(sent, frame):
    """An OAK with compressed pictures sends it so."""
    found = Calibration(
        {"camera": PictureFacts("/rgb/image_raw/compressed", "/rgb/camera_info", frame_id="rgb_optical")}
    )
    found.add(CAMERA_INFO, camera(name=sent), topic="/rgb/camera_info")
    assert found.camera_info["frame_id"] == frame


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("radtan", "plumb_bob"),  # Kalibr, and the recordings made with it
        ("PINHOLE", "plumb_bob"),  # MYNT EYE
        ("pinhole", "plumb_bob"),
        ("Brown Conrady", "plumb_bob"),  # RealSense's SDK
        ("kannala_brandt", "equidistant"),
        ("equidistant", "equidistant"),
        ("ladybug", "ladybug"),
    ],
)
def test_distortion_models_have_the_names_of_ros(sent, name):
    found, info = Calibration(), camera()
    found.add(CAMERA_INFO, sensor_msgs.CameraInfo(
        std_msgs.Header(frame_id="camera"), info.height, info.width, sent, info.d, info.k, info.r, info.p))  # fmt: skip
    assert found.camera_info["distortion_model"] == name


@pytest.mark.parametrize(
    ("topic", "p", "straight"),
    [
        ("/left/image_rect_color/compressed", [900, 0, 950, -90, 0, 901, 530, 0, 0, 0, 1, 0], True),
        ("/zed/rgb/color/rect/image", [900, 0, 950, 0, 0, 901, 530, 0, 0, 0, 1, 0], True),
        ("/left/image_rect", [0.0] * 12, False),  # not calibrated for it
        ("/left/image_raw", [900, 0, 950, 0, 0, 901, 530, 0, 0, 0, 1, 0], False),
        ("/direct/rectangle", [900, 0, 950, 0, 0, 901, 530, 0, 0, 0, 1, 0], False),
    ],
)
def test_rectified_pictures_have_no_distortion(topic, p, straight):
    """image_proc publishes them beside the CameraInfo of the raw ones: k and d are of these, p of the rectified."""
    pictures = PictureFacts(topic, "/left/camera_info", frame_id="camera")
    found = Calibration({"camera": pictures, "camera.rear": PictureFacts("/rear", None, {"/rear/camera_info"})})
    raw = camera()
    sent = sensor_msgs.CameraInfo(
        std_msgs.Header(frame_id="camera"), 1080, 1920, "plumb_bob", list(raw.d), list(raw.k), list(raw.r), p
    )
    found.add(CAMERA_INFO, sent, topic="/left/camera_info")
    info = found.camera_info
    assert info["k"] == ([900, 0, 950, 0, 901, 530, 0, 0, 1] if straight else list(raw.k))
    assert info["d"] == ([0.0] * 5 if straight else list(raw.d))
    assert info["p"] == p
    said = [f"camera/info: /left/camera_info: p counts, without distortion: {topic} is rectified"] * straight
    assert found.notes == [*said, "camera/info: none belongs to /rear"]


@pytest.mark.parametrize(
    ("fx", "width", "focal"),
    [(0.0, 1920, None), (float("nan"), 1920, None), (float("inf"), 1920, None), (-900.0, 1920, None), (1e9, 2, None),
     (1000.0, 0, None), (640.0, 640, 36)],
)  # fmt: skip
def test_focal_lengths_that_are_none(fx, width, focal):
    found = Calibration()
    found.add(CAMERA_INFO, camera(fx, width))
    assert found.focal_35mm() == focal


def test_transforms_and_labels():
    found = Calibration()
    found.add(TRANSFORM, transform("radar", 1.5))
    found.add(TRANSFORM, transform("radar", 9.0))
    found.add(TRANSFORM, transform("lidar", 4.0, "radar"))
    both = [*list_transforms(TRANSFORM, transform("camera", 0.5)), *list_transforms(TRANSFORM, transform("radar", 8.0))]
    found.add(TF_MESSAGE, Transforms(both))
    assert [(t["parent"], t["child"], t["translation"][0]) for t in found.static_transforms] == [
        ("base_link", "camera", 0.5), ("base_link", "radar", 1.5), ("radar", "lidar", 4.0),
    ]  # fmt: skip
    assert found.static_transforms[0]["translation"] == [0.5, 2, 3]
    assert found.static_transforms[0]["rotation"] == [0, 0, 0, 2]
    found.add(MODEL_INFO, edgefirst_msgs.ModelInfo(std_msgs.Header(frame_id=""), labels=[]))
    found.add(MODEL_INFO, edgefirst_msgs.ModelInfo(std_msgs.Header(frame_id=""), labels=["car", "person"]))
    found.add(MODEL_INFO, edgefirst_msgs.ModelInfo(std_msgs.Header(frame_id=""), labels=["other"]))
    assert found.labels == ["car", "person"]
    found.add("sensor_msgs/msg/Imu", object())


def test_merge_keeps_what_is_known():
    first, second = Calibration(), Calibration()
    first.add(TRANSFORM, transform("radar", 1.0))
    second.add(TRANSFORM, transform("radar", 2.0))
    second.add(TRANSFORM, transform("lidar", 3.0))
    second.add(CAMERA_INFO, camera())
    second.add(MODEL_INFO, edgefirst_msgs.ModelInfo(std_msgs.Header(frame_id=""), labels=["car"]))
    first.merge(second)
    assert [t["translation"][0] for t in first.static_transforms] == [3.0, 1.0]
    assert (first.labels, first.camera_info["width"]) == (["car"], 1920)
    other = Calibration()
    other.add(CAMERA_INFO, camera(name="late"))
    first.merge(other)
    assert first.camera_info["frame_id"] == "camera"


# ---- made to harm ------------------------------------------------------------------------------
def test_more_than_any_vehicle_has_is_refused():
    known = Calibration()
    for n in range(4096):
        known.add(TRANSFORM, transform(f"frame{n}", n))
    known.add(TRANSFORM, transform("frame7", 99))
    with pytest.raises(MessageError, match="4097 static transforms"):
        known.add(TRANSFORM, transform("one more", 1))
    with pytest.raises(MessageError, match="5000 characters of a name"):
        Calibration().add(TRANSFORM, transform("x" * 5000, 1))
    with pytest.raises(MessageError, match="65537 labels"):
        known.add(MODEL_INFO, types.SimpleNamespace(labels=["x"] * 65_537))
    far = types.SimpleNamespace(frame_id="a", distortion_model="", d=[0.0] * 65)
    with pytest.raises(MessageError, match="65 coefficients"):
        known.add(CAMERA_INFO, far)
    assert (len(known.static_transforms), known.labels, known.camera_info) == (4096, None, None)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0])
def test_a_camera_without_a_focal_length(value):
    known = Calibration()
    known.add(CAMERA_INFO, camera(fx=value))
    assert known.focal_35mm() is None
    known = Calibration()
    known.add(CAMERA_INFO, camera(width=0))
    assert known.focal_35mm() is None


@pytest.mark.parametrize(
    ("by", "turn", "moves"),
    [(1e-6, (0, 0, 0, 2), False), (0, (0, 0, 0, -2), False), (1e-6, (1e-6, 0, 0, -2), False),
     (0.001, (0, 0, 0, 2), True), (0, (0.001, 0, 0, 2), True), (np.nan, (0, 0, 0, 2), True)],
)  # fmt: skip
def test_rounding_moves_no_sensor(by, turn, moves):
    """Simulators compute the places of sensors on /tf from those in the world, and q and -q are one rotation."""
    found = Calibration()
    for n in range(3):
        place, angle = ((0, 2, 3), (0, 0, 0, 2)) if not n else ((0, 2 + by, 3), turn)
        moved = geometry_msgs.Transform(geometry_msgs.Vector3(*place), geometry_msgs.Quaternion(*angle))
        sent = geometry_msgs.TransformStamped(std_msgs.Header(frame_id="base_link"), "lidar", moved)
        found.add(TRANSFORM, sent, n)
    assert found.moving == ({"lidar": "base_link"} if moves else {})
    assert len(found.constant().static_transforms) == (not moves)


# ---- what it is worth ------------------------------------------------------------------------------
HALF = 0.5**0.5
OPTICAL = [-0.5, 0.5, -0.5, 0.5]
INFO = {"frame_id": "camera", "k": [500.0, 0, 1, 0, 500, 1, 0, 0, 1]}


def places(**turns):
    return [
        {"parent": "base_link", "child": child, "translation": [1, 2, 3], "rotation": turn}
        for child, turn in turns.items()
    ]


@pytest.mark.parametrize(
    ("info", "transforms", "frames", "word"),
    [
        (INFO, places(camera=OPTICAL, radar=[0, 0, 0, 1]), {"radar"}, "given"),
        (INFO, places(camera=[0, 0, 0, 1], radar=[0, 0, 0, 1]), {"radar"}, "identity"),
        (INFO, places(camera=OPTICAL, radar=[-1, 1, -1, 1]), {"radar"}, "identity"),  # both turned alike, twice as long
        (INFO, places(camera=[0, 0, HALF, HALF], radar=[0, 0, -HALF, HALF]), {"radar"}, "given"),
        (INFO, places(camera=OPTICAL, radar=[0, 0, 0, 1]), {"radar", "lidar"}, "missing"),  # the worst of them
        (INFO, places(camera=OPTICAL, radar=[0, 0, 0, 0]), {"radar"}, "missing"),
        (INFO, places(camera=[0, 0, 0, 1], radar=[0, 0, 0, 1], lidar=OPTICAL), {"radar", "lidar"}, "identity"),
        (INFO, places(camera=OPTICAL, depth_Optical_frame=OPTICAL), {"depth_Optical_frame"}, "given"),
        (INFO, places(camera=OPTICAL), {"camera"}, "given"),  # the cloud of a depth camera in the frame of its pictures
        (INFO, [], set(), "given"),  # without companion sensors the intrinsics alone count
        (None, places(camera=OPTICAL, radar=[0, 0, 0, 1]), {"radar"}, "missing"),
        ({**INFO, "k": [0.0] * 9}, [], set(), "missing"),  # ROS: not calibrated
        ({**INFO, "k": [float("nan")] * 9}, [], set(), "missing"),
        ({"k": []}, 7, {"radar"}, "missing"),
        (INFO, [{"parent": 1}], {"radar"}, "missing"),
    ],
)
def test_what_a_calibration_is_worth(info, transforms, frames, word):
    assert judge(info, transforms, frames) == word


def test_frames_of_sensors():
    assert find_frames(["camera", "radar.cube", "radar.targets", "lidar.depth", "depth"], {}) == {"radar", "lidar"}


def test_intrinsics_that_change_are_told_and_the_first_are_kept():
    found = Calibration()
    for time, width in ((1, 640), (2, 640), (1_700_000_000_123_456_789, 800), (3, 640)):
        found.add(CAMERA_INFO, camera(width=width), time)
    assert found.camera_info["width"] == 640
    told = "camera/info changes at 2023-11-14T22:13:20.123Z (log_time 1700000000123456789): the first one counts"
    assert found.notes == [told]


def test_transforms_may_come_while_the_metadata_are_made():
    """As in a capture, whose metadata the thread that writes makes with every commit."""
    found = Calibration(base_frame="vehicle")

    class Key(tuple):
        def __iter__(self):
            yield super().__getitem__(0)
            found.add(TRANSFORM, transform("late", 1.0, "vehicle"))
            yield super().__getitem__(1)

    found.add(TRANSFORM, transform("radar", 1.5, "vehicle"))
    found._transforms = {Key(key): first for key, first in found._transforms.items()}
    assert {one["child"] for one in found.static_transforms} >= {"radar", "base_link"}
