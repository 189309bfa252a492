# SPDX-License-Identifier: Apache-2.0
"""Annotations written with polars into finished datasets: kept, completed, refused, and never half."""

import os
import subprocess
import sys

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from edgefirst_ros.dataset import Dataset
from edgefirst_ros.dataset.annotate import make_table
from edgefirst_ros.dataset.storage.lock import Replacement
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, InUseError, StorageError, UsageError

BOX = [0.5, 0.5, 0.25, 0.125]
OWN = pl.DataFrame(
    {
        "name": [made.SEQUENCE] * 3,
        "frame": [7, 4, 4],
        "label": ["cat", "car", "cat"],
        "box2d": [[0.5, 0.5, 0.25, 0.125]] * 3,
    }
)


@pytest.fixture(params=["zip", "directory"])
def dataset(tmp_path, request):
    return Dataset(made.write(tmp_path, made.good(), request.param))


@pytest.fixture
def other(tmp_path):
    return Dataset(made.write(tmp_path, made.good()))


def test_what_was_read_is_written_back(dataset):
    before = dataset.annotations
    metadata = dict(dataset.metadata)
    dataset.write_annotations(before)
    assert dataset.annotations.equals(before)
    numbered = {"category_metadata": {"person": {"id": 0}, "car": {"id": 1}}}
    assert Dataset(dataset.paths.container).metadata == metadata | numbered
    first = dataset.paths.arrow.read_bytes()
    dataset.write_annotations(dataset.annotations)
    assert dataset.paths.arrow.read_bytes() == first


def test_own_rows_are_completed(dataset):
    """Order of the samples, what is of a sample, a row for one without, indices of labels."""
    dataset.write_annotations(OWN)
    found = dataset.annotations
    assert found.select("frame", "label", "label_index").rows() == [
        (3, None, None),
        (4, "car", 1),
        (4, "cat", 2),
        (7, "cat", 2),
    ]
    assert dataset.metadata["labels"] == ["person", "car"]
    assert dataset.metadata["category_metadata"] == {"person": {"id": 0}, "car": {"id": 1}, "cat": {"id": 2}}
    assert found["box2d"].to_list() == [None, BOX, BOX, BOX]
    assert found["group"].to_list() == ["train"] * 4
    assert found["timestamp"].to_list() == [made.stamp_of(frame) for frame in (3, 4, 4, 7)]
    assert found["size"].to_list() == [list(made.SIZE)] * 4
    found = {finding.rule for finding in validate(dataset.paths.container).findings}
    assert not {rule for rule in found if rule.startswith("TAB")} - {"TAB017"}


def test_rows_can_be_added_and_changed_with_polars(dataset):
    kept = dataset.annotations.filter(pl.col("label") == "car").with_columns(box2d_score=pl.lit(0.5, pl.Float32))
    dataset.write_annotations(pl.concat([kept.cast({"label": pl.String}), OWN], how="diagonal_relaxed"))
    assert sorted(dataset.annotations["label"].drop_nulls().cast(str)) == ["car", "car", "car", "cat", "cat"]
    assert dataset.annotations["box2d_score"].drop_nulls().to_list() == [0.5, 0.5]


def test_columns_that_the_schema_does_not_know_are_kept(dataset):
    dataset.write_annotations(OWN.with_columns(annotator=pl.lit("me"), minutes=pl.Series([1.5, 2.5, None])))
    dataset.write_annotations(dataset.annotations)
    assert dataset.annotations["annotator"].to_list() == [None, "me", "me", "me"]
    assert dataset.annotations["minutes"].to_list() == [None, 2.5, None, 1.5]


def test_a_dataset_without_annotations_gets_some(other):
    other.paths.arrow.unlink()
    dataset = Dataset(other.paths.container)
    dataset.write_annotations(OWN)
    assert "labels" not in dataset.metadata
    assert dataset.metadata["category_metadata"] == {"car": {"id": 0}, "cat": {"id": 1}}
    assert dataset.metadata["schema_version"] == "2026.04"
    assert dataset.annotations["timestamp"].to_list() == [made.stamp_of(frame) for frame in (3, 4, 4, 7)]


def test_none_is_an_answer(dataset):
    dataset.write_annotations(dataset.annotations.clear())
    assert dataset.annotations.select("frame", "label", "box2d").rows() == [(frame, None, None) for frame in (3, 4, 7)]
    assert not len(dataset.samples(annotated=True))


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["car", "cat"])])
@pytest.mark.parametrize("frame", [pl.Int64, pl.UInt8])
def test_types_of_polars_are_taken(other, kind, frame):
    other.write_annotations(OWN.cast({"label": kind, "frame": frame, "box2d": pl.Array(pl.Float64, 4)}))
    assert other.annotations["label"].drop_nulls().cast(str).to_list() == ["car", "cat", "cat"]
    assert other.annotations.schema["box2d"] == pl.Array(pl.Float32, 4)


RING = [0.1, 0.1, 0.2, 0.1, 0.2, 0.2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": pl.lit("hots")}, "unknown sequence 'hots'; known: host"),
        ({"frame": pl.Series([3, 4, 5])}, "row 2: .* has no frame 5; known: 3, 4, 7|row 2"),
        ({"frame": pl.Series([3, 4, -1])}, "frame"),
        ({"name": pl.Series([made.SEQUENCE, None, None])}, "null"),
        ({"box2d_score": pl.lit(1.5)}, r"box2d_score: outside 0\.\.1 \(3 values\)"),
        ({"box2d_score": pl.lit(float("nan"))}, "box2d_score"),
        ({"box2d": pl.Series([[0.5] * 3] * 3)}, r"box2d: not 4 finite numbers"),
        ({"box2d": pl.Series([[0.5, 0.5, float("inf"), 0.1]] * 3)}, "box2d"),
        ({"box2d": pl.lit("wide")}, "box2d"),
        ({"polygon": pl.Series([[RING[:5]], None, None])}, "polygon: rings"),
        ({"polygon": pl.Series([[[*RING, 1.0, float("nan")]], None, None])}, "polygon: rings"),
        ({"mask": pl.Series([b"no picture", None, None])}, "mask: no PNG"),
        ({"label_index": pl.Series([1, 1, 1])}, "label_index 1"),
        ({"label_index": pl.Series([5, 6, 7])}, "'cat' has the label_index"),
        ({"label_index": pl.Series([0, 1, 0])}, "label_index 0 is 'person' in this dataset"),
        ({"ignore": pl.lit(True)}, "schema 2026.04 has no column 'ignore'"),
        ({"group": pl.Series(["a", "b", "c"])}, "frame 4 .* has 2 values of group"),
        ({"a\0b": pl.lit(1)}, "has a NUL in its name"),
        ({"further": pl.Series([object()] * 3, dtype=pl.Object)}, "objects of Python"),
    ],
)
def test_what_breaks_a_rule_is_refused_and_nothing_changes(other, change, told):
    before = other.paths.arrow.read_bytes()
    with pytest.raises(UsageError, match=told):
        other.write_annotations(OWN.with_columns(**change))
    assert other.paths.arrow.read_bytes() == before
    assert sorted(path.name for path in other.paths.out.iterdir()) == ["data.arrow", "data.frames.arrow", "data.zip"]


@pytest.mark.parametrize("rows", [OWN.drop("name"), OWN.lazy(), OWN.rows(), None])
def test_what_is_no_table_of_annotations_is_refused(other, rows):
    with pytest.raises(UsageError, match=r"name|expected a polars\.DataFrame"):
        other.write_annotations(rows)


def test_another_form_of_boxes_is_not_taken_for_ours(tmp_path):
    parts = made.good()
    parts.annotation_metadata["box2d_format"] = "xyxy"
    dataset = Dataset(made.write(tmp_path, parts))
    with pytest.raises(DatasetError, match=r"box2d_format is xyxy.*migrate"):
        dataset.write_annotations(OWN)


def test_a_link_and_another_writer_are_refused(other):
    with Replacement(other.paths.arrow), pytest.raises(InUseError, match="another writer"):
        other.write_annotations(OWN)
    other.write_annotations(OWN)
    elsewhere = other.paths.arrow.rename(other.paths.out / "elsewhere")
    other.paths.arrow.symlink_to(elsewhere)
    with pytest.raises(DatasetError, match="not a regular file"):
        other.write_annotations(OWN)


def test_a_disk_that_refuses_changes_nothing(other, monkeypatch):
    before = other.paths.arrow.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        other.write_annotations(OWN)
    assert other.paths.arrow.read_bytes() == before
    assert not list(other.paths.out.glob("*.partial"))


KILLED = """
import os, sys
import polars as pl
from edgefirst_ros import Dataset
dataset = Dataset(sys.argv[1])
os.replace = lambda *_: os._exit(9)
dataset.write_annotations(dataset.annotations.clear())
"""


def test_a_kill_before_the_end_changes_nothing_and_is_cleared_away(other):
    before = other.paths.arrow.read_bytes()
    assert subprocess.run([sys.executable, "-c", KILLED, other.paths.container], check=False).returncode == 9
    assert other.paths.arrow.read_bytes() == before
    other.write_annotations(OWN)
    assert not list(other.paths.out.glob("*.partial"))


def test_schema_2025_10_and_2026_10_keep_their_forms(tmp_path):
    """Angles turned, masks as polygons: what is read is what is written."""
    for version in ("2025.10", "2026.10"):
        (tmp_path / version).mkdir()
        parts = made.good()
        dataset = Dataset(made.write(tmp_path / version, parts))
        kinds = {
            "name": pl.String,
            "frame": pl.UInt32,
            "pose": pl.Array(pl.Float32, 3),
            "box2d": pl.Array(pl.Float32, 4),
        }
        rows = [(made.SEQUENCE, frame, [1.0, 2.0, 3.0], [0.5, 0.5, 0.1, 0.1]) for frame in made.FRAMES]
        table = pl.DataFrame(rows, kinds, orient="row").with_columns(label=pl.lit("car", pl.Categorical))
        if version == "2025.10":
            table = table.with_columns(mask=pl.Series([[*RING, float("nan"), *RING]] * 3, dtype=pl.List(pl.Float32)))
        arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest())
        said = {"schema_version": version} if version != "2025.10" else {}
        with pa.ipc.new_file(dataset.paths.arrow, arrow.schema.with_metadata(said)) as file:
            file.write_table(arrow)
        dataset = Dataset(dataset.paths.container)
        before = dataset.annotations
        dataset.write_annotations(before)
        after = dataset.annotations
        assert np.allclose(after["pose"].to_list(), [[1.0, 2.0, 3.0]] * 3)
        assert after.select(table.columns).equals(before.select(table.columns), null_equal=True) or version == "2025.10"
        if version == "2025.10":
            assert str(after["mask"].to_list()) == str(before["mask"].to_list())


def test_an_unfinished_dataset_takes_none(other):
    other.paths.members_partial.write_bytes(b"")
    before = other.paths.arrow.read_bytes()
    with pytest.raises(DatasetError, match=r"data\.zip: is not finished; run edgefirst-ros recover first"):
        other.write_annotations(OWN)
    assert other.paths.arrow.read_bytes() == before


def test_annotations_of_a_version_that_cannot_be_written_stay(tmp_path):
    parts = made.good()
    parts.annotation_metadata["schema_version"] = "2031.01"
    dataset = Dataset(made.write(tmp_path, parts))
    before = dataset.paths.arrow.read_bytes()
    with pytest.raises(DatasetError, match=r"data\.arrow: schema 2031\.01 cannot be written; .*edgefirst-ros migrate"):
        dataset.write_annotations(OWN)
    assert dataset.paths.arrow.read_bytes() == before


def test_without_frames_the_stamps_are_those_of_the_table_before(other):
    other.paths.frames.unlink()
    dataset = Dataset(other.paths.container)
    dataset.write_annotations(OWN)
    assert dataset.annotations["timestamp"].to_list() == [made.stamp_of(frame) for frame in (3, 4, 4, 7)]


def test_rows_become_a_table_of_the_types_of_the_schema():
    table = make_table([{"name": "s", "frame": 1, "label": "car", "mine": 5}, {"name": "t"}], {"mine": "custom:mine"})
    assert table.columns == ["name", "frame", "label", "custom:mine"]
    assert table.rows() == [("s", 1, "car", 5), ("t", None, None, None)]
    with pytest.raises(DatasetError, match="column 'frame' does not fit"):
        make_table([{"name": "s", "frame": "first"}], {})


def test_labels_without_a_list_keep_the_indices_that_the_rows_give_them(other):
    parts = made.good()
    del parts.annotation_metadata["labels"]
    dataset = Dataset(made.write(other.paths.out, parts))
    dataset.write_annotations(OWN)
    assert dataset.annotations.select("label", "label_index").drop_nulls().rows() == [
        ("car", 1),
        ("cat", 2),
        ("cat", 2),
    ]


def test_rows_without_labels_are_taken(other):
    other.write_annotations(OWN.drop("label"))
    found = other.annotations
    assert found.filter(pl.col("box2d").is_not_null())["frame"].to_list() == [4, 4, 7]
    assert "label" not in found.columns or found["label"].null_count() == len(found)
