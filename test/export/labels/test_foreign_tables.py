# SPDX-License-Identifier: Apache-2.0
"""Labels of datasets that other tools made: boxes in pixels, masks of any depth, sizes that no table states."""

import io
import json
import zipfile

import handmade_dataset as made
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.export import export

WIDTH, HEIGHT = made.SIZE
WITHOUT_PLACE = "annotations without a box, polygon or mask in the picture"


def dataset_of(folder, change):
    """Open the dataset made by hand, with what `change` did to its parts."""
    parts = made.good()
    change(parts)
    return Dataset(made.write(folder, parts))


def instances(dataset, out, **options):
    done = export(dataset, "coco", out, **options)
    return json.loads((done.out / "instances.json").read_text()), {line.what: line for line in done.report.lines}


def png(values):
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()


def only(parts, **columns):
    """Leave one annotation, with these columns in place of its shapes."""
    parts.annotations = [parts.annotations[0] | {"box2d": None, "polygon": None, "mask": None} | columns]


def test_boxes_in_pixels_are_those_of_coco(tmp_path):
    def change(parts):
        parts.annotation_metadata |= {"box2d_format": "ltwh", "box2d_normalized": "false"}
        only(parts, box2d=(4.0, 6.0, 8.0, 3.0))

    found, _ = instances(dataset_of(tmp_path, change), tmp_path / "coco")
    assert [(one["bbox"], one["area"]) for one in found["annotations"]] == [([4.0, 6.0, 8.0, 3.0], 24.0)]


def test_boxes_in_pixels_of_pictures_of_unknown_size_are_refused(tmp_path):
    def change(parts):
        parts.annotation_metadata["box2d_normalized"] = "false"
        only(parts, box2d=(4.0, 6.0, 8.0, 3.0), size=None)

    with pytest.raises(DatasetError, match="box2d is in pixels, and some rows have no picture size"):
        export(dataset_of(tmp_path, change), "coco", tmp_path / "coco")
    assert not (tmp_path / "coco").exists()


@pytest.mark.parametrize(
    ("mask", "level"),
    [(np.uint8, 127), (np.uint16, 32767)],
)
def test_of_masks_of_levels_the_upper_half_is_the_object(tmp_path, mask, level):
    values = np.full((HEIGHT, WIDTH), level, mask)
    values[2:6, 10:20] = level + 1
    found, _ = instances(dataset_of(tmp_path, lambda parts: only(parts, mask=png(values))), tmp_path / "coco")
    (one,) = found["annotations"]
    assert one["area"] == 40
    runs = [10 * HEIGHT + 2, *[4, HEIGHT - 4] * 9, 4, 13 * HEIGHT - 6]
    assert one["segmentation"] == {"size": [HEIGHT, WIDTH], "counts": runs}


def test_masks_of_another_size_are_left_out_and_counted(tmp_path):
    def change(parts):
        only(parts, mask=png(np.full((4, 4), 255, np.uint8)), box2d=(0.5, 0.5, 0.25, 0.125))

    found, lines = instances(dataset_of(tmp_path, change), tmp_path / "coco")
    assert [one["segmentation"] for one in found["annotations"]] == [[]]
    assert lines["masks that cannot be read, or of another size than the picture"].number == 1


def test_the_box_of_an_outline_is_around_it(tmp_path):
    ring = [0.25, 0.5, 0.75, 0.5, 0.75, 0.75]
    found, _ = instances(dataset_of(tmp_path, lambda parts: only(parts, polygon=[ring])), tmp_path / "coco")
    (one,) = found["annotations"]
    assert one["bbox"] == [8, 12, 16, 6]
    assert one["area"] == 48


@pytest.mark.parametrize(
    ("form", "options"),
    [("coco", {}), ("yolo", {"single_group": True}), ("yolo", {"segment": True, "single_group": True})],
)
def test_annotations_without_a_place_are_counted(tmp_path, form, options):
    def change(parts):
        parts.annotations = parts.annotations[:1]
        empty = {"box2d": None, "polygon": None, "mask": png(np.zeros((HEIGHT, WIDTH), np.uint8))}
        parts.annotations.append(parts.annotations[0] | empty)

    done = export(dataset_of(tmp_path, change), form, tmp_path / form, **options)
    assert {line.what: line.number for line in done.report.lines}[WITHOUT_PLACE] == 1


@pytest.mark.parametrize(("form", "options"), [("coco", {}), ("yolo", {"single_group": True})])
def test_members_of_other_sensors_are_told_with_their_number(tmp_path, form, options):
    """By their columns; the points of the radar are in one sample, the others in more."""
    kinds = {"radar.cube": ".radar.png", "radar.targets": ".radar.pcd", "lidar.points": ".lidar.pcd"}

    def change(parts):
        for name in [name for name in parts.members if name.endswith(".radar.pcd")][1:]:
            del parts.members[name]

    dataset = dataset_of(tmp_path, change)
    done = export(dataset, form, tmp_path / form, **options)
    with zipfile.ZipFile(dataset.container.path) as archive:
        there = {kind: sum(name.endswith(end) for name in archive.namelist()) for kind, end in kinds.items()}
    assert there["lidar.points"] > there["radar.targets"] == 1
    told = {line.what: (line.where, line.lost, line.number) for line in done.report.lines if line.what in kinds}
    assert told == {kind: ("", f"has no place in {form.upper()}", number) for kind, number in there.items()}


def test_annotations_without_a_label_are_counted(tmp_path):
    def change(parts):
        parts.annotations = [parts.annotations[0], parts.annotations[1] | {"label": None, "label_index": None}]

    found, lines = instances(dataset_of(tmp_path, change), tmp_path / "coco")
    assert len(found["annotations"]) == 1
    assert lines["annotations without a label"].number == 1


def without_sizes(parts):
    """No table states a size, and of the second sample there is no picture."""
    for row in (*parts.annotations, *parts.frames):
        row["size"] = None
    del parts.members[made.name_of(4, "camera.jpeg")]


def test_without_sizes_in_the_tables_the_picture_is_asked(tmp_path):
    def change(parts):
        without_sizes(parts)
        file = io.BytesIO()
        Image.new("RGB", (48, 16)).save(file, "JPEG")
        parts.members[made.name_of(7, "camera.jpeg")] = file.getvalue()

    found, lines = instances(dataset_of(tmp_path, change), tmp_path / "coco", unlooked=True)
    assert [(one["frame"], one["width"], one["height"]) for one in found["images"]] == [(3, 32, 24), (7, 48, 16)]
    assert lines["samples without a picture"].number == 1


def test_a_picture_that_cannot_be_read_is_named(tmp_path):
    def change(parts):
        without_sizes(parts)
        parts.members[made.name_of(7, "camera.jpeg")] = b"no picture"

    with pytest.raises(
        DatasetError, match=r"data\.zip: '.*_007\.camera\.jpeg': not a readable picture: cannot identify"
    ):
        export(dataset_of(tmp_path, change), "coco", tmp_path / "coco", unlooked=True)


@pytest.mark.parametrize(("group", "why"), [("a/b", "has a slash"), ("..", "")])
def test_a_group_that_cannot_name_a_file_is_refused(tmp_path, group, why):
    def change(parts):
        for row in parts.annotations:
            row["group"] = group

    with pytest.raises(DatasetError, match=rf"group '{group}' cannot name a file: .*{why}"):
        export(dataset_of(tmp_path, change), "coco", tmp_path / "coco", by_group=True)
    assert not (tmp_path / "coco").exists()


def test_values_that_cannot_be_read_are_counted(tmp_path):
    """A box of three numbers of another tool."""

    def change(parts):
        schema = parts.annotation_schema
        place = schema.get_field_index("box2d")
        parts.annotation_schema = schema.set(place, pa.field("box2d", pa.list_(pa.float32())))
        only(parts, box2d=[0.5, 0.5, 0.25])
        parts.annotations.append(parts.annotations[0] | {"box2d": [0.5, 0.5, 0.25, 0.125]})

    found, lines = instances(dataset_of(tmp_path, change), tmp_path / "coco")
    assert [one["bbox"] for one in found["annotations"]] == [[12, 10.5, 8, 3]]
    (counted,) = (line for line in lines.values() if line.lost == "cannot be read")
    assert counted.number == 1


@pytest.mark.parametrize("kind", [pa.timestamp("ns", "nowhere"), pa.month_day_nano_interval()], ids=str)
@pytest.mark.parametrize("form", ["coco", "yolo"])
def test_a_column_that_polars_has_no_type_for_is_an_error_by_its_table(tmp_path, form, kind):
    def change(parts):
        parts.annotation_schema = parts.annotation_schema.append(pa.field("own", kind))

    with pytest.raises(DatasetError, match=r"data\.arrow: cannot be read as a table: "):
        export(dataset_of(tmp_path, change), form, tmp_path / form)
