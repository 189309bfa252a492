# SPDX-License-Identifier: Apache-2.0
"""Pages about the datasets of a capture."""

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
