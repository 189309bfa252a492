# SPDX-License-Identifier: Apache-2.0
"""Ready rigs: a drive whose topics have their names gives the members and rows of the Maivin's names, byte for byte."""

import json
from pathlib import Path

import pyarrow.ipc
import pytest
import yaml
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
from same_dataset import assert_same_dataset
from typer.testing import CliRunner

from edgefirst_ros import convert
from edgefirst_ros.cli.app import app
from edgefirst_ros.cli.info import recording_facts
from edgefirst_ros.errors import DatasetError, RecordingError, UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

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
    convert(path, tmp_path, config=config)
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
    for key, topic in (("lidar.points", "/lidar/filtered"), ("gps", "/fix")):
        assert any(f"{key}: {{topic: {topic}}}" in line for line in left)


def test_a_draft_of_a_drive_without_a_camera_names_another_reference(plain, tmp_path):
    path = tmp_path / "blind.mcap"
    write_recording(path, Recipe(seconds=1.0, topics={"radar/targets", "imu"}))
    config = tmp_path / "rig.yaml"
    assert CliRunner().invoke(app, ["rig", str(path), "-o", str(config)]).exit_code == 0
    assert convert(path, tmp_path, config=config).samples == 18


def spoil(tmp_path, what):
    """Arguments of `rig` that it refuses."""
    path, taken = tmp_path / "drive.mcap", tmp_path / "taken.yaml"
    write_recording(path, Recipe(seconds=0.5, topics={"gps"}))
    taken.touch()
    other = tmp_path / "other.mcap"
    if what == "no topic":
        write_recording(path, Recipe(seconds=0.5, topics={"radar/info"}))
    elif what == "other type":
        write_recording(other, Recipe(seconds=0.5, topics={"imu"}, rename={"imu": "/gps"}))
    elif what == "no recording":
        path.write_bytes(b"PK")
    also = [str(other)] if what == "other type" else []
    return [str(path), *also, *{"exists": ("-o", str(taken)), "bucket": ("-o", "s3://a/b")}.get(what, ())]


@pytest.mark.parametrize(
    ("what", "error", "names"),
    [
        ("no topic", RecordingError, "drive.mcap"),
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
    uses = {"/fix": "gps_topic: /fix", "/rear/points": "rig: lidar.points: {topic: /rear/points}"}
    for topic, use in uses.items():
        assert any(note.endswith(f"{topic} is not used; to use it: {use}") for note in outcome.notes)
    metadata = pyarrow.ipc.open_file(outcome.paths.frames).schema.metadata
    found = {of["topic"]: of for of in json.loads(metadata[b"unused_topics"])}
    assert {topic: of["use"] for topic, of in found.items() if topic in uses} == uses
    assert found["/rear/points"]["count"] == outcome.counts["/rear/points"].seen > 0
    assert {of["topic"] for of in recording_facts(path)["unused_topics"]} == set(found)
    with pytest.raises(UsageError, match=r"--strict-topics: not used: .*/rear/points"):
        convert(path, tmp_path / "strict", strict_topics=True)
    kept = {"unused": [topic.lstrip("/") for topic in found]}
    assert convert(path, tmp_path / "kept", strict_topics=True, rig=kept).samples == outcome.samples


def test_a_key_without_a_topic_is_missing_in_the_metadata(plain, tmp_path):
    outcome = convert(plain[0], tmp_path, rig={"lidar.points": "/mine"})
    metadata = pyarrow.ipc.open_file(outcome.paths.frames).schema.metadata
    assert json.loads(metadata[b"missing"]) == ["lidar.points"]
