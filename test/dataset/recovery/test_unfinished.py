# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets that no writer left: journals, logs and links made to do harm. Only the folder is touched."""

import json
import os
import signal
import zlib

import pyarrow as pa
import pytest
from unfinished_datasets import SEQUENCE, check, everything, finish, leave, sample, spans, stamp_of, table

from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.recovery.recover import recover, recover_all
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.schema import DEFAULT_COMPANIONS, list_frames_columns, make_journal_schema
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS
from edgefirst_ros.errors import DatasetError, InUseError, StorageError

FRAMES_JOURNAL = make_journal_schema(list_frames_columns(DEFAULT_COMPANIONS))
BIG = 2**62


@pytest.fixture
def left(tmp_path):
    """Three samples, all in the log and none in a journal, and a file beside the folder that must stay as it is."""
    (tmp_path / "precious").write_bytes(b"precious" * 1000)
    return leave(tmp_path / "out", map(sample, range(3)))


@pytest.fixture
def alarm():
    """A test that waits for a pipe ends by a signal."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.fixture
def known(tmp_path):
    return [name for name, _, _ in spans(finish(tmp_path / "whole", map(sample, range(3))).container)]


def journal(path, columns, rows, checkpoint=None):
    """A journal as version 0.1 made it, of rows no writer would make."""
    stream(path, columns, rows, {} if checkpoint is None else {b"checkpoint": json.dumps(checkpoint).encode()})


def stream(path, columns, rows, metadata):
    """A stream with a right checksum and any columns."""
    batch = pa.RecordBatch.from_pylist(rows, schema=columns)
    text = metadata.get(b"checkpoint", b"")
    checksum = b"%08x" % zlib.crc32(text, zlib.crc32(batch.serialize()))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, columns) as writer:
        writer.write_batch(batch, {b"crc32": checksum, **metadata})


def log_line(content):
    text = json.dumps(content).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


ROW = {"name": SEQUENCE, "frame": 0, "timestamp": stamp_of(0)}
FRAMES_ROW = {**ROW, **sample(0).frame_row}


@pytest.mark.parametrize("name", ["../precious", "/etc", "a/../../b", "", "..", "a\nb", "x" * 4000])
def test_names_that_are_none(left, known, name):
    rows = [{**ROW, "name": name, "frame": 7}]
    journal(left.arrow_journal, ANNOTATION_ROWS, rows)
    journal(left.frames_journal, FRAMES_JOURNAL, rows, {"samples": 1, "rows": 1, "bytes": 100, "synced": True})
    left.row_log.write_bytes(log_line([0, 0, rows[0], rows]))
    recover(left.container)
    check(left, known)
    assert set(table(left.arrow)["name"]) == {SEQUENCE}


@pytest.mark.parametrize(
    "checkpoint",
    [
        {"samples": BIG, "rows": BIG, "bytes": BIG, "synced": True},
        {"samples": 1, "rows": 1, "bytes": 2**80, "synced": True},
        {"samples": -1, "rows": -1, "bytes": -1, "synced": True},
        {"samples": "1", "rows": None, "bytes": [], "synced": "yes"},
        {"samples": 1, "rows": 1, "bytes": 10, "synced": True, "description": [1]},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"counts": {"/a": 3}, "topics": {"s": "t"}}},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"counts": {"/a": {"seen": 1}}, "topics": {}}},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"schema_version": [], "labels": {"a": 1}}},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"schema_version": "1999", "labels": [1, 2]}},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"sources": "x", "static_transforms": 7}},
        {"samples": 1, "rows": 1, "bytes": 10, "description": {"merged": [7, {}, {"dataset": ["\ud800"]}]}},
        {},
    ],
    ids=str,
)
def test_checkpoints_that_are_none(left, known, checkpoint):
    journal(left.arrow_journal, ANNOTATION_ROWS, [ROW])
    journal(left.frames_journal, FRAMES_JOURNAL, [FRAMES_ROW], checkpoint)
    recover(left.container)
    check(left, known)
    with pa.ipc.open_file(left.arrow) as table:
        assert b"labels" not in (table.schema.metadata or {})


def test_a_checkpoint_beyond_the_file_is_not_believed(left, known):
    """It says that the disk had more than there is: then nothing is taken by its header alone."""
    names = [f"{SEQUENCE}/{SEQUENCE}_000.camera.jpeg"]
    journal(left.arrow_journal, ANNOTATION_ROWS, [ROW])
    checkpoint = {"samples": 1, "rows": 1, "bytes": BIG, "synced": True}
    journal(left.frames_journal, FRAMES_JOURNAL, [FRAMES_ROW], checkpoint)
    data = bytearray(left.members_partial.read_bytes())
    data[600] ^= 0xFF
    left.members_partial.write_bytes(data)
    report = recover(left.container)
    assert [lost.name for lost in report.lost] == names
    check(left, [name for name in known if name not in names])


@pytest.mark.parametrize(
    "columns",
    [
        pa.schema([("a", pa.int64())]),
        pa.schema([("name", pa.int64()), ("frame", pa.large_string()), ("timestamp", pa.int64())]),
        pa.schema([field for field in FRAMES_JOURNAL if field.name != "size"]),
    ],
    ids=["other", "types", "lacking"],
)
def test_columns_that_no_writer_has(left, known, columns):
    for path in (left.arrow_journal, left.frames_journal):
        stream(path, columns, [{}] if columns.names == ["a"] else [], {})
    recover(left.container)
    check(left, known)


@pytest.mark.parametrize("missing", ["name", "frame", "timestamp"])
def test_rows_of_no_sample(left, known, missing):
    row = {**ROW, missing: None}
    columns = [pa.schema([field.with_nullable(True) for field in c]) for c in (ANNOTATION_ROWS, FRAMES_JOURNAL)]
    stream(left.arrow_journal, columns[0], [row], {})
    stream(left.frames_journal, columns[1], [row], {})
    left.row_log.write_bytes(log_line([0, 0, row, [row]]))
    recover(left.container)
    check(left, known)


LINES = [[], {}, 7, [0, 0], [0, 0, [], []], [0, 0, {}, [7]], ["x", 0, {}, []], [0, 0, {"frame": -1}, []]]


@pytest.mark.parametrize("content", LINES, ids=str)
def test_lines_that_no_writer_made(left, known, content):
    left.row_log.write_bytes(log_line(content))
    recover(left.container)
    check(left, known)


def plant(path, what, precious):
    """Put a link to something precious, a pipe or a folder in place of a file."""
    if path.is_dir():
        for file in sorted(path.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    {"link": lambda: path.symlink_to(precious), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[what]()


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("what", ["link", "pipe", "folder"])
@pytest.mark.parametrize(
    "place",
    ["members_partial", "arrow_journal", "frames_journal", "row_log", "arrow_partial", "frames_partial", "reserve"],
)
def test_other_things_in_place_of_files(left, tmp_path, place, what):
    """They are refused or ignored; nothing waits for a pipe, and what a link leads to stays as it is."""
    precious = tmp_path / "precious"
    plant(getattr(left, place), what, precious)
    before = precious.read_bytes()
    if place == "members_partial" or what == "folder":
        with pytest.raises(DatasetError, match=str(left.out)):
            recover(left.container)
    else:
        assert recover(left.container).members == 9
    assert precious.read_bytes() == before
    recover_all(left.out, lambda _: None)
    assert precious.read_bytes() == before


@pytest.mark.parametrize("what", ["folder_partial", "members_partial", "sequence"])
def test_links_in_place_of_folders(tmp_path, what):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"precious")
    left = leave(tmp_path / "out", map(sample, range(3)), layout="directory")
    place = left.members_partial / SEQUENCE if what == "sequence" else getattr(left, what)
    place.rename(tmp_path / "moved")
    place.symlink_to(elsewhere)
    with pytest.raises(DatasetError):
        recover(left.container)
    assert everything(elsewhere) == {"precious": b"precious"}


def test_a_refused_one_is_let_go(tmp_path):
    """Its lock goes with it: it can be taken up again in the same process."""
    left = leave(tmp_path / "out", map(sample, range(3)), layout="directory")
    left.members_partial.rename(tmp_path / "moved")
    left.members_partial.symlink_to(tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(StorageError):
            recover(left.container)
    left.members_partial.unlink()
    (tmp_path / "moved").rename(left.members_partial)
    assert recover(left.container).members == 9


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_living_writer_is_left_alone(tmp_path, layout):
    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        writer.write(sample(0))
        writer.flush()
        before = everything(tmp_path)
        with pytest.raises(InUseError):
            recover(tmp_path / "drive")
        with pytest.raises(InUseError):
            UnfinishedDataset(writer.paths)
        said = []
        recover_all(tmp_path, said.append)
        assert said == []
        assert everything(tmp_path) == before
        writer.finish({})
