# SPDX-License-Identifier: Apache-2.0
"""Recordings of which no sample can be made, or for whose samples there is no room: no page is written."""

import re
import resource
import tempfile

import pytest

from edgefirst_ros.errors import RecordingError, StorageError
from edgefirst_ros.report.run import report
from edgefirst_ros.synthetic import Recipe, write_recording

SMALL = {"seconds": 0.1, "size": (320, 192), "codec": "jpeg", "fps": 10.0}


@pytest.fixture
def drive(recording):
    """A recording of one sample, whose points are 2 MB."""
    return recording(**SMALL, lidar_points=150_000)


@pytest.fixture
def small_files(drive, tmp_path, monkeypatch):
    """No file of this process becomes longer than 1.5 MiB; temporary folders lie in one that is looked at later."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 19, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_recording_whose_pictures_are_all_cut_has_no_sample(tmp_path):
    path = tmp_path / "r.mcap"
    write_recording(path, Recipe(**SMALL, topics={"camera"}, truncate={"camera": [0]}))
    with pytest.raises(RecordingError, match=re.escape(f"{path}: it has no samples")):
        report([path])
    assert [one.name for one in tmp_path.iterdir()] == ["r.mcap"]


def test_a_temporary_folder_that_does_not_take_a_sample_is_told_and_left_empty(drive, tmp_path, small_files):
    with pytest.raises(StorageError, match=re.escape(f"{tmp_path}/temporary")):
        report([drive], tmp_path / "page.html")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "page.html").exists()
