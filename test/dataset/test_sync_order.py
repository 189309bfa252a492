# SPDX-License-Identifier: Apache-2.0
"""The order of syncs, renames and removals: what a name or a commit vouches for is on the disk before it."""

import os
import sys
from pathlib import Path

import handmade_dataset as made
import polars as pl
import pytest
from unfinished_datasets import finish, sample

from edgefirst_ros.dataset import Dataset, DatasetWriter
from edgefirst_ros.dataset.merge import merge
from edgefirst_ros.dataset.migrate import migrate
from edgefirst_ros.dataset.recovery.unfinished import UnfinishedDataset
from edgefirst_ros.dataset.storage import folder
from edgefirst_ros.dataset.validate.fix import fix

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="pathlib of 3.10 keeps calls of its own")
CALLS = {"fsync": 1, "fdatasync": 1, "pwritev": 1, "replace": 2, "rename": 2, "link": 2, "unlink": 1}
"""Calls that are recorded, and how many of their arguments are files."""


class Recorded(list):
    """(call, file names) in their order."""

    def at(self, call, name, after=-1):
        """Index of the first such call after another one."""
        for number, (found, *names) in enumerate(self):
            if number > after and found == call and names[0] == name:
                return number
        raise AssertionError(f"no {call} of {name} after {after}: {list(enumerate(self))[max(0, after) :]}")

    def in_order(self, *calls, after=-1):
        """Find calls one after the other; returns the index of the last."""
        for call, name in calls:
            after = self.at(call, name, after)
        return after

    def last(self, call, name):
        return max(n for n, (found, *names) in enumerate(self) if found == call and names[0] == name)


def name_of(place):
    if isinstance(place, int):
        place = os.readlink(f"/proc/self/fd/{place}").removesuffix(" (deleted)")
    return Path(place).name


@pytest.fixture
def calls(monkeypatch):
    """All calls that change names or wait for the disk, in their order."""
    found = Recorded()

    def recorded(name, real):
        def call(*arguments, **options):
            files = [name_of(place) for place in arguments[: CALLS[name]]]
            result = real(*arguments, **options)
            found.append((name, *files))
            return result

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    real = folder.sync_disk

    def sync_disk(fd):
        real(fd)
        found.append(("syncfs", name_of(fd)))

    monkeypatch.setattr(folder, "sync_disk", sync_disk)
    return found


def write(calls, out, layout, frames=range(4), **options):
    """Write samples with a commit after each second one, as a capture does."""
    with DatasetWriter(out, "drive", layout=layout, fsync=True, flush_interval=1e9, **options) as writer:
        for frame in frames:
            writer.write(sample(frame))
            if frame % 2:
                before = writer.committed
                writer.flush()
                if writer.committed > before:
                    calls.append(("committed", str(writer.committed)))
        calls.append(("finish", ""))
        writer.finish({"counts": {}})
    calls.append(("finished", ""))


MEMBERS = {"zip": ("fdatasync", "drive.zip.partial"), "directory": ("syncfs", "drive")}
LOG = "drive.rows.journal"


def assert_commits(calls, layout, wanted):
    """Members are synced after they were written and before the row log, and this before a commit is reported."""
    start = -1
    for committed in wanted:
        end = calls.at("committed", committed)
        synced = max(n for n in range(start + 1, end) if calls[n] == ("fdatasync", LOG))
        members = max(n for n in range(start + 1, end) if calls[n] == MEMBERS[layout])
        written = [n for n in range(start + 1, end) if calls[n][0] == "pwritev" and calls[n][1] != LOG]
        assert max(written) < members, "a member is written after its sync"
        recorded = [n for n in range(start + 1, end) if calls[n] == ("pwritev", LOG)]
        assert members < max(recorded) < synced, "the commit is recorded before the members are synced"
        start = end


def assert_end(calls, layout, out, *, replaces=False):
    """Each step is on the disk before the next one."""
    begin = calls.at("finish", "")
    if layout == "zip":
        data, directory = (calls.last(call, "drive.zip.partial") for call in ("fdatasync", "pwritev"))
        behind = [n for n in range(data, len(calls)) if calls[n] == ("pwritev", "drive.zip.partial")]
        assert len(behind) == 2, "directory and end record are not all that is written after the members are synced"
        steps = [("fsync", "drive.zip.partial")]
        steps += [("fsync", out), ("unlink", "drive.zip"), ("fsync", out)] if replaces else []
        steps += [("replace", "drive.arrow.partial"), ("replace", "drive.frames.arrow.partial"), ("fsync", out)]
        steps += [("replace", "drive.zip.partial"), ("fsync", out), ("unlink", LOG)]
        calls.in_order(*steps, after=directory)
    else:
        partial = "drive.partial"
        steps = [("fsync", "drive.arrow.partial"), ("fsync", "drive.frames.arrow.partial"), ("syncfs", "drive")]
        steps += [("replace", "drive.arrow.partial"), ("replace", "drive.frames.arrow.partial"), ("fsync", partial)]
        steps += [("unlink", LOG), ("fsync", partial)]
        steps += [("rename", "drive")] if replaces else []
        steps += [("rename", partial), ("fsync", out)]
        calls.in_order(*steps, after=begin)


@pytest.mark.parametrize("older", [False, True], ids=["new", "overwrite"])
@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_writer_syncs_in_order(tmp_path, calls, layout, older):
    out = tmp_path / "out"
    if older:
        finish(out, [sample(9)], layout=layout)
        calls.clear()
    write(calls, out, layout, overwrite=older)
    begun = calls.at("fsync", "out")
    assert begun < calls.at("committed", "2"), "the names of the partial files are not certain"
    if layout == "directory":
        assert calls.at("fsync", "drive.partial") < begun
    if not older:
        assert calls.at("fsync", tmp_path.name) < begun, "the name of the output folder is not certain"
    assert_commits(calls, layout, ["2", "4"])
    assert_end(calls, layout, "out", replaces=older)


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_continued_writer_syncs_members_before_its_first_commit(tmp_path, calls, layout):
    out = tmp_path / "out"
    with DatasetWriter(out, "drive", layout=layout, flush_interval=1e9) as writer:
        for frame in range(2):
            writer.write(sample(frame))
        writer.flush()
    calls.clear()
    write(calls, out, layout, unfinished=UnfinishedDataset(writer.paths))
    assert calls.at(*MEMBERS[layout]) < calls.at("fdatasync", LOG)
    assert_commits(calls, layout, ["4"])
    assert_end(calls, layout, "out")


@pytest.mark.parametrize("layout", ["zip", "directory"])
def test_merge_syncs_in_order(tmp_path, calls, layout):
    paths = finish(tmp_path / "one", [sample(frame) for frame in range(3)])
    calls.clear()
    calls.append(("finish", ""))
    merge([paths.container], tmp_path / "out", name="drive", layout=layout)
    assert_end(calls, layout, "out")


@pytest.mark.parametrize("form", ["arrow", "parquet", "json"])
def test_migrate_syncs_a_table_before_its_name(tmp_path, calls, form):
    made.write(tmp_path, made.good())
    calls.clear()
    out = tmp_path / f"data.{form}"
    migrate(tmp_path / "data.arrow", out, overwrite=True)
    (placed,) = (n for n, (call, *names) in enumerate(calls) if call in ("replace", "rename") and names[1] == out.name)
    source = calls[placed][1]
    assert calls.at("fsync", source) < placed < calls.at("fsync", tmp_path.name, placed)


@pytest.mark.parametrize("verb", ["write_annotations", "fix"])
def test_an_old_table_has_its_second_name_before_the_new_one_replaces_it(tmp_path, calls, verb):
    parts = made.good()
    parts.annotations[0]["box2d_score"] = 2.0  # which fix removes
    made.write(tmp_path, parts)
    dataset = Dataset(tmp_path / "data.zip")
    rows = dataset.annotations.with_columns(box2d_score=pl.lit(0.5, pl.Float32))
    calls.clear()
    kept = fix(tmp_path / "data.zip").kept if verb == "fix" else dataset.write_annotations(rows, keep_as=".old")
    linked = next(n for n, call in enumerate(calls) if call == ("link", "data.arrow", kept.name))
    placed = next(n for n, call in enumerate(calls) if call[0] in ("replace", "rename") and call[2] == "data.arrow")
    assert linked < calls.at("fsync", tmp_path.name, linked) < placed < calls.at("fsync", tmp_path.name, placed)
