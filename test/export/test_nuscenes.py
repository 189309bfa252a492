# SPDX-License-Identifier: Apache-2.0
"""nuScenes: what the official reader finds in an export, against the scene that was recorded; planted defects."""

import atexit
import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import handmade_dataset as made
import numpy as np
import polars as pl
import pytest
from bags import REAR, write_two_of_each
from l5kit_truth import PLACED, RECIPES, east_north_up, tracked, turn

from edgefirst_ros import Dataset, convert
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import export
from edgefirst_ros.export.nuscenes import RADAR, pack_lidar, pack_radar
from edgefirst_ros.report.projection import project
from edgefirst_ros.synthetic import START
from edgefirst_ros.synthetic.scene import CAMERA, LIDAR, Scene
from edgefirst_ros.synthetic.scene import RADAR as RADAR_PLACE

PYTHON = Path(sys.prefix) / "nuscenes" / "bin" / "python"
JUDGE = Path(__file__).with_name("nuscenes_judge.py")
STATIC = np.array([30.0, 12.0, 0.8])
"""A thing that stands still: m east, north and up of the first sample with a position."""
SIZE = (2.0, 2.0, 1.6)
KEYFRAMES = 8
"""Of 3.8 s at 2 Hz: at 0, 0.5, ... 3.5 s."""


def origin(number):
    return Scene(RECIPES[number]).position(RECIPES[number].start + 10**9 // 15)


def ego(number, stamp):
    """Place and rotation of the vehicle in the map, by the formulas of the scene."""
    scene = Scene(RECIPES[number])
    return east_north_up(scene.position(stamp), origin(number)), turn(scene, stamp)


@pytest.fixture(scope="module")
def dataset(boxed_path):
    """Two drives; the first box of every sample is a thing that stands still."""
    return with_still(tracked(Dataset(boxed_path)))


def with_still(opened):
    stamps = {(row["name"], row["frame"]): row["timestamp"] for row in opened.frames.iter_rows(named=True)}
    rows, still = opened.annotations.to_dicts(), set()
    for row in rows:
        key = row["name"], row["frame"]
        if row["box3d"] is not None and key not in still:
            still.add(key)
            place, rotation = ego(opened.sequences.index(row["name"]), stamps[key])
            row["box3d"] = [*(rotation.T @ (STATIC - place)).tolist(), *SIZE]
            row["object_id"], row["label"] = "still", "car"
    opened.annotations = pl.DataFrame(rows, schema=opened.annotations.schema)
    return opened


@pytest.fixture(scope="module")
def out(dataset, tmp_path_factory):
    return export(dataset, "nuscenes", tmp_path_factory.mktemp("nuscenes") / "out").out


@pytest.fixture(scope="module")
def found(out):
    return judged(out)


@functools.cache
def reader():
    """The official reader, which ends when its input does."""
    if not PYTHON.exists():
        pytest.skip("the official nuScenes reader is not installed (make .venv-test/ready installs it)")
    started = subprocess.Popen([PYTHON, JUDGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(started.communicate)
    return started


def judged(folder):
    print(folder, file=reader().stdin, flush=True)
    return json.loads(reader().stdout.readline())


def faults(found):
    """What is wrong with an export, by the official reader and the truth of the scene."""
    wrong = set()
    if found["unresolved"]:
        wrong.add("links")
    for record in found["data"]:
        number = 1 if "second" in record["filename"] else 0
        stamp = record["timestamp"] * 1000
        place, rotation = ego(number, stamp)
        if abs(record["timestamp"] - record["pose"]["timestamp"]) > 0 or not 1.7e15 < record["timestamp"] < 1.8e15:
            wrong.add("time")
        if np.abs(record["pose"]["translation"] - place).max() > 0.01:
            wrong.add("ego place")
        if np.abs(matrix(record["pose"]["rotation"]) - rotation).max() > 0.002:
            wrong.add("ego rotation")
    still = [box for box in found["boxes"] if np.allclose(box["size"], (SIZE[1], SIZE[0], SIZE[2]))]
    if len(still) != 2 * KEYFRAMES or any(math.dist(box["translation"], STATIC) > 0.05 for box in still):
        wrong.add("a thing that stands still moves")
    wrong |= faults_of_projection(found["middle"])
    return wrong


def faults_of_projection(middle):
    """Lidar points in the picture, by a pinhole and the formulas of the scene at both stamps."""
    lidar = np.array(middle["lidar"]["points"])[:, :3][np.isclose(middle["lidar"]["ages"], middle["lidar"]["ages"][0])]
    stamp = middle["timestamp"] * 1000
    then = stamp - RECIPES[0].start
    measured = stamp_of_lidar(stamp)
    assert then > 0
    place, rotation = ego(0, measured)
    points = (lidar + LIDAR) @ rotation.T + place
    place, rotation = ego(0, stamp)
    x, y, z = ((points - place) @ rotation - CAMERA).T
    fx, fy, cx, cy = Scene(RECIPES[0]).intrinsics
    u, v = cx - fx * y / x, cy - fy * z / x
    width, height = RECIPES[0].size
    seen = (x > 1) & (u > 1) & (u < width - 1) & (v > 1) & (v < height - 1)
    expected, pixels = np.column_stack([u, v])[seen], np.array(middle["projected"]["pixels"])
    if len(expected) < 10 or not len(pixels):
        return {"projection"}
    # the nearest found pixel of each expected one; the reader keeps the points' order, less those it does not show
    distances = np.linalg.norm(expected[:, None] - pixels[None], axis=2).min(axis=1)
    return {"projection"} if distances.max() > 0.5 else set()


def stamp_of_lidar(stamp):
    """Stamp of the lidar's message nearest to a picture: every 100 ms from 13 ms on, without jitter of the stamps."""
    first = RECIPES[0].start + 13_000_000
    return first + round((stamp - first) / 1e8) * 10**8


def matrix(quaternion):
    transforms3d = pytest.importorskip("transforms3d")
    return transforms3d.quaternions.quat2mat(quaternion)


def test_the_official_reader_finds_the_drives(found):
    assert faults(found) == set()
    assert found["scenes"] == [
        ["maivin-demo_2026_01_15_12_00_00", KEYFRAMES],
        ["second_2026_01_15_12_00_00", KEYFRAMES],
    ]
    assert found["tables"]["sample"] == 2 * KEYFRAMES
    assert found["tables"]["log"] == 2
    assert sum(record["channel"] == "CAM_FRONT" for record in found["data"]) == 2 * PLACED
    assert all(sorted(data) == ["CAM_FRONT", "LIDAR_TOP", "RADAR_FRONT"] for _, _, data in found["samples"])


def test_keyframes_are_the_samples_nearest_to_the_grid(found):
    stamps = [stamp for _, stamp, _ in found["samples"]][:KEYFRAMES]
    first = stamps[0]
    assert first == (START + 10**9 // 15 + 500) // 1000
    for number, stamp in enumerate(stamps):
        assert abs(stamp - first - number * 500_000) <= 1e6 / 15 / 2 + 1


def test_each_message_is_there_once_and_sweeps_belong_to_the_keyframe_after(found):
    samples = {token: stamp for token, stamp, _ in found["samples"]}
    for name in ("CAM_FRONT", "LIDAR_TOP", "RADAR_FRONT"):
        records = [record for record in found["data"] if record["channel"] == name]
        for drive in ("demo", "second"):
            mine = [record for record in records if drive in record["filename"]]
            assert len({record["timestamp"] for record in mine}) == len(mine)
            assert [r["timestamp"] for r in mine] == sorted(r["timestamp"] for r in mine)
            last = max(stamp for token, stamp in samples.items() if token in {record["sample"] for record in mine})
            for record in mine:
                if not record["is_key_frame"]:
                    owner = samples[record["sample"]]
                    assert record["timestamp"] <= owner or owner == last
                    assert record["timestamp"] > owner - 600_000 or owner == last


def test_pictures_are_those_of_the_dataset(found, dataset, out):
    members = {dataset.samples("camera")[n].read("camera") for n in range(len(dataset))}
    pictures = [record for record in found["data"] if record["channel"] == "CAM_FRONT"]
    assert {(out / record["filename"]).read_bytes() for record in pictures} <= members
    assert {(record["width"], record["height"]) for record in pictures} == {(320, 180)}


def test_sweeps_of_lidar_and_radar_are_read(found, dataset):
    middle = found["middle"]
    ages = np.unique(np.round(middle["lidar"]["ages"], 3))
    assert len(ages) == 10
    assert np.allclose(np.diff(ages), 0.1, atol=0.002)
    radar = np.array(middle["radar"]["points"])
    assert radar.shape[1] == len(RADAR.names)
    things = len(Scene(RECIPES[0]).things(START))
    assert len(radar) == 10 * things


@pytest.mark.parametrize("ring", ["ring", "channel", "line"])
@pytest.mark.parametrize("name", ["intensity", "reflect", "reflectivity", "i"])
@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        ("u1", [0, 7, 255], [0, 7, 255]),
        ("u2", [0, 257, 65535], [0, 1, 255]),
        ("f4", [-1.0, 12.5, 300.0], [0, 12.5, 255]),
        ("f4", [math.nan, math.inf, 1.0], [0, 255, 1]),
    ],
)
def test_points_of_a_lidar_are_x_y_z_intensity_and_ring(name, ring, kind, given, wanted):
    points = np.zeros(3, [("x", "f4"), ("y", "f4"), ("z", "f4"), (ring, "u2"), (name, kind)])
    for axis in "xyz":
        points[axis] = np.arange(3) + ord(axis)
    points[ring], points[name] = [3, 1, 2], given
    expected = [[120, 121, 122, wanted[0], 3], [121, 122, 123, wanted[1], 1], [122, 123, 124, wanted[2], 2]]
    assert np.frombuffer(pack_lidar(points), "<f4").reshape(3, 5).tolist() == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *(
            ({speed: 5.0, "RCS": 7.0}, (7, 3, 4, 9, 12))
            for speed in ("speed", "radial_speed", "radial_velocity", "Doppler", "vrad", "velocity")
        ),
        ({"rcs": 7.0, "vx": 1.0, "vy": 2.0, "vx_comp": 3.0, "vy_comp": 4.0}, (7, 1, 2, 3, 4)),  # nuScenes' own
        ({"power": 1.0}, (0, 0, 0, 6, 8)),
    ],
)
def test_points_of_a_radar_have_the_speeds_of_its_own_fields(fields, expected):
    """At (3, 4, 0) m from a sensor that moves with (6, 8, 0) m/s."""
    points = np.zeros(1, [(name, "<f4") for name in ("x", "y", "z", *fields)])
    for name, value in {"x": 3, "y": 4, **fields}.items():
        points[name] = value
    _, _, body = pack_radar(points, np.array([6.0, 8.0, 0.0])).partition(b"DATA binary\n")
    assert np.frombuffer(body[:-1], RADAR)[["rcs", "vx", "vy", "vx_comp", "vy_comp"]].tolist() == [
        pytest.approx(expected)
    ]


def test_radar_speeds_are_along_the_ray_and_over_ground(dataset, out, found):
    record = next(r for r in found["data"] if r["channel"] == "RADAR_FRONT" and r["is_key_frame"])
    header, _, body = (out / record["filename"]).read_bytes().partition(b"DATA binary\n")
    assert header.startswith(b"# .PCD")
    points = np.frombuffer(body[:-1], RADAR)
    stamp = record["timestamp"] * 1000
    scene = Scene(RECIPES[0])
    place = np.column_stack([points["x"], points["y"], points["z"]]).astype(float)
    for thing in scene.things(stamp):
        where, _, speed = thing.measure_from(RADAR_PLACE)
        at = int(np.linalg.norm(place - where, axis=1).argmin())
        ray = np.array(where) / np.linalg.norm(where)
        assert np.allclose((points["vx"][at], points["vy"][at]), speed * ray[:2], atol=0.02)
        before, after = ego(0, stamp - 10**7), ego(0, stamp + 10**7)
        moved = [p + r @ RADAR_PLACE for p, r in (before, after)]
        own = ego(0, stamp)[1].T @ (moved[1] - moved[0]) / 0.02
        assert np.allclose((points["vx_comp"][at], points["vy_comp"][at]), (speed + ray @ own) * ray[:2], atol=0.1)


def test_points_in_boxes_are_counted(found):
    assert len(found["counted"]) == len(found["boxes"])
    assert all(ours == theirs for ours, theirs in found["counted"])
    assert max(ours for ours, _ in found["counted"]) > 5
    assert found["middle"]["boxes_seen"] > 0


def test_our_projection_and_the_official_one_agree(found, dataset):
    """Of a keyframe, its points brought to the picture's time."""
    middle, stamp = found["middle"], found["middle"]["timestamp"] * 1000
    lidar = np.array(middle["lidar"]["points"])[:, :3][np.isclose(middle["lidar"]["ages"], middle["lidar"]["ages"][0])]
    (place, rotation), (now, turned) = ego(0, stamp_of_lidar(stamp)), ego(0, stamp)
    points = ((lidar + LIDAR) @ rotation.T + place - now) @ turned - LIDAR
    ours = project(points, "lidar", dataset.calibration(dataset.sequences[0]))
    pixels = np.array(middle["projected"]["pixels"])
    shown = ours.pixels[ours.mask & (ours.pixels > 1).all(1) & (ours.pixels < (318, 178)).all(1)]
    assert len(shown) > 10
    assert np.linalg.norm(shown[:, None] - pixels[None], axis=2).min(axis=1).max() < 0.5


def change(folder, table, edit):
    path = folder / "v1.0-trainval" / f"{table}.json"
    records = json.loads(path.read_text())
    edit(records)
    path.unlink()  # it may be that of another export, too
    path.write_text(json.dumps(records))


def invert_extrinsic(records):
    for record in records:
        if record["camera_intrinsic"]:
            w, *rest = record["rotation"]
            record["rotation"] = [w, *(-v for v in rest)]


def mirror_y(records):
    for record in records:
        record["translation"][1] *= -1


def use_seconds(records):
    for record in records:
        record["timestamp"] //= 1_000_000


def use_optical_axes(records):
    for record in records:
        x, y, z = record["translation"]
        record["translation"] = [-y, -z, x]


DEFECTS = {
    "inverted extrinsic": ("calibrated_sensor", invert_extrinsic, {"projection"}),
    "mirrored y": ("sample_annotation", mirror_y, {"a thing that stands still moves"}),
    "seconds for microseconds": ("sample_data", use_seconds, {"time"}),
    "optical axes for boxes": ("sample_annotation", use_optical_axes, {"a thing that stands still moves"}),
}


def give_sweeps_the_pose_of_the_keyframe(poses, folder):
    data = json.loads((folder / "v1.0-trainval" / "sample_data.json").read_text())
    poses = {pose["token"]: pose for pose in poses}
    keyed = {(r["sample_token"], r["calibrated_sensor_token"]): r["token"] for r in data if r["is_key_frame"]}
    for record in data:
        key = keyed[record["sample_token"], record["calibrated_sensor_token"]]
        poses[record["token"]] |= {name: poses[key][name] for name in ("translation", "rotation")}


def test_planted_defects_are_found(out, tmp_path):
    sweeps = ("ego_pose", lambda records: give_sweeps_the_pose_of_the_keyframe(records, out), {"ego place"})
    planted = DEFECTS | {"pose of the keyframe": sweeps}
    for defect, (table, edit, expected) in planted.items():
        shutil.copytree(out, tmp_path / defect, copy_function=os.link)
        change(tmp_path / defect, table, edit)
        assert expected <= faults(judged(tmp_path / defect)), defect


def test_scenes_of_a_length_are_linked_within_themselves(dataset, tmp_path):
    made = export(dataset, "nuscenes", tmp_path / "out", scene_seconds=2.0).out
    read = judged(made)
    assert read["unresolved"] == []
    assert [count for _, count in read["scenes"]] == [4, 4, 4, 4]
    scenes, samples = (json.loads((made / "v1.0-trainval" / f"{n}.json").read_text()) for n in ("scene", "sample"))
    for scene in scenes:
        own = sorted((s for s in samples if s["scene_token"] == scene["token"]), key=lambda s: s["timestamp"])
        assert [scene["first_sample_token"], scene["last_sample_token"]] == [own[0]["token"], own[-1]["token"]]
    assert len({scene["name"] for scene in scenes}) == len(scenes)
    origins = json.loads((made / "origin.json").read_text())
    assert set(origins) == set(dataset.sequences)
    first = origins[dataset.sequences[0]]
    assert np.allclose([first[name] for name in ("latitude", "longitude", "altitude")], origin(0), atol=1e-6)


def test_labels_become_categories_and_the_report_says_what_is_lost(dataset, tmp_path):
    named = Dataset(dataset.container.path)
    named.annotations = named.annotations.with_columns(pl.col("label").cast(pl.String).replace("person", "tram"))
    done = export(named, "nuscenes", tmp_path / "out", labels={"car": "vehicle.emergency.police"})
    names = {record["name"] for record in json.loads((done.out / "v1.0-trainval" / "category.json").read_text())}
    assert {"vehicle.emergency.police", "tram"} <= names
    lines = {line.what: line for line in done.report.lines}
    assert lines["samples"].number == len(json.loads((done.out / "v1.0-trainval" / "sample.json").read_text()))
    assert re.fullmatch(r"labels that nuScenes does not have keep their name: tram \(\d+\)", lines["label"].lost)
    assert lines["radar.png"].where == ""
    assert lines["box2d"].lost == "has no place there"
    assert lines["box3d between keyframes, or without a pose"].number > 0


def test_a_drive_without_poses_or_transforms_is_refused(dataset, tmp_path):
    blind = Dataset(dataset.container.path)
    blind.frames = blind.frames.with_columns(orientation=pl.lit(None, blind.frames.schema["orientation"]))
    with pytest.raises(DatasetError, match=r"poses are unknown.*GPS and IMU"):
        export(blind, "nuscenes", tmp_path / "blind")
    assert not (tmp_path / "blind").exists()
    loose = Dataset(dataset.container.path)
    known = loose.metadata["sequences"]
    loose.metadata |= {"sequences": {name: {**facts, "static_transforms": []} for name, facts in known.items()}}
    with pytest.raises(DatasetError, match="tf_static"):
        export(loose, "nuscenes", tmp_path / "loose")


@pytest.mark.parametrize("number", [None, float("nan"), float("inf")])
def test_intrinsics_that_are_no_numbers_are_refused(dataset, tmp_path, number):
    odd = Dataset(dataset.container.path)
    known = odd.metadata["sequences"]
    infos = {name: {**facts["camera_info"], "k": [256.0, number, *[1.0] * 7]} for name, facts in known.items()}
    odd.metadata |= {"sequences": {name: {**facts, "camera_info": infos[name]} for name, facts in known.items()}}
    with pytest.raises(DatasetError, match=r"camera_info of camera: k .* are not the intrinsics of a camera"):
        export(odd, "nuscenes", tmp_path / "odd")
    assert not (tmp_path / "odd").exists()


@pytest.mark.parametrize("options", [{"keyframe_rate": 0.0}, {"scene_seconds": -1.0}])
def test_a_rate_or_length_of_nothing_is_refused(dataset, tmp_path, options):
    with pytest.raises(UsageError, match="must be above 0"):
        export(dataset, "nuscenes", tmp_path / "out", **options)


@pytest.fixture(scope="module")
def rigged(tmp_path_factory):
    """A drive with a second camera, of another size, and a second lidar, in a frame of its own."""
    folder = tmp_path_factory.mktemp("rigged")
    path, rig = write_two_of_each(folder)
    return Dataset(convert(path, folder / "out", rig=rig).paths.container)


def test_further_cameras_and_lidars_are_channels_with_their_own_calibration(rigged, tmp_path):
    out = export(rigged, "nuscenes", tmp_path / "out").out
    found = judged(out)
    assert found["unresolved"] == []
    assert {tuple(channels) for _, _, channels in found["samples"][1:-1]} == {
        ("CAM_FRONT", "CAM_LEFT", "LIDAR_REAR", "LIDAR_TOP")
    }
    of = {record["channel"]: record for record in found["data"]}
    assert of["LIDAR_REAR"]["calibrated"]["translation"] == list(REAR)
    assert of["LIDAR_TOP"]["calibrated"]["translation"] == list(LIDAR)
    infos = rigged[0].calibration.camera_infos["camera.left"], rigged[0].calibration.camera_info
    for channel, info, size in zip(("CAM_LEFT", "CAM_FRONT"), infos, ((128, 64), (160, 96)), strict=True):
        assert np.ravel(of[channel]["calibrated"]["camera_intrinsic"]).tolist() == info["k"]
        assert (of[channel]["width"], of[channel]["height"]) == size
    rows = {row["camera_left_timestamp"] // 1000: row["frame"] for row in rigged.frames.iter_rows(named=True)}
    picture = of["CAM_LEFT"]
    (sample,) = (one for one in rigged.samples() if one.frame == rows[picture["timestamp"]])
    assert (out / picture["filename"]).read_bytes() == sample.read("camera.left")


BENT = {"plumb_bob": [-0.25, 0.08, 0.001, -0.002, 0.0], "equidistant": [0.05, -0.02, 0.003, 0.0]}


def bend(rigged, model):
    """The dataset, with distortion of its left camera; and the CameraInfo of that."""
    bent, (name,) = Dataset(rigged.container.path), rigged.sequences
    facts = bent.metadata["sequences"][name]
    info = {**facts["camera_infos"]["camera.left"], "distortion_model": model, "d": BENT[model]}
    bent.metadata |= {"sequences": {name: {**facts, "camera_infos": {**facts["camera_infos"], "camera.left": info}}}}
    return bent, info


def test_pictures_of_a_camera_with_distortion_stay_as_they_are_unless_asked_for(rigged, tmp_path):
    bent, _ = bend(rigged, "plumb_bob")
    out = export(bent, "nuscenes", tmp_path / "out").out
    sample = next(one for one in bent.samples("camera.left") if one.row["camera_left_timestamp"] > START + 10**9)
    (left,) = out.rglob(f"*CAM_LEFT__{round(sample.row['camera_left_timestamp'] / 1000)}.jpg")
    assert left.read_bytes() == sample.read("camera.left")


@pytest.mark.parametrize("model", BENT)
def test_undistort_straightens_the_pictures_of_a_camera_as_opencv_does_when_it_has_distortion(rigged, tmp_path, model):
    cv2 = pytest.importorskip("cv2")
    bent, info = bend(rigged, model)
    out = export(bent, "nuscenes", tmp_path / "out", undistort=True).out
    sample = next(one for one in bent.samples("camera.left") if one.row["camera_left_timestamp"] > START + 10**9)
    (front,) = out.rglob(f"*CAM_FRONT__{round(sample.timestamp / 1000)}.jpg")
    assert front.read_bytes() == sample.read("camera")
    (left,) = out.rglob(f"*CAM_LEFT__{round(sample.row['camera_left_timestamp'] / 1000)}.jpg")
    picture, k, d = sample.image("camera.left"), np.array(info["k"]).reshape(3, 3), np.array(BENT[model])
    undistort = cv2.undistort if model == "plumb_bob" else lambda *a: cv2.fisheye.undistortImage(*a, Knew=k)
    expected = undistort(picture, k, d).astype(int)
    assert np.abs(cv2.imread(str(left))[..., ::-1] - expected).mean() < 1.5
    assert np.abs(picture - expected).mean() > 3


def test_export_reads_the_annotations_in_batches_with_the_same_tables(boxed_path, tmp_path, monkeypatch):
    """With their masks they may be larger than the memory."""
    whole = Dataset(boxed_path)
    assert len(whole.annotations)
    made = export(whole, "nuscenes", tmp_path / "whole").out
    monkeypatch.setattr(Dataset, "annotations", property(lambda _: pytest.fail("read as a whole")))
    monkeypatch.setattr("edgefirst_ros.dataset.tables.arrow_file.ROWS_AT_ONCE", 1)
    found = export(boxed_path, "nuscenes", tmp_path / "batches").out
    names = sorted(path.relative_to(made) for path in made.rglob("*.json"))
    assert [(found / name).read_bytes() == (made / name).read_bytes() for name in names] == [True] * len(names)
    assert len(json.loads((found / "v1.0-trainval" / "sample_annotation.json").read_text())) > 2 * KEYFRAMES


def test_an_export_loads_no_library_that_it_does_not_need(boxed_path, tmp_path):
    """pyarrow.compute takes 20 ms, PIL 10 ms."""
    code = """if True:
        import sys
        from edgefirst_ros.export import export
        export(sys.argv[1], "nuscenes", sys.argv[2])
        print(sorted({"pyarrow.compute", "PIL.Image"} & set(sys.modules)))
    """
    command = [sys.executable, "-c", code, boxed_path, tmp_path / "out"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_cloud_without_a_finite_point_has_no_file_and_is_counted(tmp_path):
    parts = made.good()
    for row in parts.frames:
        row |= {"latitude": 45.5, "longitude": -73.6, "altitude": 1.0, "orientation": (0.0, 0.0, 0.0, 1.0)}
    name = made.name_of(4, "lidar.pcd")
    head, mark, points = parts.members[name].partition(b"DATA binary\n")
    parts.members[name] = head + mark + (np.full(3, np.nan, "<f4").tobytes() + b"\0") * (len(points) // 13)
    parts.members[made.name_of(4, "camera.jpeg")] = b""
    done = export(made.write(tmp_path / "in", parts), "nuscenes", tmp_path / "out")
    lost = [line for line in done.report.lines if "without points" in line.what]
    assert [(line.what, line.number) for line in lost] == [("LIDAR_TOP without points", 1)]
    assert len([*done.out.rglob("*LIDAR_TOP__*")]) == len(made.FRAMES) - 1
    assert sorted(path.stat().st_size > 0 for path in done.out.rglob("*CAM_FRONT__*")) == [False, True, True]


@pytest.mark.parametrize("kind", ["camera.jpeg", "lidar.pcd"])
def test_a_damaged_member_is_an_error_that_names_it(boxed_path, tmp_path, kind):
    """Also one whose file stays as it is, long after the first."""
    for path in boxed_path.parent.iterdir():
        shutil.copy(path, tmp_path)
    archive = Dataset(tmp_path / boxed_path.name).container
    name = [member for member in archive.names if member.endswith(kind)][-2]
    place = archive.entry(name).header_offset + archive.entry(name).compress_size // 2
    with open(archive.path, "r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(DatasetError, match=rf"{re.escape(repr(name))}: CRC mismatch"):
        export(archive.path, "nuscenes", tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
