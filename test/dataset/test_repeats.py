# SPDX-License-Identifier: Apache-2.0
"""A slow sensor's message in several samples."""

import struct
import subprocess
import zipfile

import pytest

from edgefirst_ros import Dataset, convert
from edgefirst_ros.cli.info import DatasetInfo
from edgefirst_ros.dataset.names import DatasetPaths, Key
from edgefirst_ros.dataset.query import count_repeats, find_repeats
from edgefirst_ros.dataset.storage.zip_read import count_members
from edgefirst_ros.errors import DatasetError

RECIPE = {"seconds": 1.0, "fps": 10.0, "size": (128, 64), "codec": "jpeg", "lidar_points": 20}
RECIPE["topics"] = frozenset({"camera", "lidar/points", "radar/targets"})
RECIPE["rates"] = {"lidar/points": 5.0, "radar/targets": 10.0}


@pytest.fixture(scope="module")
def path(recording, tmp_path_factory):
    drives = [recording(**RECIPE), recording(**RECIPE, host="other")]
    return convert(drives, tmp_path_factory.mktemp("repeats"), name="two").paths.container


def test_a_sample_names_what_the_sample_before_has_too(path):
    dataset, before = Dataset(path), {}
    for sample in dataset.samples():
        own = {name: sample.read(name) for name in ("lidar.points",) if name in sample.inputs}
        last = before.get(sample.name, {})
        same = {name for name, data in own.items() if last.get(name) == data}
        assert sample.repeats == same
        before[sample.name] = own
    repeated = [sample for sample in dataset.samples() if sample.repeats]
    assert {sample.name.partition("_")[0] for sample in repeated} == {"maivin-demo", "other"}
    size = sum(len(sample.read("lidar.pcd")) for sample in repeated)
    assert DatasetInfo(path).plain()["repeats"] == {"members": len(repeated), "bytes": size}
    assert count_repeats(DatasetPaths(path.parent, path.stem)) == (len(repeated), size)


def test_repeats_are_counted_in_folders_and_where_nothing_repeats(path, recording, tmp_path):
    folder = convert([recording(**RECIPE), recording(**RECIPE, host="other")], tmp_path, name="two", layout="directory")
    assert count_repeats(folder.paths) == count_repeats(DatasetPaths(path.parent, path.stem)) > (0, 0)
    alone = convert(recording(**RECIPE), tmp_path, name="alone", sensors=["camera", "radar.targets"])
    assert count_repeats(alone.paths) == (0, 0)
    never = convert(recording(**RECIPE), tmp_path, name="never", streams={"lidar.points": {"reuse": False}})
    assert count_repeats(never.paths) == (0, 0)


def every(name):
    return True


def test_sizes_beyond_32_bits_are_those_of_the_extra_field(tmp_path):
    """As zipfile reads them."""
    path = tmp_path / "wide.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/a_1.lidar.pcd", b"12345")
    assert count_members(path, every) == (1, 5)
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    record = data[at : data.index(b"PK\x05\x06")]
    struct.pack_into("<I", record, 24, 0xFFFFFFFF)
    struct.pack_into("<H", record, 30, 12)
    record += struct.pack("<HHQ", 1, 8, 5 << 32)
    end = bytearray(data[data.index(b"PK\x05\x06") :])
    struct.pack_into("<I", end, 12, len(record))
    path.write_bytes(data[:at] + record + end)
    with zipfile.ZipFile(path) as archive:
        assert archive.infolist()[0].file_size == 5 << 32
    assert count_members(path, every) == (1, 5 << 32)


def test_a_comment_of_a_member_that_looks_like_a_member_is_none(tmp_path):
    path = tmp_path / "said.zip"
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a/a_9.lidar.pcd", bytes(1000))
    data = (tmp_path / "other.zip").read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("a/a_1.lidar.pcd")
        info.comment = data[data.index(b"PK\x01\x02") : data.index(b"PK\x05\x06")]
        archive.writestr(info, b"12345")
        archive.writestr("a/a_2.lidar.pcd", b"123")
    assert count_members(path, every) == (2, 8)


def test_members_of_what_is_no_zip(tmp_path):
    (tmp_path / "no.zip").write_bytes(b"no")
    with pytest.raises(DatasetError, match=r"no\.zip: not a readable ZIP archive"):
        count_members(tmp_path / "no.zip", every)


@pytest.mark.parametrize("how", ["comment", "comments of members", "folder"])
def test_finished_datasets_that_other_programs_have_touched(how, path, recording, tmp_path):
    """What repeats is counted as in the dataset as it was written."""
    layout = "directory" if how == "folder" else "zip"
    drives = [recording(**RECIPE), recording(**RECIPE, host="other")]
    paths = convert(drives, tmp_path, name="two", layout=layout).paths
    if how == "folder":
        (paths.members / ".DS_Store").write_bytes(b"of a Mac")
    else:
        with zipfile.ZipFile(paths.container, "a") as archive:
            archive.comment = b"of a user" if how == "comment" else b""
            for entry in archive.infolist() if how == "comments of members" else ():
                entry.comment = b"PK"
            archive._didModify = True
    assert count_repeats(paths) == count_repeats(DatasetPaths(path.parent, path.stem)) > (0, 0)


def test_samples_without_repeats(path):
    dataset = Dataset(path)
    found = list(dataset.samples({"lidar"}, repeats=False))
    stamps = [(sample.name, sample.row["lidar_points_timestamp"]) for sample in found]
    assert 0 < len(stamps) == len(set(stamps)) < len(dataset)
    assert len(list(dataset.samples({"radar"}, repeats=False))) == len(list(dataset.samples({"radar"})))
    assert len(list(dataset.samples(repeats=False))) == sum(not sample.repeats for sample in dataset.samples())


def test_the_summary_and_info_say_the_same(command, recording, tmp_path):
    converted = [*command, "convert", str(recording(**RECIPE)), "-o", str(tmp_path), "--name", "one"]
    said = subprocess.run(converted, capture_output=True, text=True, check=True).stdout.splitlines()
    told = subprocess.run(
        [*command, "info", str(tmp_path / "one.zip")], capture_output=True, text=True, check=True
    ).stdout
    repeated = [sample for sample in Dataset(tmp_path / "one.zip").samples() if sample.repeats]
    (line,) = (line for line in said if "repeated members:" in line)
    size = sum(len(sample.read(kind)) for sample in repeated for kind in sample.repeats)
    assert 0 < size < 100_000  # megabytes with one digit would be 0.0
    assert line.startswith(f"repeated members: {len(repeated)}, {size / 1000:.1f} kB: ")
    assert line in told.splitlines()
    assert line.endswith("--no-reuse writes each once")


def test_no_reuse_keeps_every_message_and_stores_it_once(recording, tmp_path):
    """The scans that several frames had are all there, each with one frame: the one nearest to it."""
    drive = recording(**RECIPE)
    every = Dataset(convert(drive, tmp_path / "every").paths.container)
    once = Dataset(convert(drive, tmp_path / "once", no_reuse=True).paths.container)
    assert count_repeats(once.paths) == (0, 0) < count_repeats(every.paths)
    column = "lidar_points_timestamp"
    stamps = once.frames[column].drop_nulls().to_list()
    assert stamps == sorted(set(every.frames[column].drop_nulls().to_list()))
    assert len(once) == len(every)
    for row in once.frames.drop_nulls(column).iter_rows(named=True):
        away = [abs(row[column] - stamp) for stamp in every.frames["timestamp"]]
        assert min(away) == abs(row[column] - row["timestamp"])


def test_a_sample_without_a_row_repeats_nothing_and_is_repeated_by_none():
    keys = [Key("a", frame) for frame in range(5)]
    rows = {key: row for row, key in enumerate(keys) if key.frame != 2}
    stamps = {"lidar.pcd": [10, 10, 10, 10, 10], "radar.pcd": [1, 2, 2, 3, None]}
    lidar = frozenset({"lidar.pcd"})
    assert find_repeats(stamps, keys, rows) == {Key("a", 1): lidar, Key("a", 4): lidar}
    assert find_repeats(stamps, keys, {key: row for row, key in enumerate(keys)}) == {
        Key("a", 1): lidar, Key("a", 2): lidar | {"radar.pcd"}, Key("a", 3): lidar, Key("a", 4): lidar
    }  # fmt: skip
