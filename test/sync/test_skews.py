# SPDX-License-Identifier: Apache-2.0
"""The summary of skews."""

import random

import numpy as np

from edgefirst_ros.sync.align import BIN, Skews


def test_percentiles_are_those_of_numpy_to_a_bin():
    chance = random.Random(1)
    values = [round(chance.gauss(0, 20e6)) for _ in range(5001)]
    skews = Skews()
    for value in values:
        skews.add(value)
    for percent in (0, 50, 95, 100):
        wanted = np.percentile(np.abs(values), percent, method="lower")
        assert 0 <= wanted - skews.percentile(percent) < BIN
    assert skews.largest == max(map(abs, values))


def test_memory_is_that_of_the_bins():
    skews = Skews()
    for n in range(100_000):
        skews.add(n * 7_919 % 50_000_000)
    assert len(skews._bins) <= 500


def test_without_samples():
    assert Skews().percentile(50) == Skews().largest == 0
