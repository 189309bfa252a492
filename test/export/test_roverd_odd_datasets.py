# SPDX-License-Identifier: Apache-2.0
"""Datasets of which a part has no home in roverd, or does not come out as it went in: said in the report, and kept."""

import io
import itertools
import json
import lzma
import os
import zipfile

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.writer import DatasetWriter, Sample
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export, restore
from edgefirst_ros.export.roverd import restoring
from edgefirst_ros.export.roverd.video import VideoWriter
from edgefirst_ros.sensors.cloud import pcd_header

START, STEP = 10**18, 10**8


def picture(value, form="JPEG", mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (16, 16), value).save(file, form)
    return file.getvalue()


JPEG = [picture((n * 40, 90, 10)) for n in range(4)]


def write(folder, *samples, sequence="host"):
    """A dataset of samples: their further columns of annotations, beside a picture."""
    with DatasetWriter(folder, "odd") as writer:
        for n, annotations in enumerate(samples):
            members = [("camera.jpeg", [JPEG[n]])]
            writer.write(Sample(sequence, n, START + n * STEP, members, annotations=annotations))
        writer.finish({})
    return folder / "odd.zip"


def exported(path, out):
    """The report of an export, by what was exported."""
    return {line.what: line for line in export(Dataset(path), "roverd", out).report.lines}


def assert_comes_back(folder, traces, out):
    restore(traces, "roverd", out)
    for path in folder.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name


def test_masks_of_classes_that_are_no_8_bit_png_stay_in_the_table(tmp_path):
    masks = [picture(7, "PNG", "L"), picture(300, "PNG", "I;16"), b"\x89PNG broken", picture(9, "PNG", "L")]
    path = write(tmp_path / "in", *([{"mask": mask}] for mask in masks))
    export(Dataset(path), "roverd", tmp_path / "out")
    lines = json.loads((tmp_path / "out/export-report.json").read_text())["lines"]
    told = {line["where"]: (line["number"], line["lost"]) for line in lines if line["what"] == "mask of classes"}
    assert told == {
        "_camera/segment": (2, ""),
        "": (2, "more than one size, no 8-bit PNG: in the table alone"),
    }
    camera = tmp_path / "out/host/_camera"
    assert np.fromfile(camera / "ts", "<f8").tolist() == [START / 1e9, (START + 3 * STEP) / 1e9]
    ends = np.fromfile(camera / "segment_i", "<u8")
    data = (camera / "segment").read_bytes()
    assert [lzma.decompress(data[a:b]) for a, b in itertools.pairwise(ends)] == [b"\7" * 256, b"\t" * 256]
    assert_comes_back(tmp_path / "in", tmp_path / "out", tmp_path / "back")


@pytest.mark.parametrize("name", ["_edgefirst", "_EdgeFirst"])
def test_a_sequence_with_the_name_of_the_folder_beside_is_refused(tmp_path, name):
    path = write(tmp_path / "in", [], sequence=name)
    with pytest.raises(DatasetError, match=rf"odd\.zip: a sequence cannot have the name '{name}'"):
        export(Dataset(path), "roverd", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_belong_to_no_sample_are_counted(tmp_path):
    path = write(tmp_path / "in", [], [])
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "a rainy day")
        archive.writestr("host/readme", "")
    line = exported(path, tmp_path / "out")["files that belong to no sample"]
    assert (line.number, line.where, line.lost) == (2, "", "not taken along")


def test_a_picture_that_the_disk_changed_is_kept_as_a_file(tmp_path, monkeypatch):
    """A byte of the second one is another when the video is complete."""
    complete = VideoWriter.close

    def change(writer):
        complete(writer)
        data = writer._path.read_bytes()
        place = data.index(JPEG[1]) + len(JPEG[1]) - 10
        writer._path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])

    monkeypatch.setattr(VideoWriter, "close", change)
    path = write(tmp_path / "in", [], [], [])
    export(Dataset(path), "roverd", tmp_path / "out")
    monkeypatch.undo()
    kept = tmp_path / "out/_edgefirst/members/host"
    assert [file.name for file in kept.iterdir()] == ["host_001.camera.jpeg"]
    assert (kept / "host_001.camera.jpeg").read_bytes() == JPEG[1]
    lines = json.loads((tmp_path / "out/export-report.json").read_text())["lines"]
    told = {line["where"]: (line["number"], line["lost"]) for line in lines if line["what"] == "camera.jpeg"}
    assert told["_edgefirst/members/"] == (1, "not read by roverd: could not be made again byte by byte")
    assert_comes_back(tmp_path / "in", tmp_path / "out", tmp_path / "back")


def cloud(value, field="reflect"):
    record = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), (field, "u1")])
    points = np.zeros(6, record)
    points["x"], points[field] = value, 7
    return pcd_header(record, 3, 2) + points.tobytes()


def write_clouds(folder, *clouds):
    """A dataset of clouds as (offset of the stamp in steps, PCD file), each of a sample of its own."""
    with DatasetWriter(folder, "odd") as writer:
        for n, (at, pcd) in enumerate(clouds):
            members = [("camera.jpeg", [JPEG[n]]), ("lidar.pcd", [pcd])]
            row = {"lidar_points_timestamp": START + at * STEP}
            writer.write(Sample("host", n, START + n * STEP, members, frame_row=row))
        writer.finish({})
    return folder / "odd.zip"


@pytest.mark.parametrize("name", ["fields.json", "extrinsics.json", "meta.json", "length"])
def test_a_field_with_the_name_of_a_file_beside_the_channels_keeps_its_clouds_as_files(tmp_path, name):
    path = write_clouds(tmp_path / "in", (0, cloud(1, name)), (1, cloud(2, name)))
    told = exported(path, tmp_path / "out")["lidar.pcd"]
    assert (told.number, told.lost) == (2, "not read by roverd: could not be made again byte by byte")
    assert_comes_back(tmp_path / "in", tmp_path / "out", tmp_path / "back")


def test_a_message_of_several_samples_is_kept_as_a_file_for_one_reason(tmp_path):
    other = cloud(2, "other")
    path = write_clouds(tmp_path / "in", (0, cloud(1)), (1, other), (1, other), (1, cloud(3, "third")))
    lines = export(Dataset(path), "roverd", tmp_path / "out").report.lines
    kept = "not read by roverd: "
    told = {line.lost.removeprefix(kept): line.number for line in lines if line.lost.startswith(kept)}
    assert told == {"of another form than the first one": 2, "not later than the one before": 1}
    assert_comes_back(tmp_path / "in", tmp_path / "out", tmp_path / "back")


def test_few_of_many_sequences_are_open_at_a_time(tmp_path, monkeypatch):
    """Each takes several descriptors, of which a process has 1,024; sequences may take turns."""
    names = [f"s{number}" for number in range(9)]
    with DatasetWriter(tmp_path / "in", "odd") as writer:
        for frame in range(3):
            for name in names:
                stamp = START + frame * STEP
                members = [("camera.jpeg", [JPEG[frame]]), ("lidar.pcd", [cloud(frame)])]
                writer.write(Sample(name, frame, stamp, members, frame_row={"lidar_points_timestamp": stamp}))
        writer.finish({})
    export(Dataset(tmp_path / "in/odd.zip"), "roverd", tmp_path / "out")
    monkeypatch.setattr(restoring, "OPEN", 2)
    before, most = len(os.listdir("/proc/self/fd")), 0

    def watch(*_):
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")) - before)

    restore(tmp_path / "out", "roverd", tmp_path / "back", progress=watch)
    assert most < 2 * len(names)
    for path in (tmp_path / "in").iterdir():
        assert (tmp_path / "back" / path.name).read_bytes() == path.read_bytes(), path.name
