# SPDX-License-Identifier: Apache-2.0
"""Finished datasets with other groups: the tables of annotations alone change, all at once or not at all."""

import os
import shutil
import zipfile

import polars as pl
import pyarrow as pa
import pytest
from handmade_dataset import jpeg

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.grouping import SAMPLES, GroupRule, Kind
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.regroup import GroupCounts, GroupRows, split
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, StorageError, UsageError
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"size": (160, 96), "codec": "jpeg", "fps": 10.0, "cube_shape": (1, 8, 2, 8), "lidar_points": 50}
SHARES = {"train": 0.8, "val": 0.2}
BLOCKS = GroupRule(SHARES, block=250_000_000, gap=100_000_000)
CAMERA = {"camera", "model/boxes2d", "model/info"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Datasets monday, tuesday (files instead of a ZIP) and night (without radar and lidar), and their recordings."""
    place = tmp_path_factory.mktemp("made")
    for seed, (name, seconds) in enumerate((("monday", 2.0), ("tuesday", 1.0), ("night", 1.0))):
        topics = {"topics": CAMERA} if name == "night" else {}
        write_recording(place / f"{name}.mcap", Recipe(seed=seed, seconds=seconds, **SMALL, **topics))
        convert(place / f"{name}.mcap", place / "out", layout="directory" if name == "tuesday" else "zip")
    return place


@pytest.fixture
def desk(made, tmp_path):
    return shutil.copytree(made / "out", tmp_path / "out")


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def groups(*datasets):
    """Groups of each sequence, without those of no sample."""
    rows = pl.concat([Dataset(path).annotations for path in datasets], how="diagonal_relaxed")
    return {name: set(part["group"].cast(str)) for (name,), part in rows.group_by("name")}


def test_only_the_annotations_change_and_they_are_those_of_a_conversion_with_the_split(made, desk, tmp_path):
    before = files(desk)
    split([desk / "monday.zip"], BLOCKS)
    after = files(desk)
    assert {path for path in after if after[path] != before.get(path)} == {(desk / "monday.arrow").relative_to(desk)}
    options = {"split": SHARES, "split_block": 0.25, "split_gap": 0.1}
    whole = convert(made / "monday.mcap", tmp_path / "whole", **options)
    assert after[(desk / "monday.arrow").relative_to(desk)] == whole.paths.arrow.read_bytes()
    assert pl.read_ipc(whole.paths.arrow)["group"].null_count() > 0


def test_pictures_without_a_row_are_told_as_without_a_group(tmp_path):
    """Six pictures without frames or a table of them, of which two have labels; a third row has no picture."""
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for number in range(6):
            archive.writestr(f"p{number}.camera.jpeg", jpeg(number))
    rows = {"name": ["p0", "p1", "gone"], "frame": [None] * 3, "label": ["car"] * 3}
    pl.DataFrame(rows, schema_overrides={"frame": pl.UInt32}).write_ipc(tmp_path / "data.arrow")
    done = split([tmp_path / "data.zip"], GroupRule(named={"test": ("p0", "p1")}))
    assert done.plain()["groups"]["test"] == {"samples": 2, "sensors": {}, "labels": {"car": 2}}
    assert done.plain()["without_group"] == 1 + 4
    assert groups(tmp_path / "data.zip") == {"p0": {"test"}, "p1": {"test"}, "gone": {None}}


def test_pictures_without_a_frame_have_the_stamps_of_the_table_of_frames(tmp_path):
    """Three pictures a second apart, each of two labels, by blocks of a second; they are counted once."""
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for number in range(3):
            archive.writestr(f"p{number}.camera.jpeg", jpeg(number))
    names, numbers = [f"p{n}" for n in range(3)], {"frame": pl.UInt32, "timestamp": pl.Int64}
    stamps = [n * 1_000_000_000 for n in range(3)]
    frames = {"name": names, "frame": [None] * 3, "timestamp": stamps}
    pl.DataFrame(frames, schema_overrides=numbers).write_ipc(tmp_path / "data.frames.arrow")
    rows = {"name": [*names, *names], "frame": [None] * 6, "timestamp": [None] * 6, "label": ["car"] * 6}
    pl.DataFrame(rows, schema_overrides=numbers).write_ipc(tmp_path / "data.arrow")
    found = GroupRows(Dataset(tmp_path / "data.zip").paths)
    assert found.annotations["timestamp"].to_list() == stamps * 2
    assert found.samples.select("name", "frame", "timestamp").rows() == [(f"p{n}", None, n * 10**9) for n in range(3)]
    done = split([tmp_path / "data.zip"], GroupRule(named={"test": ("p0", "p1")}))
    assert done.plain()["groups"]["test"] == {"samples": 2, "sensors": {}, "labels": {"car": 4}}
    assert done.plain()["without_group"] == 1


def test_it_can_be_done_again(desk):
    for rule in (BLOCKS, GroupRule(named={"test": ("mon*",)}), GroupRule(named={"test": ("*",)})):
        split([desk / "monday"], rule)
    assert groups(desk / "monday") == {"monday": {"test"}}
    assert validate(desk / "monday", strict=True).ok
    split([desk / "monday", desk / "tuesday"], GroupRule(named={"test": ("tue*",)}))
    assert groups(desk / "monday", desk / "tuesday") == {"monday": {"test"}, "tuesday": {"test"}}


def test_several_datasets_are_one_set_of_sequences(desk):
    done = split([desk / "night.zip", desk / "tuesday", desk / "monday.arrow"], GroupRule({"a": 0.5, "b": 0.5}))
    found = groups(desk / "night", desk / "tuesday", desk / "monday")
    assert sorted(map(len, found.values())) == [1, 1, 1]
    assert found["monday"] != found["tuesday"] == found["night"]  # 20 samples, 10 and 10
    assert {group: tally[SAMPLES] for group, tally in done.counts.groups.items()} == {"a": 20, "b": 20}
    again = split([desk / "monday", desk / "night", desk / "tuesday"], GroupRule({"b": 0.5, "a": 0.5}))
    assert groups(desk / "night", desk / "tuesday", desk / "monday") == found
    assert again.counts.plain == {group: done.counts.plain[group] for group in ("b", "a")}


def test_what_a_group_lacks_is_said(desk):
    done = split([desk / "night", desk / "monday"], GroupRule(named={"test": ("night",), "train": ("mon*",)}))
    assert done.counts.groups["train"][Kind("sensor", "radar.cube")] == 20
    lacks = "group test has no sensors lidar.points, radar.cube, radar.targets, which another group has"
    assert lacks in done.counts.notes
    done = split([desk / "night"], GroupRule(SHARES, block=10**18))
    assert done.counts.notes == [
        "group val is empty: it needs more sequences, or a shorter split_block, such as 1",
        "shares of samples: train 80 % asked, 100.0 % got, val 20 % asked, 0.0 % got",
    ]
    assert done.counts.plain["val"] == {"samples": 0, "sensors": {}, "labels": {}}


def test_merge_gives_groups_by_the_names_that_sequences_have(desk, tmp_path):
    twins = [desk / "monday", shutil.copytree(desk, tmp_path / "again") / "monday", desk / "night"]
    rule = GroupRule.of(Settings(split={"a": 0.5, "b": 0.5}, group={"test": "monday-2"}))
    merged = merge(twins, tmp_path, name="all", rename=True, group_rule=rule)
    found = groups(merged.paths.container)
    assert found["monday-2"] == {"test"}
    assert {*found["monday"], *found["night"]} == {"a", "b"}
    assert {group: tally[SAMPLES] for group, tally in merged.groups.groups.items()} == {"a": 20, "b": 10, "test": 20}
    assert "group b has no sensors lidar.points, radar.cube, radar.targets, which another group has" in merged.notes
    with pytest.raises(UsageError, match="matches no sequence; known: monday-2, monday, night"):
        merge(twins, tmp_path, name="no", rename=True, group_rule=GroupRule(named={"test": ("monday-3",)}))
    plain = merge([merged.paths.container], tmp_path, name="kept")
    assert groups(plain.paths.container) == found


# ---- what is refused ---------------------------------------------------------------------------
def test_nothing_changes_where_one_of_them_is_refused(made, desk):
    (desk / "night.zip").rename(desk / "night.zip.partial")
    before = files(desk)
    for refused, says in (
        (desk / "night", "not finished"),
        (desk / "none", "no such file"),
        (made / "x.mcap", "no such file"),
    ):
        with pytest.raises(DatasetError, match=says):
            split([desk / "monday", refused], BLOCKS)
    with pytest.raises(UsageError, match="given twice"):
        split([desk / "monday", desk / "monday.zip"], BLOCKS)
    with pytest.raises(UsageError, match=r"test=sun\* matches no sequence; known: monday, tuesday"):
        split([desk / "tuesday", desk / "monday"], GroupRule(named={"test": ("sun*",)}))
    assert files(desk) == before


def test_a_disk_that_refuses_leaves_all_as_it_was(desk, monkeypatch):
    before, count = files(desk), iter(range(9))

    def fsync(_):
        if next(count) == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageError, match=r"tuesday\.arrow: cannot rewrite it"):
        split([desk / "monday", desk / "tuesday"], BLOCKS)
    assert files(desk) == before


def test_tables_that_are_none_are_named(desk):
    arrow = desk / "monday.arrow"
    arrow.rename(desk / "kept")
    with pytest.raises(DatasetError, match=r"monday\.arrow: missing"):
        split([desk / "monday"], BLOCKS)
    arrow.symlink_to("kept")
    with pytest.raises(DatasetError, match="not a regular file"):
        split([desk / "monday"], BLOCKS)
    arrow.unlink()
    pl.read_ipc(desk / "kept").write_parquet(arrow)
    with pytest.raises(DatasetError, match="expected an Arrow IPC file; make one with edgefirst-ros migrate"):
        split([desk / "monday"], BLOCKS)
    arrow.unlink()
    pl.read_ipc(desk / "kept").write_parquet(desk / "monday.parquet")
    with pytest.raises(DatasetError, match=r"make it from monday\.parquet with edgefirst-ros migrate"):
        split([desk / "monday"], BLOCKS)


# ---- tables of other tools -----------------------------------------------------------------------
def test_tables_of_polars_keep_their_columns_and_metadata(desk):
    """Categories, a column that nobody knows, no stamps: stamps come from the table of frames."""
    rows = pl.read_ipc(desk / "monday.arrow").drop("timestamp")
    rows = rows.with_columns(pl.col("name").cast(pl.Categorical), pl.lit(7).alias("ours"))
    table = rows.to_arrow().replace_schema_metadata({"schema_version": "2026.04", "labels": '["car"]', "x": "y"})
    with pa.ipc.new_file(desk / "monday.arrow", table.schema) as writer:
        writer.write_table(table)
    split([desk / "monday"], GroupRule(SHARES, block=BLOCKS.block))
    with pa.ipc.open_file(desk / "monday.arrow") as file:
        assert file.schema.metadata == {b"schema_version": b"2026.04", b"labels": b'["car"]', b"x": b"y"}
    found = pl.read_ipc(desk / "monday.arrow")
    assert found.drop("group").equals(rows)
    assert set(found["group"].drop_nulls().cast(str)) == {"train", "val"}


def test_samples_without_a_stamp_cannot_be_cut_by_time(desk):
    (desk / "monday.frames.arrow").unlink()
    rows = pl.read_ipc(desk / "monday.arrow").drop("timestamp")
    rows.write_ipc(desk / "monday.arrow")
    before = files(desk)
    with pytest.raises(DatasetError, match="samples of monday have no stamp"):
        split([desk / "monday"], BLOCKS)
    assert files(desk) == before
    split([desk / "monday", desk / "tuesday"], GroupRule({"a": 0.5, "b": 0.5}))
    assert sorted(map(len, groups(desk / "monday", desk / "tuesday").values())) == [1, 1]
    counts = GroupCounts.of([Dataset(desk / "monday").paths])
    assert [tally[SAMPLES] for tally in counts.groups.values()] == [20]


def test_tables_without_members_are_no_dataset(desk):
    (desk / "monday.zip").unlink()
    before = files(desk)
    with pytest.raises(DatasetError, match=r"monday\.zip: missing; without it the tables are not a dataset"):
        split([desk / "monday"], BLOCKS)
    assert files(desk) == before


@pytest.mark.parametrize("table", ["monday.arrow", "monday.frames.arrow"])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda rows: rows.rename({"name": "drive"}), "has no column 'name'"),
        (lambda rows: rows.with_columns(pl.lit(None, pl.String).alias("name")), "column 'name' is null in a row"),
        (
            lambda rows: rows.with_columns(pl.lit("7 s").alias("timestamp")),
            "columns name, .*timestamp.* cannot be read",
        ),
    ],
)
def test_tables_that_name_no_samples_are_refused(desk, table, change, told):
    change(pl.read_ipc(desk / table)).write_ipc(desk / "new")
    os.replace(desk / "new", desk / table)
    before = files(desk)
    with pytest.raises(DatasetError, match=rf"{table}: {told}"):
        split([desk / "monday"], BLOCKS)
    assert files(desk) == before


@pytest.mark.parametrize("way", ["split", "merge"])
def test_groups_by_name_leave_those_of_other_samples(desk, tmp_path, way):
    names = ("monday.zip", "tuesday", "night.zip")
    split([desk / name for name in names], GroupRule({"train": 1.0}))
    rule = GroupRule(named={"val": ["night*"]})
    if way == "split":
        split([desk / name for name in names], rule)
        found = groups(*(desk / name for name in names))
    else:
        merged = merge([desk / name for name in names], tmp_path / "all", group_rule=rule)
        found = groups(merged.paths.container)
    assert found == {"monday": {"train"}, "tuesday": {"train"}, "night": {"val"}}


@pytest.mark.parametrize("way", ["split", "merge", "convert"])
def test_shares_that_miss_are_said_in_percent(made, desk, tmp_path, way):
    """20, 10 and 10 samples in whole sequences are 75 and 25 %: that misses 80 and 20 % by 5 points, and 90 by more."""
    names = ("monday.zip", "tuesday", "night.zip")
    for train, missed in ((0.9, True), (0.8, False), (0.75, False)):
        shares = {"train": train, "val": round(1 - train, 2)}
        if way == "split":
            done = split([desk / name for name in names], GroupRule(shares))
            notes, counts = done.counts.notes, done.counts
        elif way == "merge":
            rule = GroupRule(shares)
            done = merge([desk / name for name in names], tmp_path / "all", group_rule=rule, overwrite=True)
            notes, counts = done.notes, done.groups
        else:
            drives = [made / f"{name}.mcap" for name in ("monday", "tuesday", "night")]
            done = convert(drives, tmp_path / "all", name="all", split=shares, overwrite=True)
            notes, counts = done.notes, done.groups
        assert {group: tally[SAMPLES] for group, tally in counts.groups.items()} == {"train": 30, "val": 10}
        said = [note for note in notes if note.startswith("shares of samples")]
        wanted = "shares of samples: train 90 % asked, 75.0 % got, val 10 % asked, 25.0 % got"
        assert said == ([wanted] if missed else [])
