# SPDX-License-Identifier: Apache-2.0
"""Groups are given when a dataset is completed, by all that it has: interrupted or not, by whoever completes it."""

import polars as pl
import pytest
from unfinished_datasets import sample, vanish

from edgefirst_ros.dataset import DatasetWriter
from edgefirst_ros.dataset.grouping import GroupRule
from edgefirst_ros.dataset.recovery.recover import recover

RULE = GroupRule({"train": 0.75, "val": 0.25}, block=500_000_000)
COUNT = 40
SAMPLES = [sample(frame) for frame in range(COUNT)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The disk is not waited for: nothing here is about that."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda _: None)


def write(out, count=COUNT, rule=RULE):
    writer = DatasetWriter(out, "drive", group_rule=rule, describe=lambda: {"counts": {}})
    for one in SAMPLES[:count]:
        writer.write(one)
    writer.flush()
    return writer


def near_shares(rows):
    """Whether three of four samples are in one group, to a block of time."""
    samples = rows.unique("frame")
    largest = samples.group_by(pl.col("timestamp") // RULE.block).len()["len"].max()
    counts = dict(samples["group"].cast(str).value_counts().iter_rows())
    return counts.keys() == {"train", "val"} and abs(counts["train"] - 0.75 * len(samples)) <= largest


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with write(tmp_path_factory.mktemp("whole")) as writer:
        return writer.finish({"counts": {}})


def test_all_rows_of_a_sample_have_its_group(whole):
    rows = pl.read_ipc(whole.arrow)
    assert rows.group_by("frame").agg(pl.col("group").n_unique())["group"].unique().to_list() == [1]
    assert rows["group"].null_count() == 0
    assert near_shares(rows)


def test_what_recover_completes_has_the_same_groups(whole, tmp_path):
    vanish(write(tmp_path))
    assert recover(tmp_path / "drive").exit_code == 0
    assert (tmp_path / "drive.arrow").read_bytes() == whole.arrow.read_bytes()


def test_recover_shares_out_what_there_is(tmp_path):
    vanish(write(tmp_path, count=20))
    recover(tmp_path / "drive")
    assert near_shares(pl.read_ipc(tmp_path / "drive.arrow"))


def test_nobody_has_a_group_and_there_is_no_column(tmp_path):
    with write(tmp_path, rule=GroupRule(named={"test": ("nothing*",)})) as writer:
        assert "group" not in pl.read_ipc(writer.finish({"counts": {}}).arrow).columns
