# SPDX-License-Identifier: Apache-2.0
"""Atomic replacement of a table."""

import pyarrow as pa
import pytest

from edgefirst_ros.dataset.storage.lock import Replacement
from edgefirst_ros.errors import DatasetError


def test_what_arrow_refuses_leaves_the_table_as_it_was(tmp_path):
    path = tmp_path / "t.arrow"
    path.write_bytes(b"before")
    batch = pa.record_batch({"name": ["a"]})
    with (
        Replacement(path) as replacement,
        pytest.raises(DatasetError, match=r"t\.arrow: cannot be rewritten: "),
        replacement.writing() as file,
        pa.ipc.new_file(file, pa.schema([("frame", pa.uint32())])) as writer,
    ):
        writer.write_batch(batch)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == {"t.arrow": b"before"}
