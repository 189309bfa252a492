# SPDX-License-Identifier: Apache-2.0
"""Rows that `recover` makes anew: of pictures that tell nothing, of many samples, and what is counted of them."""

import json
import zipfile

import pyarrow as pa
import pytest
from handmade_dataset import SEQUENCE, START, cloud, dos_time
from PIL import Image
from unfinished_datasets import leave, sample, stamp_of, table

from edgefirst_ros.dataset import NewSample
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover

EVEN = START // 2_000_000_000 * 2_000_000_000
"""The stamps of the first samples as a ZIP has them: to 2 s."""


@pytest.mark.parametrize("size", [10, 10_000, 200_000], ids=["short", "longer than the first head", "than both"])
@pytest.mark.parametrize("kind", ["camera.jpeg", "camera.png"])
def test_a_sample_whose_picture_is_none_gets_the_time_of_its_member(tmp_path, kind, size):
    paths = leave(tmp_path, [NewSample(SEQUENCE, 3, stamp_of(3), [(kind, [b"\xff\xd8" + bytes(size)])])])
    paths.row_log.unlink()
    report = recover(paths.container)
    assert (report.samples, report.rows_rebuilt, report.unstamped) == (1, 1, 1)
    (row,) = table(paths.frames).iter_rows(named=True)
    assert {key: row[key] for key in ("name", "frame", "timestamp", "size", "latitude")} == {
        "name": SEQUENCE, "frame": 3, "timestamp": EVEN, "size": None, "latitude": None
    }  # fmt: skip


@pytest.mark.parametrize("lacking", [2, 4], ids=["latitude", "longitude"])
def test_half_a_position_in_a_picture_is_none(tmp_path, lacking):
    exif = Image.Exif()
    degrees = {1: "N", 2: (45.0, 30.0, 0.0), 3: "W", 4: (73.0, 36.0, 0.0)}
    exif[0x8825] = {tag: value for tag, value in degrees.items() if tag != lacking}  # the directory of GPS
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpeg", exif=exif)
    sent = NewSample(SEQUENCE, 3, stamp_of(3), [("camera.jpeg", [(tmp_path / "a.jpeg").read_bytes()])])
    paths = leave(tmp_path / "out", [sent])
    paths.row_log.unlink()
    assert recover(paths.container).rows_rebuilt == 1
    (row,) = table(paths.frames).iter_rows(named=True)
    assert (row["latitude"], row["longitude"]) == (None, None)


@pytest.mark.parametrize(
    ("latitude", "longitude", "known"), [(90, 180, True), (90.5, 0, False), (0, 180.5, False)], ids=str
)
def test_a_position_in_a_picture_that_is_not_on_the_earth_is_none(tmp_path, latitude, longitude, known):
    exif = Image.Exif()
    parts = [(float(int(of)), of % 1 * 60, 0.0) for of in (latitude, longitude)]
    exif[0x8825] = {1: "N", 2: parts[0], 3: "E", 4: parts[1]}
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpeg", exif=exif)
    sent = NewSample(SEQUENCE, 3, stamp_of(3), [("camera.jpeg", [(tmp_path / "a.jpeg").read_bytes()])])
    paths = leave(tmp_path / "out", [sent])
    paths.row_log.unlink()
    recover(paths.container)
    (row,) = table(paths.frames).iter_rows(named=True)
    assert (row["latitude"], row["longitude"]) == ((latitude, longitude) if known else (None, None))


def test_more_samples_than_are_held_in_memory_get_their_rows(tmp_path):
    """An archive of another tool that was cut, without any row."""
    count = 600
    with zipfile.ZipFile(tmp_path / "drive.zip", "w") as archive:
        for frame in range(count):
            name = f"{SEQUENCE}/{SEQUENCE}_{frame:03d}.lidar.pcd"
            archive.writestr(zipfile.ZipInfo(name, dos_time(EVEN + frame * 2_000_000_000)), cloud(frame, 1))
        end = archive.fp.tell()
    with (tmp_path / "drive.zip").open("r+b") as file:
        file.truncate(end + 40)
    report = recover(tmp_path / "drive.zip")
    assert (report.samples, report.members, report.rows_rebuilt) == (count, count, count)
    for path in (DatasetPaths(tmp_path, "drive").arrow, DatasetPaths(tmp_path, "drive").frames):
        found = table(path).sort("frame")
        assert found["frame"].to_list() == [*range(count)]
        assert found["timestamp"].to_list() == [EVEN + frame * 2_000_000_000 for frame in range(count)]


@pytest.mark.parametrize("other", [{"/b": {"seen": 9, "written": 4, "dropped": {"x": 5}}}, None], ids=["known", "none"])
def test_counts_of_the_whole_are_none_where_those_of_a_sequence_are(tmp_path, other):
    """Else they are the sums, what of the camera was seen and is nowhere being interrupted."""
    own = {"/a": {"seen": 8, "written": 0, "dropped": {"x": 2}}}
    sequences = {
        SEQUENCE: {"topics": {"reference": "/a"}, "counts": own},
        "other": {"topics": {}, "counts": other},
    }
    paths = leave(tmp_path, map(sample, range(3)), describe=lambda: {"sequences": sequences})
    recover(paths.container)
    metadata = pa.ipc.open_file(paths.frames.read_bytes()).schema.metadata
    found = json.loads(metadata[b"sequences"])
    interrupted = {"seen": 8, "written": 3, "dropped": {"x": 2, "not reached before the interruption": 3}}
    assert found[SEQUENCE]["counts"] == {"/a": interrupted}
    assert found["other"]["counts"] == other
    assert json.loads(metadata[b"counts"]) == (None if other is None else {"/a": interrupted, **other})
