# SPDX-License-Identifier: Apache-2.0
"""The hardware's decoder is tried before it is trusted; other decoders of libavcodec stand in for it here."""

import numpy as np
import pytest
from streams import Numbered, read, stream

from edgefirst_ros.limits import DEFAULT_LIMITS
from edgefirst_ros.sensors.video import decoder
from edgefirst_ros.sensors.video.decoder import check_hardware, describe_difference
from edgefirst_ros.sensors.video.reader import VideoReader

LUMA = np.full((4, 6), 100, np.uint8)


def test_hardware_that_decodes_as_software_does_is_used(monkeypatch):
    monkeypatch.setattr(decoder, "HARDWARE", "{codec}")
    made = stream("h264-b")
    reader = Numbered(VideoReader, "h264", decoder="v4l2m2m")
    assert read(reader, dict(enumerate(made.units)), made.shown) == dict(enumerate(made.pictures))
    assert reader.note == ""


@pytest.mark.parametrize("kind", ["auto", "v4l2m2m"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("hevc", "the decoder hevc gave no picture of a keyframe"),
        ("{codec}_nothing", "the decoder h264_nothing cannot be opened"),
    ],
)
def test_software_takes_over_and_the_reason_is_told(monkeypatch, kind, name, why):
    monkeypatch.setattr(decoder, "HARDWARE", name)
    made = stream("h264-b")
    reader = Numbered(VideoReader, "h264", decoder=kind)
    assert read(reader, dict(enumerate(made.units)), made.shown) == dict(enumerate(made.pictures))
    assert reader.note.startswith(why)
    assert reader.note.endswith(": video is decoded in software")


def test_of_what_software_cannot_decode_nothing_is_said(monkeypatch):
    monkeypatch.setattr(decoder, "HARDWARE", "{codec}")
    made = stream("h264-b")
    assert check_hardware("h264", made.units[0], DEFAULT_LIMITS) == ""
    for data in (b"", bytes(100), made.units[1]):
        assert check_hardware("h264", data, DEFAULT_LIMITS) is None


def test_what_cannot_be_opened_is_told_by_the_test():
    """No machine that runs the tests has such a decoder."""
    fault = check_hardware("h264", stream("h264-b").units[0], DEFAULT_LIMITS)
    assert fault.startswith("the decoder h264_v4l2m2m cannot be opened (")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (LUMA, ""),
        (LUMA + np.eye(4, 6, dtype=np.uint8), ""),
        (LUMA + 3, "the decoder x gave another picture than software: 3.0 of 255 off"),
        (LUMA[:, :4], "the decoder x gave a picture of 4 x 4 in place of 6 x 4"),
    ],
)
def test_another_picture_is_told_with_how_far_it_is_off(found, said):
    assert describe_difference("x", found, LUMA) == said
