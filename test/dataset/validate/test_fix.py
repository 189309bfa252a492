# SPDX-License-Identifier: Apache-2.0
"""`validate --fix` puts right what needs no guess, leaves everything else alone, and keeps the table as it was."""

import json
import math
import os
import random
import struct
import zipfile

import handmade_dataset as made
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from handmade_dataset import SEQUENCE

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.dataset.validate.fix import fix
from edgefirst_ros.errors import DatasetError

RING = [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]
UP, DOWN = (struct.unpack("f", struct.pack("I", bits))[0] for bits in (0x3F800001, 0xB3000000))  # 1 + 2**-23, -2**-25


def write(folder, spoil, layout="zip"):
    parts = made.good()
    spoil(parts)
    return made.write(folder, parts, layout)


def rows(folder):
    return pa.ipc.open_file(folder / "data.arrow").read_all()


def put(values, *numbers):
    """Values in some rows of the good dataset: three of frame 3, then one of frame 4 and 7 each."""

    def spoil(parts):
        for number in numbers:
            parts.annotations[number].update(values)

    return spoil


def retype(name, kind, values, number=0):
    def spoil(parts):
        index = parts.annotation_schema.get_field_index(name)
        parts.annotation_schema = parts.annotation_schema.set(index, pa.field(name, kind))
        parts.annotations[number].update(values)

    return spoil


def extra(name, kind, value):
    """A further column with a value in the rows of frame 3."""

    def spoil(parts):
        parts.annotation_schema = parts.annotation_schema.append(pa.field(name, kind))
        for row in parts.annotations[:3]:
            row[name] = value

    return spoil


def stray(frame, **values):
    return lambda parts: parts.annotations.append(
        {"name": SEQUENCE, "frame": frame, "group": "train", "timestamp": made.stamp_of(frame)} | values
    )


def again(parts):
    parts.annotations.append(dict(parts.annotations[4]))


TIMING = {"load": 1, "preprocess": None, "inference": 2, "decode": 3}
FIXED = {
    # what is planted, rule and number counted, {row: {column: value afterwards}}; rows not named stay as they were
    "odd ring": (put({"polygon": [RING, RING[:5], RING]}, 0), {"TAB007": 1}, {0: {"polygon": [RING, RING]}}),
    "two points": (put({"polygon": [RING[:4]]}, 0), {"TAB007": 1, "TAB006": 1}, {0: {"polygon": None}}),
    "infinite ring": (
        put({"polygon": [[*RING[:5], math.inf], RING[::-1]]}, 1),
        {"TAB007": 1},
        {1: {"polygon": [RING[::-1]]}},
    ),
    "score above": (put({"box2d_score": 1.00001}, 1), {"TAB008": 1}, {1: {"box2d_score": None}}),
    "score NaN": (put({"box2d_score": math.nan}, 1), {"TAB008": 1}, {1: {"box2d_score": None}}),
    "score rounded up": (put({"box2d_score": UP}, 1), {"TAB008": 1}, {1: {"box2d_score": 1.0}}),
    "score rounded down": (put({"box2d_score": DOWN}, 1), {"TAB008": 1}, {1: {"box2d_score": 0.0}}),
    "box": (put({"box2d": (0.5, math.nan, 1, 1)}, 0), {"TAB009": 1}, {0: {"box2d": None, "box2d_score": None}}),
    "null in box": (put({"box2d": (0.5, None, 1, 1)}, 2), {"TAB009": 1}, {2: {"box2d": None, "box2d_score": None}}),
    "short list": (
        retype("box2d", pa.list_(pa.float64()), {"box2d": [1, 2, 3]}),
        {"TAB009": 1},
        {0: {"box2d": None, "box2d_score": None}},
    ),
    "timing": (put({"timing": TIMING | {"decode": -1}}, 0), {"TAB010": 1}, {0: {"timing": TIMING | {"decode": None}}}),
    "mask": (put({"mask": made.mask_png()[:-3]}, 2), {"TAB013": 1}, {2: {"mask": None}}),
    "location": (put({"location": (math.inf, 1)}, 3), {"TAB022": 1}, {3: {"location": None}}),
    "pose": (extra("pose", pa.list_(pa.float32(), 3), (1, 2, math.nan)), {"TAB022": 3, "TAB006": 1}, {}),
    "frame that is not there": (stray(9, label="car", label_index=1, box2d=(0.5, 0.5, 1, 1)), {"REF001": 1}, {}),
    "no name": (lambda p: p.annotations.append({"group": "train"}), {"REF001": 1}, {}),
    "says nothing": (stray(3, size=made.SIZE, location=made.POSITIONS[3][:2]), {"TAB015": 1}, {}),
    "says nothing twice": (again, {"TAB015": 1}, {}),
    "empty column": (lambda p: [row.update(group=None) for row in p.annotations], {"TAB006": 1}, {}),
    "nothing but the box": (
        stray(3, size=made.SIZE, location=made.POSITIONS[3][:2], label="car", label_index=1, box2d=(math.nan,) * 4),
        {"TAB009": 1, "TAB015": 1},
        {},
    ),
    "all that the sample has": (
        put({"label": "car", "label_index": 1, "box2d": (math.nan,) * 4, "box2d_score": 0.5}, 4),
        {"TAB009": 1, "TAB015": 1},
        {4: dict.fromkeys(("label", "label_index", "box2d", "box2d_score"))},
    ),
}


def by_rule(done):
    found = {}
    for (rule, _), number in done.changed.items():
        found[rule] = found.get(rule, 0) + number
    return found


@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("case", FIXED)
def test_what_is_planted_is_put_right_and_the_rest_stays(tmp_path, case, layout):
    spoil, counted, after = FIXED[case]
    path = write(tmp_path, spoil, layout)
    folder = tmp_path if layout == "zip" else path
    before = (folder / "data.arrow").read_bytes()
    done = fix(path)
    assert by_rule(done) == counted
    assert done.kept == folder / "data.arrow.before-fix"
    assert done.kept.read_bytes() == before
    assert sorted(p.name for p in folder.glob("data.arrow*")) == ["data.arrow", "data.arrow.before-fix"]
    assert set(validate(path, strict=True).counts) == ({"TAB002"} if case == "short list" else set())
    old = pa.ipc.open_file(pa.BufferReader(before)).read_all()
    new = rows(folder)
    assert new.schema.metadata == old.schema.metadata
    assert [f for f in old.schema if f.name in new.column_names] == list(new.schema)
    expected = [row | after.get(number, {}) for number, row in enumerate(old.to_pylist()[: new.num_rows])]
    assert new.num_rows == 5
    assert new.to_pylist() == [{name: row[name] for name in new.column_names} for row in expected]
    left_out = {"two points": {"polygon"}, "pose": {"pose"}, "empty column": {"group"}}.get(case, set())
    assert set(old.column_names) - set(new.column_names) == left_out


@pytest.mark.parametrize("case", FIXED)
def test_a_second_fix_changes_nothing(tmp_path, case):
    path = write(tmp_path, FIXED[case][0])
    fix(path)
    files = {file: (file.read_bytes(), file.stat().st_ino) for file in tmp_path.iterdir()}
    done = fix(path)
    assert not done.changed
    assert done.kept is None
    assert {file: (file.read_bytes(), file.stat().st_ino) for file in tmp_path.iterdir()} == files


def only_others(parts):
    for row in parts.annotations:
        row["name"] = "other_names"


UNTOUCHED = {
    "good": (lambda p: None, set()),
    "no time at all": (put({"timing": TIMING | {"load": 0}}, 0), set()),
    "colour mask": (put({"mask": made.mask_png("RGB")}, 0), {"TAB013", "TAB014"}),
    "8 bits": (put({"mask": made.mask_png("L")}, 0), {"TAB014"}),
    "two groups": (put({"group": "val"}, 0), {"TAB011"}),
    "listed twice": (
        lambda p: (p.annotation_metadata.update(labels='["car", "car"]'), put({"label_index": 2}, 0)(p)),
        {"TAB012"},
    ),
    "negative size": (put({"box2d": (0.5, 0.5, -1, 1)}, 0), {"TAB020"}),
    "off the earth": (put({"location": (91, 0)}, 3), {"TAB022", "REF008"}),
    "names that differ": (only_others, {"REF001", "REF002"}),
    "a type that none has": (retype("box2d_score", pa.large_string(), {"box2d_score": "1.5"}), {"TAB001"}),
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_what_would_be_a_guess_is_left(tmp_path, case):
    parts = made.good()
    UNTOUCHED[case][0](parts)
    if case == "a type that none has":
        for row in parts.annotations:
            row["box2d_score"] = "1.5"
    path = made.write(tmp_path, parts)
    files = {file: file.read_bytes() for file in tmp_path.iterdir()}
    done = fix(path)
    assert not done.changed
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == files
    assert set(validate(path, strict=True).counts) == UNTOUCHED[case][1]


def test_of_rows_that_say_nothing_one_that_was_so_before_stays(tmp_path):
    """The other said something that could not be kept."""
    parts = made.good()
    stray(7, size=made.SIZE, label="car", label_index=1, box2d=(math.nan,) * 4)(parts)
    parts.annotations.insert(4, parts.annotations.pop())
    done = fix(made.write(tmp_path, parts))
    assert done.changed == {
        ("TAB009", "values of box2d that are not finite made null"): 1,
        ("TAB015", "rows left without geometry removed"): 1,
    }


def test_a_column_of_emptied_rows_alone_goes_with_its_values(tmp_path):
    column, lost = extra("category_frequency", made.CATEGORY, None), {"label": "car", "box2d": (math.nan,) * 4}
    path = write(tmp_path, lambda p: (column(p), put(lost | {"category_frequency": "f"}, 4)(p)))
    assert by_rule(fix(path)) == {"TAB009": 1, "TAB015": 1, "TAB006": 1}
    assert "category_frequency" not in rows(tmp_path).column_names
    assert validate(path, strict=True).ok


def test_the_column_of_frames_stays_where_it_is_null(tmp_path):
    parts = made.good()
    parts.annotations = [row | {"frame": None} for row in parts.annotations[:3]]
    assert not fix(made.write(tmp_path, parts)).changed


def test_rows_of_a_picture_without_a_frame_stay(tmp_path):
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("road.camera.jpeg", made.jpeg(4))
        archive.writestr(made.name_of(7, "camera.jpeg"), made.jpeg(7))
    boxes = [[0.5, 0.5, 0.2, 0.2], [math.nan] * 4, [0.5, 0.5, 0.2, 0.2]]
    table = {"name": ["road", "road", "gone"], "frame": [None] * 3, "label": ["car"] * 3, "box2d": boxes}
    kinds = {"frame": pl.UInt32, "box2d": pl.Array(pl.Float32, 4)}
    pl.DataFrame(table, schema_overrides=kinds).write_ipc(tmp_path / "data.arrow")
    found = by_rule(fix(tmp_path / "data.zip"))
    assert (found["REF001"], found["TAB015"]) == (1, 1)
    assert Dataset(tmp_path / "data.zip").annotations["name"].to_list() == ["road"]


def test_an_index_of_a_label_is_never_renumbered(tmp_path):
    assert not fix(write(tmp_path, put({"label_index": 90}, 0, 2))).changed


def test_polygons_of_2025_10_lose_their_broken_rings(tmp_path):
    """Rows that are whole keep every value, two NaN in a row too."""
    nan = math.nan
    masks = [[*RING, nan, *RING[:5], nan, *RING[::-1]], [*RING, nan, nan, *RING, nan], None]

    def old(parts):
        names = ("name", "frame", "label", "group", "mask", "box2d", "size")
        found = [f for f in made.ANNOTATIONS if f.name in names]
        parts.annotation_schema = pa.schema(
            [f.with_type(pa.large_list(pa.float32())) if f.name == "mask" else f for f in found]
        )
        parts.annotation_metadata = {}
        for row, mask in zip(parts.annotations, masks, strict=False):
            row["mask"] = mask

    path = write(tmp_path, old)
    assert by_rule(fix(path)) == {"TAB007": 1}
    found = rows(tmp_path)["mask"].to_pylist()
    np.testing.assert_array_equal(found[0], [*RING, nan, *RING[::-1]])
    np.testing.assert_array_equal(found[1], masks[1])
    assert found[2:] == [None] * 3


def test_tables_as_polars_writes_them(tmp_path):
    """Text as views, categories, lists for boxes, batches of different length."""
    path = write(tmp_path, lambda p: (put({"box2d_score": 2.0}, 1)(p), stray(9, label="car")(p)))
    table = pl.DataFrame(pl.from_arrow(rows(tmp_path)))
    table = table.with_columns(pl.col("box2d").arr.to_list(), pl.col("polygon").cast(pl.List(pl.List(pl.Float64))))
    (tmp_path / "data.arrow").unlink()
    table.write_ipc(tmp_path / "data.arrow", compat_level=pl.CompatLevel.newest(), record_batch_size=2)
    assert by_rule(fix(path)) == {"TAB008": 1, "REF001": 1}
    wanted = table.head(5).with_columns(
        pl.when(pl.col("box2d_score") <= 1).then(pl.col("box2d_score")).alias("box2d_score")
    )
    found = pl.read_ipc(tmp_path / "data.arrow")
    assert found.schema == wanted.schema
    assert found.rows() == wanted.rows()


def test_parquet_stays_parquet(tmp_path):
    path = write(tmp_path, put({"box2d_score": 2.0}, 1))
    table = rows(tmp_path)
    (tmp_path / "data.arrow").unlink()
    pa.parquet.write_table(table, tmp_path / "data.parquet")
    assert fix(path).kept == tmp_path / "data.parquet.before-fix"
    found = pa.parquet.ParquetFile(tmp_path / "data.parquet")
    assert found.read(["box2d_score"])["box2d_score"].to_pylist() == [0.75, None, 0.75, None, None]
    assert found.schema_arrow.metadata[b"labels"] == b'["person", "car"]'
    assert validate(path).ok
    assert not fix(path).changed


def test_the_table_of_an_earlier_fix_is_never_overwritten(tmp_path):
    path = write(tmp_path, put({"box2d_score": 2.0}, 1))
    (tmp_path / "data.arrow.before-fix").write_bytes(b"older")
    before = (tmp_path / "data.arrow").read_bytes()
    with pytest.raises(DatasetError, match=r"data\.arrow\.before-fix exists.*move it away"):
        fix(path)
    assert (tmp_path / "data.arrow.before-fix").read_bytes() == b"older"
    assert (tmp_path / "data.arrow").read_bytes() == before


def test_a_fix_that_was_killed_before_its_last_step_is_done_again(tmp_path):
    path = write(tmp_path, put({"box2d_score": 2.0}, 1))
    before = (tmp_path / "data.arrow").read_bytes()
    os.link(tmp_path / "data.arrow", tmp_path / "data.arrow.before-fix")
    (tmp_path / "data.arrow.new.partial").write_bytes(b"cut")
    assert fix(path).changed
    assert (tmp_path / "data.arrow.before-fix").read_bytes() == before
    assert not (tmp_path / "data.arrow.new.partial").exists()
    assert validate(path, strict=True).ok


def test_an_unfinished_dataset_is_refused(tmp_path):
    path = write(tmp_path, put({"box2d_score": 2.0}, 1))
    (tmp_path / "data.zip.partial").write_bytes(b"")
    with pytest.raises(DatasetError, match="not finished; run edgefirst-ros recover"):
        fix(path)


def test_many_rows_batch_by_batch(tmp_path):
    """What becomes of each of 50 000 rows, told one by one."""
    choose, parts = random.Random(3), made.good()
    good, expected, counted = parts.annotations[0], [], {"REF001": 0, "TAB008": 0}
    parts.annotations = []
    for number in range(50_000):
        frame, score = choose.choice((3, 3, 3, 4, 7, 9)), choose.choice((0.0, 0.5, 1.0, 7.0, -1.0))
        identity = f"00000000-0000-4000-8000-{number:012d}"
        values = {"frame": frame, "box2d_score": score, "object_id": identity}
        parts.annotations.append(good | values | {"timestamp": made.stamp_of(frame), "polygon": None, "mask": None})
        counted["REF001"] += frame == 9
        counted["TAB008"] += not 0 <= score <= 1
        if frame != 9:
            expected.append((frame, identity, score if 0 <= score <= 1 else None))
    path = made.write(tmp_path, parts)
    table = rows(tmp_path).drop_columns(["polygon", "mask"])
    with pa.ipc.new_file(tmp_path / "data.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=777)
    assert by_rule(fix(path)) == counted
    found = rows(tmp_path).select(["frame", "object_id", "box2d_score"]).to_pydict()
    assert list(zip(*found.values(), strict=True)) == expected


def test_the_command_tells_what_it_did_and_what_is_left(tmp_path):
    from typer.testing import CliRunner

    from edgefirst_ros.cli.app import app

    path = write(tmp_path, lambda p: (put({"box2d_score": 2.0}, 1)(p), put({"group": "val"}, 0)(p)))
    done = CliRunner().invoke(app, ["validate", str(path), "--fix"])
    assert done.exit_code == 1
    first, second, *_ = done.stdout.splitlines()
    assert first == "TAB008 fixed: 1 x values of box2d_score brought to 0..1 or made null"
    assert second == f"the table as it was: {path.parent / 'data.arrow.before-fix'}"
    assert "TAB011 error" in done.stdout
    assert "TAB008 error" not in done.stdout
    done = CliRunner().invoke(app, ["validate", str(write(tmp_path / "good", lambda p: None)), "--fix", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["fix"] == {"kept": None, "changed": []}


def test_the_verb_validates_several_datasets(tmp_path):
    from typer.testing import CliRunner

    from edgefirst_ros.cli.app import app

    paths = [write(tmp_path / name, lambda p: None) for name in ("one", "two")]
    done = CliRunner().invoke(app, ["validate", *map(str, paths), "--json"])
    assert (done.exit_code, [one["ok"] for one in json.loads(done.stdout)]) == (0, [True, True])
    paths[1].unlink()
    assert CliRunner().invoke(app, ["validate", *map(str, paths)]).exit_code == 1
