# SPDX-License-Identifier: Apache-2.0
"""Traces of roverd that are made to harm whoever reads them."""

import io
import json
import lzma
import os
import resource
import shutil
import zlib

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.importing import name_sequences
from edgefirst_ros.export.roverd.channels import (
    LARGEST,
    ChannelReader,
    CloudReader,
    VideoWriter,
    decode_pictures,
    write_cube,
)
from edgefirst_ros.export.roverd.read_foreign import from_euler
from edgefirst_ros.sensors.navigation import ValueTrack, interpolate

POINTS = (
    b"VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH 2\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\n"
    b"POINTS 2\nDATA binary\n" + np.arange(6, dtype="<f4").tobytes()
)


@pytest.fixture
def traces(tmp_path):
    """The export of a dataset of two samples, one of which has a broken picture."""
    picture = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 90, 10)).save(picture, "JPEG")
    with DatasetWriter(tmp_path / "dataset", "odd") as writer:
        for n, data in enumerate((picture.getvalue(), picture.getvalue()[:-2])):
            writer.write(NewSample("host", n, 10**18 + n * 10**8, [("camera.jpeg", [data]), ("lidar.pcd", [POINTS])]))
        writer.finish({})
    return export(Dataset(tmp_path / "dataset" / "odd.zip"), "roverd", tmp_path / "traces").out


def linked(path, target):
    path.unlink()
    path.symlink_to(target)


def swapped(path):
    """A link to a copy elsewhere, so that the content alone tells nothing."""
    copy = path.with_name("elsewhere")
    copy.write_bytes(path.read_bytes())
    linked(path, copy)


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def sparse(path, size):
    path.unlink()
    with path.open("xb") as file:
        file.truncate(size)


def test_pictures_without_a_stamp_are_counted(traces, tmp_path):
    """As after a power cut: the video has gone further than the stamps."""
    camera = traces / "host" / "camera"
    jpeg = next(decode_pictures(camera / "video.avi"))
    (camera / "video.avi").unlink()
    video = VideoWriter(camera / "video.avi", (16, 16), 10.0)
    for _ in range(3):
        video.append(jpeg)
    video.close()
    np.array([1e9], "<f8").tofile(camera / "ts")
    report = restore(traces, "roverd", tmp_path / "back").report
    assert [(line.where, line.number) for line in report.lines if line.what == "host/camera/video.avi"] == [
        ("camera.jpeg", 1),
        ("", 2),
    ]


CLOUDS = "host/lidar_points"


@pytest.mark.parametrize(
    "change",
    [
        lambda t: linked(t / CLOUDS / "meta.json", "/dev/zero"),
        lambda t: linked(t / CLOUDS / "length", "/dev/zero"),
        lambda t: swapped(t / CLOUDS / "xyz"),
        lambda t: swapped(t / "host/camera/video.avi"),
        lambda t: fifo(t / "host/camera/video.avi"),
    ],
)
def test_links_and_pipes_are_refused(traces, tmp_path, change):
    change(traces)
    with pytest.raises(DatasetError) as failed:
        restore(traces, "roverd", tmp_path / "back")
    assert failed.value.exit_code == 1
    assert not (tmp_path / "back").exists()


def sensor(folder, **channels):
    """The channels of a sensor: (format, type, shape, data or size of a sparse file)."""
    folder.mkdir()
    (folder / "meta.json").write_text(
        json.dumps({n: {"format": f, "type": t, "shape": s} for n, (f, t, s, _) in channels.items()})
    )
    for name, (*_, data) in channels.items():
        (folder / name).write_bytes(b"" if isinstance(data, int) else data)
        if isinstance(data, int):
            os.truncate(folder / name, data)
    return ChannelReader(folder)


@pytest.mark.parametrize("wrong", [{"shape": ""}, {"shape": []}, {"shape": [1.5] * 4}, {"layout": []}, {"scales": 1}])
def test_a_cube_that_does_not_fit_its_description(wrong):
    said = {"layout": [6, 1, 5, 2], "shape": [1, 2, 2, 4], "scales": [1.0] * 4, "is_complex": True}
    values = np.zeros((1, 2, 2, 2, 2), np.int16)
    assert write_cube(values, said, 5).startswith(b"\x89PNG")
    with pytest.raises(DatasetError, match="does not fit"):
        write_cube(values, said | wrong, 5)


@pytest.mark.parametrize("length", [np.inf, -np.inf, np.nan])
def test_a_length_that_is_no_number_is_refused(tmp_path, length):
    one = ("raw", "f8", [], np.array([length]).tobytes())
    clouds = CloudReader(sensor(tmp_path / "a", xyz=("raw", "f4", [2, 3], bytes(24)), length=one))
    with pytest.raises(DatasetError, match="entry 0 cannot be read"):
        clouds[0]


def test_clouds_larger_than_any_are_refused(tmp_path):
    side = LARGEST // 12
    whole = {"xyz": ("raw", "f4", [side, 3], 12 * side), "length": ("raw", "u4", [], np.uint32(side).tobytes())}
    CloudReader(sensor(tmp_path / "a", **whole))
    with pytest.raises(DatasetError, match="clouds of up to"):
        CloudReader(sensor(tmp_path / "b", **whole, further=("raw", "u1", [side], side)))
    whole["xyz"] = ("raw", "f4", [side + 1, 3], 12 * (side + 1))
    with pytest.raises(DatasetError, match="xyz: has entries of 268435464 bytes"):
        CloudReader(sensor(tmp_path / "c", **whole))


def test_stamps_without_end_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="ts: has 1073741824 stamps"):
        sensor(tmp_path / "a", ts=("raw", "f8", [], 1 << 33)).stamps()


def test_an_xz_that_asks_for_more_memory_than_any_level_is_refused(tmp_path):
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 4096}]
    packed = bytearray(lzma.compress(bytes(8), lzma.FORMAT_XZ, filters=filters))
    assert packed[12:17] == bytes([2, 0, 0x21, 1, 0])  # The .xz File Format 3.1, 5.3.1: one filter, LZMA2, 4 KiB
    packed[16] = 40  # 4 GiB less one byte
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    reader = sensor(tmp_path / "a", cube=("lzmaf", "u1", [8], bytes(packed)))
    np.array([0, len(packed)], "<u8").tofile(tmp_path / "a" / "cube_i")
    with pytest.raises(DatasetError, match="Memory usage limit"):
        reader.frame("cube", 0)


@pytest.mark.parametrize("number", [-1, 10**30, 5])
def test_entries_that_are_not_there(tmp_path, number):
    reader = sensor(tmp_path / "a", cube=("lzmaf", "u1", [8], b""))
    (tmp_path / "a" / "cube_i").write_bytes(bytes(8))
    with pytest.raises(DatasetError, match="cannot be read"):
        reader.frame("cube", number)


def test_many_traces_of_one_name():
    found = name_sequences("Trace" if n % 2 else "trace" for n in range(1200))
    assert [name.casefold() for name in found] == ["trace", *(f"trace-{n}" for n in range(2, 1201))]


def test_traces_are_opened_one_at_a_time(traces, tmp_path):
    for number in range(50):
        shutil.copytree(traces / "host", tmp_path / "many" / f"drive-{number}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = set(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, ([n for n in range(1 << 12) if n not in taken][40], hard))
    try:
        made = restore(tmp_path / "many", "roverd", tmp_path / "back")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(Dataset(made.out).sequences) == 50


def test_positions_without_end_are_refused(traces, tmp_path):
    count = (1 << 20) + 1
    sensor(traces / "host" / "gps", ts=("raw", "f8", [], 8 * count), lla=("raw", "f8", [3], 24 * count))
    with pytest.raises(DatasetError, match=f"has {count} positions, up to {1 << 20}"):
        restore(traces, "roverd", tmp_path / "back")


def test_of_the_attitudes_those_beside_a_picture_count(traces, tmp_path):
    """Sent in any order, twice, and broken: what is between the two nearest ones is what a track says."""
    seconds = np.concatenate([np.arange(10**9 - 2, 10**9 + 2, 0.003), [10**9 - 0.5] * 3])
    random = np.random.default_rng(1)
    random.shuffle(seconds)
    angles = random.uniform(-1, 1, (len(seconds), 3)).astype("<f4")
    angles[::7] = np.nan
    channels = {"ts": ("raw", "f8", [], seconds.tobytes()), "rot": ("raw", "f4", [3], angles.tobytes())}
    stamps = sensor(traces / "host" / "imu", **channels).stamps()
    track = ValueTrack(interpolate)
    for stamp, turn in zip(stamps.tolist(), from_euler(angles.astype(float)).tolist(), strict=True):
        if np.isfinite(turn).all():
            track.add(stamp, tuple(turn))
    restore(traces, "roverd", tmp_path / "back")
    (path,) = (tmp_path / "back").glob("*.zip")
    samples = list(Dataset(path).samples())
    assert samples
    for sample in samples:
        assert sample.row["orientation"] == pytest.approx(track.at(sample.timestamp), abs=1e-12)
