# SPDX-License-Identifier: Apache-2.0
"""A splice in H.265: the keyframe behind it says by its type that pictures before it are not those it had."""

from streams import Numbered, plainly, read, stream

from edgefirst_ros.counts import BEFORE_KEYFRAME
from edgefirst_ros.sensors.video.bitstream import START_CODE
from edgefirst_ros.sensors.video.reader import VideoReader

CRA, BLA = 21, 16
"""NAL unit types.  Source: ITU-T H.265, table 7-1."""


def test_leading_pictures_of_a_broken_link_are_those_that_libavcodec_leaves_out():
    made = stream("h265-open")
    head = START_CODE + bytes([CRA << 1])
    assert made.units[21].count(head) == 1
    messages = dict(enumerate(made.units)) | {21: made.units[21].replace(head, START_CODE + bytes([BLA << 1]))}
    shown, _, _ = plainly("hevc", messages)
    leading = [n for n in range(22, 33) if made.index[n] < made.index[21]]
    assert leading == sorted(set(range(40)) - shown.keys())
    found = read(Numbered(VideoReader, "hevc"), messages, made.shown)
    assert found == {n: BEFORE_KEYFRAME if n in leading else made.pictures[n] for n in range(40)}
