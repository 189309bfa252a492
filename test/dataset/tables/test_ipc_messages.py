# SPDX-License-Identifier: Apache-2.0
"""Messages of Arrow IPC files that no program of today writes.

Source: Apache Arrow, format/Message.fbs; FlatBuffers internals.
"""

import struct

import pyarrow as pa
import pytest

from edgefirst_ros.dataset.tables.arrow_file import TableFile
from edgefirst_ros.errors import DatasetError

BATCH = pa.record_batch([pa.array(["a", "b"]), pa.array([1, 2], pa.uint32())], names=["name", "frame"])


def write(path, metadata=None):
    with pa.ipc.new_file(path, BATCH.schema) as writer:
        writer.write_batch(BATCH, metadata)
    return path


def test_metadata_of_a_batch_are_no_harm(tmp_path):
    path = write(tmp_path / "t.arrow", {"ARROW:something": "zstd"})
    assert TableFile(path).values(["name"]) == {"name": ["a", "b"]}


def test_the_compression_before_arrow_1_is_refused(tmp_path):
    """Its lengths are not where today's are, so that what it unpacks to is not known."""
    path = write(tmp_path / "t.arrow", {"ARROW:experimental_compression": "zstd"})
    with pytest.raises(DatasetError, match=r"t\.arrow: .*packed in a way that was given up before Arrow 1\.0"):
        TableFile(path)


def test_a_batch_without_a_header_is_an_error_where_its_rows_are_read(tmp_path):
    """The place of the header in the table of the message is 0: it is left out."""
    path = write(tmp_path / "t.arrow")
    data = bytearray(path.read_bytes())
    start = data.rindex(b"\xff\xff\xff\xff", 0, data.rindex(b"\xff\xff\xff\xff\0\0\0\0")) + 8
    message = start + struct.unpack_from("<I", data, start)[0]
    slots = message - struct.unpack_from("<i", data, message)[0]
    assert data[message + struct.unpack_from("<H", data, slots + 6)[0]] == 3  # a batch of records
    struct.pack_into("<H", data, slots + 4 + 2 * 2, 0)
    path.write_bytes(data)
    table = TableFile(path)
    assert table.schema == BATCH.schema
    with pytest.raises(DatasetError, match=r"t\.arrow: rows cannot be read: "):
        list(table.batches())
