# SPDX-License-Identifier: Apache-2.0
"""The nested JSON form: what the format document shows is read, what is wrong is named."""

import base64
import json

import pytest
from annotation_tables import rows_of, store, table

from edgefirst_ros import migrate
from edgefirst_ros.dataset.tables import json_form, write
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.dataset.tables.json_form import NestedTable
from edgefirst_ros.errors import DatasetError

# Source: EdgeFirst Dataset Format, "JSON Format (Nested)"
DEER = {
    "image_name": "deer_001.camera.jpeg",
    "width": 1920,
    "height": 1080,
    "frame_number": 1,
    "sequence_name": "deer_sequence",
    "group_name": "train",
    "sensors": {"gps": {"latitude": 37.75, "longitude": -122.5}, "imu": {"roll": 0.5, "pitch": -1.25, "yaw": 45.25}},
    "annotations": [
        {
            "label_name": "deer",
            "label_index": 0,
            "object_id": "550e8400-e29b-41d4-a716-446655440000",
            "box2d": {"x": 0.5, "y": 0.25, "w": 0.125, "h": 0.5},
            "mask": {"polygon": [[[0.5, 0.25], [0.75, 0.25], [0.75, 0.5]], [[0.0, 0.0], [1.0, 0.0]]]},
        }
    ],
}


def read(tmp_path, document, name="a.json"):
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    annotations = read_annotations(path)
    rows = [row for batch in annotations.batches() for row in batch.to_pylist()]
    return rows, annotations


def test_bare_array_of_2025_10(tmp_path):
    rows, annotations = read(tmp_path, [DEER, {"image_name": "plain.jpg", "frame_number": -1}])
    assert annotations.version == "2025.10"
    assert annotations.layout == "ltwh"
    assert annotations.tally.lost == {"polygon: rings that are odd, under three points or not finite": 1}
    assert rows[0] == {
        "name": "deer_sequence",
        "frame": 1,
        "object_id": "550e8400-e29b-41d4-a716-446655440000",
        "label": "deer",
        "label_index": 0,
        "group": "train",
        "polygon": [[0.5, 0.25, 0.75, 0.25, 0.75, 0.5]],
        "box2d": [0.5, 0.25, 0.125, 0.5],
        "size": [1920, 1080],
        "location": [37.75, -122.5],
        "pose": [45.25, -1.25, 0.5],
    }
    assert rows[1] == dict.fromkeys(rows[0]) | {"name": "plain"}


def test_object_of_2026_04(tmp_path):
    png = b"\x89PNG and so on"
    first = {"polygon": [[[0, 0], [1, 0], [1, 1]]], "polygon_score": 0.5, "iscrowd": True, "mask": None}
    second = {"mask": base64.b64encode(png).decode(), "box3d": dict(zip("xyzwhl", range(6), strict=True))}
    sample = {"image_name": "a.b.camera.png", "annotations": [first, second], "sensors": None}
    head = {"labels": ["x"], "schema_version": "2026.04", "samples": [sample], "box2d_format": "cxcywh", "note": "n"}
    rows, annotations = read(tmp_path, head)
    assert annotations.metadata == {
        "labels": '["x"]',
        "schema_version": "2026.04",
        "box2d_format": "cxcywh",
        "note": "n",
    }
    assert [row["name"] for row in rows] == ["a.b", "a.b"]
    assert rows[0]["polygon"] == [[0, 0, 1, 0, 1, 1]]
    assert (rows[0]["polygon_score"], rows[0]["iscrowd"]) == (0.5, True)
    assert (rows[1]["mask"], rows[1]["box3d"]) == (png, [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("said", "box", "expected"),
    [
        ("ltwh", {"x": 0.25, "y": 0.5, "w": 0.5, "h": 0.25}, [0.25, 0.5, 0.5, 0.25]),
        ("cxcywh", {"x": 0.25, "y": 0.5, "w": 0.5, "h": 0.25}, [0.25, 0.5, 0.5, 0.25]),
        ("cxcywh", {"cx": 0.25, "cy": 0.5, "w": 0.5, "h": 0.25}, [0.25, 0.5, 0.5, 0.25]),
        ("ltwh", {"cx": 0.5, "cy": 0.5, "w": 0.5, "h": 0.25}, [0.25, 0.375, 0.5, 0.25]),
        ("xyxy", {"x_min": 0.25, "y_min": 0.5, "x_max": 0.5, "y_max": 1}, [0.25, 0.5, 0.5, 1]),
        ("cxcywh", {"x_min": 0.25, "y_min": 0.5, "x_max": 0.75, "y_max": 1}, [0.5, 0.75, 0.5, 0.5]),
        ("xyxy", {"x": 0.25, "y": 0.5, "w": 0.5, "h": 0.25}, [0.25, 0.5, 0.75, 0.75]),
        ("ltwh", {"x": 0.25, "y": 0.5, "w": 0.5}, None),
    ],
)
def test_boxes_by_their_names_and_metadata(tmp_path, said, box, expected):
    """The metadata may come behind the samples."""
    plain = {"label_name": "a", "box2d": {"x": 0, "y": 0, "w": 0, "h": 0}}
    document = {"samples": [{"name": "s", "annotations": [plain, {"box2d": box}, {}]}], "box2d_format": said}
    rows, annotations = read(tmp_path, document | {"schema_version": "2026.04"})
    assert [row["box2d"] for row in rows] == [[0, 0, 0, 0], expected, None]
    assert sum(annotations.tally.lost.values()) == (expected is None)


def test_values_that_no_column_holds_are_counted(tmp_path):
    sample = {
        "name": "a",
        "files": [{"type": "x"}],
        "image_url": "http://x",
        "sensors": {"gps": {"altitude": 3}, "odd": 1},
    }
    rows, annotations = read(tmp_path, [sample | {"annotations": [{"frame_number": 3, "depth": 2}, {"depth": 3}]}])
    assert dict(annotations.tally.lost) == {
        "sensors.gps.altitude: has no column": 1,
        "sensors.odd: has no column": 1,
        "files: values that make no column": 2,
    }
    assert [(row["image_url"], row["depth"]) for row in rows] == [("http://x", 2), ("http://x", 3)]


def test_pieces_of_any_size(tmp_path, monkeypatch):
    text = json.dumps({"schema_version": "2026.04", "samples": [DEER] * 3 + [{"name": "é\u2028"}], "number": 1234})
    whole, _ = read(tmp_path, text)
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(json_form, "CHUNK", size)
        rows, annotations = read(tmp_path, text)
        assert rows == whole
        assert annotations.metadata["number"] == "1234"


def test_written_as_documented(tmp_path):
    """A sample an object, a key for every column there is; polygons under mask in 2025.10."""
    (tmp_path / "a.json").write_text(json.dumps([DEER, {"image_name": "b.jpg", "annotations": []}]))
    migrate(tmp_path / "a.json", tmp_path / "b.json", "2025.10")
    first, second = json.loads((tmp_path / "b.json").read_text())
    polygon = DEER["annotations"][0]["mask"]["polygon"][:1]
    wanted = DEER["annotations"][0] | {"mask": {"polygon": polygon}}
    named = {"image_name": "deer_sequence_001.camera.jpeg", "name": "deer_sequence"}
    assert first == DEER | named | {"annotations": [wanted]}
    assert second["annotations"] == []
    assert second["frame_number"] is None
    migrate(tmp_path / "a.json", tmp_path / "c.json", "2026.04")
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["schema_version"] == "2026.04"
    assert document["box2d_format"] == "ltwh"
    assert document["samples"][0]["annotations"] == [
        {key: value for key, value in wanted.items() if key != "mask"} | {"polygon": polygon}
    ]


@pytest.mark.parametrize("rows_of_a_batch", [1, 2, 100])
def test_neighbours_of_one_sample_are_one_object(tmp_path, monkeypatch, rows_of_a_batch):
    """However the rows are cut; a row without anything is one of several, or stands for none."""
    monkeypatch.setitem(write.ROWS, ".json", rows_of_a_batch)
    names = ["a", "a", "a", "b", "b", "c", "a"]
    labels = ["x", None, "y", None, None, None, "z"]
    rows = [{"name": name, "frame": 1, "label": label} for name, label in zip(names, labels, strict=True)]
    report = migrate(store(tmp_path / "a.arrow", table(rows)), tmp_path / "b.json")
    samples = json.loads(report.out.read_text())["samples"]
    said = [(s["name"], [a["label_name"] for a in s["annotations"]]) for s in samples]
    assert said == [("a", ["x", None, "y"]), ("b", [None, None]), ("c", []), ("a", ["z"])]
    assert rows_of(report.out) == rows


HOSTILE = {
    "": "begins with ''",
    "3": "begins with '3'",
    "null": "begins with 'n'",
    "{}": "without 'samples'",
    "[": "Expecting value",
    "[1]": "sample 0 .* not an object",
    '[{"name": "a"}, {"name": 3}]': "sample 1 .* name",
    '[{"name": "a", "annotations": [3]}]': "sample 0 .* annotation",
    '[{"name": "a", "annotations": {}}]': "sample 0",
    '[{"annotations": []}]': "no name",
    '[{"name": "a"}] x': "after the end",
    '[{"name": "a"},]': "Expecting value",
    '[{"name": "a"} {"name": "b"}]': "expected",
    '{"samples": 3}': "expected",
    '{"samples": [], "samples": []}': "comes twice",
    '{"samples": [], [3]: 1}': "is not text",
    '[{"name": "\\ud800"}]': "sample 0",
    '[{"name": "a", "frame_number": 4294967296}]': "frame",
    '[{"name": "a", "width": -1}]': "sample 0 .* width",
    '[{"name": "a", "annotations": [{"label_name": 3}]}]': "sample 0 .* label_name",
    '[{"name": "a", "annotations": [{"box2d": [1, 2, 3, 4]}]}]': "sample 0 .* box2d",
    '[{"name": "a", "annotations": [{"mask": "*"}]}]': "base64",
    '[{"name": "a", "annotations": [{"label_index": 1e400}]}]': "sample 0 .* label_index",
    '[{"name": "a", "annotations": [{"label_index": ' + "9" * 5000 + "}]}]": "JSON",
    '[{"name": "a", "sensors": 3}]': "sensors",
    "[" * 100_000: "",
    '[{"name": ' + "[" * 100_000: "",
    '{"samples": [], "box2d_format": "round"}': "box2d_format",
    r'[{"name": "a", "\ud800": 1}]': "surrogates",
    r'[{"name": "a", "annotations": [{"\ud800": 1}]}]': "surrogates",
    r'[{"name": "\udfff", "annotations": []}]': "surrogates",
    r'{"schema_version": "2026.04", "\ud800": 1, "samples": [{"name": "a"}]}': "surrogates",
    r'{"schema_version": "2026.04", "x": "\ud800", "samples": [{"name": "a"}]}': "surrogates",
    '[{"name": "a", "annotations": [{"polygon": [[1, 2, 3]]}]}]': "sample 0 .* polygon",
}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40])
def test_hostile_documents(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DatasetError, match=rf"(?s)a\.json.*{HOSTILE[text]}"):
        migrate(tmp_path / "a.json", tmp_path / "b.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_no_text(tmp_path):
    (tmp_path / "a.json").write_bytes(b'[{"name": "\xff"}]')
    with pytest.raises(DatasetError, match=r"a\.json"):
        read_annotations(tmp_path / "a.json")


def test_a_point_that_is_no_pair_spoils_its_ring(tmp_path):
    rings = [[[0, 0], [1, 0], [1, 1, 1], [1]], [[0, 0], [1, 0], [1, 1]]]
    rows, annotations = read(tmp_path, [{"name": "a", "annotations": [{"polygon": rings}]}])
    assert rows[0]["polygon"] == [[0, 0, 1, 0, 1, 1]]
    assert sum(annotations.tally.lost.values()) == 1


def test_two_polygons_of_one_annotation_are_refused(tmp_path):
    ring = [[0, 0], [1, 0], [1, 1]]
    good = {"mask": {"polygon": [ring]}}
    with pytest.raises(DatasetError, match=r"a\.json: sample 1 \(from 0\) has an annotation with two polygons"):
        read(
            tmp_path, [{"name": "a", "annotations": [good]}, {"name": "b", "annotations": [good | {"polygon": [ring]}]}]
        )


def test_keys_in_a_place_where_they_mean_nothing_are_counted(tmp_path):
    rows, annotations = read(
        tmp_path,
        [{"name": "a", "box2d": {"x": 0}, "label": "car", "annotations": [{"label_name": "car", "size": [1, 2]}]}],
    )
    assert rows == [{"name": "a", "frame": None, "label": "car"}]
    assert dict(annotations.tally.lost) == {
        f"{key}: in a place where the format has no such key": 1 for key in ("box2d", "label", "size")
    }


def test_more_annotations_than_are_collected_at_a_time(tmp_path):
    """Of one sample, and of many: each row keeps its sample, and each key that nobody knows its row."""
    count = json_form.ROWS + 3
    of_one = {"name": "a", "frame_number": 1, "annotations": [{"label_index": n, "depth": n} for n in range(count)]}
    rows, annotations = read(tmp_path, [of_one, {"name": "b", "frame_number": 2, "annotations": [{"depth": -1}]}])
    assert [(row["name"], row["frame"], row["label_index"], row["depth"]) for row in rows] == [
        *(("a", 1, n, n) for n in range(count)),
        ("b", 2, None, -1),
    ]
    assert not annotations.tally.lost


def test_a_value_that_goes_on_and_on_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_form, "LARGEST", 1000)
    monkeypatch.setattr(json_form, "CHUNK", 100)
    assert read(tmp_path, [{"name": "a" * 700}])[0] == [{"name": "a" * 700, "frame": None}]
    with pytest.raises(DatasetError, match=r"a\.json: .*a value of more than 1000 characters after 1 samples"):
        read(tmp_path, [{"name": "a"}, {"name": "b" * 5000}])


def test_an_object_that_names_no_version_is_2026_04_and_it_is_said(tmp_path):
    rows, annotations = read(tmp_path, {"samples": [{"name": "a"}]})
    assert rows == [{"name": "a", "frame": None}]
    assert annotations.version == "2026.04"
    assert [*annotations.tally.notes] == ["no schema_version: an object with samples is 2026.04"]


@pytest.mark.parametrize(
    ("document", "metadata"),
    [
        ({"samples": [{"name": "a"}]}, {"schema_version": "2026.04"}),
        ({"samples": [{"name": "a"}], "schema_version": "2025.10"}, {"schema_version": "2025.10"}),
        ([{"name": "a"}], {}),
    ],
    ids=["object", "object with its version", "bare array"],
)
def test_an_object_that_does_not_say_its_version_has_that_of_today(tmp_path, document, metadata):
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert NestedTable(tmp_path / "a.json").metadata == metadata
