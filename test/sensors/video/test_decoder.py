# SPDX-License-Identifier: Apache-2.0
"""Damage that libavcodec by itself says little or nothing of."""

import itertools
import re

import pytest
from streams import KINDS, Numbered, encode, planes, read, sets_of, stream

from edgefirst_ros.counts import AFTER_LOSS
from edgefirst_ros.sensors.video.decoder import Decoder
from edgefirst_ros.sensors.video.reader import VideoReader


def test_what_is_left_of_a_broken_block_shows_nowhere():
    made = stream("h264-baseline")
    for cut in range(20, len(made.units[8]), 40):
        messages = {**dict(enumerate(made.units)), 8: made.units[8][:cut]}
        found = read(Numbered(VideoReader, "h264"), messages, made.shown)
        assert [n for n in range(40) if found[n] != made.pictures[n]] == [8, 9, 10, 11]
        assert isinstance(found[8], str)
        assert found[11] == AFTER_LOSS


def test_what_is_left_of_a_broken_block_shows_nowhere_even_where_nothing_refers_to_it():
    made = stream("h264-cavlc-b")
    alone = [n for n in range(1, 11) if not made.units[n][4] & 0x60]  # nal_ref_idc behind a long start code
    for number, cut in itertools.product(alone, range(16, 60, 2)):
        unit = made.units[number]
        messages = {**dict(enumerate(made.units)), number: unit[:cut] + bytes(max(0, len(unit) - cut))}
        found = read(Numbered(VideoReader, "h264"), messages, made.shown)
        if isinstance(found.pop(number), str):  # else the decoder cannot tell
            assert all(isinstance(picture, str) or picture == made.pictures[n] for n, picture in found.items())


@pytest.mark.parametrize(
    ("number", "begin", "end", "hurt"), [(1, 1001, 1009, range(1, 12)), (5, 489, 525, range(5, 12))]
)
def test_blocks_that_the_decoder_makes_up(number, begin, end, hurt):
    """It says so as information alone, and pictures that refer to them come out before the one it marks."""
    made = stream("h264-b")
    data = made.units[number][:begin] + made.units[number][end:]
    found = read(Numbered(VideoReader, "h264"), {**dict(enumerate(made.units)), number: data}, made.shown)
    assert [n for n in range(40) if isinstance(found[n], str)] == list(hurt)
    assert all(found[n] == made.pictures[n] for n in range(40) if n not in hurt)


def test_h265_that_breaks_off():
    """libavcodec by itself takes every one of these, and shows garbage."""
    units = [data for _, data in encode("hevc", KINDS["h265"][1], 4, size=(640, 384))]
    for number in (0, 2):
        cuts = range(200, len(units[number]) - 200, len(units[number]) // 25)
        found = [
            read(Numbered(VideoReader, "hevc"), {**dict(enumerate(units)), number: units[number][:cut]}, range(4))
            for cut in cuts
        ]
        withheld = [all(isinstance(pictures[n], str) for n in range(number, 4)) for pictures in found]
        assert sum(withheld) >= 0.9 * len(withheld) > 20


@pytest.mark.parametrize("message", [b"\x05\x03abc\x80", b"\xe5\x04abcd", b"\x05\x40", b""])
def test_messages_beside_the_picture_do_no_harm(message):
    """Of what libavcodec cannot read there it says the same as of a slice."""
    made = stream("h265")
    ahead = {n: b"\x00\x00\x01\x4e\x01" + message + data for n, data in enumerate(made.units)}
    behind = {n: data + b"\x00\x00\x01\x50\x01" + message for n, data in enumerate(made.units)}
    for messages in (ahead, behind):
        assert read(Numbered(VideoReader, "hevc"), messages, made.shown) == dict(enumerate(made.pictures))


@pytest.mark.parametrize("kind", ["video", "sequence", "of no type"])
def test_units_behind_the_picture_do_no_harm(kind):
    """Parameter sets that are sent again there, and a unit whose type the standard leaves to others (7.4.2.2)."""
    made = stream("h265")
    sets = [part for part in re.split(b"\0*\0\0\1", sets_of(made.units[0], "hevc")) if part]
    last = b"\x7c\x01abc\x80" if kind == "of no type" else sets[["video", "sequence"].index(kind)]
    assert last[0] >> 1 == {"video": 32, "sequence": 33, "of no type": 62}[kind]
    messages = {n: data + b"\0\0\1" + last for n, data in enumerate(made.units)}
    assert read(Numbered(VideoReader, "hevc"), messages, made.shown) == dict(enumerate(made.pictures))


def test_broken_parameter_sets_do_not_reach_the_next_keyframe():
    made = stream("h264-b")
    for position in range(5, 40):
        for unit in (0, 12):
            hurt = bytearray(made.units[unit])
            hurt[position] ^= 0xFF
            messages = {**dict(enumerate(made.units)), unit: bytes(hurt)}
            found = read(Numbered(VideoReader, "h264"), messages, made.shown)
            assert [n for n in range(unit + 12, 40) if found[n] != made.pictures[n]] == []


def test_a_decoder_that_was_drained_has_nothing_more_and_can_begin_anew():
    made = stream("h264-b")
    decoder = Decoder("h264")
    early = [frame.pts for n in range(12) for frame in decoder.decode(made.units[n], n)[0]]
    late = [frame.pts for frame in decoder.drain()]
    assert sorted(early + late, key=made.index.__getitem__) == early + late
    assert sorted(early + late) == list(range(12))
    assert decoder.drain() == []
    decoder.restart()
    assert decoder.decode(made.units[12], 12)[1]
    assert [planes(frame) for frame in decoder.drain()] == [made.pictures[12]]
