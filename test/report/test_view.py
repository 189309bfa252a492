# SPDX-License-Identifier: Apache-2.0
"""`view`: what is logged, by rerun's own command; its server ends with us."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from late import late
from logged import rows

import edgefirst_ros
from edgefirst_ros.errors import DatasetError, EdgeFirstError, UsageError
from edgefirst_ros.report.view.run import view
from edgefirst_ros.report.view.viewer import find_program

late("rerun", reason="rerun-sdk is not installed")

SMALL = {"seconds": 2, "size": (320, 192), "cube_shape": (1, 16, 2, 16), "lidar_points": 100}


@pytest.fixture(scope="module")
def drive(recording, tmp_path_factory):
    path = recording(**SMALL)
    return path, edgefirst_ros.convert(path, tmp_path_factory.mktemp("drive"), name="drive").paths


def test_everything_of_a_dataset_is_logged_once(drive, tmp_path):
    done = view(drive[1].container, save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    frames = pl.read_ipc(drive[1].frames)
    assert done.samples == len(frames) == 60
    assert found["/camera/image", "EncodedImage:blob"] == 60
    for entity, column in (("/lidar", "lidar_points"), ("/radar", "radar_targets")):
        assert found[entity, "Points3D:positions"] == frames[f"{column}_timestamp"].n_unique()
    assert found["/cube", "Tensor:data"] == frames["radar_cube_timestamp"].n_unique()
    assert found["/camera/boxes", "Boxes2D:centers"] == frames["model_timestamp"].drop_nulls().len() == 20
    assert found["/camera/masks", "SegmentationImage:buffer"] == 20
    assert found["/skew/lidar.points", "Scalars:scalars"] == 60
    assert found["/map", "GeoPoints:positions"] == frames["latitude"].drop_nulls().len()
    for entity in ("/camera", "/lidar", "/radar"):
        assert found[entity, "Transform3D:translation"] == 1
    assert found["/camera", "Pinhole:image_from_camera"] == 1
    assert any(entity.startswith("/viewport") for entity, _ in found)  # the blueprint goes along


def test_h264_of_a_recording_is_not_encoded_again(drive, tmp_path):
    view(drive[0], save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    assert found["/camera/video", "VideoStream:sample"] == 60
    assert ("/camera/image", "EncodedImage:blob") not in found
    assert found["/lidar", "Points3D:positions"] == 20
    assert found["/camera/masks", "SegmentationImage:buffer"] == 20


def test_h265_is_decoded(recording, tmp_path):
    view(recording(**SMALL, codec="h265", topics={"camera"}), save=tmp_path / "x.rrd")
    found = rows(tmp_path / "x.rrd")
    assert found["/camera/image", "EncodedImage:blob"] == 60
    assert ("/camera/video", "VideoStream:sample") not in found


def test_only_some_sensors_and_only_one_frame(drive, tmp_path):
    view(drive[1].container, only=["lidar"], frame=30, save=tmp_path / "x.rrd")  # the name of its entity
    found = {
        entity for entity, column in rows(tmp_path / "x.rrd") if column.startswith(("Points", "Encoded", "Scalars"))
    }
    assert found == {"/lidar", "/skew/lidar.points"}
    view(drive[0], only=["camera"], frame=45, save=tmp_path / "y.rrd")
    packets = rows(tmp_path / "y.rrd")["/camera/video", "VideoStream:sample"]
    assert packets == 16  # from the keyframe at 30 on


def test_what_cannot_be_shown_is_named(drive, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"unknown sensor 'lidr'; known: lidar\.points, "):
        view(drive[1].container, only=["lidr"], save=tmp_path / "x.rrd")
    with pytest.raises(UsageError, match="no frame 700; there are 55, 56, 57, 58, 59 near it"):
        view(drive[1].container, frame=700, save=tmp_path / "x.rrd")
    with pytest.raises(DatasetError):
        view(tmp_path / "nowhere", save=tmp_path / "x.rrd")
    (tmp_path / "x.rrd").write_text("mine")
    with pytest.raises(DatasetError, match=r"exists already; --overwrite"):
        view(drive[1].container, save=tmp_path / "x.rrd")
    assert (tmp_path / "x.rrd").read_text() == "mine"
    assert os.listdir(tmp_path) == ["x.rrd"]
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(EdgeFirstError, match=r"pip install 'edgefirst-ros\[view\]'"):
        view(drive[1].container)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_listens_here_alone_and_ends_with_us(drive, number, cold_command):
    line = [*cold_command, "view", os.fspath(drive[1].container), "--web", "--only", "lidar.points"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        address = running.stdout.readline()
        assert address.startswith("http://127.0.0.1:"), running.stderr.read()
        (child,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        assert Path(f"/proc/{child}/exe").resolve() == find_program().resolve()
        running.send_signal(number)
        running.communicate()
        assert running.returncode == 0
    for _ in range(100):
        if not Path(f"/proc/{child}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{child}").exists()
