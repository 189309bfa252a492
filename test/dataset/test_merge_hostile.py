# SPDX-License-Identifier: Apache-2.0
"""Datasets of others in `merge`: large packed tables, columns of other types, masks out of next to nothing."""

import io
import json
import subprocess
import sys

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from PIL import Image

from edgefirst_ros import Dataset
from edgefirst_ros.dataset import merge_labels
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.errors import DatasetError, UsageError
from edgefirst_ros.limits import Limits
from edgefirst_ros.sensors.exif import ExifInfo, encode_exif, insert_jpeg

MEASURED = """
import sys
from edgefirst_ros.dataset.merge import merge
merge(sys.argv[2:], sys.argv[1])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


def store(path, table, metadata=None):
    """By polars and Arrow alone, packed."""
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    arrow = table.to_arrow(compat_level=pl.CompatLevel.oldest()).replace_schema_metadata(metadata or {})
    with pa.ipc.new_file(str(path), arrow.schema, options=packed) as writer:
        writer.write_table(arrow)


def png(side, value=0):
    file = io.BytesIO()
    Image.fromarray(np.full((side, side), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def rows(count):
    return pl.DataFrame(
        {
            "name": pl.repeat(made.SEQUENCE, count, eager=True),
            "frame": pl.repeat(3, count, dtype=pl.UInt32, eager=True),
            "object_id": pl.int_range(count, eager=True).cast(pl.String),
            "label": pl.repeat("car", count, eager=True),
            "box2d": pl.repeat([0.5, 0.5, 0.25, 0.25], count, dtype=pl.Array(pl.Float32, 4), eager=True),
        }
    )


def test_many_rows_of_one_sample(tmp_path):
    """As polars writes them and packed; the merged table has them in their order."""
    dataset, table = made.write(tmp_path, made.good()), rows(100_000)
    store(tmp_path / "data.arrow", table, {"schema_version": "2026.04"})
    arguments = [sys.executable, "-c", MEASURED, tmp_path / "out", dataset]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    assert int(done.stdout) < 1 << 20
    merged = pl.read_ipc(tmp_path / "out/out.arrow")
    own = merged.filter(pl.col("frame") == 3).select(pl.col(pl.Categorical).cast(pl.String), pl.exclude(pl.Categorical))
    assert own.select(table.columns).equals(table)
    assert own["timestamp"].unique().to_list() == [made.stamp_of(3)]


WRONG = {
    "timestamp": ("1", 1.5, [1], {"a": 1}, b"1", True),
    "name": (b"\xff", 5, [made.SEQUENCE], {"a": 1}),
    "frame": ("3", 3.5, [3], b"3"),
    "latitude": ("45", True, [45.0]),
    "orientation": (1.0, [1.0, 2.0], "x"),
    "keyframe": ("yes", [True]),
    "radar_cube_skew": ("0", 0.5, {"ns": 1}),
}


@pytest.mark.parametrize(("column", "value"), [(name, value) for name in WRONG for value in WRONG[name]], ids=repr)
def test_columns_of_frames_of_other_types_are_refused_by_name(tmp_path, column, value):
    dataset = made.write(tmp_path, made.good())
    path = tmp_path / "data.frames.arrow"
    table = pl.read_ipc(path)
    metadata = {k.decode(): v.decode() for k, v in pa.ipc.open_file(path.read_bytes()).schema.metadata.items()}
    store(path, table.with_columns(pl.Series(column, [value] * len(table))), metadata)
    with pytest.raises(DatasetError, match=rf"data\.frames\.arrow: column '{column}'"):
        merge([dataset], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "kind", [pl.Int8, pl.UInt64, pl.Int128, pl.Decimal(20, 0), pl.Date, pl.Duration("ns")], ids=str
)
def test_numbers_of_frames_are_any_integers(tmp_path, kind):
    dataset = made.write(tmp_path, made.good())
    path = tmp_path / "data.frames.arrow"
    table = pl.read_ipc(path).with_columns(pl.lit(1).cast(pl.Int64).cast(kind).alias("segment"))
    metadata = {k.decode(): v.decode() for k, v in pa.ipc.open_file(path.read_bytes()).schema.metadata.items()}
    try:
        store(path, table, metadata)
    except (pa.ArrowException, pl.exceptions.PolarsError, KeyError):
        pytest.skip("Arrow has no such type")
    if kind in (pl.Int8, pl.UInt64):
        merged = merge([dataset], tmp_path / "out")
        assert pl.read_ipc(merged.paths.frames)["segment"].to_list() == [1] * len(made.FRAMES)
    else:
        with pytest.raises(DatasetError, match=r"data\.frames\.arrow"):
            merge([dataset], tmp_path / "out")


def with_exif(data, change):
    """A picture with EXIF of ours, changed."""
    exif = encode_exif(ExifInfo(made.SEQUENCE, 3, made.stamp_of(3), "host", "software", 45.5, -73.6, 30.0))
    return b"".join(map(bytes, insert_jpeg(data, change(exif))))


@pytest.mark.parametrize(
    "change",
    [
        lambda exif: exif.replace(b"\x01\x31\0\2", b"\x01\x31\0\x0b"),  # a text that says it is floats
        lambda exif: exif[:8],
        lambda exif: exif[:4] + b"\xff" * 4 + exif[8:],
        lambda exif: exif.replace(b"ASCII\0\0\0{", b"ASCII\0\0\0["),
    ],
    ids=["types", "cut", "leads elsewhere", "comment"],
)
def test_exif_of_another_program_stays_where_pictures_are_renamed(tmp_path, change):
    name, places = made.name_of(3, "camera.jpeg"), []
    for folder in (tmp_path / "a", tmp_path / "b"):
        parts = made.good()
        parts.members[name] = with_exif(parts.members[name], change)
        folder.mkdir()
        places.append(made.write(folder, parts))
    merged = Dataset(merge(places, tmp_path / "out", rename=True).paths.container)
    data = [merged.sample(sequence, 3).read("camera") for sequence in merged.sequences]
    assert data == [parts.members[name]] * 2


@pytest.mark.parametrize(("count", "side"), [(200, 8), (3, 2000)])
def test_masks_of_classes_that_take_too_long_are_refused(tmp_path, monkeypatch, count, side):
    """Few bytes that stand for many masks, or for large ones, which all would have to be counted anew."""
    monkeypatch.setattr(merge_labels, "FREE_PIXELS", 1 << 20)
    monkeypatch.setattr(merge_labels, "PIXELS_PER_BYTE", 1)
    places = []
    for name, labels in (("a", '["car", "person"]'), ("b", '["person", "car"]')):
        folder = tmp_path / name
        folder.mkdir()
        places.append(made.write(folder, made.good()))
        table = rows(count).select("name", "frame").with_columns(mask=pl.lit(png(side)))
        store(folder / "data.arrow", table, {"schema_version": "2026.04", "labels": labels})
    with pytest.raises(DatasetError, match=r"b/data\.arrow: masks of classes .* too many pixels"):
        merge(places, tmp_path / "out", rename=True, renumber=True, limits=Limits(unpacked_bytes=1 << 20))
    assert list((tmp_path / "out").iterdir()) == []


def test_masks_of_classes_are_counted_anew(tmp_path):
    places = []
    for name, labels in (("a", '["car", "person", "bus"]'), ("b", '["person", "car"]')):
        folder = tmp_path / name
        folder.mkdir()
        places.append(made.write(folder, made.good()))
        masks = [png(8, value) for value in (0, 1, 255)]
        table = rows(3).select("name", "frame").with_columns(mask=pl.Series(masks))
        store(folder / "data.arrow", table, {"schema_version": "2026.04", "labels": labels})
    paths = merge(places, tmp_path / "out", rename=True, renumber=True).paths
    masks = pl.read_ipc(paths.arrow).drop_nulls("mask")["mask"].to_list()
    assert [int(np.asarray(Image.open(io.BytesIO(mask)))[0, 0]) for mask in masks] == [0, 1, 255, 1, 0, 255]


def pair(folder, change=lambda number, parts: None):
    """Two good datasets of one sequence, each changed before it is written."""
    places = []
    for number, name in enumerate(("a", "b")):
        parts = made.good()
        change(number, parts)
        (folder / name).mkdir()
        places.append(made.write(folder / name, parts))
    return places


def test_no_dataset_at_all_is_no_merge(tmp_path):
    with pytest.raises(UsageError, match="no dataset is given"):
        merge([], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_samples_without_a_stamp_in_the_frames_are_left_out_and_counted(tmp_path):
    def spoil(number, parts):
        if number:
            parts.frames[0]["timestamp"] = None
            del parts.frames[1]

    places = pair(tmp_path, spoil)
    merged = merge(places, tmp_path / "out", rename=True)
    second = f"{made.SEQUENCE}-2"
    assert [(key.name, key.frame) for key in (sample.key for sample in Dataset(merged.paths.container).samples())] == [
        *((made.SEQUENCE, frame) for frame in (3, 4, 7)),
        (second, 7),
    ]
    assert f"{places[1]}: dropped, without a stamp in the frames table: 2 samples" in merged.notes
    assert merged.exit_code == 3


def test_a_dataset_all_of_whose_samples_have_no_stamp_is_not_merged(tmp_path):
    def spoil(_, parts):
        for row in parts.frames:
            row["timestamp"] = None

    with pytest.raises(DatasetError, match="no samples with a row in the frames table; no dataset is written"):
        merge(pair(tmp_path, spoil), tmp_path / "out", rename=True)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_third_sequence_of_one_name_gets_the_next_number(tmp_path):
    places = [*pair(tmp_path), made.write(tmp_path / "c", made.good())]
    merged = merge(places, tmp_path / "out", rename=True)
    assert [[*names.values()] for names in merged.sequences.values()] == [
        [made.SEQUENCE], [f"{made.SEQUENCE}-2"], [f"{made.SEQUENCE}-3"]
    ]  # fmt: skip


def test_a_sample_without_a_frame_number_is_refused_by_name(tmp_path):
    parts = made.good()
    parts.members["plain.camera.jpeg"] = made.jpeg(3)
    with pytest.raises(DatasetError, match=r"data\.zip: 'plain' has no frame number"):
        merge([made.write(tmp_path, parts)], tmp_path / "out")
    assert not (tmp_path / "out/out.zip").exists()


def test_of_two_descriptions_of_a_label_the_first_is_kept_and_the_user_is_told(tmp_path):
    described = [{"car": {"id": 1, "synonyms": ["auto"]}}, {"car": {"id": 1, "synonyms": ["c"]}, "person": {"id": 0}}]

    def describe(number, parts):
        parts.annotation_metadata["category_metadata"] = json.dumps(described[number])

    places = pair(tmp_path, describe)
    merged = merge(places, tmp_path / "out", rename=True)
    table = pa.ipc.open_file(merged.paths.arrow.read_bytes())
    found = json.loads(table.schema.metadata[b"category_metadata"])
    assert found["car"]["synonyms"] == ["auto"]
    assert set(found) == {"car", "person"}
    assert f"{tmp_path}/b/data.arrow: category_metadata of 'car' differs: the first one stays" in merged.notes


def test_a_dataset_without_annotations_is_merged_with_one_that_has_some(tmp_path):
    def spoil(number, parts):
        parts.annotations = parts.annotations if number else []

    merged = merge(pair(tmp_path, spoil), tmp_path / "out", rename=True)
    found = pl.read_ipc(merged.paths.arrow).select("name", "frame", pl.col("label").cast(pl.String))
    first = [(made.SEQUENCE, frame, None) for frame in made.FRAMES]
    assert found.rows() == [
        *first,
        *((f"{made.SEQUENCE}-2", 3, label) for label in ("car", "person", "car")),
        *((f"{made.SEQUENCE}-2", frame, None) for frame in (4, 7)),
    ]


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("schema_version", "2031.01", r"schema 2031\.01 cannot be written; known: .*2026\.04"),
        ("labels", '{"car": 1}', "metadata labels is not a list of texts"),
        ("labels", "[1, 2]", "metadata labels is not a list of texts"),
    ],
)
def test_annotations_of_another_kind_are_refused(tmp_path, key, text, told):
    def spoil(number, parts):
        if number:
            parts.annotation_metadata[key] = text

    with pytest.raises(DatasetError, match=rf"b/data\.arrow: {told}"):
        merge(pair(tmp_path, spoil), tmp_path / "out", rename=True)


def test_ids_that_are_numbers_are_told_apart(tmp_path):
    """The objects 0, 1 and 2 of another recording are others; what a device made at random is the same object."""

    def name(_, parts):
        for number, row in enumerate(parts.annotations[:2]):
            row["object_id"] = f"track {number}"

    merged = merge(pair(tmp_path, name), tmp_path / "out", rename=True)
    ids = pl.read_ipc(merged.paths.arrow).drop_nulls("object_id")["object_id"].to_list()
    assert ids[:2] == ["track 0", "track 1"]
    assert ids[2] == ids[5] == "00000000-0000-4000-8000-000000000002"
    assert len({*ids}) == 5


def test_frames_without_counts_are_refused(tmp_path):
    def spoil(number, parts):
        if number:
            del parts.frames_metadata["counts"]

    with pytest.raises(DatasetError, match=r"b/data\.frames\.arrow: the metadata have no counts"):
        merge(pair(tmp_path, spoil), tmp_path / "out", rename=True)


LABELS = ('["car", "person", "bus"]', '["person", "car"]')


def of_classes(folder, masks, labels=LABELS):
    """Two datasets of the same masks, whose labels have another order."""
    places = pair(folder)
    for place, listed in zip(places, labels, strict=True):
        table = rows(len(masks)).select("name", "frame").with_columns(mask=pl.Series(masks))
        store(place.with_name("data.arrow"), table, {"schema_version": "2026.04", "labels": listed})
    return places


def test_lists_of_label_indices_are_counted_anew(tmp_path):
    places = pair(tmp_path)
    for place, listed in zip(places, LABELS, strict=True):
        lists = pl.Series([[0, 1], [], None], dtype=pl.List(pl.UInt32))
        table = rows(3).select("name", "frame").with_columns(neg_label_indices=lists)
        store(place.with_name("data.arrow"), table, {"schema_version": "2026.04", "labels": listed})
    merged = pl.read_ipc(merge(places, tmp_path / "out", rename=True, renumber=True).paths.arrow)
    found = merged.filter(pl.col("frame") == 3).select("name", "neg_label_indices").rows()
    assert found == [
        *((made.SEQUENCE, value) for value in ([0, 1], [], None)),
        *((f"{made.SEQUENCE}-2", value) for value in ([1, 0], [], None)),
    ]


def coloured():
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("mask", "labels", "told"),
    [
        (coloured(), LABELS, "a mask of classes of mode RGB, expected 8 bits"),
        (b"no picture", LABELS, "a mask cannot be read as PNG"),
        (
            png(8, 0),
            (json.dumps([f"label {n}" for n in range(256)]), '["car"]'),
            "a mask of classes can have at most 255 labels",
        ),
    ],
)
def test_masks_of_classes_that_cannot_be_counted_anew_are_refused(tmp_path, mask, labels, told):
    with pytest.raises(DatasetError, match=rf"b/data\.arrow: {told}"):
        merge(of_classes(tmp_path, [mask], labels), tmp_path / "out", rename=True, renumber=True)
    assert list((tmp_path / "out").iterdir()) == []
