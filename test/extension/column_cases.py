# SPDX-License-Identifier: Apache-2.0
"""A column of the annotations through every way a dataset is made, read, checked, joined and mended."""

import os
import shutil

import polars as pl
import pytest
from extended import SMALL, contents, kill_conversion
from test_capture import Feed, patient  # noqa: F401

from edgefirst_ros import Dataset, convert, migrate
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.export import export
from edgefirst_ros.messages import decode
from edgefirst_ros.sources.mcap import McapRecording


@pytest.fixture(scope="session")
def drive(recording):
    return recording(**SMALL)


@pytest.fixture(scope="session")
def distances(drive):
    """What the recording says, m, in its order."""
    source = McapRecording(drive)
    boxes = [box for message in source.iter_messages({"/model/boxes2d"}) for box in decode(message).boxes]
    assert len(boxes) > 20
    return [box.distance for box in boxes]


@pytest.fixture(scope="session")
def whole(drive, tmp_path_factory):
    """Datasets of the drive, by their layouts."""
    layouts = ("zip", "directory")
    return {name: convert(drive, tmp_path_factory.mktemp(name), name="drive", layout=name).paths for name in layouts}


@pytest.fixture(params=["zip", "directory"])
def converted(request, whole):
    return whole[request.param]


def check(path, distances):
    """The table has the column, with these values."""
    dataset = Dataset(path)
    table = dataset.annotations
    assert table.schema["distance"] == pl.Float32
    assert table["distance"].drop_nulls().to_list() == pl.Series(distances, dtype=pl.Float32).to_list()
    assert set(validate(path, strict=True).counts) <= {"CAL001"}  # no calibration was recorded
    return dataset


def test_convert_writes_it_and_samples_have_it(converted, distances):
    dataset = check(converted.container, distances)
    first = dataset.samples(annotated=True)[0].annotations["distance"].drop_nulls()
    assert first.to_list() == pytest.approx(distances[: len(first)])


def test_an_older_version_has_no_such_column(drive, tmp_path):
    paths = convert(drive, tmp_path, name="drive", schema_version="2025.10").paths
    assert "distance" not in pl.read_ipc(paths.arrow).columns
    assert set(validate(paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded


def test_a_capture_writes_the_same(drive, distances, tmp_path, patient):  # noqa: F811
    feed = Feed(drive, tmp_path, sequence=drive.stem)
    feed.play()
    feed.capture.close()
    check(tmp_path / f"{drive.stem}.zip", distances)


def test_validate_finds_a_wrong_type(drive, tmp_path):
    paths = convert(drive, tmp_path, name="drive").paths
    pl.read_ipc(paths.arrow).with_columns(pl.lit("far").alias("distance")).write_ipc(tmp_path / "new")
    (tmp_path / "new").replace(paths.arrow)
    assert any("distance" in finding.place + finding.message for finding in validate(paths.container).findings)


def test_merged_and_migrated_tables_keep_it(converted, drive, distances, recording, tmp_path):
    other = convert(recording(**SMALL, host="other", seed=4), tmp_path / "other", name="other").paths
    merged = merge([converted.container, other.container], tmp_path / "out", name="both")
    assert set(validate(merged.paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded
    table = pl.read_ipc(merged.paths.arrow)
    values = table.filter(pl.col("name") == drive.stem)["distance"].drop_nulls()
    assert values.to_list() == pl.Series(distances, dtype=pl.Float32).to_list()
    for name in ("a.json", "a.parquet"):
        migrate(converted.arrow, tmp_path / name)
        migrate(tmp_path / name, tmp_path / f"{name}.arrow")
        back = pl.read_ipc(tmp_path / f"{name}.arrow")
        assert sorted(back["distance"].drop_nulls().to_list()) == sorted(
            pl.Series(distances, dtype=pl.Float32).to_list()
        )


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_what_a_killed_process_leaves_is_recovered_or_continued(drive, whole, distances, tmp_path, layout):
    kill_conversion(drive, tmp_path / "left", layout)
    shutil.copytree(tmp_path / "left", tmp_path / "resumed")
    report = recover(tmp_path / "left" / "drive")
    assert (report.samples, report.exit_code) == (12, 0)
    values = pl.read_ipc(report.paths.arrow)["distance"].drop_nulls().to_list()
    assert len(values) > 10
    assert values == pl.Series(distances[: len(values)], dtype=pl.Float32).to_list()

    check(convert(drive, tmp_path / "resumed", name="drive", layout=layout).paths.container, distances)
    assert contents(tmp_path / "resumed") == contents(whole[layout].out)


def test_what_a_version_without_the_column_left_is_recovered_whole(drive, tmp_path):
    kill_conversion(drive, tmp_path, "zip", os.environ["PLAIN"])
    report = recover(tmp_path / "drive")
    assert (report.samples, report.exit_code) == (12, 0)
    table = pl.read_ipc(report.paths.arrow)
    assert table["box2d"].drop_nulls().len() > 10
    assert "distance" not in table.columns  # nobody filled it
    assert set(validate(report.paths.container, strict=True).counts) <= {"CAL001"}  # no calibration was recorded


@pytest.mark.parametrize("system", ["ncore", "l5kit", "roverd"])
def test_exports_say_that_they_have_no_place_for_it(whole, tmp_path, system):
    if system == "ncore":
        pytest.importorskip("ncore")
    done = export(whole["zip"].container, system, tmp_path / "out")
    line = next(line for line in done.report.lines if "distance" in line.what)
    assert line.lost or not line.where
