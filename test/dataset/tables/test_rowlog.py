# SPDX-License-Identifier: Apache-2.0
"""The row log: read back whole, up to a cut or damage, and bounded by what its file can hold."""

import errno
import json
import math
import os
import struct
import tracemalloc
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.dataset import DatasetWriter, NewSample
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.tables import rowlog
from edgefirst_ros.dataset.tables.rowlog import ANNOTATION_ROWS, Checkpoint, LoggedRows, RowLog, RowRules, Rows
from edgefirst_ros.errors import DatasetError, StorageError
from edgefirst_ros.limits import Limits

STAMP = 1_767_323_045_000_000_000


def row(frame, **columns):
    return {"name": "drive", "frame": frame, "timestamp": STAMP + frame, **columns}


ROWS = {
    0: [row(0)],
    1: [row(1, label="car", mask=b"\x89PNG\0\xff", mask_score=0.5), row(1, mask=b"", polygon=[[0, 0, 1, 0, 1, 1.25]])],
    2: [
        row(2, box2d=np.array([0, 0.1, 1, 1], np.float32), box2d_score=np.float32(0.1), iscrowd=np.bool_(True)),
        row(2, timing={"load": 1, "preprocess": None, "inference": 2, "decode": 3}, label="Gänsefüßchen"),
        row(2, location=(45.123456789, -73.5), neg_label_indices=[1, 2], label_index=2**64 - 1),
    ],
    3: [row(3, label="person", box3d=(1e-7, 2, 3, 4, 5, 6), object_id="x")],
}


def written(path, commits=(1, 3), members=()):
    """A log of the samples above; returns the size of its file after each of them."""
    log, ends = RowLog(path, ["lidar_points"]), []
    for frame, rows in ROWS.items():
        log.announce([(f"member {frame}", 7, 2**32 - 1), *members])
        log.append(row(frame, latitude=45.0 + frame / 3, lidar_points_skew=-frame), rows)
        ends.append(path.stat().st_size)
        if frame in commits:
            log.commit(100 * frame, {"labels": ["car"], "counts": {"/a": frame}}, sync=frame == 1)
    log.close()
    return ends


def frames_in(rows):
    return [frame for batch in rows.batches() for frame in batch["frame"].to_pylist()]


def test_all_is_read_back(tmp_path):
    written(tmp_path / "log")
    found = LoggedRows(tmp_path / "log")
    assert found.why == ""
    assert found.companions == ["lidar_points"]
    assert found.description == {"labels": ["car"], "counts": {"/a": 3}}
    assert [(p.samples, p.rows, p.bytes, p.synced) for p in found.points] == [
        (0, 0, 0, True),
        (2, 3, 100, True),
        (4, 7, 300, False),
    ]
    assert found.members == {f"member {frame}": (7, 2**32 - 1) for frame in ROWS}
    wanted = [one for rows in ROWS.values() for one in rows]
    expected = [
        {n: v.tolist() if isinstance(v, (np.generic, np.ndarray)) else v for n, v in one.items()} for one in wanted
    ]
    table = pa.Table.from_batches(found.annotations.batches())
    assert table.equals(pa.Table.from_pylist(expected, schema=ANNOTATION_ROWS))
    frames = pa.Table.from_batches(found.frames.batches()).to_pylist()
    assert [one["latitude"] for one in frames] == [45.0 + frame / 3 for frame in range(4)]
    assert [one["lidar_points_skew"] for one in frames] == [0, -1, -2, -3]


def test_a_log_cut_at_every_byte(tmp_path):
    """Every sample whose record is whole is there, in both tables."""
    path = tmp_path / "log"
    ends = written(path, commits=())
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        found = LoggedRows(path)
        assert frames_in(found.frames) == list(range(whole)), cut
        assert found.annotations.count == sum(len(ROWS[frame]) for frame in range(whole))
        assert found.why == ""


@settings(max_examples=150)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=16))
def test_damage_ends_a_log_and_never_raises(tmp_path_factory, place, noise):
    path = tmp_path_factory.getbasetemp() / "damaged"
    ends = written(path)
    data = bytearray(path.read_bytes())
    place %= len(data)
    before = bytes(data)
    data[place : place + len(noise)] = noise
    path.write_bytes(data[: len(before)])
    found = LoggedRows(path)
    if data[: len(before)] != before:
        assert frames_in(found.frames) == list(range(sum(end <= place for end in ends)))


def test_a_stale_record_does_not_follow_a_new_one(tmp_path):
    """What a power cut leaves of a longer log after the end of a shorter one is not part of it."""
    written(tmp_path / "long", commits=(0,))
    point = LoggedRows(tmp_path / "long").points[-1]
    long = (tmp_path / "long").read_bytes()
    log = RowLog(tmp_path / "long", ["lidar_points"], point)
    log.append(row(1, latitude=46.0, lidar_points_skew=-1), ROWS[1])
    log.close()
    short = (tmp_path / "long").read_bytes()
    (tmp_path / "long").write_bytes(short + long[len(short) :])
    assert frames_in(LoggedRows(tmp_path / "long").frames) == [0, 1]


def test_a_log_goes_on_after_a_commit(tmp_path):
    path = tmp_path / "log"
    written(path)
    whole, points = path.read_bytes(), LoggedRows(path).points
    log = RowLog(path, ["lidar_points"], points[1])
    assert path.stat().st_size == points[1].end
    for frame in (2, 3):
        log.announce([(f"member {frame}", 7, 2**32 - 1)])
        log.append(row(frame, latitude=45.0 + frame / 3, lidar_points_skew=-frame), ROWS[frame])
    log.close()
    assert path.read_bytes() == whole[: path.stat().st_size]
    assert frames_in(LoggedRows(path).frames) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [1, 3000])
def test_batches_are_read_back(tmp_path, count):
    log = RowLog(tmp_path / "log", ())
    rows = [row(5, label=f"label {n}", mask=bytes(n % 7)) for n in range(count)]
    batch = pa.RecordBatch.from_pylist(rows, schema=ANNOTATION_ROWS)
    log.append(row(5), (), batch)
    _, annotations = log.read()
    log.close()
    assert pa.Table.from_batches(annotations.batches()).equals(pa.Table.from_batches([batch]))


@pytest.mark.parametrize("end", ["commit", "close", "read"])
def test_batches_of_samples_share_a_record(tmp_path, end):
    """100 samples are in two records, and rows of a sample without a batch stay in order between them."""
    log = RowLog(tmp_path / "log", ())
    for frame in range(100):
        log.append(row(frame), (), pa.RecordBatch.from_pylist([row(frame)] * (frame % 3), schema=ANNOTATION_ROWS))
    log.append(row(100), [row(100)])
    log.append(row(101), (), pa.RecordBatch.from_pylist([row(101)], schema=ANNOTATION_ROWS))
    {"commit": lambda: log.commit(0, {}, sync=False), "close": log.close, "read": log.read}[end]()
    found = LoggedRows(tmp_path / "log")
    log.close()
    assert frames_in(found.frames) == [*range(102)]
    assert frames_in(found.annotations) == [frame for frame in range(100) for _ in range(frame % 3)] + [100, 101]
    assert (tmp_path / "log").read_bytes().count(b'"batch"') == 3


def test_a_batch_that_does_not_fit_on_the_disk_is_written_later(tmp_path, monkeypatch):
    """The sample that failed is not in the log; those before it are."""
    log = RowLog(tmp_path / "log", ())

    def add(frame):
        log.append(row(frame), (), pa.RecordBatch.from_pylist([row(frame)], schema=ANNOTATION_ROWS))

    for frame in range(63):
        add(frame)
    with monkeypatch.context() as full:
        full.setattr(rowlog, "write_at", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StorageError, match="No space left"):
            add(63)
    assert (log.samples, log.rows) == (63, 63)
    add(64)
    assert frames_in(log.read()[1]) == [*range(63), 64]
    log.close()


def test_a_batch_that_states_more_than_its_file_holds_ends_the_log(tmp_path, monkeypatch):
    log = RowLog(tmp_path / "log", ())
    log.append(row(1), [row(1)])
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    batch = pa.RecordBatch.from_pylist([row(5, label="x" * 4000)] * 4096, schema=ANNOTATION_ROWS)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch.slice(0, 1))
        begin = sink.tell()
        stream.write_batch(batch)
        packed = sink.tell()
    data = memoryview(sink.getvalue())[begin:packed]
    log._write({"frame": row(5), "batch": 4096}, blobs=[data])
    log.close()
    assert LoggedRows(tmp_path / "log").annotations.count == 4097
    monkeypatch.setattr(rowlog, "DEFAULT_LIMITS", Limits(table_rows=1, unpacked_bytes=1 << 20))
    found = LoggedRows(tmp_path / "log")
    assert (found.annotations.count, found.frames.count) == (1, 1)
    assert "unpacks to" in found.why


def test_a_length_that_lies_is_not_allocated(tmp_path):
    path = tmp_path / "log"
    written(path)
    with path.open("ab") as file:
        file.write(struct.pack("<4I", 0, 0x7FFFFFF0, 0, 0x7FFFFFF0))
    tracemalloc.start()
    assert LoggedRows(path).frames.count == 4
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def record(content, rows=(), blob=b"", before=0):
    """A record with a right checksum, as the format is documented."""
    text, listed = json.dumps(content).encode(), json.dumps(list(rows)).encode() if rows else b""
    body = struct.pack("<3I", len(text), len(listed), len(blob)) + text + listed + blob
    return struct.pack("<I", zlib.crc32(body, before)) + body


@pytest.mark.parametrize(
    ("content", "rows", "why"),
    [
        ({"frame": row(0, novelty=1)}, [], "no column 'novelty'"),
        ({"frame": row(0)}, [row(0, novelty=1)], "no column 'novelty'"),
        ({"frame": row(0)}, [row(1)], "rows of another one"),
        ({"frame": row(0), "batch": 1}, [], ""),
        ({"frames": [row(0)], "batch": 1}, [], ""),
        ({"frames": [row(0), row(0)], "batch": 1}, [], "two places"),
        ({"frames": 3, "batch": 1}, [], ""),
        ({"frame": {**row(0), "name": "../x"}}, [{**row(0), "name": "../x"}], "cannot name"),
        ({"frame": {**row(0), "frame": -1}}, [], "cannot name"),
        ({"frame": {**row(0), "frame": None}}, [], "has no name"),
        ({"frame": 3}, [], ""),
        ({"frame": row(0, latitude="north")}, [row(0)], "latitude does not fit"),
        ({"frame": row(0)}, [row(0, label=5)], "label does not fit"),
        ({"frame": row(0)}, [row(0, mask=5)], "masks have other lengths"),
        ({"frame": row(0)}, [row(0, mask="x")], ""),
        ({"commit": {"samples": 1, "rows": 0, "bytes": 0}}, [], "does not agree"),
        ({"commit": {"samples": 0, "rows": 0, "bytes": -1}}, [], "does not agree"),
        ({"commit": {"samples": 0, "rows": 0, "bytes": 0, "description": 3}}, [], ""),
        ({"commit": 3}, [], ""),
        ({"members": [["a", 1]]}, [], ""),
        ({"members": 3}, [], ""),
        ({"format": 2, "companions": []}, [], "no record of"),
        ({"format": 1, "companions": 3}, [], ""),
        ({"format": 1, "companions": ["x" * 10]}, [], ""),
        ({}, [], "no record of"),
    ],
    ids=str,
)
def test_records_that_are_not_understood_end_the_log(tmp_path, content, rows, why):
    path = tmp_path / "log"
    RowLog(path, ()).close()
    begin = path.read_bytes()
    path.write_bytes(begin + record(content, rows, before=int.from_bytes(begin[:4], "little")))
    found = LoggedRows(path)
    assert found.why
    assert why in found.why
    assert len(found.points) == 1
    assert (frames_in(found.frames), frames_in(found.annotations)) in (([], []), ([0], []), ([], [0]))


@pytest.mark.parametrize("text", [b"[" * 100_000, b"{", b"7", b"\xff"])
def test_records_without_an_object_end_the_log(tmp_path, text):
    path = tmp_path / "log"
    body = struct.pack("<3I", len(text), 0, 0) + text
    path.write_bytes(struct.pack("<I", zlib.crc32(body)) + body)
    assert LoggedRows(path).frames.count == 0


def test_the_rows_of_a_sample_are_in_one_place(tmp_path):
    log = RowLog(tmp_path / "log", ())
    for _ in range(2):
        log.append(row(1), [row(1)])
    log.close()
    found = LoggedRows(tmp_path / "log")
    assert found.frames.count == 1
    assert "two places" in found.why


@pytest.mark.parametrize(
    "bad",
    [
        {"name": None},
        {"polygon": [[0, 0, 1]]},
        {"polygon": [[0, 0, 1, 1]]},
        {"box2d_score": 1.5},
        {"box2d_score": -0.01},
        {"box2d_score": "0.5"},
        {"mask_score": math.nan},
        {"box2d": (0, 0, 1, math.nan)},
        {"box3d": (0, 0, 1, math.inf, 0, 0)},
        {"colour": "red"},
    ],
)
def test_invalid_rows_are_refused(bad):
    with pytest.raises(DatasetError):
        RowRules(ANNOTATION_ROWS).check(row(1) | bad)


@pytest.mark.parametrize("bad", [{"box2d": (1, 2, 3)}, {"frame": -1}, {"label": 5}, {"label": "\ud800"}, {"timing": 3}])
def test_rows_of_a_wrong_type_are_refused(bad):
    made = Rows(ANNOTATION_ROWS)
    made.append(row(1) | bad)
    with pytest.raises(DatasetError, match=next(iter(bad))):
        made.settle()
    made.append(row(2))
    assert frames_in(made) == [2]
    assert made.count == 1


def test_rows_beyond_the_memory_are_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(rowlog, "IN_MEMORY", 3000)
    made = Rows(ANNOTATION_ROWS, tmp_path)
    for frame in range(50):
        made.append_batch(pa.RecordBatch.from_pylist([row(frame)], schema=ANNOTATION_ROWS))
    for _ in range(2):
        assert frames_in(made) == list(range(50))
    assert [frame for batch in made.batches(33) for frame in batch["frame"].to_pylist()] == list(range(33))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["pwritev", "fdatasync"])
def test_a_disk_that_refuses_loses_nothing_before(tmp_path, monkeypatch, call):
    log = RowLog(tmp_path / "log", ())
    log.append(row(1), [row(1)])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError, match="No space"):
            log.commit(10, {}, sync=True)
    log.append(row(2), [row(2)])
    log.commit(20, {}, sync=True)
    log.close()
    found = LoggedRows(tmp_path / "log")
    assert frames_in(found.frames) == [1, 2]
    assert found.points[-1] == Checkpoint(2, 2, 20, True, found.points[-1].end, found.points[-1].checksum)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_table_is_not_sealed_with_fewer_rows_than_were_written(tmp_path, layout):
    """The disk lost a block of the log; what is left stays for `recover`."""
    with DatasetWriter(tmp_path, "drive", layout=layout) as writer:
        for frame in range(3):
            writer.write(NewSample("s", frame, 10**18 + frame, [("camera.png", [png(frame)])]))
            writer.flush()
        path = writer.paths.row_log
        data = bytearray(path.read_bytes())
        data[-400:] = b"\xff" * 400
        path.write_bytes(data)
        with pytest.raises(StorageError, match=rf"{path.name}: \d samples .* read back of 3 .*recover"):
            writer.finish({})
    assert recover(tmp_path / "drive").samples == 3


def png(frame):
    from io import BytesIO

    from PIL import Image

    data = BytesIO()
    Image.new("L", (4, 4), frame).save(data, "PNG")
    return data.getvalue()
