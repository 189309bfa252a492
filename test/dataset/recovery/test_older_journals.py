# SPDX-License-Identifier: Apache-2.0
"""Unfinished datasets of other versions: recovered whole where they are understood, else kept and named."""

import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from unfinished_datasets import SEQUENCE, everything, members, place_of, stamp_of, table

from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.names import DatasetPaths
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.errors import DatasetError

WRITTEN = Path(__file__).parent / "written"
"""By version 0.1.0."""
FRAMES = range(6)
LATER = """
import sys
import pyarrow as pa
from edgefirst_ros.dataset import schema

added = schema.Column("novelty", pa.float32())
schema.COLUMNS += (added,)
schema.WORKING["novelty"] = added

from edgefirst_ros.dataset.recovery.recover import recover

sys.exit(recover(sys.argv[1]).exit_code)
"""


@pytest.fixture(params=["zip", "directory"])
def left(request, tmp_path):
    shutil.copytree(WRITTEN / request.param, tmp_path / "out")
    return DatasetPaths(tmp_path / "out", "drive", request.param)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_one_of_the_last_version_with_journals_is_recovered_whole(tmp_path, layout):
    """With masks, polygons and what else a row may have; two commits, and two samples in its log."""
    shutil.copytree(WRITTEN / "landed" / layout, tmp_path / "out")
    paths = DatasetPaths(tmp_path / "out", "drive", layout)
    with pytest.raises(DatasetError, match=r"version 0\.1 .*recover.*--overwrite"):
        DatasetWriter(paths.out, "drive", layout=layout, unfinished=UnfinishedDataset(paths))
    report = recover(paths.container)
    assert (report.exit_code, report.samples, report.members, report.rows_rebuilt) == (0, 6, 18, 0)
    people = [row for row in table(paths.arrow).to_dicts() if row["label"] == "person"]
    assert [row["frame"] for row in people] == list(FRAMES)
    for row in people:
        assert (row["mask"], row["mask_score"], row["object_id"]) == (b"\x89PNG mask", 0.5, "0f3c")
        assert row["timing"] == {"load": 1, "preprocess": None, "inference": 2, "decode": 3}
    assert table(paths.frames)["timestamp"].to_list() == [stamp_of(frame) for frame in FRAMES]
    left = set(paths.out.rglob("*.journal")) | set(paths.out.rglob("*.partial"))
    assert not left


def rewrite(path, change):
    """Write a journal again with other columns; its commits stay."""
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        found = list(stream.iter_batches_with_custom_metadata())
    batches = [pa.RecordBatch.from_struct_array(change(pa.table(batch.batch)).to_struct_array().combine_chunks())
               for batch in found]  # fmt: skip
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch, before in zip(batches, found, strict=True):
            metadata = dict(before.custom_metadata)
            text = metadata.get(b"checkpoint", b"")
            checksum = b"%08x" % zlib.crc32(text, zlib.crc32(batch.serialize()))
            writer.write_batch(batch, {**metadata, b"crc32": checksum})


def with_location(rows, frame, location):
    """Another position in the annotations of a frame."""
    found = [location if row["frame"] == frame else row["location"] for row in rows.to_pylist()]
    return rows.set_column(
        rows.schema.get_field_index("location"),
        rows.schema.field("location"),
        pa.array(found, rows.schema.field("location").type),
    )


def cast(table, **types):
    return table.cast(pa.schema([pa.field(f.name, types.get(f.name, f.type)) for f in table.schema]))


def labels_of(paths):
    rows = table(paths.arrow).to_dicts()
    return [[row["label"] for row in rows if row["frame"] == frame] for frame in FRAMES]


EXPECTED = [["car"] * (frame % 3) + ["person"] * (1 + (frame == 1)) for frame in FRAMES]


def check_whole(paths, report):
    assert (report.exit_code, report.samples, report.members, report.rows_rebuilt) == (0, 6, 18, 0)
    assert labels_of(paths) == EXPECTED
    frames = table(paths.frames)
    assert frames["timestamp"].to_list() == [stamp_of(frame) for frame in FRAMES]
    assert list(zip(frames["latitude"], frames["longitude"], strict=True)) == [place_of(frame) for frame in FRAMES]
    assert frames["lidar_points_skew"].to_list() == [5] * 6
    people = [row for row in table(paths.arrow).to_dicts() if row["object_id"] is not None]
    assert [row["box3d"] for row in people] == [[1, 2, 3, 4, 5, 6]] * 6
    assert [row["polygon_score"] for row in people] == [0.25] * 6
    assert people[0]["timing"] == {"load": 1, "preprocess": None, "inference": 3, "decode": 4}


def test_of_the_first_version(left):
    check_whole(left, recover(left.container))
    assert list(left.out.rglob("*.journal")) == []


def test_a_later_version_with_one_more_column(left, tmp_path):
    """No row is lost, and what it writes is what the earlier version would have written."""
    shutil.copytree(left.out, tmp_path / "later")
    run = subprocess.run([sys.executable, "-c", LATER, tmp_path / "later" / "drive"], check=False)
    assert run.returncode == 0
    check_whole(left, recover(left.container))
    assert everything(tmp_path / "later") == everything(left.out)


def test_journals_with_fewer_columns(left):
    rewrite(left.arrow_journal, lambda rows: rows.drop_columns(["polygon_score", "mask", "pose", "timing"]))
    rewrite(left.frames_journal, lambda rows: rows.drop_columns(["orientation", "segment", "radar_targets_skew"]))
    left.row_log.unlink()
    report = recover(left.container)
    assert (report.samples, report.rows_rebuilt, report.kept) == (6, 2, {})  # the two of the log
    frames = table(left.frames)
    assert frames["orientation"].to_list() == frames["segment"].to_list() == [None] * 6
    assert list(zip(frames["latitude"], frames["longitude"], strict=True))[:4] == [place_of(n) for n in range(4)]
    assert labels_of(left)[:4] == EXPECTED[:4]
    assert "timing" not in table(left.arrow).columns


def test_rows_of_frames_that_are_lost_get_the_exact_position_or_all_of_the_pictures(left):
    """The annotations have a position in float32 and no altitude: where they agree, that of the picture is kept."""
    rewrite(left.frames_journal, lambda rows: rows.slice(0, 0))
    moved = place_of(0)[0] + 1, place_of(0)[1]
    rewrite(left.arrow_journal, lambda rows: with_location(rows, 2, moved))
    left.row_log.unlink()
    report = recover(left.container)
    frames = table(left.frames)
    assert report.rows_rebuilt == 6
    assert frames["altitude"].to_list() == [30.0, 30.0, None, 30.0, 30.0, 30.0]
    assert (frames["latitude"][2], frames["longitude"][2]) == pytest.approx(moved, abs=1e-5)


def test_journals_with_other_types(left):
    rewrite(
        left.arrow_journal,
        lambda rows: cast(
            rows,
            name=pa.string(),
            frame=pa.int64(),
            label=pa.dictionary(pa.int32(), pa.string()),
            label_index=pa.uint8(),
            box2d=pa.list_(pa.float64()),
            polygon=pa.list_(pa.list_(pa.float32())),
        ),
    )
    rewrite(
        left.frames_journal,
        lambda rows: cast(rows, frame=pa.uint64(), latitude=pa.float64(), size=pa.list_(pa.int32())),
    )
    check_whole(left, recover(left.container))


def novelty(rows):
    return rows.append_column("novelty", pa.array([0.5] * len(rows), pa.float32()))


NOT_UNDERSTOOD = {
    "column": (novelty, "no column 'novelty'"),
    "type": (lambda rows: cast(rows, timestamp=pa.string()), "'timestamp' cannot be cast"),
    "value": (
        lambda rows: rows.set_column(1, "frame", pa.array([-1] * len(rows), pa.int64())),
        "'frame' cannot be cast",
    ),
    "required": (lambda rows: rows.drop_columns(["name"]), "no name"),
}


@pytest.mark.parametrize("journal", ["arrow_journal", "frames_journal"])
@pytest.mark.parametrize("what", NOT_UNDERSTOOD)
def test_one_that_is_not_understood_is_kept_and_named(left, journal, what):
    """Its rows are made anew, which is a loss; nothing goes on with such a dataset."""
    change, why = NOT_UNDERSTOOD[what]
    path = getattr(left, journal)
    rewrite(path, change)
    written, before = path.read_bytes(), everything(left.out)
    with pytest.raises(DatasetError, match=f"(?s){path.name}: is not understood.*{why}.*recover.*--overwrite"):
        DatasetWriter(left.out, "drive", layout=left.layout, unfinished=UnfinishedDataset(left))
    assert everything(left.out) == before
    report = recover(left.container)
    kept = left.out / f"{path.name}.unreadable"
    assert (report.exit_code, report.members, report.kept) == (3, 18, {path: kept})
    assert kept.read_bytes() == written
    assert f"{path.name} is not understood" in report.sentence
    assert kept.name in report.sentence
    assert len(members(left)) == 18
    metadata = pa.ipc.open_file(left.frames.read_bytes()).schema.metadata
    (recorded,) = json.loads(metadata[b"recovered"])["journals"]
    assert (recorded["file"], recorded["kept"]) == (path.name, kept.name)
    assert why in recorded["why"]
    if journal == "frames_journal":
        assert report.rows_rebuilt == 6
        assert labels_of(left)[:4] == EXPECTED[:4]
    else:
        assert list(table(left.frames)["lidar_points_skew"]) == [5] * 6


def test_a_log_that_is_not_understood(left):
    text = json.dumps([4, 12, {"name": SEQUENCE, "frame": 4, "timestamp": stamp_of(4), "novelty": 1}, []]).encode()
    left.row_log.write_bytes(b"%08x %b\n" % (zlib.crc32(text), text))
    report = recover(left.container)
    assert (report.exit_code, report.rows_rebuilt) == (3, 2)
    assert (left.out / "drive.rows.journal.unreadable").is_file()


def test_kept_ones_do_not_take_each_others_place(left):
    rewrite(left.frames_journal, novelty)
    (left.out / "drive.frames.arrow.journal.unreadable").write_bytes(b"an earlier one")
    recover(left.container)
    assert (left.out / "drive.frames.arrow.journal.unreadable").read_bytes() == b"an earlier one"
    assert (left.out / "drive.frames.arrow.journal.unreadable2").is_file()


def test_nothing_is_kept_of_a_dry_run(left):
    rewrite(left.frames_journal, novelty)
    before = everything(left.out)
    assert recover(left.container, dry_run=True).exit_code == 3
    assert everything(left.out) == before


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff\xff\0\x20\0\0", bytes(5000), b"no journal at all"])
def test_a_frames_journal_that_cannot_be_used_is_a_loss(left, content):
    """What only it knew is gone: attitudes, skews, and positions but for those in the pictures."""
    left.frames_journal.write_bytes(content)
    report = recover(left.container)
    assert (report.exit_code, report.rows_rebuilt) == (3, 6)
    assert "6 rows rebuilt" in report.sentence
    assert bool(report.kept) == (content == b"no journal at all")
    assert labels_of(left)[:4] == EXPECTED[:4]
    recovered = json.loads(pa.ipc.open_file(left.frames.read_bytes()).schema.metadata[b"recovered"])
    assert recovered["rows_rebuilt"] == 6
