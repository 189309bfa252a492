# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 environment itself: our message packages are the vendor's, and large messages arrive whole."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

rclpy = pytest.importorskip("rclpy", reason="no rclpy: run `make test`, or source a ROS 2")
for package in ("edgefirst_msgs", "foxglove_msgs"):
    pytest.importorskip(f"{package}.msg", reason=f"no {package}: see test/ros_environment.py")

from edgefirst.schemas import edgefirst_msgs, foxglove_msgs  # noqa: E402
from edgefirst.schemas.builtin_interfaces import Duration, Time  # noqa: E402
from edgefirst.schemas.std_msgs import Header  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from rclpy.serialization import deserialize_message, serialize_message  # noqa: E402
from waiting import LONG  # noqa: E402

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parents[2] / "shared" / "data" / "cdr"

HEADER = Header(stamp=Time(1_700_000_000, 123_456_789), frame_id="radar")
BOX = edgefirst_msgs.DetectBox(
    0.5, 0.25, 0.125, 0.75, "person", 0.875, 12.5, -3.5, "3f2c", 7, Time(1_699_999_999, 5)
)  # fmt: skip
MADE = {
    "RadarCube": edgefirst_msgs.RadarCube(
        HEADER, 2**40 + 3, bytes([6, 1, 5, 2]), np.array([2, 3, 1, 4], np.uint16).tobytes(),
        np.array([1.0, 0.25, 1.0, 0.5], np.float32).tobytes(), np.arange(-12, 12, dtype=np.int16).tobytes(), True,
    ),
    "RadarInfo": edgefirst_msgs.RadarInfo(HEADER, "low", "ultra-short", "off", "medium", True),
    "Detect": edgefirst_msgs.Detect(HEADER, Time(1, 2), Time(3, 4), Time(5, 6), [BOX, edgefirst_msgs.DetectBox()]),
    "Track": edgefirst_msgs.Track("3f2c-77", 12, Time(8, 9)),
    "Mask": edgefirst_msgs.Mask(2, 3, 1, "zstd", bytes(range(6)), True),
    "Model": edgefirst_msgs.Model(
        HEADER, Duration(0, 1), Duration(0, 2), Duration(0, 3), Duration(0, 4), [BOX],
        [edgefirst_msgs.MaskBox(1, 2, 1, "", b"\x07\xff", True), edgefirst_msgs.MaskBox(3, 1, 1, "", b"abc", False)],
    ),
    "ModelInfo": edgefirst_msgs.ModelInfo(
        HEADER, [1, 640, 640, 3], 2, [1, 84, 8400], 8, ["person", "car"], "detection", "TFLite", "yolov8n.tflite",
    ),
    "CompressedVideo": foxglove_msgs.CompressedVideo(Time(7, 8), "camera_optical", b"\0\0\0\1\x67", "h264"),
}  # fmt: skip


def golden_type(file: Path) -> Any:
    """The ROS type of a golden message, `package/Type_variant.cdr`; None when this environment does not have it."""
    package = file.parent.name
    if importlib.util.find_spec(package) is None:
        return None
    return getattr(importlib.import_module(f"{package}.msg"), file.stem.split("_")[0], None)


GOLDENS = [file for file in sorted(GOLDEN.glob("*/*.cdr")) if golden_type(file)]
APPENDED = {"ModelInfo": 2}  # bytes of input_dtype and output_dtype, which newer devices write and older ones do not


def test_vendor_message_is_read_field_for_field(name: str) -> None:
    assert_same(deserialize_message(MADE[name].to_bytes(), ros_type(name)), MADE[name])


def test_ros_message_is_read_field_for_field(name: str) -> None:
    vendor = MADE[name].to_bytes()
    message = deserialize_message(vendor, ros_type(name))
    written = serialize_message(message)
    assert_same(message, type(MADE[name]).from_cdr(written))
    assert_same_bytes(written, vendor[: len(vendor) - APPENDED.get(name, 0)])


@pytest.mark.skipif(not GOLDENS, reason="no golden messages beside the repository")
@pytest.mark.parametrize("file", GOLDENS, ids=lambda file: file.stem)
def test_golden_message_comes_back_byte_for_byte(file: Path) -> None:
    golden = file.read_bytes()
    assert_same_bytes(serialize_message(deserialize_message(golden, golden_type(file))), golden)


def test_every_interface_is_tested() -> None:
    ours = {path.stem for path in (HERE.parent / "interfaces").glob("*/msg/*.msg")}
    # Box has no message of its own in the vendor's codec; Detect and Model carry it. Nor has FFMPEGPacket, which a test
    # of the capture publishes.
    assert ours == {*MADE, "Box", "FFMPEGPacket"}


@pytest.mark.parametrize("reliability", ["best_effort", "reliable"])
def test_large_messages_arrive_whole_from_another_process(
    reliability: str, listener: Any, start: Callable[..., Any]
) -> None:
    count, rate = 30, 20.0
    cubes: list[tuple[int, bytes]] = []
    videos: list[tuple[int, bytes]] = []
    qos = QoSProfile(depth=100, reliability=ReliabilityPolicy[reliability.upper()])
    listener.create_subscription(
        ros_type("RadarCube"), "/radar/cube", lambda raw, info: cubes.append((order(info), raw)), qos, raw=True
    )
    listener.create_subscription(
        ros_type("CompressedVideo"), "/camera/h264", lambda raw, info: videos.append((order(info), raw)), qos, raw=True
    )
    talker = start(HERE / "talker.py", reliability, str(count), str(rate))
    until = time.monotonic() + LONG
    while (len(cubes) < count or len(videos) < count) and time.monotonic() < until and talker.process.poll() is None:
        rclpy.spin_once(listener, timeout_sec=0.1)
    for _ in range(2 * count):  # those that wait here
        rclpy.spin_once(listener, timeout_sec=0.0)
    assert talker.wait() == 0, talker.log
    assert [edgefirst_msgs.RadarCube.from_cdr(raw).timestamp + 1 for _, raw in cubes] == [n for n, _ in cubes]
    assert [foxglove_msgs.CompressedVideo.from_cdr(raw).timestamp.sec + 1 for _, raw in videos] == [
        n for n, _ in videos
    ]
    for found in (cubes, videos):  # best effort may lose some where the machine is busy
        numbers = [number for number, _ in found]
        assert numbers == sorted(set(numbers))
        assert set(numbers) <= set(range(1, count + 1))
        assert len(numbers) == count if reliability == "reliable" else numbers
    for number, raw in cubes:
        values = np.frombuffer(edgefirst_msgs.RadarCube.from_cdr(raw).cube.tobytes(), np.int16)
        assert len(values) == 800_000
        assert (values == number - 1).all()


def test_type_hash_of_a_publisher_is_that_of_the_subscription(listener: Any) -> None:
    listener.create_publisher(ros_type("RadarCube"), "/radar/cube", 1)
    listener.create_subscription(ros_type("RadarCube"), "/radar/cube", lambda _: None, 1, raw=True)
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        ours = listener.get_subscriptions_info_by_topic("/radar/cube")
        theirs = listener.get_publishers_info_by_topic("/radar/cube")
        if ours and theirs:
            break
        time.sleep(0.02)
    assert str(ours[0].topic_type_hash) == str(theirs[0].topic_type_hash)
    assert str(ours[0].topic_type_hash).startswith("RIHS01_")


def test_type_that_differs_is_told_by_its_hash(
    listener: Any, start: Callable[..., Any], newer_types: dict[str, str]
) -> None:
    """Kilted (Fast DDS 3) then delivers nothing, without a word; Jazzy (Fast DDS 2) delivers the publisher's bytes."""
    got: list[bytes] = []
    listener.create_subscription(ros_type("ModelInfo"), "/model/info", got.append, 10, raw=True)
    talker = start(HERE / "newer_talker.py", **newer_types)
    deadline = time.monotonic() + LONG
    while not listener.get_publishers_info_by_topic("/model/info") and time.monotonic() < deadline:
        rclpy.spin_once(listener, timeout_sec=0.05)
    until = time.monotonic() + 0.5  # five messages, were they delivered
    while time.monotonic() < until:
        rclpy.spin_once(listener, timeout_sec=0.05)
    theirs = listener.get_publishers_info_by_topic("/model/info")
    ours = listener.get_subscriptions_info_by_topic("/model/info")
    assert talker.stop() == 0, talker.log
    assert theirs[0].topic_type == ours[0].topic_type == "edgefirst_msgs/msg/ModelInfo"
    assert str(theirs[0].topic_type_hash) != str(ours[0].topic_type_hash)
    assert {edgefirst_msgs.ModelInfo.from_cdr(raw).model_name for raw in got} <= {"yolov8n"}


@pytest.fixture(params=sorted(MADE))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def listener(ros_domain: int) -> Iterator[Any]:
    rclpy.init()
    node = rclpy.create_node("listener")
    yield node
    node.destroy_node()
    rclpy.shutdown()


def ros_type(name: str) -> Any:
    package = "foxglove_msgs" if name == "CompressedVideo" else "edgefirst_msgs"
    return getattr(importlib.import_module(f"{package}.msg"), name)


def order(info: Any) -> int:
    """Number the publisher gave the message, from 1; a gap is a loss."""
    return int(info["publication_sequence_number"])


def assert_same_bytes(ros: bytes, vendor: bytes) -> None:
    """Equal but for padding, which the vendor's codec writes as zero and ROS leaves as it is in memory.

    ROS also pads the end to four bytes.
    """
    assert len(vendor) <= len(ros) < len(vendor) + 4
    different = [at for at, (one, other) in enumerate(zip(ros, vendor, strict=False)) if one != other]
    assert [vendor[at] for at in different] == [0] * len(different)


def assert_same(ros: Any, vendor: Any, prefix: str = "") -> None:
    """Every field of a ROS message is what the vendor's codec gives, which flattens header and track."""
    for field in ros.get_fields_and_field_types():
        value = getattr(ros, field)
        if field == "header":
            assert_same(value, vendor)
        elif field == "track" and not hasattr(vendor, "track"):
            assert_same(value, vendor, "track_")
        elif hasattr(value, "get_fields_and_field_types"):
            assert_same(value, getattr(vendor, prefix + field))
        else:
            assert_equal(value, getattr(vendor, prefix + {"model_types": "model_type"}.get(field, field)), field)


def assert_equal(value: Any, other: Any, field: str) -> None:
    if isinstance(value, str | bool | int | float):
        assert value == other, field
    elif len(value) and hasattr(value[0], "get_fields_and_field_types"):
        assert len(value) == len(other), field
        for one, another in zip(value, other, strict=True):
            assert_same(one, another)
    elif isinstance(value, list):
        assert value == list(other), field
    elif isinstance(other, list):
        assert list(value) == other, field
    else:
        assert np.asarray(value).tobytes() == (other if isinstance(other, bytes) else other.tobytes()), field
