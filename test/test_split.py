# SPDX-License-Identifier: Apache-2.0
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefirst_ros.split import Splitter

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


def test_no_shares_no_group():
    assert Splitter({}, 10**10, 0).of_time(5) is None
    assert Splitter({}, 10**10, 0).of_number(5) is None


def test_another_seed_gives_another_split():
    splits = {tuple(Splitter(SHARES[0], 1, seed).of_number(n) for n in range(50)) for seed in range(20)}
    assert len(splits) > 10


def test_the_split_is_the_same_in_every_process():
    code = (
        "from edgefirst_ros.split import Splitter; s = Splitter({'train': 0.8, 'val': 0.2}, 10**10, 3);"
        "print(''.join(s.of_number(n)[0] for n in range(200)))"
    )
    here = Splitter(SHARES[0], 10**10, 3)
    expected = "".join(here.of_number(n)[0] for n in range(200))
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert found.stdout.strip() == expected
