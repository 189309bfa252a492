# SPDX-License-Identifier: Apache-2.0
"""Datasets merged: every member and row is there again, names and numbers are told apart, nothing is half done."""

import io
import json
import math
import re
import shutil
import uuid
import zipfile
from datetime import time

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros import Dataset, convert, migrate
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.writer import DatasetWriter
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.export import export
from edgefirst_ros.synthetic import Recipe, messages, write_recording

SMALL = {
    "seconds": 1.0,
    "size": (160, 96),
    "codec": "jpeg",
    "fps": 10.0,
    "cube_shape": (1, 8, 2, 8),
    "lidar_points": 50,
}
SEMANTIC = {**SMALL, "topics": {"camera", "model/boxes2d", "model/mask", "model/info"}}


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """Datasets a, b (other names and seeds), folder (files instead of a ZIP) and again (as a, in another place)."""
    place = tmp_path_factory.mktemp("desk")
    for seed, name in enumerate(("monday", "tuesday", "wednesday")):
        write_recording(place / f"{name}.mcap", Recipe(seed=seed, **SMALL))
    convert(place / "monday.mcap", place / "out", name="a")
    convert(place / "tuesday.mcap", place / "out", name="b", split={"train": 1.0})
    convert(place / "wednesday.mcap", place / "out", name="folder", layout="directory")
    convert(place / "monday.mcap", place / "again", name="a")
    return place / "out"


def grown(dataset, folder, times):
    """A copy of a dataset whose table has each row so many times."""
    for path in (dataset, dataset.with_suffix(".arrow"), dataset.with_suffix(".frames.arrow")):
        shutil.copy(path, folder / path.name)
    path = folder / dataset.with_suffix(".arrow").name
    table = pa.ipc.open_file(path).read_all()
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write(pa.concat_tables([table] * times).unify_dictionaries().combine_chunks())
    return folder / dataset.name


def test_the_rows_of_one_dataset_at_a_time_are_in_memory(desk, tmp_path):
    held = []
    given = [grown(desk / name, tmp_path, 2000) for name in ("a.zip", "b.zip")]
    merge(given, tmp_path / "new", progress=lambda *_: held.append(pa.total_allocated_bytes()))
    first, second = held[: len(held) // 2], held[len(held) // 2 :]
    assert len(first) == len(second) == 10
    assert min(first) > 3_000_000
    assert max(second) < 1.25 * max(first)


def members(dataset):
    container = Dataset(dataset).container
    return {name: container.read(name) for name in container.names}


def rows(path, *drop):
    return pl.read_ipc(path).drop(drop)


def counts_of(*datasets):
    total = {}
    for dataset in datasets:
        for topic, count in Dataset(dataset).metadata["counts"].items():
            total[topic] = total.get(topic, 0) + count["seen"]
    return total


@pytest.mark.parametrize("name", ["a", "folder"])
def test_one_alone_is_itself(desk, tmp_path, name):
    merged = merge([desk / name], tmp_path, name=name)
    source = Dataset(desk / name)
    assert members(merged.paths.container) == members(desk / name)
    assert merged.paths.arrow.read_bytes() == source.paths.arrow.read_bytes()
    assert merged.paths.frames.read_bytes() == source.paths.frames.read_bytes()
    if name == "a":
        assert merged.paths.container.read_bytes() == source.paths.container.read_bytes()
    assert (merged.exit_code, merged.notes) == (0, [])


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_all_members_and_rows_are_there(desk, tmp_path, layout):
    sources = [desk / "a.zip", desk / "b", desk / "folder"]
    merged = merge(sources, tmp_path / "all", layout=layout)
    assert merged.paths.name == "all"
    assert members(merged.paths.container) == members(sources[0]) | members(sources[1]) | members(sources[2])
    joined = pl.concat([rows(Dataset(source).paths.arrow) for source in sources], how="diagonal_relaxed")
    found = rows(merged.paths.arrow)
    assert found.select(sorted(found.columns)).equals(joined.select(sorted(joined.columns)))
    frames = pl.concat([rows(Dataset(source).paths.frames) for source in sources])
    assert rows(merged.paths.frames).equals(frames)
    metadata = Dataset(merged.paths.container).metadata
    assert [source["file"] for source in metadata["sources"]] == ["monday.mcap", "tuesday.mcap", "wednesday.mcap"]
    assert {topic: count["seen"] for topic, count in metadata["counts"].items()} == counts_of(*sources)
    assert [one["split"] for one in metadata["configuration"]] == [{}, {"train": 1.0}, {}]
    assert [one["dataset"] for one in metadata["merged"]] == ["a", "b", "folder"]
    assert set(metadata["time_base"]["sequences"]) == {"monday", "tuesday", "wednesday"}
    assert metadata["labels"] == ["background", "car", "person"]
    report = validate(merged.paths.container)
    assert report.ok
    assert set(report.counts) <= {"TAB016"}  # only one of them has groups
    assert len(Dataset(merged.paths.container)) == merged.samples == 30


def test_equal_configurations_are_said_once(desk, tmp_path):
    merged = merge([desk / "a", desk / "folder"], tmp_path, name="two")
    both = [Dataset(desk / name).metadata["configuration"] for name in ("a", "folder")]
    assert both[0] != both[1]  # the layout
    found = Dataset(merged.paths.container).metadata
    assert found["configuration"] == both
    merged = merge([desk / "a", desk.parent / "again" / "a"], tmp_path, name="same", rename=True)
    assert Dataset(merged.paths.container).metadata["configuration"] == both[0]


# ---- names ---------------------------------------------------------------------------------------
def test_sequences_of_one_name_are_refused_or_renamed(desk, tmp_path):
    twins = [desk / "a", desk.parent / "again" / "a.zip"]
    for rename in (False, True):  # else its samples could be in two groups
        with pytest.raises(UsageError, match=r"again/a\.zip is given twice; name each dataset once"):
            merge([twins[1], twins[1].with_suffix("")], tmp_path, rename=rename)
    with pytest.raises(UsageError, match=r"both have a sequence 'monday'.*--rename"):
        merge(twins, tmp_path)
    assert not list(tmp_path.iterdir())
    merged = merge(twins, tmp_path, name="twins", rename=True)
    assert list(merged.sequences.values()) == [{"monday": "monday"}, {"monday": "monday-2"}]
    dataset = Dataset(merged.paths.container)
    assert dataset.sequences == ["monday", "monday-2"]
    assert validate(merged.paths.container, strict=True).ok
    original, renamed = (dataset.sample(name, 3) for name in dataset.sequences)
    for kind in ("radar.png", "radar.pcd", "lidar.pcd"):
        assert original.read(kind) == renamed.read(kind)
    assert np.array_equal(original.image(), renamed.image())
    assert original.row | {"name": ""} == renamed.row | {"name": ""}


def test_a_renamed_picture_keeps_all_its_exif_but_the_name(desk, tmp_path):
    merged = merge([desk / "a", desk.parent / "again" / "a"], tmp_path, name="twins", rename=True)
    texts = []
    for sequence in ("monday", "monday-2"):
        data = Dataset(merged.paths.container).sample(sequence, 5).read("camera")
        with Image.open(io.BytesIO(data)) as picture:
            exif = picture.getexif()
            tags = dict(exif) | {"exif": dict(exif.get_ifd(0x8769)), "gps": dict(exif.get_ifd(0x8825))}
        comment = tags["exif"].pop(0x9286).decode()
        texts.append((json.loads(comment.removeprefix("ASCII\0\0\0")), {**tags, 0x8769: 0, 0x8825: 0}))
    assert texts[0][1]["gps"]
    assert texts[0][1] == texts[1][1]
    assert texts[1][0] == texts[0][0] | {"sequence": "monday-2"}


def ids_of(path, version):
    """Object ids of a table by sequence: random ones of the device have version 4, those made of names version 5."""
    found = pl.read_ipc(path).drop_nulls("object_id").unique(["name", "object_id"], maintain_order=True)
    ids = {name: set() for name in found["name"]}
    for name, one in found.select("name", "object_id").iter_rows():
        ids[name] |= {one} if uuid.UUID(one).version == version else set()
    return ids


def test_object_ids_stay_apart(desk, tmp_path):
    twins = [desk / "a", desk.parent / "again" / "a"]
    merged = merge([*twins, desk / "b"], tmp_path, name="ids", rename=True)
    ids = ids_of(merged.paths.arrow, 5)
    assert len(ids) == 3
    assert ids["monday"] == ids_of(desk / "a.arrow", 5)["monday"] != set()  # the first ones stay
    assert sum(map(len, ids.values())) == len(set.union(*ids.values()))
    assert len(ids["monday-2"]) == len(ids["monday"])


def test_object_ids_stay_apart_in_what_was_merged_before(desk, tmp_path):
    """The id that a renamed sequence is given may be there already, from the first time it was renamed."""
    twins = [desk / "a", desk.parent / "again" / "a"]
    merge(twins, tmp_path, name="twice", rename=True)
    merge([desk / "a", desk / "b"], tmp_path, name="all")
    merged = merge([tmp_path / "all", tmp_path / "twice"], tmp_path, name="again", rename=True)
    ids = ids_of(merged.paths.arrow, 5).values()
    assert len(ids) == 4
    assert sum(map(len, ids)) == len(set.union(*ids)) > 0


def test_a_track_of_the_device_is_one_in_all_datasets(desk, tmp_path):
    merged = merge([desk / "a", desk.parent / "again" / "a"], tmp_path, name="both", rename=True)
    first, second = ids_of(merged.paths.arrow, 4).values()
    assert first == second != set()


# ---- labels --------------------------------------------------------------------------------------
def test_labels_of_other_numbers_are_refused_or_renumbered(tmp_path, monkeypatch):
    write_recording(tmp_path / "one.mcap", Recipe(**SEMANTIC))
    convert(tmp_path / "one.mcap", tmp_path / "out")
    monkeypatch.setattr(messages, "LABELS", ("tree", "person", "car", "background"))
    truth = write_recording(tmp_path / "two.mcap", Recipe(**SEMANTIC))
    outcome = convert(tmp_path / "two.mcap", tmp_path / "out", label_map={"person": "human"})
    assert Dataset(outcome.paths.container).metadata["labels"] == ["tree", "human", "car", "background"]
    both = [tmp_path / "out" / "one", tmp_path / "out" / "two"]
    with pytest.raises(UsageError, match="--renumber") as caught:
        merge(both, tmp_path / "out", name="both")
    pairs = ["label_index 0 is 'background' and 'tree'", "'car' has the label_index 1 and 2", "value 2 of masks is"]
    assert all(pair in str(caught.value) for pair in pairs)
    assert not (tmp_path / "out" / "both.zip").exists()

    merged = merge(both, tmp_path / "out", name="both", renumber=True)
    dataset = Dataset(merged.paths.container)
    labels, found = dataset.metadata["labels"], pl.read_ipc(merged.paths.arrow)
    assert labels == ["background", "car", "person", "tree", "human"]
    assert dataset.metadata["category_metadata"] == {
        "background": {"id": 0}, "car": {"id": 1}, "person": {"id": 2}, "tree": {"id": 4}, "human": {"id": 5}
    }  # fmt: skip
    number = {"background": 0, "car": 1, "person": 2, "tree": 4, "human": 5}
    rows = found.filter(pl.col("label").is_not_null()).to_dicts()
    assert [row["label_index"] for row in rows] == [number[row["label"]] for row in rows]
    assert set(found.filter(pl.col("name") == "two")["label"].drop_nulls()) == {"car", "human"}
    masks = found.filter((pl.col("name") == "two") & pl.col("mask").is_not_null())["mask"]
    before = pl.read_ipc(outcome.paths.arrow).filter(pl.col("mask").is_not_null())["mask"]
    moved = np.array([labels.index(label) for label in ("tree", "human", "car", "background")], np.uint8)
    assert len(masks) == truth.counts["model/mask"]
    for old, new in zip(before, masks, strict=True):
        classes, united = (np.asarray(Image.open(io.BytesIO(png))) for png in (old, new))
        assert np.array_equal(moved[classes], united)
    assert any("renumbered" in note for note in merged.notes)
    assert validate(merged.paths.container).ok


def numbered(folder, pairs, metadata=None):
    """A dataset whose boxes have these labels and indices, with the lists of LVIS."""
    parts = made.good()
    row = parts.annotations[0]
    fields = [*parts.annotation_schema, pa.field("neg_label_indices", pa.large_list(pa.uint32()))]
    parts.annotation_schema = pa.schema(fields)
    parts.annotations = [
        {**row, "label": label, "label_index": index, "mask": None, "neg_label_indices": [9]} for index, label in pairs
    ]
    parts.annotation_metadata.pop("labels")
    parts.annotation_metadata |= metadata or {}
    return made.write(folder, parts)


def rows_numbered(merged):
    found = pl.read_ipc(merged.paths.arrow).drop_nulls("label_index").cast({"label": pl.String})
    return found.select("name", "label", "label_index").rows()


def test_indices_with_gaps_are_never_renumbered(tmp_path):
    """As COCO and LVIS have them: gaps stay, in any order of the datasets, and though `labels` lists four names."""
    given = ([(1, "person"), (1203, "zucchini")], [(3, "car"), (1, "person"), (90, "brush")])
    listed = {"labels": json.dumps(["person", "car", "brush", "zucchini"])}
    places = [numbered(tmp_path / str(n), pairs, listed) for n, pairs in enumerate(given)]
    for number, order in enumerate((places, places[::-1])):
        merged = merge(order, tmp_path / f"out{number}", rename=True)
        assert {(label, index) for _, label, index in rows_numbered(merged)} == {
            (label, index) for pairs in given for index, label in pairs
        }
        metadata = Dataset(merged.paths.container).metadata
        assert {name: of["id"] for name, of in metadata["category_metadata"].items()} == {
            "person": 1, "zucchini": 1203, "car": 3, "brush": 90
        }  # fmt: skip
        assert metadata["labels"] == ["person", "car", "brush", "zucchini"]
        done = export(merged.paths.container, "coco", tmp_path / f"coco{number}", pictures="none")
        ids = {one["name"]: one["id"] for one in json.loads((done.out / "instances.json").read_text())["categories"]}
        assert ids == {"person": 1, "zucchini": 1203, "car": 3, "brush": 90}
        back = migrate(merged.paths.arrow, tmp_path / f"{number}.json", "2025.10")
        there = [row for sample in json.loads(back.out.read_text()) for row in sample["annotations"]]
        assert {(row["label_name"], row["label_index"]) for row in there if "label_name" in row} >= set(ids.items())


@pytest.mark.parametrize(
    ("given", "told", "expected"),
    [
        ([[(1, "person")], [(1, "car"), (9, "bus")]], "label_index 1 is 'car' and 'person'", [1, 10, 9]),
        ([[(1, "person"), (7, "car")], [(3, "person")]], "'person' has the label_index 1 and 3", [1, 7, 1]),
        ([[(1, "person"), (1, "car")], [(2, "bus")]], "label_index 1 is 'car' and 'person'", [1, 3, 2]),
        ([[(1, "person"), (4, "person")], [(2, "bus")]], "'person' has the label_index 1 and 4", [1, 1, 2]),
    ],
)
def test_conflicts_of_indices_are_refused_with_the_pairs_and_settled_by_renumber(tmp_path, given, told, expected):
    places = [numbered(tmp_path / str(n), pairs) for n, pairs in enumerate(given)]
    with pytest.raises(UsageError, match=re.escape(told)):
        merge(places, tmp_path / "out", rename=True)
    merged = merge(places, tmp_path / "out", rename=True, renumber=True)
    found = rows_numbered(merged)
    assert [index for _, _, index in found] == expected
    known = Dataset(merged.paths.container).metadata["category_metadata"]
    assert all(known[label]["id"] == index for _, label, index in found)
    lists = pl.read_ipc(merged.paths.arrow).drop_nulls("label_index")["neg_label_indices"].to_list()
    assert lists == [[9]] * len(found)  # no label has that number, so it stays


# ---- versions and forms --------------------------------------------------------------------------
def test_versions_meet_in_the_newest(desk, tmp_path):
    outcome = convert(desk.parent / "tuesday.mcap", tmp_path / "old", schema_version="2025.10")
    latest = convert(desk.parent / "wednesday.mcap", tmp_path / "new", schema_version="2026.10")
    merged = merge([desk / "a", outcome.paths.container, latest.paths.container], tmp_path, name="mixed")
    found = pl.read_ipc(merged.paths.arrow)
    assert Dataset(merged.paths.container).metadata["schema_version"] == "2026.10"
    assert validate(merged.paths.container).ok
    for name, path in (("monday", desk / "a.arrow"), ("tuesday", outcome.paths.arrow)):
        pose = pl.read_ipc(path)["pose"].to_list()
        assert [one[::-1] for one in found.filter(pl.col("name") == name)["pose"].to_list() if one] == [
            p for p in pose if p
        ]
    assert (
        found.filter(pl.col("name") == "wednesday")["pose"].to_list()
        == pl.read_ipc(latest.paths.arrow)["pose"].to_list()
    )
    old = pl.read_ipc(outcome.paths.arrow).filter(pl.col("mask").is_not_null())
    rings = found.filter((pl.col("name") == "tuesday") & pl.col("polygon").is_not_null())
    assert len(rings) == len(old) > 0
    assert rings["polygon"][0].explode().to_list() == [v for v in old["mask"][0].to_list() if not math.isnan(v)]


def timed(folder, form, **further):
    """A dataset whose rows have further fields of `timing`, as Arrow or as nested JSON."""
    parts = made.good()
    for row in parts.annotations:
        row["timing"] = row.get("timing") and row["timing"] | further
    kinds = [
        *parts.annotation_schema.field("timing").type,
        *pa.table({name: [one] for name, one in further.items()}).schema,
    ]
    place = parts.annotation_schema.get_field_index("timing")
    parts.annotation_schema = parts.annotation_schema.set(place, pa.field("timing", pa.struct(kinds)))
    path = made.write(folder, parts)
    if form == "json":
        migrate(path.with_suffix(".arrow"), path.with_suffix(".json"))
        path.with_suffix(".arrow").unlink()
    return path


@pytest.mark.parametrize("form", ["arrow", "json"])
@pytest.mark.parametrize("end", ["finished", "killed"])
def test_fields_of_timing_that_no_version_knows_are_merged_and_recovered(tmp_path, monkeypatch, form, end):
    """The schema document: fields are extensible. A merge that stops before its end is completed with them."""
    given = [timed(tmp_path / "a", form, wait=7), timed(tmp_path / "b", form, queue="x")]
    with monkeypatch.context() as stopped:
        if end == "killed":
            stopped.setattr(DatasetWriter, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                merge(given, tmp_path / "out", rename=True)
            recover(tmp_path / "out" / "out")
        else:
            merged = merge(given, tmp_path / "out", rename=True)
            assert (merged.loss, merged.notes) == (False, [])
    found = pl.read_ipc(tmp_path / "out" / "out.arrow")["timing"].drop_nulls().unique(maintain_order=True).to_list()
    known = {"load": 1, "preprocess": None, "inference": 2, "decode": 3}
    assert found == [known | {"wait": 7, "queue": None}, known | {"wait": None, "queue": "x"}]


def test_a_field_of_timing_has_any_type_that_a_table_can_hold(tmp_path, capfd):
    further = {"steps": [1, 2], "at": time(1), "raw": b"x"}
    merged = merge([timed(tmp_path / "a", "arrow", **further)], tmp_path / "out")
    assert pl.read_ipc(merged.paths.arrow)["timing"].drop_nulls()[0].items() >= further.items()
    path = timed(tmp_path / "b", "arrow", since=pa.MonthDayNano([1, 2, 3]))
    with pytest.raises(
        DatasetError, match=rf"{path.stem}\.arrow: cannot be read as a table: 'since' is month_day_nano"
    ):
        merge([path], tmp_path / "other")
    assert "panicked" not in capfd.readouterr().err
    assert not list((tmp_path / "other").glob("*"))


def test_a_field_of_timing_of_two_types_is_refused(tmp_path):
    given = [timed(tmp_path / "a", "arrow", wait=7), timed(tmp_path / "b", "arrow", wait="x")]
    with pytest.raises(DatasetError, match=r"timing\.wait is large_string, and int64"):
        merge(given, tmp_path / "out", rename=True)
    assert not list((tmp_path / "out").glob("*"))


def test_a_reference_that_is_a_companion_elsewhere_has_its_own_stamp(desk, tmp_path):
    topics = {"radar/cube", "gps"}
    write_recording(tmp_path / "radar.mcap", Recipe(**{**SMALL, "topics": topics | {"camera"}}))
    alone = convert(tmp_path / "radar.mcap", tmp_path / "out", reference_topic="radar/cube")
    merged = merge([desk / "a", alone.paths.container], tmp_path, name="both")
    assert validate(merged.paths.container).ok
    found = pl.read_ipc(merged.paths.frames).filter(pl.col("name") == "radar")
    assert found["radar_cube_timestamp"].to_list() == found["timestamp"].to_list()
    assert set(found["radar_cube_skew"]) == {0}


# ---- what cannot be ------------------------------------------------------------------------------
def test_nothing_is_overwritten_unless_it_is_asked_for(desk, tmp_path):
    merge([desk / "a"], tmp_path, name="x")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(DatasetError, match="--overwrite"):
        merge([desk / "b"], tmp_path, name="x")
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    merge([desk / "b"], tmp_path, name="x", overwrite=True)
    assert Dataset(tmp_path / "x").sequences == ["tuesday"]
    merge([tmp_path / "x", desk / "a"], tmp_path, name="x", overwrite=True)  # one of them is replaced
    assert Dataset(tmp_path / "x").sequences == ["tuesday", "monday"]


def test_a_damaged_member_leaves_nothing_behind(desk, tmp_path):
    for suffix in (".zip", ".arrow", ".frames.arrow"):
        shutil.copy(desk / f"b{suffix}", tmp_path / f"bad{suffix}")
    with zipfile.ZipFile(tmp_path / "bad.zip") as archive:
        info = archive.infolist()[-1]
    with (tmp_path / "bad.zip").open("r+b") as file:
        file.seek(info.header_offset + 30 + len(info.filename) + 20)
        file.write(b"\xa5\x5a\xa5\x5a")
    (tmp_path / "out").mkdir()
    with pytest.raises(DatasetError, match=rf"bad\.zip.*{info.filename}.*CRC"):
        merge([desk / "a", tmp_path / "bad"], tmp_path / "out", name="x")
    assert not list((tmp_path / "out").iterdir())


def test_datasets_without_frames_or_of_other_boxes_are_refused(desk, tmp_path):
    for name in ("bare", "corners"):
        for suffix in (".zip", ".arrow", ".frames.arrow"):
            shutil.copy(desk / f"b{suffix}", tmp_path / f"{name}{suffix}")
    (tmp_path / "bare.frames.arrow").unlink()
    with pytest.raises(DatasetError, match=r"bare\.frames\.arrow: missing"):
        merge([tmp_path / "bare"], tmp_path / "out")
    table = pl.read_ipc(tmp_path / "corners.arrow").to_arrow()
    metadata = {"schema_version": "2026.04", "box2d_format": "xyxy"}
    with pa.ipc.new_file(str(tmp_path / "corners.arrow"), table.schema.with_metadata(metadata)) as writer:
        writer.write_table(table.replace_schema_metadata(metadata))
    with pytest.raises(DatasetError, match=r"box2d_format is xyxy.*migrate"):
        merge([desk / "a", tmp_path / "corners"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rows_of_samples_that_are_not_there_are_a_loss(desk, tmp_path):
    for suffix in (".arrow", ".frames.arrow"):
        shutil.copy(desk / f"b{suffix}", tmp_path / f"less{suffix}")
    with zipfile.ZipFile(desk / "b.zip") as old, zipfile.ZipFile(tmp_path / "less.zip", "w") as new:
        for info in old.infolist():
            if "_004." not in info.filename:
                new.writestr(info, old.read(info))
    merged = merge([desk / "a", tmp_path / "less"], tmp_path, name="x")
    assert (merged.exit_code, merged.samples) == (3, 19)
    assert any("dropped, rows without members: 1 sample" in note for note in merged.notes)
    assert validate(merged.paths.container).ok


def test_members_of_no_sample_are_a_loss(desk, tmp_path):
    for suffix in (".zip", ".arrow", ".frames.arrow"):
        shutil.copy(desk / f"b{suffix}", tmp_path / f"more{suffix}")
    with zipfile.ZipFile(tmp_path / "more.zip", "a") as archive:
        (sequence,) = {name.partition("/")[0] for name in archive.namelist()}
        archive.writestr(f"{sequence}/", b"")
        for name in ("README.md", f"{sequence}/calibration.json", f"{sequence}/{sequence}_004.camera.bak", "\x1b[31m"):
            archive.writestr(name, b"mine")
    merged = merge([desk / "a", tmp_path / "more"], tmp_path, name="x")
    assert (merged.exit_code, merged.samples) == (3, 20)
    (note,) = (note for note in merged.notes if "of no sample" in note)
    assert f"more.zip: dropped, of no sample: 4 members: README.md, {sequence}/calibration.json, " in note
    assert note.endswith(" and 1 more")
    assert validate(merged.paths.container).ok


def test_columns_that_the_format_does_not_have_are_named_by_a_note(desk, tmp_path):
    for suffix in (".arrow", ".frames.arrow", ".zip"):
        shutil.copy(desk / f"b{suffix}", tmp_path / f"more{suffix}")
    tables = [tmp_path / "more.frames.arrow", tmp_path / "more.arrow"]
    for path in tables:
        whole = pa.ipc.open_file(path.read_bytes()).read_all()
        whole = whole.append_column("weather", pa.array(["rain"] * len(whole)))
        with pa.ipc.new_file(str(path), whole.schema) as writer:
            writer.write_table(whole)
    merged = merge([desk / "a", tmp_path / "more"], tmp_path / "out", name="x")
    assert merged.exit_code == 0
    for path in tables:
        assert f"{path}: columns that are not merged: weather" in merged.notes


# ---- members as they lie -------------------------------------------------------------------------
def packed(path, deflated):
    """The archive once more by zipfile: these kinds deflated, the others stored."""
    with zipfile.ZipFile(path) as old:
        parts = [(info, old.read(info)) for info in old.infolist()]
    with zipfile.ZipFile(path, "w") as new:
        for info, data in parts:
            method = zipfile.ZIP_DEFLATED if info.filename.endswith(deflated) else zipfile.ZIP_STORED
            new.writestr(zipfile.ZipInfo(info.filename, info.date_time), data, method, compresslevel=9)


def raw(path):
    """Method, checksum, sizes, time and data of every member, by its name."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        assert archive.testzip() is None
        for info in archive.infolist():
            file.seek(info.header_offset + 26)
            lengths = file.read(4)
            file.seek(info.header_offset + 30 + lengths[0] + 256 * lengths[1] + lengths[2] + 256 * lengths[3])
            data = file.read(info.compress_size)
            found[info.filename] = (info.compress_type, info.CRC, info.file_size, info.date_time, data)
    return found


@pytest.fixture
def clouds(desk, tmp_path):
    """Dataset a with its clouds deflated."""
    for suffix in (".zip", ".arrow", ".frames.arrow"):
        shutil.copy(desk / f"a{suffix}", tmp_path / f"clouds{suffix}")
    packed(tmp_path / "clouds.zip", ".pcd")
    return tmp_path / "clouds.zip"


def test_members_are_stored(desk, clouds, tmp_path):
    merged = merge([clouds, desk / "b"], tmp_path / "out", name="x")
    found = raw(merged.paths.container)
    assert found == raw(desk / "a.zip") | raw(desk / "b.zip")
    assert {method for method, *_ in found.values()} == {zipfile.ZIP_STORED}
    again = merge([merged.paths.container], tmp_path / "out", name="y")
    assert again.paths.container.read_bytes() == merged.paths.container.read_bytes()


def test_renamed_members_are_the_same_under_another_name(desk, clouds, tmp_path):
    merged = merge([desk / "a", clouds], tmp_path / "out", name="x", rename=True)
    found = raw(merged.paths.container)
    for name, what in raw(desk / "a.zip").items():
        if "camera" not in name:
            assert found[name.replace("monday", "monday-2")] == what
    assert validate(merged.paths.container, strict=True).ok


def test_a_damaged_deflated_member_leaves_nothing_behind(clouds, tmp_path):
    with zipfile.ZipFile(clouds) as archive:
        info = [info for info in archive.infolist() if info.compress_type == zipfile.ZIP_DEFLATED][-1]
    with clouds.open("r+b") as file:
        file.seek(info.header_offset + 30 + len(info.filename) + info.compress_size // 2)
        file.write(b"\xa5\x5a\xa5\x5a")
    with pytest.raises(DatasetError, match=rf"clouds\.zip.*{info.filename}"):
        merge([clouds], tmp_path / "out", name="x")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(("name", "layout"), [("a", "zip"), ("folder", "directory")])
def test_what_is_merged_may_take_the_place_of_one_of_them(desk, tmp_path, name, layout):
    """A dataset grows by another one; until the new one is whole the old one is there."""
    for path in desk.iterdir():
        (shutil.copytree if path.is_dir() else shutil.copy)(path, tmp_path / path.name)
    both = {**members(tmp_path / name), **members(tmp_path / "b")}
    with pytest.raises(DatasetError, match="use --overwrite"):
        merge([tmp_path / name, tmp_path / "b"], tmp_path, name=name, layout=layout)
    merged = merge([tmp_path / name, tmp_path / "b"], tmp_path, name=name, layout=layout, overwrite=True)
    assert members(tmp_path / name) == both
    assert validate(merged.paths.container).ok
    assert merged.samples == 20
    assert not [path.name for path in tmp_path.rglob("*") if path.name.endswith((".partial", ".journal"))]


def test_metadata_of_boxes_stand_only_where_such_boxes_are(desk):
    assert "box3d_normalized" not in Dataset(desk / "a").metadata
    assert Dataset(desk / "a").metadata["box2d_format"] == "cxcywh"


def test_folders_globs_and_open_datasets_are_merged(desk, tmp_path):
    expected = merge([desk / "a.zip", desk / "b.zip"], tmp_path / "named").samples
    copies = tmp_path / "copies"
    copies.mkdir()
    for path in [*desk.glob("a.*"), *desk.glob("b.*")]:
        shutil.copy(path, copies)
    assert merge(copies, tmp_path / "folder").samples == expected
    assert merge([f"{copies}/*.zip"], tmp_path / "glob").samples == expected
    assert merge([Dataset(copies / "a.zip"), copies / "b.zip"], tmp_path / "open").samples == expected
