# SPDX-License-Identifier: Apache-2.0
"""Datasets whose annotations are NAME.parquet or NAME.json: opened, validated and merged like those with NAME.arrow."""

import base64
import json
import warnings

import handmade_dataset as made
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handmade_dataset import FRAMES, POSITIONS, SEQUENCE, good, write

from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.reader import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import DatasetError


def sample_of(frame, rows, boxes):
    """A sample with its rows, written down as the schema document shows it."""
    first = rows[0]
    annotations = []
    for row in rows if "label" in first else ():
        rings = row["polygon"] and [
            [list(pair) for pair in zip(ring[::2], ring[1::2], strict=True)] for ring in row["polygon"]
        ]
        annotations.append(
            {
                **{key: row[key] for key in ("object_id", "label_index", "box2d_score", "timing")},
                "label_name": row["label"],
                "box2d": dict(zip(boxes, row["box2d"], strict=True)),
                "mask": base64.b64encode(row["mask"]).decode(),
                "polygon": rings,
            }
        )
    place = first["location"]
    return {
        "name": SEQUENCE,
        "image_name": f"{SEQUENCE}_{frame:03d}.camera.jpeg",
        "frame_number": frame,
        "timestamp": first["timestamp"],
        "width": first["size"][0],
        "height": first["size"][1],
        "group_name": first["group"],
        "sensors": place and {"gps": {"latitude": place[0], "longitude": place[1]}},
        "annotations": annotations,
    }


def document(parts):
    said = parts.annotation_metadata | {"labels": json.loads(parts.annotation_metadata["labels"])}
    boxes = ("cx", "cy", "w", "h")
    by_frame = {frame: [row for row in parts.annotations if row["frame"] == frame] for frame in FRAMES}
    return said | {"samples": [sample_of(frame, rows, boxes) for frame, rows in by_frame.items()]}


def as_json(folder, parts, change=lambda whole: whole):
    whole = change(document(parts))
    path = made.write(folder, parts)
    (folder / "data.arrow").unlink()
    (folder / "data.json").write_text(json.dumps(whole))
    return path


def as_parquet(folder, parts):
    path = made.write(folder, parts)
    with pa.ipc.open_file(folder / "data.arrow") as file:
        pq.write_table(file.read_all(), folder / "data.parquet")
    (folder / "data.arrow").unlink()
    return path


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_rows_and_metadata_are_those_of_the_arrow_file(tmp_path, form):
    wanted = Dataset(made.write(tmp_path / "arrow", made.good()))
    (as_json if form == "json" else as_parquet)(tmp_path, made.good())
    for spelling in (f"data.{form}", "data", "data.zip"):
        dataset = Dataset(tmp_path / spelling)
        assert dataset.metadata == wanted.metadata
        names = [name for name in wanted.annotations.columns if wanted.annotations[name].null_count() < 5]
        assert dataset.annotation_columns == names
        assert dataset.annotations.schema == wanted.annotations.schema
        assert dataset.annotations.equals(wanted.annotations)
    third = dataset.sample(SEQUENCE, 3)
    assert third.annotations["label"].to_list() == ["car", "person", "car"]
    assert [sample.frame for sample in dataset.samples(label="person", score=0.5)] == [3]
    assert [sample.frame for sample in dataset.samples(annotated=False)] == [4, 7]


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_nothing_is_wrong_with_them(tmp_path, form):
    report = validate((as_json if form == "json" else as_parquet)(tmp_path, made.good()), strict=True)
    assert report.findings == []
    assert report.checked["annotations"] == 5


def test_the_arrow_file_goes_before_the_others(tmp_path):
    made.write(tmp_path, made.good())
    (tmp_path / "data.json").write_text("no JSON")
    assert Dataset(tmp_path / "data.json").annotations.height == 5
    assert validate(tmp_path / "data.zip", strict=True).ok


def bare(whole):
    """As 2025.10: an array, polygons under `mask`."""
    for sample in whole["samples"]:
        for row in sample["annotations"]:
            row["mask"] = {"polygon": row.pop("polygon")}
            row["box2d"] = dict(zip("xywh", (0.375, 0.4375, 0.25, 0.125), strict=True))
            del row["box2d_score"], row["timing"]
    return whole["samples"]


def test_a_bare_array_is_2025_10(tmp_path):
    """Polygons are in `mask`, boxes are left, top, width, height, which the metadata say."""
    dataset = Dataset(as_json(tmp_path, made.good(), bare))
    assert dataset.metadata["schema_version"] == "2025.10"
    assert dataset.metadata["box2d_format"] == "ltwh"
    third = dataset.sample(SEQUENCE, 3).annotations
    assert third["mask"].to_list() == [[0, 0, 1, 0, 1, 1], None, None]
    assert third["box2d"].to_list() == [[0.375, 0.4375, 0.25, 0.125]] * 3
    assert third.schema["mask"] == pl.List(pl.Float32)
    assert not [finding for finding in validate(tmp_path / "data.zip").findings if finding.rule.startswith("TAB")]


def newest(whole):
    whole["schema_version"] = "2026.10"
    whole["samples"][0]["sensors"]["imu"] = {"yaw": 1, "pitch": 2, "roll": 3}
    return whole


def test_orders_are_those_of_the_version(tmp_path):
    """2026.10 has roll first."""
    assert Dataset(as_json(tmp_path, made.good(), newest)).annotations["pose"].to_list()[0] == [3, 2, 1]


def spoilt(**values):
    def change(whole):
        whole["samples"][0]["annotations"][1].update(values)
        return whole

    return change


BOX = dict.fromkeys(("cx", "cy", "w"), 0.5)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"polygon": [[[0, 0], [1, 1]]]}, "TAB007"),
        ({"box2d_score": 1.5}, "TAB008"),
        ({"box2d": BOX}, "TAB009"),
        ({"label_index": 1}, "TAB012"),
        ({"mask": "bm8gUE5H"}, "TAB013"),
        ({"depth": 1.5}, None),
        ({"iscrowd": 3, "label_name": 1}, "STR003"),
    ],
)
def test_rules_hold_for_json_too(tmp_path, values, rule):
    report = validate(as_json(tmp_path, made.good(), spoilt(**values)), strict=True)
    assert {finding.rule for finding in report.findings} - {"TAB017"} == ({rule} if rule else set())


def test_what_is_no_annotations_is_refused(tmp_path):
    as_json(tmp_path, made.good(), lambda _: {"note": 1})
    with pytest.raises(DatasetError, match=r"data\.json: .*without 'samples'"):
        Dataset(tmp_path / "data.zip")
    assert [finding.place for finding in validate(tmp_path / "data.zip").findings if finding.rule == "STR003"] == [
        "data.json"
    ]


def test_json_is_not_put_right(tmp_path):
    path = as_json(tmp_path, made.good())
    assert fix(path).kept is None
    as_json(tmp_path, made.good(), spoilt(box2d_score=7))
    before = (tmp_path / "data.json").read_bytes()
    with pytest.raises(DatasetError, match=r"data\.json: .*migrate"):
        fix(path)
    assert (tmp_path / "data.json").read_bytes() == before
    assert not (tmp_path / "data.arrow").exists()


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_they_are_merged(tmp_path, form):
    (as_json if form == "json" else as_parquet)(tmp_path, made.good())
    merged = merge([tmp_path / "data.zip"], tmp_path / "out", name="one")
    assert merged.exit_code == 0
    found, wanted = Dataset(merged.paths.container), Dataset(tmp_path / "data.zip")
    columns = ["frame", "object_id", "label_index", "polygon", "mask", "box2d", "box2d_score"]
    assert found.annotations.select(columns).rows() == wanted.annotations.select(columns).rows()


@pytest.mark.parametrize("whole", [bare, lambda w: {k: v for k, v in w.items() if k != "box2d_format"}])
def test_boxes_of_another_layout_are_not_merged(tmp_path, whole):
    """JSON that says nothing has left, top, width, height."""
    as_json(tmp_path, made.good(), whole)
    with pytest.raises(DatasetError, match="box2d_format is ltwh"):
        merge([tmp_path / "data.zip"], tmp_path / "out", name="one")


GOOD, ODD, SHORT = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0], [0.5] * 7, [0.0, 0.0, 1.0, 1.0]
INFINITE = [0.0, 0.0, float("inf"), 0.0, 1.0, 1.0]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
@pytest.mark.parametrize("bad", [ODD, SHORT, INFINITE, []], ids=["odd", "short", "infinite", "empty"])
def test_broken_rings_are_dropped_with_a_warning(tmp_path, bad, form):
    parts = made.good()
    for row, polygon in zip(parts.annotations, ([bad, GOOD], [bad], [GOOD, bad, GOOD]), strict=False):
        row["polygon"] = polygon
    dataset = Dataset((made.write if form == "arrow" else as_parquet)(tmp_path, parts))
    with pytest.warns(UserWarning, match=rf"data\.{form}: 3 broken rings") as caught:
        found = dataset.annotations
    assert caught[0].filename == __file__
    assert found["polygon"].to_list()[:3] == [[GOOD], None, [GOOD, GOOD]]
    assert found.schema["polygon"] == pl.List(pl.List(pl.Float32))
    assert "TAB007" in validate(tmp_path / "data.zip").counts


def test_broken_rings_of_2025_10_and_of_other_types(tmp_path):
    parts = made.good()
    separated = [*GOOD, float("nan"), *ODD]
    parts.annotations = [row | {"mask": separated, "polygon": None} for row in parts.annotations[:1]]
    kind = pa.list_(pa.float64())
    parts.annotation_schema = parts.annotation_schema.set(7, pa.field("mask", kind))
    with pytest.warns(UserWarning, match="1 broken ring dropped"):
        found = Dataset(made.write(tmp_path, parts)).annotations
    assert found["mask"].to_list() == [GOOD]
    assert found.schema["mask"] == pl.List(pl.Float64)


def test_good_rings_give_no_warning(tmp_path):
    path = made.write(tmp_path, made.good())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Dataset(path).annotations["polygon"].to_list()[0] == [GOOD]


@pytest.mark.parametrize("swapped", [True, False])
def test_a_recognised_first_format_passes_validate(tmp_path, swapped):
    """Positions of the first format are longitude, latitude; beyond 90 degrees they cannot be the other way round."""
    parts = good()
    for row, frame in ((row, row["frame"]) for row in parts.annotations):
        place = POSITIONS.get(frame)
        row["location"] = None if place is None else (-120.5, 45.5) if swapped else (45.5, -120.5)
    for row in parts.frames:
        if row.get("latitude") is not None:
            row |= {"latitude": 45.5, "longitude": -120.5}
    names = ["name", "frame", "label", "box2d", "location"]
    kinds = {"location": pa.list_(pa.float64(), 2)}
    fields = [pa.field(name, kinds.get(name, parts.annotation_schema.field(name).type)) for name in names]
    parts.annotation_schema, parts.annotation_metadata = pa.schema(fields), {}
    path = write(tmp_path, parts)
    found = {finding.rule for finding in validate(path).findings}
    assert found & {"TAB022", "REF008"} == (set() if swapped else {"TAB022", "REF008"})
