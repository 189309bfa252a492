# SPDX-License-Identifier: Apache-2.0
"""What is held for a dataset that begins earlier than it is started."""

import pytest
from edgefirst.schemas import builtin_interfaces, foxglove_msgs, sensor_msgs, std_msgs
from streams import stream

from edgefirst_ros.config import SECOND, Settings
from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.pretrigger import Arrival, Recent
from edgefirst_ros.sources.topics import choose_topics
from edgefirst_ros.streams import COMPRESSED_IMAGE, CUBE, VIDEO

CAMERA, RADAR = "/camera/jpeg", "/radar/cube"
LOOKBACK = SECOND + SECOND // 10
"""ns: `lookahead` and `tolerance` at their defaults."""
SPACING = SECOND // 20


def load(recent, seconds, size):
    """A picture and a cube of `size` bytes 20 times a second each, from 1 s on; returns when the last one came."""
    now = 0
    for n in range(seconds * 20):
        now = SECOND + n * SPACING
        for topic, schema in ((RADAR, CUBE), (CAMERA, COMPRESSED_IMAGE)):
            data = picture(size) if topic == CAMERA else bytes(size)
            recent.add(Arrival(Message(topic, schema, now, now, n, data), now))
    return now


def picture(size):
    return bytes(
        sensor_msgs.CompressedImage(
            std_msgs.Header(builtin_interfaces.Time(1, 0), "camera"), "jpeg", bytes(size)
        ).to_bytes()
    )


def video(data, form):
    content = foxglove_msgs.CompressedVideo(builtin_interfaces.Time(1, 0), "camera", data, form)
    return bytes(content.to_bytes())


@pytest.fixture
def held():
    def make(pretrigger, most):
        settings = Settings()
        roles = choose_topics({CAMERA: COMPRESSED_IMAGE, RADAR: CUBE}, settings)
        recent = Recent(settings, roles, pretrigger * SECOND, most)
        recent.spread = 0
        return recent

    return make


def test_a_dataset_begins_as_much_earlier_as_it_says(held):
    recent = held(10, 1 << 30)
    now = load(recent, 30, 1000)
    assert recent.begin(now) == now - 10 * SECOND
    came = {
        topic: [a.now for a in recent.since(now - 10 * SECOND) if a.message.topic == topic] for topic in (CAMERA, RADAR)
    }
    assert came[CAMERA] == list(range(now - 10 * SECOND, now + 1, SPACING))
    assert came[RADAR] == list(range(now - 10 * SECOND - LOOKBACK, now + 1, SPACING))
    assert not recent.crowded


def test_it_takes_no_more_memory_than_it_may_and_the_first_frames_still_have_their_companions(held):
    recent = held(60, 4_000_000)
    now = load(recent, 30, 25_000)  # 1 MB a second
    assert recent.crowded
    begin = recent.begin(now)
    kept = list(recent.since(0))
    assert sum(len(a.message.data) for a in kept) <= 4_000_000
    assert now - begin > 2 * SECOND  # of the 4 s there is room for, 1.1 s are the companions' alone
    assert [a.now for a in kept if a.message.topic == RADAR] == list(range(begin - LOOKBACK, now + 1, SPACING))


def test_a_frame_with_all_that_belongs_to_it_is_kept_however_large_it_is(held):
    recent = held(0, 1 << 20)
    now = load(recent, 5, 1_000_000)
    assert recent.crowded
    assert recent.begin(now) == now
    assert next(a.now for a in recent.since(now) if a.message.topic == RADAR) == now - LOOKBACK


def test_a_dataset_begins_with_a_message_that_can_be_decoded():
    """Of four messages of video the third one is the first keyframe that somebody can read."""
    settings = Settings()
    roles = choose_topics({"/camera/h264": VIDEO}, settings)
    recent = Recent(settings, roles, 10 * SECOND, 1 << 30)
    keyframe, picture = stream("h264-b").units[:2]
    sent = [b"\0\1\0\0 no message", video(keyframe, "av1"), video(keyframe, "h264"), video(picture, "h264")]
    arrivals = [Arrival(Message("/camera/h264", VIDEO, n, n, n, data), n) for n, data in enumerate(sent, 1)]
    for arrival in arrivals:
        recent.add(arrival)
    assert [arrival.entry for arrival in arrivals] == [False, False, True, False]
    assert [arrival.closed for arrival in arrivals] == [False, False, True, False]
    assert [isinstance(arrival.parsed, MessageError) for arrival in arrivals] == [True, False, False, False]
    assert recent.begin(4) == 3
    assert [arrival.now for arrival in recent.since(3)] == [3, 4]
