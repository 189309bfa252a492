# SPDX-License-Identifier: Apache-2.0
"""Datasets cut anywhere: exactly the whole members survive, and the tables say what the members say."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import edgefirst_client
import pyarrow as pa
import pytest
from unfinished_datasets import (
    JOURNALS,
    KINDS,
    SEQUENCE,
    check,
    copy,
    cut,
    everything,
    finish,
    leave,
    members,
    readers_accept,
    sample,
    spans,
    table,
)

from edgefirst_ros.dataset.recovery.recover import recover, recover_all
from edgefirst_ros.dataset.tables.rowlog import LoggedRows
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError

TINY = range(3)
COMMITS = {4, 9, 14, 19, 29}
LARGER_SAMPLES = [sample(frame, size=(64, 40), noise=True) for frame in range(40)]
CUTS = 60
STEP = 149
"""Bytes from one cut to the next; 1 takes minutes, and test_scan.py takes every byte of the archive."""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The disk is not waited for: nothing here is about that."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda _: None)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Three samples, the first committed; and the members of the archive as it would have become."""
    root = tmp_path_factory.mktemp("tiny")
    paths = leave(root / "left", map(sample, TINY), commits={0})
    return paths, spans(finish(root / "whole", map(sample, TINY)).container)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    """Forty samples, thirty of them committed and on the disk."""
    root = tmp_path_factory.mktemp("larger")
    paths = leave(root / "left", LARGER_SAMPLES, commits=COMMITS, fsync=True)
    return paths, spans(finish(root / "whole", LARGER_SAMPLES).container)


def recovered(paths, expected):
    """Recover; exactly these members are there then, or there is nothing whole."""
    if not expected:
        with pytest.raises(DatasetError, match="no whole member"):
            recover(paths.container)
        assert not paths.container.exists()
        return
    report = recover(paths.container)
    assert report.members == len(expected)
    assert len(table(paths.frames)) == report.samples
    check(paths, expected)


def whole_until(known, size):
    return [name for name, _, end in known if end <= size]


# ---- power cuts ------------------------------------------------------------------------------
def test_the_archive_cut(tiny, tmp_path):
    left, known = tiny
    edges = {end + n for _, _, end in known for n in (-1, 0, 1)}
    for size in sorted(edges | set(range(0, known[-1][2], STEP))):
        if size <= known[-1][2]:
            paths = copy(left, tmp_path / "cut")
            cut(paths.members_partial, size)
            recovered(paths, whole_until(known, size))


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_journal_cut(tiny, tmp_path, journal):
    """All members survive, and their samples have their rows: from the journal, the log or the members."""
    left, known = tiny
    size = getattr(left, journal).stat().st_size
    for at in {*range(0, size, STEP), size - 1}:
        paths = copy(left, tmp_path / "cut")
        cut(getattr(paths, journal), at)
        recovered(paths, [name for name, _, _ in known])


def test_everything_cut_at_random(larger, tmp_path):
    left, known = larger
    chance = random.Random(1)
    for _ in range(CUTS):
        paths = copy(left, tmp_path / "cut")
        size = known[-1][2]
        for name in ("members_partial", *JOURNALS):
            if chance.random() < 0.6:
                length = getattr(paths, name).stat().st_size
                cut(getattr(paths, name), chance.randrange(length + 1))
            size = paths.members_partial.stat().st_size
        recovered(paths, whole_until(known, size))


def test_blocks_that_never_reached_the_disk(larger, tmp_path):
    """Of what was under way any block may be zeros; whole members behind a hole are kept as well."""
    left, known = larger
    before = leave(tmp_path / "before", LARGER_SAMPLES[:20], commits=COMMITS, fsync=True)
    synced = {name: getattr(before, name).stat().st_size for name in JOURNALS}
    synced |= {"members_partial": known[30 * len(KINDS) - 1][2]}
    original = left.members_partial.read_bytes()
    chance, holes = random.Random(2), 0
    for _ in range(max(8, CUTS // 5)):
        paths = copy(left, tmp_path / "holes")
        share = chance.choice((0.1, 0.3, 0.6))
        for name, begin in synced.items():
            file = getattr(paths, name)
            file.write_bytes(zeroed(file.read_bytes(), begin, share, chance))
        data = paths.members_partial.read_bytes()
        expected = [name for name, start, end in known if data[start:end] == original[start:end]]
        assert len(expected) >= 30 * len(KINDS)
        recovered(paths, expected)
        if holes == 0 and expected[-1] == known[-1][0] and len(expected) < len(known):
            holes += 1
            assert set(readers_accept(paths.container).values()) == {0}
            edgefirst_client.read_dataset_metadata(str(paths.arrow))
            report = validate(paths.container)
            assert report.ok, report.to_text()
            assert {finding.rule for finding in report.findings} <= {"HDR005", "CAL001"}
    assert holes


def zeroed(data, begin, share, chance):
    """The bytes with some of the blocks of 4096 behind `begin` zeroed, in which the disk had nothing before."""
    data = bytearray(data)
    for start in range(-(-begin // 4096) * 4096, len(data), 4096):
        if chance.random() < share:
            data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    return bytes(data)


# ---- what it reports, and what it leaves alone -----------------------------------------------
@pytest.mark.parametrize(
    ("seen", "dropped", "expected"),
    [
        (None, {}, {"seen": 3, "written": 3, "dropped": {}}),
        (1, {}, {"seen": 3, "written": 3, "dropped": {}}),
        (10, {"x": 2}, {"seen": 10, "written": 3, "dropped": {"x": 2, "not reached before the interruption": 5}}),
    ],
    ids=["unknown", "behind", "ahead"],
)
def test_counts_add_up(tmp_path, seen, dropped, expected):
    """Those of the last commit may be older than the samples that are there, or may go beyond them."""
    counts = {} if seen is None else {
        topic: {"seen": seen, "written": 1, "dropped": dict(dropped)} for topic in ("/camera", "/cube")
    }  # fmt: skip
    topics = {SEQUENCE: {"reference": "/camera", "radar_cube": "/cube"}}
    paths = leave(tmp_path, map(sample, TINY), describe=lambda: {"counts": counts, "topics": topics})
    recover(paths.container)
    found = json.loads(pa.ipc.open_file(paths.frames.read_bytes()).schema.metadata[b"counts"])
    assert found["/camera"] == expected
    assert found["/cube"] == expected
    assert "REF006" not in {finding.rule for finding in validate(paths.container).findings}


def test_samples_whose_rows_are_rebuilt_count_as_written(tmp_path):
    """The log is cut after its commit; the members of all samples are there."""
    boxes = {"score outside 0..1": 30}  # of one message there may be several
    counts = {
        "/camera": {"seen": 10, "written": 2, "dropped": {}}, "/model": {"seen": 9, "written": 2, "dropped": boxes}
    }  # fmt: skip
    described = {"counts": counts, "topics": {SEQUENCE: {"reference": "/camera", "model": "/model"}}}
    paths = leave(tmp_path, map(sample, range(4)), commits={1}, describe=lambda: described)
    cut(paths.row_log, LoggedRows(paths.row_log).points[-1].end)
    assert recover(paths.container).rows_rebuilt == 2
    found = json.loads(pa.ipc.open_file(paths.frames.read_bytes()).schema.metadata[b"counts"])
    gone = "not reached before the interruption"
    assert found == {
        "/camera": {"seen": 10, "written": 4, "dropped": {gone: 6}},
        "/model": {"seen": 9, "written": 0, "dropped": {**boxes, gone: 9}},  # no row that is left names a result
    }


def test_a_sample_that_needs_no_member_stays(tmp_path):
    bare = replace(sample(1), members=[], frame_row={"segment": 0})
    paths = leave(tmp_path, [sample(0), bare, sample(2)])
    cut(paths.members_partial, paths.members_partial.stat().st_size - 1)
    report = recover(paths.container)
    assert (report.samples, report.members, report.rows_dropped) == (3, 5, 0)
    assert table(paths.frames)["frame"].to_list() == [0, 1, 2]


def test_a_second_run_changes_nothing(larger, tmp_path):
    left, _ = larger
    paths = copy(left, tmp_path / "out")
    assert recover(paths.container).exit_code == 0
    before = everything(paths.out)
    assert set(before) == {"drive.zip", "drive.arrow", "drive.frames.arrow"}
    assert recover(paths.container).complete
    assert everything(paths.out) == before


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_dry_run_changes_nothing(tmp_path, layout):
    paths = leave(tmp_path / "out", map(sample, TINY), commits={0}, layout=layout)
    if layout == "zip":
        cut(paths.members_partial, paths.members_partial.stat().st_size - 1)
    else:
        (paths.members_partial / SEQUENCE / f"{SEQUENCE}_002.lidar.pcd").write_bytes(b"")
    before = everything(paths.out)
    report = recover(paths.container, dry_run=True)
    assert (report.samples, report.members, report.lost_stretches) == (3, 8, 1)
    assert everything(paths.out) == before
    done = recover(paths.container)
    assert (done.samples, done.members, done.lost_stretches) == (3, 8, 1)


@pytest.mark.parametrize("journals", [True, False])
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_finished_dataset_is_replaced_only_with_overwrite(tmp_path, layout, journals):
    """Also where the journals that tell of the replacement are gone. A dry run tells what is unfinished."""
    paths = leave(tmp_path / "out", map(sample, TINY), commits={1}, layout=layout)
    older = finish(tmp_path / "older", [sample(9)], layout=layout)
    shutil.copytree(older.out, paths.out, dirs_exist_ok=True)
    for file in () if journals else list(paths.out.rglob("*.journal")):
        file.unlink()
    before = everything(paths.out)
    assert recover(paths.container, dry_run=True).samples == 3
    with pytest.raises(DatasetError, match="--overwrite"):
        recover(paths.container)
    assert everything(paths.out) == before
    assert recover(paths.container, overwrite=True).samples == 3
    assert table(paths.frames)["frame"].to_list() == [0, 1, 2]


@pytest.mark.parametrize("layout", ["zip", "directory"])
@pytest.mark.parametrize("named", ["", ".zip", ".zip.partial", ".rows.journal"])
def test_named_by_any_file(tmp_path, layout, named):
    paths = leave(tmp_path / "out", map(sample, TINY), layout=layout)
    given = paths.out / f"drive{named if layout == 'zip' else ''}"
    assert recover(given).samples == 3
    assert len(members(paths)) == 9


def test_all_of_a_folder(tmp_path):
    for layout, name in (("zip", "one"), ("directory", "two")):
        leave(tmp_path, map(sample, TINY), layout=layout, name=name)
    said = []
    recover_all(tmp_path, said.append)
    assert len(said) == 2
    assert all("completed" in line and "3 samples, 9 members" in line for line in said)
    assert sorted(os.listdir(tmp_path)) == ["one.arrow", "one.frames.arrow", "one.zip", "two"]


KILLED = """
import os, signal, sys
from edgefirst_ros.dataset.merge import merge

def progress(what, done, of):
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)

merge(sys.argv[1:3], sys.argv[3], name="both", rename=True, progress=progress)
"""


def test_a_merge_that_was_killed(tmp_path):
    """What was not copied yet is missing, and nothing else would tell."""
    for name in ("one", "two"):
        finish(tmp_path / name, map(sample, TINY))
    sources = [tmp_path / name / "drive.zip" for name in ("one", "two")]
    run = subprocess.run([sys.executable, "-c", KILLED, *sources, tmp_path / "out"], check=False)
    assert run.returncode == -signal.SIGKILL
    said = []
    recover_all(tmp_path / "out", said.append)
    assert len(said) == 1
    assert "4 samples" in said[0]
    assert "the merge of drive, drive was interrupted" in said[0]
    assert "--overwrite" in said[0]


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_left_before_the_first_member_was_whole(tmp_path, layout):
    paths = leave(tmp_path / "out", [], layout=layout)
    if layout == "directory":
        (paths.members_partial / SEQUENCE).mkdir()
        (paths.members_partial / SEQUENCE / ".partial").write_bytes(b"half")
    else:
        paths.members_partial.write_bytes(b"PK\x03")
    with pytest.raises(DatasetError, match="no whole member"):
        recover(paths.container)
    assert os.listdir(paths.out) == []


def test_a_damaged_member_that_ends_with_the_file_is_left_as_it_is(tmp_path):
    """Nothing of it is cut off: what is there may be of use to somebody."""
    paths = leave(tmp_path / "out", [sample(0)])
    (_, start, end), *_ = spans(finish(tmp_path / "whole", [sample(0)]).container)
    data = bytearray(paths.members_partial.read_bytes()[:end])
    data[-60:] = bytes(60)
    paths.members_partial.write_bytes(data)
    paths.row_log.unlink()
    with pytest.raises(DatasetError, match="stays as it is"):
        recover(paths.container)
    assert (start, paths.members_partial.read_bytes()) == (0, bytes(data))


def test_what_another_program_left_without_a_whole_member_stays(tmp_path):
    (tmp_path / "drive.zip.partial").write_bytes(b"PK\x03")
    with pytest.raises(DatasetError, match="no whole member"):
        recover(tmp_path / "drive")
    assert everything(tmp_path) == {"drive.zip.partial": b"PK\x03"}


# ---- finished ----------------------------------------------------------------------------------
def with_bad_rows(table):
    """The bytes of a table that opens, but whose rows Arrow itself refuses."""
    for at in range(0, len(table), 8):
        data = table[:at] + bytes(byte ^ 255 for byte in table[at : at + 8]) + table[at + 8 :]
        try:
            pa.ipc.open_file(data).read_all().validate(full=True)
        except (pa.ArrowException, OSError) as error:
            if "null_count" in str(error):
                return data
    raise AssertionError


@pytest.mark.parametrize("damaged", [lambda table: table[:-40], with_bad_rows], ids=["cut", "rows"])
def test_a_table_of_a_finished_dataset_that_cannot_be_read_is_made_anew(tmp_path, damaged):
    paths = leave(tmp_path, LARGER_SAMPLES[:4])
    recover(paths.container)
    whole, members = paths.frames.read_bytes(), paths.container.read_bytes()
    paths.arrow.write_bytes(damaged(paths.arrow.read_bytes()))
    report = recover(paths.container)
    assert (report.exit_code, report.annotations_lost) == (3, 4)
    assert paths.arrow.with_name(f"{paths.arrow.name}.unreadable").is_file()
    assert paths.frames.read_bytes() == whole
    assert paths.container.read_bytes() == members
    assert validate(paths.container).ok
    assert recover(paths.container).complete


def test_the_members_of_a_finished_dataset_are_compared_when_asked_for(tmp_path):
    paths = leave(tmp_path, LARGER_SAMPLES[:4])
    recover(paths.container)
    assert recover(paths.container, verify=True).complete
    data = bytearray(paths.container.read_bytes())
    data[len(data) // 8] ^= 1
    paths.container.write_bytes(data)
    report = recover(paths.container, verify=True)
    assert (report.exit_code, report.complete, len(report.lost)) == (3, False, 1)
    assert paths.container.read_bytes() == bytes(data)


def test_a_complete_one_on_a_medium_that_cannot_be_written(tmp_path, monkeypatch):
    """Such a medium refuses to remove what is not there as well."""
    paths = finish(tmp_path, map(sample, TINY))

    def refused(path, missing_ok=False):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(Path, "unlink", refused)
    assert recover(paths.container).complete


@pytest.mark.parametrize("size", [300, 20_000, 70_000])
def test_masks_of_samples_behind_the_last_commit(tmp_path, size):

    def masked(frame):
        made = sample(frame)
        rows = [{**row, "mask": random.Random(frame * 8 + n).randbytes(size)} for n, row in enumerate(made.annotations)]
        return replace(made, annotations=rows)

    samples = [masked(frame) for frame in range(9)]
    paths = leave(tmp_path / "left", samples, commits={3})
    done = recover(paths.container)
    assert done.samples == 9
    whole = finish(tmp_path / "whole", samples)
    assert table(paths.arrow)["mask"].null_count() < 9
    assert table(paths.arrow)["mask"].equals(table(whole.arrow)["mask"])
