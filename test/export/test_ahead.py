# SPDX-License-Identifier: Apache-2.0
"""Making ahead: in order, bounded, errors in their turn."""

import threading
import time
from contextlib import closing

import pytest

from edgefirst_ros.export.output import MOST, make_ahead


@pytest.mark.parametrize("quick", [False, True])
def test_each_item_comes_in_order_with_what_was_made_of_it(quick):
    def make(number):
        time.sleep(0.002 * (number % 3))
        return number * number

    assert list(make_ahead(range(50), make, quick=quick)) == [(n, n * n) for n in range(50)]
    assert list(make_ahead([], make, quick=quick)) == []


def test_items_are_asked_for_in_this_thread_and_not_far_ahead():
    asked, threads = [], set()

    def items():
        for number in range(100):
            threads.add(threading.current_thread())
            asked.append(number)
            yield number

    for done, _ in make_ahead(items(), lambda number: number):
        assert len(asked) - done <= 2 * MOST + 1
    assert threads == {threading.current_thread()}


def test_what_is_quick_is_made_in_this_thread_when_it_is_asked_for():
    threads = []
    with closing(make_ahead(range(9), lambda number: threads.append(threading.current_thread()), quick=True)) as made:
        next(made)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("quick", [False, True])
def test_an_error_is_raised_in_its_turn(quick):
    def make(number):
        if number == 3:
            raise ValueError("the third")
        return number

    made = make_ahead(range(10), make, quick=quick)
    assert [next(made) for _ in range(3)] == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(ValueError, match="the third"):
        next(made)


def test_closing_leaves_no_thread():
    before = set(threading.enumerate())
    with closing(make_ahead(range(100), lambda number: time.sleep(0.01))) as made:
        next(made)
    assert set(threading.enumerate()) <= before
