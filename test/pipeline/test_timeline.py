# SPDX-License-Identifier: Apache-2.0
import pytest
from edgefirst.schemas import geometry_msgs, std_msgs

from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.cameras import MessageOrder
from edgefirst_ros.pipeline.tracks import Poses
from edgefirst_ros.streams import POSE_STAMPED, VIDEO
from edgefirst_ros.sync.clock import Segments

S = 1_000_000_000


def message(sequence, file=0):
    return Message("/camera/h264", VIDEO, 0, 0, sequence, b"", file=file)


def gaps(sent, *, numbered=True):
    """Numbers of the frames before which one is missing; `sent`: sequence number, ms, and file of each message."""
    order = MessageOrder(numbered=numbered)
    found = [order.add(message(n, *file), ms * S // 1000) for n, ms, *file in sent]
    assert [number for number, _ in found] == list(range(len(sent)))
    return [number for number, gap in found if gap]


def test_a_step_of_sequence_numbers_is_a_gap_where_they_count():
    sent = [(5, 0), (6, 33), (8, 66), (9, 99)]
    assert gaps(sent) == [2]
    assert gaps(sent, numbered=False) == []


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([(500, 0), (501, 100), (1, 200), (2, 300)], []),  # started again without a pause
        ([(500, 0), (501, 100), (1, 250), (2, 350)], []),  # 1.5 times the usual interval
        ([(500, 0), (501, 100), (1, 251), (2, 351)], [2]),
        ([(0, 0), (1, 100), (1, 900), (2, 1000)], [2]),  # it counts from where it was
        ([(0, 0), (1, 100), (2, 200), (0, -5000), (1, -4900)], []),  # with its clock set back
        ([(9, 0), (0, 5000), (1, 5100)], []),  # its usual interval is not known
        ([(7, 0), (8, 100), (0, 200, 1), (1, 300, 1)], []),  # another file
        ([(7, 0), (8, 100), (90, 900, 1), (91, 1000, 1)], []),
        ([(7, 0), (8, 100), (0, 200, 1), (2, 300, 1)], [3]),  # and a loss in it
    ],
)
def test_a_step_back_is_a_gap_where_the_stamps_leave_one(sent, expected):
    assert gaps(sent) == expected


def test_live_every_clock_set_back_begins_an_epoch():
    segments, epochs = Segments(), []
    for stamp in (100 * S, 101 * S, 90 * S, 91 * S, 200 * S):
        segments.add(stamp)
        epochs.append(segments.epoch(None))
    assert epochs == [0, 0, 1, 1, 1]


def test_offline_only_segments_that_overlap_are_epochs_of_their_own():
    segments, epochs = Segments(), []
    for stamp in (100 * S, 101 * S, 90 * S, 200 * S):
        segments.add(stamp)
        epochs.append(segments.epoch({0, 1}))
    assert epochs == [0, 0, 1, -1]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        *((104, 1), (109, 1), (111, 1)),  # the newest is at 106
        *((111.5, 0), (115, 0)),  # the one before ended at 110
        *((103.9, 2), (115.5, 2), (1e6, 2)),
    ],
)
def test_a_message_is_of_the_newest_segment_that_it_may_be_of_or_of_the_next(stamp, expected):
    segments = Segments()
    assert segments.of(100 * S, S) == 0
    for second in (100, 105, 110, 104, 106):
        segments.add(second * S)
    found = segments.of(round(stamp * S), 2 * S)
    assert found == expected


def test_no_pose_is_interpolated_between_segments():
    poses = Poses(2 * S, None, list)
    one = geometry_msgs.Pose(geometry_msgs.Point(1, 2, 3), geometry_msgs.Quaternion(0, 0, 0, 2))
    message = geometry_msgs.PoseStamped(std_msgs.Header(frame_id="map"), one)
    for stamp in (1 * S, 2 * S, 3 * S):
        assert poses.add(POSE_STAMPED, message, stamp, None, 0, lambda stamp: int(stamp >= 3 * S)) == ""
    assert poses.at(3 * S // 2, 0) == ((1, 2, 3), (0, 0, 0, 1))
    assert poses.at(5 * S // 2, 0) is poses.at(5 * S // 2, 1) is None
    assert poses.at(3 * S, 1) is not None
    assert poses.horizon(2 * S, 1) == 2 * S
    poses.forget({1: 3 * S}, 1, S, 1)
    assert poses.at(2 * S, 0) is None
    assert poses.at(3 * S, 1) is not None
