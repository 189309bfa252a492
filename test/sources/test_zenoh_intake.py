# SPDX-License-Identifier: Apache-2.0
"""What an intake keeps, hands on and leaves out, message by message; `put` is called here in place of Zenoh."""

import queue
import struct
import threading

import pytest

from edgefirst_ros.sources.live import TopicState
from edgefirst_ros.sources.zenoh_intake import MOST_KEYS, OTHERS, Gaps, Intake, Lane, Sent, read_sample
from edgefirst_ros.streams import FIX, IMU, VIDEO

MS = 1_000_000
SECOND = 1_000_000_000
CAMERA, GPS, IMU_KEY = "rt/camera/h264", "rt/gps", "rt/imu"
NAMES = {CAMERA: "camera/h264", GPS: "gps", IMU_KEY: "imu"}
SCHEMAS = {CAMERA: VIDEO, GPS: FIX, IMU_KEY: IMU}
SIZE = 12
"""Bytes of a message here: the head of CDR and its stamp."""


def encoding_of(key):
    return f"application/cdr;{SCHEMAS[key]}"


def message(milliseconds, encoding, now=None):
    """A message with a header of that time, which came at that time where nothing else is said."""
    head = struct.pack("<4siI", b"\0\1\0\0", milliseconds // 1000, milliseconds % 1000 * MS)
    return Sent(head, encoding, None, (milliseconds if now is None else now) * MS, milliseconds * MS)


class Ears:
    """An intake, and what its listeners heard: (topic, ms, lost)."""

    def __init__(self, depth=4, most=1000):
        self.heard = queue.SimpleQueue()
        self.intake = Intake(depth, most)

    def put(self, key, *milliseconds, source=0, encoding=None):
        for at in milliseconds:
            came = message(at, encoding or encoding_of(key))
            self.intake.put(key, NAMES.get(key, key), came, source, anchor=key == CAMERA)

    def listen(self, key, at_each=lambda: None):
        def arrive(data, number, passage):
            assert number is None
            at_each()
            seconds, nanoseconds = struct.unpack_from("<iI", data, 4)
            self.heard.put((key, seconds * 1000 + nanoseconds // MS, passage.lost))

        state = TopicState(key, f"/{NAMES[key]}", SCHEMAS[key])
        return self.intake.listen(key, NAMES[key], state, arrive, Gaps(by_stamps=False))

    def end(self):
        """All that was heard until the intake is closed."""
        self.intake.close()
        heard = []
        while not self.heard.empty():
            heard.append(self.heard.get())
        return heard


@pytest.fixture
def ears():
    made = []

    def make(**given):
        made.append(Ears(**given))
        return made[-1]

    yield make
    for one in made:
        one.intake.close()


def test_what_came_before_anybody_listened_is_handed_on_in_the_order_it_came(ears):
    here = ears()
    here.put(CAMERA, 1000, 1030)
    here.put(GPS, 1010)
    here.put(CAMERA, 1060)
    for key in (GPS, CAMERA):
        here.listen(key)
    assert here.end() == [(CAMERA, 1000, 0), (GPS, 1010, 0), (CAMERA, 1030, 0), (CAMERA, 1060, 0)]


def test_without_a_camera_the_last_three_seconds_are_kept_and_what_goes_is_no_loss(ears):
    here = ears()
    here.put(GPS, 0, 1000, 2000)
    here.put(IMU_KEY, 4500)  # 1.5 s of GPS are older than 3 s now
    here.listen(GPS)
    assert here.end() == [(GPS, 2000, 0)]


def test_from_the_first_picture_on_everything_is_kept_whatever_its_age(ears):
    here = ears()
    here.put(GPS, 0)
    here.put(CAMERA, 1000)
    here.put(GPS, 60_000)
    here.listen(GPS)
    assert here.end() == [(GPS, 0, 0), (GPS, 60_000, 0)]


def test_beyond_the_bytes_that_may_wait_the_oldest_of_all_go_and_their_topic_is_told_of_the_loss(ears):
    here = ears(most=3 * SIZE)
    here.put(CAMERA, 0, 30)
    here.put(GPS, 40)
    here.put(GPS, 50)  # the first picture goes
    here.put(GPS, 60)  # the second goes
    for key in (CAMERA, GPS):
        here.listen(key)
    here.put(CAMERA, 70)  # now the oldest fix goes
    assert here.end() == [(GPS, 50, 1), (GPS, 60, 0), (CAMERA, 70, 2)]


def test_a_listener_that_is_behind_by_more_than_the_depth_loses_the_oldest(ears):
    here = ears(depth=2)
    busy, ready = threading.Event(), threading.Event()
    here.listen(GPS, lambda: (busy.set(), ready.wait(60)))
    here.intake.release()
    here.put(GPS, 10)
    assert busy.wait(60)  # it has the first one, and takes no other
    here.put(GPS, 20, 30, 40, 50)
    ready.set()
    assert here.end() == [(GPS, 10, 0), (GPS, 40, 2), (GPS, 50, 0)]


def test_what_waited_when_the_topic_got_its_listener_needs_no_room(ears):
    here = ears(depth=1)
    here.put(GPS, 10, 20, 30)
    here.listen(GPS)
    here.put(GPS, 40)
    assert here.end() == [(GPS, 10, 0), (GPS, 20, 0), (GPS, 30, 0), (GPS, 40, 0)]


def test_room_for_what_waited_goes_message_by_message(ears):
    """Of six that waited the listener has three: beside the others there is room for the depth of two."""
    here, heard = ears(depth=2), []
    busy, ready = threading.Event(), threading.Event()

    def hear():
        heard.append(1)
        if len(heard) == 3:
            busy.set()
            ready.wait(60)

    here.put(GPS, 10, 20, 30, 40, 50, 60)
    here.listen(GPS, hear)
    here.intake.release()
    assert busy.wait(60)
    here.put(GPS, 70, 80)
    ready.set()
    assert here.end() == [(GPS, 10 * n, 0) for n in range(1, 9)]


def test_a_topic_without_a_part_keeps_fifteen_seconds_once_the_others_run(ears):
    here = ears()
    here.put(CAMERA, 0)
    here.intake.release()
    here.put(GPS, 1000, 2000, 16_500)
    here.listen(GPS)
    assert here.end() == [(GPS, 2000, 0), (GPS, 16_500, 0)]


def test_the_same_message_by_two_subscriptions_is_one_and_the_same_twice_by_one_is_two(ears):
    here = ears(depth=9)
    lane = here.listen(GPS)
    here.put(GPS, 10, source=1)
    here.put(GPS, 10, 20, source=2)
    here.put(GPS, 20, source=1)
    here.put(GPS, 30, 30, source=2)
    here.intake.single(lane)
    here.put(GPS, 40, source=1)
    here.put(GPS, 40, source=2)
    assert [at for _, at, _ in here.end()] == [10, 20, 30, 30, 40, 40]


def test_messages_of_another_encoding_than_the_first_are_counted_by_their_encoding(ears):
    here = ears()
    here.put(GPS, 10)
    here.put(GPS, 20, 30, encoding="application/json")
    here.put(GPS, 40, encoding="x" * 500)
    here.listen(GPS)
    (lane,) = here.intake.lanes()
    assert lane.foreign == {"application/json": 2, "x" * 100: 1}
    assert here.end() == [(GPS, 10, 0)]


def test_no_more_encodings_are_told_apart_than_somebody_may_read(ears):
    here = ears()
    here.put(GPS, 10)
    for number in range(20):
        here.put(GPS, 20 + number, encoding=f"text/{number}")
    (lane,) = here.intake.lanes()
    assert lane.foreign == {**{f"text/{number}": 1 for number in range(8)}, OTHERS: 12}


def test_a_topic_known_by_its_token_takes_the_type_it_was_announced_with_and_no_other(ears):
    here = ears()
    lane = here.listen(GPS)
    here.put(GPS, 10, encoding=encoding_of(IMU_KEY))
    assert (lane.encoding, lane.foreign) == ("", {encoding_of(IMU_KEY): 1})
    here.put(GPS, 20, encoding="zenoh/bytes")  # it tells no type: the token does
    here.put(GPS, 30)
    assert (lane.schema, lane.foreign[encoding_of(GPS)]) == (None, 1)
    assert here.end() == [(GPS, 20, 0)]


def test_messages_of_more_keys_than_are_kept_are_counted(ears):
    here = ears(most=MOST_KEYS * 100)
    for number in range(MOST_KEYS + 3):
        here.put(f"host{number}/gps", 10, encoding=encoding_of(GPS))
    assert (len(here.intake.lanes()), here.intake.ignored) == (MOST_KEYS, 3)
    here.put("host0/gps", 20, encoding=encoding_of(GPS))
    assert here.intake.ignored == 3


def test_what_nobody_listens_to_is_given_up_and_makes_room(ears):
    here = ears(most=3 * SIZE)
    here.put(CAMERA, 0)
    here.put(GPS, 10)
    here.put(IMU_KEY, 20)
    here.listen(CAMERA)
    here.intake.forget({CAMERA, IMU_KEY, "nobody/has/it"})
    assert {lane.key for lane in here.intake.lanes()} == {CAMERA, GPS}
    here.put(GPS, 30)  # there is room for it again
    here.listen(GPS)
    assert here.end() == [(CAMERA, 0, 0), (GPS, 10, 0), (GPS, 30, 0)]


def test_nothing_is_handed_on_before_it_is_released(ears):
    here = ears()
    here.put(GPS, 10)
    here.listen(GPS)
    assert here.heard.empty()
    here.intake.release()
    assert here.heard.get(timeout=60) == (GPS, 10, 0)
    here.intake.release()  # again: nothing happens
    assert here.end() == []


def test_a_lane_tells_its_type_by_the_encoding_of_its_first_message():
    lane = Lane(GPS, "gps", "")
    assert lane.fits(encoding_of(GPS))
    assert lane.fits(encoding_of(GPS))
    assert not lane.fits("application/json")
    assert lane.schema == FIX


def test_samples_of_a_session_are_read_and_what_deletes_is_none():
    zenoh = pytest.importorskip("zenoh", reason="no eclipse-zenoh: pip install 'edgefirst_ros[zenoh]'")
    from zenoh_network import open_bus

    bus = open_bus("peer")
    try:
        samples = queue.SimpleQueue()
        subscriber = bus.declare_subscriber("car/gps", zenoh.handlers.Callback(samples.put, indirect=False))
        bus.put("car/gps", b"fix", encoding=encoding_of(GPS), attachment=b"beside")
        bus.put("car/gps", b"bare")
        bus.delete("car/gps")
        first, second, last = (read_sample(samples.get(timeout=60)) for _ in range(3))
        subscriber.undeclare()
    finally:
        bus.close()
    assert (first.data, first.encoding, first.attachment) == (b"fix", encoding_of(GPS), b"beside")
    assert (second.data, second.encoding, second.attachment) == (b"bare", "zenoh/bytes", None)
    assert last is None
    assert second.now >= first.now
    assert abs(second.received - first.received) < 60 * SECOND
