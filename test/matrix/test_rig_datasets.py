# SPDX-License-Identifier: Apache-2.0
"""A dataset of two cameras, two lidars and poses, through every step after its conversion."""

import io
import json
import os
import re
import shutil
import zipfile
from collections import Counter
from types import SimpleNamespace

import numpy as np
import polars as pl
import pyarrow.ipc
import pytest
from bags import REAR, messages, together, write, write_two_of_each
from late import late
from logged import rows
from PIL import Image
from pose_recordings import ODOMETRY, add_messages, poses
from same_dataset import adds_up, frames, members

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import DatasetInfo
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.regroup import split
from edgefirst_ros.dataset.summary import summarize_dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import UsageError
from edgefirst_ros.messages import decode, read_header_stamp
from edgefirst_ros.nodes.dataset_messages import open_playable
from edgefirst_ros.report.projection import NotProjectableError
from edgefirst_ros.report.run import report
from edgefirst_ros.report.view.run import view
from edgefirst_ros.sources.mcap import McapRecording
from edgefirst_ros.synthetic import START
from edgefirst_ros.synthetic.scene import CAMERA, LIDAR

S = 1_000_000_000
SENSORS = ["camera", "camera.left", "lidar.points", "lidar.points.rear"]
KINDS = ["camera-left.jpeg", "camera.jpeg", "lidar-rear.pcd", "lidar.pcd"]
WHOLE = ("camera_infos", "pose_frame", "pose_source", "missing")
SEQUENCE_FACTS = (*WHOLE, "camera_info", "sensor_frames", "static_transforms")


def way(stamp):
    """The vehicle drives straight on: 10 m/s along x."""
    return ((stamp - START) / S * 10, 2.0, 0.5), (0.0, 0.0, 0.6, 0.8)


@pytest.fixture(scope="module")
def rigged(tmp_path_factory):
    """The recording, its settings and its dataset `drive`."""
    folder = tmp_path_factory.mktemp("rigged")
    source, rig = write_two_of_each(folder, seconds=1.0)
    path = add_messages(source, folder / "in" / "drive.mcap", poses(ODOMETRY, way, START, 1.0))
    rig["radar.cube.rear"] = "/absent"
    outcome = convert(path, folder / "out", rig=rig)
    assert outcome.exit_code == 0
    return SimpleNamespace(recording=path, rig=rig, paths=outcome.paths, folder=folder)


def facts(paths, name="drive"):
    """What the frames table states of a sequence."""
    return json.loads(pyarrow.ipc.open_file(paths.frames).schema.metadata[b"sequences"])[name]


def assert_whole(paths, like, name="drive", whole=True):
    """Members, columns and metadata of a dataset are those of the one that it was made of; `whole`: it has no other."""
    dataset, rows, before = Dataset(paths.container), frames(paths.frames), frames(like.frames)
    assert Counter(member.partition(".")[2] for member in members(like.container)) == dict.fromkeys(KINDS, len(before))
    renamed = {m.replace("drive", name): data for m, data in members(like.container).items()}
    found = {m: d for m, d in members(paths.container).items() if m.startswith(f"{name}/")}
    assert found.keys() == renamed.keys()
    assert [m for m in found if found[m] != renamed[m] and (name == "drive" or "camera" not in m)] == []
    own = rows.filter(name=name)
    assert own.drop("name").select(before.drop("name").columns).equals(before.drop("name"))
    for key in ("counts", *SEQUENCE_FACTS):
        assert facts(paths, name)[key] == facts(like)[key], key
    if whole:
        assert {k: dataset.metadata[k] for k in WHOLE} == {k: Dataset(like.container).metadata[k] for k in WHOLE}
        assert all(adds_up(dataset.metadata["counts"][topic]) for topic in ("/left/jpeg", "/rear/points"))
    calibration = dataset.calibration(name)
    assert calibration.camera_infos["camera.left"]["width"] == 128
    assert calibration.sensor_frames == {"lidar.points.rear": "aft_l"}
    sample = dataset.sample(name, 7)
    assert [sample.inputs, sample.pose.position] == [{*SENSORS}, pytest.approx(way(sample.timestamp)[0], abs=1e-6)]
    assert [sample.image(camera).shape for camera in SENSORS[:2]] == [(96, 160, 3), (64, 128, 3)]
    assert not (sample.lidar("lidar.points.rear") == sample.lidar()).all()
    assert validate(paths.container).errors == 0


def copied(rigged, out):
    """A copy of the dataset."""
    shutil.copytree(rigged.paths.out, out)
    return DatasetPaths(out, rigged.paths.name)


def cut(rigged, out):
    """A dataset whose directory and tables are lost."""
    paths = copied(rigged, out)
    with paths.container.open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 1000)
    return paths


class Killed(Exception):
    """Ends a conversion where it stands."""


def killed(rigged, out, monkeypatch, **options):
    """A conversion that ends after half of the samples, each committed at once."""
    monkeypatch.setattr(DatasetWriter, "flush_age", property(lambda _: 1e9))
    write = DatasetWriter.write

    def kill(self, sample):
        if self.samples == 15:
            raise Killed
        write(self, sample)

    with monkeypatch.context() as patched:
        patched.setattr(DatasetWriter, "write", kill)
        with pytest.raises(Killed):
            convert(rigged.recording, out, rig=rigged.rig, **options)
    paths = DatasetPaths(out, "drive", options.get("layout", "zip"))
    assert paths.unfinished
    return paths


def test_a_converted_dataset_is_whole(rigged):
    assert_whole(rigged.paths, rigged.paths)


def test_a_dataset_without_its_directory_is_recovered_whole(rigged, tmp_path):
    paths = cut(rigged, tmp_path / "out")
    assert recover(paths.container).members == 30 * len(KINDS)
    assert_whole(paths, rigged.paths)


def test_a_killed_conversion_is_recovered_as_far_as_it_came(rigged, tmp_path, monkeypatch):
    paths = killed(rigged, tmp_path, monkeypatch)
    assert recover(paths.container).samples == 15
    part = {m: d for m, d in members(rigged.paths.container).items() if int(m.split("_")[1][:3]) < 15}
    assert members(paths.container) == part
    assert frames(paths.frames).equals(frames(rigged.paths.frames).head(15))
    dataset = Dataset(paths.container)
    for key in SEQUENCE_FACTS:
        assert facts(paths)[key] == facts(rigged.paths)[key], key
    for key in WHOLE:
        assert dataset.metadata[key] == Dataset(rigged.paths.container).metadata[key], key
    assert {t: dataset.metadata["counts"][t]["written"] for t in ("/left/jpeg", "/rear/points")} == {
        "/left/jpeg": 15,
        "/rear/points": frames(paths.frames)["lidar_points_rear_timestamp"].n_unique(),
    }


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_killed_conversion_goes_on_to_the_same_bytes(rigged, tmp_path, monkeypatch, layout):
    paths = killed(rigged, tmp_path, monkeypatch, layout=layout)
    if layout == "directory":  # a picture that the disk did not keep: those before it stay
        begun = paths.members_partial / "drive"
        (begun / "drive_012.camera-left.jpeg").unlink()
        kept = (begun / "drive_003.camera-left.jpeg").stat().st_ino
    outcome = convert(rigged.recording, paths.out, rig=rigged.rig, layout=layout, resume=True)
    assert any("continues after" in note for note in outcome.notes)
    assert pl.read_ipc(paths.frames).equals(pl.read_ipc(rigged.paths.frames))
    if layout == "zip":
        assert_whole(paths, rigged.paths)
        assert paths.container.read_bytes() == rigged.paths.container.read_bytes()
    else:
        found = {f"drive/{p.name}": p.read_bytes() for p in (paths.members / "drive").iterdir()}
        assert found == members(rigged.paths.container)
        assert (paths.members / "drive" / "drive_003.camera-left.jpeg").stat().st_ino == kept


@pytest.mark.parametrize("rename", [False, True])
def test_a_merge_keeps_all_of_it(rigged, recording, tmp_path, rename):
    if rename:
        other = tmp_path / "drive.zip"
        for suffix in (".zip", ".arrow", ".frames.arrow"):
            shutil.copy(rigged.paths.container.with_suffix(suffix), other.with_suffix(suffix))
    else:
        small = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "topics": ("camera", "gps")}
        other = convert(recording(**small), tmp_path / "other").paths.container
    merged = merge([other, rigged.paths.container], tmp_path / "out", rename=rename)
    assert merged.exit_code == 0
    assert_whole(merged.paths, rigged.paths, "drive-2" if rename else "drive", whole=False)
    assert Dataset(merged.paths.container).metadata["missing"] == ["radar.cube.rear"]
    sums, own = (Dataset(paths.container).metadata["counts"] for paths in (merged.paths, rigged.paths))
    for topic in ("/left/jpeg", "/rear/points"):
        assert sums[topic]["written"] == own[topic]["written"] * (1 + rename)


def test_stamps_that_a_recovered_table_lacks_are_not_made_of_those_of_the_pictures(rigged, tmp_path):
    paths = copied(rigged, tmp_path / "bare")
    paths.frames.unlink()
    recover(paths.container)
    merged = merge([rigged.paths.container, paths.container], tmp_path / "out", rename=True)
    found = pl.read_ipc(merged.paths.frames)
    own, rebuilt = (found.filter(pl.col("name") == name) for name in ("drive", "drive-2"))
    for column in ("camera_left_timestamp", "lidar_points_timestamp", "lidar_points_rear_timestamp"):
        assert (own[column].drop_nulls().is_empty(), rebuilt[column].drop_nulls().is_empty()) == (False, True)
    assert validate(merged.paths.container).ok


def test_counts_that_a_recovered_table_lacks_are_unknown_in_a_merge(rigged, recording, tmp_path):
    paths = copied(rigged, tmp_path / "bare")
    paths.frames.unlink()
    recover(paths.container)
    other = recording(seconds=1.0, size=(128, 64), codec="png", topics=("camera", "gps"), rename={"camera": "/eye"})
    given = [paths.container, convert(other, tmp_path / "other", reference_topic="/eye").paths.container]
    merged = merge(given, tmp_path / "out")
    assert validate(merged.paths.container).ok
    with Dataset(merged.paths.container) as dataset:
        assert [one.lost for one in summarize_dataset(dataset).sequences] == [None, 0]


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_split_and_a_merge_in_groups_keep_all_of_it(rigged, tmp_path, layout):
    rule = GroupRule({"train": 0.5, "val": 0.5}, block=S // 4)
    if layout == "directory":
        merged = merge([rigged.paths.container], tmp_path / "out", name="drive", layout=layout, group_rule=rule)
        again = merge([merged.paths.folder], tmp_path / "again", name="drive")
        assert Dataset(merged.paths.folder)[7].inputs == {*SENSORS}
        paths, groups = again.paths, merged.groups
    else:
        paths = copied(rigged, tmp_path / "out")
        groups = split([paths.container], rule).counts
    assert_whole(paths, rigged.paths)
    sensors = {group: its["sensors"] for group, its in groups.plain.items()}
    assert {key: sum(its[key] for its in sensors.values()) for key in SENSORS[1:]} == dict.fromkeys(SENSORS[1:], 30)
    assert len(sensors) == 2


def test_datasets_added_up_have_all_of_it(rigged, recording, tmp_path):
    small = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "topics": ("camera", "gps")}
    other = Dataset(convert(recording(**small), tmp_path).paths.container)
    both = other + Dataset(rigged.paths.container)
    assert len(both) == len(other) + 30
    assert len(both.samples(["camera.left", "lidar.points.rear"])) == 30
    assert both.calibration("drive").camera_infos.keys() == {"camera.left"}
    assert both.sample("drive", 3).image("camera.left").shape == (64, 128, 3)
    assert both.frames["camera_left_timestamp"].count() == both.frames["pose_position"].count() == 30
    for one in (both, Dataset(rigged.paths.container)):
        for absent in ("camera.right", "camera-right.jpeg", "radar.cube.rear"):
            with pytest.raises(UsageError, match=r"unknown sensor '[a-z.]+'; known: .*camera\.left") as caught:
                one.samples(["lidar.points", absent])
            assert all(sensor in str(caught.value) for sensor in SENSORS)
    table = both.to_polars()
    assert table.filter(pl.col("pose_position").is_not_null())["lidar_points_rear_skew"].null_count() == 0


@pytest.mark.parametrize("version", ["2025.10", "2026.04", None])
def test_datasets_side_by_side_answer_as_one_dataset_of_them(rigged, recording, tmp_path, version):
    """Also where one lacks the column: it is null there, as in the merged dataset. None: without tables."""
    small = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg"}
    other = convert(recording(**small), tmp_path / "other", schema_version=version or "2026.04").paths
    whole = Dataset(merge([other.container, rigged.paths.container], tmp_path / "whole").paths.container)
    if version is None:
        other.frames.unlink()
        other.arrow.unlink()
    for apart in (Dataset(other.container) + Dataset(rigged.paths.container),
                  Dataset([rigged.paths.container, other.container])):  # fmt: skip
        outlines = {"polygon", "mask"} if version == "2025.10" else set()  # a merge makes polygons of them
        for column in {*whole.frames.columns, *whole.annotations.columns} - outlines:
            for asked in (pl.col(column).is_null(), pl.col(column).is_not_null()):
                found = [{sample.key for sample in its.where(asked)} for its in (whole, apart)]
                drive = [{key for key in its if key.name == "drive" or version is not None} for its in found]
                assert drive[0] == drive[1], str(asked)
        with pytest.raises(UsageError, match="unknown column 'lidr_skew'; known: lidar_points_skew, "):
            apart.where(pl.col("lidr_skew") > 0)


def test_info_and_summaries_count_each_sensor(rigged):
    facts = DatasetInfo(rigged.paths.container).plain()
    assert {key: facts["inputs"][key] for key in SENSORS} == dict.fromkeys(SENSORS, 30)


@pytest.mark.parametrize("name", ["radar.cube.rear", "radar_cube_rear", "radar-rear.png"])
def test_the_cube_of_another_radar_is_its_own(recording, tmp_path, name):
    small = {"seconds": 1.0, "size": (128, 64), "codec": "jpeg", "cube_shape": (2, 16, 4, 32)}
    front = messages(recording(**small, topics={"camera", "radar/cube"}))
    rear = messages(recording(**small, topics={"radar/cube"}, rename={"radar/cube": "/rear/cube"}, seed=5))
    path = write(tmp_path / "drive.mcap", together(front, rear))
    rig = {"radar.cube": "/radar/cube", "radar.cube.rear": "/rear/cube"}
    both = Dataset(convert(path, tmp_path / "both", rig=rig).paths.container)[7]
    alone = {
        key: Dataset(convert(path, tmp_path / key, rig={"radar.cube": topic}).paths.container)[7].cube()
        for key, topic in rig.items()
    }
    assert (both.cube(name).raw() == both[name].raw()).all()
    assert (both.cube(name).raw() == alone["radar.cube.rear"].raw()).all()
    assert (both.cube().raw() == alone["radar.cube"].raw()).all()
    assert (both.cube().raw() != both.cube(name).raw()).any()


def test_instances_are_found_by_the_names_of_members_and_a_wrong_camera_is_named(rigged):
    sample = Dataset(rigged.paths.container)[7]
    assert (sample.image("camera-left") == sample.image("camera.left")).all()
    assert (sample.lidar("lidar-rear") == sample.lidar("lidar.points.rear")).all()
    pixels = [sample.project("lidar-rear", camera=camera)[0] for camera in ("camera-left", "camera.left")]
    np.testing.assert_array_equal(*pixels)
    for name, error, words in (
        ("left", UsageError, "'left' is not a sensor of a sample"),
        ("camera.right", NotProjectableError, "camera_info of camera.right is missing"),
    ):
        with pytest.raises(error, match=words):
            sample.project("lidar", camera=name)


def test_info_names_what_is_missing_and_what_is_not_used(rigged, tmp_path):
    outcome = convert(rigged.recording, tmp_path, rig={key: rigged.rig[key] for key in ("camera", "radar.cube.rear")})
    notes = [line for line in DatasetInfo(outcome.paths.container).text() if str(line).startswith("note: ")]
    assert [note.removeprefix("note: ") for note in notes] == [
        "the rig names a topic for radar.cube.rear that is not in the recording",
        "/left/jpeg is not used (30 messages); to use it: add camera.left: {topic: /left/jpeg} to the rig",
        "/rear/points is not used (10 messages); to use it: add lidar.points.rear: {topic: /rear/points} to the rig",
    ]


def test_info_of_several_drives_says_of_each_what_it_lacks(rigged, tmp_path):
    """The second one uses all topics, and lacks the same radar."""
    some = convert(rigged.recording, tmp_path, rig={key: rigged.rig[key] for key in ("camera", "radar.cube.rear")})
    both = merge([some.paths.container, rigged.paths.container], tmp_path / "both", rename=True).paths.container
    notes = [line for line in DatasetInfo(both).text() if str(line).startswith("note: ")]
    first, second = Dataset(both).sequences
    assert [note.removeprefix("note: ").partition(": ")[::2] for note in notes] == [
        (first, "the rig names a topic for radar.cube.rear that is not in the recording"),
        (first, "/left/jpeg is not used (30 messages); to use it: --rig '{camera.left: {topic: /left/jpeg}}'"),
        (
            first,
            "/rear/points is not used (10 messages); to use it: --rig '{lidar.points.rear: {topic: /rear/points}}'",
        ),
        (second, "the rig names a topic for radar.cube.rear that is not in the recording"),
    ]


@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_annotations_in_other_formats_come_back_beside_it(rigged, tmp_path, suffix):
    paths = copied(rigged, tmp_path / "out")
    there = migrate(paths.arrow, tmp_path / f"other{suffix}", "2026.10")
    back = migrate(there.out, paths.arrow, overwrite=True)
    assert (there.exit_code, back.exit_code) == (0, 0)
    assert_whole(paths, rigged.paths)


def spoil(kind, change):
    """A member of frame 7 that `change` makes of the members of the frame, by kind."""

    def write(path):
        stored = members(path)
        own = {name.partition(".")[2]: data for name, data in stored.items() if "_007." in name}
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in stored.items():
                new = change(own) if name.endswith(f"_007.{kind}") else data
                if new is not None:
                    archive.writestr(name, new)

    return write


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ("REF005", spoil("camera-left.jpeg", lambda own: None)),
        ("REF005", spoil("lidar-rear.pcd", lambda own: None)),
        ("IMG001", spoil("camera-left.jpeg", lambda own: own["camera-left.jpeg"][:300])),
        ("IMG002", spoil("camera-left.jpeg", lambda own: own["camera.jpeg"])),
        ("IMG003", spoil("camera-left.jpeg", lambda own: without_exif(own["camera-left.jpeg"]))),
        ("PCD001", spoil("lidar-rear.pcd", lambda own: own["lidar-rear.pcd"][:-1])),
    ],
)
def test_validate_finds_a_fault_in_a_member_of_an_instance(rigged, tmp_path, rule, wrong):
    paths = copied(rigged, tmp_path / "out")
    wrong(paths.container)
    found = [(one.rule, one.place, one.message) for one in validate(paths.container).findings]
    assert any(one[0] == rule and ("left" in str(one) or "rear" in str(one)) for one in found), found


def test_validate_compares_the_stamp_of_another_camera_with_its_own(rigged, tmp_path):
    paths = copied(rigged, tmp_path / "out")
    stored = members(paths.container)
    with zipfile.ZipFile(paths.container, "w") as archive:
        for name, data in stored.items():
            archive.writestr(
                name, stored[name.replace("_007.", "_008.")] if name.endswith("_007.camera-left.jpeg") else data
            )
    found = [(one.rule, one.place) for one in validate(paths.container).findings if one.rule.startswith("IMG")]
    assert found == [("IMG005", "drive/drive_007.camera-left.jpeg")]


def without_exif(data):
    with Image.open(io.BytesIO(data)) as picture:
        plain = io.BytesIO()
        picture.save(plain, "JPEG")
    return plain.getvalue()


# ---- looking -------------------------------------------------------------------------------------
def seen(points, place, info):
    """Pixels of points of a lidar at `place`, m, that looks ahead as the camera does, and which the picture has."""
    x, y, z = (
        np.array([*points[axis].ravel()]) + at for axis, at in zip("xyz", np.subtract(place, CAMERA), strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        pixels = np.column_stack([info["k"][0] * -y / x + info["k"][2], info["k"][4] * -z / x + info["k"][5]])
    inside = (pixels >= -0.5).all(1) & (pixels < np.array([info["width"], info["height"]]) - 0.5).all(1)
    return pixels, (x > 0) & inside


PLACES = {"lidar.points": LIDAR, "lidar.points.rear": REAR}


@pytest.mark.parametrize("camera", SENSORS[:2])
@pytest.mark.parametrize("lidar", PLACES)
def test_points_of_each_lidar_are_projected_into_each_camera(rigged, camera, lidar):
    sample = Dataset(rigged.paths.container)[7]
    pixels, mask = sample.project(lidar, camera=camera)
    expected, inside = seen(sample.lidar(lidar), PLACES[lidar], sample.calibration.info_of(camera))
    assert mask.tolist() == inside.tolist()
    assert 20 < inside.sum() < len(inside)
    assert np.abs(pixels - expected)[inside].max() < 1e-3


@pytest.mark.parametrize("of", ["dataset", "recording"])
def test_a_report_shows_each_instance_and_the_way_of_the_poses(rigged, tmp_path, of):
    path, options = rigged.paths.container, {}
    if of == "recording":
        source = rigged.recording
        path = add_messages(source, tmp_path / "drive.mcap", [], leave=("/gps",))
        options = {"settings": Settings(rig=rigged.rig)}
    done = report(path, tmp_path / "page.html", samples=4, **options)
    (facts,) = done.facts
    page = done.pages[0].read_text()
    assert page.count('class="cam"') == 2 * 4
    assert {camera: of["looked_at"] > 3 for camera, of in facts["pictures"]["cameras"].items()} == {
        "camera": True,
        "camera.left": True,
    }
    dataset = Dataset(rigged.paths.container)
    infos = [dataset.calibration("drive").info_of(camera) for camera in SENSORS[:2]]
    for lidar, place in PLACES.items():
        clouds = {sample.read(lidar): sample.lidar(lidar) for sample in dataset}.values()
        shares = [np.mean(np.any([seen(cloud, place, info)[1] for info in infos], axis=0)) for cloud in clouds]
        assert facts["pictures"]["alignment"]["points_in_picture_by_lidar"][lidar] == pytest.approx(
            np.mean(shares), abs=0.01
        )
    drawn = re.findall(r'"name":"(?:drive: )?(camera|camera.left|lidar.points|lidar.points.rear)"', page)
    assert {name: drawn.count(name) >= 1 for name in SENSORS} == dict.fromkeys(SENSORS, True)
    assert facts["track"].get("pose_frame") == (None if of == "dataset" else "odom")
    assert ("m along x of odom" in page) == (of == "recording")
    if of == "recording":
        assert facts["track"]["length_m"] == pytest.approx(10 * 29 / 30, abs=0.1)


def test_a_view_logs_each_instance_in_its_place(rigged, tmp_path):
    late("rerun", reason="rerun-sdk is not installed")
    view(rigged.paths.container, save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    stamps = frames(rigged.paths.frames)
    for camera in ("/camera", "/camera-left"):
        assert found[f"{camera}/image", "EncodedImage:blob"] == 30
        assert found[camera, "Pinhole:image_from_camera"] == 1
    for lidar, column in (("/lidar", "lidar_points"), ("/lidar-rear", "lidar_points_rear")):
        assert found[lidar, "Points3D:positions"] == stamps[f"{column}_timestamp"].n_unique()
        assert found[lidar, "Transform3D:translation"] == 1
    view(rigged.paths.container, only=["lidar.points.rear"], save=tmp_path / "y.rrd")
    assert {entity for entity, of in rows(tmp_path / "y.rrd") if of.startswith(("Points", "Encoded"))} == {
        "/lidar-rear"
    }


# ---- playing -------------------------------------------------------------------------------------
def test_each_instance_is_played_on_a_topic_of_its_own(rigged):
    recording, source = open_playable(rigged.paths.container), McapRecording(rigged.recording)
    assert [*recording.walk()]
    assert [*source.walk()]
    sent, played = {}, {}
    for message in source.iter_messages():
        sent[message.topic, read_header_stamp(message)] = decode(message)
    for message in recording.iter_messages():
        assert read_header_stamp(message) == message.log_time
        played.setdefault(message.topic, {})[message.log_time] = decode(message)
    pictures = {"camera": "/camera/jpeg", "camera.left": "/left/camera/jpeg"}
    assert played.keys() == {*pictures.values(), "/lidar/points", "/rear/lidar/points", "/gps", "/imu", "/pose"}
    rows = frames(rigged.paths.frames)
    for topic, of, column in (
        ("/lidar/points", "/lidar/points", "lidar_points_timestamp"),
        ("/rear/lidar/points", "/rear/points", "lidar_points_rear_timestamp"),
    ):
        assert sorted(played[topic]) == rows[column].unique().sort().to_list()
        for stamp, cloud in played[topic].items():
            original = sent[of, stamp]
            assert (cloud.frame_id, cloud.data.tobytes()) == (original.frame_id, original.data.tobytes())
    samples = [*Dataset(rigged.paths.container)]
    for camera, topic in pictures.items():
        assert [picture.data.tobytes() for picture in played[topic].values()] == [one.read(camera) for one in samples]
    for stamp, message in played["/pose"].items():
        place = message.pose.position
        assert message.frame_id == "odom"
        assert (place.x, place.y, place.z) == pytest.approx(way(stamp)[0], abs=1e-6)
