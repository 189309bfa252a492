# SPDX-License-Identifier: Apache-2.0
"""What `recover` says of what it keeps and of what is lost, as text and as JSON."""

import json
import os
import zipfile

import pytest
from unfinished_datasets import finish, leave, sample

from edgefirst_ros import Dataset
from edgefirst_ros.cli.output import show
from edgefirst_ros.dataset.recovery.recover import Recovery
from edgefirst_ros.dataset.storage.zip_write import Lost

SAMPLES = [sample(frame) for frame in range(4)]  # each has a picture, a cube and a cloud


@pytest.fixture
def unfinished(tmp_path):
    return leave(tmp_path / "out", SAMPLES, commits={1})


@pytest.fixture
def damaged(tmp_path):
    """A dataset without the end of its archive, and without the header of the fifth member."""
    paths = finish(tmp_path / "out", SAMPLES)
    with zipfile.ZipFile(paths.container) as archive:
        fifth = archive.infolist()[4]
    data = bytearray(paths.container.read_bytes()[:-30])
    data[fifth.header_offset : fifth.header_offset + 30] = bytes(30)
    paths.container.write_bytes(data)
    return paths, fifth


def numbers(text):
    """{what: number} of the table."""
    rows = [line.rsplit(None, 1) for line in text.splitlines() if line[-1:].isdigit() and not line.startswith("lost")]
    return {what: int(number) for what, number in rows}


def test_a_dry_run_says_what_would_be_kept_and_changes_nothing(call, unfinished):
    before = sorted(os.listdir(unfinished.out))
    done = call("recover", unfinished.out / "drive", "--dry-run")
    assert done.exit_code == 0
    assert done.stdout.startswith("out/drive.zip: dry run, no file changes\n")
    assert numbers(done.stdout) == {"samples kept": 4, "members kept": 12}  # and no losses of 0
    assert "note: if this was a conversion, the same convert command continues it instead\n" in done.stdout
    assert sorted(os.listdir(unfinished.out)) == before


def test_what_is_recovered_is_told_as_json_and_the_second_time_it_is_complete(call, unfinished):
    told = json.loads(call("recover", unfinished.out / "drive", "--json").stdout)
    assert (told["dataset"], told["samples"], told["members"]) == (os.fspath(unfinished.container), 4, 12)
    assert (told["dry_run"], told["complete"], told["lost"], told["exit_code"]) == (False, False, [], 0)
    assert len(Dataset(unfinished.container)) == 4
    again = call("recover", unfinished.out / "drive")
    assert (again.exit_code, again.stdout) == (0, "out/drive.zip is complete\n")


def test_what_is_lost_is_named_by_its_place(call, damaged):
    paths, fifth = damaged
    done = call("recover", paths.container, "--dry-run", "--json")
    told = json.loads(done.stdout)
    (lost,) = told["lost"]
    assert (done.exit_code, told["exit_code"], told["dry_run"]) == (3, 3, True)
    assert (lost["offset"], told["lost_bytes"]) == (fifth.header_offset, lost["bytes"])
    done = call("recover", paths.container)
    assert done.exit_code == 3
    assert f"lost: no member at byte {fifth.header_offset}: " in done.stdout
    found = numbers(done.stdout)
    assert (found["samples kept"], found["members kept"]) == (4, 11)
    assert found["bytes skipped, damaged or cut"] == lost["bytes"]
    assert f"note: {paths.arrow} stays as it is\n" in done.stdout
    assert set(found) == {"samples kept", "members kept", "bytes skipped, damaged or cut"}
    assert done.stdout.startswith("out/drive.zip: completed, with loss\n")
    assert "note: if this was a conversion, the same convert command with --overwrite makes the whole" in done.stdout


def test_places_beyond_those_listed_are_counted(unfinished, capsys):
    report = Recovery(unfinished, dry_run=False)
    for number in range(103):
        report.count_lost(Lost(10 * number, 10 * number + 4, None, "no header of a member"))
    show(report.text())
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("lost:")][-2:] == [
        "lost: no member at byte 990: no header of a member",
        "lost: 3 more places",
    ]
    assert numbers("\n".join(lines))["bytes skipped, damaged or cut"] == 412


def test_of_a_finished_folder_it_is_said_that_nothing_was_compared(call, tmp_path):
    paths = finish(tmp_path / "out", SAMPLES, layout="directory")
    done = call("recover", paths.container, "--verify")
    note = "note: folders are not checked; run edgefirst-ros validate\n"
    assert (done.exit_code, done.stdout) == (0, f"out/drive is complete\n{note}")
