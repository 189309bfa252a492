# SPDX-License-Identifier: Apache-2.0
"""Codec and picture size of a camera topic, by its first message that gives a picture."""

import io

import numpy as np
import pytest
from edgefirst.schemas import builtin_interfaces, foxglove_msgs, sensor_msgs, std_msgs
from PIL import Image
from streams import stream

from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.messages import Message
from edgefirst_ros.pipeline.first_pass import MOST_TRIED, CameraFacts
from edgefirst_ros.streams import COMPRESSED_IMAGE, IMAGE, VIDEO

TOPIC = "/camera/front"
NO_MESSAGE = b"\0\1\0\0 no message"


def video(data, form="h264"):
    return bytes(foxglove_msgs.CompressedVideo(builtin_interfaces.Time(1, 0), "camera", data, form).to_bytes())


def jpeg(width, height):
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG")
    data = np.frombuffer(file.getvalue(), np.uint8)
    return bytes(sensor_msgs.CompressedImage(std_msgs.Header(frame_id="camera"), "jpeg", data).to_bytes())


def facts(schema, *messages):
    found = CameraFacts(TOPIC, schema, DEFAULT_LIMITS)
    for n, data in enumerate(messages):
        found.offer(Message(TOPIC, schema, n, n, n, data))
    return found.plain()


def expected(codec, width, height):
    return {"topic": TOPIC, "codec": codec, "width": width, "height": height}


def test_video_begins_with_its_first_keyframe_that_can_be_decoded():
    units = stream("h264-odd").units
    broken = video(units[0][: len(units[0]) // 2])
    assert facts(VIDEO, NO_MESSAGE, video(units[5]), broken, video(units[12])) == expected("h264", 131, 99)


def test_of_pictures_the_first_one_that_is_whole_counts():
    pictures = [jpeg(64, 48)[:-40], jpeg(32, 24), jpeg(80, 60)]
    assert facts(COMPRESSED_IMAGE, NO_MESSAGE, *pictures) == expected("jpeg", 32, 24)


def test_without_a_picture_nothing_is_known():
    assert facts(VIDEO, NO_MESSAGE, video(b"")) == expected(None, None, None)


@pytest.mark.parametrize(("before", "size"), [(MOST_TRIED - 1, (32, 24)), (MOST_TRIED, (None, None))])
def test_no_more_messages_are_tried_than_somebody_may_wait_for(before, size):
    codec = "jpeg" if size[0] else None
    assert facts(COMPRESSED_IMAGE, *[NO_MESSAGE] * before, jpeg(32, 24)) == expected(codec, *size)


def test_messages_of_another_type_are_passed_over():
    found = CameraFacts(TOPIC, COMPRESSED_IMAGE, DEFAULT_LIMITS)
    found.offer(Message(TOPIC, IMAGE, 0, 0, 0, jpeg(64, 48)))
    assert found.size is None
    found.offer(Message(TOPIC, COMPRESSED_IMAGE, 0, 0, 0, jpeg(64, 48)))
    assert found.size == (64, 48)
