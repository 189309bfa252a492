# SPDX-License-Identifier: Apache-2.0
"""A thermal camera through every way a dataset is made, read, checked, joined and mended."""

import json
import shutil
import zipfile

import numpy as np
import polars as pl
import pytest
from extended import LATER, SMALL, TOPIC, contents, heat, kill_conversion, with_thermal
from spoilers import other_height
from test_capture import Feed, patient  # noqa: F401

from edgefirst_ros import Dataset, convert
from edgefirst_ros.config import Settings
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError, RecordingError
from edgefirst_ros.export import export

FRAMES = 20


@pytest.fixture(scope="session")
def drive(recording, tmp_path_factory):
    """A recording with a thermal camera."""
    path = tmp_path_factory.mktemp("thermal") / "host_2026_01_01_00_00_00.mcap"
    with_thermal(recording(**SMALL), path)
    return path


@pytest.fixture(scope="session")
def whole(drive, tmp_path_factory):
    """Datasets of the drive, by their layouts."""
    found = {}
    for layout in ("zip", "directory"):
        outcome = convert(drive, tmp_path_factory.mktemp(layout), name="drive", layout=layout)
        assert outcome.exit_code == 0
        found[layout] = outcome.paths
    return found


@pytest.fixture(params=["zip", "directory"])
def converted(request, whole):
    return whole[request.param]


@pytest.fixture
def spoilt(whole, tmp_path):
    """A dataset as files, and its first thermal picture."""
    paths = DatasetPaths(shutil.copytree(whole["directory"].out, tmp_path / "out"), "drive", "directory")
    return paths, min(paths.members.rglob("*.thermal.png"))


def check(path, frames=FRAMES):
    """Every sample has the thermal picture that belongs to it."""
    dataset = Dataset(path)
    samples = list(dataset.samples({"thermal"}))
    assert len(samples) == frames
    for sample in samples:
        assert np.array_equal(sample.decode("thermal"), heat(sample.frame))
        assert sample.skew["thermal_image"] == LATER
        assert sample.row["thermal_image_timestamp"] == sample.timestamp + LATER
    assert set(validate(path, strict=True).counts) <= {"CAL001"}  # no calibration was recorded
    return dataset


def test_convert_writes_members_columns_and_counts(converted):
    dataset = check(converted.container)
    count = dataset.metadata["counts"][TOPIC]
    assert (count["seen"], count["written"], count["dropped"]) == (FRAMES, FRAMES, {})
    assert [name for name in dataset.frames.columns if "thermal" in name] == [
        "thermal_image_timestamp",
        "thermal_image_skew",
    ]


def test_settings_name_it(drive, tmp_path):
    near = {"thermal.image": {"tolerance": 0.001}}
    with pytest.raises(RecordingError, match=r"lacks thermal\.image: 20"):
        convert(drive, tmp_path, name="a", require=("thermal.image",), streams=near)


def test_it_can_be_the_reference(drive, tmp_path):
    paths = convert(drive, tmp_path, name="a", reference_topic=TOPIC).paths
    dataset = Dataset(paths.container)
    assert all(np.array_equal(sample.decode("thermal"), heat(sample.frame)) for sample in dataset.samples())
    assert len(dataset) == FRAMES
    assert not any("thermal" in name for name in dataset.frames.columns)


def test_a_capture_writes_the_same(drive, tmp_path, patient):  # noqa: F811
    feed = Feed(drive, tmp_path / "live", sequence=drive.stem)
    feed.play()
    feed.capture.close()
    captured = tmp_path / "live" / f"{drive.stem}.zip"
    check(captured)
    paths = convert(drive, tmp_path / "made", settings=Settings()).paths
    assert captured.read_bytes() == paths.container.read_bytes()
    assert pl.read_ipc(captured.with_suffix(".frames.arrow")).equals(pl.read_ipc(paths.frames))


# ---- what validate finds ---------------------------------------------------------------------
def test_a_member_that_is_cut_is_found(spoilt):
    paths, picture = spoilt
    picture.write_bytes(picture.read_bytes()[:-20])
    assert set(validate(paths.container).counts) == {"CAL001", "IMG001"}


def test_a_member_that_is_missing_is_found(spoilt):
    paths, picture = spoilt
    picture.unlink()
    assert set(validate(paths.container).counts) == {"CAL001", "REF005"}


def test_a_member_of_wrong_size_is_found(spoilt):
    paths, picture = spoilt
    picture.write_bytes(other_height(picture.read_bytes()))
    assert set(validate(paths.container).counts) >= {"IMG001"}
    with pytest.raises(DatasetError, match=r"thermal\.png"):
        Dataset(paths.container)[0].decode("thermal")


def test_a_member_that_a_zip_lacks_is_found(whole, tmp_path):
    paths = DatasetPaths(shutil.copytree(whole["zip"].out, tmp_path / "out"), "drive")
    full = tmp_path / "full.zip"
    shutil.move(paths.container, full)
    with zipfile.ZipFile(full) as source, zipfile.ZipFile(paths.container, "w") as target:
        gone = next(name for name in source.namelist() if name.endswith("thermal.png"))
        for entry in source.infolist():
            if entry.filename != gone:
                target.writestr(entry, source.read(entry))
    assert set(validate(paths.container).counts) == {"CAL001", "REF005"}


# ---- joined, and mended ----------------------------------------------------------------------
def test_merged_with_a_dataset_that_has_none(converted, recording, tmp_path):
    other = convert(recording(**SMALL), tmp_path / "other", name="other").paths
    merged = merge([converted.container, other.container], tmp_path / "out", name="both")
    check(merged.paths.container)
    assert len(Dataset(merged.paths.container)) == 2 * FRAMES
    assert pl.read_ipc(merged.paths.frames)["thermal_image_skew"].null_count() == FRAMES


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_what_a_killed_process_leaves_is_recovered_or_continued(drive, whole, tmp_path, layout):
    kill_conversion(drive, tmp_path / "left", layout)
    shutil.copytree(tmp_path / "left", tmp_path / "resumed")
    report = recover(tmp_path / "left" / "drive")
    assert (report.samples, report.exit_code) == (12, 0)
    check(report.paths.container, 12)

    outcome = convert(drive, tmp_path / "resumed", name="drive", layout=layout)
    check(outcome.paths.container)
    assert contents(tmp_path / "resumed") == contents(whole[layout].out)


def test_a_lost_member_leaves_its_sample(drive, tmp_path):
    kill_conversion(drive, tmp_path, "directory")
    gone = min(tmp_path.rglob("*.thermal.png"))
    gone.write_bytes(gone.read_bytes()[:-20])
    report = recover(tmp_path / "drive", verify=True)
    assert (report.samples, report.members_missing, report.exit_code) == (12, 1, 3)
    assert pl.read_ipc(report.paths.frames)["thermal_image_skew"].null_count() == 1
    assert validate(report.paths.container).ok


# ---- other systems ---------------------------------------------------------------------------
@pytest.mark.parametrize("system", ["ncore", "l5kit", "roverd"])
def test_exports_say_that_they_have_no_place_for_it(whole, tmp_path, system):
    if system == "ncore":
        pytest.importorskip("ncore")
    done = export(whole["zip"].container, system, tmp_path / "out")
    line = next(line for line in done.report.lines if line.what == "thermal.png")
    assert (line.number, bool(line.lost or not line.where)) == (FRAMES, True)
    assert "thermal.png" in json.dumps(done.report.plain())
