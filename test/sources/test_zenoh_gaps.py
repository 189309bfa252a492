# SPDX-License-Identifier: Apache-2.0
"""How many messages are missing, by their numbers or by their stamps."""

import pytest

from edgefirst_ros.sources.zenoh_intake import PUBLISHERS, Gaps
from edgefirst_ros.sources.zenoh_keys import Attached

MS = 1_000_000
A, B = b"a" * 16, b"b" * 16


def by_stamps(stamps, arrivals=None):
    """(known, guessed) before each message of these stamps, ms."""
    gaps = Gaps(by_stamps=True)
    arrivals = arrivals or stamps
    return [gaps.count_missing(s * MS, now * MS, None, 0)[:2] for s, now in zip(stamps, arrivals, strict=True)]


def test_numbers_tell_exactly_and_each_publisher_counts_for_itself():
    gaps = Gaps(by_stamps=True)
    sent = [(A, 4), (A, 5), (A, 9), (B, 70), (B, 72), (A, 10), (A, 10)]
    told = [gaps.count_missing(n, n, Attached(number, gid), 0) for n, (gid, number) in enumerate(sent)]
    assert told == [
        (0, 0, False),
        (0, 0, False),
        (3, 0, False),
        (0, 0, True),
        (1, 0, False),
        (0, 0, False),
        (0, 0, False),
    ]


def test_of_many_publishers_the_numbers_of_those_that_were_silent_longest_are_forgotten():
    """One more than is kept: the first is new again, and what it sent meanwhile is no loss."""
    gaps = Gaps(by_stamps=True)
    gids = [bytes([n]) * 16 for n in range(PUBLISHERS + 1)]
    told = [gaps.count_missing(0, 0, Attached(10, gid), 0) for gid in gids]
    assert told == [(0, 0, False)] + [(0, 0, True)] * PUBLISHERS
    assert gaps.count_missing(0, 0, Attached(13, gids[1]), 0) == (2, 0, False)
    assert gaps.count_missing(0, 0, Attached(13, gids[0]), 0) == (0, 0, True)
    assert gaps.count_missing(0, 0, Attached(13, gids[2]), 0) == (0, 0, True)  # it had to go for that
    assert gaps.count_missing(0, 0, Attached(14, gids[1]), 0) == (0, 0, False)


def test_numbers_that_leap_are_those_of_one_who_counts_anew():
    gaps = Gaps(by_stamps=True)
    told = [gaps.count_missing(0, 0, Attached(number, A), 0) for number in (1, (1 << 63) - 1, -(1 << 63), 5, 7)]
    assert told == [(0, 0, False), (0, 0, True), (0, 0, False), (0, 0, True), (1, 0, False)]


def test_what_was_left_out_here_is_part_of_a_gap_of_numbers():
    gaps = Gaps(by_stamps=True)
    assert [gaps.count_missing(0, 0, Attached(n, A), dropped)[0] for n, dropped in ((1, 0), (5, 2), (6, 0))] == [
        0,
        3,
        0,
    ]


def test_gaps_of_stamps_over_one_and_a_half_intervals_are_guessed():
    steady = [0, 33, 67, 100, 133, 167]
    assert by_stamps([*steady, 200, 233, 283, 400]) == [(0, 0)] * 8 + [(0, 1), (0, 3)]  # 33 ms are usual
    assert by_stamps([*steady, 216]) == [(0, 0)] * 7  # 49 ms are no gap


def test_what_is_usual_is_known_after_some_messages():
    assert by_stamps([0, 100, 1000, 1100, 1200]) == [(0, 0)] * 5


def test_stamps_out_of_order_are_no_gaps_and_those_that_lack_are():
    """As of pictures with B-frames, in groups of pictures, and of messages that pass each other on the way."""
    decoded = [10 * g + n for g in range(12) for n in (0, 3, 1, 2, 6, 4, 5, 9, 7, 8)]
    for order in (decoded, [n ^ 1 for n in range(120)]):
        stamps = [33 * n for n in order]
        assert by_stamps(stamps) == [(0, 0)] * 120
        lacking = {35, 36, 64, 90}
        told = by_stamps([33 * n for n in order if n not in lacking])
        assert sum(guessed for _, guessed in told) == len(lacking)
    shown, dropped = [33 * n for n in decoded if n not in (60, 63)], [0] * 118
    dropped[60] = 2
    gaps = Gaps(by_stamps=True)
    told = [gaps.count_missing(s * MS, s * MS, None, lost) for s, lost in zip(shown, dropped, strict=True)]
    assert sum(known for known, _, _ in told) == 2


def test_what_was_left_out_here_is_known_and_not_guessed():
    gaps = Gaps(by_stamps=True)
    for n in range(10):
        gaps.count_missing(n * 100 * MS, n * 100 * MS, None, 0)
    assert gaps.count_missing(1400 * MS, 1400 * MS, None, 3) == (3, 1, False)


def test_a_clock_that_was_set_loses_nothing_and_an_outage_does():
    steady = [100 * n for n in range(10)]
    assert by_stamps([*steady, 60_000, 60_100], [*steady, 1000, 1100])[-2:] == [(0, 0), (0, 0)]
    assert by_stamps([*steady, 60_000, 60_100], [*steady, 60_000, 60_100])[-2:] == [(0, 590), (0, 0)]
    assert by_stamps([*steady, 100, 200], [*steady, 1000, 1100])[-2:] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("stamp", [None, 5])
def test_without_stamps_of_their_own_nothing_is_guessed(stamp):
    gaps = Gaps(by_stamps=True)
    assert {gaps.count_missing(stamp, n * n * MS, None, 0)[:2] for n in range(50)} == {(0, 0)}


def test_of_what_is_said_now_and_then_nothing_is_guessed():
    gaps = Gaps(by_stamps=False)
    assert {gaps.count_missing(n**3 * MS, n**3 * MS, None, 0)[:2] for n in range(50)} == {(0, 0)}
