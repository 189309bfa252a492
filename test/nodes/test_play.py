# SPDX-License-Identifier: Apache-2.0
"""Time of a recording, its pace, and reading ahead; no ROS is needed for these."""

import threading
import time

import pytest

from edgefirst_ros.messages import Message
from edgefirst_ros.nodes import play as playback
from edgefirst_ros.nodes.play import Lateness, Pace, RunningTime, read_ahead

SECOND = 1_000_000_000
YEAR = 31_536_000 * SECOND


def message(number=0, size=8):
    return Message("/a", "x/msg/Y", number, number, number, bytes(size))


@pytest.mark.parametrize(
    ("times", "elapsed", "steps"),
    [
        ([100, 101, 105], [0, 1, 5], 0),
        ([100, 101, 100.5, 102], [0, 1, 1, 2], 0),  # a little out of order
        ([100, 101, 50, 51], [0, 1, 1, 2], 1),
        ([100, 101, 101 + 86400, 102 + 86400], [0, 1, 1, 2], 1),
        ([100, 160, 221], [0, 60, 60], 1),  # a minute is waited for, more is not
    ],
)
def test_time_runs_on_when_the_clock_is_set(times, elapsed, steps):
    timeline = RunningTime(round(times[0] * SECOND))
    assert [timeline.advance(round(at * SECOND)) for at in times] == [round(at * SECOND) for at in elapsed]
    assert timeline.steps == steps
    assert timeline.newest == max(round(times[-1] * SECOND), round(times[-2] * SECOND) if not steps else 0)


def test_messages_are_due_by_the_begin_and_not_by_each_other(monkeypatch):
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000 * SECOND)
    pace = Pace(4.0, 10 * SECOND)
    assert pace.due(10 * SECOND) == 1000 * SECOND
    assert pace.due(14 * SECOND) == 1001 * SECOND
    assert pace.due(10 * SECOND + YEAR) == 1000 * SECOND + YEAR // 4
    assert pace.get_elapsed(pace.due(13 * SECOND)) == 13 * SECOND


def test_lateness_is_counted_from_its_limit_on():
    lateness = Lateness()
    for behind in (-5, 0, playback.LATE, playback.LATE + 1, 3 * playback.LATE, 7):
        lateness.add(behind)
    assert (lateness.late, lateness.worst) == (2, 3 * playback.LATE)


def test_all_messages_come_in_order():
    sent = [message(n) for n in range(2000)]
    assert list(read_ahead(iter(sent), lambda: False)) == sent


def test_no_more_is_read_ahead_than_is_held(monkeypatch):
    monkeypatch.setattr(playback, "AHEAD", 10_000)
    read, enough = [], threading.Event()

    def source():
        for n in range(100):
            read.append(n)
            if len(read) == 11:
                enough.set()
            yield message(n, 1000)

    messages = read_ahead(source(), lambda: False)
    next(messages)
    assert enough.wait(5)
    for taken in range(2, 101):
        next(messages)
        assert len(read) <= taken + 11  # ten are held, one waits to be
    assert list(messages) == []


def test_what_reading_raises_comes_out_behind_what_was_read():
    def source():
        yield message(1)
        raise OSError("the card is gone")

    messages = read_ahead(source(), lambda: False)
    assert next(messages).sequence == 1
    with pytest.raises(OSError, match="the card is gone"):
        next(messages)


def test_a_stop_ends_it_while_reading_takes_long():
    go_on, stop = threading.Event(), threading.Event()

    def source():
        yield message(1)
        go_on.wait(60)
        yield message(2)

    messages = read_ahead(source(), stop.is_set)
    assert next(messages).sequence == 1
    threading.Timer(0.05, stop.set).start()
    begun = time.monotonic()
    assert list(messages) == []
    assert time.monotonic() - begun < 30
    go_on.set()


def test_the_thread_ends_when_nobody_takes_more(monkeypatch):
    monkeypatch.setattr(playback, "AHEAD", 10)
    before = set(threading.enumerate())  # that of another test may still be about to end
    messages = read_ahead((message(n) for n in range(1000)), lambda: False)
    next(messages)
    (thread,) = (t for t in threading.enumerate() if t.name == "read ahead" and t not in before)
    messages.close()
    thread.join(5)
    assert not thread.is_alive()
