# SPDX-License-Identifier: Apache-2.0
"""The choice of the time base."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefirst_ros.errors import UsageError
from edgefirst_ros.messages import Message
from edgefirst_ros.sync.clock import RunningClock, Segments, TimeBase, TopicTimes, choose

SECOND = 10**9
NOW = 1_700_000_000 * SECOND
YEAR_2000 = 946_684_800 * SECOND  # date -d 2000-01-01T00:00:00Z +%s
IMAGE, MASK = "sensor_msgs/msg/Image", "edgefirst_msgs/msg/Mask"


def message(topic, log, header=None, publish=None, schema=IMAGE):
    header = log if header is None else header
    data = struct.pack("<BBHiI", 0, 1, 0, header // SECOND, header % SECOND) + bytes(8)
    return Message(topic, schema, log, log if publish is None else publish, 0, data)


def times(topic, header=0, publish=0, *, number=10, schema=IMAGE, jitter=0, fixed=None):
    """A topic whose stamps lie some ns from log_time; `fixed`: all header stamps are this."""
    found = TopicTimes(topic)
    for n in range(number):
        log = NOW + n * SECOND // 10
        stamp = log + header + jitter * (n % 3) if fixed is None else fixed
        found.add(message(topic, log, stamp, log + publish, schema))
    return found


def reference(**values):
    return times("/camera/h264", **values)


# ---- the base ----------------------------------------------------------------------------
def test_header_stamps_are_the_base_where_they_tell_the_time_of_day():
    base = choose("auto", reference(header=-45_000_000, publish=-1000), [])
    assert (base.base, base.offset, base.replaced) == ("header", -45_000_000, {})
    log = NOW + 5
    assert base.stamp(message("/camera/h264", log, log - 7, log - 3)) == log - 7


@pytest.mark.parametrize("header", [-NOW, -NOW + 50 * SECOND, YEAR_2000 - NOW - 2 * SECOND])
def test_else_publish_times_are(header):
    base = choose("auto", reference(header=header, publish=-1000), [])
    assert (base.base, base.offset) == ("publish", -1000)
    assert base.stamp(message("/camera/h264", NOW, 5, NOW - 3)) == NOW - 3


def test_the_year_2000_is_the_bound_of_wall_clocks_and_the_median_counts():
    for median, base in ((YEAR_2000, "publish"), (YEAR_2000 + 1, "header")):
        stamps = [median - SECOND, median, median + SECOND]
        found = reference(number=0)
        for n, stamp in enumerate(stamps):
            found.add(message("/camera/h264", NOW + n, stamp))
        assert choose("auto", found, []).base == base


@pytest.mark.parametrize("fixed", [0, NOW])
def test_stamps_that_are_all_equal_tell_no_time(fixed):
    assert choose("auto", reference(fixed=fixed), []).base == "publish"


def test_a_single_message_may_have_any_stamp_but_zero():
    assert choose("auto", reference(number=1), []).base == "header"
    assert choose("auto", reference(number=1, fixed=0), []).base == "publish"


def test_else_log_times_are():
    base = choose("auto", reference(fixed=0, publish=-NOW), [times("/gps", header=-40 * SECOND)])
    assert (base.base, base.offset, base.replaced) == ("log", 0, {})
    assert base.stamp(message("/gps", NOW, 5, 6)) == NOW


def test_a_reference_without_header_goes_by_publish_times():
    assert choose("auto", reference(schema=MASK), []).base == "publish"


@pytest.mark.parametrize("choice", ["header", "publish", "log"])
def test_the_user_may_choose(choice):
    base = choose(choice, reference(header=-1, publish=-2), [])
    assert base.base == choice
    assert base.stamp(message("/x", NOW, NOW - 1, NOW - 2)) == NOW - {"header": 1, "publish": 2, "log": 0}[choice]


def test_monotonic_header_stamps_are_taken_where_the_user_says_so():
    assert choose("header", reference(header=-NOW), []).base == "header"


def test_a_choice_that_tells_no_time_is_refused():
    with pytest.raises(UsageError, match=r"/camera/h264.*header"):
        choose("header", reference(fixed=0), [])


# ---- other clocks ------------------------------------------------------------------------
@pytest.mark.parametrize("base", ["header", "publish"])
def test_a_topic_with_another_clock_takes_log_time_and_the_references_median(base):
    for away, replaced in ((5 * SECOND, False), (5 * SECOND + 1, True), (-5 * SECOND, False), (-5 * SECOND - 1, True),
                           (-NOW, True), (365 * 86400 * SECOND, True)):  # fmt: skip
        camera = reference(header=-45_000_000, publish=-45_000_000)
        other = times("/radar/cube", **{base: away - 45_000_000})
        found = choose(base, camera, [other])
        assert (set(found.replaced) == {"/radar/cube"}) == replaced, away
        own = message("/radar/cube", NOW, NOW + away, NOW + away)
        assert found.stamp(own) == (NOW - 45_000_000 if replaced else NOW + away)
        assert found.stamp(message("/camera/h264", NOW, NOW - 9, NOW - 9)) == NOW - 9


@pytest.mark.parametrize("fixed", [0, NOW, 3 * SECOND])
def test_a_topic_whose_stamps_are_zero_or_all_equal_is_replaced_and_this_is_said(fixed):
    found = choose("auto", reference(header=-20_000_000), [times("/gps", fixed=fixed), times("/imu", header=-1)])
    assert set(found.replaced) == {"/gps"}
    assert "zero or all equal" in found.replaced["/gps"]
    assert "-0.020000" in found.replaced["/gps"]
    assert found.stamp(message("/gps", NOW, fixed)) == NOW - 20_000_000


def test_the_spread_is_that_of_the_medians_on_both_sides_of_the_reference():
    late, early = times("/radar/cube", header=30_000_000), times("/lidar/points", header=-50_000_000)
    assert choose("header", reference(header=-10_000_000), [late, early]).spread == 80_000_000
    assert choose("header", reference(header=-10_000_000), [late]).spread == 40_000_000
    assert choose("header", reference(header=-10_000_000), []).spread == 0


def test_segments_just_after_one_recorded_later_are_named_with_its_end():
    """The gap reaches from the end of the later recorded one on; what begins at its end is not after it."""
    found = Segments()
    for stamp in (100, 101, 97, 98):
        found.add(stamp * SECOND)
    assert found.spans == [(100 * SECOND, 101 * SECOND), (97 * SECOND, 98 * SECOND)]
    assert found.find_preceded(2 * SECOND) == {0: 100 * SECOND}
    assert found.find_preceded(SECOND) == {}


def test_what_is_said_names_the_distance():
    found = choose("auto", reference(), [times("/gps", header=-3600 * SECOND)])
    assert "-3600.000 s" in found.replaced["/gps"]
    assert "/camera/h264" in found.replaced["/gps"]


def test_one_message_with_an_equal_stamp_is_no_fault():
    assert choose("auto", reference(), [times("/gps", number=1)]).replaced == {}
    assert set(choose("auto", reference(), [times("/gps", number=1, fixed=0)]).replaced) == {"/gps"}


def test_topics_without_header_or_messages():
    found = choose("auto", reference(), [times("/mask", schema=MASK), times("/none", number=0)])
    assert set(found.replaced) == {"/mask"}


def test_the_median_of_an_even_number_is_the_lower_one():
    """Half the stamps 0, half 10.000000001 s away: the lower median is in the reference's domain."""
    gps = TopicTimes("/gps")
    for n in range(4):
        log = NOW + n * SECOND
        gps.add(message("/gps", log, log + (10 * SECOND if n % 2 else 0)))
    assert choose("auto", reference(), [gps]).replaced == {}


def test_a_time_base_falls_back_to_log_time_for_messages_without_header():
    assert TimeBase("header", 7).stamp(message("/m", NOW, schema=MASK)) == NOW + 7


# ---- segments ----------------------------------------------------------------------------
def segments(*steps):
    found = Segments()
    return [found.add(NOW + step) for step in steps]


def test_a_segment_begins_behind_a_step_of_the_clock():
    s = SECOND
    assert segments(0, 5 * s) == [0, 0]
    assert segments(0, 5 * s + 1) == [0, 1]
    assert segments(0, -s) == [0, 0]
    assert segments(0, -s - 1) == [0, 1]
    assert segments(0, s // 2, -s // 2, s // 2 - s - 1) == [0, 0, 0, 1]
    assert segments(0, -s, 5 * s) == [0, 0, 0]  # of the latest, not of the last
    assert segments(0, 365 * 86400 * s, 0) == [0, 1, 2]


@given(
    st.lists(st.integers(-20, 20).map(lambda n: n * SECOND // 2), max_size=40),
    st.sampled_from((0, 1, SECOND // 2, 2 * SECOND)),
)
def test_segments_and_overlaps_are_those_of_a_plain_search(stamps, margin):
    found, spans, expected = Segments(), [], []
    for stamp in stamps:
        if not spans or stamp > max(spans[-1]) + 5 * SECOND or stamp < max(spans[-1]) - SECOND:
            spans.append([])
        spans[-1].append(stamp)
        expected.append(len(spans) - 1)
    assert [found.add(stamp) for stamp in stamps] == expected
    assert found.spans == [(min(span), max(span)) for span in spans]
    assert found.overlapping(margin) == {
        n
        for n, one in enumerate(spans)
        for k, other in enumerate(spans)
        if n != k and min(one) <= max(other) + margin and min(other) <= max(one) + margin
    }


@given(st.lists(st.integers(-30, 30).map(lambda n: n * SECOND // 4), max_size=60))
def test_the_running_clock_never_stands_behind_itself_nor_jumps(steps):
    clock, log, before = RunningClock(), NOW, 0
    for step in steps:
        log += step
        now = clock.tick(log)
        assert 0 <= now - before <= 5 * SECOND
        before = now


def test_the_running_clock_is_log_time_without_its_jumps():
    clock, s = RunningClock(), SECOND
    t = s // 20
    assert [clock.tick(NOW + n) for n in (0, t, 2 * t, 2 * t - 100, 3 * t)] == [0, t, 2 * t, 2 * t, 3 * t]
    assert [clock.tick(NOW + n) for n in (1000 * s, 1000 * s + t, s, s + t)] == [5 * t, 6 * t, 6 * t, 7 * t]


def test_where_log_time_stands_still_the_stamps_drive_the_running_clock():
    clock, ms = RunningClock(), SECOND // 1000
    sent = [(0, 0), (0, 50), (0, None), (0, 100), (100, None), (100, 150), (150, None), (150, 9000), (150, 10)]
    found = [clock.tick(NOW + log * ms, None if s is None else NOW + s * ms) for log, s in sent]
    # by the stamps, then by log_time once it is further; a long step counts as LONGEST_STEP, a step back as none
    assert found == [n * ms for n in (0, 50, 50, 100, 100, 150, 150, 250, 250)]
