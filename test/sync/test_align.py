# SPDX-License-Identifier: Apache-2.0
"""Alignment against a brute-force search that knows nothing of arrival."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefirst_ros.sync.align import Aligner, Stream
from edgefirst_ros.sync.clock import JUMP_BACK


def nearest(frames, messages, stream):
    """{frame number: [nearest message] or []}; frames (stamp, number, epoch), messages (stamp, order, epoch)."""
    found = {}
    for stamp, number, epoch in frames:
        near = [(stream.offset + s, order) for s, order, g in messages if g == epoch]
        near = [m for m in near if abs(m[0] - stamp) <= stream.tolerance]
        if not stream.reuse:  # the frame nearest to a message has it; of equally near ones the earlier, then the lower
            owners = [(s, n) for s, n, g in frames if g == epoch]
            near = [m for m in near if min(owners, key=lambda f: (abs(f[0] - m[0]), *f))[1] == number]
        found[number] = [order for _, order in sorted(near, key=lambda m: (abs(m[0] - stamp), *m))][:1]
    return found


def aligned(events, streams, lookahead, *, sweep=True):
    """Frames that leave as [(stamp, number, {stream: [items]})]; events (arrival, stamp, kind, number, epoch)."""
    aligner, found = Aligner(streams, lookahead), []

    def take(now):
        found.extend(
            (frame.stamp, frame.number, {k: [v.item] if v else [] for k, v in frame.nearest.items()})
            for frame in aligner.release(now)
        )

    for arrived, stamp, kind, number, epoch in events:
        if kind == "frame":
            aligner.add_frame(stamp, number, arrived, "item", 0, epoch)
        else:
            aligner.add(kind, stamp, arrived, number, epoch)
        if sweep:
            take(arrived)
    take(None)
    return found


STREAMS = st.builds(Stream, st.integers(0, 30), st.integers(-20, 20), st.booleans(), in_time=st.just(value=False))


@st.composite
def traffic(draw):
    """Two streams and frames, each message late by at most the look-ahead, in the order they arrive."""
    lookahead = draw(st.integers(1, 40))
    epochs = draw(st.sampled_from([1, 1, 2]))

    def events(kind, most):
        stamps = draw(st.lists(st.integers(0, 200), max_size=most))
        return [[s, kind, draw(st.integers(0, lookahead)), draw(st.integers(0, epochs - 1))] for s in stamps]

    everything = [*events("frame", 25), *events("a", 25), *events("b", 10)]
    everything.sort(key=lambda e: (e[0] + e[2], draw(st.integers(0, 3))))
    counters = {"frame": 0, "a": 0, "b": 0}
    found = []
    for stamp, kind, late, epoch in everything:
        found.append((stamp + late, stamp, kind, counters[kind], epoch))
        counters[kind] += 1
    return lookahead, found


@settings(max_examples=200)
@given(traffic(), STREAMS, STREAMS)
def test_the_result_is_that_of_a_search_over_everything(sent, a, b):
    lookahead, events = sent
    streams = {"a": a, "b": b}
    frames = [(stamp, number, epoch) for _, stamp, kind, number, epoch in events if kind == "frame"]
    found = aligned(events, streams, lookahead)
    assert [(stamp, number) for stamp, number, _ in found] == sorted((s, n) for s, n, _ in frames)
    for name, stream in streams.items():
        messages = [(stamp, number, epoch) for _, stamp, kind, number, epoch in events if kind == name]
        expected = nearest(frames, messages, stream)
        assert {number: candidates[name] for _, number, candidates in found} == expected
    assert aligned(events, streams, lookahead, sweep=False) == found


def one(stamps, frames=(100,), **stream):
    """Stamp of the nearest message of each frame, in a list."""
    events = [(0, f, "frame", n, 0) for n, f in enumerate(frames)] + [(0, s, "a", s, 0) for s in stamps]
    return [candidates["a"] for _, _, candidates in aligned(events, {"a": Stream(**stream)}, 1000)]


def test_the_tolerance_is_inclusive():
    assert one([90, 89, 110, 111], tolerance=10) == [[90]]
    assert one([100, 99], tolerance=0) == [[100]]
    assert one([], tolerance=10) == [[]]


def test_ties_go_to_the_earlier_and_equal_stamps_to_the_first_recorded():
    assert one([105, 95], tolerance=10) == [[95]]
    aligner = Aligner({"a": Stream(10)}, 100)
    for item in ("first", "second"):
        aligner.add("a", 7, 0, item)
    aligner.add_frame(7, 0, 0, None)
    assert aligner.release(None)[0].nearest["a"].item == "first"


def test_the_offset_is_added_to_the_companions_stamp():
    aligner = Aligner({"a": Stream(5, offset=-20)}, 100)
    aligner.add("a", 120, 0, "x")
    aligner.add_frame(103, 0, 0, None)
    (frame,) = aligner.release(None)
    assert (frame.nearest["a"].stamp, frame.nearest["a"].item) == (100, "x")


def test_a_slow_message_serves_several_frames_or_the_one_nearest_to_it():
    assert one([105], (90, 100, 110, 112), tolerance=20) == [[105]] * 4
    assert one([105], (90, 100, 110, 112), tolerance=20, reuse=False) == [[], [105], [], []]
    assert one([106], (90, 100, 110, 112), tolerance=20, reuse=False) == [[], [], [106], []]
    assert one([104, 96], (100, 110), tolerance=20, reuse=False) == [[96], []]


def test_a_message_behind_its_frames_is_late_unless_the_clock_of_its_topic_was_set_back():
    aligner = Aligner({"a": Stream(0, offset=7)}, lookahead=0)
    for number in range(3):
        aligner.add_frame(number * JUMP_BACK, number, number, "item")
    aligner.release(None)
    for stamp, late in ((-1, False), (0, True), (2 * JUMP_BACK - 1, True), (2 * JUMP_BACK, False)):
        assert aligner.late("a", stamp - 7) == late
    aligner.add("a", 2 * JUMP_BACK - 1, 3, "item")
    assert aligner.late("a", JUMP_BACK - 1)
    assert not aligner.late("a", JUMP_BACK - 2)


def test_epochs_do_not_meet():
    events = [(0, 100, "frame", 0, 0), (0, 100, "frame", 1, 1), (0, 101, "a", 7, 1), (0, 109, "a", 8, 0)]
    assert [c["a"] for _, _, c in aligned(events, {"a": Stream(10)}, 100)] == [[8], [7]]


def test_frames_leave_by_segment_then_stamp_then_number():
    aligner = Aligner({}, 10)
    for segment, stamp, number in ((1, 5, 3), (0, 9, 1), (0, 9, 0), (1, 4, 4), (0, 7, 2)):
        aligner.add_frame(stamp, number, 0, None, segment)
    assert [f.number for f in aligner.waiting() if f.stamp == 5] == [3]
    assert [f.number for f in aligner.release(None)] == [2, 0, 1, 4, 3]
    assert aligner.waiting() == []


def test_a_frame_leaves_as_soon_as_nothing_near_it_can_come():
    aligner = Aligner({"a": Stream(100, offset=-30)}, 1000)
    aligner.add_frame(5, 0, 5, None)
    assert aligner.release(5 + 1130) == []
    assert len(aligner.release(5 + 1131)) == 1


def test_an_offset_that_sets_a_clock_right_keeps_no_frame_waiting():
    """The stamps of a lidar in TAI are 37 s ahead, and come with those of the camera."""
    aligner = Aligner({"a": Stream(5, -37_000, in_time=True)}, 10)
    aligner.add_frame(100, 0, 100, "item")
    aligner.add("a", 37_101, 101, 7)
    (frame,) = aligner.release(116)
    assert (aligner.max_skew, frame.nearest["a"].item) == (5, 7)
    assert Aligner({"a": Stream(5, -37_000)}, 10).max_skew == 37_005


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("gap", [False, True])
def test_what_is_kept_does_not_grow(reuse, gap):
    """`gap`: companions go on without frames."""
    aligner, most = Aligner({"a": Stream(100, reuse=reuse)}, 1000), 0
    for now in range(0, 400_000, 10):
        aligner.add("a", now, now, None)
        if now % 30 == 0 and not (gap and now > 20_000):
            aligner.add_frame(now, now, now, None)
        for _ in aligner.release(now):
            pass
        kept = [*aligner._buffers.values(), *aligner._frames.values()]
        most = max(most, sum(len(b.items) + len(b.arrivals) for b in kept) + len(aligner.waiting()))
    assert most < 2000


def test_without_reuse_a_late_frame_may_still_be_nearer():
    """The second frame lies 17 behind the first, nearer to the message between them, and comes 20 late."""
    events = [(0, 0, "frame", 0, 0), (9, 9, "a", 7, 0), (35, 35, "a", 8, 0), (37, 17, "frame", 1, 0)]
    found = aligned(events, {"a": Stream(10, reuse=False)}, 20)
    assert [(number, candidates["a"]) for _, number, candidates in found] == [(0, []), (1, [7])]
