# SPDX-License-Identifier: Apache-2.0
"""A video message is parsed once: its access unit without a copy, its parameter sets, its format."""

import sys

import numpy as np
import pytest
from edgefirst.schemas import builtin_interfaces, foxglove_msgs
from streams import stream

from edgefirst_ros.errors import MessageError
from edgefirst_ros.messages import Message
from edgefirst_ros.sensors.pictures import VideoParser, find_codec
from edgefirst_ros.streams import VIDEO
from edgefirst_ros.synthetic.video import split_parameter_sets


def message(data, form="h264"):
    stamp = builtin_interfaces.Time(1, 0)
    content = foxglove_msgs.CompressedVideo(stamp, "camera", np.frombuffer(data, np.uint8), form)
    return Message("/camera/h264", VIDEO, 1, 1, 1, content.to_bytes())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the vendor's codec copies on Python 3.10")
def test_the_access_unit_is_a_view_into_the_message():
    unit = stream("h264").units[0]
    sent = message(unit)
    parsed = VideoParser()(sent)
    assert parsed.data == unit
    inside = np.frombuffer(parsed.data, np.uint8).ctypes.data - np.frombuffer(sent.data, np.uint8).ctypes.data
    assert inside == sent.data.index(unit)


def test_sets_in_front_make_a_unit_that_a_decoder_can_begin_with():
    first = stream("h264").units[0]
    _, picture = split_parameter_sets(first, "h264")
    parser = VideoParser()
    whole = parser(message(first))
    alone = parser(message(picture))
    assert not alone.headers.sets
    assert alone.headers.picture == whole.headers.picture
    again = alone.as_first()
    assert again.headers.sets == whole.headers.sets
    assert VideoParser().parse("h264", again.data).headers.picture == whole.headers.picture
    assert whole.as_first() is whole


def test_an_unknown_format_has_no_headers():
    parsed = VideoParser()(message(b"\0\0\1\x65", "vp9"))
    assert (parsed.form, parsed.headers, parsed.as_first(), parsed.entry) == ("vp9", None, parsed, False)


def test_a_message_that_ends_early_is_undecodable():
    sent = message(stream("h264").units[0])
    with pytest.raises(MessageError, match="undecodable"):
        VideoParser()(Message(sent.topic, VIDEO, 1, 1, 1, sent.data[:-20]))


def test_codecs_by_name():
    assert [find_codec(form) for form in ("h264", "H265 ", "hevc", "avc")] == ["h264", "hevc", "hevc", "h264"]
    for form in ("", "vp9", "h266"):
        with pytest.raises(MessageError, match="undecodable"):
            find_codec(form)
