# SPDX-License-Identifier: Apache-2.0
"""ZIP archives that no tool would make."""

import zipfile

import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError


def test_a_member_without_a_name_is_a_stray_file(tmp_path):
    """Python's own question whether it is a folder fails on it."""
    path = tmp_path / "d.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("s/s_001.radar.pcd", b"no cloud")
        archive.writestr("xx", b"content")
    data = path.read_bytes()
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    # The length of the name becomes 0 and that of the comment 2.
    path.write_bytes(data[: at + 28] + b"\0\0\0\0\2\0" + data[at + 34 :])
    dataset = Dataset(path)
    assert dataset.container.names == ["s/s_001.radar.pcd", ""]
    assert len(dataset) == 1
    assert dataset.container.read("") == b"content"
    with pytest.raises(DatasetError):
        dataset.sample("s", 1).radar()
    assert any(finding.place == "" or "''" in finding.message for finding in validate(path).findings)
