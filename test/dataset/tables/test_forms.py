# SPDX-License-Identifier: Apache-2.0
"""Annotations in every form: nothing gets lost between them, and what other tools write is read."""

import io
import json

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from annotation_tables import COLUMNS, IN_2025, PROPERTY, ROWS, TEXT, rows_of, same, store, table
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from edgefirst_ros import migrate
from edgefirst_ros.dataset import schema
from edgefirst_ros.dataset.tables import arrow_file
from edgefirst_ros.dataset.tables.forms import read_annotations
from edgefirst_ros.errors import DatasetError, UsageError


@PROPERTY
@given(rows=ROWS, order=st.permutations([".parquet", ".json", ".arrow"]))
def test_nothing_is_lost_between_the_forms(tmp_path_factory, rows, order):
    folder = tmp_path_factory.mktemp("forms")
    path = store(folder / "start.arrow", table(rows, metadata={"labels": '["a"]', "other": "kept"}))
    for number, suffix in enumerate(order):
        report = migrate(path, folder / f"{number}{suffix}", "2026.04")
        path = report.out
        assert (report.rows, report.lost, report.exit_code) == (len(rows), {}, 0)
        same(rows_of(path), rows)
        metadata = read_annotations(path).metadata
        assert json.loads(metadata["labels"]) == ["a"]
        assert metadata["other"] == "kept"


@PROPERTY
@given(
    rows=st.lists(st.fixed_dictionaries({"name": TEXT, **{n: COLUMNS[n] for n in IN_2025}}), max_size=5),
    suffix=st.sampled_from([".arrow", ".parquet", ".json"]),
    box=st.lists(st.tuples(*[st.integers(0, 2**20).map(lambda n: n / 2**20)] * 4).map(list), min_size=5, max_size=5),
)
def test_2025_10_and_back(tmp_path_factory, rows, suffix, box):
    for row, numbers in zip(rows, box, strict=False):
        row["box2d"] = row["box2d"] and numbers  # to the edges and back: exact for these
    folder = tmp_path_factory.mktemp("versions")
    path = store(folder / "start.arrow", table(rows))
    older = migrate(path, folder / f"older{suffix}", "2025.10")
    newer = migrate(older.out, folder / "newer.arrow", "2026.10")
    again = migrate(newer.out, folder / "again.arrow", "2026.04")
    assert (older.lost, newer.lost, again.lost) == ({}, {}, {})
    assert read_annotations(older.out).version == "2025.10"
    same(rows_of(again.out), rows)
    if any(row["pose"] for row in rows):
        stored = pl.read_ipc(newer.out.read_bytes())["pose"].to_list()
        assert stored == [row["pose"] and row["pose"][::-1] for row in rows]


def test_columns_are_those_of_the_published_schema(tmp_path):
    """Column by column, read by polars; the published text is in test_schema."""
    from test_schema import published

    ring = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
    row = {
        "name": "s", "frame": 1, "object_id": "o", "label": "l", "label_index": 1, "group": "train", "polygon": [ring],
        "polygon_score": 1.0, "mask": b"m", "mask_score": 1.0, "box2d": [0.0] * 4, "box2d_score": 1.0,
        "box3d": [0.0] * 6, "box3d_score": 1.0, "iscrowd": True, "category_frequency": "f", "size": [1, 1],
        "location": [1.0, 2.0], "pose": [1.0, 2.0, 3.0], "degradation": "low", "neg_label_indices": [1],
        "not_exhaustive_label_indices": [2], "timing": dict.fromkeys(("load", "preprocess", "inference", "decode"), 1),
    }  # fmt: skip
    report = migrate(store(tmp_path / "a.parquet", table([row])), tmp_path / "b.arrow")
    assert list(pl.read_ipc(report.out.read_bytes()).schema.items()) == list(published().items())


ALL = [
    {"name": "a", "frame": 1, "label": "car", "box2d": [0.5, 0.5, 0.25, 0.125], "iscrowd": True},
    {"name": "b", "frame": 2, "label": None, "box2d": None, "iscrowd": None},
    {"name": "b", "frame": 3, "label": "dog", "box2d": [0.0, 0.25, 0.5, 1.0], "iscrowd": False},
]


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
@pytest.mark.parametrize(
    "kinds",
    [
        {"name": pa.string(), "label": pa.string(), "frame": pa.int16()},
        {"name": pa.dictionary(pa.int8(), pa.string()), "label": pa.dictionary(pa.int32(), pa.large_string())},
        {"box2d": pa.list_(pa.float64()), "frame": pa.uint64()},
        {"box2d": pa.large_list(pa.float64()), "frame": pa.int64(), "iscrowd": pa.uint8()},
        {"box2d": pa.list_(pa.float64(), 4), "iscrowd": pa.int32()},
    ],
)
def test_types_of_other_tools(tmp_path, kinds, suffix):
    for version in ("2025.10", "2026.04"):
        same(rows_of(store(tmp_path / f"a{suffix}", table(ALL, kinds, version))), ALL, ALL[0])


def test_types_of_polars(tmp_path):
    """Categorical, Enum and string views with dictionaries, as polars writes them."""
    frame = pl.DataFrame(ALL, schema_overrides={"box2d": pl.Array(pl.Float64, 4), "label": pl.Categorical})
    for number, kind in enumerate((pl.Categorical, pl.Enum(["dog", "car"]), pl.String)):
        path = tmp_path / f"{number}.arrow"
        frame.with_columns(pl.col("label").cast(kind), group=pl.lit(None)).write_ipc(path)
        same(rows_of(path), ALL, ALL[0])
        frame.with_columns(pl.col("label").cast(kind)).write_parquet(path.with_suffix(".parquet"))
        same(rows_of(path.with_suffix(".parquet")), ALL, ALL[0])


def test_first_format(tmp_path):
    """(lon, lat) and (roll, pitch, yaw) in Float64, recognised or by option; `status` stays."""
    rows = [{"name": "a", "frame": 1, "location": [-73.5, 45.5], "pose": [1.0, 2.0, 3.0], "status": "edit"}]
    kinds = {c.name: c.type for c in schema.list_columns("2025.01").values()}
    path = store(tmp_path / "a.arrow", table(rows, kinds, "2025.10"))
    for options in ({}, {"location_order": "lon-lat", "pose_order": "roll-pitch-yaw"}):
        report = migrate(path, tmp_path / "b.arrow", **options, overwrite=True)
        found = pl.read_ipc(report.out.read_bytes())
        assert found.select("location", "pose", "status").row(0) == ([45.5, -73.5], [3.0, 2.0, 1.0], "edit")
        assert report.changed["location: longitude, latitude to latitude, longitude"] == 1
        assert found.schema["location"] == pl.Array(pl.Float32, 2)
        assert report.from_version == "2025.01"
        assert any("first format" in note and "longitude, latitude" in note for note in report.notes)
    with pytest.raises(UsageError, match="lat-lon, lon-lat"):
        migrate(path, tmp_path / "c.arrow", location_order="xy")


def test_versions_of_the_future(tmp_path):
    found = table(ALL).append_column("novel", pa.array([[1], None, [2, 3]]))
    path = store(tmp_path / "a.arrow", found.replace_schema_metadata({"schema_version": "2031.04"}))
    annotations = read_annotations(path)
    assert annotations.version == "2031.04"
    assert "2031.04 is not known" in "".join(annotations.tally.notes)
    for suffix in (".parquet", ".json", ".arrow"):
        path = migrate(path, tmp_path / f"b{suffix}").out
        same(
            rows_of(path),
            [row | {"novel": n} for row, n in zip(ALL, ([1], None, [2, 3]), strict=True)],
            [*ALL[0], "novel"],
        )


def test_columns_of_any_type_are_carried(tmp_path):
    """Arrow and Parquet hold them; what JSON cannot is counted."""
    stamp = pa.array([1, None, 10**18 + 1], pa.timestamp("ns"))
    odd = pa.array([{"a": b"x"}, None, {"a": None}], pa.struct([("a", pa.binary())]))
    path = store(tmp_path / "a.arrow", table(ALL).append_column("stamp", stamp).append_column("odd", odd))
    for suffix in (".parquet", ".arrow"):
        path = migrate(path, tmp_path / f"b{suffix}").out
        with pa.ipc.open_file(path) if suffix == ".arrow" else pq.ParquetFile(path) as file:
            found = file.read_all() if suffix == ".arrow" else file.read(["stamp", "odd"])
        assert found["stamp"].combine_chunks().equals(stamp)
        assert found["odd"].to_pylist() == odd.to_pylist()
    report = migrate(path, tmp_path / "c.json")
    assert report.lost == {"stamp: JSON has no place for it": 2, "odd: JSON has no place for it": 2}
    same(rows_of(report.out), ALL, ALL[0])


def test_what_json_cannot_hold_is_counted(tmp_path):
    nan = float("nan")
    odd = {
        "heat": [1.5, nan, float("inf")],
        "frame_number": [1, 2, 3],
        "curve": [[1.5], [nan], None],
        "timing": [{"load": 1, "other": 2}, None, {"load": 2, "other": None}],
    }
    path = store(tmp_path / "a.arrow", pa.table({"name": ["a", "b", "c"], **odd}))
    report = migrate(path, tmp_path / "b.json")
    assert report.lost == {
        "heat: NaN and infinity, which JSON has not": 2,
        "frame_number: JSON has no place for it": 3,
        "curve: JSON has no place for it": 2,
    }
    assert [row["heat"] for row in rows_of(report.out)] == [1.5, None, None]
    assert [row["timing"] and row["timing"]["load"] for row in rows_of(report.out)] == [1, None, 2]
    assert not any("timing" in reason for reason in migrate(report.out, tmp_path / "c.arrow").lost)


@pytest.mark.parametrize("way", ["arrow", "parquet", "2026.10", "json", "label"])
def test_fields_of_timing_that_no_version_knows_are_carried(tmp_path, way):
    """The schema document: fields are extensible, future ones do not break older readers."""
    times = [{"load": 1, "wait": 7, "queue": "a"}, None, {"decode": 3, "wait": None, "queue": "b"}]
    given = pa.table({"name": ["a", "a", "a"], "frame": pa.array([1, 1, 2], pa.uint32()), "label": ["car"] * 3})
    given = given.append_column("timing", pa.array(times)).replace_schema_metadata({"schema_version": "2026.04"})
    path = store(tmp_path / "a.arrow", given)
    out = tmp_path / f"b.{way if way in ('parquet', 'json') else 'arrow'}"
    if way == "label":
        known = read_annotations(path).frame()
        assert known["timing"].struct.field("wait").to_list() == [7, None, None]
        return
    report = migrate(path, out, way if way == "2026.10" else "2026.04")
    assert (report.exit_code, report.lost) == (0, {})
    if way == "json":
        text = [row["timing"] for sample in json.loads(out.read_text())["samples"] for row in sample["annotations"]]
        assert [one and (one["wait"], one["queue"]) for one in text] == [(7, "a"), None, (None, "b")]
        report = migrate(out, out := tmp_path / "c.arrow", "2026.04")
        assert (report.exit_code, report.lost) == (0, {})
    found = pl.read_parquet(out) if way == "parquet" else pl.read_ipc(out.read_bytes())
    rows = [None if row is None else (row["load"], row["decode"], row["wait"], row["queue"]) for row in found["timing"]]
    assert rows == [(1, None, 7, "a"), None, (None, 3, None, "b")]


@pytest.mark.parametrize("interpretation", ["binary", "confidence", "sigmoid"])
@pytest.mark.parametrize(("kind", "values", "lost"), [
    (np.uint8, (0, 3, 127, 128, 250, 255), True),
    (np.uint8, (0, 255, 255, 0, 255, 0), False),
    (np.uint16, (0, 3, 32767, 32768, 65000, 65535), True),
    (np.uint16, (0, 65535, 65535, 0, 0, 0), False),
])  # fmt: skip
def test_masks_of_scores_that_become_outlines_lose_them(tmp_path, kind, values, lost, interpretation):
    """Object is what is above half of the range, as PIL fills the outline again."""
    file = io.BytesIO()
    pixels = np.array([values], kind).repeat(4, axis=0).repeat(4, axis=1)
    Image.fromarray(pixels).save(file, "PNG")
    row = {"name": "a", "frame": 1, "label": "car", "box2d": [0.5, 0.5, 1, 1], "mask": file.getvalue()}
    given = table([row], metadata={"mask_interpretation": interpretation})
    report = migrate(store(tmp_path / "a.arrow", given), tmp_path / "b.arrow", "2025.10")
    half = int(np.iinfo(kind).max) // 2
    reason = f"mask: scores of its pixels, object is above {half}, half of the range"
    assert {name: number for name, number in report.lost.items() if name.startswith("mask:")} == (
        {reason: 1} if lost else {}
    )
    assert report.exit_code == (3 if report.lost else 0)
    filled = Image.new("1", pixels.shape[::-1])
    for ring in (one["polygon"] for one in rows_of(report.out)):
        for points in ring:
            corners = [(x * 24, y * 4) for x, y in zip(points[::2], points[1::2], strict=True)]
            left, right = min(x for x, _ in corners), max(x for x, _ in corners)
            filled.paste(1, (round(left), 0, round(right), 4))
    assert np.array_equal(np.asarray(filled), pixels > half)


@pytest.mark.parametrize("said", ["2026", "new", "2026.4"])
def test_versions_that_are_none(tmp_path, said):
    path = store(tmp_path / "a.arrow", table(ALL).replace_schema_metadata({"schema_version": said}))
    assert read_annotations(path).version == "2025.10"
    assert migrate(path, tmp_path / "b.arrow").notes == [
        f"schema_version is {said!r}, must be like 2026.04: passed over"
    ]


def test_version_shown_by_columns(tmp_path):
    rows = [{"name": "a", "frame": 1, "mask": b"png"}]
    path = store(tmp_path / "a.arrow", table(rows).replace_schema_metadata(None))
    assert read_annotations(path).version == "2026.04"


BAD_RINGS = [[0.0, 0.0, 1.0, 0.0], [0.0] * 7, [0.0, 0.0, 1.0, float("inf"), 1.0, 1.0], []]
GOOD_RING = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("bad", BAD_RINGS)
def test_bad_rings_are_dropped(tmp_path, bad):
    rows = [{"name": "a", "frame": 1, "polygon": [bad, GOOD_RING]}, {"name": "a", "frame": 1, "polygon": [bad]}]
    rows.append({"name": "a", "frame": 1, "polygon": []})
    report = migrate(store(tmp_path / "a.arrow", table(rows)), tmp_path / "b.arrow")
    assert report.lost == {"polygon: rings that are odd, under three points or not finite": 2}
    assert report.exit_code == 3
    assert [row["polygon"] for row in rows_of(report.out)] == [[GOOD_RING], None, []]


@pytest.mark.parametrize(
    ("column", "bad", "kind"),
    [
        ("box2d", [0, 0, 1, float("nan")], None),
        ("box2d", [0, 0, 1], pa.list_(pa.float32())),
        ("box2d", [0, 0, 1, None], pa.list_(pa.float32())),
        ("box3d", [0, 0, 1, 0, 0, float("inf")], None),
        ("box2d", [0, 0, 1, 1e300], pa.list_(pa.float64(), 4)),
        ("box2d_score", 1.01, None),
        ("mask_score", float("nan"), None),
    ],
)
def test_bad_values_are_counted(tmp_path, column, bad, kind):
    good = [0.5] * 4 if column == "box2d" else [0.5] * 6 if column == "box3d" else 0.5
    rows = [{"name": "a", "frame": 1, column: good}, {"name": "a", "frame": 1, column: bad}]
    path = store(tmp_path / "a.arrow", table(rows, {column: kind} if kind else None))
    report = migrate(path, tmp_path / "b.arrow")
    assert list(report.lost.values()) == [1]
    assert next(iter(report.lost)).startswith(f"{column}: ")
    assert [row[column] for row in rows_of(report.out)] == [good, None]


@pytest.mark.parametrize(
    ("column", "values", "kind", "message"),
    [
        ("frame", [-1], pa.int64(), "out of bounds|not in range"),
        ("frame", [2**32], pa.int64(), "out of bounds|not in range"),
        ("frame", ["1"], pa.string(), "is string, must be uint32"),
        ("label", [1], pa.int32(), "must be large_string"),
        ("label_index", [-1], pa.int64(), "out of bounds|not in range"),
        ("box2d", ["x"], pa.string(), "is string"),
        ("mask", ["x"], pa.string(), "is string"),
        ("polygon", [[True]], pa.list_(pa.bool_()), "is bool"),
        ("timing", [1], pa.int64(), "is int64"),
        ("name", [None], pa.string(), "must not be"),
    ],
)
def test_columns_that_cannot_be_read(tmp_path, column, values, kind, message):
    found = {"name": pa.array(["a"]), "frame": pa.array([1], pa.uint32())} | {column: pa.array(values, kind)}
    for suffix in (".arrow", ".parquet"):
        path = store(tmp_path / f"a{suffix}", pa.table(found))
        with pytest.raises(DatasetError, match=rf"a{suffix}: column '{column}'.*{message}"):
            migrate(path, tmp_path / "b.arrow")
        assert not list(tmp_path.glob("b*"))


def test_no_annotations(tmp_path):
    with pytest.raises(DatasetError, match="no column 'name'"):
        read_annotations(store(tmp_path / "a.arrow", pa.table({"x": [1]})))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(DatasetError, match=r"b\.parquet"):
        read_annotations(tmp_path / "b.parquet")
    with pytest.raises(DatasetError):
        read_annotations(tmp_path / "not there.arrow")


@settings(max_examples=60)
@given(
    place=st.integers(0, 10**6),
    noise=st.binary(min_size=1, max_size=8),
    suffix=st.sampled_from([".arrow", ".parquet", ".json"]),
)
def test_damaged_files_end_in_an_error(tmp_path_factory, place, noise, suffix):
    folder = tmp_path_factory.getbasetemp()
    good = folder / f"good{suffix}"
    if not good.exists():
        rows = [ALL[0] | {"polygon": [GOOD_RING], "mask": b"m", "group": "val"}, *ALL]
        migrate(store(folder / "made.arrow", table(rows)), good)
    data = bytearray(good.read_bytes())
    place %= len(data)
    data[place : place + len(noise)] = noise
    bad = folder / f"bad{suffix}"
    bad.write_bytes(data)
    try:
        migrate(bad, folder / "damaged.json", overwrite=True)
    except DatasetError as error:
        assert "bad" in str(error) or "damaged" in str(error)  # noqa: PT017  (most damage is one, not all)


def test_a_column_under_its_old_and_its_new_name_is_refused(tmp_path):
    path = store(tmp_path / "a.arrow", pa.table({"name": ["a"], "object_reference": ["1"], "object_id": ["2"]}))
    with pytest.raises(DatasetError, match=r"columns 'object_reference' and 'object_id' both hold object_id"):
        read_annotations(path)


def test_columns_that_hold_nothing_are_null_whatever_they_should_hold(tmp_path):
    empty = {name: pa.nulls(1) for name in ("label", "box2d", "mask")}
    path = store(tmp_path / "a.arrow", pa.table({"name": ["a"], **empty}))
    annotations = read_annotations(path)
    assert pa.Table.from_batches(annotations.batches()).to_pylist() == [{"name": "a", **dict.fromkeys(empty)}]
    assert (annotations.version, annotations.tally.lost) == (schema.UNNAMED_VERSION, {})


def test_numbers_that_are_stored_once_for_many_rows_are_carried_as_numbers(tmp_path):
    """A dictionary of integers, in a column that no version knows."""
    index = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1]), pa.array([70, 90]))
    path = store(tmp_path / "a.arrow", pa.table({"name": ["a"] * 4, "gain": index}))
    migrate(path, tmp_path / "b.parquet")
    found = pq.read_table(tmp_path / "b.parquet")["gain"]
    assert found.type == pa.int64()
    assert found.to_pylist() == [90, 70, None, 90]


@pytest.mark.parametrize("version", [25, 26])
def test_nulls_in_lists_of_fixed_size_are_read_from_parquet(tmp_path, monkeypatch, version):
    """Also as before pyarrow 26, which itself raises ArrowInvalid for them: without the Arrow schema of the file."""
    if version > arrow_file.PYARROW:
        pytest.skip("this pyarrow cannot read them")
    monkeypatch.setattr(arrow_file, "PYARROW", version)
    boxes = [None, [1.0, 2.0, 3.0, 4.0], None, [5.0, 6.0, 7.0, None]]
    columns = {
        "box": pa.array(boxes, pa.list_(pa.float32(), 4)),
        "name": pa.array(["a", None, "b", "a"]).dictionary_encode(),
        "text": pa.array(["x", "y", None, "z"], pa.large_string()),
        "empty": pa.array([None] * 4, pa.list_(pa.float64(), 2)),
    }
    pq.write_table(pa.table(columns), tmp_path / "some.parquet")
    found = arrow_file.TableFile(tmp_path / "some.parquet")
    (batch,) = found.batches()
    assert batch.schema.types == [column.type for column in columns.values()]
    assert found.values(list(columns)) == {name: column.to_pylist() for name, column in columns.items()}
