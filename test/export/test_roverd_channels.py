# SPDX-License-Identifier: Apache-2.0
"""Channels of roverd that are not as their description says: each fault is named, nothing is guessed."""

import json
import lzma
import os
import resource
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
from test_roverd_hostile import sensor, traces  # noqa: F401  # a fixture

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError, StorageError
from edgefirst_ros.export import restore
from edgefirst_ros.export.roverd.channels import (
    LARGEST,
    ChannelReader,
    CloudReader,
    RawWriter,
    VideoWriter,
    decode_pictures,
    has_channels,
)
from edgefirst_ros.export.roverd.write import make_cloud_trace

JPEG = b"\xff\xd8 a picture \xff\xd9"


def test_what_an_entry_lacks_is_zero_and_a_hole_of_the_file(tmp_path):
    writer = RawWriter(tmp_path / "xyz", "f4", (1 << 20, 3))
    for number in range(3):
        writer.append(np.full((2, 3), number + 1, np.float32))
    writer.close()
    found = np.fromfile(tmp_path / "xyz", "<f4").reshape(3, 1 << 20, 3)
    assert [entry.sum() for entry in found] == [6, 12, 18]
    assert (tmp_path / "xyz").stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ([], "list"),
        ({"ts": 5}, "int"),
        ({"ts": {"type": "f8", "shape": []}}, "format"),
        ({"ts": {"format": "raw", "type": "c16", "shape": []}}, "type 'c16'"),
        ({"ts": {"format": "raw", "type": "f8", "shape": [3, -1]}}, r"shape \[3, -1\]"),
        ({"ts": {"format": "raw", "type": "f8", "shape": [True]}}, r"shape \[True\]"),
    ],
)
def test_a_description_of_something_else_is_refused(tmp_path, described, why):
    (tmp_path / "meta.json").write_text(json.dumps(described))
    with pytest.raises(DatasetError, match=rf"meta\.json: is not a description of channels: .*{why}"):
        ChannelReader(tmp_path)


def test_channels_that_cannot_be_read_are_named(tmp_path):
    packed = lzma.compress(bytes(7))
    reader = sensor(
        tmp_path / "a",
        cube=("lzmaf", "u1", [8], packed),
        large=("lzmaf", "u1", [LARGEST + 1], b""),
        gone=("raw", "u1", [], b""),
        ts=("raw", "f8", [], np.array([0.0, np.inf]).tobytes()),
    )
    (tmp_path / "a/gone").unlink()
    with pytest.raises(DatasetError, match="a: has no channel 'other'"):
        reader.raw("other")
    with pytest.raises(DatasetError, match="cube: has the format 'lzmaf', expected 'raw'"):
        reader.raw("cube")
    with pytest.raises(DatasetError, match="gone: cannot be opened: No such file"):
        reader.raw("gone")
    with pytest.raises(DatasetError, match=r"cube_i: cannot be read: .*No such file"):
        reader.count("cube")
    with pytest.raises(DatasetError, match="ts: these are not seconds since the epoch"):
        reader.stamps()
    with pytest.raises(DatasetError, match="gone: format 'raw' with entries of 1 bytes, expected 'lzmaf'"):
        reader.frame("gone", 0)
    with pytest.raises(DatasetError, match=f"large: format 'lzmaf' with entries of {LARGEST + 1} bytes"):
        reader.frame("large", 0)
    np.array([0, len(packed)], "<u8").tofile(tmp_path / "a/cube_i")
    assert reader.count("cube") == 1
    with pytest.raises(DatasetError, match="cube: entry 0 does not have 8 bytes"):
        reader.frame("cube", 0)


def test_a_channel_that_memory_has_no_place_for_is_named(tmp_path):
    """A terabyte of holes, in a process that may have half of that."""
    reader = sensor(tmp_path / "a", u=("raw", "u1", [], 1 << 40))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 39 if hard < 0 else min(1 << 39, hard), hard))
    try:
        with pytest.raises(DatasetError, match=r"u: cannot be read: .*Cannot allocate memory"):
            reader.raw("u")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# ---- clouds --------------------------------------------------------------------------------------
def test_clouds_of_other_channels_than_places_are_refused(tmp_path):
    length = ("raw", "u4", [], np.uint32(2).tobytes())
    flat = sensor(tmp_path / "a", xyz=("raw", "f4", [2, 2], bytes(16)), length=length)
    with pytest.raises(DatasetError, match=r"xyz: has entries of \(2, 2\), expected \(points, 3\) f4"):
        CloudReader(flat)


@pytest.mark.parametrize("lines", [2, 0])
def test_points_that_fill_no_lines_are_refused(tmp_path, lines):
    channels = {"xyz": ("raw", "f4", [3, 3], bytes(36)), "length": ("raw", "u4", [], np.uint32(3).tobytes())}
    clouds = CloudReader(sensor(tmp_path / "a", **channels, height=("raw", "u4", [], np.uint32(lines).tobytes())))
    with pytest.raises(DatasetError, match=f"a: entry 0 has 3 points in {lines} lines"):
        clouds[0]


def test_points_without_places_have_no_channels(tmp_path):
    assert make_cloud_trace(tmp_path, 1).ready(b"no cloud") is None
    assert has_channels(np.dtype([(axis, "<f4") for axis in "xyz"]))
    assert not has_channels(np.dtype([(axis, "<f8") for axis in "xyz"]))
    assert not has_channels(np.dtype([("x", "<f4"), ("y", "<f4")]))


# ---- video ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("path", "why"), [("none/video.avi", "No such file"), ("/dev/full", "No space left")])
def test_a_video_that_the_disk_does_not_take_is_an_error(tmp_path, path, why):
    writer = VideoWriter(tmp_path / path, (16, 16), 10.0)
    with pytest.raises(StorageError, match=rf"{path}: cannot write: .*{why}"):
        writer.append(bytes(1 << 20))
    with pytest.raises(StorageError, match="cannot write") if path == "/dev/full" else nullcontext():
        writer.close()


def test_a_video_of_another_codec_is_refused(tmp_path):
    import av

    with av.open(str(tmp_path / "video.avi"), "w", format="avi") as file:
        stream = file.add_stream("mpeg4", 10)
        stream.width = stream.height = 16
        stream.pix_fmt = "yuv420p"
        for packet in (*stream.encode(av.VideoFrame(16, 16, "yuv420p")), *stream.encode()):
            file.mux(packet)
    with pytest.raises(DatasetError, match=r"video\.avi: holds no MJPEG video"):
        next(decode_pictures(tmp_path / "video.avi"))
    (tmp_path / "video.avi").write_bytes(b"RIFF no video at all")
    with pytest.raises(DatasetError, match=r"video\.avi: cannot be read"):
        next(decode_pictures(tmp_path / "video.avi"))


# ---- traces of others ----------------------------------------------------------------------------
@pytest.fixture
def foreign(traces):  # noqa: F811
    """A trace."""
    return traces


def told(out, source):
    done = restore(source, "roverd", out)
    return Dataset(next(out.glob("*.zip"))), {line.what: line for line in done.report.lines}


def test_a_file_in_place_of_traces_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"file: .*expected a folder"):
        restore(tmp_path / "file", "roverd", tmp_path / "back")


def test_a_companion_without_an_entry_is_in_no_sample(foreign, tmp_path):
    for channel in ("ts", "xyz", "length", "height"):
        (foreign / "host/lidar_points" / channel).write_bytes(b"")
    dataset, lines = told(tmp_path / "back", foreign)
    assert [sample.inputs for sample in dataset] == [{"camera"}]
    assert lines["host/lidar_points/xyz"].lost == "a dataset has no place for it"


def test_progress_is_told_by_the_samples_that_are_there_so_far(foreign, tmp_path):
    said = []
    restore(foreign, "roverd", tmp_path / "back", progress=lambda *told: said.append(told))
    number = len(Dataset(next((tmp_path / "back").glob("*.zip"))))
    assert number
    assert said == [("importing host", n + 1, number) for n in range(number)]


def test_a_folder_that_the_system_does_not_list_is_said(tmp_path):
    """Each name is one, and all together are longer than a path can be."""
    source = tmp_path / "in"
    source.mkdir()
    here = os.open(source, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("x" * 250, dir_fd=here)
        inner = os.open("x" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    with pytest.raises(DatasetError, match=rf"^{source}: cannot be listed: .*File name too long"):
        restore(source, "roverd", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    shutil.rmtree(source)


def test_a_sensor_of_unknown_numbers_is_said_and_the_others_are_taken(foreign, tmp_path):
    (foreign / "host/iq").mkdir()
    (foreign / "host/iq/meta.json").write_text(json.dumps({"iq": {"format": "raw", "type": "c16", "shape": []}}))
    dataset, lines = told(tmp_path / "back", foreign)
    assert "type 'c16'" in lines["host/iq"].lost
    assert [sorted(sample.inputs) for sample in dataset] == [["camera", "lidar.points"]]


@pytest.mark.parametrize("name", ["camera", "lidar_points"])
def test_times_that_do_not_rise_are_refused(foreign, tmp_path, name):
    np.array([1e9 + 0.1, 1e9], "<f8").tofile(foreign / "host" / name / "ts")
    if name == "camera":
        camera = foreign / "host/camera"
        jpeg = next(decode_pictures(camera / "video.avi"))
        writer = VideoWriter(camera / "new.avi", (16, 16), 10.0)
        for _ in range(2):
            writer.append(jpeg)
        writer.close()
        (camera / "new.avi").replace(camera / "video.avi")
    with pytest.raises(DatasetError, match=f"host/{name}/ts: the times do not rise"):
        restore(foreign, "roverd", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_pictures_that_are_no_whole_jpeg_are_left_out(foreign, tmp_path):
    camera = foreign / "host/camera"
    jpeg = next(decode_pictures(camera / "video.avi"))
    without = jpeg.replace(b"\xff\xc4", b"\xff\xe5")  # its Huffman tables in a segment that nobody reads
    (camera / "video.avi").unlink()
    writer = VideoWriter(camera / "video.avi", (16, 16), 10.0)
    for picture in (jpeg, jpeg[:-2], without, jpeg):
        writer.append(picture)
    writer.close()
    np.arange(1e9, 1e9 + 4, dtype="<f8").tofile(camera / "ts")
    dataset, lines = told(tmp_path / "back", foreign)
    assert [(sample.frame, sample.read("camera.jpeg")[-2:]) for sample in dataset] == [
        (0, b"\xff\xd9"),
        (3, b"\xff\xd9"),
    ]
    line = lines["host/camera/video.avi"]
    assert (line.number, line.lost) == (2, "4 times: the others have no picture, or no whole JPEG")
