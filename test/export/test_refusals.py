# SPDX-License-Identifier: Apache-2.0
"""What NCore and L5Kit have no form for, and members that cannot be read: refused by name, and nothing is left."""

import shutil
import struct
import zlib

import polars as pl
import pytest
from same_dataset import files

from edgefirst_ros import Dataset, convert
from edgefirst_ros.dataset.names import make_member_name
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import SYSTEMS, export, restore
from edgefirst_ros.export.ncore.write import read_description
from edgefirst_ros.synthetic import TOPICS

RECIPE = {"seconds": 1, "fps": 6.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
RECIPE |= {"cube_shape": (1, 8, 2, 8), "topics": frozenset(TOPICS - {"radar/clusters"})}


@pytest.fixture(scope="module")
def folder(recording, tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    return convert(recording(**RECIPE), place, name="drive", layout="directory").paths.container


@pytest.fixture
def ncore():
    pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")


@pytest.mark.parametrize("to", SYSTEMS)
@pytest.mark.parametrize("first", [True, False])
def test_a_drive_without_poses_beside_another_is_left_out_by_name(recording, tmp_path, to, first):
    """Of systems that need poses the report names it; alone it is refused."""
    if to == "ncore":
        pytest.importorskip("ncore.data.v4", reason="nvidia-ncore is not installed")
    known = recording(**RECIPE)
    unknown = tmp_path / "unknown.mcap"
    unknown.symlink_to(recording(**RECIPE | {"topics": RECIPE["topics"] - {"gps", "imu"}}))
    drives = [unknown, known] if first else [known, unknown]
    dataset = convert(drives, tmp_path / "set", name="set", group={"train": "unknown", "val": "maivin*"}).paths
    done = export(dataset.container, to, tmp_path / "out")
    lines = [line for line in done.report.lines if line.what == "sequence unknown"]
    if to in ("coco", "yolo", "roverd"):
        assert not lines
        return
    number = sum(sample.name == "unknown" for sample in Dataset(dataset.container))
    assert [(line.lost, line.number) for line in lines] == [("not written: the vehicle's poses are unknown", number)]
    alone = convert(known, tmp_path / "alone", name="set", group={"val": "*"})
    export(alone.paths.container, to, tmp_path / "expected")
    made, expected = files(tmp_path / "out"), files(tmp_path / "expected")
    assert made.pop("export-report.json") != expected.pop("export-report.json")
    assert made == expected
    convert(unknown, tmp_path / "lost", name="set")
    with pytest.raises(DatasetError, match=r"no samples of 'unknown' have a pose.*; convert the recording again"):
        export(tmp_path / "lost" / "set.zip", to, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("first", [True, False])
def test_a_dataset_without_poses_beside_another_is_left_out_by_name(recording, tmp_path, first):
    """As a drive of one dataset, which `nuscenes` alone takes several of."""
    (tmp_path / "unknown.mcap").symlink_to(recording(**RECIPE | {"topics": RECIPE["topics"] - {"gps", "imu"}}))
    unknown = convert(tmp_path / "unknown.mcap", tmp_path / "u", group={"val": "*"}).paths.container
    known = convert(recording(**RECIPE), tmp_path / "k", group={"val": "*"}).paths.container
    done = export([unknown, known] if first else [known, unknown], "nuscenes", tmp_path / "out")
    lost = [line.lost for line in done.report.lines if line.what == "sequence unknown"]
    assert lost == ["not written: the vehicle's poses are unknown"]
    export(known, "nuscenes", tmp_path / "expected")
    made, expected = files(tmp_path / "out"), files(tmp_path / "expected")
    assert made.pop("export-report.json") != expected.pop("export-report.json")
    assert made == expected


@pytest.mark.usefixtures("ncore")
def test_pictures_of_two_sizes_are_no_camera_of_ncore(folder, tmp_path):
    dataset = Dataset(folder)
    other = pl.when(pl.col("frame") == 3).then(pl.lit([64, 32], pl.Array(pl.UInt32, 2))).otherwise(pl.col("size"))
    dataset.frames = dataset.frames.with_columns(size=other)
    with pytest.raises(DatasetError, match="frame 3 has 64 x 32 pixels, those before it 128 x 64; a camera of NCore"):
        export(dataset, "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("ncore")
@pytest.mark.parametrize("kind", ["radar.pcd", "lidar.pcd"])
def test_a_member_that_cannot_be_read_is_named(folder, tmp_path, kind):
    copy = tmp_path / "copy"
    shutil.copytree(folder.parent, copy)
    sample = next(sample for sample in Dataset(copy / folder.name) if kind in sample.inputs and sample.frame > 1)
    name = make_member_name(sample.name, sample.frame, kind)
    (Dataset(copy / folder.name).container.path / name).write_bytes(b"no cloud")
    dataset = Dataset(copy / folder.name)
    with pytest.raises(DatasetError, match=f"'{name}': .*PCD"):
        export(dataset, "ncore", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def test_a_cube_is_described_by_its_texts_alone():
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 16, 0, 0, 0, 0))
    texts = chunk(b"tEXt", b"edgefirst:layout\0[6, 1]") + chunk(b"tEXt", b"Software\0other")
    rest = chunk(b"IDAT", b"") + chunk(b"tEXt", b"edgefirst:late\x001") + chunk(b"IEND", b"")
    assert read_description(head + texts + rest) == {"layout": [6, 1]}
    for text, why in ((b"six", "Expecting value"), (b"[1e999]", "not JSON compliant"), (b"[" * 100_000, "recursion")):
        with pytest.raises(DatasetError, match=f"radar cube cannot be read: .*{why}"):
            read_description(head + chunk(b"tEXt", b"edgefirst:layout\0" + text) + rest)


def test_boxes_in_space_of_five_numbers_are_no_agents(folder, tmp_path):
    dataset = Dataset(folder)
    five = pl.lit([1.0] * 5, pl.Array(pl.Float32, 5))
    dataset.annotations = dataset.annotations.with_columns(box3d=five)
    with pytest.raises(DatasetError, match=r"drive\.arrow: box3d must have 6 numbers"):
        export(dataset, "l5kit", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("ncore")
def test_a_file_that_is_no_sequence_of_ncore_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no sequence")
    with pytest.raises(DatasetError, match=r"notes\.txt: no NCore sequence here"):
        restore(tmp_path / "notes.txt", "ncore", tmp_path / "out")
