# SPDX-License-Identifier: Apache-2.0
"""A splice in H.265: the keyframe behind it says by its type that pictures before it are not those it had."""

import re

import pytest
from streams import Numbered, plainly, read, stream

from edgefirst_ros.counts import BEFORE_KEYFRAME
from edgefirst_ros.sensors.video.bitstream import START_CODE
from edgefirst_ros.sensors.video.h265 import H265Headers
from edgefirst_ros.sensors.video.reader import VideoReader

CRA, BLA, IDR, SPS, PPS = 21, 16, 20, 33, 34
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


@pytest.mark.parametrize("kind", range(16, 22))
def test_the_parameter_sets_of_every_kind_of_keyframe_are_found(kind):
    """Slices of types 16 to 23 begin with one more flag (7.3.6.1): no_output_of_prior_pics_flag."""
    first = stream("h265").units[0]
    begins = {first[at.end()] >> 1: at.end() for at in re.finditer(START_CODE, first)}
    own = first[begins[SPS] : begins[PPS]].rpartition(START_CODE)[0].rstrip(b"\0")
    changed = bytearray(first)
    changed[begins[IDR]] = kind << 1
    assert H265Headers().read(bytes(changed)).picture.sequence_set == own
