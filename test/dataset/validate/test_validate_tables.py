# SPDX-License-Identifier: Apache-2.0
"""Every rule about annotations finds the defect planted for it, and nothing else is said about it."""

import io
import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path

import handmade_dataset as made
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from spoilers import (
    all_boxes,
    all_rows,
    both,
    cases,
    column,
    column_type,
    further,
    metadata,
    pixels,
    plant,
    second_sequence,
)

from edgefirst_ros.dataset.validate import validate

FLU = metadata("box3d_axes", "FLU")
CATEGORIES = '{"car": {"id": %d}, "person": {"id": %d}}'


def class_mask(*values):
    """A semantic mask of the frame without objects."""
    pixels = np.zeros((24, 32), np.uint8)
    pixels[2, : len(values)] = values
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return column("mask", out.getvalue(), 4)


def without_axes(parts):
    """Boxes in space of a version that did not state their axes."""
    further("box3d", pa.list_(pa.float32(), 6), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))(parts)


def indices(*numbers):
    """The label_index of car and person."""

    def spoil(parts):
        for row in parts.annotations[:3]:
            row["label_index"] = numbers[row["label"] != "car"]

    return spoil


SPOILT = {
    "TAB001": [
        (lambda p: p.annotation_metadata.pop("schema_version"), {"TAB001", "TAB002"}),
        (
            both(column_type("box2d", pa.list_(pa.float32(), 6)), *(column("box2d", (0.5,) * 6, n) for n in range(3))),
            {"TAB001"},
        ),
    ],
    "TAB002": [
        (column_type("label", pa.string()), {"TAB002"}),
        (column_type("frame", pa.int64()), {"TAB002"}),
        (
            both(
                column_type("timing", pa.struct([("load", pa.int64())])), *(column("timing", None, n) for n in range(3))
            ),
            {"TAB002", "TAB006"},
        ),
        (column_type("box2d", pa.list_(pa.float64())), {"TAB002"}),
        (
            both(
                lambda p: setattr(p, "annotation_schema", p.annotation_schema.append(pa.field("ignore", pa.bool_()))),
                column("ignore", True),
            ),
            {"TAB002"},
        ),
    ],
    "TAB003": [(column("name", None), {"TAB003", "REF001"})],
    "TAB004": [(metadata("schema_version", "2031.01"), {"TAB004"})],
    "TAB005": [
        (metadata("box2d_format", "yxyx"), {"TAB005"}),
        (metadata("category_metadata", "[]"), {"TAB005"}),
        (metadata("category_metadata", '{"car": 3}'), {"TAB005"}),
        (metadata("category_metadata", '{"car": {"id": "3"}}'), {"TAB005"}),
        (metadata("category_metadata", '{"car": {"synonyms": "auto"}}'), {"TAB005"}),
        (metadata("labels", "person, car"), {"TAB005"}),
    ],
    "TAB006": [(lambda p: [row.update(group=None) for row in p.annotations], {"TAB006"})],
    "TAB007": [
        (column("polygon", [[0.0, 0.0, 1.0, 0.0, 1.0]]), {"TAB007"}),
        (column("polygon", [[0.0, 0.0, 1.0, 0.0]]), {"TAB007"}),
        (column("polygon", [[0.0, 0.0, 1.0, 0.0, math.inf, 1.0]]), {"TAB007"}),
    ],
    "TAB008": [(column("box2d_score", 1.5), {"TAB008"}), (column("box2d_score", math.nan), {"TAB008"})],
    "TAB009": [
        (column("box2d", (math.nan, 0, 0, 0)), {"TAB009"}),
        (column("box2d", (None, 0, 0, 0)), {"TAB009"}),
        (both(column_type("box2d", pa.list_(pa.float32())), column("box2d", (1, 2, 3))), {"TAB002", "TAB009"}),
    ],
    "TAB010": [(column("timing", {"load": -1, "preprocess": None, "inference": 2, "decode": 3}), {"TAB010"})],
    "TAB011": [(column("group", "val"), {"TAB011"})],
    "TAB012": [
        (both(column("label_index", 2), metadata("labels", '["person", "car", "car"]')), {"TAB012"}),
        (column("label", "bus", 2), {"TAB012"}),
    ],
    "TAB013": [
        (column("mask", made.mask_png()[:-3]), {"TAB013"}),
        (column("mask", b""), {"TAB013"}),
        (column("mask", made.mask_png("RGB")), {"TAB013", "TAB014"}),
    ],
    "TAB014": [
        (column("mask", made.mask_png("L")), {"TAB014"}),
        (metadata("mask_interpretation", "logits"), {"TAB014"}),
    ],
    "TAB015": [(lambda p: p.annotations.append(p.annotations[-1]), {"TAB015"})],
    "TAB016": [(lambda p: [p.annotations[n].update(group=None) for n in (3,)], {"TAB016"})],
    "TAB017": [
        (both(class_mask(0, 1, 7), metadata("labels", '["ground", "car", "sky"]')), {"TAB017"}),
        (both(class_mask(0, 3), metadata("labels", '["ground", "car", "sky"]')), {"TAB017"}),
        (both(class_mask(1), metadata("labels", "[]")), {"TAB017"}),
    ],
    "TAB018": [(column("object_id", "car 7"), {"TAB018"})],
    "TAB019": [(column("polygon", [[0.0, 0.0, 1.001, 0.0, 1.0, 1.0]]), {"TAB019"})],
    "TAB020": [
        (column("box2d", (0.5, 0.5, -0.25, 0.125)), {"TAB020"}),
        (column("box2d", (16.0, 0.5, 0.25, 0.125)), {"TAB020"}),
        (both(all_boxes((8.0, 6.0, 4.0, 12.0)), pixels("xyxy")), {"TAB020"}),
        (both(all_boxes((30.0, 6.0, 5.0, 2.0)), pixels("ltwh")), {"TAB020"}),
        (both(all_boxes((6.0, 23.0, 2.0, 4.0)), pixels("ltwh")), {"TAB020"}),
        (both(further("box3d", pa.list_(pa.float32(), 6), (1.0, 2.0, 3.0, 4.0, -5.0, 6.0)), FLU), {"TAB020"}),
    ],
    "TAB021": [
        (further("category_frequency", made.CATEGORY, "x"), {"TAB021"}),
        (further("degradation", pa.large_string(), "bad"), {"TAB021"}),
    ],
    "TAB022": [
        (all_rows("size", (0, 24)), {"TAB022", "REF007"}),
        (all_rows("location", (91.0, 0.0)), {"TAB022", "REF008"}),
        (further("pose", pa.list_(pa.float32(), 3), (0.0, math.nan, 0.0)), {"TAB022"}),
    ],
    "TAB023": [
        (further("neg_label_indices", pa.large_list(pa.uint32()), [2], 3), {"TAB023"}),
        (further("not_exhaustive_label_indices", pa.large_list(pa.uint32()), [1, 2]), {"TAB023"}),
    ],
    "TAB024": [(further("neg_label_indices", pa.large_list(pa.uint32()), [0]), {"TAB024"})],
    "TAB026": [
        (metadata("category_metadata", CATEGORIES % (1, 2)), {"TAB026"}),  # person has 0 in the rows
        (metadata("category_metadata", '{"car": {"id": 1}}'), {"TAB026"}),  # 0 has no name there
        (metadata("category_metadata", '{"bus": {"id": 1}, "person": {"id": 0}}'), {"TAB026"}),
        (metadata("category_metadata", '{"car": {"id": 1}, "auto": {"id": 1}, "person": {"id": 0}}'), {"TAB026"}),
    ],
    "TAB027": [(without_axes, {"TAB027"})],
    "TAB025": [(second_sequence, {"TAB025", "IMG003", "REF006", "CAL001"})],
}


@pytest.mark.parametrize(("code", "spoil", "expected"), cases(SPOILT))
def test_planted_defect(tmp_path, code, spoil, expected):
    assert code in expected
    assert plant(tmp_path, spoil) == expected


@pytest.mark.parametrize(
    "spoil",
    [
        both(all_boxes((8.0, 6.0, 32.0, 24.0)), pixels("xyxy")),
        both(all_boxes((24.0, 12.0, 16.0, 12.0)), pixels("ltwh")),
        both(
            all_boxes((900.0, 600.0, 40.0, 30.0)), pixels("ltwh"), all_rows("size", None)
        ),  # of a picture of unknown size
        all_boxes((1.0, 0.0, 0.0, 2.0)),
        both(further("box3d", pa.list_(pa.float32(), 6), (-70.0, 2.0, 3.0, 4.0, 0.0, 6.0)), FLU),
        column("polygon", [[-0.00005, 0.0, 1.00005, 0.0, 1.0, 1.0]]),
        further("degradation", pa.large_string(), "none"),
        both(class_mask(0, 1, 2, 255), metadata("labels", '["ground", "car", "sky"]')),
        both(class_mask(0, 255), lambda parts: parts.annotation_metadata.pop("labels")),
        metadata("labels", '["car", "person"]'),
        both(indices(1203, 90), metadata("labels", '["person", "car", "dog", "zucchini"]')),
        both(
            indices(1203, 90),
            metadata("category_metadata", '{"car": {"id": 1203}, "person": {"id": 90}, "dog": {"id": 3}, "x": {}}'),
        ),
        metadata("category_metadata", '{"bus": {"synset": "bus.n.01"}}'),
        both(
            column_type("timing", pa.struct([*made.ANNOTATIONS.field("timing").type, pa.field("queue", pa.int64())])),
            column("timing", {"load": 1, "queue": 7}),
        ),
        all_rows("box2d_score", 1.0),
        further("neg_label_indices", pa.large_list(pa.uint32()), [1], 3),
        both(
            further("not_exhaustive_label_indices", pa.large_list(pa.uint32()), [90]),
            metadata(
                "category_metadata",
                '{"bus": {"id": 90, "synset": null, "synonyms": ["coach"]}, "car": {"id": 1}, "person": {"id": 0}}',
            ),
        ),
    ],
)
def test_values_at_the_limits_are_good(tmp_path, spoil):
    assert plant(tmp_path, spoil) == set()


def test_a_table_without_names_has_no_rows_of_samples(tmp_path):
    def spoil(parts):
        parts.annotation_schema = parts.annotation_schema.remove(parts.annotation_schema.get_field_index("name"))

    assert "TAB003" in plant(tmp_path, spoil)


def test_labels_that_are_no_json_name_no_index(tmp_path):
    """Neither of both: an index that no row has is unknown then."""
    spoil = both(
        further("neg_label_indices", pa.large_list(pa.uint32()), [9], 3),
        metadata("labels", "[" * 100_000),
        metadata("category_metadata", "{"),
    )
    assert plant(tmp_path, spoil) == {"TAB005", "TAB023"}


@pytest.mark.parametrize("name", ["neg_label_indices", "not_exhaustive_label_indices"])
def test_an_index_of_any_row_is_known(tmp_path, name):
    def spoil(parts):
        parts.annotation_metadata.pop("labels", None)
        parts.annotation_metadata.pop("category_metadata", None)
        parts.annotations[-1]["label_index"] = 7
        further(name, pa.large_list(pa.uint32()), [index])(parts)

    for index, known in ((7, True), (6, False)):
        assert ("TAB023" not in plant(tmp_path / str(index), spoil)) == known


def test_broken_rings_of_2025_10_are_found_between_the_others(tmp_path):
    """Of one column with NaN between rings; each ring is counted for itself."""
    nan, ring = math.nan, [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    names = ("name", "frame", "label", "group", "mask", "box2d", "size")
    found = [field for field in made.ANNOTATIONS if field.name in names]
    parts = made.good()
    parts.annotation_schema = pa.schema(
        [field.with_type(pa.large_list(pa.float32())) if field.name == "mask" else field for field in found]
    )
    parts.annotation_metadata = {}
    masks = [[*ring, nan, *ring], [*ring, nan, *ring[:5], nan, nan, *ring[:4]], [nan, *ring, nan]]
    for row, mask in zip(parts.annotations, masks, strict=False):
        row["mask"] = mask
    report = validate(made.write(tmp_path, parts), strict=True)
    assert report.counts == {"TAB007": 2}
    assert [finding.message for finding in report.findings] == [
        f"a ring of {size} values, or not all of them finite" for size in (5, 4)
    ]


def test_labels_as_the_vendors_client_writes_them_are_valid(tmp_path):
    """Four labels, and indices with gaps that are ids of COCO."""
    coco = {
        "images": [{"id": 1, "width": 32, "height": 24, "file_name": "a.jpg"}],
        "categories": [{"id": n, "name": f"label {n}"} for n in (1, 3, 90, 1203)],
        "annotations": [
            {"id": n, "image_id": 1, "category_id": n, "bbox": [4, 4, 8, 8], "area": 64, "iscrowd": 0}
            for n in (1, 3, 90, 1203)
        ],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    client = Path(sys.prefix) / "bin" / "edgefirst-client"
    done = subprocess.run([client, "coco-to-arrow", tmp_path / "coco.json", "-o", tmp_path / "data.arrow"], check=False)
    assert done.returncode == 0
    Image.new("RGB", (32, 24)).save(tmp_path / "a.jpg")
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.write(tmp_path / "a.jpg", "a.jpg")
    table = pa.ipc.open_file(tmp_path / "data.arrow").read_all()
    assert json.loads(table.schema.metadata[b"labels"]) == [f"label {n}" for n in (1, 3, 90, 1203)]
    assert sorted(table["label_index"].to_pylist()) == [1, 3, 90, 1203]
    for path in (tmp_path / "data.zip", made.write(tmp_path / "ours", vendors_labels())):
        counts = validate(path).counts
        assert not {"TAB012", "TAB017", "TAB023", "TAB026"} & set(counts), counts
        assert validate(path).ok


def vendors_labels():
    """The same in a dataset with a table of frames."""
    parts = made.good()
    indices(1203, 90)(parts)
    parts.annotation_metadata["labels"] = '["label 1", "label 3", "person", "car"]'
    return parts


@pytest.mark.parametrize("box", [[], [None] * 4], ids=str)
def test_lists_of_nothing_at_all_are_boxes_of_another_type(tmp_path, box):
    """The type that pyarrow gives a column without one number; each row that has such a box is named."""
    parts = made.good()
    boxed = [row for row in parts.annotations if row.get("box2d") is not None]
    for row in boxed:
        row["box2d"] = box
    column_type("box2d", pa.list_(pa.null()))(parts)
    found = validate(made.write(tmp_path, parts)).findings
    assert [(one.rule, one.severity) for one in found] == [("TAB002", "warning"), *[("TAB009", "error")] * len(boxed)]


@pytest.mark.parametrize("location", [[], [45.5]], ids=str)
def test_a_position_without_all_its_numbers_is_not_that_of_the_frames(tmp_path, location):
    parts = made.good()
    number = sum(row["frame"] == 3 for row in parts.annotations)
    for row in parts.annotations:
        row["location"] = location if row["frame"] == 3 else None
    column_type("location", pa.list_(pa.float32()))(parts)
    found = validate(made.write(tmp_path, parts)).findings
    said = [one.message for one in found if one.rule == "REF008"]
    assert said == [f"location is {location}, in the frames table (45.5, -73.6)"] * number
    assert {one.rule for one in found} == {"TAB002", "TAB022", "REF008"}


@pytest.mark.parametrize(
    ("shape", "empty"),
    [
        ({"mask": made.mask_png("L")}, False),
        ({"polygon": [[0.1, 0.1, 0.5, 0.1, 0.5, 0.5]]}, False),
        ({}, True),
    ],
    ids=["mask", "polygon", "nothing"],
)
def test_a_row_of_a_mask_or_an_outline_alone_says_something(tmp_path, shape, empty):
    parts = made.good()
    alone = dict.fromkeys(("label", "label_index", "object_id", "box2d", "box2d_score", "polygon", "mask"))
    parts.annotations.append({**parts.annotations[0], **alone, **shape})
    found = validate(made.write(tmp_path, parts)).findings
    assert ("TAB015" in {one.rule for one in found}) is empty
