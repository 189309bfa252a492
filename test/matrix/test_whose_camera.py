# SPDX-License-Identifier: Apache-2.0
"""Whose results and intrinsics: every topic that belongs to a camera, in every place, offline and live."""

import zipfile
from dataclasses import replace

import pytest
from bags import messages, together, write
from edgefirst.schemas import sensor_msgs
from live_system import System
from PIL import Image
from same_dataset import assert_same_dataset
from typer.testing import CliRunner
from written import rows

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.config import LiveSettings, Settings
from edgefirst_ros.pipeline.capture_session import CaptureSession
from edgefirst_ros.sources.live import CameraWait, LiveSource, Settling
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.streams import CAMERA_INFO, COMPRESSED_IMAGE, DETECT, MASK, MODEL, VIDEO

REAR, FRONT = "/rear/camera/h264", "/front/camera/h264"
TYPES = {
    "model/output": MODEL,
    "model/boxes2d": DETECT,
    "model/mask": MASK,
    "model/mask_compressed": MASK,
    "model/info": "edgefirst_msgs/msg/ModelInfo",
}
BOTH = {REAR: VIDEO, FRONT: VIDEO}
UNNAMED = {"/rear/image_raw/compressed": COMPRESSED_IMAGE, "/front/image_raw/compressed": COMPRESSED_IMAGE}
NESTED = {"/cam/rear/image_raw": "sensor_msgs/msg/Image", "/cam/front/image_raw": "sensor_msgs/msg/Image"}
APART = {"/cam/rear/image_raw": "sensor_msgs/msg/Image", "/front/image_raw": "sensor_msgs/msg/Image"}
PLACES = [  # the cameras, of which the first is the reference; the prefix of what is owned; whether it is used
    (BOTH, "/rear/", True),
    (BOTH, "/front/", False),
    (BOTH, "/", False),
    (BOTH, "/other/", False),
    ({REAR: VIDEO}, "/rear/", True),
    ({REAR: VIDEO}, "/", True),
    ({REAR: VIDEO}, "/other/", True),
    ({"/camera/h264": VIDEO}, "/", True),
    ({"/camera/h264": VIDEO}, "rt/", True),
    ({"/camera/h264": VIDEO}, "/other/", True),
    ({"/camera/h264": VIDEO, "/camera/jpeg": COMPRESSED_IMAGE}, "/", True),  # two topics of one camera
    ({"/camera/h264": VIDEO, FRONT: VIDEO}, "/", True),
    ({FRONT: VIDEO, "/camera/h264": VIDEO}, "/", False),
    (UNNAMED, "/rear/", True),
    (UNNAMED, "/front/", False),
    (UNNAMED, "/", False),
    (NESTED, "/cam/", False),
    (APART, "/cam/", True),
    ({"/rear/image_raw": "sensor_msgs/msg/Image"}, "/", True),
    ({REAR: VIDEO, "/front/image_raw/compressed": COMPRESSED_IMAGE}, "/front/", False),
    ({REAR: VIDEO, "/front/image_raw/compressed": COMPRESSED_IMAGE}, "/", True),
]


def used(roles):
    return {roles.model, roles.masks, *roles.statics} - {None}


def with_boxes(cameras, name, prefix):
    """Topics with one that belongs to a camera; masks come with boxes of the same prefix."""
    boxes = {f"{prefix}model/boxes2d": DETECT} if "mask" in name else {}
    return {**cameras, **boxes, f"{prefix}{name}": TYPES[name]}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("cameras", "prefix", "expected"), PLACES)
def test_what_belongs_to_another_camera_is_not_used(cameras, prefix, expected, name):
    topics, settings = with_boxes(cameras, name, prefix), Settings(reference_topic=next(iter(cameras)))
    for live in (False, True):
        roles = choose_topics(topics, settings, live=live)
        assert (f"{prefix}{name}" in used(roles)) is expected
        assert roles.reference == next(iter(cameras))
        said = [note for note in roles.notes if f"{prefix}{name} is not used" in note]
        assert bool(said) is not expected or "mask" in name
        assert all("model_topic" in note for note in said)
        if not expected:
            assert used(roles) == set()


@pytest.mark.parametrize("name", ["model/output", "model/boxes2d"])
@pytest.mark.parametrize("prefix", ["/", "/front/"])
def test_the_settings_say_whose_it_is(name, prefix):
    topics = {**BOTH, **{f"{prefix}{other}": kind for other, kind in TYPES.items() if other != "model/mask_compressed"}}
    roles = choose_topics(topics, Settings(reference_topic=REAR, model_topic=f"{prefix}{name}"))
    assert roles.model == f"{prefix}{name}"
    assert roles.statics == {f"{prefix}model/info"}
    assert roles.masks == (f"{prefix}model/mask" if name == "model/boxes2d" else None)


@pytest.mark.parametrize("name", ["model/output", "model/info", "camera/info"])
@pytest.mark.parametrize(("cameras", "prefix", "expected"), PLACES)
def test_live_what_comes_late_is_recorded_by_the_same_rule(cameras, prefix, expected, name):
    system = System(cameras)
    source = system.source(Settings(reference_topic=next(iter(cameras))))
    source.refresh(0.0)
    system.offers[f"{prefix}{name}"] = CAMERA_INFO if name == "camera/info" else TYPES[name]
    for now in range(1, 30):
        source.refresh(float(now))
    assert (f"{prefix}{name}" in source.states) is expected


@pytest.mark.parametrize("name", ["model/output", "model/info", "camera/info"])
@pytest.mark.parametrize("camera_after", [2, 20], ids=["soon", "late"])
@pytest.mark.parametrize("there", [True, False], ids=["from the beginning", "later"])
def test_live_what_comes_before_its_own_camera_is_not_used(name, camera_after, there):
    """A camera that starts within seconds keeps its topics; one that starts later gets them back."""
    topic, schema = f"/front/{name}", CAMERA_INFO if name == "camera/info" else TYPES[name]
    system = System({REAR: VIDEO} | ({topic: schema} if there else {}))
    settings, waiting = Settings(reference_topic=REAR), CameraWait(Settings(reference_topic=REAR))
    offers, roles = system.list_topics({}), None
    seconds = [
        now for now in range(60) if roles is None and (roles := waiting.find_roles(offers, float(now))) is not None
    ]
    assert seconds == [5 if there and name != "camera/info" else 1]
    system.offers[topic] = schema
    source = LiveSource(system, settings, roles, lambda *message: system.came.append(message), system)
    for now in range(camera_after):
        source.refresh(float(now))
        if topic in system.arrive:
            system.send(topic, b"early")
    system.offers[FRONT] = VIDEO
    for now in range(camera_after, 40):
        source.refresh(float(now))
        if topic in system.arrive:
            system.send(topic, b"late")
    came = [bytes(message.data) for message, *_ in system.came]
    assert b"late" not in came
    if camera_after == 20:
        assert b"early" in came
        assert source.unused[topic] == f"not recorded any more: it belongs to {FRONT}"


# ---- whole conversions -------------------------------------------------------------------
COMMON = {"seconds": 1.0, "fps": 10.0, "gop": 5, "size": (128, 64), "codec": "h264", "model_every": 1}


def moved(found, name, *owned):
    """Messages of a recording with the camera's topics, and those `owned`, under /NAME/."""
    return [
        (schema, replace(channel, topic=f"/{name}{channel.topic}"), message)
        if channel.topic.startswith(("/camera/h264", *owned))
        else (schema, channel, message)
        for schema, channel, message in found
    ]


@pytest.fixture(scope="module")
def pair(recording, tmp_path_factory):
    """Front and rear with equal stamps, of which the front's model alone is recorded."""
    model = {"camera", "model/output", "model/info", "camera/info"}
    front = moved(messages(recording(topics=model, **COMMON)), "front", "/model", "/camera/info")
    rear = moved(messages(recording(topics={"camera"}, **COMMON)), "rear")
    return write(tmp_path_factory.mktemp("pair") / "wagon.mcap", together(front, rear))


@pytest.mark.parametrize("cameras", [[REAR, FRONT], [REAR]])
def test_the_front_cameras_boxes_are_no_labels_of_the_rear(pair, cameras, tmp_path):
    outcome = convert(pair, tmp_path, reference_topic=cameras)
    sequences = Dataset(outcome.paths.container).metadata["sequences"]
    labelled = {row["name"] for row in rows(outcome.paths.arrow) if row.get("label") is not None}
    assert labelled == {name for name in sequences if "front" in name}
    assert [sequence["camera_info"] is None for name, sequence in sequences.items() if "front" not in name] == [True]
    assert any("/front/model/output is not used: it belongs to /front/camera/h264" in note for note in outcome.notes)


def info(frame_id, fx, size):
    def make(message):
        known = sensor_msgs.CameraInfo.from_cdr(message.data)
        stamp = known.header.stamp if hasattr(known, "header") else known.stamp
        from edgefirst.schemas import std_msgs

        k = [fx, 0, size[0] / 2, 0, fx, size[1] / 2, 0, 0, 1]
        content = sensor_msgs.CameraInfo(
            std_msgs.Header(stamp, frame_id), size[1], size[0], "plumb_bob", [0.0] * 5, k, [1, 0, 0, 0, 1, 0, 0, 0, 1],
            [*k[:3], 0, *k[3:6], 0, *k[6:], 0],
        )  # fmt: skip
        return replace(message, data=bytes(content.to_bytes()))

    return make


OPTICAL, SIZE = "camera_optical", (128, 64)
INFOS = [  # topics of CameraInfo in recorded order with frame_id, fx and size; fx of the one for the reference
    ("/camera/h264", {"/camera/info": (OPTICAL, 50, SIZE), "/camera/resized/camera_info": (OPTICAL, 25, (64, 32))}, 50),
    ("/camera/h264", {"/camera/resized/camera_info": (OPTICAL, 25, (64, 32)), "/camera/info": (OPTICAL, 50, SIZE)}, 50),
    ("/camera/h264", {"/camera/info": ("renamed", 50, (64, 32)), "/other/camera/info": (OPTICAL, 25, SIZE)}, 50),
    ("/camera/h264", {"/x/camera/info": ("x", 25, SIZE), "/y/camera/info": (OPTICAL, 50, (64, 32))}, 50),
    ("/camera/h264", {"/x/camera/info": ("x", 25, (64, 32)), "/y/camera/info": ("y", 50, SIZE)}, 50),
    ("/camera/h264", {"/x/camera/info": (OPTICAL, 25, (64, 32)), "/y/camera/info": (OPTICAL, 50, SIZE)}, 50),
    ("/camera/h264", {"/x/camera/info": (OPTICAL, 25, SIZE), "/y/camera/info": (OPTICAL, 50, SIZE)}, None),
    ("/camera/h264", {"/x/camera/info": ("x", 25, SIZE), "/y/camera/info": ("y", 50, SIZE)}, None),
    ("/camera/h264", {"/x/camera/info": ("x", 25, (64, 32))}, None),
    ("/camera/h264", {}, None),
    (FRONT, {"/front/camera/info": (OPTICAL, 50, SIZE), "/rear/camera/info": (OPTICAL, 77, SIZE)}, 50),
    (FRONT, {"/rear/camera/info": (OPTICAL, 77, SIZE), "/front/camera/info": (OPTICAL, 50, SIZE)}, 50),
    (FRONT, {"/rear/camera/info": ("rear", 77, SIZE)}, None),
    (FRONT, {"/rear/camera/info": (OPTICAL, 77, SIZE)}, None),
    (FRONT, {"/camera/info": (OPTICAL, 50, SIZE)}, 50),
    ("/camera/h264", {"/x/camera_info": (OPTICAL, 25, SIZE), "/camera/h264/camera_info": (OPTICAL, 50, SIZE)}, 50),
]


EXIF, FOCAL_35MM = 0x8769, 0xA405


def capture(found, reference, folder):
    """Capture the messages of a recording, all topics of which are there from the beginning."""
    system = System({channel.topic: schema.name for schema, channel, _ in found})
    live = LiveSettings(out=str(folder), sequence="drive", min_free_bytes=0, fsync=False)
    session = CaptureSession(system, Settings(reference_topic=reference), live, "wagon", system)
    session.activate()
    session.refresh()
    for _, channel, message in found:
        if channel.topic in system.arrive:
            system.send(channel.topic, message.data, message.sequence + 1)
    session.refresh()
    session.deactivate()


@pytest.mark.parametrize(
    ("kind", "reference", "infos", "expected"),
    [("jpeg", *case) for case in INFOS] + [(kind, *case) for kind in ("h264", "tiles") for case in INFOS[4:15:5]],
)
def test_intrinsics_are_those_of_the_pictures(recording, tmp_path, monkeypatch, kind, reference, infos, expected):
    monkeypatch.setattr(Settling, "QUIET", 0.0)
    codec = "jpeg" if kind == "jpeg" else "h264"
    topic = reference.replace("h264", {"h264": "h264", "tiles": "h264/tl", "jpeg": "jpeg"}[kind])
    found = []
    for schema, channel, message in messages(recording(topics={"camera", "camera/info"}, **COMMON | {"codec": codec})):
        if channel.topic == "/camera/info":
            for number, (name, made) in enumerate(infos.items()):
                frame_id, fx, size = made
                size = tuple(2 * length for length in size) if kind == "tiles" else size
                later = replace(info(frame_id, fx, size)(message), log_time=message.log_time + number)
                own = topic + name.removeprefix(reference) if name.startswith(f"{reference}/") else name
                found.append((schema, replace(channel, topic=own), later))
            continue
        tiles = (
            [f"{topic.removesuffix('tl')}{tile}" for tile in ("tl", "tr", "bl", "br")] if kind == "tiles" else [topic]
        )
        found += [(schema, replace(channel, topic=name), message) for name in tiles]
        if reference == FRONT:
            found += [(schema, replace(channel, topic=name.replace("front", "rear")), message) for name in tiles]
    found.sort(key=lambda item: item[2].log_time)
    outcome = convert(write(tmp_path / "drive.mcap", found), tmp_path / "out", reference_topic=topic)
    known = Dataset(outcome.paths.container).metadata["camera_info"]
    assert (known and known["k"][0]) == expected
    capture(found, topic, tmp_path / "live")
    assert_same_dataset(tmp_path / "live", tmp_path / "out", "drive")
    with zipfile.ZipFile(outcome.paths.container) as archive:
        pictures = [Image.open(archive.open(name)).getexif() for name in archive.namelist()]
    focal = known and round(36 * expected / known["width"])
    assert {exif.get_ifd(EXIF).get(FOCAL_35MM) for exif in pictures} == {focal}
    if expected is None and infos and not any("rear" in name for name in infos):
        assert any("is not used for" in note and "the size of its pictures" in note for note in outcome.notes)


def test_a_camera_info_belongs_to_the_pictures_of_its_namespace(recording, tmp_path):
    """RealSense's SDK writes Color_0/image/data and Color_0/info/camera_info, the latter without a frame."""
    names = {"camera": "/device_0/{}/image/data", "camera/info": "/device_0/{}/info/camera_info"}
    color, depth = (
        messages(recording(topics=set(names), **COMMON | {"codec": "jpeg"}, rename={
            key: name.format(stream) for key, name in names.items()}))
        for stream in ("Color_0", "Depth_0")
    )  # fmt: skip
    found = []
    for schema, channel, message in together(color, depth):
        own = info("", 50 if "Color" in channel.topic else 25, SIZE) if channel.topic.endswith("info") else replace
        found.append((schema, channel, own(message)))
    path, config, topic = (
        write(tmp_path / "drive.mcap", found),
        tmp_path / "rig.yaml",
        names["camera"].format("Color_0"),
    )
    assert CliRunner().invoke(app, ["rig", str(path), "-o", str(config)]).exit_code == 0
    for options in ({"reference_topic": topic}, {"config": config}):
        outcome = convert(path, tmp_path / next(iter(options)), **options)
        assert Dataset(outcome.paths.container).metadata["camera_info"]["k"][0] == 50


def test_a_static_transform_that_changes_keeps_its_first_value_and_the_change_is_said(recording, tmp_path):
    from edgefirst.schemas import geometry_msgs

    path = recording(topics={"camera", "tf_static"}, **COMMON | {"codec": "jpeg", "seconds": 3.0})
    found, changed = messages(path), None
    expected = Dataset(convert(path, tmp_path / "as-it-was").paths.container).metadata["static_transforms"]
    moved = []
    for schema, channel, message in found:
        if channel.topic == "/tf_static" and message.log_time > found[0][2].log_time + 15 * 10**8:
            known = geometry_msgs.TransformStamped.from_cdr(message.data)
            if known.child_frame_id == expected[0]["child"]:
                changed = changed or message.log_time
                data = bytearray(message.data)  # the last byte of the quaternion's w
                data[-1] ^= 0x80
                moved.append((schema, channel, replace(message, data=bytes(data))))
                continue
        moved.append((schema, channel, message))
    outcome = convert(write(tmp_path / "moved.mcap", moved), tmp_path / "out")
    assert changed is not None
    assert Dataset(outcome.paths.container).metadata["static_transforms"] == expected
    said = [note for note in outcome.notes if "tf_static" in note]
    assert len(said) == 1
    assert f"to {expected[0]['child']} changes at " in said[0]
    assert f"(log_time {changed})" in said[0]
