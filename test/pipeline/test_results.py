# SPDX-License-Identifier: Apache-2.0
"""Results of the model: which frame each joins, and for how long frames are remembered."""

from edgefirst_ros.pipeline.frame import SensorMessage
from edgefirst_ros.pipeline.frames import MASK, REMEMBERED, ModelResults

MS = 1_000_000
TOPIC = "/model/output"


def made():
    return ModelResults(10 * MS, 500 * MS)


def message(stamp, content=None):
    return SensorMessage(TOPIC, content, stamp)


def test_behind_a_clock_set_back_a_result_is_of_the_last_frame_with_its_stamp():
    results = made()
    earlier = results.expect(100, 0)
    assert results.joint(100, 1) == earlier
    results.add(earlier, message(100), 0, mask_stamp=None, epoch=1)
    assert results.joint(100, 1) == (1, 100)  # that one has its result: this is of one that is still to come
    assert results.joint(200, 1) == (1, 200)


def test_frames_are_forgotten_in_the_order_in_which_they_came():
    results = made()
    for stamp in range(REMEMBERED + 1):
        results.expect(stamp, 0)
    assert [results.joint(stamp, 1) for stamp in (0, 1, REMEMBERED)] == [(1, 0), (0, 1), (0, REMEMBERED)]
    results.expect(1, 0)  # it came again: now it is the last
    results.expect(REMEMBERED + 1, 0)
    assert [results.joint(stamp, 1) for stamp in (1, 2, 3)] == [(0, 1), (1, 2), (0, 3)]


def test_a_result_is_late_once_its_frame_was_handed_on_as_far_as_that_is_remembered():
    results = made()
    frames = [results.expect(stamp, 0) for stamp in range(REMEMBERED + 1)]
    results.add(frames[0], message(0, "boxes"), 0, mask_stamp=None, epoch=0)
    assert not results.is_late(frames[0])
    assert results.pop(frames[0]).content == "boxes"
    assert results.pop(frames[1]) is None
    assert [results.is_late(frame) for frame in frames[:3]] == [True, True, False]
    for frame in frames[2:]:
        results.pop(frame)
    assert [results.is_late(frame) for frame in frames[:2]] == [False, True]


def test_a_frame_waits_for_the_mask_of_its_result():
    results = made()
    frame = results.expect(100 * MS, 0)
    results.add(frame, message(100 * MS), 0, mask_stamp=100 * MS, epoch=0)
    assert not results.is_complete(frame)
    results.masks.add(MASK, 104 * MS, 4 * MS, message(104 * MS, "mask"), 0)
    results.advance(None)
    assert results.is_complete(frame)
    assert results.pop(frame).mask.content == "mask"


def test_results_that_no_frame_waits_for_are_dropped_after_twice_the_lookahead():
    results = made()
    frames = [results.expect(stamp, 0) for stamp in (1, 2)]
    for frame, arrived in zip(frames, (0, 1), strict=True):
        results.add(frame, message(frame[1]), arrived, mask_stamp=None, epoch=0)
    results.forget(1000 * MS)
    assert results.pop(frames[0]) is not None
    results.forget(1000 * MS + 1)
    assert [results.pop(frame) is None for frame in frames] == [True, False]
