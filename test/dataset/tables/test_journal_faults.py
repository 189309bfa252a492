# SPDX-License-Identifier: Apache-2.0
"""Journals on a disk that refuses or loses, and checkpoints that no writer made."""

import json
import zlib

import pyarrow as pa
import pytest

from edgefirst_ros.dataset import DatasetWriter, Sample
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.tables.journal import ANNOTATION_JOURNAL, read_checkpoints
from edgefirst_ros.dataset.tables.replacement import Replacement
from edgefirst_ros.errors import DatasetError, StorageError

ROW = {"name": "a", "frame": 1, "timestamp": 7}


def stream(path, *batches):
    """A journal of batches, each with its own metadata, by pyarrow alone."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, ANNOTATION_JOURNAL) as writer:
        for frame, metadata in enumerate(batches):
            batch = pa.RecordBatch.from_pylist([ROW | {"frame": frame}], schema=ANNOTATION_JOURNAL)
            text = metadata.get(b"checkpoint", b"")
            checksum = b"%08x" % zlib.crc32(text, zlib.crc32(batch.serialize()))
            writer.write_batch(batch, {b"crc32": checksum, **metadata})
    return path


@pytest.mark.parametrize(
    "metadata",
    [{b"crc32": b"none"}, {b"crc32": b"00000000"}, {b"checkpoint": b"{"}, {b"checkpoint": b"[" * 100_000}],
    ids=["no number", "another number", "no JSON", "nested without end"],
)
def test_a_journal_ends_where_a_checkpoint_is_none(tmp_path, metadata):
    path = stream(tmp_path / "j", {b"checkpoint": json.dumps({"rows": 1}).encode()}, metadata, {})
    found = [(batch["frame"].to_pylist(), checkpoint) for batch, checkpoint in read_checkpoints(path)]
    assert found == [([0], {"rows": 1})]


def test_a_checkpoint_of_another_form_is_passed_over(tmp_path):
    path = stream(tmp_path / "j", {b"checkpoint": b"[1]"}, {})
    assert [checkpoint for _, checkpoint in read_checkpoints(path)] == [None, None]


@pytest.mark.parametrize("journal", ["arrow_journal", "frames_journal"])
def test_a_table_is_not_sealed_with_fewer_rows_than_were_written(tmp_path, journal):
    """The disk lost a block of a journal; what is left stays for `recover`."""
    with DatasetWriter(tmp_path, "drive") as writer:
        for frame in range(3):
            writer.write(Sample("s", frame, 10**18 + frame, [("lidar.pcd", [b"points"])]))
            writer.flush()
        path = getattr(writer.paths, journal)
        data = bytearray(path.read_bytes())
        data[-200:] = b"\xff" * 200
        path.write_bytes(data)
        with pytest.raises(StorageError, match=rf"{path.name}: 2 rows can be read back of 3 written; .*recover"):
            writer.finish({})
    assert recover(tmp_path / "drive").samples == 3


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
