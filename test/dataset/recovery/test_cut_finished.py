# SPDX-License-Identifier: Apache-2.0
"""A finished dataset of this software whose archive was cut: its tables keep what still has members, and no more."""

import json

import polars as pl
import pyarrow as pa
import pytest
from unfinished_datasets import cut, everything, members, spans, table

import edgefirst_ros
from edgefirst_ros import Dataset
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import pluralize
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {
    "seconds": 2,
    "size": (160, 96),
    "codec": "jpeg",
    "fps": 10.0,
    "cube_shape": (1, 32, 2, 32),
    "lidar_points": 400,
    "objects": 3,
    "model_every": 1,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Two drives in one dataset, 20 samples each."""
    folder = tmp_path_factory.mktemp("finished")
    drives = [folder / "first.mcap", folder / "second.mcap"]
    for seed, path in enumerate(drives):
        write_recording(path, Recipe(**SMALL, seed=seed))
    return edgefirst_ros.convert(drives, folder / "out", name="both").paths


def copied(paths, out):
    out.mkdir()
    for path in (paths.container, paths.arrow, paths.frames):
        (out / path.name).write_bytes(path.read_bytes())
    return DatasetPaths(out, paths.name)


def schema_of(path):
    return pa.ipc.open_file(path.read_bytes()).schema


def begin_of(paths, number):
    """Offset of the first member of a sample."""
    return [start for name, start, _ in spans(paths.container) if ".camera." in name][number]


@pytest.mark.parametrize("number", [3, 15, 20, 25])
@pytest.mark.parametrize("into", [10, 1 << 13])
def test_rows_of_samples_that_are_gone_go_and_the_others_stay_as_they_are(finished, tmp_path, number, into):
    paths = copied(finished, tmp_path / "cut")
    cut(paths.container, begin_of(paths, number) + into)
    before = {path: table(path) for path in (paths.arrow, paths.frames)}
    stored = {path: schema_of(path) for path in before}
    planned = recover(paths.container, dry_run=True)
    report = recover(paths.container)
    assert (planned.sentence.split("; /")[0], planned.exit_code) == (report.sentence.split("; /")[0], 3)
    there = {tuple(name.partition("/")[2].split(".")[0].rsplit("_", 1)) for name in members(paths)}
    there = {(name, int(frame)) for name, frame in there}
    assert number <= len(there) <= number + 1
    for path, whole in before.items():
        mask = pl.Series([(name, frame) in there for name, frame in zip(whole["name"], whole["frame"], strict=True)])
        found, expected = table(path), whole.filter(mask)
        if path == paths.frames:  # the last sample may lack a member
            assert found[:-1].equals(expected[:-1], null_equal=True)
            assert (
                found[-1:]
                .drop(pl.selectors.contains("radar", "lidar"))
                .equals(expected[-1:].drop(pl.selectors.contains("radar", "lidar")), null_equal=True)
            )
        else:
            assert found.equals(expected, null_equal=True)
        assert schema_of(path).remove_metadata() == stored[path].remove_metadata()
    assert schema_of(paths.arrow).metadata == stored[paths.arrow].metadata
    old, new = (
        {key: json.loads(text) for key, text in found.metadata.items()}
        for found in (stored[paths.frames], schema_of(paths.frames))
    )
    assert new[b"recovered"]["rows_dropped"] == report.rows_dropped == len(before[paths.frames]) - len(there)
    assert {key for key in new if new[key] != old.get(key)} == {b"recovered", b"counts", b"sequences"}
    assert new[b"counts"]["/camera/jpeg"]["written"] == len(there)
    model, processed = new[b"counts"]["/model/output"], table(paths.frames)["model_timestamp"].count()
    assert (model["written"], model["dropped"]["not reached before the interruption"]) == (
        processed, old[b"counts"]["/model/output"]["written"] - processed
    )  # fmt: skip
    assert f"lost, but named by the tables: {pluralize(report.rows_dropped, 'sample')}" in report.sentence
    assert report.rows_rebuilt == 0
    found = validate(paths.container)
    assert found.ok, found.findings
    assert len(Dataset(paths.container)) == len(there)
    assert recover(paths.container).complete


def test_further_columns_and_rows_made_anew_are_told(finished, tmp_path):
    """A user added a column, and lost the row of a sample."""
    paths = copied(finished, tmp_path / "cut")
    whole = pa.ipc.open_file(paths.frames.read_bytes()).read_all()
    whole = whole.append_column("weather", pa.array(["rain"] * 40))
    with pa.OSFile(str(paths.frames), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
        writer.write_table(pa.concat_tables([whole[:2], whole[3:]]))
    cut(paths.container, begin_of(paths, 15))
    report = recover(paths.container)
    assert (report.samples, report.rows_dropped, report.rows_rebuilt) == (15, 25, 1)
    assert f"{paths.frames}: dropped, not columns of the format: weather" in report.notes
    assert sorted(table(paths.frames)["frame"]) == [*range(15)]
    assert "weather" not in table(paths.frames).columns


def test_an_archive_without_its_directory_alone_keeps_its_tables_byte_for_byte(finished, tmp_path):
    paths = copied(finished, tmp_path / "cut")
    cut(paths.container, spans(paths.container)[-1][2] + 40)
    before = everything(paths.out)
    report = recover(paths.container)
    assert (report.rows_dropped, report.members_missing) == (0, 0)
    after = everything(paths.out)
    assert {name for name in after if after[name] != before[name]} == {paths.container.name}
    assert validate(paths.container).ok


def test_stamps_of_members_that_are_gone_become_null(finished, tmp_path):
    paths = copied(finished, tmp_path / "cut")
    name, start, _ = spans(paths.container)[5]
    data = bytearray(paths.container.read_bytes()[:-30])
    data[start : start + 30] = bytes(30)
    paths.container.write_bytes(data)
    before, annotations = table(paths.frames), paths.arrow.read_bytes()
    report = recover(paths.container)
    assert (report.samples, report.members_missing, report.rows_dropped, report.exit_code) == (40, 1, 0, 3)
    assert "missing, but named by the tables: 1 member" in report.sentence
    assert name.endswith("_001.radar.png")
    gone = ["radar_cube_timestamp", "radar_cube_skew"]
    expected = before.with_columns(pl.when(pl.int_range(pl.len()) != 1).then(pl.col(gone)).name.keep())
    assert table(paths.frames).equals(expected, null_equal=True)
    assert before[gone][1].null_count().sum_horizontal().item() == 0
    assert paths.arrow.read_bytes() == annotations
    assert validate(paths.container).ok


def test_annotations_that_cannot_be_read_are_made_anew_beside_the_frames_that_can(finished, tmp_path):
    paths = copied(finished, tmp_path / "cut")
    cut(paths.container, begin_of(paths, 15))
    cut(paths.arrow, paths.arrow.stat().st_size - 20)
    report = recover(paths.container)
    assert (report.rows_dropped, report.rows_rebuilt, report.annotations_lost) == (25, 0, 15)
    assert paths.arrow.with_name("both.arrow.unreadable").exists()
    assert validate(paths.container).ok


@pytest.mark.parametrize(
    ("gone", "columns"), [("arrow", {"frame", "timestamp"}), ("frames", {"frame", "timestamp", "size"})]
)
def test_a_missing_table_is_made_anew_from_the_other_and_the_pictures(finished, tmp_path, gone, columns):
    paths = copied(finished, tmp_path / "one")
    getattr(paths, gone).unlink()
    report = recover(paths.container)
    assert (report.exit_code, report.samples, report.unstamped) == (3, 40, 0)
    assert paths.container.read_bytes() == finished.container.read_bytes()
    rows, before = (
        {
            tuple(str(row[name]) for name in columns)
            for row in pa.ipc.open_file(getattr(of, gone)).read_all().to_pylist()
        }
        for of in (paths, finished)
    )
    assert rows == before
    assert validate(paths.container).ok


def test_a_dataset_without_the_table_of_frames_is_complete_if_another_tool_made_it(finished, tmp_path):
    paths = copied(finished, tmp_path / "other")
    paths.frames.unlink()
    table = pa.ipc.open_file(paths.arrow.read_bytes()).read_all().drop_columns(["timestamp"])
    with pa.ipc.new_file(paths.arrow, table.schema) as writer:
        writer.write_table(table)
    report = recover(paths.container)
    assert (report.exit_code, report.complete, report.notes) == (0, True, ["missing: both.frames.arrow"])
    assert not paths.frames.exists()


@pytest.mark.parametrize("software", [None, b"null", b'"x"', b"no JSON"])
def test_tables_that_do_not_name_their_software_stay_as_they_are(finished, tmp_path, software):
    paths = copied(finished, tmp_path / "cut")
    whole = pa.ipc.open_file(paths.frames.read_bytes()).read_all()
    metadata = {key: value for key, value in whole.schema.metadata.items() if key != b"software"}
    whole = whole.replace_schema_metadata({**metadata, **({b"software": software} if software else {})})
    with pa.OSFile(str(paths.frames), "wb") as file, pa.ipc.new_file(file, whole.schema) as writer:
        writer.write_table(whole)
    cut(paths.container, begin_of(paths, 15))
    before = everything(paths.out)
    report = recover(paths.container)
    after = everything(paths.out)
    assert {name for name in after if after[name] != before[name]} == {paths.container.name}
    assert sum(note.endswith("stays as it is") for note in report.notes) == 2


def test_an_interrupted_recovery_is_completed_by_the_next_one(finished, tmp_path, monkeypatch):
    paths = copied(finished, tmp_path / "cut")
    cut(paths.container, begin_of(paths, 15))
    for step in ("write_annotations", "place"):
        with monkeypatch.context() as stopped:
            stopped.setattr(f"edgefirst_ros.dataset.recovery.recover.{step}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                recover(paths.container)
        assert len(table(paths.frames)) == 40
    recover(paths.container)
    assert len(table(paths.frames)) == 15
    assert validate(paths.container).ok
    assert {*everything(paths.out)} == {path.name for path in (paths.container, paths.arrow, paths.frames)}


def interrupt(*_):
    raise KeyboardInterrupt
