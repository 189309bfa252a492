# SPDX-License-Identifier: Apache-2.0
"""Datasets of which a part has no home in roverd, or does not come out as it went in: said in the report."""

import io
import itertools
import json
import lzma

import numpy as np
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.writer import DatasetWriter, NewSample
from edgefirst_ros.export import export
from edgefirst_ros.sensors.cloud import make_pcd_header

START, STEP = 10**18, 10**8


def picture(value, form="JPEG", mode="RGB"):
    file = io.BytesIO()
    Image.new(mode, (16, 16), value).save(file, form)
    return file.getvalue()


JPEG = [picture((n * 40, 90, 10)) for n in range(5)]


def write(folder, *samples, sequence="host"):
    """A dataset of samples: their further columns of annotations, beside a picture."""
    with DatasetWriter(folder, "odd") as writer:
        for n, annotations in enumerate(samples):
            members = [("camera.jpeg", [JPEG[n]])]
            writer.write(NewSample(sequence, n, START + n * STEP, members, annotations=annotations))
        writer.finish({})
    return folder / "odd.zip"


def exported(path, out):
    """The report of an export, by what was exported."""
    return {line.what: line for line in export(Dataset(path), "roverd", out).report.lines}


def test_masks_of_classes_that_are_no_8_bit_png_stay_in_the_table(tmp_path):
    unfit = [picture(300, "PNG", "I;16"), picture(9, "PNG", "P"), b"\x89PNG broken"]
    masks = [picture(7, "PNG", "L"), *unfit, picture(9, "PNG", "L")]
    path = write(tmp_path / "in", *([{"mask": mask}] for mask in masks))
    export(Dataset(path), "roverd", tmp_path / "out")
    lines = json.loads((tmp_path / "out/export-report.json").read_text())["lines"]
    told = {line["where"]: (line["number"], line["lost"]) for line in lines if line["what"] == "mask of classes"}
    assert told == {
        "_camera/segment": (2, ""),
        "": (3, "more than one size, or no 8-bit PNG"),
    }
    camera = tmp_path / "out/host/_camera"
    assert np.fromfile(camera / "ts", "<f8").tolist() == [START / 1e9, (START + 4 * STEP) / 1e9]
    ends = np.fromfile(camera / "segment_i", "<u8")
    data = (camera / "segment").read_bytes()
    assert [lzma.decompress(data[a:b]) for a, b in itertools.pairwise(ends)] == [b"\7" * 256, b"\t" * 256]


def cloud(value, field="reflect"):
    record = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), (field, "u1")])
    points = np.zeros(6, record)
    points["x"], points[field] = value, 7
    return make_pcd_header(record, 3, 2) + points.tobytes()


def write_clouds(folder, *clouds):
    """A dataset of clouds as (offset of the stamp in steps, PCD file), each of a sample of its own."""
    with DatasetWriter(folder, "odd") as writer:
        for n, (at, pcd) in enumerate(clouds):
            members = [("camera.jpeg", [JPEG[n]]), ("lidar.pcd", [pcd])]
            row = {"lidar_points_timestamp": START + at * STEP}
            writer.write(NewSample("host", n, START + n * STEP, members, frame_row=row))
        writer.finish({})
    return folder / "odd.zip"


@pytest.mark.parametrize("name", ["extrinsics.json", "meta.json", "length"])
def test_clouds_with_a_field_named_as_a_file_beside_the_channels_are_dropped(tmp_path, name):
    path = write_clouds(tmp_path / "in", (0, cloud(1, name)), (1, cloud(2, name)))
    told = exported(path, tmp_path / "out")["lidar.pcd"]
    assert (told.number, told.lost) == (2, "roverd cannot hold its form")


def test_a_message_of_several_samples_is_dropped_for_one_reason(tmp_path):
    other = cloud(2, "other")
    path = write_clouds(tmp_path / "in", (0, cloud(1)), (1, other), (1, other), (0, cloud(3, "third")))
    lines = export(Dataset(path), "roverd", tmp_path / "out").report.lines
    told = {line.lost: line.number for line in lines if line.what == "lidar.pcd" and not line.where}
    assert told == {"of another form than the first one": 1, "not later than the one before": 1}
