# SPDX-License-Identifier: Apache-2.0
"""Messages as they come: all to one who never blocks, and to readers what they want."""

import threading
from types import SimpleNamespace

import pytest

from edgefirst_ros.messages import Message
from edgefirst_ros.sources import live
from edgefirst_ros.sources.live import Inbox
from edgefirst_ros.streams import FIX, IMU

LONG = 60.0


def message(number, topic="/gps", schema=FIX, size=10):
    return Message(topic, schema, number, number, number, bytes(size))


@pytest.fixture
def made():
    delivered = []
    one = Inbox(lambda *given: delivered.append(given))
    yield one, delivered
    one.close()


def test_each_message_is_delivered_with_when_it_came_and_what_was_lost_before(made):
    one, delivered = made
    one.put(message(1), 100, 2)
    one.put(message(2), 200, 0, guessed=3)
    assert delivered == [(message(1), 100, 2, 0), (message(2), 200, 0, 3)]
    assert one.notes == []


def test_a_reader_gets_what_it_wants_from_when_it_began_until_the_end(made):
    one, _ = made
    one.put(message(1), 0, 0)
    gps, late = one.iter_messages({"/gps": FIX}), one.iter_messages(start=3)
    for number in (2, 3):
        one.put(message(number), 0, 0)
        one.put(message(number, "/imu", IMU), 0, 0)
    one.close()
    assert [(m.topic, m.sequence) for m in gps] == [("/gps", 2), ("/gps", 3)]
    assert [(m.topic, m.sequence) for m in late] == [("/gps", 3), ("/imu", 3)]


def test_a_reader_ends_once_the_clock_is_past_its_span(made, monkeypatch):
    """Nothing comes: it looks at the clock now and then."""
    clock = iter([3, 4, 5, 6])
    monkeypatch.setattr(live, "time", SimpleNamespace(time_ns=lambda: next(clock)))
    monkeypatch.setattr(live, "NAP", 0.001)
    assert list(made[0].iter_messages(end=5)) == []
    assert next(clock) == 6


def test_a_reader_waits_for_what_comes(made):
    one, _ = made
    reader, came, some = one.iter_messages(), [], threading.Event()

    def read():
        for found in reader:
            came.append(found.sequence)
            some.set()

    reading = threading.Thread(target=read)
    reading.start()
    one.put(message(1), 0, 0)
    assert some.wait(LONG)
    one.put(message(2), 0, 0)
    one.close()
    reading.join(LONG)
    assert came == [1, 2]


def test_what_a_reader_does_not_fetch_in_time_is_counted_by_topic(made, monkeypatch):
    monkeypatch.setattr(live, "HELD", 25)
    one, delivered = made
    reader = one.iter_messages()
    for number in range(4):
        one.put(message(number), 0, 0)
    one.put(message(4, "/imu", IMU), 0, 0)
    assert one.notes == [
        "/gps: 2 messages left out, not fetched in time",
        "/imu: 1 message left out, not fetched in time",
    ]
    assert next(reader).sequence == 0
    one.put(message(5), 0, 0)  # there is room again
    one.close()
    assert [m.sequence for m in reader] == [1, 5]
    assert len(delivered) == 6
