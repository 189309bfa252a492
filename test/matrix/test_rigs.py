# SPDX-License-Identifier: Apache-2.0
"""Rigs: other names of topics, and several instances of a sensor.

With a ready rig a drive whose topics have its names gives the members and rows of the Maivin's names, byte for byte. Of
several instances each gives what it gives as the only one.
"""

import json
import re
import shlex
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.ipc
import pytest
import yaml
from bags import messages, together, write, write_two_of_each
from edgefirst.schemas import builtin_interfaces, sensor_msgs, std_msgs
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from pose_recordings import ODOMETRY, add_messages, poses
from same_dataset import assert_same_dataset, frame_of, frames, members
from typer.testing import CliRunner

from edgefirst_ros import convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.cli.info import DatasetInfo, collect_recording_facts
from edgefirst_ros.dataset import Dataset
from edgefirst_ros.errors import DatasetError, RecordingError, UsageError
from edgefirst_ros.report.projection import NotProjectableError, project
from edgefirst_ros.report.run import report
from edgefirst_ros.sensors.png import encode_gray
from edgefirst_ros.streams import CLOUD, COMPRESSED_IMAGE, IMAGE
from edgefirst_ros.synthetic import START, Recipe, write_recording
from edgefirst_ros.synthetic.messages import make_cloud
from edgefirst_ros.synthetic.scene import LIDAR

RIGS = Path(__file__).parents[2] / "config" / "rigs"
SMALL = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 50}
AUTOWARE, FRONT = "/sensing/camera/camera0", "/CAM_FRONT"
NAMES = {
    "maivin": {},
    "autoware": {
        "camera/jpeg": f"{AUTOWARE}/image_raw/compressed",
        "camera/info": f"{AUTOWARE}/camera_info",
        "lidar/points": "/sensing/lidar/concatenated/pointcloud",
        "gps": "/sensing/gnss/ublox/nav_sat_fix",
        "imu": "/sensing/imu/imu_data",
    },
    "nuscenes2mcap": {
        "camera/jpeg": f"{FRONT}/image_rect_compressed",
        "camera/info": f"{FRONT}/camera_info",
        "lidar/points": "/LIDAR_TOP",
        "radar/targets": "/RADAR_FRONT",
    },
    "one-camera-one-ouster": {
        "camera/jpeg": "/image_raw/compressed",
        "camera/info": "/camera_info",
        "lidar/points": "/ouster/points",
        "gps": "/fix",
        "imu": "/ouster/imu",
    },
}


def renamed(source, folder, names, twice=()):
    """Write a recording again with other names of topics; those of `twice` also under a second name."""
    folder.mkdir()
    path = folder / source.name
    with source.open("rb") as old, path.open("wb") as new:
        writer = Writer(new, compression=CompressionType.NONE)
        writer.start(profile="ros2")
        schemas, channels = {}, {}
        for schema, channel, message in make_reader(old).iter_messages(log_time_order=False):
            known = next((n for n in names if channel.topic.endswith(f"/{n}") or channel.topic == n), None)
            topics = [names.get(known, channel.topic)]
            topics += [second for name, second in twice if channel.topic.endswith(name)]
            if schema.id not in schemas:
                schemas[schema.id] = writer.register_schema(schema.name, schema.encoding, schema.data)
            for topic in topics:
                if topic not in channels:
                    channels[topic] = writer.register_channel(topic, "cdr", schemas[schema.id], channel.metadata)
                writer.add_message(
                    channels[topic], message.log_time, message.data, message.publish_time, message.sequence
                )
        writer.finish()
    return path


@pytest.fixture(scope="module")
def plain(recording, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    source = recording(**SMALL)
    convert(source, folder)
    return source, folder


@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_renamed_drive_gives_the_same_bytes_by_its_rig(plain, tmp_path, name, drafted):
    source, offline = plain
    path = renamed(source, tmp_path / "drive", NAMES[name])
    config = RIGS / f"{name}.yaml"
    if drafted:
        config = tmp_path / "rig.yaml"
        done = CliRunner().invoke(app, ["rig", str(path), "-o", str(config)])
        assert done.exit_code == 0, done.exception
        given = yaml.safe_load(config.read_text())["rig"]
        assert given["base_frame"] == "base_link"
        assert {given[key]["topic"].removeprefix("/") for key in ("camera", "lidar.points", "gps", "imu")} == {
            NAMES[name].get(one, one).removeprefix("/") for one in ("camera/jpeg", "lidar/points", "gps", "imu")
        }
    given = yaml.safe_load(config.read_text())["rig"]
    rig = {key: sensor for key, sensor in given.items() if key not in ("pose", "boxes3d")}  # the drive has neither
    convert(path, tmp_path, rig=rig)
    assert_same_dataset(tmp_path, offline, path.stem)


def test_a_draft_names_each_further_camera_and_comments_what_it_leaves_out(plain, tmp_path):
    second = [("camera/jpeg", "/left/image_raw/compressed"), ("lidar/points", "/lidar/filtered"), ("/gps", "/fix")]
    path = renamed(plain[0], tmp_path / "drive", {}, second)
    done = CliRunner().invoke(app, ["rig", str(path)])
    assert done.exit_code == 0, done.exception
    drafted = yaml.safe_load(done.stdout)["rig"]
    assert (drafted["camera"]["topic"], drafted["gps"]["topic"]) == ("/camera/jpeg", "/gps")
    assert "camera.left: {topic: /left/image_raw/compressed" in done.stdout
    left = [line for line in done.stdout.splitlines() if line.lstrip().startswith("# ")]
    for key, topic in (("lidar.points.filtered", "/lidar/filtered"), ("gps", "/fix")):
        assert any(f"{key}: {{topic: {topic}}}" in line for line in left)


@pytest.mark.parametrize("cameras", [1, 2])
def test_the_only_intrinsics_are_those_of_the_only_camera(plain, tmp_path, cameras):
    second = [("camera/jpeg", "/left/image_raw/compressed")] * (cameras - 1)
    path = renamed(plain[0], tmp_path / "drive", {"camera/info": "/optics/info"}, second)
    done = CliRunner().invoke(app, ["rig", str(path)])
    assert yaml.safe_load(done.stdout)["rig"]["camera"].get("info") == ("/optics/info" if cameras == 1 else None)


@pytest.mark.parametrize(("also", "samples"), [((), 18), (("lidar/points",), 10)])
def test_a_draft_of_a_drive_without_a_camera_names_another_reference(tmp_path, also, samples):
    path = tmp_path / "blind.mcap"
    write_recording(path, Recipe(seconds=1.0, topics={"radar/targets", "imu", *also}))
    config = tmp_path / "rig.yaml"
    assert CliRunner().invoke(app, ["rig", str(path), "-o", str(config)]).exit_code == 0
    assert convert(path, tmp_path, config=config).samples == samples


def spoil(tmp_path, what):
    """Arguments of `rig` that it refuses."""
    path, taken = tmp_path / "drive.mcap", tmp_path / "taken.yaml"
    write_recording(path, Recipe(seconds=0.5, topics={"gps"}))
    taken.touch()
    other = tmp_path / "other.mcap"
    if what in ("radar/info", "imu"):
        write_recording(path, Recipe(seconds=0.5, topics={what}))
    elif what == "other type":
        write_recording(other, Recipe(seconds=0.5, topics={"imu"}, rename={"imu": "/gps"}))
    elif what == "no recording":
        path.write_bytes(b"PK")
    also = [str(other)] if what == "other type" else []
    return [str(path), *also, *{"exists": ("-o", str(taken)), "bucket": ("-o", "s3://a/b")}.get(what, ())]


@pytest.mark.parametrize(
    ("what", "error", "names"),
    [
        ("radar/info", RecordingError, "drive.mcap: no topic has pictures, clouds or cubes"),
        ("imu", RecordingError, "drive.mcap: no topic has pictures, clouds or cubes"),  # has no members
        ("no recording", RecordingError, "drive.mcap"),
        ("other type", UsageError, "/gps is sensor_msgs/msg/Imu, in another recording sensor_msgs/msg/NavSatFix"),
        ("exists", DatasetError, "taken.yaml"),
        ("bucket", UsageError, "s3://a/b"),
    ],
)
def test_rig_refuses_bad_input_by_name(tmp_path, what, error, names):
    done = CliRunner().invoke(app, ["rig", *spoil(tmp_path, what)])
    assert isinstance(done.exception, error)
    assert names in str(done.exception)
    assert (tmp_path / "taken.yaml").read_bytes() == b""


def test_topics_without_a_role_are_named_everywhere_and_strict_refuses_them(plain, tmp_path):
    source, _ = plain
    second = [("lidar/points", "/rear/points"), ("/gps", "/fix")]
    path = renamed(source, tmp_path / "drive", {}, second)
    outcome = convert(path, tmp_path)
    uses = {"/fix": "gps_topic: /fix", "/rear/points": "rig: lidar.points.rear: {topic: /rear/points}"}
    for topic, use in {
        "/fix": "--set gps_topic=/fix",
        "/rear/points": "--rig '{lidar.points.rear: {topic: /rear/points}}'",
    }.items():
        assert any(note.endswith(f"{topic} is not used; to use it: {use}") for note in outcome.notes)
    rigged = convert(path, tmp_path / "rigged", rig={"gps": "/gps"})
    assert any(
        note.endswith("/fix is not used; to use it: write gps: {topic: /fix} in the rig") for note in rigged.notes
    )
    metadata = pyarrow.ipc.open_file(outcome.paths.frames).schema.metadata
    found = {of["topic"]: of for of in json.loads(metadata[b"unused_topics"])}
    assert {topic: of["use"] for topic, of in found.items() if topic in uses} == uses
    assert found["/rear/points"]["count"] == outcome.counts["/rear/points"].seen > 0
    assert {of["topic"] for of in collect_recording_facts(path)["unused_topics"]} == set(found)
    for printed in (outcome.text(), DatasetInfo(outcome.paths.container).text()):
        lines = [*printed]
        (table,) = [part for part in lines if not isinstance(part, str) and part[0][0] == "topic"]
        used = {row[0]: row[2] for row in table[1]}
        assert (used["/rear/points"], used["/fix"], used["/imu"]) == ("no", "no", "-")
        assert "-: read for position, attitude, labels or calibration, or of no use; no: see the notes" in lines
    for what in (path, outcome.paths.container):
        reported = report(what, tmp_path / "page.html", samples=1, overwrite=True)
        page = reported.pages[0].read_text()
        assert {of["topic"]: of["use"] for of in reported.facts[0]["unused_topics"]} == {
            t: o["use"] for t, o in found.items()
        }
        assert page.count('data-name="used">no</td>') == len(found)
        assert all(f"{topic} (" in page and f"<code>{use}</code>" in page for topic, use in uses.items())
    with pytest.raises(UsageError, match=r"--strict-topics: not used: .*/rear/points"):
        convert(path, tmp_path / "strict", strict_topics=True)
    kept = {"unused": [topic.lstrip("/") for topic in found]}
    assert convert(path, tmp_path / "kept", strict_topics=True, rig=kept).samples == outcome.samples


@pytest.mark.parametrize(
    ("given", "lidar", "fix"),
    [
        ([], "/rear/points", "/fix"),
        (["--sensors", "camera"], "/rear/points", "/fix"),
        ([], "/it's, {a}: [x] #1/points*", "/b: fi*"),
        ([], "/arri\u00e8re \U0001f69a/points", '/the "fix"'),
    ],
)
def test_the_use_of_a_topic_can_be_pasted(plain, tmp_path, given, lidar, fix):
    second = [("lidar/points", lidar), ("/gps", fix), ("camera/jpeg", "/left/jpeg")]
    path = renamed(plain[0], tmp_path / "drive", {}, second)

    def unused(number, options):
        done = CliRunner().invoke(app, ["convert", str(path), "-o", str(tmp_path / str(number)), *given, *options])
        assert done.exit_code == 0, done.exception
        return dict(re.findall(r": (/.+) is not used; to use it: (.+)", done.output))

    found = unused("plain", [])
    assert found.keys() >= {lidar, fix, "/left/jpeg", *(["/lidar/points"] if given else [])}
    for number, (topic, use) in enumerate(found.items()):
        assert topic not in unused(number, shlex.split(use)) or (given and use.startswith("--rig")), use


def test_unused_topics_beside_a_rig_are_lines_to_add_to_it(plain, tmp_path):
    """The option --rig would replace the rig, and with it the other sensors. Livox names two lidars side by side."""
    lidars = ["/rear/lidar_1", "/rear/lidar_2", "/rear/lidar_3"]
    path = renamed(plain[0], tmp_path / "drive", {}, [("lidar/points", topic) for topic in lidars])
    config, made = tmp_path / "rig.yaml", tmp_path / "out"
    config.write_text("rig:\n  lidar.points: /lidar/points\n  lidar.points.rear: /rear/lidar_1\n")
    told = []
    for command in (
        ["convert", path, "-o", made, "--config", config], ["info", path, "--config", config],
        ["info", made / f"{path.stem}.zip"],
    ):  # fmt: skip
        done = CliRunner().invoke(app, [*map(str, command)])
        told.append(re.findall(r"/rear/lidar.* is not used.*; to use it: add (.+) to the rig", done.output))
    assert told == [[f"lidar.points.rear_lidar_{n}: {{topic: /rear/lidar_{n}}}" for n in (2, 3)]] * 3
    config.write_text("\n  ".join([config.read_text().rstrip(), *told[0]]))
    outcome = convert(path, tmp_path / "both", config=config)
    assert {outcome.counts[topic].written for topic in lidars} == {outcome.counts["/lidar/points"].written} != {0}


@pytest.mark.parametrize(
    ("field", "topic", "key"),
    [
        *(
            (field, "/front/points", "radar.targets")
            for field in ("speed", "doppler", "rcs", "RCS", "radial_speed", "range_rate")
        ),
        *(
            (field, "/front/points", "radar.targets")  # of Bosch, of TI in the datasets of reve, of Provizio
            for field in ("radial_velocity", "v_doppler_mps", "radar_relative_radial_velocity")
        ),
        ("velocity", "/ti_mmwave/radar_scan", "radar.targets"),  # lidars measure it too
        ("velocity", "/front/points", "lidar.points"),
        ("ring", "/front/points", "lidar.points"),
    ],
)
def test_the_only_cloud_is_of_a_radar_or_a_lidar_by_its_fields_or_name(recording, tmp_path, field, topic, key):
    points = np.zeros(3, [(name, "<f4") for name in ("x", "y", "z", field)])
    stamps = range(START, START + 10**9, 10**8)
    sent = [(at, topic, CLOUD, make_cloud(points, "front", at)) for at in stamps]
    path = add_messages(recording(**SMALL, topics={"camera"}), tmp_path / "drive.mcap", sent)
    outcome = convert(path, tmp_path / "out")
    assert [note for note in outcome.notes if note.endswith(f"is used as {key}: it is the only {CLOUD} topic")]
    assert by_frame(outcome.paths.container, f"{key.partition('.')[0]}.pcd")


@pytest.mark.parametrize(
    ("name", "schema", "form"),
    [
        ("image_rect_raw", IMAGE, "16UC1"),
        ("depth_registered", IMAGE, "32FC1"),
        ("instance_segmentation", IMAGE, "32SC1"),
        ("disparity", IMAGE, "16SC1"),
        ("/radar/polar", IMAGE, "mono8"),
        ("/talker1/Navtech/Cartesian", IMAGE, "mono8"),
        ("range_image", IMAGE, "mono16"),
        ("image_rect_raw/compressed", COMPRESSED_IMAGE, "16UC1; png compressed "),
    ],
)
def test_pictures_of_depth_labels_and_radars_are_no_camera(recording, tmp_path, name, schema, form):
    """As those of RealSense, ZED and OAK, Ouster, Isaac Sim and Navtech; two forms are not of two cameras."""
    color, depth = "/front/color/image_raw/compressed", name if name[0] == "/" else f"/front/depth/{name}"
    sent = []
    for at in range(START, START + 10**9, 10**8):
        head = std_msgs.Header(builtin_interfaces.Time(*divmod(at, 10**9)), "depth_optical_frame")
        raw = sensor_msgs.Image(head, 2, 2, "bgr8" if schema != IMAGE else form, 0, 8, bytes(16))
        packed = sensor_msgs.CompressedImage(head, form, encode_gray(np.zeros((2, 2), np.uint16)))
        head = std_msgs.Header(head.stamp, "camera_optical")
        plain = sensor_msgs.Image(head, 2, 2, "bgr8", 0, 8, bytes(16))
        sent.append((at, depth, schema, (raw if schema == IMAGE else packed).to_bytes()))
        sent.append((at, "/front/color/image_raw", IMAGE, plain.to_bytes()))
    drive = recording(**SMALL, topics={"camera"}, rename={"camera": color})
    path = add_messages(drive, tmp_path / "drive.mcap", sent)
    told = CliRunner().invoke(app, ["info", str(path)]).output
    assert "several cameras" not in told
    assert f"samples would be made of {color}" in told
    assert [of["topic"] for of in collect_recording_facts(path)["unused_topics"]] == ["/front/color/image_raw"]
    assert convert(path, tmp_path / "out").counts[color].written > 0
    drafted = yaml.safe_load(CliRunner().invoke(app, ["rig", str(path)]).output)["rig"]
    assert drafted == {"camera": {"topic": color}}


def test_the_cloud_that_samples_are_made_of_is_written(recording, tmp_path):
    """Of two clouds the named one has its role by its fields, so the other one is the only one left."""
    names = {"lidar/points": "/top/points", "radar/targets": "/front/targets"}
    path = recording(**SMALL, topics={"camera", *names}, rename=names)
    outcome = convert(path, tmp_path / "out", reference_topic="/top/points")
    rig = convert(path, tmp_path / "rig", reference_topic="/top/points", rig={
        "lidar.points": "/top/points", "radar.targets": "/front/targets"})  # fmt: skip
    assert any(note.endswith(f"it is the only other {CLOUD} topic") for note in outcome.notes)
    assert outcome.samples == rig.samples == rig.counts["/top/points"].written > 0
    for kind in ("lidar.pcd", "radar.pcd"):
        assert by_frame(outcome.paths.container, kind) == by_frame(rig.paths.container, kind) != {}


def test_a_key_without_a_topic_is_missing_in_the_metadata(plain, tmp_path):
    outcome = convert(plain[0], tmp_path, rig={"lidar.points": "/mine"})
    metadata = pyarrow.ipc.open_file(outcome.paths.frames).schema.metadata
    assert json.loads(metadata[b"missing"]) == ["lidar.points"]
    page = report(outcome.paths.container, tmp_path / "page.html", samples=1).pages[0].read_text()
    assert "a topic for lidar.points that is not in the recording" in page


@pytest.mark.parametrize("named", ["/camera/info", "/left/camera_info"])
def test_the_camera_info_of_pictures_of_another_size_is_noted(tmp_path, named):
    path, rig = write_two_of_each(tmp_path, seconds=0.5)
    rig["camera"]["info"] = named
    del rig["camera.left"]["info"]
    outcome = convert(path, tmp_path / "out", rig=rig, max_width=64)
    noted = [note for note in outcome.notes if "camera/info" in note]
    assert noted == [
        "rigged.mcap: camera/info: /left/camera_info is for pictures of 128 x 64, those of /camera/jpeg have 160 x 96",
        "rigged.mcap: camera/info: none belongs to /left/jpeg",
    ] * (named == "/left/camera_info")


BOXES = {"camera", "camera/info", "lidar/points", "fusion/boxes3d", "tf_static", "gps", "imu"}


@pytest.mark.parametrize("frame", ["ego_frame", "base_link", "elsewhere"])
def test_the_vehicle_has_the_frame_that_the_rig_names(recording, tmp_path, frame):
    """`ego_frame` is base_link in a drive that calls it so."""
    plain = recording(**SMALL, topics=BOXES)
    odometry = poses(
        ODOMETRY, lambda at: (((at - START) / 1e9, 2.0, 0.0), (0.0, 0.0, 0.6, 0.8)), START, 1.0, child="lidar"
    )
    named = add_messages(plain, tmp_path / "named" / plain.name, odometry)
    other = [(s, c, replace(m, data=m.data.replace(b"base_link\0", b"ego_frame\0"))) for s, c, m in messages(named)]
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other" / plain.name, other)
    given = named if frame == "base_link" else other
    expected, found = convert(named, tmp_path / "a"), convert(given, tmp_path / "b", rig={"base_frame": frame})
    rows = [pyarrow.ipc.open_file(outcome.paths.arrow).read_all() for outcome in (expected, found)]
    metadata = [Dataset(outcome.paths.container).metadata for outcome in (expected, found)]
    if frame == "elsewhere":
        assert any("base_frame: elsewhere is not used: no static transform" in note for note in found.notes)
        assert metadata[1].get("box3d_frame") != "base_link" == metadata[0]["box3d_frame"]
        return
    assert not any("base_frame" in note for note in found.notes)
    assert rows[0].num_rows > 0 < rows[0]["box3d"].drop_null().length()
    assert rows[0].equals(rows[1])
    assert metadata[0]["box3d_frame"] == metadata[1]["box3d_frame"] == "base_link"
    assert metadata[0]["pose_source"] == metadata[1]["pose_source"]
    for column in ("pose_position", "pose_orientation"):
        one, other = (np.array(frames(o.paths.frames)[column].drop_nulls().to_list()) for o in (expected, found))
        np.testing.assert_allclose(one, other, atol=1e-9)
    points = np.array([[20.0, 1.0, 0.5], [30.0, -4.0, 0.0]])
    one, other = (
        project(points, "lidar", Dataset(o.paths.container).calibration(plain.stem)).pixels for o in (expected, found)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize(
    "keys",
    [
        ("lidar.points", "lidar.points.rear"),
        ("radar.cube", "radar.cube.rear"),
        ("radar.targets", "lidar.points"),
        ("radar.targets.a", "radar.targets.b"),
        ("camera", "camera.left"),
    ],
)
def test_a_topic_of_two_keys_is_refused_by_their_names(plain, tmp_path, keys):
    topics = {"camera": "/camera/jpeg", "radar.cube": "/radar/cube", "radar.targets": "/radar/targets"}
    topic = topics.get(".".join(keys[0].split(".")[:2]), "/lidar/points")
    with pytest.raises(UsageError, match=rf"rig: ({'|'.join(keys)}): {topic} is the topic of ({'|'.join(keys)}); exp"):
        convert(plain[0], tmp_path, rig=dict.fromkeys(keys, topic))


# ---- several instances of a sensor ---------------------------------------------------------------
INSTANCES = {
    "lidar.points": "lidar/points",
    "lidar.points.rear": "/rear/points",
    "radar.cube": "radar/cube",
    "radar.cube.rear": "/rear/cube",
    "radar.targets": "radar/targets",
    "radar.targets.rear": "/rear/targets",
}
KINDS = {
    "lidar.points.rear": ("lidar-rear.pcd", "lidar.pcd"),
    "radar.cube.rear": ("radar-rear.png", "radar.png"),
    "radar.targets.rear": ("radar-rear.pcd", "radar.pcd"),
}
SETTINGS = {"lidar.points.rear": {"tolerance": 0.03, "offset": -0.012}, "radar.cube.rear": {"reuse": False}}
COUNTED = ("written", "dropped")


def settings_of(keys):
    return {key: {"topic": INSTANCES[key], **SETTINGS.get(key, {})} for key in keys}


@pytest.fixture(scope="module")
def several(recording, tmp_path_factory):
    """A recording with a second lidar and a second radar, of other rates, stamps, content and frames."""
    front = recording(**SMALL)
    sensors = {"lidar/points", "radar/cube", "radar/targets"}
    names = {name: f"/rear/{name.partition('/')[2]}" for name in sensors}
    rates = {"lidar/points": 7.0, "radar/cube": 11.0, "radar/targets": 11.0}
    rear = recording(**SMALL, topics=sensors, seed=5, host="rear", rename=names, rates=rates)
    stored = [(s, c, replace(m, data=in_frame(m.data))) for s, c, m in messages(rear)]
    mounted = [
        (s, c, replace(m, data=in_frame(m.data).replace(struct.pack("<3d", *LIDAR), struct.pack("<3d", *REAR))))
        for s, c, m in messages(front)
        if c.topic == "/tf_static" and b"lidar\0" in m.data
    ]
    folder = tmp_path_factory.mktemp("several")
    return write(folder / front.name, together(messages(front), stored, mounted))


REAR = (-1.5, 0.25, 1.75)
"""Place of the second lidar in base_link, m."""


def in_frame(data):
    """A message with another frame_id of the same length."""
    return data.replace(b"\6\0\0\0lidar\0", b"\6\0\0\0aft_l\0").replace(b"\6\0\0\0radar\0", b"\6\0\0\0aft_r\0")


def by_frame(path, kind):
    return {frame_of(name): data for name, data in members(path).items() if name.endswith(f".{kind}")}


@pytest.fixture(scope="module")
def whole(several, tmp_path_factory):
    return convert(several, tmp_path_factory.mktemp("whole"), rig=settings_of(INSTANCES))


@pytest.mark.parametrize("key", KINDS)
def test_each_instance_is_what_it_is_as_the_only_one(several, whole, tmp_path, key):
    base = key.removesuffix(".rear")
    alone = convert(several, tmp_path, rig={base: {"topic": INSTANCES[key], **SETTINGS.get(key, {})}})
    kind, first = KINDS[key]
    found = by_frame(whole.paths.container, kind)
    assert found == by_frame(alone.paths.container, first) != {}
    mine, its = (frames(outcome.paths.frames) for outcome in (whole, alone))
    columns = [f"{base.replace('.', '_')}{{}}_{what}" for what in ("timestamp", "skew")]
    for column in columns:
        assert mine[column.format("_rear")].to_list() == its[column.format("")].to_list()
    both = by_frame(whole.paths.container, first)
    assert both != found
    assert both == by_frame(convert(several, tmp_path / "first").paths.container, first)
    one, other = (outcome.counts[INSTANCES[key]] for outcome in (whole, alone))
    assert [getattr(one, name) for name in COUNTED] == [getattr(other, name) for name in COUNTED]
    assert whole.skews[key].largest == alone.skews[base].largest


def test_each_instance_is_projected_from_its_own_place(whole):
    dataset = Dataset(whole.paths.container)
    calibration = dataset.calibration(dataset.sequences[0])
    assert (calibration.calibration, dict(calibration.sensor_frames)) == (
        "missing",  # nobody says where the second radar is
        {"lidar.points.rear": "aft_l", "radar.cube.rear": "aft_r", "radar.targets.rear": "aft_r"},
    )
    points = np.array([[20.0, 1.0, 0.5], [30.0, -4.0, 0.0]])
    there, inside = project(points, "lidar.points.rear", calibration)
    moved, _ = project(points + np.array(REAR) - LIDAR, "lidar.points", calibration)
    assert inside.all()
    np.testing.assert_allclose(there, moved, atol=1e-9)
    assert np.abs(there - project(points, "lidar.points", calibration)[0]).max() > 1
    with pytest.raises(NotProjectableError, match="aft_r"):
        project(points, "radar.targets.rear", calibration)
