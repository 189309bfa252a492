# SPDX-License-Identifier: Apache-2.0
"""Series, whatever their length, become short ones that keep what sticks out."""

import numpy as np

from edgefirst_ros.report.figures import POINTS, measure_rates, thin_line, widen_span, with_breaks
from edgefirst_ros.report.subject import spread

MIDDLES = (np.arange(240) + 0.5) * 0.125
"""Of 240 cells over 30 s."""


def test_thinned_lines_keep_the_extremes():
    rng = np.random.default_rng(1)
    x, y = np.arange(100_000.0), rng.normal(size=100_000)
    y[77_777], y[3] = 99.0, -99.0
    short, values = thin_line(x, y)
    assert len(short) <= POINTS
    assert (values.max(), values.min()) == (99.0, -99.0)
    assert (np.diff(short) > 0).all()
    few = x[:POINTS], y[:POINTS]
    assert thin_line(*few) == few


def test_a_perfect_rate_does_not_zigzag():
    stamps = np.round(np.arange(300) * 1e9 / 30).astype(np.int64)  # steps of 33333333 and 33333334 ns
    steps = np.diff(stamps) / 1e6
    low, high = widen_span(steps, 1.0)
    assert (high - low, round((low + high) / 2, 4)) == (1.0, 33.3333)
    assert widen_span([0.0, 5.0], 1.0) is None
    assert widen_span([np.nan], 1.0) is None


def test_a_regular_topic_has_no_false_gaps():
    for rate in (1.0, 7.0, 18.0, 50.0):
        times = np.arange(0, 30, 1 / rate)
        cells = measure_rates(times, 1 / rate, 0.0, 30.0, MIDDLES, 0.125)
        assert cells.min() >= 65, rate  # at least two of three
    lost = np.concatenate([np.arange(0, 10, 0.1), np.arange(11, 30, 0.1)])
    cells = measure_rates(lost, 0.1, 0.0, 30.0, MIDDLES, 0.125)
    assert cells.min() == 0
    assert 80 <= np.flatnonzero(cells == 0).mean() / len(cells) * 240 <= 88


def test_lines_break_between_blocks_and_places_are_spread():
    x, y = with_breaks(
        [np.array([0.0, 1]), np.zeros(0), np.array([5.0])], [np.array([1.0, 2]), np.zeros(0), np.ones(1)]
    )
    assert x.tolist() == [0, 1, 1, 5, 5]
    assert np.isnan(y).tolist() == [False, False, True, False, True]
    assert spread(5, 12).tolist() == [0, 1, 2, 3, 4]
    assert spread(100, 3).tolist() == [0, 50, 99]  # half to even
    assert spread(0, 3).tolist() == []
