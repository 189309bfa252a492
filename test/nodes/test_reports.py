# SPDX-License-Identifier: Apache-2.0
"""Pages about the datasets of a capture."""

import sys

import edgefirst_ros
from edgefirst_ros.nodes.reports import Reports


def test_each_finished_dataset_gets_a_page_once(recording, tmp_path):
    path = recording(seconds=2, size=(320, 192), topics={"camera"})
    container = edgefirst_ros.convert(path, tmp_path, name="drive").paths.container
    said = []
    reports = Reports(said.append)
    reports.look([str(container)])
    reports.look([str(container), str(tmp_path / "gone.zip")])
    reports.close()
    assert (tmp_path / "drive.html").stat().st_size > 1_000_000
    assert len(said) == 1
    assert "gone.zip: no report: " in said[0]


def test_a_page_that_cannot_be_begun_is_said_and_the_capture_goes_on(tmp_path, monkeypatch):
    """A machine on which no process can be begun; here there is no such program."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    said = []
    reports = Reports(said.append)
    reports.look([str(tmp_path / "drive.zip")])
    reports.close()
    (told,) = said
    assert told.startswith(f"{tmp_path}/drive.zip: no report: ")
    assert "No such file or directory" in told
