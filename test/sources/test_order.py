# SPDX-License-Identifier: Apache-2.0
"""Recorded order of the messages of one topic, by cases that are put in order by hand."""

import numpy as np
import pytest

from edgefirst_ros.sources.order import order_topic, sort_recorded

MS = 10**6
START = 1_700_000_000_000 * MS


def ordered(numbers, times, files=None):
    """Positions in recorded order; `times` in ms."""
    logs = START + np.array(times, np.int64) * MS
    found = order_topic(np.array(numbers, np.int64), logs, np.array(files or [0] * len(numbers)))
    return found.order.tolist()


@pytest.mark.parametrize(
    ("numbers", "times", "expected"),
    [
        ([0, 1, 2, 3], [0, 50, 100, 150], [0, 1, 2, 3]),
        ([3, 1, 0, 2], [150, 50, 0, 100], [2, 1, 3, 0]),  # file order does not count
        ([0, 2, 1, 3], [0, 50, 100, 150], [0, 2, 1, 3]),  # 1 was recorded late, within 250 ms
        ([1, 2, 3, 0], [0, 50, 100, 249], [3, 0, 1, 2]),
        ([1, 2, 3, 0], [0, 50, 100, 250], [3, 0, 1, 2]),  # the first is just within 250 ms
        ([1, 2, 3, 0], [0, 50, 100, 251], [0, 1, 2, 3]),  # two messages are near, the step is three: a new count
        ([2, 3, 0], [0, 200, 400], [0, 1, 2]),  # the step is three, one message is near: a new count
        ([500, 501, 502, 1, 2, 3], [0, 33, 66, 99, 132, 165], [0, 1, 2, 3, 4, 5]),  # started again
        ([500, 501, 1, 3, 2, 4], [0, 33, 66, 99, 132, 165], [0, 1, 2, 4, 3, 5]),  # and late in the new count
        ([0, 0, 2, 1], [0, 50, 100, 150], [0, 1, 2, 3]),  # not all different: log_time alone
        ([7, 7, 7, 7], [100, 0, 50, 50], [1, 2, 3, 0]),  # equal times in file order
        ([0, 1, 2, 3], [3000, 3050, 0, 50], [0, 1, 2, 3]),  # the clock was set back
        ([0, 2, 1, 3, 5, 4], [5000, 5050, 5100, 0, 50, 100], [0, 2, 1, 3, 5, 4]),  # and messages are late
        ([], [], []),
    ],
)
def test_one_file(numbers, times, expected):
    assert ordered(numbers, times) == expected


@pytest.mark.parametrize(
    ("numbers", "times", "files", "expected"),
    [
        ([0, 1, 0, 1], [0, 50, 100, 150], [0, 0, 1, 1], [0, 1, 2, 3]),
        ([5, 6, 1, 2], [0, 50, 100, 150], [0, 0, 1, 1], [0, 1, 2, 3]),  # would be reordered in one file
        ([1, 2, 0], [0, 50, 100], [0, 0, 1], [0, 1, 2]),
        ([0, 1, 2, 3], [100, 150, 0, 50], [0, 0, 1, 1], [2, 3, 0, 1]),  # given in the wrong order
        ([0, 1, 0, 1], [0, 100, 50, 150], [0, 0, 1, 1], [0, 2, 1, 3]),  # at the same time
        ([0, 1, 2, 3, 0, 1], [9000, 9050, 0, 50, 100, 150], [0, 0, 0, 0, 1, 1], [0, 1, 2, 3, 4, 5]),  # set back in one
    ],
)
def test_several_files(numbers, times, files, expected):
    assert ordered(numbers, times, files) == expected


def test_topics_are_joined_by_the_newest_time_of_each():
    """Rows of two topics in file order; the second one's message 1 was recorded late."""
    kind = [("topic", "u4"), ("file", "u4"), ("sequence", "u4"), ("log", "u8"), ("name", "U2")]
    rows = [(0, 0, 0, 0, "a0"), (1, 0, 0, 10, "b0"), (1, 0, 2, 30, "b2"), (0, 0, 1, 35, "a1"), (1, 0, 1, 40, "b1")]
    index = np.array([(topic, file, n, START + t * MS, name) for topic, file, n, t, name in rows], kind)
    # b1 comes before b2, so b2 has the time of b1; of equal times the first in the file
    assert sort_recorded(index[::-1])["name"].tolist() == ["a0", "b0", "a1", "b1", "b2"]
