# SPDX-License-Identifier: Apache-2.0
"""The outcome of a recovery in one line: what is there, what is lost, and no word of what is neither."""

import pytest
from unfinished_datasets import SEQUENCE, cut, finish, leave, sample, spans

from edgefirst_ros.dataset.recovery import recover as reports
from edgefirst_ros.dataset.recovery.recover import Recovery, recover
from edgefirst_ros.dataset.storage.zip_write import Lost

SAMPLES = [sample(frame) for frame in range(3)]


def test_nothing_was_to_be_done(tmp_path):
    assert recover(finish(tmp_path, SAMPLES).container).sentence == "all of it was complete"


def test_nothing_is_lost(tmp_path):
    assert recover(leave(tmp_path, SAMPLES).container).sentence == "3 samples, 9 members"


def test_the_end_is_cut(tmp_path):
    paths = leave(tmp_path / "out", SAMPLES)
    _, start, end = spans(finish(tmp_path / "whole", SAMPLES).container)[-1]
    cut(paths.members_partial, end - 1)
    assert recover(paths.container).sentence == (
        f"3 samples, 8 members; no whole member in {end - 1 - start} bytes in 1 place; "
        "missing, but named by the journal: 1 member"
    )


def test_a_sample_of_the_journal_has_no_member_at_all(tmp_path):
    paths = leave(tmp_path, SAMPLES, layout="directory", commits={2})
    for file in (paths.members_partial / SEQUENCE).glob(f"{SEQUENCE}_001.*"):
        file.unlink()
    report = recover(paths.container)
    assert report.sentence == "2 samples, 6 members; lost, but named by the journal: 1 sample"
    assert (report.rows_dropped, report.exit_code) == (1, 3)


def test_rows_are_lost(tmp_path):
    paths = leave(tmp_path, SAMPLES)
    paths.row_log.unlink()
    assert recover(paths.container).sentence == (
        "3 samples, 9 members; 3 rows rebuilt; annotations of 3 samples may be lost"
    )


@pytest.mark.parametrize("number", [3, 5])
def test_of_many_places_the_first_are_listed_and_all_are_counted(tmp_path, monkeypatch, number):
    monkeypatch.setattr(reports, "LISTED", 4)
    found = Recovery(None, dry_run=True)
    lost = [Lost(10 * n, 10 * n + 3, f"member {n}", "cut") for n in range(number)]
    for one in lost:
        found.count_lost(one)
    assert found.lost == lost[:4]
    assert (found.lost_stretches, found.lost_bytes) == (number, 3 * number)
