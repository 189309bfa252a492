# SPDX-License-Identifier: Apache-2.0
"""A sequence as exports want it, and what is said where something is missing."""

import json
import zipfile

import numpy as np
import polars as pl
import pytest
from calibrated import calibrated

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.query import with_all_columns
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export
from edgefirst_ros.export.drive import find_class_masks, is_class_mask, list_drives, select_posed
from edgefirst_ros.export.output import LossReport
from edgefirst_ros.synthetic import Recipe
from edgefirst_ros.synthetic.scene import CAMERA, LIDAR, Scene

SMALL = {"seconds": 1.5, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
SMALL["topics"] = frozenset({"camera", "camera/info", "gps", "imu", "lidar/points", "tf_static"})


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    return convert(recording(**SMALL), tmp_path_factory.mktemp("drive"), name="drive").paths.container


@pytest.fixture
def changed(path):
    """Function that gives the dataset with columns of its frames, or metadata, put in others' place."""

    def change(metadata=None, **columns):
        dataset = Dataset(path)
        dataset.frames = dataset.frames.with_columns(**columns)
        return calibrated(dataset, **(metadata or {}))

    return change


def test_stamps_and_poses_are_those_of_the_scene(path):
    (drive,) = list_drives(Dataset(path))
    scene = Scene(Recipe(**SMALL))
    assert len(drive) == 15
    assert (np.diff(drive.stamps) == 100_000_000).all()
    assert drive.located.sum() == 14  # the first frame lies before the first fix
    first, last = drive.rig_to_world[drive.located][[0, -1]]
    yaw = scene.yaw(int(drive.stamps[-1]))
    assert first[:3, 3] == pytest.approx((0, 0, 0))
    assert np.linalg.norm(last[:3, 3]) == pytest.approx(13, abs=0.05)  # 1.3 s at 10 m/s, on a sphere as it is made
    assert np.arctan2(last[1, 0], last[0, 0]) == pytest.approx(yaw, abs=1e-3)


def test_places_of_the_sensors(path):
    (drive,) = list_drives(Dataset(path))
    assert drive.place("camera")[:3, 3] == pytest.approx(CAMERA)
    assert drive.place("camera")[:3, :3] @ [0, 0, 1] == pytest.approx((1, 0, 0))  # it looks forward
    assert drive.place("lidar")[:3, 3] == pytest.approx(LIDAR)


@pytest.mark.parametrize(
    ("frame", "place"), [(None, (0, 0, 0)), ("base_link", (0, 0, 0)), ("lidar", LIDAR), ("x", (0, 0, 0))]
)
def test_boxes_are_moved_to_the_vehicle(path, frame, place):
    dataset = Dataset(path)
    dataset.metadata |= {} if frame is None else {"box3d_frame": frame}
    (drive,) = list_drives(dataset)
    assert drive.boxes([5, 1, 0, 4, 2, 1]).tolist() == [[5 + place[0], 1 + place[1], place[2], 4, 2, 1]]


def test_transforms_are_joined_in_any_order(changed):
    chain = [
        {"parent": "mast", "child": "radar", "translation": [1, 0, 0], "rotation": [0, 0, 0, 1]},
        {"parent": "base_link", "child": "mast", "translation": [0, 0, 2], "rotation": [0, 0, 1, 1]},
        {"parent": "nowhere", "child": "else", "translation": [0, 0, 0], "rotation": [0, 0, 0, 1]},
    ]
    (drive,) = list_drives(changed({"static_transforms": chain}))
    assert drive.place("radar")[:3, 3] == pytest.approx((0, 1, 2))
    with pytest.raises(DatasetError, match=r"'lidar'.*only to mast, radar"):
        drive.place("lidar")


def test_transforms_in_circles_and_in_a_long_chain(changed):
    still = {"translation": [0, 0, 1], "rotation": [0, 0, 0, 1]}
    pairs = [("base_link", "base_link"), ("a", "base_link"), ("base_link", "a"), ("a", "b"), ("b", "a"), ("b", "radar")]
    chain = [(f"{n}", f"{n + 1}") for n in reversed(range(3000))] + [("base_link", "0"), ("3000", "lidar")]
    named = [{"parent": parent, "child": child, **still} for parent, child in pairs + chain]
    (drive,) = list_drives(changed({"static_transforms": named}))
    assert (drive.place("lidar")[2, 3], drive.statics["base_link"][2, 3]) == (3002, 0)
    assert drive.place("radar")[2, 3] == 1  # base_link is 1 m above a, by the first of the two that join them


@pytest.mark.parametrize("turn", [[0, 0, 0, 0], [0, 0, 0, float("nan")], [1e308] * 4, [5e-324] * 4])
@pytest.mark.filterwarnings("error")
def test_a_transform_that_is_none_is_refused(changed, turn):
    """tf_static whose quaternion nobody filled."""
    chain = [{"parent": "base_link", "child": "lidar", "translation": [1, 0, 0], "rotation": turn}]
    (drive,) = list_drives(changed({"static_transforms": chain}))
    with pytest.raises(DatasetError, match=r"from base_link to 'lidar' is invalid: a quaternion of length 0"):
        drive.place("lidar")


def test_samples_come_in_the_order_of_their_stamps(changed):
    (drive,) = list_drives(changed(timestamp=pl.col("timestamp").reverse()))
    assert (np.diff(drive.stamps) > 0).all()
    assert [sample.frame for sample in drive.samples] == list(range(14, -1, -1))


def test_two_stamps_alike_are_refused(changed):
    with pytest.raises(DatasetError, match=r"two samples of .* have the stamp 7"):
        list_drives(changed(timestamp=pl.lit(7, pl.Int64)))
    list_drives(changed(timestamp=pl.int_range(pl.len(), dtype=pl.Int64)))  # a nanosecond apart they are two


def test_no_stamps_are_refused(changed):
    with pytest.raises(DatasetError, match=r"15 samples of .* have no stamp"):
        list_drives(changed(timestamp=pl.lit(None, pl.Int64)))


def test_no_table_of_frames_is_refused(path, tmp_path):
    for suffix in (".zip", ".arrow"):
        (tmp_path / f"drive{suffix}").write_bytes(path.with_suffix(suffix).read_bytes())
    with pytest.raises(DatasetError, match=r"drive\.frames\.arrow: missing"):
        list_drives(Dataset(tmp_path / "drive.zip"))


def test_tables_without_a_sample_are_refused(path, tmp_path):
    (tmp_path / "drive.frames.arrow").write_bytes(path.with_suffix(".frames.arrow").read_bytes())
    with zipfile.ZipFile(tmp_path / "drive.zip", "w") as archive:
        archive.writestr("notes.txt", "no member of a sample")
    with pytest.raises(DatasetError, match=r"drive\.zip: has no samples"):
        list_drives(Dataset(tmp_path / "drive.zip"))


@pytest.mark.parametrize(
    "columns",
    [
        {"latitude": pl.lit(None, pl.Float64), "longitude": pl.lit(None, pl.Float64)},
        {"orientation": pl.lit(None, pl.Array(pl.Float64, 4))},
    ],
    ids=["position", "attitude"],
)
def test_no_pose_is_refused(changed, columns):
    (drive,) = list_drives(changed(**columns))
    assert not drive.located.any()
    with pytest.raises(DatasetError, match="have a pose, or both a position and an attitude; 1 must"):
        select_posed([drive], LossReport("nuscenes"))


def test_position_and_attitude_are_known_each_for_itself(changed):
    third = pl.when(pl.col("frame") == 3)
    (drive,) = list_drives(changed(latitude=third.then(None).otherwise(pl.col("latitude"))))
    assert drive.turned[3]
    assert not drive.placed[3]
    (drive,) = list_drives(changed(orientation=third.then(None).otherwise(pl.col("orientation"))))
    assert drive.placed[3]
    assert not drive.turned[3]
    assert (drive.located == drive.placed & drive.turned).all()


def test_unknown_altitudes_are_no_jumps(changed):
    heights = [None, 30.0, None, None, 36.0, *[None] * 10]
    (drive,) = list_drives(changed(altitude=pl.Series(heights, dtype=pl.Float64)))
    assert drive.geodetic[1:7, 2] == pytest.approx([30, 32, 34, 36, 36, 36])
    (drive,) = list_drives(changed(altitude=pl.lit(None, pl.Float64)))
    assert (drive.geodetic[1:, 2] == 0).all()


def test_no_transforms_are_refused(changed):
    (drive,) = list_drives(changed({"static_transforms": []}))
    with pytest.raises(DatasetError, match="no static transform from base_link to 'lidar', only to none"):
        drive.place("lidar")


@pytest.mark.parametrize(
    "wrong",
    [{"k": [1.0] * 8}, {"k": None}, {"d": 0.5}, {"d": ["x"]}, {"frame_id": None}, {"frame_id": ["a"]}],
)
def test_intrinsics_that_are_none_are_refused(changed, wrong):
    info = {"frame_id": "camera", "width": 2, "height": 2, "distortion_model": "", "d": [], "k": [1.0] * 9}
    (drive,) = list_drives(changed({"camera_info": info}))
    assert drive.info_of("camera") == info
    for given in (info | wrong, {name: value for name, value in info.items() if name not in wrong}):
        (drive,) = list_drives(changed({"camera_info": given}))
        with pytest.raises(DatasetError, match="the camera_info in its metadata cannot be read"):
            drive.place("camera")


@pytest.mark.parametrize(
    "wrong", [{"translation": [0, 0]}, {"translation": "x"}, {"rotation": [0, 1]}, {"rotation": "x"}, {"child": []}]
)
def test_transforms_that_cannot_be_read_are_refused(changed, wrong):
    whole = {"parent": "base_link", "child": "lidar", "translation": [0, 0, 0], "rotation": [0, 0, 0, 1]}
    for given in (whole | wrong, {name: value for name, value in whole.items() if name not in wrong}, None):
        (drive,) = list_drives(changed({"static_transforms": [given]}))
        with pytest.raises(DatasetError, match="the static_transforms in its metadata cannot be read"):
            drive.place("lidar")


def test_intrinsics_of_another_size_are_scaled_to_the_pictures(changed, tmp_path):
    """Of a driver that makes pictures smaller, and sends the CameraInfo of the whole ones."""
    plain = changed().calibration(changed().sequences[0]).camera_info
    double = {**plain, "width": 256, "height": 128, "k": [2 * value for value in plain["k"][:8]] + [1.0]}
    export(changed({"camera_info": double}), "nuscenes", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "v1.0-trainval" / "calibrated_sensor.json").read_text())
    assert [np.ravel(one["camera_intrinsic"]).tolist() for one in written if one["camera_intrinsic"]] == [plain["k"]]
    with pytest.raises(DatasetError, match="camera_info is of 256 x 96 pixels, the pictures have 128 x 64"):
        export(changed({"camera_info": {**double, "height": 96}}), "nuscenes", tmp_path / "other")


def test_no_intrinsics_are_refused(changed):
    (drive,) = list_drives(changed({"camera_info": None}))
    with pytest.raises(DatasetError, match="no camera_info"):
        drive.place("camera")


def test_the_first_mask_of_classes_of_each_sample(path):
    keys = [sample.key for sample in Dataset(path).samples()][:4]
    rows = [
        (0, b"of an object", "car"),
        (0, b"classes", None),
        (0, b"further classes", None),
        (1, None, None),
        (1, b"of an object", "car"),
        (3, b"classes", None),
    ]
    table = pl.DataFrame(
        {
            "name": [keys[n].name for n, *_ in rows],
            "frame": [keys[n].frame for n, *_ in rows],
            "mask": [mask for _, mask, _ in rows],
            "label": [label for *_, label in rows],
        },
        schema_overrides={"frame": pl.UInt32},
    )
    dataset = Dataset(path)
    dataset.annotations = with_all_columns(table, schema.DEFAULT_VERSION)
    found = find_class_masks(dataset)
    assert found.keys() == {keys[0], keys[3]}
    for key, number in found.items():
        sample = next(sample for sample in dataset.samples() if sample.key == key)
        wanted = next(row for row in sample.annotations.iter_rows(named=True) if is_class_mask(row))
        assert dataset.annotation_rows[0].row(number, named=True) == wanted
    dataset = Dataset(path)
    dataset.annotations = table.with_columns(mask=pl.lit([0.5, 0.5]))  # outlines, as 2025.10 has them
    assert find_class_masks(dataset) == {}
    dataset = Dataset(path)
    dataset.annotations = table.drop("mask")
    assert find_class_masks(dataset) == {}
