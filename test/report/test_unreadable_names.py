# SPDX-License-Identifier: Apache-2.0
"""Reports of datasets that are damaged, or that other tools made: a page in any case, which says what is missing."""

import io
import zlib

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.report.facts import groups
from edgefirst_ros.report.figures import delays, intervals, rates
from edgefirst_ros.report.labels import boxes_of, labels
from edgefirst_ros.report.look import speeds
from edgefirst_ros.report.places import refuse
from edgefirst_ros.report.run import report
from edgefirst_ros.report.subject import Subject, TopicTimes


def reported(folder, change):
    """Facts and page of the dataset made by hand, with what `change` did to its parts."""
    parts = made.good()
    change(parts)
    done = report([made.write(folder, parts)], folder / "page.html")
    return done.facts[0], done.pages[0].read_text()


def notes(facts):
    return {what: why for what, _, why in (note.partition(": ") for note in facts["notes"])}


def test_members_that_cannot_be_read_are_named(tmp_path):
    def change(parts):
        for name in parts.members:
            if "_004" in name or not name.endswith("jpeg"):
                parts.members[name] = b"x"

    facts, page = reported(tmp_path, change)
    found = notes(facts)
    assert set(found) == {"picture", "radar cube", "radar points", "lidar points"}
    for what, kind in (
        ("picture", "_004.camera.jpeg"),
        ("radar cube", "_003.radar.png"),
        ("lidar points", "_003.lidar.pcd"),
    ):
        assert kind in found[what]
        assert f"{tmp_path}/data.zip" in found[what]
    assert " object at 0x" not in page  # an address would differ with every run
    assert (facts["samples"], facts["pictures"]["looked_at"], facts["radar"]["cubes_looked_at"]) == (3, 2, 0)


def test_masks_that_cannot_be_read_are_named(tmp_path):
    def change(parts):
        parts.annotations[1]["mask"] = b"no picture"

    facts, _ = reported(tmp_path, change)
    assert notes(facts) == {"mask": f"frame 3 of '{made.SEQUENCE}': a mask cannot be read: cannot identify image file"}


def test_pictures_of_too_many_pixels_are_not_unpacked(tmp_path):
    """PNG 11.2.1: width and height lie from byte 16 on."""

    def change(parts):
        file = io.BytesIO()
        Image.new("RGB", (8, 8)).save(file, "PNG")
        name = made.name_of(4, "camera.jpeg")
        del parts.members[name]
        data = file.getvalue()
        head = b"IHDR" + (9000).to_bytes(4, "big") * 2 + data[24:29]
        parts.members[name.replace("jpeg", "png")] = data[:12] + head + zlib.crc32(head).to_bytes(4, "big") + data[33:]

    facts, _ = reported(tmp_path, change)
    assert "9000 x 9000 pixels are too many" in notes(facts)["picture"]


def test_cubes_of_other_ranges_do_not_join_the_picture(tmp_path):
    def change(parts):
        values = np.zeros((2 * 6, 2 * 6), np.uint16)
        said = {"layout": "[6, 1, 5, 2]", "shape": "[2, 6, 2, 6]", "scales": "[1, 1, 1, 1]", "is_complex": "true"}
        info = made.PngImagePlugin.PngInfo()
        for key, value in {**said, "timestamp": str(made.stamp_of(4))}.items():
            info.add_text(f"edgefirst:{key}", value)
        file = io.BytesIO()
        Image.fromarray(values).save(file, "PNG", pnginfo=info)
        parts.members[made.name_of(4, "radar.png")] = file.getvalue()

    facts, _ = reported(tmp_path, change)
    assert notes(facts) == {"radar cube": "6 range bins, those before have 5"}
    assert facts["radar"]["cubes_looked_at"] == 1


def test_points_without_a_place_are_told(tmp_path):
    def change(parts):
        parts.members[made.name_of(3, "radar.pcd")] = made.cloud(3, fields="a b c reflect")
        parts.members[made.name_of(4, "lidar.pcd")] = made.cloud(4, 3, 2, fields="a b c reflect")

    facts, _ = reported(tmp_path, change)
    assert set(notes(facts)) == {"radar points", "lidar points"}
    assert (facts["radar"]["targets"], facts["radar"]["lidar_clouds_looked_at"]) == (0, 2)


@pytest.mark.parametrize("column", ["label", "group"])
def test_annotations_without_a_column_are_taken_as_they_are(tmp_path, column):
    path = made.write(tmp_path, made.good())
    arrow = path.with_suffix(".arrow")
    table = pl.read_ipc(arrow.read_bytes())
    known = pa.ipc.open_file(arrow.read_bytes()).schema.metadata
    table = table.drop(column).to_arrow(compat_level=pl.CompatLevel.oldest())
    with pa.ipc.new_file(arrow, table.schema.with_metadata(known)) as file:
        file.write_table(table)
    subject = Subject("data", path, Dataset(path))
    assert groups(subject) == ({} if column == "group" else {"train": 3})
    assert labels(subject)["labels"] == ({} if column == "label" else {"car": 2, "person": 1})


# ---- parts ---------------------------------------------------------------------------------------
def boxes(values, kind):
    return pl.DataFrame({"box2d": pl.Series(values, dtype=kind)})


@pytest.mark.parametrize(
    ("form", "given"),
    [("cxcywh", [0.5, 0.5, 0.25, 0.5]), ("xyxy", [0.375, 0.25, 0.625, 0.75]), ("ltwh", [0.375, 0.25, 0.25, 0.5])],
)
def test_boxes_of_each_layout_are_centre_and_size(form, given):
    rows = boxes([given, None, [0.0, float("nan"), 1.0, 1.0]], pl.Array(pl.Float32, 4))
    assert boxes_of(rows, {"box2d_format": form}).tolist() == [[0.5, 0.5, 0.25, 0.5]]


def test_what_is_no_box_in_parts_of_the_picture_is_left_out():
    lists = boxes([[0.5, 0.5, 0.25, 0.5], [0.5, 0.5], None], pl.List(pl.Float32))
    assert boxes_of(lists, {}).tolist() == [[0.5, 0.5, 0.25, 0.5]]
    assert len(boxes_of(lists, {"box2d_normalized": "false"})) == 0
    assert len(boxes_of(boxes(["0.5"], pl.String), {})) == 0
    assert len(boxes_of(lists.drop("box2d"), {})) == 0


@pytest.mark.parametrize("name", ["speed", "doppler", "velocity", "vx"])
def test_the_speed_of_a_target_is_known_by_its_name(name):
    points = np.zeros(2, [("x", "f4"), (name, "f4")])
    points[name] = 1.5, -2
    assert speeds(points).tolist() == [1.5, -2]
    assert np.isnan(speeds(points[["x"]])).all()


def topics(**times):
    return {
        name: TopicTimes("x/X", np.array(given, float), np.full(len(given), np.nan)) for name, given in times.items()
    }


@pytest.mark.parametrize("recorded", [{}, topics(a=[1, 2]), topics(a=[1, 1, 1]), topics(a=[1, 1, 1, 5])])
def test_topics_of_which_no_rate_is_known_have_no_figure(tmp_path, recorded):
    path = made.write(tmp_path, made.good())
    subject = Subject("drive", path, Dataset(path), recorded)
    assert rates(subject) is None
    assert delays(subject) is None


def test_a_single_sample_has_no_intervals(tmp_path):
    parts = made.good()
    del parts.frames[1:]
    path = made.write(tmp_path, parts)
    assert intervals(Subject("data", path, Dataset(path))) is None


def test_a_page_is_not_put_where_it_cannot_be(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match="folder: is not a regular file; -o names another place"):
        refuse(tmp_path / "folder", overwrite=True)
    with pytest.raises(DatasetError, match="file: is not a folder; -o names another place"):
        refuse(tmp_path / "file/page.html", overwrite=False)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(DatasetError, match="cannot be written to: Permission denied"):
        refuse(tmp_path / "page.html", overwrite=False)
