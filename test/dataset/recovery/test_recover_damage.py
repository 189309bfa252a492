# SPDX-License-Identifier: Apache-2.0
"""Damage that `benchmark/fuzz.py --kind left` found: what is lost is told, and what is kept is right and agrees."""

import os
from dataclasses import replace

import pytest
from unfinished_datasets import (
    KINDS,
    SEQUENCE,
    cut,
    finish,
    leave,
    members,
    picture,
    rewound,
    sample,
    spans,
    table,
)

from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.recovery.journals import Journals
from edgefirst_ros.dataset.recovery.recover import recover
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.validate import validate
from edgefirst_ros.errors import DatasetError

SAMPLES = [sample(frame) for frame in range(6)]
COMMITS = {1, 3}


@pytest.fixture
def known(tmp_path):
    """[(name, start, end)] of the members."""
    return spans(finish(tmp_path / "whole", SAMPLES).container)


def overwrite(path, place, data):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(data)


def name_of(frame, kind):
    return f"{SEQUENCE}/{SEQUENCE}_{frame:03d}.{kind}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_member_that_is_gone_is_told(tmp_path, layout, kind):
    """Without a trace: the file is not there, or the archive ends before it."""
    last = sample(9)
    last = replace(last, members=sorted(last.members, key=lambda member: member[0] == kind))
    paths = leave(tmp_path / "out", [*SAMPLES, last], layout=layout)
    if layout == "directory":
        (paths.members_partial / name_of(9, kind)).unlink()
    else:
        cut(paths.members_partial, spans(finish(tmp_path / "whole", [*SAMPLES, last]).container)[-1][1])
    report = recover(paths.container)
    assert (report.samples, report.members, report.members_missing, report.lost_stretches) == (7, 20, 1, 0)
    assert report.exit_code == 3
    assert "missing, but named by the journal: 1 member" in report.sentence


@pytest.mark.parametrize("commits", [(), {5}], ids=["open", "committed"])
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_no_file_in_place_of_a_member(tmp_path, what, commits):
    """It is not taken into the dataset, and what a link leads to stays as it is."""
    paths = leave(tmp_path / "out", SAMPLES, layout="directory", commits=commits, fsync=True)
    place, precious = paths.members_partial / name_of(2, "lidar.pcd"), tmp_path / "precious"
    precious.write_bytes(b"precious")
    place.unlink()
    place.symlink_to(precious) if what == "link" else os.mkfifo(place)
    report = recover(paths.container)
    assert [(lost.name, lost.why) for lost in report.lost] == [(name_of(2, "lidar.pcd"), "not a regular file")]
    assert (report.members, report.members_missing) == (17, 1)
    assert not os.path.lexists(paths.members / name_of(2, "lidar.pcd"))
    assert precious.read_bytes() == b"precious"
    assert validate(paths.container).ok


def test_a_damaged_name_is_no_member(known, tmp_path):
    """A header has no checksum; an archive of another tool may hold what it likes."""
    paths = leave(tmp_path / "out", SAMPLES, commits=COMMITS)
    name, start, end = known[4]
    overwrite(paths.members_partial, start + 30 + len(SEQUENCE), b"\0")
    report = recover(paths.container)
    assert [(lost.start, lost.end, lost.why) for lost in report.lost] == [(start, end, "no name of a member")]
    assert name not in members(paths)
    assert len(members(paths)) == len(known) - 1
    assert validate(paths.container).ok


@pytest.mark.parametrize(
    ("damage", "at", "kept"),
    [("time", 7, 2), ("name", 7, 2), ("kind", 7, 2), ("repeated", 1, 0), ("dropped", 1, 0), ("longer", 1, 0)],
)
def test_an_unfinished_one_is_continued_from_what_is_as_it_was_written(known, tmp_path, damage, at, kept):
    """Whole members are not enough: they must be those of the samples that were committed."""
    whole = finish(tmp_path / "again", SAMPLES)
    paths = leave(tmp_path / "out", SAMPLES, commits=COMMITS)
    data = paths.members_partial.read_bytes()
    (_, before, start), (name, _, end) = known[at - 1 : at + 1]
    changed = {
        "time": data[: start + 12] + b"1" + data[start + 13 :],
        "name": data[: start + 32 + 2 * len(SEQUENCE)] + b"1" + data[start + 33 + 2 * len(SEQUENCE) :],
        "kind": data[: start + 29 + len(name)] + b"_" + data[start + 30 + len(name) :],
        "repeated": data[:start] + data[before:start] + data[end:],
        "dropped": data[:start] + data[end:],
        "longer": data[:end] + data[start:end] + data[end:],
    }
    paths.members_partial.write_bytes(changed[damage])
    assert rewound(paths) == kept
    continued(paths)
    assert paths.container.read_bytes() == whole.container.read_bytes()
    assert table(paths.frames).equals(table(whole.frames))
    assert table(paths.arrow).equals(table(whole.arrow))


def continued(paths):
    """A writer that was given all samples takes over what it can."""
    with DatasetWriter(paths.out, paths.name, layout=paths.layout, unfinished=UnfinishedDataset(paths)) as writer:
        for one in SAMPLES:
            writer.write(one)
        writer.finish({"counts": {}})


def test_a_picture_that_is_gone_is_written_again(tmp_path):
    """The frames table does not name its kind, but a sample with a size has one."""
    paths = leave(tmp_path / "out", SAMPLES, layout="directory", commits=COMMITS, fsync=True)
    gone = name_of(2, "camera.jpeg")
    (paths.members_partial / gone).unlink()
    assert rewound(paths) == 2
    continued(paths)
    assert members(paths)[gone] == picture(2)


def test_a_disk_that_did_not_keep_its_word_is_not_trusted(known, tmp_path):
    """The archive is shorter than it was synced, so that the rest of it is compared before a writer continues it."""
    paths = leave(tmp_path / "out", SAMPLES, commits=COMMITS, fsync=True)
    _, _, end = known[4]
    overwrite(paths.members_partial, end - 100, bytes(100))
    cut(paths.members_partial, known[11][2] - 1)
    assert rewound(paths) == 0


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_a_damaged_member_that_the_disk_was_never_said_to_have_is_looked_at(known, tmp_path, layout):
    """The commit is there, but nothing of it was synced: a writer goes on behind the commit before."""
    paths = leave(tmp_path / "out", SAMPLES, layout=layout, commits=COMMITS)
    if layout == "directory":
        file = paths.members_partial / name_of(3, "camera.jpeg")
        overwrite(file, 0, bytes(file.stat().st_size))
    else:
        (end,) = (end for name, _, end in known if name == name_of(3, "camera.jpeg"))
        overwrite(paths.members_partial, end - 100, bytes(100))
    assert rewound(paths) == 2
    continued(paths)
    assert members(paths)[name_of(3, "camera.jpeg")] == picture(3)


def test_of_a_member_that_is_there_twice_the_first_stays(known, tmp_path):
    paths = leave(tmp_path / "out", SAMPLES)
    name, start, end = known[4]
    data = paths.members_partial.read_bytes()
    paths.members_partial.write_bytes(data + data[start:end])
    report = recover(paths.container)
    size = len(data)
    assert [(lost.start, lost.end, lost.name, lost.why) for lost in report.lost] == [
        (size, size + end - start, name, "exists twice")
    ]
    assert list(members(paths)) == [name for name, _, _ in known]


def test_rows_are_given_up_to_any_number(tmp_path):
    """Of a batch of the journal, and of the log behind it."""
    journals = Journals(leave(tmp_path, SAMPLES, commits={3}))
    for rows in range(8):
        assert [frame for batch in journals.frames.batches(rows) for frame in batch["frame"].to_pylist()] == [
            *range(6)
        ][:rows]


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(DatasetError, match=r"'a\\x00b' is not a valid path"):
        recover("a\0b")
