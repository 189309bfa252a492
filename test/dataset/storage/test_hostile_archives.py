# SPDX-License-Identifier: Apache-2.0
"""ZIP archives that no tool would make."""

import struct
import zipfile
import zlib

import handmade_dataset as made
import pytest

from edgefirst_ros import Dataset
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError
from edgefirst_ros.limits import Limits


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


def test_members_that_overlap_are_an_error_and_are_not_merged(tmp_path):
    """The directory leads two names to one place, as bombs are made."""
    path = made.write(tmp_path, made.good())
    data = bytearray(path.read_bytes())
    start = struct.unpack_from("<I", data, len(data) - 6)[0]
    second = data.index(b"PK\1\2", start + 4)
    data[second + 42 : second + 46] = data[start + 42 : start + 46]
    path.write_bytes(data)
    assert "HDR004" in validate(path).counts
    for use in (lambda: merge([path], tmp_path / "out"), lambda: Dataset(path)):
        with pytest.raises(DatasetError, match="within"):
            use()
    assert not (tmp_path / "out/out.zip").exists()


def test_members_unpack_to_no_more_than_the_limit_in_all(tmp_path):
    """Each for itself would do: it is the sum that takes the memory and the time."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    crc = zlib.crc32(bytes(1 << 26))
    bodies, directory = bytearray(), bytearray()
    for number in range(12):
        name = f"s/s_{number:03d}.lidar.pcd".encode()
        sizes = struct.pack("<5H3I2H", 20, 0, 8, 0, 33, crc, len(packed), 1 << 26, len(name), 0)
        directory += b"PK\1\2\x14\0" + sizes + struct.pack("<3H2I", 0, 0, 0, 0, len(bodies)) + name
        bodies += b"PK\3\4" + sizes + name + packed
    path = tmp_path / "d.zip"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 12, 12, len(directory), len(bodies), 0)
    path.write_bytes(bodies + directory + end)
    with pytest.raises(DatasetError, match=r"unpacks to 805306368 bytes or more.*limits\.unpacked_bytes"):
        Dataset(path)
    assert validate(path).counts == {"STR001": 1}
    assert len(Dataset(path, limits=Limits(unpacked_bytes=1 << 30))) == 12
