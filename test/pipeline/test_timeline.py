# SPDX-License-Identifier: Apache-2.0
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.timeline import Timeline
from edgefirst_ros.streams import VIDEO

S = 1_000_000_000


def message(sequence):
    return Message("/camera/h264", VIDEO, 0, 0, sequence, b"")


def test_a_step_of_sequence_numbers_is_a_gap_where_they_count():
    found = {
        numbered: [line.next_frame(message(n)) for n in (5, 6, 8, 9)]
        for numbered in (True, False)
        for line in [Timeline(None, numbered=numbered)]
    }
    assert found[True] == [(0, False), (1, False), (2, True), (3, False)]
    assert found[False] == [(0, False), (1, False), (2, False), (3, False)]


def test_live_every_clock_set_back_begins_an_epoch():
    line, epochs = Timeline(None, numbered=True), []
    for stamp in (100 * S, 101 * S, 90 * S, 91 * S, 200 * S):
        line.segment(stamp)
        epochs.append(line.epoch)
    assert epochs == [0, 0, 1, 1, 1]


def test_offline_only_segments_that_overlap_are_epochs_of_their_own():
    line, epochs = Timeline({0, 1}, numbered=True), []
    for stamp in (100 * S, 101 * S, 90 * S, 200 * S):
        line.segment(stamp)
        epochs.append(line.epoch)
    assert epochs == [0, 0, 1, -1]
