# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefirst_ros.dataset.split import Splitter, guarded

SHARES = [{"train": 0.8, "val": 0.2}, {"train": 0.7, "val": 0.2, "test": 0.1}, {"a": 1.0}, {"a": 1 / 3, "b": 2 / 3}]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("seed", [0, 1, 2, 12345, 10**30])
def test_shares_are_reached_by_any_number_of_blocks(shares, seed):
    splitter = Splitter(shares, 10**10, seed)
    counts = Counter()
    for number in range(2000):
        counts[splitter.of_number(number)] += 1
        for group, share in shares.items():  # discrepancy of the golden ratio
            assert abs(counts[group] - share * (number + 1)) < 4
    assert set(counts) == set(shares)


@given(st.integers(0, 10**6), st.integers(0, 2**63), st.integers(1, 10**13))
def test_a_block_of_time_stays_together(seed, stamp, block):
    splitter = Splitter(SHARES[1], block, seed)
    begin = stamp // block * block
    assert splitter.of_time(begin) == splitter.of_time(begin + block - 1) == splitter.of_time(stamp)
    assert splitter.of_time(stamp) == splitter.of_number(stamp // block)


@given(st.integers(0, 10**6), st.integers(3, 10**6), st.data())
def test_nothing_within_the_gap_of_another_group(seed, block, data):
    """Whatever has a group lies further than the gap from all stamps of other groups, and nothing else lacks one."""
    gap = data.draw(st.integers(1, (block - 1) // 2))
    splitter = Splitter(SHARES[0], block, seed)
    group_of = guarded(splitter.of_time, gap)
    border = data.draw(st.integers(1, 10**6)) * block
    before, after = splitter.of_time(border - 1), splitter.of_time(border)
    stamps = [border - gap - 1, border - gap, border - 1, border, border + gap - 1, border + gap]
    found = [group_of(stamp) for stamp in stamps]
    if before == after:
        assert found == [before] * 3 + [after] * 3
    else:
        assert found == [before, None, None, None, None, after]


def test_without_a_gap_or_shares_nothing_changes():
    splitter = Splitter(SHARES[0], 10, 0)
    assert guarded(splitter.of_time, 0) == splitter.of_time
    assert guarded(Splitter({}, 10, 0).of_time, 3)(5) is None
    assert guarded(lambda stamp: "train", 3)(5) == "train"  # groups by recording know no neighbours


def test_no_shares_no_group():
    assert Splitter({}, 10**10, 0).of_time(5) is None
    assert Splitter({}, 10**10, 0).of_number(5) is None


def test_another_seed_gives_another_split():
    splits = {tuple(Splitter(SHARES[0], 1, seed).of_number(n) for n in range(50)) for seed in range(20)}
    assert len(splits) > 10


def test_the_split_is_the_same_in_every_process():
    code = (
        "from edgefirst_ros.dataset.split import Splitter; s = Splitter({'train': 0.8, 'val': 0.2}, 10**10, 3);"
        "print(''.join(s.of_number(n)[0] for n in range(200)))"
    )
    here = Splitter(SHARES[0], 10**10, 3)
    expected = "".join(here.of_number(n)[0] for n in range(200))
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == expected
