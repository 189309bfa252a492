# SPDX-License-Identifier: Apache-2.0
"""Of a dataset of several drives each goes out with its own calibration, as the systems' own readers have it.

The drives differ in host, picture size, lens and places of their sensors; one has no calibration. They come together in
one conversion, one by one and merged, or are given groups afterwards.
"""

import json
import struct
from dataclasses import replace

import handmade_dataset as made
import numpy as np
import pytest
from bags import messages, write, write_two_of_each
from l5kit_truth import opened
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.regroup import split
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.drive import list_drives as drives_of
from edgefirst_ros.export.ncore.library import load_components

DRIVE = {"seconds": 1.0, "fps": 10.0, "codec": "jpeg", "lidar_points": 20, "position": (45.5, -73.6, 30.0)}
DRIVE["topics"] = frozenset({"camera", "camera/info", "lidar/points", "gps", "imu", "tf_static"})
BARE = DRIVE["topics"] - {"camera/info", "tf_static"}
SIZES = {"first": (160, 96), "second": (128, 64)}
FURTHER = 0.625
"""How much higher every sensor of the second drive sits, m."""


def raised(path, out):
    """The recording with another place of its sensors: a TransformStamped ends with three and four doubles."""
    found = []
    for schema, channel, message in messages(path):
        if channel.topic == "/tf_static":
            (height,) = struct.unpack("<d", message.data[-40:-32])
            message.data = message.data[:-40] + struct.pack("<d", height + FURTHER) + message.data[-32:]
        found.append((schema, channel, message))
    return write(out / path.name, found)


@pytest.fixture(scope="module")
def drives(recording, tmp_path_factory):
    made = {host: recording(**DRIVE, host=host, size=size) for host, size in SIZES.items()}
    made["second"] = raised(made["second"], tmp_path_factory.mktemp("raised"))
    made["bare"] = recording(**{**DRIVE, "topics": BARE}, host="bare", size=(192, 96))
    return made


@pytest.fixture(scope="module")
def path(drives, tmp_path_factory):
    """The two that have a calibration."""
    return convert([drives[host] for host in SIZES], tmp_path_factory.mktemp("drives"), name="two").paths.container


@pytest.fixture(scope="module", params=["together", "merged", "grouped"])
def gathered(request, drives, tmp_path_factory):
    """All three; one by one they come in another order."""
    out = tmp_path_factory.mktemp(request.param)
    if request.param == "together":
        return convert(list(drives.values()), out, name="all").paths.container
    single = [convert(drives[host], out / host).paths.container for host in ("bare", "second", "first")]
    whole = merge(single, out / "all").paths.container
    if request.param == "grouped":
        split([whole], GroupRule({"train": 0.5, "val": 0.5}))
    return whole


def of_dataset(dataset, out=None):
    """Width, focal length and height of the lidar by host; None where there is no calibration."""
    found = {}
    for sample in dataset.samples():
        info, placed = sample.calibration.camera_info, sample.calibration.static_transforms
        (height,) = [one["translation"][2] for one in placed if one["child"] == "lidar"] or [None]
        found[sample.name.partition("_")[0]] = info and (info["width"], info["k"][0], height)
    return found


def of_roverd(dataset, out):
    """The same of the files that roverd's traces have."""
    export(dataset, "roverd", out)
    found = {meta.parent.parent.name.partition("_")[0]: None for meta in out.glob("*/camera/meta.json")}
    for file in out.rglob("intrinsics.json"):
        info = json.loads(file.read_text())
        place = json.loads((file.parent.parent / "lidar_points" / "extrinsics.json").read_text())
        found[file.parent.parent.name.partition("_")[0]] = (
            info["width"],
            info["k"][0],
            place["sensor_to_parent"][2][3],
        )
    return found


def of_ncore(dataset, out):
    """The same by NCore's own reader."""
    v4 = pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    export(dataset, "ncore", out)
    found = {}
    for summary in out.glob("*/*.json"):
        loader = v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary]))
        model = loader.get_camera_sensor("camera").model_parameters
        start = np.array([loader.sequence_timestamp_interval_us.start])
        height = loader.pose_graph.evaluate_poses("lidar", "rig", start)[0][2, 3]
        host = summary.parent.name.partition("_")[0]
        found[host] = (int(model.resolution[0]), float(model.focal_length[0]), float(height))
    return found


@pytest.fixture(scope="module")
def truth(drives):
    """By the messages of the recordings: what they say of themselves, without a conversion."""
    found = {"bare": None}
    for host in SIZES:
        with drives[host].open("rb") as file:
            read = list(make_reader(file, decoder_factories=[DecoderFactory()]).iter_decoded_messages())
        info = next(content for _, channel, _, content in read if channel.topic == "/camera/info")
        placed = [content for _, channel, _, content in read if channel.topic == "/tf_static"]
        lidar = next(one for one in placed if one.child_frame_id == "lidar")
        found[host] = (info.width, info.k[0], lidar.transform.translation.z)
    assert {host: one[0] for host, one in found.items() if one} == {host: size[0] for host, size in SIZES.items()}
    assert len({one[1:] for one in found.values() if one}) == 2
    assert found["second"][2] - found["first"][2] == pytest.approx(FURTHER)
    return found


def near(expected):
    return {host: one and pytest.approx(one, rel=1e-6) for host, one in expected.items()}


@pytest.mark.parametrize("read", [of_dataset, of_roverd])
def test_each_drive_keeps_its_own(gathered, truth, tmp_path, read):
    assert read(Dataset(gathered), tmp_path / "out") == near(truth)


@pytest.mark.parametrize("read", [of_ncore])
def test_each_drive_keeps_its_own_in_ncore(path, truth, tmp_path, read):
    assert read(Dataset(path), tmp_path / "out") == near({host: truth[host] for host in SIZES})


def test_ncore_wants_a_calibration_of_every_drive(gathered, tmp_path):
    with pytest.raises(DatasetError, match="no camera_info of 'bare_"):
        export(Dataset(gathered), "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("system", ["ncore", "nuscenes"])
def test_a_further_camera_without_intrinsics_is_left_out_by_name(tmp_path, system):
    if system == "ncore":
        pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    source, rig = write_two_of_each(tmp_path, seconds=1.0)
    del rig["camera.left"]["info"]
    kept = [one for one in messages(source) if one[1].topic != "/left/camera_info"]
    path = convert(write(tmp_path / "drive.mcap", kept), tmp_path / "in", rig=rig).paths.container
    lines = [line for line in export(path, system, tmp_path / "out").report.lines if "camera-left" in line.what]
    (left,) = [line for line in lines if line.what == "camera-left.jpeg without CameraInfo"]
    assert (left.number > 20, left.where, left.lost.partition(":")[0]) == (True, "", "not written")
    assert not any(line.number for line in lines if line.what == "camera-left.jpeg")
    names = {part.name.casefold() for part in (tmp_path / "out").rglob("*")}
    assert not [name for name in names if "left" in name]
    if system == "ncore":
        v4, (summary,) = pytest.importorskip("ncore.data.v4"), (tmp_path / "out").glob("*/*.json")
        assert v4.SequenceLoaderV4(v4.SequenceComponentGroupsReader([summary])).camera_ids == ["camera"]
    else:
        assert "cam_front" in names


HIGH = 2.25
"""m above the road where the frame of the cubes is; the points of the radar are in one 0.6 m above it."""


def own_cubes(recording, folder):
    """A drive whose radar has a frame of its own for its cubes."""
    topics = {"camera", "camera/info", "gps", "imu", "tf_static", "radar/cube", "radar/targets"}
    path = recording(**{**DRIVE, "topics": topics, "cube_shape": (1, 16, 2, 16)})
    found = []
    for schema, channel, message in messages(path):
        cubes = replace(message, data=message.data.replace(b"\6\0\0\0radar\0", b"\6\0\0\0cubes\0"))
        if channel.topic == "/tf_static" and cubes.data != message.data:
            at = len(message.data) - 40
            high = replace(cubes, data=cubes.data[:at] + struct.pack("<d", HIGH) + cubes.data[at + 8 :])
            found += [(schema, channel, message), (schema, channel, high)]
        else:
            found.append((schema, channel, cubes if channel.topic == "/radar/cube" else message))
    return convert(write(folder / path.name, found), folder / "in").paths.container


def test_cubes_in_a_frame_of_their_own_are_exported_with_its_place(recording, tmp_path):
    path = own_cubes(recording, tmp_path)
    export(path, "roverd", tmp_path / "roverd")
    places = {
        file.parent.name: json.loads(file.read_text())["sensor_to_parent"][2][3]
        for file in (tmp_path / "roverd").glob("*/radar*/extrinsics.json")
    }
    assert places == {"radar_cube": HIGH, "radar_points": pytest.approx(0.6)}
    v4 = pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    export(path, "ncore", tmp_path / "ncore")
    (summary,) = (tmp_path / "ncore").glob("*/*.json")
    reader = v4.SequenceComponentGroupsReader([summary])
    loader = v4.SequenceLoaderV4(reader)
    start = np.array([loader.sequence_timestamp_interval_us.start])
    ((name, _),) = reader.open_component_readers(load_components()[1]).items()
    assert loader.pose_graph.evaluate_poses(name, "rig", start)[0][2, 3] == HIGH
    (points,) = loader.radar_ids
    assert loader.pose_graph.evaluate_poses(points, "rig", start)[0][2, 3] == pytest.approx(0.6)
    restore(tmp_path / "ncore", "ncore", tmp_path / "back")
    (back,) = (tmp_path / "back").glob("*.zip")
    (again,) = drives_of(Dataset(back))
    assert again.place("radar.cube")[2, 3] == HIGH
    assert again.place("radar.targets")[2, 3] == pytest.approx(0.6)
    sample = again.samples[5]
    assert (sample.cube().raw() == Dataset(path).sample(sample.name, sample.frame).cube().raw()).all()


@pytest.mark.parametrize("system", ["coco", "yolo"])
def test_forms_of_labels_have_no_place_for_calibrations(gathered, tmp_path, system):
    options = {"single_group": True} if system == "yolo" else {}
    done = export(Dataset(gathered), system, tmp_path / "out", unlooked=True, **options)
    (said,) = [line for line in done.report.lines if line.what == "calibration"]
    assert (said.where, said.lost) == ("", f"has no place in {system.upper()}")
    assert not [line for line in done.report.lines if line.what == "calibration (missing)"]  # nothing went anywhere


def test_l5kit_has_the_scenes_and_says_that_it_has_no_place_for_calibrations(gathered, tmp_path):
    done = export(Dataset(gathered), "l5kit", tmp_path / "out")
    assert sorted(scene["host"] for scene in opened(tmp_path / "out")["scenes"]) == sorted([*SIZES, "bare"])
    said = {line.what: (line.where, line.lost) for line in done.report.lines}
    for what in ("camera intrinsics", "places of the sensors"):
        assert said[what] == ("", "has no place there")


def test_a_planted_swap_is_refused_or_seen(path, tmp_path):
    """Calibration of the one in the place of the other: NCore refuses intrinsics of another form of picture."""
    swapped = Dataset(path)
    (a, first), (b, second) = swapped.metadata["sequences"].items()
    swapped.metadata |= {"sequences": {a: {**first, "camera_info": second["camera_info"]}, b: second}}
    wrong = of_roverd(swapped, tmp_path / "roverd")
    assert wrong["first"][:2] == wrong["second"][:2]
    assert wrong["first"][2] != wrong["second"][2]
    pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    with pytest.raises(Exception, match=r"camera_info is of 128 x 64 pixels, the pictures have 160 x 96"):
        of_ncore(swapped, tmp_path / "ncore")


@pytest.mark.parametrize(("number", "more"), [(10, ""), (11, " and 1 more")])
def test_the_report_names_ten_drives_without_a_calibration(tmp_path, number, more):
    parts, names = made.good(), [f"drive{n:02}" for n in range(number)]
    parts.members = {key.replace(made.SEQUENCE, name): data for name in names for key, data in parts.members.items()}
    parts.times = dict.fromkeys(parts.members, made.stamp_of(3))
    parts.frames, parts.annotations = [row | {"name": name} for name in names for row in parts.frames], []
    facts = {"sources": [0], "time_base": {"base": "header", "topics": {}}, "counts": {}}
    parts.frames_metadata |= {"sequences": json.dumps(dict.fromkeys(names, facts))}
    for key in ("camera_info", "static_transforms"):
        del parts.frames_metadata[key]
    lines = {
        line.what: line for line in export(made.write(tmp_path / "in", parts), "l5kit", tmp_path / "out").report.lines
    }
    found = lines["calibration (missing)"]
    assert (found.number, found.where) == (number, f"as it is, of {', '.join(names[:10])}{more}")
